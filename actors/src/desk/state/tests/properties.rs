//! The promises of the desk that hold in every order of events, at one replica and at two.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Event {
    Ask(usize, usize),
    Attach(usize, usize),
    Detach(usize),
    Set(usize, bool, bool),
    Claim(usize, usize),
    Answer(usize),
    HandOver(usize, usize),
    Pass(u64),
}

const PEOPLE: [&str; 3] = ["mara", "lena", "kim"];

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0_usize..3, 0_usize..4).prop_map(|(urgency, to)| Event::Ask(urgency, to)),
        2 => (0_usize..2, 0_usize..3).prop_map(|(replica, human)| Event::Attach(replica, human)),
        1 => any::<usize>().prop_map(Event::Detach),
        1 => (any::<usize>(), any::<bool>(), any::<bool>()).prop_map(|(which, paused, away)| Event::Set(which, paused, away)),
        2 => (any::<usize>(), 0_usize..3).prop_map(|(which, human)| Event::Claim(which, human)),
        2 => any::<usize>().prop_map(Event::Answer),
        1 => (any::<usize>(), 0_usize..4).prop_map(|(which, to)| Event::HandOver(which, to)),
        3 => (0_u64..400_000).prop_map(Event::Pass),
    ]
}

fn addressed(to: usize) -> &'static str {
    PEOPLE.get(to).copied().unwrap_or("desk")
}

fn apply(world: &mut World, consoles: &mut Vec<(ConsoleId, usize)>, event: &Event) {
    let nth = |world: &World, which: usize| {
        let len = world.stored.len().max(1);
        world.stored.keys().nth(which % len).copied()
    };
    match *event {
        Event::Ask(urgency, to) => drop(world.ask(Urgency::ALL[urgency], addressed(to))),
        Event::Attach(replica, human) => {
            let replica = replica % world.desks.len();
            consoles.push((world.attach(replica, PEOPLE[human]), replica));
        }
        Event::Detach(which) if !consoles.is_empty() => {
            let (console, _) = consoles.remove(which % consoles.len());
            world.detach(console);
        }
        Event::Set(which, is_paused, is_away) if !consoles.is_empty() => {
            let (console, replica) = consoles[which % consoles.len()];
            let change = ConsoleChange {
                is_paused: Some(is_paused),
                is_away: Some(is_away),
                is_active: !is_away,
                ..ConsoleChange::default()
            };
            world.desks[replica].change(console, change, world.now);
            world.exchange();
        }
        Event::Claim(which, human) => {
            if let Some(id) = nth(world, which) {
                world.change(id, |question, now| question.claimed(&name(PEOPLE[human]), None, now));
            }
        }
        Event::Answer(which) => {
            if let Some(id) = nth(world, which) {
                world.change(id, |question, now| answer(question, "mara", now));
            }
        }
        Event::HandOver(which, to) => {
            if let Some(id) = nth(world, which) {
                let to = AddressedTo::from(addressed(to).to_owned());
                world.change(id, |question, now| question.handed_over(&name("mara"), to, None, now));
            }
        }
        Event::Pass(millis) => world.pass(millis),
        Event::Detach(_) | Event::Set(..) => {}
    }
}

fn check(world: &World) -> Result<(), TestCaseError> {
    let desk = &world.desks[0];
    let loads = Loads::of(world.stored.values().map(|question| &**question));
    let waits = |question: &&Arc<Question>| question.state == QuestionState::Waiting;
    for question in world.stored.values().filter(waits) {
        for console in eligible(question, &desk.consoles) {
            prop_assert!(
                loads.open(console.id) >= 10,
                "{} waits although {:?} has room",
                question.summary,
                console.id
            );
        }
    }
    for question in world.stored.values() {
        if let QuestionState::Offered(offer) = &question.state {
            let console = desk.consoles.get(&offer.console);
            prop_assert!(
                console.is_some_and(|console| !console.is_away),
                "offered to a console that is not there"
            );
        }
        prop_assert!(question.expires_next_ms().is_none_or(|end| end > world.now.unix_ms));
    }
    for console in desk.consoles.keys() {
        let offered = world
            .stored
            .values()
            .filter(|question| matches!(&question.state, QuestionState::Offered(offer) if offer.console == *console));
        prop_assert!(offered.count() <= 10);
    }
    Ok(())
}

proptest! {
    /// After every event, at one replica and at two: no question waits while a console that may take it has room, so none
    /// starves behind a later one; no console has more offers than its capacity; each offer is at a console that is there.
    #[test]
    fn no_question_waits_while_a_console_has_room(
        replicas in 1_u128..3,
        events in prop::collection::vec(event(), 1..80),
    ) {
        let (mut world, mut consoles) = (World::new(replicas), Vec::new());
        for event in events {
            apply(&mut world, &mut consoles, &event);
            world.exchange();
            world.settle();
            check(&world)?;
        }
    }

    /// Each offer of a plan is what the load rule says, seen from the questions and consoles before it.
    #[test]
    fn offers_follow_the_load_rule(events in prop::collection::vec(event(), 1..60)) {
        let (mut world, mut consoles) = (World::new(1), Vec::new());
        for event in events {
            apply(&mut world, &mut consoles, &event);
            world.exchange();
            for _ in 0..100 {
                let plan = world.desks[0].plan(world.now);
                if plan.effects.is_empty() {
                    break;
                }
                let mut offered = BTreeMap::new();
                let mut last_waiting = None;
                for effect in plan.effects {
                    if let Effect::Offer { question, console, .. } = &effect {
                        let desk = &world.desks[0];
                        let open = |console: ConsoleId| world.open_of(console);
                        let chosen = &desk.consoles[console];
                        let was_waiting = question.state == QuestionState::Waiting;
                        for other in eligible(question, &desk.consoles).into_iter().filter(|_| was_waiting) {
                            prop_assert!(open(*console) <= open(other.id) || open(other.id) >= 10);
                            if open(*console) == open(other.id) && open(other.id) < 10 {
                                let is_idle = |console: &Console| console.presence(world.now) == Presence::Idle;
                                prop_assert!(is_idle(chosen) <= is_idle(other), "the present go first");
                            }
                        }
                        if was_waiting {
                            let order = waiting_order(question);
                            prop_assert!(last_waiting.is_none_or(|last| last < order), "in the order of the queue");
                            last_waiting = Some(order);
                        }
                        prop_assert!(offered.insert(question.id, *console).is_none(), "two offers of one question");
                    }
                    world.carry_out(effect);
                }
            }
            check(&world)?;
        }
    }
}
