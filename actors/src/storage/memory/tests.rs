//! The memory backend: the conformance suite, eviction and logging.

use std::{fmt::Write, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tracing::{
    Event, Metadata, Subscriber,
    field::Field,
    span::{Attributes, Id, Record},
};

use super::*;
use crate::{
    clock::Now,
    model::{
        Addressing, AuditOutcome, Budget, BudgetFull, DeliveryStatus, Headers, MessageId, MessageIds, NewMessage,
        RecipientStatus, SessionId, SessionRecord,
    },
    storage::{
        Acknowledge, Append, Appended, Audience, COPY_BYTES, DeadLetterQuery, PutSession, RecipientRefusal, Release,
        conformance::{
            BUDGET_CASES, CASES, Case, EVENT_CASES, TIMED_CASES, run, small_budgets,
            world::{World, accepted},
        },
        envelope_bytes,
    },
};

/// Operations are ready at the first poll, and so is the whole suite.
fn passes(cases: &[Case]) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::default());
    run(cases, || storage.clone())
        .now_or_never()
        .expect("an operation was not ready at the first poll");
}

#[test]
fn the_memory_storage_passes_the_conformance_suite() {
    passes(CASES);
    passes(EVENT_CASES);
}

#[test]
fn the_memory_storage_passes_the_budget_cases() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new(small_budgets()));
    run(BUDGET_CASES, || storage.clone())
        .now_or_never()
        .expect("an operation was not ready at the first poll");
}

#[test]
fn the_memory_storage_passes_the_timed_cases() {
    passes(TIMED_CASES);
}

/// Alice and bob in a store with small limits.
struct SmallStore {
    state: ProjectState,
    ids: MessageIds,
    alice: SessionId,
    bob: SessionId,
}

const START: Now = Now {
    unix_ms: 1_790_000_000_000,
    mono_ms: 5_000,
};

impl SmallStore {
    fn new(retention: Retention) -> Self {
        let mut state = ProjectState::new(ProjectId::default_project(), &StoreLimits::new(retention));
        let [alice, bob] = [(); 2].map(|()| SessionId::generate());
        for id in [alice, bob] {
            state.put_session(record(id), PutSession::default());
        }
        Self {
            state,
            ids: MessageIds::default(),
            alice,
            bob,
        }
    }

    fn status(&mut self, id: MessageId, now: Now) -> Option<Vec<RecipientStatus>> {
        self.state.message_statuses(&[id], now).pop().flatten()
    }

    fn sends(&mut self, key: Option<&str>, ttl_seconds: Option<u64>) -> (MessageId, Appended) {
        let headers = Headers {
            ttl_seconds,
            ..Headers::default()
        };
        let protocol = ("chat", "1.0.0");
        let draft = NewMessage::new(
            &ProjectId::default_project(),
            &record(self.alice),
            Addressing::Direct,
            protocol,
            "{}",
            &headers,
        );
        let message = draft.seal(self.ids.next(START), Some(self.bob), START, false);
        let id = message.id;
        let append = Append {
            message,
            audience: Audience::One(self.bob),
            queue_capacity: usize::MAX,
            idempotency_key: key.map(str::to_owned),
            roster_version: None,
        };
        (id, self.state.append(vec![append], START).remove(0))
    }

    fn bob_takes_one(&mut self) -> MessageId {
        let id = self.state.lease(self.bob, None, 1, usize::MAX, START).deliveries[0]
            .message
            .id;
        let done = self.state.acknowledge(self.bob, Acknowledge::Ids(vec![id]), START);
        assert_eq!(done.acknowledged, 1);
        id
    }
}

fn record(id: SessionId) -> SessionRecord {
    SessionRecord {
        id,
        ..SessionRecord::unnamed()
    }
}

#[test]
fn the_dead_letters_given_up_first_are_dropped_first() {
    let mut small = SmallStore::new(Retention {
        dead_letters_len_max: 2,
        ..Retention::default()
    });
    let sent = [(); 4].map(|()| small.sends(None, None).0);
    small.state.lease(small.bob, None, 4, usize::MAX, START);
    for id in [sent[3], sent[0], sent[1]] {
        small.state.release(small.bob, &Release::Ids(vec![id]), 1, START);
    }
    let kept: Vec<_> = small
        .state
        .ledger
        .dead_letters
        .list(&DeadLetterQuery {
            limit: 9,
            ..DeadLetterQuery::default()
        })
        .dead_letters
        .iter()
        .map(|dead| dead.message.id)
        .collect();
    assert_eq!(kept, sent[..2]);
    assert_eq!(small.state.ledger.dead_letters.len(), 2);
}

#[test]
fn the_oldest_idempotency_keys_are_forgotten_at_the_limit() {
    let mut small = SmallStore::new(Retention {
        idempotency_keys_len_max: 2,
        ..Retention::default()
    });
    for key in ["a", "b", "c"] {
        small.sends(Some(key), None);
    }
    assert!(matches!(small.sends(Some("b"), None).1, Appended::Duplicate(_)));
    assert!(matches!(small.sends(Some("a"), None).1, Appended::Accepted { .. }));
    assert!(matches!(small.sends(Some("b"), None).1, Appended::Accepted { .. }));
}

