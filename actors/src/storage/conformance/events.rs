//! The event log: what is recorded, and how it is read.

use std::sync::Arc;

use uuid::Uuid;

use super::{
    super::{Direction, EventPage, EventPosition, EventQuery, EventStart, Storage},
    world::{World, done, record},
};
use crate::model::{
    ActorChange, ActorKind, AuditOutcome, DeadLetterReason, EventKind, EventKinds, LensChangeKind, LoggedRecipients,
    MessageId, ProjectEvent, ProtocolName, SessionChange, SessionId, SessionName, SessionRecord,
};

const EVERYTHING: EventQuery = EventQuery {
    from: EventStart::Oldest,
    direction: Direction::Forward,
    kinds: EventKinds::ALL,
    scan_max: 10_000,
    bytes_max: 1 << 20,
};

impl World {
    /// A page of the event log.
    pub async fn reads(&self, query: EventQuery) -> EventPage {
        done(self.store.events(query)).await
    }

    /// All events, oldest first.
    async fn events(&self) -> Vec<ProjectEvent> {
        let page = self.reads(EVERYTHING).await;
        assert!(!page.gap && !page.more, "the page is the whole log: {page:?}");
        page.events.into_iter().map(|logged| logged.event).collect()
    }

    fn records_session(&self, session: SessionId, change: SessionChange) {
        let name = None;
        self.store
            .record(ProjectEvent::Session { session, name, change }, self.now);
    }

    /// Records as many events as the log is to have; returns them with their positions.
    async fn records_many(&self, count: usize) -> Vec<(EventPosition, SessionId)> {
        for _ in 0..count {
            self.records_session(SessionId::generate(), SessionChange::Stale);
        }
        let recorded = sessions(&self.reads(EVERYTHING).await);
        assert_eq!(recorded.len(), count);
        recorded
    }
}

fn sessions(page: &EventPage) -> Vec<(EventPosition, SessionId)> {
    let sessions = page.events.iter().map(|logged| match logged.event {
        ProjectEvent::Session { session, .. } => (logged.position, session),
        ref other => panic!("{other:?}"),
    });
    sessions.collect()
}

fn delivered(message: MessageId, session: SessionId, delivery: u32) -> ProjectEvent {
    ProjectEvent::Delivered {
        message,
        session,
        delivery,
    }
}

pub async fn the_life_of_a_message_is_recorded_in_order(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let (id, session) = (world.sends(world.bob).await, world.bob);
    world.leases(session, 1).await;
    world.releases_all(session).await;
    world.leases(session, 1).await;
    world.acknowledges(session, &[id]).await;
    let events = world.events().await;
    let ProjectEvent::Accepted(accepted) = &events[0] else {
        panic!("{events:?}")
    };
    assert_eq!((accepted.message, accepted.sender), (id, world.alice));
    assert_eq!(accepted.recipients, LoggedRecipients::One(session));
    assert_eq!((&accepted.origin, &accepted.payload), (&None, &None));
    let head = accepted.parse_head().expect("the head of an envelope");
    assert_eq!((&*head.protocol_name, &*head.protocol_version), ("chat", "1.0.0"));
    assert_eq!(accepted.timestamp_ms, world.now.unix_ms);
    let message = id;
    assert_eq!(
        events[1..],
        [
            delivered(message, session, 1),
            ProjectEvent::Released { message, session },
            delivered(message, session, 2),
            ProjectEvent::Acknowledged { message, session },
        ]
    );
}

pub async fn a_broadcast_is_recorded_once_with_its_recipients(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    world
        .append(world.broadcast(&[world.bob, SessionId::generate(), world.carol]))
        .await;
    let events = world.events().await;
    let [ProjectEvent::Accepted(accepted)] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(accepted.recipients.len(), 2, "the session that refused it is none");
    for session in [world.bob, world.carol] {
        assert!(accepted.recipients.may_contain(session));
    }
    assert!(!accepted.recipients.may_contain(world.alice));
}

