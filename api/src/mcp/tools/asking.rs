//! The tools by which an agent asks people: `clarify`, `get_answer`, `cancel_question`, `permission_prompt`; and `yap`, by
//! which it shows them something.
//!
//! A question is stored; these calls only look at it. So a call that ends early loses nothing: the question lives on, and
//! its end comes to the inbox of the asker, unless a call has handed it over before.

mod elicitation;
mod permission;
mod wait;

use std::sync::Arc;

use actors::{
    desk::{NewYap, Reader},
    model::{BrokerError, Scope, YAP_CHARACTERS_MAX},
};
use serde_json::{Value, json};

use super::{
    schema::{integer_schema, string_schema, with_description},
    tool::{ASKING, Called, IDEMPOTENT, Tool, ToolCaller},
};
use crate::{
    mcp::reply::ReplyTo,
    verbs::{
        WAIT_MAX,
        arguments::Arguments,
        questions::{self, WAIT_DEFAULT_SECONDS},
    },
};
pub use elicitation::read_input;
pub use permission::PERMISSION_PROMPT;
use wait::{Wait, own_question};

fn wait_schema(default: f64) -> Value {
    let text = format!("0 to {}, default {default}.", WAIT_MAX.as_secs());
    with_description(json!({"type": "number"}), &text)
}

fn list_schema(description: &str) -> Value {
    with_description(json!({"type": "array"}), description)
}

fn flag_schema(description: &str) -> Value {
    with_description(json!({"type": "boolean"}), description)
}

/// The members of a result about one question.
fn result_schema() -> Value {
    json!({
        "question_id": string_schema(""),
        "state": {"enum": ["pending", "answered", "declined", "expired", "cancelled"]},
        "summary": string_schema(""),
        "answer": {"type": ["object", "null"]},
        "next": string_schema(""),
    })
}

/// `clarify`.
pub const CLARIFY: Tool = Tool {
    name: "clarify",
    title: "Ask a human",
    description: "Ask a human. The question outlives this call; its answer also comes to your inbox.",
    hints: ASKING,
    required_scope: Scope::Member,
    input: || {
        let properties = json!({
            "question": string_schema("Unless questions."),
            "questions": list_schema("A form of {id, question, options?, multi_select?, allow_other?, required?}."),
            "context": string_schema("Markdown."),
            "options": list_schema("Texts or {value, label, description?}."),
            "multi_select": flag_schema("Several options."),
            "allow_other": flag_schema("Default true: own words."),
            "urgency": {"enum": ["low", "medium", "high"], "description": "Default medium."},
            "to": string_schema("Person or role; default desk: any person."),
            "wait_seconds": wait_schema(WAIT_DEFAULT_SECONDS),
            "expires_in_seconds": integer_schema("60 to 2592000, default 86400; 0, with to: never."),
            "on_expiry": with_description(json!({}), "{value}: returned as default."),
            "idempotency_key": string_schema("The same key waits on."),
            "links": list_schema("Each {title, uri}."),
            "images": list_schema("Each {mime, data}."),
            "sensitive": flag_schema("A secret: answered on the desk page only."),
        });
        (properties, &[])
    },
    output: || (result_schema(), &["question_id", "state", "summary"]),
    acts_as_session: true,
    exclusive: false,
    run: clarify,
};

fn clarify(caller: &ToolCaller, mut arguments: Arguments<'_>, to: &ReplyTo) -> Result<Called, BrokerError> {
    let new = questions::read_question(&mut arguments)?;
    let longest = arguments.seconds("wait_seconds", WAIT_DEFAULT_SECONDS, WAIT_MAX.as_secs_f64())?;
    arguments.finish()?;
    let member = Arc::clone(caller.session()?);
    let wait = Wait::new(caller, to, longest);
    Ok(wait
        .into_call(async move |wait| {
            let content = Arc::new(new.content.clone());
            let question = match wait.round().await? {
                Some(question) => question,
                None => wait.caller.project().ask(&member, new).await?.question,
            };
            if let Some(result) = wait.input_required(&question, &content) {
                return Ok(result);
            }
            wait.answer_of(question, Some(content)).await
        })
        .into())
}

/// `get_answer`.
pub const GET_ANSWER: Tool = Tool {
    name: "get_answer",
    title: "Answer to a question",
    description: "The answer to a question, or its state. Without an id: all of yours that are open or unread.",
    hints: IDEMPOTENT,
    required_scope: Scope::Member,
    input: || {
        let properties = json!({
            "question_id": string_schema("From clarify."),
            "wait_seconds": wait_schema(0.0),
            "cancel": flag_schema("Withdraw the question."),
            "reason": string_schema("Why, for the humans."),
        });
        (properties, &[])
    },
    output: || {
        let mut properties = result_schema();
        properties["questions"] = json!({"type": "array", "items": {"type": "object"}});
        (properties, &["summary"])
    },
    acts_as_session: false,
    exclusive: false,
    run: get_answer,
};