#[test]
fn receipts_of_waiting_messages_are_never_forgotten() {
    let mut small = SmallStore::new(Retention {
        receipts_len_max: 2,
        ..Retention::default()
    });
    let sent: Vec<_> = (0..5).map(|_| small.sends(None, None).0).collect();
    for &id in &sent {
        assert!(small.status(id, START).is_some());
    }
    while small.state.depth(small.bob).waiting > 0 {
        small.bob_takes_one();
    }
    let known: Vec<_> = sent.iter().map(|&id| small.status(id, START).is_some()).collect();
    assert_eq!(known, [false, false, false, true, true]);
}

#[test]
fn a_redrive_restores_a_forgotten_receipt() {
    let mut small = SmallStore::new(Retention {
        receipts_len_max: 1,
        ..Retention::default()
    });
    let dead = small.sends(None, None).0;
    small.state.lease(small.bob, None, 1, usize::MAX, START);
    small
        .state
        .release(small.bob, &Release::Silent(Duration::ZERO), 1, START);
    small.sends(None, None);
    assert_eq!(small.status(dead, START), None);
    small.bob_takes_one();
    small.state.redrive(vec![dead], None, 9, START);
    assert_eq!(small.status(dead, START).unwrap()[0].status, DeliveryStatus::Queued);
    assert_eq!(small.bob_takes_one(), dead);
    assert_eq!(
        small.status(dead, START).unwrap()[0].status,
        DeliveryStatus::Acknowledged
    );
}

#[test]
fn messages_acknowledged_before_their_deadline_leave_no_expiry() {
    let mut small = SmallStore::new(Retention::default());
    let kept = small.sends(None, Some(60)).0;
    let leased = small.state.lease(small.bob, None, 1, usize::MAX, START).deliveries[0]
        .message
        .id;
    for _ in 0..10_000 {
        small.sends(None, Some(3600));
        small.bob_takes_one();
    }
    assert!(small.state.expiries_len() < 2000, "{}", small.state.expiries_len());
    small
        .state
        .release(small.bob, &Release::Silent(Duration::ZERO), 9, START);
    let later = Now {
        mono_ms: START.mono_ms + 60_000,
        ..START
    };
    assert_eq!(leased, kept);
    assert_eq!(small.status(kept, later).unwrap()[0].status, DeliveryStatus::Expired);
}

#[test]
fn an_older_clock_reading_does_not_revive_expired_messages() {
    let mut small = SmallStore::new(Retention::default());
    let id = small.sends(None, Some(1)).0;
    small.state.lease(small.bob, None, 1, usize::MAX, START);
    let later = Now {
        mono_ms: START.mono_ms + 1000,
        ..START
    };
    small.state.sweep(later);
    assert_eq!(
        small
            .state
            .release(small.bob, &Release::Silent(Duration::ZERO), 9, START)
            .dead,
        1
    );
    assert_eq!(small.status(id, START).unwrap()[0].status, DeliveryStatus::Expired);
}

#[test]
fn the_oldest_cross_project_targets_are_forgotten_at_the_limit() {
    let mut small = SmallStore::new(Retention {
        cross_project_targets_len_max: 2,
        ..Retention::default()
    });
    let ids = [(); 3].map(|()| small.ids.next(START));
    for id in [ids[0], ids[1], ids[1], ids[0], ids[2]] {
        let ProjectState {
            cross_project_targets,
            journal,
            ..
        } = &mut small.state;
        cross_project_targets.put(id, ProjectId::default_project(), journal);
    }
    assert_eq!(
        ids.map(|id| small.state.cross_project_targets.get(id).is_some()),
        [false, true, true],
        "to say it again makes it neither younger nor two"
    );
}

/// The indexes of these entries that a storage with two entries for each outcome keeps, newest first.
fn audited(outcomes: &[AuditOutcome]) -> Vec<usize> {
    let storage = MemoryStorage::new(Retention {
        audit_len_max: 2,
        ..Retention::default()
    });
    for (at, &outcome) in outcomes.iter().enumerate() {
        let entry = AuditEntry {
            id: uuid::Uuid::now_v7(),
            at_ms: at as u64,
            actor: "admin".to_owned(),
            address: None,
            project: None,
            action: "project.create".to_owned(),
            target: None,
            outcome,
            code: None,
        };
        storage.append_audit(entry).now_or_never().unwrap().unwrap();
    }
    let query = AuditQuery {
        limit: 99,
        ..AuditQuery::default()
    };
    let entries = storage.audit(query).now_or_never().unwrap().unwrap();
    entries.iter().map(|entry| entry.at_ms as usize).collect()
}

