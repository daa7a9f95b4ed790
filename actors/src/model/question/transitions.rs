//! What may become of a question: pure functions from one revision to the next.
//!
//! ```text
//! waiting ⇄ offered → claimed → answered | declined        from each open state also: expired, cancelled
//! ```
//!
//! A closed question never changes, except that the answer to a sensitive one is deleted. Each function returns the next revision or says what else the caller can do.

use std::time::Duration;

use super::{
    AddressedTo, Answer, AnsweredBy, Closed, Closing, ConsoleId, Handover, Offer, Question, QuestionClaim,
    QuestionContent, QuestionState, Urgency,
};
use crate::{
    clock::{Now, millis},
    model::{BrokerError, SessionName},
};

/// How long a claim lasts after the last keystroke.
pub const CLAIM_TIME: Duration = Duration::from_secs(600);
/// A claimed question does not expire for this time after a keystroke.
pub const TYPING_GRACE: Duration = Duration::from_secs(120);
/// A question expires at the latest this long after its end, also while a person types.
pub const TYPING_GRACE_MAX: Duration = Duration::from_secs(1_800);
/// How long before its end a question is said to expire soon; for a short life, a tenth of it.
const EXPIRY_WARNING: Duration = Duration::from_secs(600);
/// For how long after a keystroke others see that a person types.
pub const TYPING_SHOWN: Duration = Duration::from_secs(15);
/// Characters of the note of a handover, and of the reason of a refusal.
pub const REMARK_CHARACTERS_MAX: usize = 2_000;
/// The reason for the end of a question whose asker has ended.
pub const ASKER_GONE: &str = "asker_gone";

/// Why a question cannot change in this way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another end came first.
    #[error("the question is {state}")]
    Closed {
        state: &'static str,
        by: Option<String>,
        at_ms: u64,
    },
    /// The caller gave something that does not fit the question.
    #[error("{field}: {reason}")]
    Invalid { field: String, reason: String },
    /// The question is not in the state that the change begins with; the caller looks at it again.
    #[error("the question is in another state")]
    NotApplicable,
}

impl Refusal {
    /// The refusal of a value.
    pub fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid {
            field: field.into(),
            reason: reason.into(),
        }
    }
}

impl From<Refusal> for BrokerError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Closed { state, by, at_ms } => Self::QuestionClosed { state, by, at_ms },
            Refusal::Invalid { field, reason } => Self::invalid(field, reason),
            Refusal::NotApplicable => Self::unavailable(),
        }
    }
}

impl Urgency {
    /// How long a question stays offered to one console before it moves on.
    pub const fn offer_time(self) -> Duration {
        match self {
            Self::High => Duration::from_secs(60),
            Self::Medium => Duration::from_secs(180),
            Self::Low => Duration::from_secs(600),
        }
    }
}

impl Closed {
    /// The name of the person or caller who closed it.
    pub fn by(&self) -> Option<&str> {
        match &self.how {
            Closing::Answered { by, .. } | Closing::Declined { by, .. } => Some(by.human.as_str()),
            Closing::Expired => None,
            Closing::Cancelled { by, .. } => by.as_deref(),
        }
    }
}

fn later(now: Now, after: Duration) -> u64 {
    now.unix_ms.saturating_add(millis(after))
}

/// Whether `at_ms` is less than `span` ago. A moment in the future counts as now.
fn is_within(at_ms: u64, span: Duration, now: Now) -> bool {
    now.unix_ms.saturating_sub(at_ms) < millis(span)
}

impl Question {
    fn open(&self) -> Result<&QuestionState, Refusal> {
        match &self.state {
            QuestionState::Closed(closed) => Err(Refusal::Closed {
                state: closed.how.as_str(),
                by: closed.by().map(str::to_owned),
                at_ms: closed.at_ms,
            }),
            open => Ok(open),
        }
    }

    /// The claim of a person; None while no person has one.
    pub const fn claim(&self) -> Option<&QuestionClaim> {
        match &self.state {
            QuestionState::Claimed(claim) => Some(claim),
            _ => None,
        }
    }

    fn next(&self, state: QuestionState) -> Self {
        Self {
            revision: self.revision + 1,
            state,
            ..self.clone()
        }
    }

    fn seen_at(mut self, now: Now) -> Self {
        let at_ms = self.after_asking(now);
        self.seen_at_ms.get_or_insert(at_ms);
        self
    }

    /// The wall clock, not before the question was asked: the clock of another replica may be ahead of this one.
    fn after_asking(&self, now: Now) -> u64 {
        now.unix_ms.max(self.asked_at_ms())
    }

