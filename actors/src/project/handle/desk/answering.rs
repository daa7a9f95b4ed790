//! What people do with a question (open, type, answer, decline, hand over), their consoles, and yaps.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{
    clock::{Now, millis, now},
    desk::{CONSOLES_MAX, ConsoleChange, ConsoleGuard, DeskFeed, DeskSummary, Human, NewYap, NoticeFrom, YapAccepted},
    model::{
        ANSWER_BYTES_MAX, AddressedTo, Answer, BrokerError, ConsoleId, HUMAN_KIND, Owner, Question, QuestionBudget,
        QuestionId, SessionName, ShownYap, Via, Yap,
    },
    project::{ProjectHandle, Registration},
    session::Member,
    storage::{DRAFTS_MAX, DraftPut, HELD_YAPS_MAX, YapHeld},
};

/// A keystroke is not stored while the last one is younger: a claim lasts ten minutes, and typing shows for fifteen seconds.
const KEYSTROKES_STORED_EVERY: Duration = Duration::from_secs(5);

/// The argument that the refusal of a name is about.
const HUMAN_ARGUMENT: &str = "human";

impl ProjectHandle {
    /// Answers a question. A message in the same operation of the store notifies the asker. `if_revision` is the
    /// revision that the person has seen.
    ///
    /// # Errors
    /// `question_closed` when another end came first: the text of this answer is kept as the draft of the person;
    /// `precondition_failed` for another revision; `invalid_argument` for an answer that does not fit the question;
    /// `question_not_found`; `unavailable`.
    pub async fn answer_question(
        &self,
        id: QuestionId,
        by: &Human,
        answer: Answer,
        if_revision: Option<u64>,
    ) -> Result<Arc<Question>, BrokerError> {
        let content = self.0.store.question_content(id).await?;
        let content = content.ok_or(BrokerError::QuestionNotFound { id: *id.as_uuid() })?;
        let answered = self.end_question(id, by, if_revision, |question, now| {
            if question.is_sensitive && question.is_open() && by.via != Via::Web {
                let reason = "the question is sensitive: answer it on the page /desk";
                return Err(BrokerError::forbidden(reason));
            }
            let next = question.answered(by.answered_by(), answer.clone(), &content, now)?;
            match &self.0.settings.desk.seal {
                Some(seal) if next.is_sensitive => next.sealed(&**seal).ok_or_else(BrokerError::unavailable),
                _ => Ok(next),
            }
        });
        let answered = answered.await;
        let draft = match &answered {
            // The words of the person are not lost, except those that are not to be kept.
            Err(BrokerError::QuestionClosed { .. }) if self.is_sensitive(id).await => return answered,
            Err(BrokerError::QuestionClosed { .. }) => answer.line(),
            Ok(_) => String::new(),
            Err(_) => return answered,
        };
        // Best effort: the answer has been stored in any case.
        let _ = self.0.store.put_draft(id, by.name.clone(), shortened(draft)).await;
        answered
    }

    /// Whether nothing of an answer to this question may be kept. True if that cannot be read now.
    async fn is_sensitive(&self, id: QuestionId) -> bool {
        self.0
            .questions
            .read(id)
            .await
            .map_or(true, |question| question.is_sensitive)
    }

    /// Declines a question: the asker gets no answer to it.
    ///
    /// # Errors
    /// As of [`Self::answer_question`].
    pub async fn decline_question(
        &self,
        id: QuestionId,
        by: &Human,
        reason: Option<String>,
        if_revision: Option<u64>,
    ) -> Result<Arc<Question>, BrokerError> {
        let decline = |question: &Question, now| Ok(question.declined(by.answered_by(), reason.clone(), now)?);
        self.end_question(id, by, if_revision, decline).await
    }

    async fn end_question(
        &self,
        id: QuestionId,
        by: &Human,
        if_revision: Option<u64>,
        decide: impl Fn(&Question, Now) -> Result<Question, BrokerError>,
    ) -> Result<Arc<Question>, BrokerError> {
        let session = self.session_of(by).await?;
        let from = session
            .as_ref()
            .map_or(NoticeFrom::Broker, |session| NoticeFrom::Person(&session.record));
        self.person_changes(id, by, if_revision, from, decide).await
    }