#[test]
fn a_flood_of_refusals_evicts_no_action_from_the_audit_log() {
    use AuditOutcome::{Done, Refused};
    let flood = [[Done, Refused, Done].as_slice(), &[Refused; 50]].concat();
    assert_eq!(audited(&flood), [52, 51, 2, 0]);
}

#[test]
fn a_flood_of_actions_evicts_no_refusal_from_the_audit_log() {
    use AuditOutcome::{Done, Refused};
    let busy = [[Refused].as_slice(), &[Done; 9]].concat();
    assert_eq!(audited(&busy), [9, 8, 0]);
}

#[test]
fn projects_share_the_memory_of_the_broker() {
    const ROOM: usize = 2_000;
    let storage = MemoryStorage::new(Retention {
        messages_bytes_max: ROOM,
        ..Retention::default()
    });
    let all = async {
        let [one, other] = [World::new(&storage).await, World::new(&storage).await];
        let mut sent = Vec::new();
        let refused = loop {
            let append = one.direct(one.bob, &Headers::default());
            let id = append.message.id;
            match one.append(append).await {
                Appended::Accepted { refusal: None, .. } => sent.push(id),
                refused => break refused,
            }
        };
        let full = |to| {
            let (budget, limit) = (Budget::BrokerBytes, ROOM);
            Appended::refused_by_all(&[to], RecipientRefusal::Full(BudgetFull { budget, limit }))
        };
        assert!(sent.len() > 1);
        assert_eq!(refused, full(one.bob));
        let to_other = || other.append(other.direct(other.bob, &Headers::default()));
        assert_eq!(to_other().await, full(other.bob));
        one.leases(one.bob, 1).await;
        one.acknowledges(one.bob, &sent[..1]).await;
        assert_eq!(to_other().await, accepted(1));
        assert_eq!(to_other().await, full(other.bob));
        storage.clear_project(one.project.clone()).await.unwrap();
        drop(one);
        assert_eq!(to_other().await, accepted(2));
    };
    all.now_or_never()
        .expect("an operation was not ready at the first poll");
}

/// Collects the log.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<Vec<String>>>);

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = String::new();
        event.record(&mut |field: &Field, value: &dyn std::fmt::Debug| {
            write!(line, "{}={value:?} ", field.name()).unwrap();
        });
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn early_evictions_are_logged_once_with_their_number() {
    let mut small = SmallStore::new(Retention {
        idempotency_keys_len_max: 1,
        dead_letters_len_max: 1,
        ..Retention::default()
    });
    let log = Log::default();
    let swept = |small: &mut SmallStore| {
        tracing::subscriber::with_default(log.clone(), || small.state.sweep(START));
        std::mem::take(&mut *log.0.lock().unwrap())
    };
    for (sends, dropped, total) in [(1, 0, 0), (1, 1, 1), (2, 2, 3)] {
        for _ in 0..sends {
            let id = small.sends(Some(&uuid::Uuid::new_v4().to_string()), None).0;
            small.state.lease(small.bob, None, 1, usize::MAX, START);
            small.state.release(small.bob, &Release::Ids(vec![id]), 1, START);
        }
        let lines = swept(&mut small);
        let keys = format!("dropped={dropped} limit=1 ");
        let dead_letters = format!("dropped={dropped} total={total} limit=1 ");
        assert_eq!(lines.len(), if dropped > 0 { 2 } else { 0 }, "{lines:?}");
        assert!(
            lines
                .iter()
                .zip([keys, dead_letters])
                .all(|(line, expected)| line.contains(&expected)),
            "{lines:?}"
        );
        assert_eq!(swept(&mut small), [""; 0], "nothing was forgotten since");
    }
}

#[test]
fn the_last_byte_of_a_budget_may_be_used() {
    let mut small = SmallStore::new(Retention::default());
    small.sends(None, None);
    let message = small
        .state
        .lease(small.bob, None, 1, usize::MAX, START)
        .deliveries
        .remove(0)
        .message;
    let cost = COPY_BYTES + envelope_bytes(&message);
    let room = 2 * cost;
    for retention in [
        Retention {
            waiting_bytes_max: room,
            ..Retention::default()
        },
        Retention {
            messages_bytes_max: room,
            ..Retention::default()
        },
    ] {
        let mut small = SmallStore::new(retention);
        let taken = [(); 3].map(|()| matches!(small.sends(None, None).1, Appended::Accepted { refusal: None, .. }));
        assert_eq!(taken, [true, true, false]);
    }
    let mut small = SmallStore::new(Retention {
        dead_letters_bytes_max: room,
        ..Retention::default()
    });
    let counts = [(); 3].map(|()| {
        let id = small.sends(None, None).0;
        small.state.lease(small.bob, None, 1, usize::MAX, START);
        small.state.release(small.bob, &Release::Ids(vec![id]), 1, START);
        small.state.ledger.dead_letters.len()
    });
    assert_eq!(counts, [1, 2, 2]);
}
