//! Questions to people: ask, read, list, wait, cancel. `desk/answering.rs` has the verbs of people and of the consoles.
//!
//! A change of a question is a pure transition that is stored by compare and set, so any replica may make it, and of two
//! racing ends exactly one wins.

mod answering;

use std::sync::Arc;

use super::ProjectHandle;
use crate::{
    clock::{Now, millis, now},
    desk::{
        AskedQuestion, NewQuestion, NoticeFrom, QuestionCursor, QuestionFilter, QuestionPage, QuestionWatch, Reader,
        StateFilter, waiting_order,
    },
    model::{
        AddressedTo, Asker, BrokerError, DeliveryStatus, Question, QuestionBudget, QuestionChange, QuestionContent,
        QuestionId, QuestionState, SessionName,
    },
    session::Member,
    storage::{Asked, OPEN_MAX, OPEN_OF_SESSION_MAX, QuestionsFull},
};

/// Characters of an idempotency key.
const KEY_CHARACTERS_MAX: usize = 256;

impl ProjectHandle {
    /// Asks people a question. It lives in the store until it is answered, declined, cancelled or expired.
    ///
    /// # Errors
    /// `invalid_argument` for a content out of bounds; `queue_full` when too many questions are open; `forbidden` when the
    /// desk is off; `unavailable`.
    pub async fn ask(&self, asker: &Arc<Member>, new: NewQuestion) -> Result<AskedQuestion, BrokerError> {
        self.check_desk_is_on()?;
        let now = now();
        let (question, content) = new_question(asker, new, now)?;
        match self.0.store.ask(Arc::clone(&question), content, now).await? {
            Asked::New => {
                self.0.questions.shared().publish(&question, now);
                Ok(AskedQuestion { question, is_new: true })
            }
            Asked::Existing(question) => Ok(AskedQuestion {
                question,
                is_new: false,
            }),
            Asked::Full(full) => {
                let (which, limit) = match full {
                    QuestionsFull::Session => (QuestionBudget::Session, OPEN_OF_SESSION_MAX),
                    QuestionsFull::Project => (QuestionBudget::Project, OPEN_MAX),
                    QuestionsFull::Bytes(limit) => (QuestionBudget::Bytes, limit),
                    QuestionsFull::SessionBytes(limit) => (QuestionBudget::SessionBytes, limit),
                };
                Err(BrokerError::QuestionsFull { which, limit })
            }
        }
    }

    pub(super) fn check_desk_is_on(&self) -> Result<(), BrokerError> {
        if self.0.settings.desk.is_on {
            Ok(())
        } else {
            Err(BrokerError::forbidden(
                "this broker has no desk: its setting DESK is false",
            ))
        }
    }

    /// A question with its content. A person who reads it has seen it.
    ///
    /// # Errors
    /// `question_not_found` for a question that is not kept or that the caller may not read; `unavailable`.
    pub async fn question(
        &self,
        id: QuestionId,
        reader: &Reader<'_>,
    ) -> Result<(Arc<Question>, Arc<QuestionContent>), BrokerError> {
        let mut question = self.question_record(id, reader).await?;
        let content = self.content_of(id).await?;
        if let Reader::Human(human) = reader
            && question.seen_at_ms.is_none()
        {
            let seen = self
                .0
                .questions
                .change(id, NoticeFrom::None, |question, now| Ok(question.seen(now)?));
            // Another person has seen it, or has closed it, if it fails.
            if let Ok(seen) = seen.await {
                let by = Some(human.name.clone());
                self.0.questions.record(&seen, QuestionChange::Seen, by, now());
                question = seen;
            }
        }
        Ok((question, content))
    }

    /// A question without its content.
    ///
    /// # Errors
    /// As of [`Self::question`].
    pub async fn question_record(&self, id: QuestionId, reader: &Reader<'_>) -> Result<Arc<Question>, BrokerError> {
        let question = self.0.questions.read(id).await?;
        if reader.may_read(&question) {
            Ok(question)
        } else {
            Err(BrokerError::QuestionNotFound { id: *id.as_uuid() })
        }
    }

    /// The content of a question.
    ///
    /// # Errors
    /// As of [`Self::question`].
    pub async fn question_content(
        &self,
        id: QuestionId,
        reader: &Reader<'_>,
    ) -> Result<Arc<QuestionContent>, BrokerError> {
        self.question_record(id, reader).await?;
        self.content_of(id).await
    }

    async fn content_of(&self, id: QuestionId) -> Result<Arc<QuestionContent>, BrokerError> {
        let content = self.0.store.question_content(id).await?;
        content.ok_or(BrokerError::QuestionNotFound { id: *id.as_uuid() })
    }

