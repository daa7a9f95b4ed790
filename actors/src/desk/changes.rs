//! Changes of questions: a transition, compare and set, the notice to the asker, and everything that follows a change; and the watch
//! by which a call follows one question.

use std::{sync::Arc, time::Duration};

use futures_util::future::try_join3;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{DeskSummary, load::ConsoleRecord, shared::DeskShared};
use crate::{
    clock::{Now, now},
    directory::Directory,
    faults,
    locked::Locked,
    metrics::{METRICS, ProjectCounters, QuestionEnd},
    model::{
        Addressing, BrokerError, Closing, Headers, Message, MessageId, MessageIds, NewMessage, Priority, ProjectEvent,
        ProjectId, Question, QuestionChange, QuestionId, QuestionState, Refusal, SessionName, SessionRecord, Urgency,
    },
    policy::ProjectPolicy,
    registry::builtin::HUMAN_ANSWER,
    storage::{Append, Appended, Audience, HeldClaim, OPEN_OF_SESSION_MAX, Store, StoreError, Updated},
};

/// A reader of the desk at a replica without consoles asks the store again for those of others after this time.
const CONSOLES_FRESH_FOR: Duration = Duration::from_secs(1);
/// How long a console counts as connected after its replica has named it.
const CONSOLE_TTL: Duration = Duration::from_millis(1_500);
/// The things that replicas claim to publish their consoles begin with this.
const CONSOLES: &str = "@consoles:";
/// How often a change is decided again because another one came first.
const TRIES_MAX: usize = 8;

/// Changes questions of one project, for its verbs and for the desk's actor.
pub struct QuestionChanges {
    project: ProjectId,
    store: Arc<dyn Store>,
    directory: Arc<Directory>,
    policy: Arc<ProjectPolicy>,
    counters: Arc<ProjectCounters>,
    shared: Arc<DeskShared>,
    ids: Locked<MessageIds>,
}

/// From whom the asker gets the message that says how its question ended.
#[derive(Clone, Copy, Debug)]
pub enum NoticeFrom<'a> {
    /// The asker needs no message: it made the change itself.
    None,
    /// The broker.
    Broker,
    /// The session of a person.
    Person(&'a SessionRecord),
}

/// What became of one attempt to store a change.
#[derive(Clone, Debug, PartialEq)]
pub enum Attempt {
    Stored(Arc<Question>),
    /// Another change came first.
    Changed(Arc<Question>),
    Unknown,
}

impl QuestionChanges {
    pub fn new(
        project: ProjectId,
        store: Arc<dyn Store>,
        directory: Arc<Directory>,
        policy: Arc<ProjectPolicy>,
        counters: Arc<ProjectCounters>,
        shared: Arc<DeskShared>,
    ) -> Arc<Self> {
        Arc::new(Self {
            project,
            store,
            directory,
            policy,
            counters,
            shared,
            ids: Locked::default(),
        })
    }

    /// The project of the questions.
    pub const fn project(&self) -> &ProjectId {
        &self.project
    }

    /// What readers and the actor share.
    pub const fn shared(&self) -> &Arc<DeskShared> {
        &self.shared
    }

    /// The store of the project.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The sessions of the project.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The desk at a glance, with the consoles of all replicas as they were a second ago at most.
    ///
    /// # Errors
    /// Of the store.
    pub async fn summary(&self) -> Result<Arc<DeskSummary>, StoreError> {
        // A replica with consoles exchanges them anyway.
        let (begun, is_fresh) = {
            let (desk, now) = (self.shared.lock(), now());
            let has_own = desk.state.own_consoles().next().is_some();
            (now, has_own || desk.state.is_exchange_within(CONSOLES_FRESH_FOR, now))
        };
        if !is_fresh {
            let all = self.consoles().await?;
            self.shared.lock().state.exchanged(&[], all, begun, now());
        }
        Ok(self.shared.summary(now()))
    }

    /// The consoles of all replicas. Each replica has a claim, whose note lists its own ones.
    ///
    /// # Errors
    /// Of the store.
    pub async fn consoles(&self) -> Result<Vec<ConsoleRecord>, StoreError> {
        let claims = self.store.claims(CONSOLES.into(), now()).await?;
        let read = |claim: HeldClaim| serde_json::from_str::<Vec<_>>(&claim.note).unwrap_or_default();
        Ok(claims.into_iter().flat_map(read).collect())
    }

