//! The decisions about wakes, with a clock of their own.

use proptest::prelude::*;

use super::*;
use crate::model::QuietHours;

/// A session whose connection can be reached, and the clock.
struct World {
    waking: Waking,
    now: Now,
    inbox: Vec<UnreadMessage>,
    wakes: Vec<(u64, Wake)>,
    held: Vec<WakeHold>,
}

impl World {
    fn new(ways: Ways) -> Self {
        let now = Now {
            unix_ms: 1_790_000_000_000,
            mono_ms: 1_000_000,
        };
        let mut world = Self {
            waking: Waking::default(),
            now,
            inbox: Vec::new(),
            wakes: Vec::new(),
            held: Vec::new(),
        };
        world.on(Event::WaysChanged(ways));
        world
    }

    fn connected() -> Self {
        Self::new(Ways {
            connection: true,
            hook: false,
        })
    }

    fn on(&mut self, event: Event) {
        let effect = self.waking.on(event, self.now);
        match effect {
            Some(Effect::Peek) => {
                let unread = Unread {
                    len: self.inbox.len(),
                    first: self.inbox.iter().take(PEEK_MAX).cloned().collect(),
                };
                self.on(Event::Peeked(unread));
            }
            Some(Effect::TellConnection { wake, .. } | Effect::TellHook { wake, .. }) => {
                self.wakes.push((self.now.mono_ms, wake));
            }
            Some(Effect::Hold(hold)) => self.held.push(hold),
            Some(Effect::ReadAfterWake { .. }) | None => {}
        }
    }

    /// Lets time pass, with every timer at its moment.
    fn pass(&mut self, ms: u64) {
        let end = self.now.mono_ms + ms;
        while let Some(at) = self.waking.timer_ms().filter(|at| *at <= end) {
            self.go_to(at.max(self.now.mono_ms));
            self.on(Event::TimerFired);
        }
        self.go_to(end);
    }

    fn go_to(&mut self, mono_ms: u64) {
        self.now.unix_ms += mono_ms - self.now.mono_ms;
        self.now.mono_ms = mono_ms;
    }

    fn arrives(&mut self, message: UnreadMessage) {
        self.inbox.push(message);
        self.on(Event::Arrived);
    }

    fn reads_all(&mut self) {
        self.inbox.clear();
        self.on(Event::Read { waiting: 0 });
    }

    fn written(&mut self) {
        let number = self.wakes.last().unwrap().1.number;
        let result = WakeResult::Written;
        self.on(Event::Answered { number, result });
    }

    fn message(&self) -> UnreadMessage {
        UnreadMessage {
            sender: SessionId::generate(),
            sender_name: "bob".to_owned(),
            protocol: "chat".to_owned(),
            priority: Priority::Normal,
            hops: 0,
            accepted_ms: self.now.unix_ms,
        }
    }
}

#[test]
fn a_message_that_is_not_taken_within_the_grace_wakes_once() {
    let mut world = World::connected();
    world.arrives(world.message());
    world.pass(GRACE_MS - 1);
    assert!(world.wakes.is_empty());
    world.pass(1);
    assert_eq!(world.wakes.len(), 1);
    assert_eq!(world.wakes[0].1.mail.unread, 1);
    world.written();
    world.pass(MINUTE_MS);
    assert_eq!(world.wakes.len(), 1);
}

#[test]
fn what_is_read_within_the_grace_wakes_no_agent() {
    let mut world = World::connected();
    world.arrives(world.message());
    world.pass(GRACE_MS / 2);
    world.reads_all();
    world.pass(2 * HOUR_MS);
    assert!(world.wakes.is_empty());
    assert_eq!(world.waking.timer_ms(), None, "an idle session arms no timer");
}

#[test]
fn an_attentive_session_is_not_woken() {
    let mut world = World::connected();
    world.on(Event::Attends { is_attentive: true });
    assert!(!world.waking.wants_arrivals());
    world.arrives(world.message());
    world.pass(HOUR_MS);
    assert!(world.wakes.is_empty());
    // The call has ended before it was given the message.
    world.on(Event::Attends { is_attentive: false });
    world.pass(GRACE_MS);
    assert_eq!(world.wakes.len(), 1);
}

#[test]
fn a_storm_is_one_wake() {
    let mut world = World::connected();
    for _ in 0..1000 {
        world.arrives(world.message());
        world.pass(3);
    }
    world.written();
    world.pass(MINUTE_MS);
    assert_eq!(world.wakes.len(), 1);
    assert!(world.wakes[0].1.mail.unread >= 100);
}