    /// Changes a question for a person who may answer it.
    async fn person_changes(
        &self,
        id: QuestionId,
        by: &Human,
        if_revision: Option<u64>,
        from: NoticeFrom<'_>,
        decide: impl Fn(&Question, Now) -> Result<Question, BrokerError>,
    ) -> Result<Arc<Question>, BrokerError> {
        self.0.questions.shared().person_active(&by.name, now());
        let change = |question: &Question, now: Now| {
            check_person(question, by)?;
            let next = decide(question, now)?;
            // After the decision: that a question is closed says more than that it has changed.
            match if_revision {
                Some(seen) if seen != question.revision => Err(BrokerError::RevisionMismatch {
                    revision: question.revision,
                }),
                _ => Ok(next),
            }
        };
        self.0.questions.change(id, from, change).await
    }

    /// A person opens a question to write an answer; a claim of another person ends. `console` is one of the person's.
    ///
    /// # Errors
    /// `question_closed`, `precondition_failed`, `question_not_found`, `unavailable`; `invalid_argument` for a console
    /// of another person.
    pub async fn claim_question(
        &self,
        id: QuestionId,
        by: &Human,
        console: Option<ConsoleId>,
        if_revision: Option<u64>,
    ) -> Result<Arc<Question>, BrokerError> {
        self.check_console(by, console)?;
        let claim = |question: &Question, now| Ok(question.claimed(&by.name, console, now)?);
        self.person_changes(id, by, if_revision, NoticeFrom::None, claim).await
    }

    fn check_console(&self, by: &Human, console: Option<ConsoleId>) -> Result<(), BrokerError> {
        match console {
            Some(console) if self.0.questions.shared().human_at(console).as_ref() != Some(&by.name) => {
                Err(BrokerError::invalid(
                    "console",
                    "no connected console of this person: leave it out, or connect again",
                ))
            }
            _ => Ok(()),
        }
    }

    /// The person gives up their claim: the question waits again.
    ///
    /// # Errors
    /// `question_closed`, `question_not_found`, `unavailable`; `invalid_argument` for a question that the person has not
    /// claimed.
    pub async fn release_question(&self, id: QuestionId, by: &Human) -> Result<Arc<Question>, BrokerError> {
        let release = |question: &Question, _| Ok(question.released(&by.name)?);
        self.person_changes(id, by, None, NoticeFrom::None, release).await
    }

    /// Hands a question over to another person, to a role, or back to the desk. It keeps its age and its place.
    ///
    /// # Errors
    /// `question_closed`, `question_not_found`, `unavailable`; `invalid_argument` for a note that is too long.
    pub async fn hand_over_question(
        &self,
        id: QuestionId,
        by: &Human,
        to: AddressedTo,
        note: Option<String>,
    ) -> Result<Arc<Question>, BrokerError> {
        let to = to.checked()?;
        let hand_over = |question: &Question, now| Ok(question.handed_over(&by.name, to.clone(), note.clone(), now)?);
        self.person_changes(id, by, None, NoticeFrom::None, hand_over).await
    }

    /// The person types: their claim is renewed, or begins if no person has claimed the question.
    ///
    /// # Errors
    /// `question_closed`, `question_not_found`, `unavailable`; `invalid_argument` while another person has the claim.
    pub async fn typed_at_question(
        &self,
        id: QuestionId,
        by: &Human,
        console: Option<ConsoleId>,
    ) -> Result<Arc<Question>, BrokerError> {
        self.check_console(by, console)?;
        let now = now();
        if let Some(known) = self.0.questions.shared().known(id)
            && let Some(claim) = known.claim()
            && claim.human == by.name
            && (console.is_none() || claim.console == console)
            && now.unix_ms.saturating_sub(claim.typed_at_ms) < millis(KEYSTROKES_STORED_EVERY)
        {
            self.0.questions.shared().person_active(&by.name, now);
            return Ok(known);
        }
        let typed = |question: &Question, now| Ok(question.typed(&by.name, console, now)?);
        self.person_changes(id, by, None, NoticeFrom::None, typed).await
    }

