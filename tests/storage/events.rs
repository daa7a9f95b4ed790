//! The event log on Redis: written behind by every replica, read by all of them in one order.

mod ending;

use std::{collections::HashSet, sync::Arc, time::Duration};

use actors::{
    clock::now,
    model::{
        AuditOutcome, DeadLetterReason, EventKind, EventKinds, Headers, MessageId, ProjectEvent, SessionChange,
        SessionId,
    },
    storage::{
        Audience, Direction, EventPage, EventPosition, EventQuery, EventStart, LoggedEvent, Release, Retention, Storage,
    },
};
use futures_util::future::join_all;
use storage::redis::{RedisSettings, RedisStorage};
use uuid::Uuid;

use crate::storage::support::{DELIVERY_LIMIT, Redis, ReplicaView, append, block_on, connect, eventually};

const EVERYTHING: EventQuery = EventQuery {
    from: EventStart::Oldest,
    direction: Direction::Forward,
    kinds: EventKinds::ALL,
    scan_max: 1_000_000,
    bytes_max: 64 << 20,
};

async fn connect_with_retention(redis: &Redis, retention: Retention) -> RedisStorage {
    let settings = RedisSettings {
        retention,
        ..RedisSettings::new(redis.url())
    };
    RedisStorage::connect(settings).await.unwrap()
}

impl ReplicaView {
    async fn read_events(&self, query: EventQuery) -> EventPage {
        self.store.events(query).await.unwrap()
    }

    /// All events that are kept, read page by page.
    async fn all_events(&self, scan_max: usize) -> Vec<LoggedEvent> {
        let (mut events, mut from) = (Vec::new(), EventStart::Oldest);
        loop {
            let page = self
                .read_events(EventQuery {
                    from,
                    scan_max,
                    ..EVERYTHING
                })
                .await;
            assert!(!page.gap && page.scanned <= scan_max, "{page:?}");
            events.extend(page.events);
            from = EventStart::After(page.next.unwrap());
            if !page.more {
                return events;
            }
        }
    }

    /// Records the change of a session that exists nowhere.
    fn record_session(&self) -> SessionId {
        let session = SessionId::generate();
        let change = SessionChange::Stale;
        self.store.record(
            ProjectEvent::Session {
                session,
                name: None,
                change,
            },
            now(),
        );
        session
    }

    /// Records an event of about this many bytes.
    fn record_bytes(&self, len: usize) {
        let event = ProjectEvent::Audit {
            entry: Uuid::now_v7(),
            action: "x".repeat(len),
            outcome: AuditOutcome::Done,
        };
        self.store.record(event, now());
    }
}

fn sessions_of(events: &[LoggedEvent]) -> Vec<SessionId> {
    let sessions = events.iter().filter_map(|logged| match logged.event {
        ProjectEvent::Session { session, .. } => Some(session),
        _ => None,
    });
    sessions.collect()
}

fn kinds_of(events: &[LoggedEvent], of: MessageId) -> Vec<EventKind> {
    let is_of = |event: &ProjectEvent| match event {
        ProjectEvent::Accepted(accepted) => accepted.message == of,
        ProjectEvent::Delivered { message, .. }
        | ProjectEvent::Acknowledged { message, .. }
        | ProjectEvent::Released { message, .. }
        | ProjectEvent::DeadLettered { message, .. }
        | ProjectEvent::Redriven { message, .. } => *message == of,
        _ => false,
    };
    let events = events.iter().filter(|logged| is_of(&logged.event));
    events.map(|logged| logged.event.kind()).collect()
}