    /// Publishes the consoles of this replica in place of those of before; they count for [`CONSOLE_TTL`]. Returns the
    /// consoles of all replicas.
    ///
    /// # Errors
    /// Of the store.
    pub async fn exchange_consoles(&self, own: &[ConsoleRecord]) -> Result<Vec<ConsoleRecord>, StoreError> {
        let (holder, now) = (self.store.own_holder(), now());
        let (thing, note) = (
            format!("{CONSOLES}{holder}"),
            serde_json::to_string(own).unwrap_or_default(),
        );
        let published = self.store.claim(thing.into(), holder, CONSOLE_TTL, note.into(), now);
        let (_, _, all) = try_join3(published, self.store.end_silent(now), self.consoles()).await?;
        Ok(all)
    }

    /// The record of a question from the store.
    ///
    /// # Errors
    /// `question_not_found`; `unavailable`.
    pub async fn read(&self, id: QuestionId) -> Result<Arc<Question>, BrokerError> {
        let question = self.store.questions(vec![id]).await?.pop().flatten();
        question.ok_or(BrokerError::QuestionNotFound { id: *id.as_uuid() })
    }

    /// Decides a change of the present record and stores it. If another change comes first, it decides again.
    ///
    /// # Errors
    /// What `decide` refuses; `question_not_found`; `unavailable` when others change the question again and again.
    pub async fn change(
        &self,
        id: QuestionId,
        from: NoticeFrom<'_>,
        decide: impl Fn(&Question, Now) -> Result<Question, BrokerError>,
    ) -> Result<Arc<Question>, BrokerError> {
        let mut known = match self.shared.known(id) {
            Some(known) => known,
            None => self.read(id).await?,
        };
        for _ in 0..TRIES_MAX {
            let now = now();
            let next = match decide(&known, now) {
                // This replica may not know yet what another one has done.
                Err(error) => {
                    let read = self.read(id).await?;
                    if read.revision == known.revision {
                        return Err(error);
                    }
                    self.shared.publish(&read, now);
                    known = read;
                    continue;
                }
                Ok(next) => next,
            };
            match self.attempt(&known, next, from, now).await? {
                Attempt::Stored(question) => return Ok(question),
                Attempt::Changed(newer) => known = newer,
                Attempt::Unknown => return Err(BrokerError::QuestionNotFound { id: *id.as_uuid() }),
            }
        }
        Err(BrokerError::unavailable())
    }

    /// Stores a change that was decided from this record, once.
    ///
    /// # Errors
    /// Of the store. The change may have been stored: the actor reads the question again.
    pub async fn store_once(
        &self,
        before: &Arc<Question>,
        next: Result<Question, Refusal>,
        from: NoticeFrom<'_>,
    ) -> Result<Option<Attempt>, StoreError> {
        match next {
            Ok(next) => self.attempt(before, next, from, now()).await.map(Some),
            Err(_) => Ok(None),
        }
    }

    async fn attempt(
        &self,
        before: &Arc<Question>,
        mut next: Question,
        from: NoticeFrom<'_>,
        now: Now,
    ) -> Result<Attempt, StoreError> {
        let id = next.id;
        let append = (!next.is_open()).then(|| self.notice(&mut next, from, now)).flatten();
        let next = Arc::new(next);
        let change = change_between(before, &next);
        let event = change.map(|(change, human)| ProjectEvent::of_question(&next, change, human));
        let closes = append.is_some();
        if closes {
            faults::point("question_closing").await;
        }
        let updated = self.store.update_question(Arc::clone(&next), event, append, now).await;
        if closes {
            faults::point("question_closed").await;
        }
        match updated {
            Ok(Updated::Stored(appended)) => {
                // Before the change is published: a reader of it may acknowledge the notice at once.
                if let Some(appended) = appended {
                    self.nudge_asker(&next, &appended);
                }
                self.shared.publish(&next, now);
                count(before, &next);
                Ok(Attempt::Stored(next))
            }
            Ok(Updated::Changed(newer)) => {
                self.shared.publish(&newer, now);
                Ok(Attempt::Changed(newer))
            }
            Ok(Updated::Unknown) => {
                self.shared.forget(id);
                Ok(Attempt::Unknown)
            }
            Err(error) => {
                self.shared.read_again(id);
                Err(error)
            }
        }
    }

