//! The rules of the desk one by one. `properties` has the promises that hold in every order of events.

mod properties;

use uuid::Uuid;

use super::*;
use crate::{
    desk::load::PRESENT_FOR,
    model::{AddressedTo, Answer, AnsweredBy, Asker, Owner, QuestionContent, Refusal, SessionId, Via},
};

const START: Now = Now {
    unix_ms: 1_790_000_000_000,
    mono_ms: 1_000_000_000,
};
const HOUR: u64 = 3_600_000;

fn replica(number: u128) -> ReplicaId {
    ReplicaId::from_uuid(Uuid::from_u128(number))
}

fn name(text: &str) -> SessionName {
    SessionName::parse(text).unwrap()
}

fn question(number: u64, urgency: Urgency, to: &str) -> Question {
    let bits = (u128::from(START.unix_ms + number) << 80) | u128::from(number);
    Question {
        id: QuestionId::from_uuid(Uuid::from_u128(bits)),
        revision: 0,
        asker: Asker {
            session: SessionId::from_uuid(Uuid::from_u128(7)),
            name: None,
            owner: Owner::anonymous(),
        },
        summary: number.to_string(),
        content_bytes: 0,
        urgency,
        to: AddressedTo::from(to.to_owned()),
        is_sensitive: false,
        expires_at_ms: Some(START.unix_ms + 24 * HOUR),
        on_expiry: None,
        idempotency_key: None,
        state: QuestionState::Waiting,
        seen_at_ms: None,
        is_expiring: false,
        sealed_answer: None,
        answer_deleted_ms: None,
        handover: None,
        notice: None,
    }
}

/// Stored questions, and the desks of all replicas that see every change at once.
struct World {
    stored: BTreeMap<QuestionId, Arc<Question>>,
    desks: Vec<DeskState>,
    now: Now,
    asked: u64,
}