#[test]
fn events_of_three_replicas_are_read_on_each_of_them_in_one_order() {
    let redis = Redis::start();
    block_on(async {
        let storages = join_all((0..3).map(|_| connect(redis.url()))).await;
        let storages: Vec<_> = storages.into_iter().map(Result::unwrap).collect();
        let views: Vec<_> = storages
            .iter()
            .map(|storage| ReplicaView::of(storage, "acme"))
            .collect();
        let bob = views[0].join().await;
        let id = views[0].send(bob).await;
        assert_eq!(views[1].lease_ids(bob).await, [(id, 1)]);
        assert_eq!(views[2].acknowledge(bob, &[id]).await.unwrap().acknowledged, 1);
        let mut recorded: Vec<_> = views.iter().map(ReplicaView::record_session).collect();
        recorded.sort_unstable();
        // Each replica writes its events within a quarter of a second, unless it reads them before.
        let read = eventually(async || {
            let read = views[0].all_events(1000).await;
            (read.len() == 6).then_some(read)
        });
        let read = read.await;
        let mut kinds = kinds_of(&read, id);
        kinds.sort_unstable();
        assert_eq!(
            kinds,
            [EventKind::Accepted, EventKind::Delivered, EventKind::Acknowledged]
        );
        let mut sessions = sessions_of(&read);
        sessions.sort_unstable();
        assert_eq!(sessions, recorded);
        assert!(read.is_sorted_by_key(|logged| logged.position));
        for view in &views {
            assert_eq!(view.all_events(1).await, read);
            let backward = EventQuery {
                from: EventStart::Newest,
                direction: Direction::Backward,
                ..EVERYTHING
            };
            let mut reversed = view.read_events(backward).await.events;
            reversed.reverse();
            assert_eq!(reversed, read);
        }
    });
}

