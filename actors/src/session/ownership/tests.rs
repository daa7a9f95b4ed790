//! The ownership of one session at several replicas, over a store that fails and answers late.

use std::collections::VecDeque;

use proptest::{collection::vec, prelude::*};

use super::*;

const REPLICAS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A client registers the session at this replica.
    Register(usize),
    /// The replica leases a message under its claim.
    Lease(usize),
    /// The connection of the replica is detached: what is leased is released.
    Detach(usize),
    /// The replica hears the answer to the operation that it began first.
    Answer(usize),
    /// The replica hears one report of a claim at another replica.
    Report(usize),
    /// The timer of the replica goes off.
    RetryDue(usize),
    Panic(usize),
    /// Operations of the store fail from now on, or succeed.
    Outage(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let replica = 0..REPLICAS;
    let step = prop_oneof![
        3 => replica.clone().prop_map(Step::Register),
        6 => replica.clone().prop_map(Step::Lease),
        2 => replica.clone().prop_map(Step::Detach),
        10 => replica.clone().prop_map(Step::Answer),
        4 => replica.clone().prop_map(Step::Report),
        3 => replica.clone().prop_map(Step::RetryDue),
        1 => replica.prop_map(Step::Panic),
        2 => any::<bool>().prop_map(Step::Outage),
    ];
    vec(step, 1..100)
}

/// An operation that took effect in the store, or failed, and whose answer is still to be heard.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Claimed { claim: Claim, epoch: u64 },
    Refused,
    Failed(Retry),
    Done,
}

struct Replica {
    ownership: Ownership,
    answers: VecDeque<Answer>,
    reports: VecDeque<u64>,
    is_timer_set: bool,
}

/// The replicas and the store that they share.
struct World {
    replicas: Vec<Replica>,
    /// The claim that the store knows, and its epoch.
    owner: Option<Claim>,
    epoch: u64,
    /// The claims under which messages are leased.
    leased: Vec<Claim>,
    claims: u64,
    is_out: bool,
}

impl World {
    fn new() -> Self {
        let replica = || Replica {
            ownership: Ownership::new(None, false),
            answers: VecDeque::new(),
            reports: VecDeque::new(),
            is_timer_set: false,
        };
        Self {
            replicas: std::iter::repeat_with(replica).take(REPLICAS).collect(),
            owner: None,
            epoch: 0,
            leased: Vec::new(),
            claims: 0,
            is_out: false,
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Register(at) => self.claim(at),
            Step::Lease(at) => self.lease(at),
            Step::Detach(at) => self.release(at),
            Step::Answer(at) => self.answer(at),
            Step::Report(at) => self.report(at),
            Step::RetryDue(at) => self.retry_due(at),
            Step::Panic(at) => {
                let replica = &mut self.replicas[at];
                replica.answers.clear();
                replica.is_timer_set = false;
                self.apply(at, Event::Panicked);
                self.apply(at, Event::Started { is_store_shared: true });
            }
            Step::Outage(is_out) => self.is_out = is_out,
        }
        self.check();
    }

    fn apply(&mut self, at: usize, event: Event) {
        let before = self.replicas[at].ownership.claim();
        match self.replicas[at].ownership.on(event) {
            Some(Effect::ClaimAgain)
                if before != self.owner && self.replicas[at].ownership.was_claimed_elsewhere() && !self.is_out =>
            {
                self.apply(at, Event::TakenElsewhere);
            }
            Some(Effect::Claim | Effect::ClaimAgain) => self.claim(at),
            Some(Effect::Release) => self.release(at),
            Some(Effect::Lease) => self.lease(at),
            Some(Effect::StepDown) => {
                assert!(before.is_some(), "only an owner steps down");
                assert_ne!(before, self.owner, "the owner that the store knows never steps down");
            }
            Some(Effect::ScheduleRetry) => {
                let is_set = std::mem::replace(&mut self.replicas[at].is_timer_set, true);
                assert!(!is_set, "one timer at a time");
            }
            None => {}
        }
    }