    /// Keeps what the person has written so far, for this person only. An empty text removes it.
    ///
    /// # Errors
    /// `question_not_found`, `unavailable`; `payload_too_large`; `queue_full` when no draft has room.
    pub async fn put_draft(&self, id: QuestionId, by: &Human, text: String) -> Result<(), BrokerError> {
        if text.len() > ANSWER_BYTES_MAX {
            let limit = ANSWER_BYTES_MAX;
            return Err(BrokerError::PayloadTooLarge { limit });
        }
        let question = self.0.questions.read(id).await?;
        check_person(&question, by)?;
        if question.is_sensitive {
            let reason = "nothing is kept of what is typed for a sensitive question: send the answer";
            return Err(BrokerError::invalid("text", reason));
        }
        match self.0.store.put_draft(id, by.name.clone(), text).await? {
            DraftPut::Stored => Ok(()),
            DraftPut::Unknown => Err(BrokerError::QuestionNotFound { id: *id.as_uuid() }),
            DraftPut::Full => Err(BrokerError::QuestionsFull {
                which: QuestionBudget::Drafts,
                limit: DRAFTS_MAX,
            }),
        }
    }

    /// What the person has written so far; empty if nothing.
    ///
    /// # Errors
    /// `question_not_found`, `unavailable`.
    pub async fn draft(&self, id: QuestionId, by: &Human) -> Result<String, BrokerError> {
        let question = self.0.questions.read(id).await?;
        if !by.may_read(&question) {
            return Err(BrokerError::QuestionNotFound { id: *id.as_uuid() });
        }
        Ok(self.0.store.draft(id, by.name.clone()).await?)
    }

    /// The session of a person; None for one who acts without, and for one whose fixed name an agent has: it must not keep
    /// them from answering.
    ///
    /// # Errors
    /// As of [`Self::register`].
    pub(super) async fn session_of(&self, human: &Human) -> Result<Option<Arc<Member>>, BrokerError> {
        if !human.has_session() {
            return Ok(None);
        }
        match self.human_session(&human.name, &human.owner).await {
            Ok(member) => Ok(Some(member)),
            Err(BrokerError::InvalidArgument { field, .. }) if field == HUMAN_ARGUMENT && human.is_name_fixed => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The session of a person who writes messages and gets them. `is_active`: the person has done something just now.
    ///
    /// # Errors
    /// `forbidden` for one without a session, and when the desk is off; as of [`Self::register`].
    pub async fn person(&self, human: &Human, is_active: bool) -> Result<Arc<Member>, BrokerError> {
        self.check_desk_is_on()?;
        let member = self.session_of(human).await?.ok_or_else(|| {
            let reason = format!(
                "{} has no inbox: an agent has this name, or the key is an agent's",
                human.name
            );
            BrokerError::forbidden(reason)
        })?;
        if is_active {
            self.0.questions.shared().person_active(&human.name, now());
            member.touch(self.0.settings.presence, now());
        }
        Ok(member)
    }

    /// The session of a person, which is made at its first use.
    ///
    /// # Errors
    /// `invalid_argument` when the name belongs to an agent; as of [`Self::register`].
    async fn human_session(&self, name: &SessionName, owner: &Owner) -> Result<Arc<Member>, BrokerError> {
        match self.resolve(name.as_str()).answer().await {
            Ok(member) if member.record.is_human() => return Ok(member),
            Ok(member) if !member.record.holder.only_sends => return Err(name_of_agent(name)),
            Ok(_) | Err(BrokerError::SessionNotFound(_)) => {}
            Err(error) => return Err(error),
        }
        let kind = Value::from(HUMAN_KIND);
        let registration = Registration {
            name: Some(name.clone()),
            metadata: Some(Map::from_iter([("kind".to_owned(), kind)])),
            owner: owner.clone(),
            ..Registration::default()
        };
        let registered = self.register(registration).await?;
        if registered.resumed && !registered.member.record.is_human() {
            return Err(name_of_agent(name));
        }
        Ok(registered.member)
    }
}

fn name_of_agent(name: &SessionName) -> BrokerError {
    BrokerError::invalid(
        HUMAN_ARGUMENT,
        format!("the name {name} is an agent's: choose another one"),
    )
}

/// A person changes only questions that they may answer; others do not exist for them.
fn check_person(question: &Question, by: &Human) -> Result<(), BrokerError> {
    if by.may_answer(question) || !question.is_open() && by.may_read(question) {
        return Ok(());
    }
    if by.may_read(question) {
        let reason = format!("you gave it to {}: ask them to give it back", question.to.as_str());
        return Err(BrokerError::forbidden(reason));
    }
    Err(BrokerError::QuestionNotFound {
        id: *question.id.as_uuid(),
    })
}

/// The beginning of a text that has room in a draft.
fn shortened(mut text: String) -> String {
    if text.len() > ANSWER_BYTES_MAX {
        text.truncate(text.floor_char_boundary(ANSWER_BYTES_MAX));
    }
    text
}

impl ProjectHandle {
    /// Shows a remark of an agent to the people who watch. Its place in the order is decided 200 ms later (`YAP_DELAY`).
    ///
    /// # Errors
    /// `invalid_argument`; `queue_full`; `forbidden` when the desk is off; `unavailable`.
    pub async fn yap(&self, sender: &Arc<Member>, yap: NewYap) -> Result<YapAccepted, BrokerError> {
        self.check_desk_is_on()?;
        yap.check()?;
        let (id, now) = (Uuid::now_v7(), now());
        let desk = self.0.questions.shared();
        let yap = Yap {
            id,
            sender: sender.record.id,
            sender_name: sender.record.name.clone(),
            message: yap.message,
            mode: yap.mode,
            category: yap.category,
            task_context: yap.task_context,
            sent_at_ms: yap.sent_at_ms,
            folded: 0,
        };
        // Before anything else is waited for, so that the calls of one sender keep their order.
        if let Some(yap) = desk.admit_yap(yap, now) {
            match self.0.store.hold_yap(Arc::new(yap), now).await? {
                YapHeld::Held => desk.yap_held(desk.settings().yap_delay, now),
                YapHeld::Late => desk.yap_held(Duration::ZERO, now),
                YapHeld::Full => {
                    return Err(BrokerError::QuestionsFull {
                        which: QuestionBudget::Yaps,
                        limit: HELD_YAPS_MAX,
                    });
                }
            }
        }
        // The yap is kept, also when the consoles of other replicas cannot be read.
        let shown_to = self.desk().await.map_or(0, |desk| desk.consoles.len());
        Ok(YapAccepted { id, shown_to })
    }

    /// The yaps behind this number, the oldest first; without a number the last ones. At most `limit`.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn yaps(&self, after: Option<u64>, limit: usize) -> Result<Vec<Arc<ShownYap>>, BrokerError> {
        Ok(self.0.store.yaps(after, limit).await?)
    }

    /// The consoles of all replicas, and the number of open questions.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn desk(&self) -> Result<Arc<DeskSummary>, BrokerError> {
        Ok(self.0.questions.summary().await?)
    }

