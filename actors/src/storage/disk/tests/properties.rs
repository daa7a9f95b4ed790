//! Random operations with restarts between them, compared with a memory store that never restarts.

use proptest::{collection::vec, prelude::*, sample::Index};

use super::{
    block_on,
    differential::{DiskAndMemory, KEYS, SESSIONS},
};
use crate::{model::Priority, storage::Acknowledge};

#[derive(Clone, Debug)]
pub enum Step {
    Send {
        to: usize,
        headers: (Priority, Option<u64>),
        key: Option<usize>,
    },
    Broadcast,
    Lease {
        session: usize,
        limit: usize,
    },
    /// Acknowledges a message for this session, whether or not the session has it.
    Acknowledge(usize, Index),
    AcknowledgeUpTo(usize, Index),
    Release(usize, Index),
    Claim(usize),
    UpdateSendResult(usize),
    /// Reserves a key for one of two other projects.
    Reserve {
        key: usize,
        other: bool,
    },
    /// Stores the result of a message for which the key may be reserved.
    CompleteReservation(usize),
    CancelReservation(usize),
    Redrive {
        message: Index,
        to: Option<usize>,
    },
    /// Removes a session and adds another.
    Replace(usize),
    Cross,
    Pass(u64),
    Sweep,
    Clear,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let any_of = |make: fn(usize, Index) -> Step| (0..SESSIONS, any::<Index>()).prop_map(move |(at, it)| make(at, it));
    let headers = (
        prop::sample::select(Priority::ALL.to_vec()),
        prop::option::weighted(0.3, 1..60_u64),
    );
    let key = prop::option::weighted(0.3, 0..KEYS);
    let send = (0..SESSIONS, headers, key).prop_map(|(to, headers, key)| Step::Send { to, headers, key });
    let redrive = (any::<Index>(), prop::option::of(0..SESSIONS));
    let step = prop_oneof![
        16 => send,
        4 => Just(Step::Broadcast),
        12 => (0..SESSIONS, 1..5_usize).prop_map(|(session, limit)| Step::Lease { session, limit }),
        6 => any_of(Step::Acknowledge),
        2 => any_of(Step::AcknowledgeUpTo),
        6 => any_of(Step::Release),
        2 => (0..SESSIONS).prop_map(Step::Claim),
        2 => (0..KEYS).prop_map(Step::UpdateSendResult),
        4 => (0..KEYS, any::<bool>()).prop_map(|(key, other)| Step::Reserve { key, other }),
        2 => (0..KEYS).prop_map(Step::CompleteReservation),
        2 => (0..KEYS).prop_map(Step::CancelReservation),
        6 => redrive.prop_map(|(message, to)| Step::Redrive { message, to }),
        1 => (0..SESSIONS).prop_map(Step::Replace),
        2 => Just(Step::Cross),
        3 => (1..30_u64).prop_map(Step::Pass),
        2 => Just(Step::Sweep),
        1 => Just(Step::Clear),
        4 => Just(Step::Restart),
    ];
    vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn answered_operations_survive_restarts(steps in steps()) {
        block_on(async {
            let mut pair = DiskAndMemory::new().await;
            for step in steps {
                pair.step(step).await;
            }
            pair.restart().await;
            for session in 0..SESSIONS {
                pair.lease(session, usize::MAX).await;
                pair.acknowledge(session, Acknowledge::Ids(pair.sent.clone())).await;
            }
        });
    }
}