    fn claim(&mut self, at: usize) {
        self.claims += 1;
        let claim = Claim::from_bits(self.claims);
        self.apply(at, Event::ClaimBegun { claim });
        let answer = if self.is_out {
            Answer::Failed(Retry::Release)
        } else {
            self.epoch += 1;
            self.owner = Some(claim);
            self.leased.clear();
            for (other, replica) in self.replicas.iter_mut().enumerate() {
                if other != at {
                    replica.reports.push_back(self.epoch);
                }
            }
            let epoch = self.epoch;
            Answer::Claimed { claim, epoch }
        };
        self.replicas[at].answers.push_back(answer);
    }

    fn lease(&mut self, at: usize) {
        let Some(claim) = self.replicas[at].ownership.claim() else {
            return;
        };
        let answer = if self.is_out {
            Answer::Failed(Retry::Lease)
        } else if self.owner == Some(claim) {
            self.leased.push(claim);
            Answer::Done
        } else {
            Answer::Refused
        };
        self.replicas[at].answers.push_back(answer);
    }

    fn release(&mut self, at: usize) {
        let answer = if self.is_out {
            Answer::Failed(Retry::Release)
        } else {
            match self.replicas[at].ownership.release_scope(Duration::ZERO) {
                Release::Claimed(claim) if self.owner == Some(claim) => self.leased.clear(),
                // The session is never silent here.
                _ => {}
            }
            Answer::Done
        };
        self.replicas[at].answers.push_back(answer);
    }

    fn answer(&mut self, at: usize) {
        match self.replicas[at].answers.pop_front() {
            Some(Answer::Claimed { claim, epoch }) => self.apply(at, Event::Claimed { claim, epoch }),
            Some(Answer::Refused) => self.apply(at, Event::Refused),
            Some(Answer::Failed(retry)) => self.apply(at, Event::Failed { retry }),
            Some(Answer::Done) | None => {}
        }
    }

    fn report(&mut self, at: usize) {
        if let Some(epoch) = self.replicas[at].reports.pop_front() {
            self.apply(at, Event::ClaimedRemotely { epoch });
        }
    }

    fn retry_due(&mut self, at: usize) {
        if std::mem::take(&mut self.replicas[at].is_timer_set) {
            self.apply(at, Event::RetryDue);
        }
    }

    fn check(&self) {
        for Replica {
            ownership,
            is_timer_set,
            ..
        } in &self.replicas
        {
            assert_eq!(ownership.retry.is_some(), *is_timer_set, "a retry has a timer");
            assert!(
                ownership.epoch.is_none_or(|epoch| epoch >= ownership.remote_epoch),
                "an owner that was told of a later one has stepped down"
            );
        }
    }

    /// The store works, every answer and report is heard, and every timer goes off.
    fn settle(&mut self) {
        self.is_out = false;
        let is_busy =
            |replica: &Replica| replica.is_timer_set || !(replica.answers.is_empty() && replica.reports.is_empty());
        for _ in 0..1000 {
            let Some(at) = self.replicas.iter().position(is_busy) else {
                return self.check();
            };
            self.answer(at);
            self.report(at);
            self.retry_due(at);
        }
        panic!("the replicas take the session from each other for ever");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_replica_owns_a_session_once_all_replicas_have_heard_of_its_claims(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        world.settle();
        let owners: Vec<_> = world.replicas.iter().filter_map(|replica| replica.ownership.claim()).collect();
        prop_assert!(owners.len() <= 1, "{owners:?}");
        prop_assert!(owners.iter().all(|claim| world.owner == Some(*claim)));
    }

    #[test]
    fn a_release_that_failed_is_repeated_until_it_succeeds(steps in steps(), at in 0..REPLICAS) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        world.settle();
        world.claim(at);
        world.settle();
        world.lease(at);
        prop_assert_eq!(world.leased.len(), 1);
        world.is_out = true;
        world.release(at);
        world.answer(at);
        prop_assert_eq!(world.leased.len(), 1, "the store is out");
        world.settle();
        prop_assert!(world.leased.is_empty());
    }
}