    /// The message that tells the asker of the end.
    fn notice(&self, question: &mut Question, from: NoticeFrom<'_>, now: Now) -> Option<Append> {
        let broker_record;
        let sender = match from {
            NoticeFrom::None => return None,
            NoticeFrom::Person(session) => session,
            NoticeFrom::Broker => {
                broker_record = SessionRecord::broker();
                &broker_record
            }
        };
        let id = self.ids.lock().next(now);
        question.notice = Some(id);
        let message = notice(&self.project, sender, question, id, now);
        Some(Append {
            message,
            audience: Audience::One(question.asker.session),
            // Beyond the capacity: a session has only so many questions whose ends can come.
            queue_capacity: self.policy.limits().queue_capacity.saturating_add(OPEN_OF_SESSION_MAX),
            idempotency_key: None,
            roster_version: None,
        })
    }

    /// Wakes the asker for the appended message.
    fn nudge_asker(&self, question: &Question, appended: &Appended) {
        self.counters.received(1);
        let Appended::Accepted { queue_len, refused, .. } = appended else {
            return;
        };
        if !refused.is_empty() {
            // The question has ended all the same: get_answer returns it.
            tracing::warn!(project = %self.project, session = %question.asker.session, "an answer did not fit into the inbox");
            return self.counters.answered(0, 1, 0, 0);
        }
        self.counters.answered(1, 0, 0, 1);
        if let Some(asker) = self.directory.by_id(question.asker.session)
            && *queue_len > 0
        {
            asker.shared.set_waiting(*queue_len);
            if asker.shared.wants_wakeup() {
                self.directory.nudge(&asker, None);
            }
        }
    }

    /// Records an event that changes nothing, so that no operation of the store records it.
    pub fn record(&self, question: &Question, change: QuestionChange, human: Option<SessionName>, now: Now) {
        self.store
            .record(ProjectEvent::of_question(question, change, human), now);
    }
}

/// Counts a change in the metrics.
fn count(before: &Question, after: &Question) {
    let asked_ms = after.asked_at_ms();
    if before.seen_at_ms.is_none()
        && let Some(seen_ms) = after.seen_at_ms
    {
        METRICS.question_wait.observe(nanos_between(asked_ms, seen_ms));
    }
    if let Some(closed) = after.closed().filter(|_| before.is_open()) {
        METRICS.questions_closed.of(QuestionEnd::of(&closed.how)).increment();
        if matches!(closed.how, Closing::Answered { .. }) {
            METRICS.question_answer.observe(nanos_between(asked_ms, closed.at_ms));
        }
    }
}

fn nanos_between(from_ms: u64, to_ms: u64) -> u64 {
    to_ms.saturating_sub(from_ms).saturating_mul(1_000_000)
}

/// What the log says of a change; None for a renewal.
fn change_between(before: &Question, after: &Question) -> Option<(QuestionChange, Option<SessionName>)> {
    if after.is_expiring && !before.is_expiring {
        return Some((QuestionChange::Expiring, None));
    }
    if after.answer_deleted_ms != before.answer_deleted_ms {
        return Some((QuestionChange::AnswerDeleted, None));
    }
    match &after.state {
        QuestionState::Closed(closed) => before.is_open().then(|| match &closed.how {
            Closing::Answered { by, .. } => (QuestionChange::Answered, Some(by.human.clone())),
            Closing::Declined { by, .. } => (QuestionChange::Declined, Some(by.human.clone())),
            Closing::Expired => (QuestionChange::Expired, None),
            Closing::Cancelled { .. } => (QuestionChange::Cancelled, None),
        }),
        QuestionState::Offered(offer) if before.console() != Some(offer.console) => {
            Some((QuestionChange::Offered, Some(offer.human.clone())))
        }
        QuestionState::Claimed(claim) if before.claim().is_none_or(|earlier| earlier.human != claim.human) => {
            Some((QuestionChange::Claimed, Some(claim.human.clone())))
        }
        QuestionState::Waiting if before.handover != after.handover => {
            let from = after.handover.as_ref().map(|last| last.from.clone());
            Some((QuestionChange::HandedOver, from))
        }
        QuestionState::Waiting if before.state != QuestionState::Waiting => Some((QuestionChange::Returned, None)),
        _ => None,
    }
}