pub async fn payloads_are_not_recorded_by_default(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    world.sends_text(world.bob, "canary-7f3a").await;
    let events = world.events().await;
    assert_eq!(events.len(), 1);
    assert!(!format!("{events:?}").contains("canary"), "{events:?}");
}

pub async fn a_message_that_is_refused_is_not_recorded(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    world.append(world.direct(SessionId::generate(), &<_>::default())).await;
    world.append(world.broadcast(&[SessionId::generate()])).await;
    assert_eq!(world.events().await, []);
}

pub async fn a_message_from_another_project_is_recorded_with_its_origin(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let origin = super::world::fresh_project();
    world.sends_from(&origin, world.bob).await;
    let events = world.events().await;
    let [ProjectEvent::Accepted(accepted)] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(accepted.origin, Some(origin));
}

pub async fn a_dead_letter_and_its_redrive_are_recorded(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let (message, session) = (world.sends_dead_letter(world.bob).await, world.bob);
    let redriven = world
        .store
        .redrive(vec![message], Some(world.carol), super::world::CAPACITY, world.now);
    done(redriven).await;
    world.removes(world.carol, DeadLetterReason::RecipientGone).await;
    let kinds = EventKinds::of(&[EventKind::DeadLettered, EventKind::Redriven]);
    let page = world.reads(EventQuery { kinds, ..EVERYTHING }).await;
    let events: Vec<_> = page.events.into_iter().map(|logged| logged.event).collect();
    assert_eq!(
        events,
        [
            ProjectEvent::DeadLettered {
                message,
                session,
                reason: DeadLetterReason::DeliveryLimit,
                deliveries: super::world::DELIVERY_LIMIT,
            },
            ProjectEvent::Redriven {
                message,
                session: world.carol,
                from: session,
            },
            ProjectEvent::DeadLettered {
                message,
                session: world.carol,
                reason: DeadLetterReason::RecipientGone,
                deliveries: 0,
            },
        ]
    );
}

pub async fn the_end_of_a_session_is_recorded_once(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let name = SessionName::parse("dave").expect("a name");
    let dave = SessionRecord {
        name: Some(name.clone()),
        ..record(SessionId::generate())
    };
    world.puts_session(dave.clone()).await;
    for _ in 0..2 {
        world.removes(dave.id, DeadLetterReason::RecipientGone).await;
    }
    let ended = ProjectEvent::Session {
        session: dave.id,
        name: Some(name),
        change: SessionChange::Ended,
    };
    assert_eq!(world.events().await, [ended]);
}

pub async fn events_of_actors_are_recorded_as_they_are(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let events = [
        ProjectEvent::Session {
            session: world.bob,
            name: Some(SessionName::parse("böb").expect("a name")),
            change: SessionChange::Registered,
        },
        ProjectEvent::Protocol {
            name: ProtocolName::parse("chat").expect("a name"),
            version: semver::Version::new(1, 2, 3),
            by: Some(world.bob),
        },
        ProjectEvent::Lens {
            name: ProtocolName::parse("chat").expect("a name"),
            version: semver::Version::new(1, 2, 3),
            from: semver::Version::new(1, 0, 0),
            change: LensChangeKind::Replaced,
        },
        ProjectEvent::Actor {
            actor: ActorKind::Router,
            change: ActorChange::Restarted,
        },
        ProjectEvent::Audit {
            entry: Uuid::now_v7(),
            action: "key.create".to_owned(),
            outcome: AuditOutcome::Refused,
        },
    ];
    for event in &events {
        world.store.record(event.clone(), world.now);
    }
    let page = world.reads(EVERYTHING).await;
    assert!(page.events.iter().all(|logged| logged.at_ms == world.now.unix_ms));
    let read: Vec<_> = page.events.into_iter().map(|logged| logged.event).collect();
    assert_eq!(read, events);
}

