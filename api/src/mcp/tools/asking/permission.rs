//! `permission_prompt`: the tool that `claude --permission-prompt-tool` calls before it uses another tool.
//!
//! Its result is exactly the JSON that Claude Code reads, as one text and nothing else: `{"behavior": "allow", "updatedInput": {…}}` or
//! `{"behavior": "deny", "message": "…", "interrupt": true}`.

use std::{sync::Arc, time::Duration};

use actors::{
    desk::{NewQuestion, Reader},
    model::{
        AddressedTo, AnswerPart, BrokerError, CONTEXT_BYTES_MAX, Closing, Question, QuestionChoice, QuestionContent,
        QuestionItem, Scope, TYPING_GRACE_MAX, Urgency,
    },
    session::Member,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::wait::{Wait, WaitEnd};
use crate::{
    mcp::{
        client::PeerKind,
        pending_receive::PendingNotices,
        reply::{ReplyTo, ResultForm, ToolResult},
        tools::{
            schema::{string_schema, with_description},
            tool::{ASKING, Called, Tool, ToolCaller},
        },
    },
    verbs::{arguments::Arguments, questions::PERMISSION_KEYS},
};
use common::json::write_json;

/// How long the agent is blocked by a question, unless a person types: then the tool is denied.
const LIFE: Duration = Duration::from_secs(600);
/// How long the call waits at most: longer than the question lives, so that the end of the question is its answer.
const WAIT: Duration = LIFE
    .saturating_add(TYPING_GRACE_MAX)
    .saturating_add(Duration::from_secs(30));
/// Bytes of the input of the tool.
const INPUT_BYTES_MAX: usize = 1024 * 1024;
/// Characters of the names of tools and uses.
const NAME_CHARACTERS_MAX: usize = 256;

const ALLOW: &str = "allow";
const DENY: &str = "deny";
const DENY_AND_STOP: &str = "deny_and_stop";

/// `permission_prompt`.
pub const PERMISSION_PROMPT: Tool = Tool {
    name: "permission_prompt",
    title: "Ask a human for permission",
    description: "For claude --permission-prompt-tool only.",
    hints: ASKING,
    required_scope: Scope::Member,
    input: || {
        let properties = json!({
            "tool_name": string_schema("The tool."),
            "input": with_description(json!({"type": "object"}), "Its arguments."),
            "tool_use_id": string_schema("The use."),
        });
        (properties, &["tool_name", "input"])
    },
    output: || {
        let properties = json!({"behavior": {"enum": ["allow", "deny"]}});
        (properties, &["behavior"])
    },
    acts_as_session: true,
    exclusive: false,
    run: permission_prompt,
};

fn permission_prompt(caller: &ToolCaller, mut arguments: Arguments<'_>, to: &ReplyTo) -> Result<Called, BrokerError> {
    let tool = arguments.required_text("tool_name")?;
    let id = arguments.text("tool_use_id")?;
    for (name, text) in [("tool_name", Some(&tool)), ("tool_use_id", id.as_ref())] {
        if text.is_some_and(|text| text.chars().count() > NAME_CHARACTERS_MAX) {
            let reason = format!("at most {NAME_CHARACTERS_MAX} characters");
            return Err(BrokerError::invalid(name, reason));
        }
    }
    let input = arguments.required_raw("input")?;
    if input.len() > INPUT_BYTES_MAX {
        return Err(BrokerError::PayloadTooLarge { limit: INPUT_BYTES_MAX });
    }
    let parsed: Value = serde_json::from_str(input).map_err(|_| BrokerError::invalid("input", "an object of JSON"))?;
    if !parsed.is_object() {
        return Err(BrokerError::invalid("input", "an object"));
    }
    let input = input.to_owned();
    let new = question_about(&tool, &parsed, id.map(|id| key_of(&id, &tool, input.as_str())));
    arguments.finish()?;
    let wait = Wait::new(caller, to, WAIT);
    Ok(wait
        .into_call(async move |wait| {
            let member = asker(&wait.caller).await?;
            let question = wait.caller.project().ask(&member, new).await?.question;
            let (mut question, end) = wait.until_end(question, WAIT, None).await?;
            if question.is_open() {
                // The tool is denied now, so that no person allows it later.
                let reader = Reader::Asker(wait.caller.owner());
                let reason = Some("the call that asked has ended".to_owned());
                question = wait
                    .caller
                    .project()
                    .cancel_question(question.id, &reader, reason)
                    .await?;
            }
            let mut result = ToolResult::of_form(decision(&question, end, &input), ResultForm::ExactText);
            result.notices = PendingNotices::of(wait.caller.project(), &member, [&question]);
            Ok(result)
        })
        .into())
}

/// The session that asks. Claude Code itself makes this call and passes no `session_id`: a stateless one gets a session
/// that ends with its request.
async fn asker(caller: &ToolCaller) -> Result<Arc<Member>, BrokerError> {
    match caller.session() {
        Err(BrokerError::SessionRequired) if caller.context.kind == PeerKind::Stateless => {
            caller.context.register_for_request().await
        }
        own => own.map(Arc::clone),
    }
}

/// The key of a question about one use of a tool. The same use with another input is another question.
fn key_of(id: &str, tool: &str, input: &str) -> String {
    let mut hash = Sha256::new();
    for part in [id, tool, input] {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    format!("{PERMISSION_KEYS}{}", URL_SAFE_NO_PAD.encode(hash.finalize()))
}

fn question_about(tool: &str, input: &Value, key: Option<String>) -> NewQuestion {
    let choice = |value: &str, label: &str| QuestionChoice {
        value: value.to_owned(),
        label: label.to_owned(),
        description: None,
    };
    let item = QuestionItem {
        id: String::new(),
        question: format!("May the agent use {tool}?"),
        options: vec![
            choice(ALLOW, "Allow"),
            choice(DENY, "Deny"),
            choice(DENY_AND_STOP, "Deny and stop the agent"),
        ],
        multi_select: false,
        allow_other: true,
        required: false,
    };
    NewQuestion {
        content: QuestionContent {
            items: vec![item],
            context: Some(shown_input(input)),
            ..QuestionContent::default()
        },
        urgency: Urgency::High,
        to: AddressedTo::Anyone,
        expires_in: Some(LIFE),
        idempotency_key: key,
        ..NewQuestion::default()
    }
}

/// The input as people read it, cut at the bound of a context.
fn shown_input(input: &Value) -> String {
    const BEFORE: &str = "```json\n";
    const AFTER: &str = "\n```";
    const CUT: &str = "\n… (cut: the input is longer than a question may be)";
    let text = serde_json::to_string_pretty(input).unwrap_or_default();
    let room = CONTEXT_BYTES_MAX - BEFORE.len() - AFTER.len() - CUT.len();
    if text.len() <= room {
        return format!("{BEFORE}{text}{AFTER}");
    }
    let end = (0..=room).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{BEFORE}{}{AFTER}{CUT}", &text[..end])
}

/// The result for Claude Code.
fn decision(question: &Question, end: WaitEnd, input: &str) -> Vec<u8> {
    let deny = |message: &str, stops: bool| {
        let mut object = json!({"behavior": "deny", "message": message});
        if stops {
            object["interrupt"] = json!(true);
        }
        let mut out = Vec::new();
        write_json(&mut out, &object);
        out
    };
    let unanswered = match end {
        WaitEnd::Stopping => "the broker stopped before a person answered",
        WaitEnd::Closed | WaitEnd::TimeOut => "no person answered",
    };
    let Some(closed) = question.closed() else {
        return deny(unanswered, false);
    };
    match &closed.how {
        Closing::Answered { by, answer } => {
            let AnswerPart { selected, other, text } = &answer.part;
            let said = other.as_ref().or(text.as_ref());
            match selected.first().map(String::as_str) {
                Some(ALLOW) => format!("{{\"behavior\":\"allow\",\"updatedInput\":{input}}}").into_bytes(),
                chosen => {
                    let default = format!("{} denied it", by.human);
                    deny(said.unwrap_or(&default), chosen == Some(DENY_AND_STOP))
                }
            }
        }
        Closing::Declined { by, reason } => {
            let default = format!("{} declined to decide", by.human);
            deny(reason.as_ref().unwrap_or(&default), false)
        }
        Closing::Expired => deny(unanswered, false),
        // By this call.
        Closing::Cancelled { .. } if end != WaitEnd::Closed => deny(unanswered, false),
        Closing::Cancelled { .. } => deny("the question was cancelled", false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_input_is_cut_to_what_a_question_may_have() {
        let short = shown_input(&json!({"command": "ls"}));
        assert_eq!(short, "```json\n{\n  \"command\": \"ls\"\n}\n```");
        let long = shown_input(&json!({"content": "é".repeat(100_000)}));
        assert!(
            long.len() <= CONTEXT_BYTES_MAX && long.ends_with("may be)"),
            "{}",
            long.len()
        );
    }
}