/// How long a wait for an event lasts from now until a moment of the monotonic clock.
pub(super) fn until(at_ms: u64, now: Now) -> Duration {
    Duration::from_millis(at_ms.saturating_sub(now.mono_ms)).max(Duration::from_millis(1))
}

/// The notice of the end of a question.
pub fn notice(
    project: &ProjectId,
    sender: &SessionRecord,
    question: &Question,
    id: MessageId,
    now: Now,
) -> Arc<Message> {
    let reference = question.id.to_string();
    let headers = Headers {
        priority: match question.urgency {
            Urgency::Low => Priority::Low,
            Urgency::Medium => Priority::Normal,
            Urgency::High => Priority::High,
        },
        subject: Some(subject(question)),
        correlation_id: Some(reference.clone()),
        reply_to: Some(reference),
        ..Headers::default()
    };
    let payload = payload(question).to_string();
    let protocol = (HUMAN_ANSWER.name, HUMAN_ANSWER.version);
    let draft = NewMessage::new(project, sender, Addressing::Direct, protocol, &payload, &headers);
    draft.seal(id, Some(question.asker.session), now, false)
}

/// How the question has ended, without a word of what was asked or answered: observers see it.
fn subject(question: &Question) -> String {
    match question.closed().map(|closed| &closed.how) {
        Some(Closing::Answered { by, .. }) => format!("{} answered", by.human),
        Some(Closing::Declined { by, .. }) => format!("{} declined", by.human),
        how => format!("question {}", how.map_or("open", |_| question.state_str())),
    }
}

/// The content of the notice. Images, and the answer to a sensitive question, are only in the record, which `get_answer` reads.
fn payload(question: &Question) -> Value {
    let mut members = question.outcome();
    if let Some(Closing::Answered { answer, .. }) = question.closed().map(|closed| &closed.how) {
        if question.is_sensitive {
            members.insert("answer".to_owned(), Value::Null);
        } else if !answer.images.is_empty() {
            members["answer"]["images"] = json!([]);
            members.insert("images".to_owned(), answer.images.len().into());
        }
    }
    members.insert("summary".to_owned(), question.outcome_line().into());
    Value::Object(members)
}

/// The changes of one question from the record on that a call knows. The store is read once, and then the desk gives each
/// new record to all that wait; changes of other replicas too.
pub struct QuestionWatch<'a> {
    questions: &'a QuestionChanges,
    records: watch::Receiver<Option<Arc<Question>>>,
    known: Arc<Question>,
    /// The store was read after the watch began.
    is_current: bool,
}

impl<'a> QuestionWatch<'a> {
    /// Watches a question whose record was `known`.
    pub(crate) fn new(questions: &'a QuestionChanges, known: Arc<Question>) -> Self {
        Self {
            records: questions.shared().watch(known.id),
            questions,
            known,
            is_current: false,
        }
    }

    /// The question.
    pub fn id(&self) -> QuestionId {
        self.known.id
    }

    /// The record as soon as it is newer than the last one. A call that is dropped misses nothing.
    ///
    /// # Errors
    /// `question_not_found`, also when the question is removed meanwhile; `unavailable`, also when the project ends.
    pub async fn changed(&mut self) -> Result<Arc<Question>, BrokerError> {
        if !self.is_current {
            let read = self.questions.read(self.id()).await?;
            self.is_current = true;
            if self.is_news(&read) {
                return Ok(read);
            }
        }
        loop {
            if self.records.changed().await.is_err() {
                return Err(if self.questions.shared().is_closed() {
                    BrokerError::unavailable()
                } else {
                    BrokerError::QuestionNotFound {
                        id: *self.id().as_uuid(),
                    }
                });
            }
            let newer = self.records.borrow_and_update().clone();
            if let Some(newer) = newer.filter(|newer| self.is_news(newer)) {
                return Ok(newer);
            }
        }
    }

    /// The record as the store has it now: a change of another replica may be on its way to this one.
    ///
    /// # Errors
    /// `question_not_found`; `unavailable`.
    pub async fn read(&self) -> Result<Arc<Question>, BrokerError> {
        self.questions.read(self.id()).await
    }

    fn is_news(&mut self, record: &Arc<Question>) -> bool {
        let is_news = record.revision > self.known.revision;
        if is_news {
            self.known = Arc::clone(record);
        }
        is_news
    }
}

impl Drop for QuestionWatch<'_> {
    fn drop(&mut self) {
        self.questions.shared().unwatch(self.known.id);
    }
}