pub async fn events_are_read_in_both_directions(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let empty = world.reads(EVERYTHING).await;
    assert_eq!(
        (empty.events.len(), empty.oldest, empty.gap, empty.more),
        (0, None, false, false)
    );
    let all = world.records_many(5).await;
    assert!(all.is_sorted(), "positions ascend");
    for (from, forward, backward) in [
        (EventStart::Oldest, 0..5, 0..0),
        (EventStart::Newest, 5..5, 0..5),
        (EventStart::After(all[1].0), 2..5, 0..2),
        (EventStart::Before(all[1].0), 1..5, 0..1),
        (EventStart::After(all[4].0), 5..5, 0..5),
    ] {
        let page = world.reads(EventQuery { from, ..EVERYTHING }).await;
        assert_eq!(
            (sessions(&page), page.more, page.gap),
            (all[forward].to_vec(), false, false),
            "{from:?}"
        );
        assert_eq!((page.next, page.oldest), (Some(all[4].0), Some(all[0].0)), "{from:?}");
        let direction = Direction::Backward;
        let page = world
            .reads(EventQuery {
                from,
                direction,
                ..EVERYTHING
            })
            .await;
        let expected: Vec<_> = all[backward].iter().rev().copied().collect();
        assert_eq!((sessions(&page), page.next), (expected, None), "{from:?}");
    }
}

pub async fn pages_of_events_neither_lose_nor_repeat_any(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let all = world.records_many(7).await;
    for (scan_max, bytes_max, page_len) in [(3, usize::MAX, 3), (100, 1, 1)] {
        let query = EventQuery {
            scan_max,
            bytes_max,
            ..EVERYTHING
        };
        let (mut seen, mut from) = (Vec::new(), EventStart::Oldest);
        loop {
            let page = world.reads(EventQuery { from, ..query }).await;
            assert!(page.events.len() <= page_len, "{page:?}");
            seen.extend(sessions(&page));
            if !page.more {
                break;
            }
            from = EventStart::After(page.next.expect("a page that is followed by another has an end"));
        }
        assert_eq!(seen, all);
        let (mut seen, mut from) = (Vec::new(), EventStart::Newest);
        let direction = Direction::Backward;
        loop {
            let page = world
                .reads(EventQuery {
                    from,
                    direction,
                    ..query
                })
                .await;
            seen.extend(sessions(&page));
            match page.next {
                Some(next) => from = EventStart::Before(next),
                None => break,
            }
        }
        seen.reverse();
        assert_eq!(seen, all);
    }
}

pub async fn the_log_is_followed_from_its_end(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let from = EventStart::Newest;
    let page = world.reads(EventQuery { from, ..EVERYTHING }).await;
    let mut next = page.next.expect("where to follow the log, even an empty one");
    for _ in 0..3 {
        let session = SessionId::generate();
        world.records_session(session, SessionChange::Active);
        let from = EventStart::After(next);
        let page = world.reads(EventQuery { from, ..EVERYTHING }).await;
        let seen = sessions(&page);
        assert_eq!((seen.len(), seen[0].1, page.gap), (1, session, false));
        next = page.next.expect("the position of the event");
        assert_eq!(next, seen[0].0);
        let again = world
            .reads(EventQuery {
                from: EventStart::After(next),
                ..EVERYTHING
            })
            .await;
        assert_eq!((again.events, again.next, again.gap), (vec![], Some(next), false));
    }
}

pub async fn events_of_other_kinds_are_scanned_and_left_out(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    world.sends_many(world.bob, 3).await;
    world.records_session(world.bob, SessionChange::Ended);
    let kinds = EventKinds::of(&[EventKind::Session]);
    let page = world.reads(EventQuery { kinds, ..EVERYTHING }).await;
    assert_eq!((page.events.len(), page.scanned), (1, 4));
    let kinds = EventKinds::MESSAGES;
    let scan_max = 2;
    let page = world
        .reads(EventQuery {
            kinds,
            scan_max,
            ..EVERYTHING
        })
        .await;
    assert_eq!((page.events.len(), page.scanned, page.more), (2, 2, true));
}