fn get_answer(caller: &ToolCaller, mut arguments: Arguments<'_>, to: &ReplyTo) -> Result<Called, BrokerError> {
    let id = questions::read_id(&mut arguments)?;
    let longest = arguments.seconds("wait_seconds", 0.0, WAIT_MAX.as_secs_f64())?;
    let is_cancelled = arguments.optional::<bool>("cancel")?.unwrap_or(false);
    let reason = if is_cancelled {
        questions::read_reason(&mut arguments)?
    } else {
        None
    };
    arguments.finish()?;
    let Some(id) = id else {
        if is_cancelled {
            return Err(BrokerError::invalid("question_id", "required with cancel"));
        }
        caller.session()?;
        let mut call = Wait::new(caller, to, longest).into_call(async |wait| wait.answers_of_all().await);
        call.has_page = longest.is_zero();
        return Ok(call.into());
    };
    let wait = Wait::new(caller, to, longest);
    Ok(wait
        .into_call(async move |wait| {
            let question = if is_cancelled {
                let reader = Reader::Asker(wait.caller.owner());
                wait.caller.project().cancel_question(id, &reader, reason).await?
            } else {
                own_question(&wait.caller, id).await?
            };
            wait.answer_of(question, None).await
        })
        .into())
}

/// `cancel_question`.
pub const CANCEL_QUESTION: Tool = Tool {
    name: "cancel_question",
    title: "Withdraw a question",
    description: "Withdraw a question of yours. A closed one stays as it is.",
    hints: IDEMPOTENT,
    required_scope: Scope::Member,
    input: || {
        let properties = json!({
            "question_id": string_schema("From clarify."),
            "reason": string_schema("For the humans."),
        });
        (properties, &["question_id"])
    },
    output: || {
        let properties = json!({"question_id": string_schema(""), "state": string_schema("")});
        (properties, &["question_id", "state"])
    },
    acts_as_session: false,
    exclusive: false,
    run: cancel_question,
};

fn cancel_question(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let id = questions::read_id(&mut arguments)?.ok_or_else(|| BrokerError::invalid("question_id", "required"))?;
    let reason = questions::read_reason(&mut arguments)?;
    arguments.finish()?;
    Ok(Called::later(caller, async move |caller| {
        let reader = Reader::Asker(caller.owner());
        let question = caller.project().cancel_question(id, &reader, reason).await?;
        let state = question.closed().map_or("pending", |closed| closed.how.as_str());
        Ok(json!({"question_id": id, "state": state}).into())
    }))
}

/// `yap`.
pub const YAP: Tool = Tool {
    name: "yap",
    title: "Show a note",
    description: "Show a short note to the people at the desk. No answer comes.",
    hints: ASKING,
    required_scope: Scope::Member,
    input: || {
        let properties = json!({
            "message": string_schema(&format!("At most {YAP_CHARACTERS_MAX} characters.")),
            "mode": {"enum": NewYap::MODES, "description": "How much."},
            "category": string_schema("A word, such as progress."),
            "task_context": string_schema("The task."),
        });
        (properties, &["message"])
    },
    output: || {
        let properties = json!({
            "yap_id": string_schema(""), "shown_to": integer_schema(""), "kept": {"type": "boolean"},
        });
        (properties, &["yap_id", "shown_to", "kept"])
    },
    acts_as_session: true,
    exclusive: false,
    run: yap,
};

fn yap(caller: &ToolCaller, mut arguments: Arguments<'_>, _: &ReplyTo) -> Result<Called, BrokerError> {
    let yap = NewYap {
        message: arguments.required_text("message")?.into_owned(),
        mode: arguments.text("mode")?.map(Into::into),
        category: arguments.text("category")?.map(Into::into),
        task_context: arguments.text("task_context")?.map(Into::into),
        sent_at_ms: None,
    };
    arguments.finish()?;
    yap.check()?;
    let member = Arc::clone(caller.session()?);
    Ok(Called::later(caller, async move |caller| {
        let accepted = caller.project().yap(&member, yap).await?;
        Ok(json!({"yap_id": accepted.id, "shown_to": accepted.shown_to, "kept": true}).into())
    }))
}
