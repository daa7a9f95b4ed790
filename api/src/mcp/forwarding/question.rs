//! A question of a backend as its caller gets it: whether the caller can answer it, who asks, and what the era of the caller
//! wants of one in URL mode. There a person opens a page, and what is entered there passes neither client nor broker
//! (2025-11-25, client/elicitation).

use std::{borrow::Cow, sync::Arc};

use actors::{
    gateway::{BackendShared, BackendView, InputRequest, Link},
    json,
    model::BackendEra,
};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};
use uuid::Uuid;

use super::request::Input;
use crate::mcp::{
    context::PeerContext,
    interactive::{accepts_forms, accepts_urls},
    rpc::{INVALID_REQUEST, MISSING_CAPABILITY, RpcError},
};
use common::json::{
    frame::{self, JsonText},
    scan::{self, ScanError},
};

/// Questions that are asked at once.
pub const QUESTIONS_MAX: usize = 16;
/// The answer to a further one.
pub const TOO_MANY_QUESTIONS: &str =
    r#"{"code":-32603,"message":"the caller has not answered the questions before this one"}"#;

const ELICITATION: &str = "elicitation/create";
/// Legacy clients know a page by this member. Modern ones have none.
const ELICITATION_ID: &str = "elicitationId";
/// What the keys of the pages begin with that a modern caller is asked to open before its call is sent again.
pub const URL_KEY: &str = "url-";
/// The code with which a legacy backend refuses a call until its caller has opened a page.
const URLS_REQUIRED: i64 = -32042;

/// The era of the running instance.
fn era_of(view: &BackendView) -> Option<BackendEra> {
    view.link.as_ref().map(|link| link.era())
}

/// Checks that a caller with these capabilities can answer a question.
///
/// # Errors
/// What it has not declared.
pub fn can_answer(capabilities: &Map<String, Value>, question: &InputRequest) -> Result<(), RpcError> {
    let (is_declared, name) = match &*question.method {
        ELICITATION if is_url(question) => (accepts_urls(capabilities), "elicitation.url"),
        ELICITATION => (accepts_forms(capabilities), "elicitation"),
        "sampling/createMessage" => (capabilities.contains_key("sampling"), "sampling"),
        _ => (capabilities.contains_key("roots"), "roots"),
    };
    if is_declared {
        return Ok(());
    }
    let reason = format!("the caller of this call has not declared {name}");
    Err(RpcError::new(INVALID_REQUEST, reason))
}

/// Answers a question in the place of a caller that cannot.
pub fn answer_in_place(link: &dyn Link, question: &InputRequest, error: &RpcError) {
    match &*question.method {
        "roots/list" => link.answer(question, Ok("{\"roots\":[]}")),
        _ => link.answer(question, Err(&error.to_json().to_string())),
    }
}

/// A question of a legacy backend and those that it asks at the same time, without those that its caller cannot answer. These are
/// answered here.
pub fn answerable(
    capabilities: &Map<String, Value>,
    link: &dyn Link,
    first: InputRequest,
    beside: Vec<InputRequest>,
) -> Vec<InputRequest> {
    let mut questions = vec![first];
    for question in beside {
        match can_answer(capabilities, &question) {
            Ok(()) if questions.len() < QUESTIONS_MAX => questions.push(question),
            Ok(()) => link.answer(&question, Err(TOO_MANY_QUESTIONS)),
            Err(error) => answer_in_place(link, &question, &error),
        }
    }
    questions
}

fn is_url(question: &InputRequest) -> bool {
    &*question.method == ELICITATION && json::member(&question.params, "mode") == Some("\"url\"")
}

/// Whether questions say which backend asks: people must know it where their client sees several.
pub fn names_backends(context: &PeerContext) -> bool {
    let gateway = context.project.gateway();
    let only = gateway.and_then(|gateway| context.exposure.only_backend(&gateway.shared().offered()));
    only.is_none()
}

/// The params of a question with the name of the backend before its message.
pub fn named(backend: &BackendShared, method: &str, params: &str) -> String {
    let named = json::replace_values::<ScanError>(params, |key, value| {
        let message = scan::string(value).filter(|_| key == "message" && method == ELICITATION);
        Ok(message.map(|message| json::string(&format!("{}: {message}", backend.name))))
    });
    named.unwrap_or_else(|_| params.to_owned())
}

/// The params of a question as its caller sees them.
pub fn params_for_caller(
    context: &PeerContext,
    backend: &BackendShared,
    question: &InputRequest,
    to_modern: bool,
) -> String {
    let params = if names_backends(context) {
        named(backend, &question.method, &question.params)
    } else {
        question.params.to_string()
    };
    let Some(members) = json::members(&params).ok().filter(|_| is_url(question)) else {
        return params;
    };
    let has_id = members.iter().any(|(key, _)| key == ELICITATION_ID);
    let id = (!to_modern && !has_id).then(|| json::string(&Uuid::new_v4().to_string()));
    let kept = members.iter().filter(|(key, _)| !to_modern || key != ELICITATION_ID);
    let kept = kept.map(|(key, value)| (&**key, *value));
    object(kept.chain(id.iter().map(|id| (ELICITATION_ID, id.as_str()))))
}