impl World {
    fn new(replicas: u128) -> Self {
        let desks = (1..=replicas).map(|number| DeskState::new(replica(number), replicas > 1, 10));
        Self {
            stored: BTreeMap::new(),
            desks: desks.collect(),
            now: START,
            asked: 0,
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now = Now {
            unix_ms: self.now.unix_ms + millis,
            mono_ms: self.now.mono_ms + millis,
        };
    }

    fn ask(&mut self, urgency: Urgency, to: &str) -> QuestionId {
        self.asked += 1;
        let question = question(self.asked, urgency, to);
        let id = question.id;
        self.put(question);
        id
    }

    fn put(&mut self, question: Question) {
        let question = Arc::new(question);
        self.stored.insert(question.id, Arc::clone(&question));
        for desk in &mut self.desks {
            desk.put(Arc::clone(&question), self.now);
        }
    }

    fn change(&mut self, id: QuestionId, change: impl FnOnce(&Question, Now) -> Result<Question, Refusal>) {
        if let Ok(next) = change(&self.stored[&id], self.now) {
            self.put(next);
        }
    }

    /// Every replica tells the others its consoles.
    fn exchange(&mut self) {
        let all: Vec<_> = self.desks.iter().map(|desk| desk.own_records(self.now)).collect();
        // Later than everything that was learnt.
        self.pass(1);
        for (desk, own) in self.desks.iter_mut().zip(&all) {
            desk.exchanged(own, all.concat(), self.now, self.now);
        }
    }

    fn attach(&mut self, replica: usize, human: &str) -> ConsoleId {
        let console = self.desks[replica].attach(name(human), Vec::new(), self.now);
        self.exchange();
        console
    }

    fn detach(&mut self, console: ConsoleId) {
        for desk in &mut self.desks {
            if desk.replica == console.replica {
                desk.detach(console);
            }
        }
        self.exchange();
    }

    /// Carries out the plans of all replicas until none has anything to do. Returns the next deadline.
    fn settle(&mut self) -> Option<u64> {
        for _ in 0..100 {
            let plans: Vec<_> = self.desks.iter_mut().map(|desk| desk.plan(self.now)).collect();
            if plans.iter().all(|plan| plan.effects.is_empty()) {
                return plans.iter().filter_map(|plan| plan.next_ms).min();
            }
            for effect in plans.into_iter().flat_map(|plan| plan.effects) {
                self.carry_out(effect);
            }
        }
        panic!("the desk does not come to rest");
    }

    /// Compare and set.
    fn carry_out(&mut self, effect: Effect) {
        let now = self.now;
        let (before, next) = match &effect {
            Effect::Offer {
                question,
                console,
                human,
            } => (question, question.offered(*console, human, now)),
            Effect::TakeBack { question, console } => (question, question.taken_back(*console)),
            Effect::EndClaim(question) => (question, question.claim_ended(now)),
            Effect::MoveClaim {
                question,
                human,
                console,
            } => (question, question.claim_moved(human, *console)),
            Effect::Expire(question) => (question, question.expired(now)),
            Effect::WarnOfExpiry(question) => (question, question.expiring(now)),
        };
        let next = next.unwrap_or_else(|refusal| panic!("{refusal} for {effect:?}"));
        if self.stored[&before.id].revision == before.revision {
            self.put(next);
        }
    }

    fn console_of(&self, id: QuestionId) -> Option<ConsoleId> {
        self.stored[&id].console()
    }

    fn open_of(&self, console: ConsoleId) -> usize {
        let open = self
            .stored
            .values()
            .filter(|question| question.console() == Some(console));
        open.count()
    }
}

fn answer(question: &Question, human: &str, now: Now) -> Result<Question, Refusal> {
    let by = AnsweredBy {
        human: name(human),
        via: Via::Console,
        is_agent: false,
    };
    question.answered(by, Answer::text("yes"), &QuestionContent::text("?"), now)
}

#[test]
fn fifty_questions_fill_three_consoles_and_the_rest_waits() {
    let mut world = World::new(1);
    let consoles = ["mara", "lena", "kim"].map(|human| world.attach(0, human));
    let ids: Vec<_> = (0..50).map(|_| world.ask(Urgency::Medium, "desk")).collect();
    world.settle();
    assert_eq!(consoles.map(|console| world.open_of(console)), [10, 10, 10]);
    let waiting: Vec<_> = ids.iter().filter(|id| world.console_of(**id).is_none()).collect();
    assert_eq!(
        waiting,
        ids[30..].iter().collect::<Vec<_>>(),
        "the oldest are offered first"
    );
    assert_eq!(world.desks[0].position(ids[30]), Some(1));
    assert_eq!(world.desks[0].position(ids[49]), Some(20));
    assert_eq!(world.desks[0].position(ids[0]), None);
    let urgent = world.ask(Urgency::High, "desk");
    assert_eq!(world.desks[0].position(urgent), Some(1), "before all that wait");
    world.change(ids[4], |question, now| answer(question, "lena", now));
    world.settle();
    assert!(world.console_of(urgent).is_some() && world.console_of(ids[30]).is_none());
}

#[test]
fn a_console_that_has_not_answered_yet_is_chosen_last() {
    let mut world = World::new(1);
    let [silent, console] = ["mara", "lena"].map(|human| world.attach(0, human));
    let unproven = |is_unproven| ConsoleChange {
        is_unproven: Some(is_unproven),
        ..ConsoleChange::default()
    };
    assert_eq!(world.desks[0].change(silent, unproven(true), world.now), Some(true));
    let ids: Vec<_> = (0..11).map(|_| world.ask(Urgency::Low, "desk")).collect();
    world.settle();
    assert_eq!(
        (world.open_of(console), world.open_of(silent)),
        (10, 1),
        "only the rest"
    );
    assert_eq!(world.desks[0].change(silent, unproven(false), world.now), Some(true));
    world.change(ids[0], |question, now| answer(question, "lena", now));
    let next = world.ask(Urgency::Low, "desk");
    world.settle();
    assert_eq!(world.console_of(next), Some(silent), "it has fewer");
}

#[test]
fn the_present_go_before_the_idle_and_the_longest_without_an_offer_first() {
    let mut world = World::new(1);
    let [idle, first, second] = ["mara", "lena", "kim"].map(|human| world.attach(0, human));
    world.pass(millis(PRESENT_FOR));
    for console in [first, second] {
        let active = ConsoleChange {
            is_active: true,
            ..ConsoleChange::default()
        };
        assert_eq!(world.desks[0].change(console, active, world.now), Some(true));
    }
    let expected = [first, second, idle, first, second, idle];
    for console in expected {
        let id = world.ask(Urgency::Low, "desk");
        world.pass(5);
        world.settle();
        assert_eq!(world.console_of(id), Some(console));
    }
    let last = world.ask(Urgency::Low, "desk");
    let answered: Vec<_> = world
        .stored
        .values()
        .filter(|question| question.console() == Some(second))
        .collect();
    let answered: Vec<_> = answered.into_iter().map(|question| question.id).collect();
    for id in answered {
        world.change(id, |question, now| answer(question, "kim", now));
    }
    world.settle();
    assert_eq!(world.console_of(last), Some(second), "the fewest open questions");
}

#[test]
fn a_question_goes_only_to_those_who_may_answer() {
    let mut world = World::new(1);
    let lena = world.attach(0, "lena");
    let id = world.ask(Urgency::High, "mara");
    world.settle();
    assert_eq!(world.console_of(id), None);
    let oncall = world.desks[0].attach(name("kim"), vec!["oncall".to_owned()], world.now);
    let for_role = world.ask(Urgency::Medium, "oncall");
    world.settle();
    assert_eq!(world.console_of(for_role), Some(oncall));
    let mara = world.attach(0, "mara");
    world.settle();
    assert_eq!(world.console_of(id), Some(mara));
    assert_eq!(world.open_of(lena), 0);
}

#[test]
fn paused_and_away_consoles_get_nothing_and_the_away_give_back() {
    let mut world = World::new(1);
    let mara = world.attach(0, "mara");
    let kept = world.ask(Urgency::Medium, "desk");
    world.settle();
    let change = |is_paused, is_away| ConsoleChange {
        is_paused,
        is_away,
        is_active: false,
        ..ConsoleChange::default()
    };
    world.desks[0].change(mara, change(Some(true), None), world.now);
    let waiting = world.ask(Urgency::Medium, "desk");
    world.settle();
    assert_eq!((world.console_of(kept), world.console_of(waiting)), (Some(mara), None));
    world.desks[0].change(mara, change(Some(false), Some(true)), world.now);
    world.settle();
    assert_eq!((world.console_of(kept), world.console_of(waiting)), (None, None));
    assert_eq!(world.desks[0].summary(world.now).consoles[0].presence, Presence::Away);
    world.desks[0].change(mara, change(None, Some(false)), world.now);
    world.settle();
    assert_eq!(
        (world.console_of(kept), world.console_of(waiting)),
        (Some(mara), Some(mara))
    );
}

#[test]
fn an_offer_moves_on_to_a_present_person_only() {
    for (urgency, offer_ms) in [
        (Urgency::High, 60_000),
        (Urgency::Medium, 180_000),
        (Urgency::Low, 600_000),
    ] {
        let mut world = World::new(1);
        let mara = world.attach(0, "mara");
        let id = world.ask(urgency, "desk");
        world.settle();
        let lena = world.attach(0, "lena");
        let active = ConsoleChange {
            is_active: true,
            ..ConsoleChange::default()
        };
        world.desks[0].change(lena, active, world.now);
        world.pass(offer_ms - 10);
        world.desks[0].change(lena, active, world.now);
        world.settle();
        assert_eq!(world.console_of(id), Some(mara), "{urgency:?}: too early");
        world.pass(10);
        world.settle();
        assert_eq!(world.console_of(id), Some(lena), "{urgency:?}");
    }
    let mut world = World::new(1);
    let mara = world.attach(0, "mara");
    let id = world.ask(Urgency::Low, "desk");
    world.settle();
    world.attach(0, "lena");
    world.pass(HOUR);
    world.settle();
    assert_eq!(world.console_of(id), Some(mara), "nobody else is present");
}

#[test]
fn a_console_that_leaves_gives_back_its_offers_at_once_and_its_claims_after_half_a_minute() {
    let mut world = World::new(1);
    let mara = world.attach(0, "mara");
    let [offered, claimed] = [world.ask(Urgency::High, "desk"), world.ask(Urgency::Low, "desk")];
    world.settle();
    world.change(claimed, |question, now| {
        question.claimed(&name("mara"), Some(mara), now)
    });
    let lena = world.attach(0, "lena");
    world.detach(mara);
    let next = world.settle();
    assert_eq!(world.console_of(offered), Some(lena));
    assert_eq!(world.console_of(claimed), Some(mara), "its person may come back");
    assert!(next.unwrap() <= world.now.mono_ms + 30_000);
    world.pass(29_990);
    world.settle();
    assert_eq!(world.console_of(claimed), Some(mara));
    world.pass(20);
    world.settle();
    assert_eq!(world.console_of(claimed), Some(lena));
}

#[test]
fn a_claim_follows_its_person_to_a_new_console() {
    let mut world = World::new(1);
    let mara = world.attach(0, "mara");
    let id = world.ask(Urgency::Low, "desk");
    world.settle();
    world.change(id, |question, now| question.claimed(&name("mara"), Some(mara), now));
    world.detach(mara);
    world.pass(10_000);
    world.settle();
    let again = world.attach(0, "mara");
    world.settle();
    assert_eq!(world.console_of(id), Some(again));
    world.pass(60_000);
    world.settle();
    assert!(world.stored[&id].claim().is_some(), "the claim goes on");
}

#[test]
fn what_a_person_gives_back_goes_to_others_first() {
    let mut world = World::new(1);
    let mara = world.attach(0, "mara");
    let id = world.ask(Urgency::Low, "desk");
    world.settle();
    let lena = world.attach(0, "lena");
    for _ in 0..3 {
        world.ask(Urgency::Low, "lena");
    }
    world.settle();
    assert_eq!((world.open_of(mara), world.open_of(lena)), (1, 3));
    let give_back = |question: &Question, now| question.handed_over(&name("mara"), AddressedTo::Anyone, None, now);
    world.change(id, give_back);
    world.settle();
    assert_eq!(world.console_of(id), Some(lena), "although mara has fewer");
    world.detach(lena);
    world.settle();
    assert_eq!(world.console_of(id), Some(mara), "she is the only one");
}

#[test]
fn a_question_expires_also_without_a_console() {
    let mut world = World::new(1);
    let id = world.ask(Urgency::Low, "desk");
    let warned_ms = 24 * HOUR - 600_000;
    assert_eq!(world.settle(), Some(START.mono_ms + warned_ms));
    world.pass(warned_ms);
    assert_eq!(world.settle(), Some(START.mono_ms + 24 * HOUR));
    assert!(world.stored[&id].is_expiring && world.stored[&id].is_open());
    world.pass(600_000);
    assert_eq!(world.settle(), None, "nothing is left to be looked at");
    assert_eq!(
        (world.stored[&id].state_str(), world.stored[&id].seen_at_ms),
        ("expired", None)
    );
}

#[test]
fn without_a_console_and_without_a_deadline_the_desk_has_nothing_to_look_at() {
    let mut world = World::new(1);
    let endless = Question {
        expires_at_ms: None,
        ..question(1, Urgency::High, "mara")
    };
    world.put(endless);
    assert_eq!(world.settle(), None);
}

#[test]
fn an_older_record_is_no_news() {
    let mut desk = DeskState::new(replica(1), false, 10);
    let first = question(1, Urgency::Low, "desk");
    let second = first.claimed(&name("mara"), None, START).unwrap();
    let closed = answer(&second, "mara", START).unwrap();
    assert!(desk.put(Arc::new(second.clone()), START));
    assert!(!desk.put(Arc::new(first), START) && !desk.put(Arc::new(second.clone()), START));
    assert!(desk.put(Arc::new(closed), START));
    assert!(!desk.put(Arc::new(second), START), "it stays closed");
    assert_eq!(desk.questions().count(), 0);
}

#[test]
fn questions_of_a_dead_replica_go_to_consoles_of_others() {
    let mut world = World::new(2);
    let mara = world.attach(0, "mara");
    let id = world.ask(Urgency::High, "desk");
    world.settle();
    let lena = world.attach(1, "lena");
    assert_eq!(world.console_of(id), Some(mara));
    // The first replica is dead: the store no longer names its consoles.
    world.desks.remove(0);
    world.settle();
    assert_eq!(world.console_of(id), Some(mara), "nothing is known of it yet");
    world.exchange();
    world.settle();
    assert_eq!(world.console_of(id), Some(lena));
}

#[test]
fn a_console_gets_nothing_before_other_replicas_know_it() {
    let mut world = World::new(2);
    let id = world.ask(Urgency::High, "desk");
    let mara = world.desks[0].attach(name("mara"), Vec::new(), world.now);
    world.settle();
    assert_eq!(world.console_of(id), None);
    world.exchange();
    world.settle();
    assert_eq!(world.console_of(id), Some(mara));
}