    /// Connects a console of this person. Questions are offered to it until the guard is dropped.
    ///
    /// # Errors
    /// `forbidden` when the project has its maximum of consoles, or the desk is off; `invalid_argument` when a name that the
    /// person chose belongs to an agent; `unavailable`.
    pub async fn attach_console(&self, human: Human) -> Result<ConsoleGuard, BrokerError> {
        self.check_desk_is_on()?;
        let member = self.session_of(&human).await?;
        // Before the console: it gets everything that is offered to it.
        let events = self.watch_desk()?;
        let (desk, now) = (self.0.questions.shared(), now());
        if let Some(member) = &member {
            member.touch(self.0.settings.presence, now);
        }
        let console = desk.attach(human.name, human.roles, now).ok_or_else(|| {
            BrokerError::forbidden(format!("{CONSOLES_MAX} consoles are connected already: close one"))
        })?;
        Ok(ConsoleGuard::new(console, Arc::clone(desk), member, events))
    }

    /// Changes a console that is connected to this replica. With `human`, only one of this person.
    ///
    /// # Errors
    /// `invalid_argument` for a console that is not here, or is another person's.
    pub fn change_console(
        &self,
        console: ConsoleId,
        human: Option<&SessionName>,
        change: ConsoleChange,
    ) -> Result<(), BrokerError> {
        let desk = self.0.questions.shared();
        let is_theirs = human.is_none_or(|human| desk.human_at(console).as_ref() == Some(human));
        if is_theirs && desk.change_console(console, change, now()) {
            Ok(())
        } else {
            Err(BrokerError::invalid(
                "console",
                "no console of yours with this id at this replica: connect again",
            ))
        }
    }

    /// Watches the desk without being offered questions. Lists that are read after this call miss nothing.
    ///
    /// # Errors
    /// `unavailable` when the project has ended.
    pub fn watch_desk(&self) -> Result<DeskFeed, BrokerError> {
        self.0.questions.shared().feed().ok_or(BrokerError::unavailable())
    }
}
