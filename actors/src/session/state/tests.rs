//! Single decisions of a session. `session::properties` has what holds for any sequence of events.

use super::*;

const PRESENCE: PresenceTimeouts = PresenceTimeouts {
    stale_after: Duration::from_secs(30),
    disconnect_after: Duration::from_secs(60),
};
const RETENTION: Duration = Duration::from_secs(600);
const START_MS: u64 = 5_000;
const MANUAL: PushMode = PushMode {
    window: 3,
    ack: AckMode::Manual,
};

fn unnamed() -> State {
    State::new(PRESENCE, RETENTION, false)
}

/// A session with a live connection that has subscribed.
fn subscribed(push: Option<PushMode>, inbox_changes: bool) -> (State, ConnectionId) {
    let (mut state, connection) = (unnamed(), ConnectionId::next());
    state.on(Event::Attached { connection });
    state.on(Event::Subscribed {
        connection,
        inbox_changes,
        push,
    });
    (state, connection)
}

fn effects(state: &mut State, event: Event) -> Vec<Effect> {
    state.on(event).into_iter().collect()
}

fn depth(waiting: usize, leased: usize) -> Depth {
    Depth { waiting, leased }
}

/// The answer to a lease of nothing: the inbox has this depth.
fn counts(depth: Depth) -> Event {
    Event::Drained { depth, delivered: 0 }
}

fn after(silence_s: u64) -> Now {
    Now {
        unix_ms: 1_800_000_000_000,
        mono_ms: START_MS + silence_s * 1000,
    }
}

/// The timer goes off after this much silence.
fn ticked(silence_s: u64, waiting: usize) -> Event {
    Event::Ticked {
        now: after(silence_s),
        last_seen_mono_ms: START_MS,
        has_left: false,
        waiting,
    }
}

/// A timer is set to this much silence.
fn wakes_after(silence_s: u64) -> Effect {
    Effect::WakeAt {
        mono_ms: START_MS + silence_s * 1000,
    }
}

#[test]
fn a_session_wants_a_wakeup_while_anything_would_act_on_a_new_message() {
    let mut state = unnamed();
    assert!(!state.wants_wakeup());
    for (waiters, watchers, wants_wakeup) in [(1, 0, true), (0, 1, true), (0, 0, false)] {
        state.on(Event::WaitersChanged { waiters });
        state.on(Event::WatchersChanged { watchers });
        assert_eq!(
            state.wants_wakeup(),
            wants_wakeup,
            "{waiters} waiters, {watchers} watchers"
        );
    }
    for (push, inbox_changes, wants_wakeup) in [(None, false, false), (Some(MANUAL), false, true), (None, true, true)] {
        let (state, _) = subscribed(push, inbox_changes);
        assert_eq!(
            (state.wants_wakeup(), state.inbox_changes()),
            (wants_wakeup, inbox_changes)
        );
    }
}

#[test]
fn changes_of_the_inbox_are_notified_to_watchers_and_to_a_connection_that_subscribed() {
    for event in [Event::Nudged, Event::PushedByStore { count: 1 }] {
        assert_eq!(effects(&mut unnamed(), event), []);
        let mut watched = unnamed();
        watched.on(Event::WatchersChanged { watchers: 1 });
        assert_eq!(effects(&mut watched, event), [Effect::NotifyInboxChanged]);
        let (mut subscribed_state, _) = subscribed(None, true);
        assert_eq!(effects(&mut subscribed_state, event), [Effect::NotifyInboxChanged]);
        let (mut unsubscribed, _) = subscribed(None, false);
        assert_eq!(effects(&mut unsubscribed, event), []);
    }
}

#[test]
fn a_connection_acknowledges_by_writing_only_if_it_subscribed_to_auto_ack() {
    assert_eq!(unnamed().auto_ack_connection(), None);
    assert_eq!(subscribed(None, true).0.auto_ack_connection(), None);
    assert_eq!(subscribed(Some(MANUAL), true).0.auto_ack_connection(), None);
    let automatic = PushMode {
        ack: AckMode::Auto,
        ..MANUAL
    };
    let (state, connection) = subscribed(Some(automatic), false);
    assert_eq!(state.auto_ack_connection(), Some(connection));
}

#[test]
fn messages_pushed_by_the_store_narrow_the_window_and_never_widen_it() {
    let (mut state, connection) = subscribed(Some(MANUAL), false);
    for (counted, pushed, limit) in [(0, 2, 1), (2, 1, 1)] {
        state.on(counts(depth(0, counted)));
        state.on(Event::PushedByStore { count: pushed });
        let writable = Event::Writable { connection };
        assert_eq!(effects(&mut state, writable), [Effect::Drain { limit }]);
    }
}

#[test]
fn messages_that_did_not_fit_into_one_lease_are_leased_by_the_next() {
    for (delivered, waiting, expected) in [
        (1, 2, vec![Effect::Drain { limit: 2 }]),
        // The connection has no bytes to reserve, and reports when it has.
        (0, 2, vec![]),
        (1, 0, vec![]),
    ] {
        let (mut state, _) = subscribed(Some(MANUAL), false);
        let drained = Event::Drained {
            depth: depth(waiting, 1),
            delivered,
        };
        assert_eq!(effects(&mut state, drained), expected, "{delivered} of {waiting}");
    }
}

