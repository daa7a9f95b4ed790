//! What may happen to a session in a simulated world.

use proptest::{collection::vec, prelude::*};

/// One event from outside.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Attach,
    /// The live connection registers again.
    AttachAgain,
    Resume,
    /// The live connection closes, or one that was replaced before.
    Detach {
        stale: bool,
    },
    Subscribe {
        window: Option<usize>,
        inbox_changes: bool,
        stale: bool,
    },
    /// Messages are appended. The session is nudged only if it wants a wakeup.
    Append {
        count: usize,
    },
    /// The oldest operation is answered.
    Answer,
    Acknowledge {
        count: usize,
    },
    /// A call of `receive_messages` begins to wait, or takes what there is.
    Receive {
        count: usize,
    },
    GiveUpWaiting,
    /// The connection has no bytes to reserve, or has some again.
    Budget(bool),
    Touch,
    Leave,
    Pass {
        seconds: u64,
    },
    Panic,
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let window = prop::option::weighted(0.8, 1..5_usize);
    let subscribe =
        (window, any::<bool>(), prop::bool::weighted(0.1)).prop_map(|(window, inbox_changes, stale)| Step::Subscribe {
            window,
            inbox_changes,
            stale,
        });
    let step = prop_oneof![
        2 => Just(Step::Attach),
        1 => Just(Step::AttachAgain),
        1 => Just(Step::Resume),
        2 => prop::bool::weighted(0.3).prop_map(|stale| Step::Detach { stale }),
        6 => subscribe,
        8 => (1..4_usize).prop_map(|count| Step::Append { count }),
        12 => Just(Step::Answer),
        5 => (1..4_usize).prop_map(|count| Step::Acknowledge { count }),
        4 => (1..4_usize).prop_map(|count| Step::Receive { count }),
        1 => Just(Step::GiveUpWaiting),
        3 => any::<bool>().prop_map(Step::Budget),
        3 => Just(Step::Touch),
        1 => Just(Step::Leave),
        4 => prop_oneof![3 => 1..40_u64, 1 => 60..700_u64].prop_map(|seconds| Step::Pass { seconds }),
        1 => Just(Step::Panic),
    ];
    vec(step, 1..120)
}