#[test]
fn a_wake_is_repeated_three_times_while_nothing_is_read() {
    let mut world = World::connected();
    world.arrives(world.message());
    let start = world.now.mono_ms + GRACE_MS;
    world.pass(24 * HOUR_MS);
    let at: Vec<_> = world.wakes.iter().map(|(at, _)| at - start).collect();
    assert_eq!(at, [0, REPEATS_MS[0], REPEATS_MS[1], REPEATS_MS[2]]);
    // A later message begins again.
    world.arrives(world.message());
    world.pass(GRACE_MS);
    assert_eq!(world.wakes.len(), 5);
}

#[test]
fn an_urgent_message_wakes_again_after_the_interval() {
    let mut world = World::connected();
    world.arrives(world.message());
    world.pass(GRACE_MS);
    world.written();
    let first = world.wakes[0].0;
    let mut urgent = world.message();
    urgent.priority = Priority::Urgent;
    world.arrives(urgent);
    world.pass(MINUTE_MS);
    assert_eq!(world.wakes.len(), 2);
    assert_eq!(world.wakes[1].0, first + 5000);
    assert_eq!(world.wakes[1].1.mail.urgent, 1);
}

#[test]
fn a_wake_that_the_connection_does_not_write_goes_to_the_hook() {
    for is_answered in [true, false] {
        let mut world = World::new(Ways {
            connection: true,
            hook: true,
        });
        world.arrives(world.message());
        world.pass(GRACE_MS);
        if is_answered {
            let (number, result) = (world.wakes[0].1.number, WakeResult::Refused);
            world.on(Event::Answered { number, result });
        } else {
            world.pass(ANSWER_MS);
        }
        assert_eq!(world.wakes.len(), 2);
        assert_eq!(world.wakes[1].1.number, world.wakes[0].1.number);
    }
}

#[test]
fn the_answer_to_a_wake_counts_once_also_when_the_agent_was_faster() {
    let mut world = World::connected();
    world.arrives(world.message());
    world.pass(GRACE_MS);
    let (number, result) = (world.wakes[0].1.number, WakeResult::Written);
    world.reads_all();
    assert!(world.waking.awaits_answer(number));
    world.on(Event::Answered { number, result });
    assert!(!world.waking.awaits_answer(number));
    world.pass(HOUR_MS);
    assert_eq!(world.wakes.len(), 1);
}

#[test]
fn a_wake_that_no_client_took_is_told_to_the_next_hook() {
    let mut world = World::connected();
    world.arrives(world.message());
    world.pass(GRACE_MS);
    let (number, result) = (world.wakes[0].1.number, WakeResult::Absent);
    world.on(Event::Answered { number, result });
    world.pass(10_000);
    assert_eq!(world.wakes.len(), 1);
    world.on(Event::WaysChanged(Ways {
        connection: false,
        hook: true,
    }));
    world.pass(GRACE_MS);
    assert_eq!(world.wakes.len(), 2);
}

#[test]
fn what_waits_when_a_hook_begins_to_wait_wakes() {
    let mut world = World::new(Ways::default());
    assert!(!world.waking.wants_arrivals());
    world.inbox.push(world.message());
    world.pass(HOUR_MS);
    world.on(Event::WaysChanged(Ways {
        connection: false,
        hook: true,
    }));
    world.pass(GRACE_MS);
    assert_eq!(world.wakes.len(), 1);
}

#[test]
fn messages_with_too_many_hops_wake_no_agent() {
    let mut world = World::connected();
    let mut message = world.message();
    message.hops = WAKE_HOPS_MAX + 1;
    world.arrives(message);
    world.pass(24 * HOUR_MS);
    assert!(world.wakes.is_empty());
    assert_eq!(world.held, [WakeHold::HopLimit]);
}

#[test]
fn two_agents_that_answer_each_other_come_to_rest() {
    let (mut hops, mut wakes) = (0, 0_u64);
    loop {
        let mut world = World::connected();
        let mut message = world.message();
        message.hops = hops;
        world.inbox.push(message);
        world.on(Event::Arrived);
        world.pass(GRACE_MS);
        if world.wakes.is_empty() {
            break;
        }
        wakes += 1;
        // The answer is sent in the turn that the wake begins.
        hops = Turn::of(hops, world.now).hops;
    }
    assert_eq!(wakes, WAKE_HOPS_MAX + 1);
}