    /// The changes of a question whose record was `known`. The watch serves for the whole of a wait.
    pub fn watch_question(&self, known: &Arc<Question>) -> QuestionWatch<'_> {
        QuestionWatch::new(&self.0.questions, Arc::clone(known))
    }

    /// Cancels a question for its asker or an administrator. A closed question stays as it is, and is returned.
    ///
    /// # Errors
    /// `question_not_found`; `forbidden` for a person, who declines a question instead; `unavailable`.
    pub async fn cancel_question(
        &self,
        id: QuestionId,
        by: &Reader<'_>,
        reason: Option<String>,
    ) -> Result<Arc<Question>, BrokerError> {
        // The asker knows what it does.
        let from = match by {
            Reader::Asker(_) => NoticeFrom::None,
            Reader::Human(_) | Reader::Admin => NoticeFrom::Broker,
        };
        let cancelled = self.0.questions.change(id, from, |question, now| {
            if !by.may_read(question) {
                return Err(BrokerError::QuestionNotFound { id: *id.as_uuid() });
            }
            let name = match by {
                Reader::Asker(_) => asker_name(&question.asker),
                Reader::Admin => "admin".to_owned(),
                Reader::Human(_) => {
                    return Err(BrokerError::forbidden(
                        "only its asker or an administrator cancels a question: decline it",
                    ));
                }
            };
            Ok(question.cancelled(Some(name), reason.clone(), now)?)
        });
        match cancelled.await {
            Err(BrokerError::QuestionClosed { .. }) => self.question_record(id, by).await,
            result => result,
        }
    }

    /// Forgets a question, its content and its drafts. Only an administrator may ask for it.
    ///
    /// # Errors
    /// `question_not_found`; `unavailable`.
    pub async fn remove_question(&self, id: QuestionId) -> Result<(), BrokerError> {
        let question = self.0.questions.read(id).await?;
        if !self.0.store.remove_question(id).await? {
            return Err(BrokerError::QuestionNotFound { id: *id.as_uuid() });
        }
        self.0.questions.shared().forget(id);
        self.0.questions.record(&question, QuestionChange::Removed, None, now());
        Ok(())
    }

    /// The record with the answer to a sensitive question in plain text, for its asker. It stays encrypted if the broker has
    /// another secret than when it was answered.
    pub fn opened(&self, question: &Arc<Question>) -> Arc<Question> {
        let seal = self.0.settings.desk.seal.as_deref();
        let opened = seal.and_then(|seal| question.opened(seal));
        opened.map_or_else(|| Arc::clone(question), Arc::new)
    }

    /// The asker has got the answer to this sensitive question: the desk deletes it soon.
    pub fn answer_read(&self, id: QuestionId) {
        self.0.questions.shared().answer_read(id);
    }

    /// The place of an open question in the queue of the desk, as this replica knows it: 1 for the question that is next.
    /// None for a question that a console has, or that is closed.
    pub fn queue_position(&self, id: QuestionId) -> Option<usize> {
        self.0.questions.shared().position(id)
    }
}

fn asker_name(asker: &Asker) -> String {
    let name = asker.name.as_ref().map(SessionName::to_string);
    name.unwrap_or_else(|| asker.session.to_string())
}

/// Checks the bounds of a question, and makes its record.
fn new_question(
    asker: &Member,
    new: NewQuestion,
    now: Now,
) -> Result<(Arc<Question>, Arc<QuestionContent>), BrokerError> {
    new.content.check()?;
    let to = new.to.clone().checked()?;
    let lives = NewQuestion::EXPIRES_IN_MIN..=NewQuestion::EXPIRES_IN_MAX;
    match new.expires_in {
        None if to == AddressedTo::Anyone => {
            let reason = "a question that does not expire needs `to`, the person or role that answers it";
            return Err(BrokerError::invalid("expires_in_seconds", reason));
        }
        Some(life) if !lives.contains(&life) => {
            let reason = "60 to 2592000 seconds, or 0 for a question that does not expire";
            return Err(BrokerError::invalid("expires_in_seconds", reason));
        }
        _ => {}
    }
    let default_bytes = new.on_expiry.as_ref().map_or(0, |value| value.to_string().len());
    if default_bytes > NewQuestion::ON_EXPIRY_BYTES_MAX {
        let reason = format!("at most {} bytes", NewQuestion::ON_EXPIRY_BYTES_MAX);
        return Err(BrokerError::invalid("on_expiry", reason));
    }
    let key = new.idempotency_key.as_deref();
    if key.is_some_and(|key| key.is_empty() || key.chars().count() > KEY_CHARACTERS_MAX) {
        let reason = format!("1 to {KEY_CHARACTERS_MAX} characters");
        return Err(BrokerError::invalid("idempotency_key", reason));
    }
    let question = Question {
        id: QuestionId::at(now),
        revision: 0,
        asker: Asker {
            session: asker.record.id,
            name: asker.record.name.clone(),
            owner: asker.record.owner.clone(),
        },
        summary: new.content.summary(),
        content_bytes: new.content.stored_len(),
        urgency: new.urgency,
        to,
        is_sensitive: new.is_sensitive,
        expires_at_ms: new.expires_in.map(|life| now.unix_ms.saturating_add(millis(life))),
        on_expiry: new.on_expiry,
        idempotency_key: new.idempotency_key,
        state: QuestionState::Waiting,
        seen_at_ms: None,
        is_expiring: false,
        sealed_answer: None,
        answer_deleted_ms: None,
        handover: None,
        notice: None,
    };
    Ok((Arc::new(question), Arc::new(new.content)))
}