/// Remembers that a legacy caller is asked to open a page, to tell it when the backend tells that the page is complete.
pub fn note_asked(context: &PeerContext, backend: &BackendShared, question: &InputRequest) {
    let Some(id) = json::member(&question.params, ELICITATION_ID).filter(|_| is_url(question)) else {
        return;
    };
    let Some(id) = scan::string(id) else { return };
    let frame = frame::notification("notifications/elicitation/complete", json!({ELICITATION_ID: id})).into_bytes();
    let outbox = Arc::downgrade(&context.outbox);
    backend.urls.note(&id, move || {
        if let Some(outbox) = outbox.upgrade() {
            outbox.send(&*frame);
        }
    });
}

/// The pages that a legacy backend wants its caller to open before it carries the call out. `None` for any other error.
pub fn required_urls(error: &[u8]) -> Option<Vec<InputRequest>> {
    #[derive(Deserialize)]
    struct Refusal<'a> {
        code: i64,
        #[serde(borrow)]
        data: Required<'a>,
    }
    #[derive(Deserialize)]
    struct Required<'a> {
        #[serde(borrow)]
        elicitations: Vec<&'a RawValue>,
    }
    let refusal: Refusal<'_> = serde_json::from_slice(error).ok()?;
    let asked = refusal.data.elicitations;
    let questions: Vec<_> = asked
        .iter()
        .map(|params| InputRequest {
            id: "null".into(),
            method: ELICITATION.into(),
            params: params.get().into(),
        })
        .collect();
    let are_urls = (1..=QUESTIONS_MAX).contains(&questions.len()) && questions.iter().all(is_url);
    (refusal.code == URLS_REQUIRED && are_urls).then_some(questions)
}

/// The error of a legacy backend that requires these pages, for a legacy caller.
pub fn urls_required(context: &PeerContext, backend: &BackendShared, error: &[u8], pages: &[InputRequest]) -> String {
    let asked: Vec<_> = pages
        .iter()
        .map(|question| {
            note_asked(context, backend, question);
            params_for_caller(context, backend, question, false)
        })
        .collect();
    let error = str::from_utf8(error).unwrap_or_default();
    let data = json::member(error, "data").unwrap_or_default();
    let data = with_member(data, "elicitations", &format!("[{}]", asked.join(",")));
    with_member(error, "data", &data)
}

/// The error for a modern caller that cannot open the pages that a legacy backend requires.
pub fn cannot_open_urls() -> RpcError {
    let data = json!({"requiredCapabilities": {"elicitation": {"url": {}}}});
    RpcError::new(MISSING_CAPABILITY, "Missing required client capability").with_data(data)
}

/// Checks that a modern caller that calls a legacy backend again has opened the pages that it was asked to open. Otherwise the
/// backend would ask it again and again.
///
/// # Errors
/// It has declined.
pub fn check_opened(backend: &BackendShared, input: &Input) -> Result<(), RpcError> {
    let may_be_legacy = era_of(&backend.view()) != Some(BackendEra::Modern);
    let responses = input.responses.as_deref().filter(|_| may_be_legacy);
    let responses: Map<String, Value> = responses
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let is_declined = |(key, response): (&String, &Value)| {
        key.starts_with(URL_KEY) && matches!(response["action"].as_str(), Some("decline" | "cancel"))
    };
    if !responses.iter().any(is_declined) {
        return Ok(());
    }
    let reason = format!("the URL that the backend {} needs was not opened", backend.name);
    Err(RpcError::new(INVALID_REQUEST, reason))
}

/// The object with another value of this member.
fn with_member(text: &str, member: &str, value: &str) -> String {
    let members: Vec<(Cow<'_, str>, &str)> = json::members(text).unwrap_or_default();
    object(
        members
            .iter()
            .map(|(key, known)| (&**key, if key == member { value } else { known })),
    )
}

fn object<'a>(members: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = Vec::new();
    json::write_object(&mut out, members);
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_requires_pages_is_told_from_others() {
        let page = r#"{"mode":"url","elicitationId":"a","url":"https://a","message":"m"}"#;
        let refusal = |code: i64, pages: &[&str]| {
            let pages = pages.join(",");
            format!(r#"{{"code":{code},"message":"open","data":{{"elicitations":[{pages}]}}}}"#).into_bytes()
        };
        let asked = required_urls(&refusal(-32042, &[page, page])).unwrap();
        assert_eq!((asked.len(), &*asked[1].params), (2, page));
        for other in [
            refusal(-32042, &[]),
            refusal(-32042, &["{}"]),
            refusal(-32042, &["1"]),
            refusal(-32042, &[page; QUESTIONS_MAX + 1]),
            refusal(-32602, &[page]),
            b"{\"code\":-32042,\"message\":\"open\"}".to_vec(),
            b"1".to_vec(),
        ] {
            assert!(required_urls(&other).is_none(), "{}", String::from_utf8_lossy(&other));
        }
    }
}
