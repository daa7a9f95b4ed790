//! The message that notifies an asker of the end of its question. Pure.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    clock::Now,
    model::{
        Addressing, Closing, Headers, Message, MessageId, NewMessage, Priority, ProjectId, Question, SessionRecord,
        Urgency,
    },
    registry::builtin::HUMAN_ANSWER,
};

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
