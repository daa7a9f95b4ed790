//! The bounds of the log, its gaps, and what it must not contain.

use std::time::Duration;

use super::*;
use crate::model::{
    Addressing, EventKind, EventKinds, Headers, MessageIds, NewMessage, ProjectId, SessionChange, SessionRecord,
};

const NOW: Now = Now {
    unix_ms: 1_790_000_000_000,
    mono_ms: 5,
};

/// A text that is in no log that keeps no payloads.
const CANARY: &str = "canary-7f3a";

fn log(retention: Retention) -> EventLog {
    EventLog::new(&StoreLimits::new(retention), false)
}

fn message(to: Addressing) -> Arc<Message> {
    let sender = SessionRecord::unnamed();
    let (project, payload) = (ProjectId::default_project(), format!(r#"{{"text":"{CANARY}"}}"#));
    let protocol = ("chat", "1.0.0");
    let draft = NewMessage::new(&project, &sender, to, protocol, &payload, &Headers::default());
    let recipient = (to == Addressing::Direct).then(SessionId::generate);
    draft.seal(MessageIds::default().next(NOW), recipient, NOW, false)
}

fn later(seconds: u64) -> Now {
    Now {
        unix_ms: NOW.unix_ms + seconds * 1000,
        mono_ms: NOW.mono_ms + seconds * 1000,
    }
}

impl ReadPlan {
    fn page(self) -> EventPage {
        self.read(|_| Ok::<_, std::convert::Infallible>(None)).unwrap()
    }
}

impl EventLog {
    /// Records the whole life of `count` messages.
    fn records_lives(&mut self, count: usize, now: Now) {
        for _ in 0..count {
            let message = message(Addressing::Direct);
            let session = message.recipient.unwrap();
            self.accepted(&message, &[session], now);
            self.delivered(message.id, session, 1, now);
            self.acknowledged(message.id, session, now);
        }
    }

    fn records_other(&mut self, now: Now) {
        let event = ProjectEvent::Session {
            session: SessionId::generate(),
            name: None,
            change: SessionChange::Active,
        };
        self.record(&event, now);
    }

    fn count(&self, kind: EventKind) -> usize {
        let kinds = EventKinds::of(&[kind]);
        let mut query = EventQuery {
            kinds,
            ..EventQuery::WHOLE_LOG
        };
        let mut count = 0;
        loop {
            let page = self.plan(query).page();
            assert!(!page.gap);
            count += page.events.len();
            if !page.more {
                return count;
            }
            query.from = EventStart::After(page.next.unwrap());
        }
    }

    /// The bytes of all records.
    fn raw(&self) -> Vec<u8> {
        let complete = self.complete.iter().flat_map(|block| block.records.iter().flatten());
        complete.chain(self.open.records()).copied().collect()
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn no_byte_of_a_payload_is_in_the_log_unless_it_keeps_payloads() {
    for history_payloads in [false, true] {
        let mut log = log(Retention {
            history_payloads,
            ..Retention::default()
        });
        log.records_lives(500, NOW);
        assert!(!log.complete.is_empty(), "there are complete blocks");
        assert!(contains(&log.raw(), "chat"));
        assert_eq!(contains(&log.raw(), CANARY), history_payloads);
    }
}

#[test]
fn a_log_without_history_records_nothing_of_messages() {
    let mut log = log(Retention {
        history_window: Duration::ZERO,
        ..Retention::default()
    });
    log.records_lives(3, NOW);
    let (message, session) = (message(Addressing::Direct).id, SessionId::generate());
    log.released(message, session, NOW);
    log.redriven(message, session, session, NOW);
    log.dead_lettered(message, session, DeadLetterReason::Expired, 1, NOW);
    assert_eq!(log.bytes(), 0);
    log.records_other(NOW);
    assert_eq!(log.count(EventKind::Session), 1);
    log.sweep(later(24 * 3600));
    assert_eq!(log.count(EventKind::Session), 1);
    log.sweep(later(24 * 3600 + 1));
    assert_eq!(log.count(EventKind::Session), 0);
}

#[test]
fn old_events_are_trimmed_by_age() {
    let mut log = log(Retention {
        history_window: Duration::from_mins(1),
        ..Retention::default()
    });
    log.records_lives(1, NOW);
    log.sweep(later(60));
    assert_eq!(log.count(EventKind::Accepted), 1);
    log.records_lives(1, later(61));
    log.sweep(later(100));
    assert_eq!(log.count(EventKind::Accepted), 2, "a block is trimmed as a whole");
    log.sweep(later(122));
    let page = log.plan(EventQuery::WHOLE_LOG).page();
    assert_eq!((page.events.len(), page.oldest, log.bytes()), (0, None, 0));
    assert_eq!(page.next, Some(log.trimmed), "a follower continues where the log ended");
}

/// The table in docs/performance.md.
#[test]
fn the_life_of_a_message_takes_few_bytes() {
    let mut direct = log(Retention::default());
    direct.records_lives(1000, NOW);
    let bytes = direct.bytes() / 1000;
    assert!((200..240).contains(&bytes), "{bytes}");
    let (mut broadcast, message) = (log(Retention::default()), message(Addressing::Broadcast));
    let recipients: Vec<_> = (0..1000).map(|_| SessionId::generate()).collect();
    broadcast.accepted(&message, &recipients, NOW);
    for session in &recipients {
        broadcast.delivered(message.id, *session, 1, NOW);
        broadcast.acknowledged(message.id, *session, NOW);
    }
    assert!((78_000..86_000).contains(&broadcast.bytes()), "{}", broadcast.bytes());
}

#[test]
fn the_log_is_bounded_in_messages() {
    let mut log = log(Retention {
        history_messages_max: 1_000,
        ..Retention::default()
    });
    log.records_lives(5_000, NOW);
    let kept = log.count(EventKind::Accepted);
    // The open block, and one that was completed since, are not counted.
    assert!((500..1_700).contains(&kept), "{kept}");
    assert!(log.accepted <= 1_000);
}

#[test]
fn the_log_is_bounded_in_bytes() {
    let mut log = log(Retention {
        events_bytes_max: 300_000,
        ..Retention::default()
    });
    log.records_lives(5_000, NOW);
    assert!((200_000..370_000).contains(&log.bytes()), "{}", log.bytes());
    let held: usize = log.complete.iter().map(|block| block.len).sum();
    assert_eq!(held, log.bytes);
}

#[test]
fn the_logs_of_all_projects_are_bounded_together() {
    let limits = StoreLimits::new(Retention {
        all_events_bytes_max: 300_000,
        ..Retention::default()
    });
    let (mut one, mut other) = (EventLog::new(&limits, false), EventLog::new(&limits, false));
    one.records_lives(5_000, NOW);
    other.records_lives(5_000, NOW);
    let open = one.open.records().len() + other.open.records().len();
    assert!(one.bytes() + other.bytes() - open <= 300_000);
    assert!(
        one.count(EventKind::Accepted) > 500,
        "a project loses nothing to another"
    );
    drop(one);
    other.records_lives(5_000, NOW);
    assert!(other.bytes() > 200_000, "the room of a log that is gone is free");
    drop(other);
    assert!(!limits.events_pool.is_exceeded());
}

#[test]
fn a_follower_of_a_trimmed_event_sees_a_gap_and_then_the_oldest() {
    let mut log = log(Retention {
        events_bytes_max: 100_000,
        ..Retention::default()
    });
    log.records_lives(1, NOW);
    let first = log.plan(EventQuery::WHOLE_LOG).page().events[0].position;
    log.records_lives(2_000, NOW);
    let oldest = log.oldest();
    assert!(oldest.unwrap().block > first.block);
    let from = EventStart::After(first);
    let page = log
        .plan(EventQuery {
            from,
            ..EventQuery::WHOLE_LOG
        })
        .page();
    assert_eq!(
        (page.gap, page.events.first().map(|logged| logged.position)),
        (true, oldest)
    );
    // The event right before the oldest one is all that is missing to its follower.
    let from = EventStart::After(log.trimmed);
    let page = log
        .plan(EventQuery {
            from,
            ..EventQuery::WHOLE_LOG
        })
        .page();
    assert_eq!(
        (page.gap, page.events.first().map(|logged| logged.position)),
        (false, oldest)
    );
    let from = EventStart::Before(log.trimmed);
    let direction = Direction::Backward;
    let page = log
        .plan(EventQuery {
            from,
            direction,
            ..EventQuery::WHOLE_LOG
        })
        .page();
    assert_eq!((page.gap, page.events.len(), page.next), (true, 0, None));
}

#[test]
fn pages_over_many_blocks_neither_lose_nor_repeat_any() {
    let mut log = log(Retention::default());
    log.records_lives(3_000, NOW);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut query = EventQuery {
            direction,
            scan_max: 700,
            from: if direction == Direction::Forward {
                EventStart::Oldest
            } else {
                EventStart::Newest
            },
            ..EventQuery::WHOLE_LOG
        };
        let mut seen = Vec::new();
        loop {
            let page = log.plan(query).page();
            assert!(page.scanned <= 700);
            seen.extend(page.events.iter().map(|logged| logged.position));
            query.from = match (page.next, direction) {
                _ if !page.more => break,
                (Some(next), Direction::Forward) => EventStart::After(next),
                (Some(next), Direction::Backward) => EventStart::Before(next),
                (None, _) => panic!("more, and no place to continue"),
            };
        }
        if direction == Direction::Backward {
            seen.reverse();
        }
        assert_eq!(seen.len(), 9_000);
        assert!(seen.is_sorted() && seen.first() == log.oldest().as_ref());
    }
}

#[test]
fn a_damaged_block_is_left_out() {
    let mut log = log(Retention::default());
    log.records_lives(1_000, NOW);
    log.complete[1].records = Some(Bytes::from(vec![0xff; 1000]));
    let page = log.plan(EventQuery::WHOLE_LOG).page();
    assert!(page.gap);
    let blocks: Vec<_> = log.complete.iter().map(|block| block.header.records as usize).collect();
    let open = log.open.header().records as usize;
    assert_eq!(page.events.len(), blocks.iter().sum::<usize>() - blocks[1] + open);
}

#[test]
fn a_clock_that_is_set_back_leaves_the_order_of_events() {
    let mut log = log(Retention::default());
    log.records_other(later(10));
    log.records_other(NOW);
    log.records_other(later(5));
    let page = log.plan(EventQuery::WHOLE_LOG).page();
    let times: Vec<_> = page.events.iter().map(|logged| logged.at_ms - NOW.unix_ms).collect();
    assert_eq!(times, [10_000, 0, 5_000]);
}
