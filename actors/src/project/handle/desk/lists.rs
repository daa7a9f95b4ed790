//! Lists of questions.

use std::sync::Arc;

use crate::{
    clock::now,
    desk::{QuestionCursor, QuestionFilter, QuestionPage, Reader, StateFilter, waiting_order},
    model::{BrokerError, DeliveryStatus, Question, SessionName},
    project::ProjectHandle,
    session::Member,
};

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