#[test]
fn a_follower_reads_each_event_once_while_three_replicas_write_many_blocks() {
    const EVENTS: usize = 3_000;
    let redis = Redis::start();
    block_on(async {
        let storages = join_all((0..3).map(|_| connect(redis.url()))).await;
        let storages: Vec<_> = storages.into_iter().map(Result::unwrap).collect();
        let views: Vec<_> = storages
            .iter()
            .map(|storage| ReplicaView::of(storage, "acme"))
            .collect();
        let mut from = EventStart::Oldest;
        let (mut recorded, mut read) = (HashSet::new(), Vec::new());
        let mut rounds = 0;
        while read.len() < 3 * EVENTS {
            if recorded.len() < 3 * EVENTS {
                for view in &views {
                    recorded.extend((0..100).map(|_| view.record_session()));
                    view.record_bytes(20_000);
                }
            }
            let page = views[rounds % 3]
                .read_events(EventQuery {
                    from,
                    scan_max: 700,
                    ..EVERYTHING
                })
                .await;
            assert!(!page.gap);
            read.extend(sessions_of(&page.events));
            from = EventStart::After(page.next.unwrap());
            rounds += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(read.len(), recorded.len(), "none comes twice");
        assert_eq!(read.into_iter().collect::<HashSet<_>>(), recorded);
    });
}

#[test]
fn what_the_functions_do_is_recorded_by_them() {
    let redis = Redis::start();
    block_on(async {
        let storage = connect(redis.url()).await.unwrap();
        let view = ReplicaView::of(&storage, "acme");
        let (bob, carol) = (view.join().await, view.join().await);
        let id = view.send(bob).await;
        for _ in 0..DELIVERY_LIMIT {
            assert_eq!(view.lease_ids(bob).await.len(), 1);
            let release = view.store.release(bob, Release::Ids(vec![id]), DELIVERY_LIMIT, now());
            release.await.unwrap();
        }
        view.store.redrive(vec![id], Some(carol), 9, now()).await.unwrap();
        let reason = DeadLetterReason::RecipientGone;
        view.store.remove_session(carol, reason, None, now()).await.unwrap();
        let read = view.all_events(1000).await;
        let (message, session) = (id, bob);
        let expected = [
            ProjectEvent::Delivered {
                message,
                session,
                delivery: 1,
            },
            ProjectEvent::Released { message, session },
            ProjectEvent::Delivered {
                message,
                session,
                delivery: 2,
            },
            ProjectEvent::Released { message, session },
            ProjectEvent::Delivered {
                message,
                session,
                delivery: 3,
            },
            ProjectEvent::DeadLettered {
                message,
                session,
                reason: DeadLetterReason::DeliveryLimit,
                deliveries: 3,
            },
            ProjectEvent::Redriven {
                message,
                session: carol,
                from: bob,
            },
            ProjectEvent::DeadLettered {
                message,
                session: carol,
                reason,
                deliveries: 0,
            },
            ProjectEvent::Session {
                session: carol,
                name: None,
                change: SessionChange::Ended,
            },
        ];
        let events: Vec<_> = read.into_iter().map(|logged| logged.event).collect();
        assert!(matches!(&events[0], ProjectEvent::Accepted(accepted) if accepted.message == id));
        assert_eq!(events[1..], expected);
    });
}

#[test]
fn an_expired_message_and_the_messages_of_a_segment_are_recorded_by_the_functions() {
    use EventKind::{Accepted, Acknowledged, Delivered, Released};

    let redis = Redis::start();
    block_on(async {
        let storage = connect(redis.url()).await.unwrap();
        let view = ReplicaView::of(&storage, "acme");
        let bob = view.join().await;
        let headers = Headers {
            ttl_seconds: Some(1),
            ..Headers::default()
        };
        let expiring = view.message(Some(bob), &headers, false);
        view.append(append(Arc::clone(&expiring), Audience::One(bob))).await;
        let batch: Vec<_> = (0..40).map(|_| view.direct(bob)).collect();
        let ids: Vec<_> = batch.iter().map(|append| append.message.id).collect();
        view.store.append(batch, now()).await.unwrap();
        let claim = view.claim(bob).await;
        view.store
            .lease(bob, Some(claim), 100, usize::MAX, now())
            .await
            .unwrap();
        let released = view.store.release(bob, Release::Claimed(claim), DELIVERY_LIMIT, now());
        assert_eq!(released.await.unwrap().returned, 41);
        let up_to = view.lease_ids(bob).await.last().unwrap().0;
        let read = eventually(async || {
            view.store.sweep(now()).await.unwrap();
            let read = view.all_events(1000).await;
            let is_dead = kinds_of(&read, expiring.id).contains(&EventKind::DeadLettered);
            if !is_dead {
                let _ = view
                    .store
                    .release(bob, Release::Ids(vec![expiring.id]), DELIVERY_LIMIT, now())
                    .await;
            }
            is_dead.then_some(read)
        });
        let read = read.await;
        let dead = read.iter().find_map(|logged| match logged.event {
            ProjectEvent::DeadLettered { message, reason, .. } => Some((message, reason)),
            _ => None,
        });
        assert_eq!(dead, Some((expiring.id, DeadLetterReason::Expired)));
        for id in &ids {
            assert_eq!(kinds_of(&read, *id), [Accepted, Delivered, Released, Delivered]);
        }
        let acknowledged = view
            .store
            .acknowledge(bob, actors::storage::Acknowledge::UpTo(up_to), now());
        assert_eq!(acknowledged.await.unwrap().acknowledged, 40);
        let read = view.all_events(1000).await;
        for id in ids {
            assert_eq!(kinds_of(&read, id).last(), Some(&Acknowledged));
        }
    });
}

#[test]
fn the_log_is_trimmed_by_messages_bytes_and_age() {
    let redis = Redis::start();
    block_on(async {
        let length = |project: &str| redis.command(&["XLEN", &format!("{{{project}}}:events")]);
        let by_messages = Retention {
            history_messages_max: 10,
            ..Retention::default()
        };
        let storage = connect_with_retention(&redis, by_messages).await;
        let view = ReplicaView::of(&storage, "messages");
        let bob = view.join().await;
        let mut sent = Vec::new();
        for _ in 0..25 {
            sent.push(view.send(bob).await);
            view.all_events(1000).await;
        }
        let read = view.all_events(1000).await;
        assert_eq!(read.len(), 10, "{read:?}");
        assert_eq!(kinds_of(&read, sent[15]), [EventKind::Accepted]);
        assert_eq!(length("messages"), "10");

        let by_bytes = Retention {
            events_bytes_max: 300_000,
            ..Retention::default()
        };
        let storage = connect_with_retention(&redis, by_bytes).await;
        let view = ReplicaView::of(&storage, "bytes");
        view.record_bytes(1000);
        let first = view.all_events(1000).await[0].position;
        for _ in 0..30 {
            view.record_bytes(50_000);
        }
        let read = view.all_events(1000).await;
        let bytes = 50_000 * read.len();
        assert!((100_000..=300_000).contains(&bytes), "{bytes}");
        assert_eq!(redis.command(&["LLEN", "{bytes}:events:blocks"]), length("bytes"));
        let page = view
            .read_events(EventQuery {
                from: EventStart::After(first),
                ..EVERYTHING
            })
            .await;
        assert!(page.gap, "what came behind the position is trimmed");
        assert_eq!(page.events, read, "the page begins with the oldest event");
        assert_eq!(page.oldest, Some(read[0].position));

        let by_age = Retention {
            history_window: Duration::from_millis(300),
            ..Retention::default()
        };
        let storage = connect_with_retention(&redis, by_age).await;
        let view = ReplicaView::of(&storage, "age");
        view.record_session();
        assert_eq!(view.all_events(1000).await.len(), 1);
        let page = eventually(async || {
            view.store.sweep(now()).await.unwrap();
            let page = view.read_events(EVERYTHING).await;
            page.events.is_empty().then_some(page)
        });
        let page = page.await;
        assert_eq!((page.oldest, page.gap, page.more), (None, false, false));
        view.record_session();
        let from = EventStart::After(page.next.unwrap());
        let next = view.read_events(EventQuery { from, ..EVERYTHING }).await;
        assert_eq!(
            (next.events.len(), next.gap),
            (1, false),
            "a follower of the empty log misses nothing"
        );
    });
}

#[test]
fn events_are_found_by_their_time() {
    let redis = Redis::start();
    block_on(async {
        let storage = connect(redis.url()).await.unwrap();
        let view = ReplicaView::of(&storage, "acme");
        let mut recorded = Vec::new();
        for _ in 0..30 {
            recorded.push((now().unix_ms, view.record_session()));
            view.all_events(1000).await;
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        for (at, (ms, _)) in recorded.iter().enumerate() {
            let first = recorded.iter().position(|(other, _)| other == ms).unwrap();
            let from = EventStart::At(*ms);
            let forward = view.read_events(EventQuery { from, ..EVERYTHING }).await;
            let expected: Vec<_> = recorded[first..].iter().map(|(_, session)| *session).collect();
            assert_eq!(sessions_of(&forward.events), expected, "from {at}");
            let direction = Direction::Backward;
            let backward = view
                .read_events(EventQuery {
                    from,
                    direction,
                    ..EVERYTHING
                })
                .await;
            let expected: Vec<_> = recorded[..first].iter().rev().map(|(_, session)| *session).collect();
            assert_eq!(sessions_of(&backward.events), expected, "before {at}");
        }
        let from = EventStart::At(now().unix_ms + 60_000);
        let later = view.read_events(EventQuery { from, ..EVERYTHING }).await;
        assert_eq!((later.events.len(), later.more), (0, false));
    });
}

#[test]
fn events_wait_while_redis_is_down_and_the_oldest_are_dropped_and_counted() {
    let mut redis = Redis::durable();
    block_on(async {
        let storage = connect(redis.url()).await.unwrap();
        let view = ReplicaView::of(&storage, "acme");
        let first = view.record_session();
        assert_eq!(sessions_of(&view.all_events(1000).await), [first]);
        redis.kill();
        // 6 MiB, of which 4 MiB are kept.
        for _ in 0..100 {
            view.record_bytes(60_000);
        }
        let last = view.record_session();
        assert!(view.store.events(EVERYTHING).await.is_err());
        redis.restart();
        let read = eventually(async || {
            let page = view.store.events(EVERYTHING).await.ok()?;
            (sessions_of(&page.events).last() == Some(&last)).then_some(page.events)
        });
        let read = read.await;
        let lost: u64 = read
            .iter()
            .map(|logged| match logged.event {
                ProjectEvent::Lost { events } => events,
                _ => 0,
            })
            .sum();
        let kept = read
            .iter()
            .filter(|logged| logged.event.kind() == EventKind::Audit)
            .count() as u64;
        assert_eq!(lost + kept, 100);
        // Blocks of a write that was under way when Redis died are lost as well: it is unknown whether they were stored.
        assert!((40..=70).contains(&kept), "{kept}");
        assert_eq!(
            read[1].event,
            ProjectEvent::Lost { events: lost },
            "it stands where the events are missing"
        );
    });
}

#[test]
fn a_position_of_before_a_rollback_names_no_event() {
    let redis = Redis::start();
    block_on(async {
        let storage = connect(redis.url()).await.unwrap();
        let view = ReplicaView::of(&storage, "acme");
        view.join().await;
        view.record_session();
        let before = view.all_events(1000).await[0].position;
        redis.command(&["FLUSHALL"]);
        let new = view.record_session();
        let from = EventStart::After(before);
        let page = eventually(async || {
            let page = view.store.events(EventQuery { from, ..EVERYTHING }).await.ok()?;
            (!page.events.is_empty()).then_some(page)
        });
        let page = page.await;
        assert!(page.gap);
        assert_eq!(sessions_of(&page.events), [new]);
        assert!(page.events[0].position.incarnation > before.incarnation);
        let unknown = EventPosition {
            index: 9,
            ..page.events[0].position
        };
        let page = view
            .read_events(EventQuery {
                from: EventStart::After(unknown),
                ..EVERYTHING
            })
            .await;
        assert!(page.gap, "a position behind the end was lost");
    });
}

#[test]
fn without_history_only_other_events_are_recorded() {
    let redis = Redis::start();
    block_on(async {
        let retention = Retention {
            history_window: Duration::ZERO,
            ..Retention::default()
        };
        let storage = connect_with_retention(&redis, retention).await;
        let view = ReplicaView::of(&storage, "acme");
        let bob = view.join().await;
        let id = view.send(bob).await;
        view.lease_ids(bob).await;
        view.store.release(bob, Release::Ids(vec![id]), 1, now()).await.unwrap();
        let session = view.record_session();
        let read = view.all_events(1000).await;
        assert_eq!((read.len(), sessions_of(&read)), (1, vec![session]));
    });
}

#[test]
fn payloads_are_kept_where_the_retention_says_so() {
    let redis = Redis::start();
    block_on(async {
        let retention = Retention {
            history_payloads: true,
            ..Retention::default()
        };
        let storage = connect_with_retention(&redis, retention).await;
        let view = ReplicaView::of(&storage, "acme");
        let bob = view.join().await;
        let message = view.message_with(Some(bob), r#"{"text":"hi"}"#, &Headers::default(), false);
        view.append(append(message, Audience::One(bob))).await;
        let read = view.all_events(1000).await;
        let ProjectEvent::Accepted(accepted) = &read[0].event else {
            panic!("{read:?}")
        };
        assert_eq!(accepted.payload.as_deref(), Some(r#"{"text":"hi"}"#));
    });
}

#[test]
fn a_cleared_project_has_no_events_and_another_incarnation() {
    let redis = Redis::start();
    block_on(async {
        let storage = connect(redis.url()).await.unwrap();
        let view = ReplicaView::of(&storage, "acme");
        view.record_session();
        let before = view.all_events(1000).await[0].position;
        storage.clear_project(view.project.clone()).await.unwrap();
        let page = view
            .read_events(EventQuery {
                from: EventStart::After(before),
                ..EVERYTHING
            })
            .await;
        assert_eq!((page.events.len(), page.gap), (0, true));
        assert_eq!(redis.command(&["EXISTS", "{acme}:events", "{acme}:events:blocks"]), "0");
    });
}