#[test]
fn one_sender_causes_a_bounded_number_of_wakes() {
    let mut world = World::connected();
    let message = world.message();
    for _ in 0..100 {
        world.arrives(message.clone());
        world.pass(10_000);
        world.reads_all();
    }
    assert_eq!(world.wakes.len(), WAKES_OF_SENDER_MAX as usize);
    assert!(world.held.contains(&WakeHold::SenderRate));
    // Another sender wakes as before.
    world.arrives(world.message());
    world.pass(GRACE_MS);
    assert_eq!(world.wakes.len(), WAKES_OF_SENDER_MAX as usize + 1);
}

#[test]
fn quiet_hours_end_with_a_wake() {
    let mut world = World::connected();
    // 14:13 UTC.
    assert_eq!(world.now.unix_ms / MINUTE_MS % 1440, 14 * 60 + 13);
    world.on(Event::Prefers(WakePreference {
        quiet: Some(QuietHours::parse("14:00-14:40").unwrap()),
        ..WakePreference::default()
    }));
    world.arrives(world.message());
    world.pass(25 * MINUTE_MS);
    assert!(world.wakes.is_empty());
    world.pass(3 * MINUTE_MS);
    assert_eq!(world.wakes.len(), 1);
    assert_eq!(world.held, [WakeHold::Quiet]);
}

#[test]
fn an_agent_chooses_what_wakes_it() {
    for (wakes_for, expected) in [(WakeFor::High, 0), (WakeFor::Never, 0), (WakeFor::Any, 1)] {
        let mut world = World::connected();
        world.on(Event::Prefers(WakePreference {
            wakes_for,
            ..WakePreference::default()
        }));
        world.arrives(world.message());
        world.pass(GRACE_MS);
        assert_eq!(world.wakes.len(), expected, "{wakes_for:?}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrives(Priority, u8),
    Reads,
    Attends(bool),
    Ways(bool, bool),
    Answers(WakeResult),
    Passes(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (prop::sample::select(&Priority::ALL[..]), 0u8..20).prop_map(|(priority, hops)| Step::Arrives(priority, hops)),
        1 => Just(Step::Reads),
        1 => any::<bool>().prop_map(Step::Attends),
        1 => any::<(bool, bool)>().prop_map(|(connection, hook)| Step::Ways(connection, hook)),
        2 => prop::sample::select(&WakeResult::ALL[..]).prop_map(Step::Answers),
        4 => (0u64..4 * HOUR_MS).prop_map(Step::Passes),
        4 => (0u64..2000).prop_map(Step::Passes),
    ]
}

proptest! {
    /// Wakes of the connection keep the interval, none goes to an attentive agent, and the messages of an agent that can be
    /// reached are announced within the grace and the interval, if they may wake and nothing was announced since they were read.
    #[test]
    fn the_rules_hold_in_every_order(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::connected();
        let (mut ways, mut attends) = (Ways { connection: true, hook: false }, false);
        let sender = SessionId::generate();
        let mut seen = 0;
        for step in steps {
            match step {
                Step::Arrives(priority, hops) => {
                    let message = UnreadMessage { sender, priority, hops: hops.into(), ..world.message() };
                    world.arrives(message);
                }
                Step::Reads => world.reads_all(),
                Step::Attends(is_attentive) => {
                    attends = is_attentive;
                    world.on(Event::Attends { is_attentive });
                }
                Step::Ways(connection, hook) => {
                    ways = Ways { connection, hook };
                    world.on(Event::WaysChanged(ways));
                }
                Step::Answers(result) => {
                    if let Some((_, wake)) = world.wakes.last() {
                        let number = wake.number;
                        world.on(Event::Answered { number, result });
                    }
                }
                Step::Passes(ms) => world.pass(ms),
            }
            if attends || ways == Ways::default() {
                // Only a hook gets what the connection did not write.
                prop_assert!(world.wakes[seen..].len() <= 1);
            }
            seen = world.wakes.len();
        }
        let mut last: Option<&(u64, Wake)> = None;
        for wake in &world.wakes {
            if let Some(before) = last.filter(|before| before.1.number != wake.1.number) {
                prop_assert!(wake.0 >= before.0 + 5000);
            }
            last = Some(wake);
        }
        // At rest, each message that may wake has been announced or is announced.
        world.on(Event::Attends { is_attentive: false });
        world.on(Event::WaysChanged(Ways { connection: true, hook: false }));
        world.reads_all();
        world.pass(2 * HOUR_MS);
        let before = world.wakes.len();
        world.arrives(world.message());
        world.pass(GRACE_MS);
        prop_assert_eq!(world.wakes.len(), before + 1);
    }
}
