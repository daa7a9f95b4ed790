//! A question as people and administrators see it.

use actors::{
    clock::{now, rfc3339_text},
    model::{
        Answer, AnsweredBy, Closing, Image, Question, QuestionClaim, QuestionContent, QuestionState, SessionStatus,
    },
    project::ProjectHandle,
};
use serde_json::{Value, json};

/// The view of a question: with its content the whole of it, without only what lists show.
///
/// ```json
/// {"question_id": "0198…", "revision": 3, "state": "pending", "desk_state": "claimed", "urgency": "high", "to": "desk",
///  "asker": {"session_id": "…", "name": "alice", "status": "active", "away_seconds": 0}, "summary": "Drop the table?",
///  "claimed_by": {"human": "mara", "console": "…", "until": "…", "typing": true}, "position": null, …}
/// ```
pub fn question_view(project: &ProjectHandle, question: &Question, content: Option<&QuestionContent>) -> Value {
    let mut view = record_view(question, content, content.is_some());
    view["asker"] = asker_json(project, question);
    view["position"] = json!(project.queue_position(question.id));
    view
}

/// The view without what only this broker knows: whether the asker is there, and the place in the queue. Images have no data
/// unless `has_images`.
pub fn record_view(question: &Question, content: Option<&QuestionContent>, has_images: bool) -> Value {
    let mut view = json!({
        "question_id": question.id,
        "revision": question.revision,
        "state": question.state_str(),
        "asked_at": rfc3339_text(question.asked_at_ms()),
        "expires_at": question.expires_at_ms.map(rfc3339_text),
        "urgency": question.urgency,
        "to": question.to,
        "asker": {"session_id": question.asker.session, "name": question.asker.name},
        "summary": question.summary,
        "sensitive": question.is_sensitive,
        "offered_to": Value::Null,
        "claimed_by": Value::Null,
        "handover": question.handover.as_ref().map(|handover| json!({
            "from": handover.from, "to": handover.to, "note": handover.note, "at": rfc3339_text(handover.at_ms),
        })),
        "seen_at": question.seen_at_ms.map(rfc3339_text),
        "has_more": has_more(question),
    });
    add_state(&mut view, question, has_images);
    if let (Some(view), Some(content)) = (view.as_object_mut(), content)
        && let Value::Object(members) = content_json(content)
    {
        view.extend(members);
        if !has_images {
            view.insert("images".to_owned(), json!(without_data(&content.images)));
        }
    }
    view
}

/// The person who closed a question.
fn by_json(by: &AnsweredBy) -> Value {
    let mut object = json!({"human": by.human, "via": by.via});
    if by.is_agent {
        object["kind"] = json!("agent");
    }
    object
}

fn asker_json(project: &ProjectHandle, question: &Question) -> Value {
    let member = project.directory().by_id(question.asker.session);
    let status = member.as_ref().map(|member| project.status(member));
    let away = member.filter(|_| status != Some(SessionStatus::Active)).map(|member| {
        let away_ms = now().unix_ms.saturating_sub(member.shared.last_seen_unix_ms());
        away_ms / 1_000
    });
    json!({
        "session_id": question.asker.session,
        "name": question.asker.name,
        "status": status.unwrap_or(SessionStatus::Disconnected).as_str(),
        "away_seconds": away.unwrap_or(0),
    })
}

/// Whether the content says more than the summary.
fn has_more(question: &Question) -> bool {
    question.content_bytes > QuestionContent::text(question.summary.as_str()).stored_len()
}

fn add_state(view: &mut Value, question: &Question, is_whole: bool) {
    let desk_state = match &question.state {
        QuestionState::Waiting => "waiting",
        QuestionState::Offered(offer) => {
            view["offered_to"] = json!({"human": offer.human, "console": offer.console.to_string()});
            "offered"
        }
        QuestionState::Claimed(claim) => {
            view["claimed_by"] = claim_json(claim);
            "claimed"
        }
        QuestionState::Closed(closed) => {
            let at = rfc3339_text(closed.at_ms);
            let word = closed.how.as_str();
            view[format!("{word}_at")] = json!(at);
            match &closed.how {
                Closing::Answered { by, answer } => {
                    view["answered_by"] = by_json(by);
                    view["answer"] = shown_answer(answer, question.is_sensitive, is_whole);
                    if let Some(deleted_ms) = question.answer_deleted_ms {
                        view["answer_deleted_at"] = json!(rfc3339_text(deleted_ms));
                    }
                }
                Closing::Declined { by, reason } => {
                    view["declined_by"] = by_json(by);
                    view["reason"] = json!(reason);
                }
                Closing::Expired => view["default"] = json!(question.on_expiry),
                Closing::Cancelled { by, reason } => {
                    view["by"] = json!(by);
                    view["reason"] = json!(reason);
                }
            }
            return;
        }
    };
    view["desk_state"] = json!(desk_state);
}

fn claim_json(claim: &QuestionClaim) -> Value {
    json!({
        "human": claim.human,
        "console": claim.console.map(|console| console.to_string()),
        "until": rfc3339_text(claim.until_ms),
        "typing": claim.is_typing(now()),
    })
}

/// The answer as history shows it: none of a sensitive question, and images only in the whole view.
fn shown_answer(answer: &Answer, is_sensitive: bool, is_whole: bool) -> Value {
    if is_sensitive {
        return Value::Null;
    }
    if is_whole || answer.images.is_empty() {
        return json!(answer);
    }
    json!(Answer {
        images: without_data(&answer.images),
        ..answer.clone()
    })
}

fn without_data(images: &[Image]) -> Vec<Image> {
    let mimes = images.iter().map(|image| image.mime.clone());
    mimes
        .map(|mime| Image {
            mime,
            data: String::new(),
        })
        .collect()
}

/// The members of the view that are the content.
pub fn content_json(content: &QuestionContent) -> Value {
    let mut view = json!({"links": content.links, "images": content.images});
    if let Some(context) = &content.context {
        view["context"] = json!(context);
    }
    match content.items.as_slice() {
        [item] if !content.is_form => {
            view["question"] = json!(item.question);
            view["options"] = json!(item.options);
            view["multi_select"] = json!(item.multi_select);
            view["allow_other"] = json!(item.allow_other);
        }
        items => {
            let items = items.iter().map(|item| {
                json!({
                    "id": item.id, "question": item.question, "options": item.options,
                    "multi_select": item.multi_select, "allow_other": item.allow_other, "required": item.required,
                })
            });
            view["questions"] = items.collect();
        }
    }
    view
}