    /// It is shown to this console first. An offer to another console ends.
    ///
    /// # Errors
    /// It is claimed, or offered to this console already.
    pub fn offered(&self, console: ConsoleId, human: &SessionName, now: Now) -> Result<Self, Refusal> {
        match self.open()? {
            QuestionState::Claimed(_) => Err(Refusal::NotApplicable),
            QuestionState::Offered(offer) if offer.console == console => Err(Refusal::NotApplicable),
            _ => Ok(self.next(QuestionState::Offered(Offer {
                console,
                human: human.clone(),
                until_ms: later(now, self.urgency.offer_time()),
            }))),
        }
    }

    /// It is taken from this console and waits again.
    ///
    /// # Errors
    /// The console does not have it.
    pub fn taken_back(&self, console: ConsoleId) -> Result<Self, Refusal> {
        self.open()?;
        if self.console() == Some(console) {
            Ok(self.next(QuestionState::Waiting))
        } else {
            Err(Refusal::NotApplicable)
        }
    }

    /// The time of the claim is over: it waits again.
    ///
    /// # Errors
    /// It is not claimed, or the claim lasts.
    pub fn claim_ended(&self, now: Now) -> Result<Self, Refusal> {
        match self.open()? {
            QuestionState::Claimed(claim) if claim.until_ms <= now.unix_ms => Ok(self.next(QuestionState::Waiting)),
            _ => Err(Refusal::NotApplicable),
        }
    }

    /// A person opens it to write. A claim of another person ends: people of equal right may take over.
    ///
    /// # Errors
    /// It is closed.
    pub fn claimed(&self, human: &SessionName, console: Option<ConsoleId>, now: Now) -> Result<Self, Refusal> {
        self.open()?;
        let claim = QuestionClaim {
            console,
            human: human.clone(),
            until_ms: later(now, CLAIM_TIME),
            typed_at_ms: now.unix_ms,
        };
        Ok(self.next(QuestionState::Claimed(claim)).seen_at(now))
    }

    /// The person with the claim is at another console now. The claim lasts as long as before.
    ///
    /// # Errors
    /// Another person has the claim, or the claim is with this console.
    pub fn claim_moved(&self, human: &SessionName, console: ConsoleId) -> Result<Self, Refusal> {
        match self.open()? {
            QuestionState::Claimed(claim) if claim.human == *human && claim.console != Some(console) => {
                let console = Some(console);
                Ok(self.next(QuestionState::Claimed(QuestionClaim {
                    console,
                    ..claim.clone()
                })))
            }
            _ => Err(Refusal::NotApplicable),
        }
    }

    /// The person gives up their claim: it waits again.
    ///
    /// # Errors
    /// The person has not claimed it.
    pub fn released(&self, human: &SessionName) -> Result<Self, Refusal> {
        match self.open()? {
            QuestionState::Claimed(claim) if claim.human == *human => Ok(self.next(QuestionState::Waiting)),
            QuestionState::Claimed(claim) => Err(Refusal::invalid(
                "question_id",
                format!("{} has claimed it, not you: claim it to take it over", claim.human),
            )),
            _ => Err(Refusal::invalid(
                "question_id",
                "you have not claimed it: there is nothing to release",
            )),
        }
    }

    /// The person with the claim types: the claim lasts longer. Without a claim it begins.
    ///
    /// # Errors
    /// Another person has the claim.
    pub fn typed(&self, human: &SessionName, console: Option<ConsoleId>, now: Now) -> Result<Self, Refusal> {
        match self.open()? {
            QuestionState::Claimed(claim) if claim.human != *human => Err(Refusal::invalid(
                "question_id",
                format!("{} has claimed it: claim it to take it over", claim.human),
            )),
            QuestionState::Claimed(claim) => self.claimed(human, console.or(claim.console), now),
            _ => self.claimed(human, console, now),
        }
    }

    /// A person gives it to another person, to a role, or back to the desk. Its age and its place stay.
    ///
    /// # Errors
    /// The note is too long.
    pub fn handed_over(
        &self,
        from: &SessionName,
        to: AddressedTo,
        note: Option<String>,
        now: Now,
    ) -> Result<Self, Refusal> {
        self.open()?;
        check_remark("note", note.as_deref())?;
        let mut next = self.next(QuestionState::Waiting).seen_at(now);
        next.to = to.clone();
        next.handover = Some(Handover {
            from: from.clone(),
            to,
            note,
            at_ms: now.unix_ms,
        });
        Ok(next)
    }

    /// A person answers it.
    ///
    /// # Errors
    /// The answer does not fit the question.
    pub fn answered(
        &self,
        by: AnsweredBy,
        answer: Answer,
        content: &QuestionContent,
        now: Now,
    ) -> Result<Self, Refusal> {
        self.open()?;
        answer.check(content)?;
        Ok(self.closing(Closing::Answered { by, answer }, now).seen_at(now))
    }