/// Records that are read from the store at once.
const READ_LEN: usize = 200;
/// Records that one page looks at. A page of a rare kind can be short, or empty, before the last one.
const LOOKED_AT_MAX: usize = 2_000;
/// Closed questions among which those are found whose notice is not acknowledged.
const UNREAD_LOOKED_AT_MAX: usize = 1_000;

impl ProjectHandle {
    /// A page of the questions that the caller may read: `limit` at most, from the place `after` on.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn list_questions(
        &self,
        reader: &Reader<'_>,
        filter: &QuestionFilter,
        limit: usize,
        after: Option<QuestionCursor>,
    ) -> Result<QuestionPage, BrokerError> {
        let limit = limit.max(1);
        if filter.state == StateFilter::Pending {
            return self.list_open(reader, filter, limit, after).await;
        }
        let (mut page, mut before, mut looked_at) = (QuestionPage::default(), after.map(|place| place.id), 0);
        while looked_at < LOOKED_AT_MAX {
            let read = self.0.store.question_page(before, READ_LEN).await?;
            let is_last = read.len() < READ_LEN;
            for question in read {
                if page.questions.len() == limit {
                    page.next = page.questions.last().map(|last| QuestionCursor::behind(last));
                    return Ok(page);
                }
                before = Some(question.id);
                page.next = Some(QuestionCursor::behind(&question));
                looked_at += 1;
                if fits(&question, reader, filter) {
                    page.questions.push(question);
                }
            }
            if is_last {
                page.next = None;
                break;
            }
        }
        Ok(page)
    }

    /// The most urgent first, then the oldest.
    async fn list_open(
        &self,
        reader: &Reader<'_>,
        filter: &QuestionFilter,
        limit: usize,
        after: Option<QuestionCursor>,
    ) -> Result<QuestionPage, BrokerError> {
        let mut questions = self.0.store.open_questions().await?;
        let is_behind = |question: &Question| {
            after.is_none_or(|place| {
                (std::cmp::Reverse(question.urgency), question.id) > (std::cmp::Reverse(place.urgency), place.id)
            })
        };
        questions.retain(|question| is_behind(question) && fits(question, reader, filter));
        questions.sort_unstable_by_key(|question| waiting_order(question));
        let has_more = questions.len() > limit;
        questions.truncate(limit);
        let next = questions
            .last()
            .filter(|_| has_more)
            .map(|last| QuestionCursor::behind(last));
        Ok(QuestionPage { questions, next })
    }

    /// The questions of a session that are open, or closed while it has not acknowledged the message about it; the
    /// oldest first.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn open_questions_of(&self, asker: &Member) -> Result<Vec<Arc<Question>>, BrokerError> {
        let session = asker.record.id;
        let mut questions = self.0.store.open_questions().await?;
        questions.retain(|question| question.asker.session == session);
        let closed = self.0.store.question_page(None, UNREAD_LOOKED_AT_MAX).await?;
        let closed = closed.into_iter().filter(|question| !question.is_open());
        let told = closed.filter(|question| question.asker.session == session && question.notice.is_some());
        let told: Vec<_> = told.collect();
        let notices: Vec<_> = told.iter().filter_map(|question| question.notice).collect();
        if !notices.is_empty() {
            let statuses = self.0.store.message_statuses(notices, now()).await?;
            let is_unread = |status: &crate::model::RecipientStatus| {
                matches!(status.status, DeliveryStatus::Queued | DeliveryStatus::Delivered)
            };
            let unread = told
                .into_iter()
                .zip(statuses)
                .filter(|(_, status)| status.iter().flatten().any(is_unread));
            questions.extend(unread.map(|(question, _)| question));
        }
        questions.sort_unstable_by_key(|question| question.id);
        Ok(questions)
    }
}

fn fits(question: &Question, reader: &Reader<'_>, filter: &QuestionFilter) -> bool {
    let state = question.state_str();
    let is_of = |asker: &String| {
        let name = question.asker.name.as_ref().map(SessionName::as_str);
        name == Some(asker) || question.asker.session.to_string() == *asker
    };
    let has_text = |text: &String| {
        let text = text.to_lowercase();
        let name = question.asker.name.as_ref().map(|name| name.as_str().to_lowercase());
        question.summary.to_lowercase().contains(&text) || name.is_some_and(|name| name.contains(&text))
    };
    (filter.state == StateFilter::All || filter.state.as_str() == state)
        && filter.to.as_ref().is_none_or(|to| question.to.as_str() == to)
        && filter.asker.as_ref().is_none_or(is_of)
        && filter.text.as_ref().is_none_or(has_text)
        && reader.may_read(question)
}