#[test]
fn a_connection_that_ends_its_push_releases_what_it_has_in_flight() {
    let wider = PushMode { window: 5, ..MANUAL };
    for (before, push, expected) in [
        (Some(MANUAL), None, vec![Effect::Release]),
        (Some(MANUAL), Some(wider), vec![Effect::Drain { limit: 4 }]),
        (None, None, vec![]),
        (None, Some(wider), vec![Effect::Drain { limit: 4 }]),
    ] {
        let (mut state, connection) = subscribed(before, false);
        let drained = Event::Drained {
            depth: depth(0, 1),
            delivered: 1,
        };
        state.on(drained);
        let again = Event::Subscribed {
            connection,
            inbox_changes: false,
            push,
        };
        assert_eq!(effects(&mut state, again), expected, "{before:?} {push:?}");
    }
}

#[test]
fn a_connection_that_was_replaced_and_is_writable_has_no_effect() {
    let (mut state, _) = subscribed(Some(MANUAL), false);
    state.on(Event::Drained {
        depth: depth(0, 0),
        delivered: 0,
    });
    let connection = ConnectionId::next();
    assert_eq!(effects(&mut state, Event::Writable { connection }), []);
}

#[test]
fn a_session_is_silent_until_its_next_heartbeat() {
    let mut state = unnamed();
    state.set_named();
    let seconds_and_silent = [(29, false), (30, true), (60, true), (0, false)];
    for (silence_s, is_silent) in seconds_and_silent {
        state.on(ticked(silence_s, 0));
        assert_eq!(state.is_silent(), is_silent, "after {silence_s} s");
    }
}

#[test]
fn a_session_is_kept_for_its_name_its_messages_or_its_callers() {
    let ends = |state: &mut State, waiting| effects(state, ticked(60, waiting)).contains(&Effect::EndSession);
    assert!(ends(&mut unnamed(), 0));
    assert!(!ends(&mut unnamed(), 1));
    let mut named = unnamed();
    named.set_named();
    assert!(!ends(&mut named, 0));
    assert_eq!(effects(&mut named, ticked(659, 0)), [wakes_after(660)]);
    assert_eq!(effects(&mut named, ticked(660, 0)), [Effect::EndSession]);
    let mut with_waiter = unnamed();
    with_waiter.on(Event::WaitersChanged { waiters: 1 });
    assert!(!ends(&mut with_waiter, 0));
    let mut leased = unnamed();
    leased.on(counts(depth(0, 1)));
    assert!(!ends(&mut leased, 0));
}

#[test]
fn the_timer_is_set_to_the_next_change_of_presence() {
    let mut state = unnamed();
    assert_eq!(effects(&mut state, ticked(0, 1)), [wakes_after(30)]);
    let stale = Effect::PresenceChanged(SessionStatus::Stale);
    assert_eq!(effects(&mut state, ticked(30, 1)), [stale, wakes_after(60)]);
    let disconnected = Effect::PresenceChanged(SessionStatus::Disconnected);
    assert_eq!(
        effects(&mut state, ticked(60, 1)),
        [disconnected, Effect::Release, wakes_after(660)]
    );
}

#[test]
fn a_session_that_left_is_woken_when_it_ends() {
    for (named, ends_after_s) in [(false, 60), (true, 660)] {
        let mut state = State::new(PRESENCE, RETENTION, named);
        let left = Event::Ticked {
            now: after(5),
            last_seen_mono_ms: START_MS,
            has_left: true,
            waiting: 0,
        };
        let disconnected = Effect::PresenceChanged(SessionStatus::Disconnected);
        assert_eq!(
            effects(&mut state, left),
            [disconnected, Effect::Release, wakes_after(ends_after_s)]
        );
    }
}

#[test]
fn a_timer_is_set_to_a_later_millisecond_even_for_less_than_one() {
    let presence = PresenceTimeouts {
        stale_after: Duration::from_micros(30_000_500),
        ..PRESENCE
    };
    let mut state = State::new(presence, RETENTION, false);
    let next_ms = Effect::WakeAt {
        mono_ms: START_MS + 30_001,
    };
    assert_eq!(effects(&mut state, ticked(30, 0)), [next_ms]);
}

#[test]
fn a_timer_delivers_messages_whose_nudge_was_lost() {
    let (mut state, _) = subscribed(Some(MANUAL), false);
    state.on(Event::Drained {
        depth: depth(0, 0),
        delivered: 0,
    });
    assert_eq!(effects(&mut state, ticked(0, 0)), [wakes_after(30)]);
    state.on(Event::WaitersChanged { waiters: 1 });
    assert_eq!(
        effects(&mut state, ticked(0, 2)),
        [Effect::Drain { limit: 3 }, Effect::ServeWaiters, wakes_after(30)]
    );
}

#[test]
fn a_panic_keeps_the_watchers_and_the_attachment_of_an_open_connection() {
    let (mut state, connection) = subscribed(Some(MANUAL), true);
    state.on(Event::WatchersChanged { watchers: 1 });
    state.on(Event::WaitersChanged { waiters: 1 });
    state.on(counts(depth(4, 2)));
    let attachment = state.attachment_number();
    state.reset_after_panic(Some(connection));
    assert_eq!(
        (state.connection(), state.attachment_number()),
        (Some(connection), attachment)
    );
    assert_eq!((state.push(), state.depth()), (Some(MANUAL), Depth::default()));
    state.reset_after_panic(Some(ConnectionId::next()));
    assert_eq!((state.connection(), state.push()), (None, None));
    assert!(state.wants_wakeup(), "the watchers are kept");
    state.on(Event::WatchersChanged { watchers: 0 });
    assert!(!state.wants_wakeup(), "the calls that waited are dropped");
    state.on(Event::Attached { connection });
    assert_ne!(state.attachment_number(), attachment, "a number of its own");
}