    /// A person declines to answer it.
    ///
    /// # Errors
    /// The reason is too long.
    pub fn declined(&self, by: AnsweredBy, reason: Option<String>, now: Now) -> Result<Self, Refusal> {
        self.open()?;
        check_remark("reason", reason.as_deref())?;
        Ok(self.closing(Closing::Declined { by, reason }, now).seen_at(now))
    }

    /// Its time is over.
    ///
    /// # Errors
    /// Its time is not over, or a person types.
    pub fn expired(&self, now: Now) -> Result<Self, Refusal> {
        self.open()?;
        match self.expires_next_ms() {
            Some(due) if due <= now.unix_ms => Ok(self.closing(Closing::Expired, now)),
            _ => Err(Refusal::NotApplicable),
        }
    }

    /// The asker, an administrator or the end of the asker cancels it.
    ///
    /// # Errors
    /// The reason is too long.
    pub fn cancelled(&self, by: Option<String>, reason: Option<String>, now: Now) -> Result<Self, Refusal> {
        self.open()?;
        check_remark("reason", reason.as_deref())?;
        Ok(self.closing(Closing::Cancelled { by, reason }, now))
    }

    fn closing(&self, how: Closing, now: Now) -> Self {
        let at_ms = self.after_asking(now);
        self.next(QuestionState::Closed(Closed { at_ms, how }))
    }

    /// A person has read it.
    ///
    /// # Errors
    /// A person has seen it before, or it is closed.
    pub fn seen(&self, now: Now) -> Result<Self, Refusal> {
        let state = self.open()?.clone();
        if self.seen_at_ms.is_some() {
            return Err(Refusal::NotApplicable);
        }
        Ok(self.next(state).seen_at(now))
    }

    /// Its time is nearly over.
    ///
    /// # Errors
    /// It is not yet, or that was said before.
    pub fn expiring(&self, now: Now) -> Result<Self, Refusal> {
        let state = self.open()?.clone();
        match self.expiry_warning_ms() {
            Some(due) if due <= now.unix_ms => Ok(Self {
                is_expiring: true,
                ..self.next(state)
            }),
            _ => Err(Refusal::NotApplicable),
        }
    }

    /// When it is said that its time is nearly over, in milliseconds since the Unix epoch; None if that was said, or is
    /// never said.
    pub fn expiry_warning_ms(&self) -> Option<u64> {
        let end = self.expires_at_ms.filter(|_| self.is_open() && !self.is_expiring)?;
        let life = end.saturating_sub(self.asked_at_ms());
        Some(end.saturating_sub((life / 10).min(millis(EXPIRY_WARNING))))
    }

    /// Whether it has an answer that is deleted once the asker has it.
    pub const fn has_secret(&self) -> bool {
        let is_answered = matches!(
            &self.state,
            QuestionState::Closed(Closed {
                how: Closing::Answered { .. },
                ..
            })
        );
        self.is_sensitive && is_answered && self.answer_deleted_ms.is_none()
    }

    /// The asker has the answer to this sensitive question: the answer is deleted.
    ///
    /// # Errors
    /// It has no such answer.
    pub fn answer_deleted(&self, now: Now) -> Result<Self, Refusal> {
        let QuestionState::Closed(Closed {
            at_ms,
            how: Closing::Answered { by, .. },
        }) = &self.state
        else {
            return Err(Refusal::NotApplicable);
        };
        if !self.has_secret() {
            return Err(Refusal::NotApplicable);
        }
        let how = Closing::Answered {
            by: by.clone(),
            answer: Answer::default(),
        };
        Ok(Self {
            answer_deleted_ms: Some(now.unix_ms),
            sealed_answer: None,
            ..self.next(QuestionState::Closed(Closed { at_ms: *at_ms, how }))
        })
    }

    /// When it expires if no further key is typed, in milliseconds since the Unix epoch: at its end, or 2 minutes after the
    /// last keystroke of a claim, but not more than 30 minutes after its end.
    pub fn expires_next_ms(&self) -> Option<u64> {
        let end = self.expires_at_ms.filter(|_| self.is_open())?;
        let typed = self.claim().map_or(0, |claim| claim.typed_at_ms);
        let typing_ends = typed.saturating_add(millis(TYPING_GRACE));
        Some(typing_ends.clamp(end, end.saturating_add(millis(TYPING_GRACE_MAX))))
    }
}

impl QuestionClaim {
    /// Whether the person typed a moment ago.
    pub fn is_typing(&self, now: Now) -> bool {
        is_within(self.typed_at_ms, TYPING_SHOWN, now)
    }
}

fn check_remark(field: &str, remark: Option<&str>) -> Result<(), Refusal> {
    if remark.is_some_and(|remark| remark.chars().count() > REMARK_CHARACTERS_MAX) {
        let reason = format!("at most {REMARK_CHARACTERS_MAX} characters: shorten it, or send the asker a message");
        return Err(Refusal::invalid(field, reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
