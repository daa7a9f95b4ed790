//! Tests of the life of a backend.

use super::*;

const S: u64 = 1_000;

fn life() -> Life {
    Life::new(Duration::from_secs(60), true, false, 0)
}

fn crash() -> LifeEvent {
    LifeEvent::Ended {
        reason: "exited with code 1".to_owned(),
        jitter: 0.0,
    }
}

#[test]
fn the_first_restart_is_immediate_and_later_ones_wait_longer() {
    let (mut life, mut now) = (life(), 0);
    assert_eq!(life.on(LifeEvent::Wanted, now), Some(LifeEffect::Launch));
    assert_eq!(life.on(LifeEvent::Ready, now), None);
    assert_eq!(life.state(), BackendState::Ready);
    assert_eq!(life.on(crash(), now), Some(LifeEffect::Launch), "at once");
    let mut pauses = Vec::new();
    loop {
        assert_eq!(life.on(crash(), now), None);
        if life.state() == BackendState::Failed {
            break;
        }
        let due = life.deadline_ms().unwrap();
        assert_eq!(life.on(LifeEvent::Deadline, due - 1), None, "too early");
        pauses.push((due - now) / S);
        now = due;
        assert_eq!(life.on(LifeEvent::Deadline, now), Some(LifeEffect::Launch));
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(life.reason(), Some("exited with code 1"));
    assert_eq!(life.deadline_ms(), Some(now + 300 * S));
    assert_eq!(life.on(LifeEvent::Wanted, now), None, "calls fail fast");
    assert_eq!(
        life.on(LifeEvent::Restart(StartReason::Operator), now),
        Some(LifeEffect::Launch)
    );
}

#[test]
fn a_stable_time_forgives_earlier_crashes() {
    let mut life = life();
    life.on(LifeEvent::Wanted, 0);
    for round in 1..30 {
        let now = round * 61 * S;
        life.on(LifeEvent::Ready, now - 60 * S);
        // Ten crashes in ten minutes would be too many.
        assert_eq!(life.on(crash(), now), Some(LifeEffect::Launch), "round {round}");
        if round % 9 == 0 {
            life.crashed_at_ms.clear();
        }
    }
}

#[test]
fn a_start_that_takes_too_long_is_ended_and_counts_as_a_crash() {
    let mut life = life();
    life.on(LifeEvent::Wanted, 0);
    assert_eq!(life.on(LifeEvent::Deadline, 60 * S - 1), None);
    assert_eq!(life.on(LifeEvent::Deadline, 60 * S), Some(LifeEffect::End));
    assert_eq!(life.on(crash(), 61 * S), Some(LifeEffect::Launch), "the first restart");
    assert_eq!(life.on(LifeEvent::Deadline, 121 * S), Some(LifeEffect::End));
    assert_eq!(life.on(crash(), 122 * S), None);
    assert_eq!(life.reason(), Some("it did not answer within 60 s"));
    assert_eq!(life.deadline_ms(), Some(123 * S));
}

#[test]
fn what_cannot_be_started_rests_for_five_minutes() {
    let mut life = life();
    life.on(LifeEvent::Wanted, 0);
    let reason = "no such program".to_owned();
    assert_eq!(life.on(LifeEvent::NotStarted { reason }, S), None);
    assert_eq!(
        (life.state(), life.deadline_ms()),
        (BackendState::Failed, Some(301 * S))
    );
    assert_eq!(life.on(LifeEvent::Deadline, 301 * S), Some(LifeEffect::Launch));
}

#[test]
fn an_operator_restarts_and_disables() {
    let mut life = life();
    life.on(LifeEvent::Wanted, 0);
    life.on(LifeEvent::Ready, 1);
    assert_eq!(
        life.on(LifeEvent::Restart(StartReason::Operator), 2),
        Some(LifeEffect::End)
    );
    assert_eq!(life.state(), BackendState::Stopping);
    assert_eq!(life.on(LifeEvent::Wanted, 3), None);
    assert_eq!(life.on(crash(), 4), Some(LifeEffect::Launch));
    assert_eq!(life.on(LifeEvent::Disable, 5), Some(LifeEffect::End));
    assert_eq!(life.on(crash(), 6), None);
    assert_eq!(life.state(), BackendState::Disabled);
    assert_eq!(life.on(LifeEvent::Wanted, 7), None);
    assert_eq!(
        life.on(LifeEvent::Restart(StartReason::Operator), 8),
        Some(LifeEffect::Launch)
    );
    life.on(LifeEvent::Ready, 9);
    assert_eq!(life.on(LifeEvent::IdleTooLong, 10), Some(LifeEffect::End));
    assert_eq!(life.on(crash(), 11), None);
    assert_eq!(life.on(LifeEvent::Wanted, 12), Some(LifeEffect::Launch));
}

fn ready() -> Life {
    let mut life = life();
    life.on(LifeEvent::Wanted, 0);
    life.on(LifeEvent::Ready, 1);
    life
}

#[test]
fn a_changed_one_takes_the_place_of_the_running_one_when_it_is_ready() {
    let mut life = ready();
    assert_eq!(
        life.on(LifeEvent::Changed(StartReason::Change), 2),
        Some(LifeEffect::LaunchSuccessor)
    );
    assert_eq!(life.state(), BackendState::Replacing);
    assert_eq!(life.on(LifeEvent::IdleTooLong, 3), None);
    assert_eq!(
        life.on(LifeEvent::Changed(StartReason::Change), 4),
        Some(LifeEffect::LaunchSuccessor),
        "changed once more"
    );
    assert_eq!(life.on(LifeEvent::SuccessorReady, 5), Some(LifeEffect::Replace));
    assert_eq!((life.state(), life.reason()), (BackendState::Ready, None));
}

#[test]
fn the_running_one_goes_on_when_the_changed_one_does_not_start() {
    let mut life = ready();
    life.on(LifeEvent::Changed(StartReason::Change), 2);
    let reason = "exited with code 1".to_owned();
    assert_eq!(life.on(LifeEvent::SuccessorEnded { reason }, 3), None);
    assert_eq!(life.state(), BackendState::Ready);
    assert!(life.reason().unwrap().ends_with("keeps running: exited with code 1"));

    assert_eq!(
        life.on(LifeEvent::Changed(StartReason::Change), 4),
        Some(LifeEffect::LaunchSuccessor)
    );
    assert_eq!(life.reason(), None);
    assert_eq!(life.on(LifeEvent::Deadline, 4 + 60 * S), Some(LifeEffect::EndSuccessor));
    assert!(life.reason().unwrap().ends_with("did not answer within 60 s"));
    assert_eq!(life.deadline_ms(), None);
}

#[test]
fn the_changed_one_is_awaited_when_the_running_one_ends_first() {
    let mut life = ready();
    life.on(LifeEvent::Changed(StartReason::Change), 2);
    assert_eq!(life.on(crash(), 3), Some(LifeEffect::Replace));
    assert_eq!(
        (life.state(), life.deadline_ms()),
        (BackendState::Starting, Some(2 + 60 * S))
    );
    life.on(LifeEvent::Ready, 4);
    assert_eq!(life.state(), BackendState::Ready);
}

#[test]
fn nothing_takes_the_place_of_one_that_ends_with_its_open_calls() {
    let mut life = ready();
    life.on(LifeEvent::Changed(StartReason::Change), 2);
    assert_eq!(life.on(LifeEvent::DisableOnceIdle, 3), Some(LifeEffect::Drain));
    assert_eq!(life.state(), BackendState::Ready);
    assert_eq!(life.on(LifeEvent::SuccessorReady, 4), None, "it was given up");
    assert_eq!(life.on(LifeEvent::Changed(StartReason::Change), 5), None);
    assert_eq!(life.on(LifeEvent::Drained, 6), Some(LifeEffect::End));
    life.on(crash(), 7);
    assert_eq!(life.state(), BackendState::Disabled);
}

#[test]
fn the_latest_wish_counts_when_the_open_calls_have_ended() {
    let mut life = ready();
    assert_eq!(life.on(LifeEvent::DisableOnceIdle, 2), Some(LifeEffect::Drain));
    assert_eq!(
        life.on(LifeEvent::RestartOnceIdle(StartReason::Change), 3),
        None,
        "it drains already"
    );
    assert_eq!(life.on(crash(), 4), Some(LifeEffect::Launch), "it ends by itself");
    assert_eq!(life.on(LifeEvent::Drained, 5), None);
    life.on(LifeEvent::Ready, 6);
    assert_eq!(
        life.on(LifeEvent::Drained, 7),
        None,
        "the calls were those of the one before"
    );
    life.on(LifeEvent::RestartOnceIdle(StartReason::Change), 8);
    life.on(LifeEvent::DisableOnceIdle, 9);
    assert_eq!(life.on(crash(), 10), None);
    assert_eq!(life.state(), BackendState::Disabled);
}

#[test]
fn a_change_starts_what_does_not_run_unless_it_is_disabled() {
    let mut life = life();
    life.on(LifeEvent::Wanted, 0);
    let reason = "no such program".to_owned();
    life.on(LifeEvent::NotStarted { reason }, 1);
    assert_eq!(
        life.on(LifeEvent::Changed(StartReason::Change), 2),
        Some(LifeEffect::Launch)
    );
    assert_eq!(
        life.on(LifeEvent::Changed(StartReason::Change), 3),
        Some(LifeEffect::End),
        "it may have read the old files"
    );
    assert_eq!(life.on(crash(), 4), Some(LifeEffect::Launch));
    life.on(LifeEvent::Disable, 5);
    assert_eq!(life.on(LifeEvent::Changed(StartReason::Change), 6), None);
    life.on(crash(), 7);
    assert_eq!(
        (life.state(), life.on(LifeEvent::Changed(StartReason::Change), 8)),
        (BackendState::Disabled, None)
    );
}

#[test]
fn one_that_is_not_restarted_by_itself_waits_for_an_operator() {
    let mut life = Life::new(Duration::from_secs(60), false, false, 0);
    life.on(LifeEvent::Wanted, 0);
    assert_eq!(life.on(crash(), 1), None);
    assert_eq!((life.state(), life.deadline_ms()), (BackendState::Failed, None));
}

#[test]
fn each_start_has_its_reason() {
    use StartReason::{Change, Config, Crash, Operator, Wanted};
    let mut life = life();
    let mut starts = Vec::new();
    for (at, event) in [
        LifeEvent::Wanted,
        LifeEvent::Ready,
        crash(),
        LifeEvent::Ready,
        LifeEvent::Changed(Change),
        LifeEvent::SuccessorReady,
        LifeEvent::RestartOnceIdle(Config),
        LifeEvent::Drained,
        crash(),
        LifeEvent::Ready,
        LifeEvent::Restart(Operator),
        crash(),
        LifeEvent::Ready,
        LifeEvent::IdleTooLong,
        crash(),
        LifeEvent::Wanted,
    ]
    .into_iter()
    .enumerate()
    {
        let effect = life.on(event, at as u64);
        if matches!(effect, Some(LifeEffect::Launch | LifeEffect::LaunchSuccessor)) {
            starts.push(life.start_reason());
        }
    }
    assert_eq!(starts, [Wanted, Crash, Change, Config, Operator, Wanted]);
}
