//! The life of a question, step by step and in random orders.

use proptest::prelude::*;
use serde_json::Value;
use uuid::Uuid;

use super::*;
use crate::model::{Asker, Owner, QuestionId, ReplicaId, SessionId, Via};

const START: Now = Now {
    unix_ms: 1_790_000_000_000,
    mono_ms: 1_000_000,
};
const HOUR: u64 = 3_600_000;

fn at(after_ms: u64) -> Now {
    Now {
        unix_ms: START.unix_ms + after_ms,
        mono_ms: START.mono_ms + after_ms,
    }
}

fn name(text: &str) -> SessionName {
    SessionName::parse(text).unwrap()
}

fn console(number: u64) -> ConsoleId {
    let replica = ReplicaId::from_uuid(Uuid::from_u128(1));
    ConsoleId { replica, number }
}

fn by(human: &str) -> AnsweredBy {
    AnsweredBy {
        human: name(human),
        via: Via::Console,
        is_agent: false,
    }
}

/// Expires after an hour.
fn question() -> Question {
    Question {
        id: QuestionId::from_uuid(Uuid::from_u128(u128::from(START.unix_ms) << 80)),
        revision: 0,
        asker: Asker {
            session: SessionId::from_uuid(Uuid::from_u128(2)),
            name: Some(name("alice")),
            owner: Owner::anonymous(),
        },
        summary: "Drop the old table?".to_owned(),
        content_bytes: 10,
        urgency: Urgency::Medium,
        to: AddressedTo::Anyone,
        is_sensitive: false,
        expires_at_ms: Some(START.unix_ms + HOUR),
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

fn content() -> QuestionContent {
    QuestionContent::text("Drop the old table?")
}

fn answered(question: &Question, human: &str, now: Now) -> Result<Question, Refusal> {
    question.answered(by(human), Answer::text("yes"), &content(), now)
}

#[test]
fn a_question_is_offered_claimed_and_answered() {
    let question = question();
    let offered = question.offered(console(1), &name("mara"), at(5)).unwrap();
    let QuestionState::Offered(offer) = &offered.state else {
        panic!("{offered:?}")
    };
    assert_eq!((offer.console, offer.until_ms), (console(1), START.unix_ms + 180_005));
    assert_eq!(offered.seen_at_ms, None, "shown is not seen");
    let claimed = offered.claimed(&name("mara"), Some(console(1)), at(10)).unwrap();
    let claim = claimed.claim().unwrap();
    assert_eq!(
        (claim.until_ms, claim.typed_at_ms),
        (START.unix_ms + 600_010, START.unix_ms + 10)
    );
    assert_eq!(claimed.seen_at_ms, Some(START.unix_ms + 10));
    let answered = answered(&claimed, "mara", at(20)).unwrap();
    assert_eq!((answered.state_str(), answered.revision), ("answered", 3));
    assert_eq!(answered.asked_at_ms(), START.unix_ms);
    assert_eq!(answered.outcome()["answered_by"]["human"], "mara");
    assert_eq!(answered.outcome_line(), "ANSWERED by mara: yes");
}

#[test]
fn an_offer_moves_and_is_taken_back_only_from_the_console_that_has_it() {
    let offered = question().offered(console(1), &name("mara"), START).unwrap();
    assert_eq!(
        offered.offered(console(1), &name("mara"), START),
        Err(Refusal::NotApplicable)
    );
    assert_eq!(offered.taken_back(console(2)), Err(Refusal::NotApplicable));
    let moved = offered.offered(console(2), &name("lena"), at(1)).unwrap();
    assert_eq!(moved.console(), Some(console(2)));
    assert_eq!(moved.taken_back(console(1)), Err(Refusal::NotApplicable));
    assert_eq!(moved.taken_back(console(2)).unwrap().state, QuestionState::Waiting);
    let claimed = moved.claimed(&name("lena"), Some(console(2)), at(2)).unwrap();
    assert_eq!(
        claimed.offered(console(1), &name("mara"), at(3)),
        Err(Refusal::NotApplicable)
    );
    assert_eq!(claimed.taken_back(console(2)).unwrap().state, QuestionState::Waiting);
}

#[test]
fn that_a_question_expires_soon_is_said_once_and_in_time() {
    // A tenth of its hour is less than ten minutes.
    let (asked, soon) = (question(), HOUR - HOUR / 10);
    assert_eq!(asked.expiring(at(soon - 1)), Err(Refusal::NotApplicable));
    let claimed = asked.claimed(&name("mara"), None, START).unwrap();
    let warned = claimed.expiring(at(soon)).unwrap();
    assert_eq!((warned.is_expiring, warned.claim()), (true, claimed.claim()));
    assert_eq!(warned.expiring(at(HOUR)), Err(Refusal::NotApplicable));
    let day = Question {
        expires_at_ms: Some(START.unix_ms + 24 * HOUR),
        ..question()
    };
    assert_eq!(day.expiry_warning_ms(), Some(START.unix_ms + 24 * HOUR - 600_000));
    let endless = Question {
        expires_at_ms: None,
        ..question()
    };
    assert_eq!(endless.expiring(at(HOUR)), Err(Refusal::NotApplicable));
}

#[test]
fn only_the_answer_to_a_sensitive_question_is_deleted_and_only_once() {
    let plain = answered(&question(), "mara", at(1)).unwrap();
    assert!(!plain.has_secret());
    assert_eq!(plain.answer_deleted(at(2)), Err(Refusal::NotApplicable));
    let sensitive = Question {
        is_sensitive: true,
        ..question()
    };
    assert_eq!(
        sensitive.answer_deleted(at(2)),
        Err(Refusal::NotApplicable),
        "it is open"
    );
    let secret = answered(&sensitive, "mara", at(1)).unwrap();
    assert!(secret.has_secret());
    let deleted = secret.answer_deleted(at(2)).unwrap();
    assert!(!serde_json::to_string(&deleted).unwrap().contains("yes"));
    let outcome = deleted.outcome();
    assert_eq!(
        (&outcome["answer"], &outcome["answered_by"]["human"]),
        (&Value::Null, &Value::from("mara"))
    );
    assert!(outcome["answer_deleted_at"].is_string());
    assert_eq!((deleted.revision, deleted.has_secret()), (secret.revision + 1, false));
    assert_eq!(deleted.answer_deleted(at(3)), Err(Refusal::NotApplicable));
}

#[test]
fn a_claim_lasts_ten_minutes_after_the_last_keystroke() {
    let claimed = question().claimed(&name("mara"), Some(console(1)), START).unwrap();
    assert_eq!(claimed.claim_ended(at(599_999)), Err(Refusal::NotApplicable));
    let typed = claimed.typed(&name("mara"), None, at(599_999)).unwrap();
    assert_eq!(
        typed.console(),
        Some(console(1)),
        "a keystroke without a console keeps it"
    );
    assert_eq!(typed.claim_ended(at(600_000)), Err(Refusal::NotApplicable));
    assert_eq!(typed.claim_ended(at(1_199_999)).unwrap().state, QuestionState::Waiting);
    let claim = typed.claim().unwrap();
    assert!(claim.is_typing(at(600_000)) && !claim.is_typing(at(620_000)));
}

#[test]
fn a_second_person_takes_a_claim_over_but_does_not_type_into_it() {
    let maras = question().claimed(&name("mara"), Some(console(1)), START).unwrap();
    let Err(Refusal::Invalid { reason, .. }) = maras.typed(&name("lena"), None, at(1)) else {
        panic!("lena types into mara's claim")
    };
    assert_eq!(reason, "mara has claimed it: claim it to take it over");
    assert!(
        maras
            .released(&name("lena"))
            .unwrap_err()
            .to_string()
            .contains("mara has claimed it")
    );
    let lenas = maras.claimed(&name("lena"), Some(console(2)), at(1)).unwrap();
    assert_eq!(lenas.claim().unwrap().human, name("lena"));
    assert!(lenas.released(&name("mara")).is_err());
    assert_eq!(lenas.released(&name("lena")).unwrap().state, QuestionState::Waiting);
    assert!(question().released(&name("mara")).is_err(), "nothing to release");
}

#[test]
fn a_claim_follows_its_person_to_another_console() {
    let claimed = question().claimed(&name("mara"), Some(console(1)), START).unwrap();
    let moved = claimed.claim_moved(&name("mara"), console(2)).unwrap();
    let (before, after) = (claimed.claim().unwrap(), moved.claim().unwrap());
    assert_eq!(after.console, Some(console(2)));
    assert_eq!(
        (after.until_ms, after.typed_at_ms),
        (before.until_ms, before.typed_at_ms)
    );
    assert_eq!(
        moved.claim_moved(&name("mara"), console(2)),
        Err(Refusal::NotApplicable)
    );
    assert_eq!(
        moved.claim_moved(&name("lena"), console(3)),
        Err(Refusal::NotApplicable)
    );
}

#[test]
fn a_handover_keeps_age_and_end() {
    let claimed = question().claimed(&name("mara"), Some(console(1)), at(7)).unwrap();
    let lena = AddressedTo::Named("lena".to_owned());
    let note = Some("she wrote it".to_owned());
    let given = claimed.handed_over(&name("mara"), lena.clone(), note, at(9)).unwrap();
    assert_eq!((&given.state, &given.to), (&QuestionState::Waiting, &lena));
    assert_eq!((given.id, given.expires_at_ms), (claimed.id, claimed.expires_at_ms));
    assert_eq!(given.handover.as_ref().unwrap().from, name("mara"));
    let back = given
        .handed_over(&name("lena"), AddressedTo::Anyone, None, at(10))
        .unwrap();
    assert!(back.to.includes("kim", &[]));
    let long = Some("x".repeat(REMARK_CHARACTERS_MAX + 1));
    assert!(matches!(
        claimed.handed_over(&name("mara"), AddressedTo::Anyone, long, at(9)),
        Err(Refusal::Invalid { field, .. }) if field == "note"
    ));
}

#[test]
fn a_question_expires_at_its_end() {
    let question = question();
    assert_eq!(question.expired(at(HOUR - 1)), Err(Refusal::NotApplicable));
    let expired = question.expired(at(HOUR)).unwrap();
    assert_eq!(expired.outcome()["default"], Value::Null);
    assert_eq!(expired.outcome()["seen_at"], Value::Null);
    let endless = Question {
        expires_at_ms: None,
        ..question
    };
    assert_eq!(endless.expired(at(1_000 * HOUR)), Err(Refusal::NotApplicable));
}

#[test]
fn a_question_does_not_expire_while_a_person_types_but_ends_half_an_hour_later() {
    let minutes = |minutes: u64| minutes * 60_000;
    let mut claimed = question().claimed(&name("mara"), None, at(HOUR - minutes(1))).unwrap();
    assert_eq!(claimed.expired(at(HOUR)), Err(Refusal::NotApplicable));
    assert!(
        claimed.expired(at(HOUR + minutes(1))).is_ok(),
        "two minutes after the last keystroke"
    );
    for minute in 1..30 {
        claimed = claimed.typed(&name("mara"), None, at(HOUR + minutes(minute))).unwrap();
        assert_eq!(
            claimed.expired(at(HOUR + minutes(minute) + 59_999)),
            Err(Refusal::NotApplicable)
        );
    }
    assert!(
        claimed.expired(at(HOUR + minutes(30))).is_ok(),
        "typing prolongs it by 30 minutes at most"
    );
    let released = claimed.released(&name("mara")).unwrap();
    assert!(
        released.expired(at(HOUR + minutes(29))).is_ok(),
        "without a claim it ends at its end"
    );
}

#[test]
fn a_question_is_seen_once() {
    let seen = question().seen(at(3)).unwrap();
    assert_eq!((seen.seen_at_ms, seen.revision), (Some(START.unix_ms + 3), 1));
    assert_eq!(seen.seen(at(4)), Err(Refusal::NotApplicable));
    assert_eq!(answered(&seen, "mara", at(5)).unwrap().seen_at_ms, seen.seen_at_ms);
}

#[derive(Clone, Debug)]
enum Step {
    Offer(u64),
    TakeBack(u64),
    Claim(bool),
    Type(bool),
    Release(bool),
    HandOver,
    MoveClaim(u64),
    EndClaim,
    See,
    Expire,
    Answer(bool),
    Decline,
    Cancel,
}

fn step() -> impl Strategy<Value = (Step, u64)> {
    let step = prop_oneof![
        4 => (0_u64..3).prop_map(Step::Offer),
        2 => (0_u64..3).prop_map(Step::TakeBack),
        4 => any::<bool>().prop_map(Step::Claim),
        4 => any::<bool>().prop_map(Step::Type),
        1 => any::<bool>().prop_map(Step::Release),
        1 => Just(Step::HandOver),
        1 => (0_u64..3).prop_map(Step::MoveClaim),
        1 => Just(Step::EndClaim),
        1 => Just(Step::See),
        1 => Just(Step::Expire),
        1 => any::<bool>().prop_map(Step::Answer),
        1 => Just(Step::Decline),
        1 => Just(Step::Cancel),
    ];
    (step, 0_u64..600_000)
}

fn take(question: &Question, step: &Step, now: Now) -> Result<Question, Refusal> {
    let person = |is_mara: bool| name(if is_mara { "mara" } else { "lena" });
    match step {
        Step::Offer(number) => question.offered(console(*number), &person(number % 2 == 0), now),
        Step::TakeBack(number) => question.taken_back(console(*number)),
        Step::Claim(who) => question.claimed(&person(*who), Some(console(u64::from(*who))), now),
        Step::Type(who) => question.typed(&person(*who), None, now),
        Step::Release(who) => question.released(&person(*who)),
        Step::HandOver => question.handed_over(&person(true), AddressedTo::Anyone, None, now),
        Step::MoveClaim(number) => question.claim_moved(&person(true), console(*number)),
        Step::EndClaim => question.claim_ended(now),
        Step::See => question.seen(now),
        Step::Expire => question.expired(now),
        Step::Answer(who) => answered(question, if *who { "mara" } else { "lena" }, now),
        Step::Decline => question.declined(by("mara"), None, now),
        Step::Cancel => question.cancelled(Some("alice".to_owned()), None, now),
    }
}

proptest! {
    /// A closed question never changes, so it has one end. Every change is the next revision of the same question.
    #[test]
    fn a_question_ends_at_most_once(steps in prop::collection::vec(step(), 1..60)) {
        let (mut question, mut elapsed_ms, mut ends) = (question(), 0, 0);
        for (step, pause_ms) in steps {
            elapsed_ms += pause_ms;
            let now = at(elapsed_ms);
            let before = question.clone();
            match take(&question, &step, now) {
                Ok(next) => {
                    prop_assert!(before.is_open(), "{step:?} changed a closed question");
                    prop_assert_eq!(next.revision, before.revision + 1);
                    prop_assert_eq!(
                        (next.id, &next.asker, next.urgency, next.expires_at_ms),
                        (before.id, &before.asker, before.urgency, before.expires_at_ms)
                    );
                    prop_assert!(before.seen_at_ms.is_none() || next.seen_at_ms == before.seen_at_ms);
                    ends += usize::from(!next.is_open());
                    if matches!(step, Step::Expire) {
                        prop_assert!(before.expires_next_ms().unwrap() <= now.unix_ms);
                        let is_typing = before
                            .claim()
                            .is_some_and(|claim| is_within(claim.typed_at_ms, TYPING_GRACE, now));
                        let latest = START.unix_ms + HOUR + millis(TYPING_GRACE_MAX);
                        prop_assert!(!is_typing || now.unix_ms >= latest);
                    }
                    question = next;
                }
                Err(Refusal::Closed { state, by, at_ms }) => {
                    let closed = before.closed().unwrap();
                    prop_assert_eq!((state, by.as_deref(), at_ms), (closed.how.as_str(), closed.by(), closed.at_ms));
                }
                Err(_) => prop_assert!(before.is_open(), "{step:?} did not say that the question is closed"),
            }
        }
        prop_assert!(ends <= 1);
    }
}