pub async fn a_position_of_another_log_is_a_gap(storage: Arc<dyn Storage>) {
    let (world, other) = (World::new(&*storage).await, World::new(&*storage).await);
    let all = world.records_many(3).await;
    let elsewhere = other.records_many(1).await[0].0;
    for from in [EventStart::After(elsewhere), EventStart::Before(elsewhere)] {
        let page = world.reads(EventQuery { from, ..EVERYTHING }).await;
        assert_eq!((sessions(&page), page.gap), (all.clone(), true), "{from:?}");
        let direction = Direction::Backward;
        let page = world
            .reads(EventQuery {
                from,
                direction,
                ..EVERYTHING
            })
            .await;
        assert_eq!((page.events, page.gap, page.next), (vec![], true, None), "{from:?}");
    }
}

pub async fn a_log_that_was_cleared_does_not_know_its_old_positions(storage: Arc<dyn Storage>) {
    let mut world = World::new(&*storage).await;
    let before = world.records_many(3).await;
    done(storage.clear_project(world.project.clone())).await;
    world.store = storage.open(&world.project);
    let after = world.records_many(2).await;
    let from = EventStart::After(before[2].0);
    let page = world.reads(EventQuery { from, ..EVERYTHING }).await;
    assert_eq!((sessions(&page), page.gap), (after, true));
}

pub async fn the_log_of_a_project_is_its_own(storage: Arc<dyn Storage>) {
    let (world, other) = (World::new(&*storage).await, World::new(&*storage).await);
    world.sends(world.bob).await;
    assert_eq!(other.events().await, []);
}

pub async fn the_texts_of_messages_are_found_until_they_are_acknowledged(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let waiting = world.sends_many(world.bob, 3).await;
    let dead = world.sends_dead_letter(world.carol).await;
    let broadcast = world.broadcast(&[world.carol]);
    let everywhere = broadcast.message.id;
    world.append(broadcast).await;
    let leased = world.leases(world.bob, 1).await[0];
    let unknown = world.message(None, &<_>::default()).id;
    let asked = [&waiting[..], &[dead, everywhere, unknown]].concat();
    let found = done(world.store.messages(asked.clone())).await;
    let ids: Vec<_> = found.iter().flatten().map(|message| message.id).collect();
    assert_eq!((ids, found.len()), (asked[..5].to_vec(), 6));
    world.acknowledges(world.bob, &[leased]).await;
    assert!(done(world.store.messages(vec![leased])).await[0].is_none());
    let redriven = world
        .store
        .redrive(vec![dead], Some(world.bob), super::world::CAPACITY, world.now);
    done(redriven).await;
    let found = done(world.store.messages(vec![dead, waiting[2]])).await;
    assert!(found.iter().all(Option::is_some), "{found:?}");
    let statuses = done(world.store.message_statuses(vec![unknown, dead, leased], world.now)).await;
    let lens: Vec<_> = statuses.iter().map(|known| known.as_ref().map(Vec::len)).collect();
    assert_eq!(lens, [None, Some(2), Some(1)]);
}

pub async fn events_are_found_by_their_time(storage: Arc<dyn Storage>) {
    let mut world = World::new(&*storage).await;
    let mut recorded = Vec::new();
    for _ in 0..3 {
        let session = SessionId::generate();
        world.records_session(session, SessionChange::Active);
        recorded.push((world.now.unix_ms, session));
        world.pass(std::time::Duration::from_secs(1));
    }
    let direction = Direction::Backward;
    for (at_ms, index) in [
        (0, 0),
        (recorded[1].0, 1),
        (recorded[1].0 + 1, 2),
        (recorded[2].0 + 1, 3),
    ] {
        let from = EventStart::At(at_ms);
        let after = sessions(&world.reads(EventQuery { from, ..EVERYTHING }).await);
        let before = sessions(
            &world
                .reads(EventQuery {
                    from,
                    direction,
                    ..EVERYTHING
                })
                .await,
        );
        let of = |events: &[(u64, SessionId)]| events.iter().map(|(_, session)| *session).collect::<Vec<_>>();
        let seen = |events: Vec<(EventPosition, SessionId)>| events.into_iter().map(|(_, it)| it).collect::<Vec<_>>();
        assert_eq!(seen(after), of(&recorded[index..]));
        let mut earlier = seen(before);
        earlier.reverse();
        assert_eq!(earlier, of(&recorded[..index]));
    }
}