fn owner(epoch: u64) -> Ownership {
    let (claim, mut ownership) = (Claim::from_bits(1), Ownership::new(None, false));
    ownership.on(Event::ClaimBegun { claim });
    ownership.on(Event::Claimed { claim, epoch });
    ownership
}

#[test]
fn an_actor_without_a_predecessor_starts_with_nothing_to_release() {
    for is_store_shared in [false, true] {
        let started = Event::Started { is_store_shared };
        assert_eq!(Ownership::new(None, false).on(started), None);
    }
}

#[test]
fn an_actor_with_a_predecessor_starts_by_releasing_its_leases() {
    let (alone, shared) = (
        Event::Started { is_store_shared: false },
        Event::Started { is_store_shared: true },
    );
    let claim = Some(Claim::from_bits(1));
    assert_eq!(Ownership::new(None, true).on(alone), Some(Effect::Claim));
    assert_eq!(
        Ownership::new(None, true).on(shared),
        None,
        "another replica may own the inbox"
    );
    assert_eq!(
        Ownership::new(claim, true).on(shared),
        Some(Effect::Claim),
        "its epoch is unknown"
    );
    let mut panicked = owner(1);
    panicked.on(Event::Panicked);
    assert_eq!(panicked.on(shared), Some(Effect::Release));
    assert_eq!(panicked.on(shared), None, "once");
}

#[test]
fn an_owner_steps_down_for_a_later_epoch_and_for_no_other() {
    let mut ownership = owner(5);
    assert_eq!(ownership.on(Event::ClaimedRemotely { epoch: 4 }), None);
    assert_eq!(
        ownership.on(Event::ClaimedRemotely { epoch: 6 }),
        Some(Effect::StepDown)
    );
    assert_eq!(ownership.claim(), None);
    assert_eq!(
        ownership.on(Event::ClaimedRemotely { epoch: 7 }),
        None,
        "it has stepped down"
    );
}

#[test]
fn a_claim_that_the_store_has_not_confirmed_is_claimed_again_when_it_is_refused() {
    let mut ownership = Ownership::new(None, false);
    let claim = Claim::from_bits(1);
    ownership.on(Event::ClaimBegun { claim });
    assert_eq!(ownership.on(Event::Refused), Some(Effect::ScheduleRetry));
    assert_eq!(ownership.on(Event::Refused), None, "the timer is set");
    assert_eq!(ownership.on(Event::RetryDue), Some(Effect::ClaimAgain));
    ownership.on(Event::Claimed { claim, epoch: 1 });
    assert_eq!(ownership.on(Event::Refused), Some(Effect::StepDown));
}

#[test]
fn a_claim_that_failed_steps_down_for_a_registration_elsewhere() {
    let mut ownership = Ownership::new(None, false);
    ownership.on(Event::ClaimBegun {
        claim: Claim::from_bits(1),
    });
    ownership.on(Event::Failed { retry: Retry::Release });
    assert_eq!(ownership.on(Event::TakenElsewhere), Some(Effect::StepDown));
    assert_eq!(ownership.claim(), None);
    assert_eq!(owner(1).on(Event::TakenElsewhere), None, "its epoch decides");
}

#[test]
fn a_retry_releases_if_any_failure_since_the_last_one_asked_for_it() {
    let (lease, release) = (
        Event::Failed { retry: Retry::Lease },
        Event::Failed { retry: Retry::Release },
    );
    for (failures, effect) in [
        ([lease, lease], Effect::Lease),
        ([release, lease], Effect::Release),
        ([lease, release], Effect::Release),
    ] {
        let mut ownership = owner(1);
        assert_eq!(ownership.on(failures[0]), Some(Effect::ScheduleRetry));
        assert_eq!(ownership.on(failures[1]), None);
        assert_eq!(ownership.on(Event::RetryDue), Some(effect));
        assert_eq!(ownership.on(Event::RetryDue), None);
    }
}
