//! What a command says of a refusal by the broker. The broker's texts advise agents and name tools; a command names commands.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use ureq::http::{HeaderValue, Response, StatusCode, header};

use super::access::BrokerAccess;
use super::error::ClientError;
use super::table::escaped;
use common::config::API_KEY_ENV;

/// The most characters of a text of the broker that are shown.
const DETAIL_CHARS_MAX: usize = 500;
/// The most places at which a payload does not fit that are named.
const FAILURES_MAX: usize = 5;

/// What to do about a refusal, in commands.
struct Advice {
    code: &'static str,
    /// Where the advice of the broker begins, which is left out. A text without it gets no other advice.
    instead_of: &'static str,
    next: &'static str,
}

const fn advice(code: &'static str, instead_of: &'static str, next: &'static str) -> Advice {
    Advice { code, instead_of, next }
}

/// The advice for each code, the first that fits. An empty `instead_of` fits every text.
const ADVICE: &[Advice] = &[
    advice(
        "session_not_found",
        "; call register_session",
        "mcp-broker sessions --status all lists the sessions",
    ),
    advice(
        "session_not_found",
        ": list_sessions",
        "mcp-broker sessions --status all lists the sessions",
    ),
    advice("session_required", ": call register_session", "name one with --from"),
    advice(
        "session_taken_over",
        ": call register_session",
        "repeat the command to take it back",
    ),
    advice(
        "protocol_not_found",
        "; discover_protocols",
        "mcp-broker protocols lists the protocols, mcp-broker protocols register FILE adds one",
    ),
    advice(
        "protocol_not_found",
        ", or register this one",
        "mcp-broker protocols register FILE adds another",
    ),
    advice(
        "incompatible_protocol",
        ": discover_protocols shows the lenses",
        "mcp-broker protocols usage NAME shows the lenses, mcp-broker protocols lens put adds one",
    ),
    advice(
        "transform_failed",
        "; transform_message",
        "mcp-broker protocols try shows what becomes of a payload",
    ),
    advice(
        "project_not_found",
        ": list_projects",
        "mcp-broker project list --include-inactive lists the projects",
    ),
    advice(
        "project_not_found",
        "",
        "mcp-broker project list --include-inactive lists the projects",
    ),
    advice(
        "project_exists",
        "",
        "choose another id, or change that project with mcp-broker project update",
    ),
    advice(
        "cross_project_disabled",
        ": set allow_cross_project",
        "mcp-broker project update PROJECT --allow-cross-project true allows it",
    ),
    advice(
        "cross_project_disabled",
        "",
        "mcp-broker project update PROJECT --allow-cross-project true allows it",
    ),
    advice(
        "cross_project_forbidden",
        ": see grant_project_access",
        "mcp-broker project grant FROM TO gives it",
    ),
    advice(
        "cross_project_forbidden",
        "",
        "mcp-broker project grant FROM TO --protocol NAME extends it",
    ),
    advice(
        "question_not_found",
        ": get_answer",
        "mcp-broker desk list lists the questions",
    ),
    advice(
        "queue_full",
        ": wait for answers with get_answer",
        "mcp-broker desk list lists the questions",
    ),
    advice(
        "invalid_argument",
        ": pass the session_id that",
        "give the name of the session",
    ),
];

/// The members of a problem document (RFC 9457) that are shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Problem {
    title: Option<String>,
    code: Option<String>,
    detail: Option<Value>,
    failures: Vec<Failure>,
    retry_after_ms: Option<u64>,
}

/// The error object of a tool of the broker.
#[derive(Debug, Deserialize)]
pub struct ToolError {
    code: String,
    message: String,
    detail: Option<Value>,
    retry_after_ms: Option<u64>,
}

/// A place at which a payload does not fit its schema.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Failure {
    path: String,
    reason: String,
}

/// Explains a response of another status than was asked for.
pub fn of_response<B>(access: &BrokerAccess, answer: &Response<B>, body: &str) -> ClientError {
    let status = answer.status();
    let problem: Problem = serde_json::from_str(body).unwrap_or_default();
    let Some(code) = problem.code else {
        return ClientError::new(unexpected_status(access, status));
    };
    let detail = match &problem.detail {
        Some(Value::String(detail)) => detail.clone(),
        Some(detail) if !detail.is_null() => detail.to_string(),
        _ => problem.title.clone().unwrap_or_else(|| status.to_string()),
    };
    let seconds = |value: &HeaderValue| value.to_str().ok()?.parse::<u64>().ok();
    let in_header = answer.headers().get(header::RETRY_AFTER).and_then(seconds);
    let in_body = problem.retry_after_ms.map(Duration::from_millis);
    let wait = in_body.or(in_header.map(Duration::from_secs));
    refused(access, code, &with_failures(detail, &problem.failures), wait)
}

/// Explains the refusal of a tool.
pub fn of_tool(access: &BrokerAccess, error: ToolError) -> ClientError {
    let mut text = error.message;
    if let Some(Value::String(detail)) = &error.detail {
        text = format!("{text}: {detail}");
    }
    let failures = error.detail.as_ref().and_then(|detail| detail.get("failures")).cloned();
    let failures = failures.and_then(|failures| serde_json::from_value::<Vec<Failure>>(failures).ok());
    let wait = error.retry_after_ms.map(Duration::from_millis);
    refused(
        access,
        error.code,
        &with_failures(text, &failures.unwrap_or_default()),
        wait,
    )
}

/// A refusal by the broker, with what to do about it.
pub fn refused(access: &BrokerAccess, code: String, detail: &str, retry_after: Option<Duration>) -> ClientError {
    let fits = |advice: &&Advice| advice.code == code && detail.contains(advice.instead_of);
    let advice = ADVICE.iter().find(fits);
    let fact = match advice {
        Some(advice) if !advice.instead_of.is_empty() => detail.split(advice.instead_of).next().unwrap_or(detail),
        _ => detail,
    };
    let line = format!("{}: {}", one_line(&code), one_line(fact));
    let next = match advice {
        Some(advice) => Some(advice.next.to_owned()),
        None => next_step(access, &code, retry_after),
    };
    let line = match next {
        Some(next) => format!("{line}; {next}"),
        None => line,
    };
    ClientError {
        line,
        code: Some(code),
        retry_after,
    }
}

/// A text with the places at which a payload does not fit. A text that names them already stays as it is.
fn with_failures(text: String, failures: &[Failure]) -> String {
    let is_named = |failure: &Failure| !failure.reason.is_empty() && text.contains(&failure.reason);
    if failures.is_empty() || failures.iter().take(FAILURES_MAX).all(is_named) {
        return text;
    }
    let shown = failures.iter().take(FAILURES_MAX).map(|failure| {
        let place = format!("{} {}", failure.path, failure.reason);
        place.trim().to_owned()
    });
    let mut shown: Vec<String> = shown.collect();
    match failures.len().saturating_sub(FAILURES_MAX) {
        0 => {}
        more => shown.push(format!("{more} more")),
    }
    format!("{text}: {}", shown.join("; "))
}

/// Explains a response without a problem document: from another program, another version, or a proxy.
fn unexpected_status(access: &BrokerAccess, status: StatusCode) -> String {
    let url = escaped(&access.url.text);
    if status.is_redirection() {
        return format!(
            "{url} answered {status}; redirects are not followed, to protect the key: pass the new address as --url"
        );
    }
    format!("{url} answered {status} without an explanation; is it a broker of this version? see --url")
}

/// The advice that depends on the key or the time.
fn next_step(access: &BrokerAccess, code: &str, wait: Option<Duration>) -> Option<String> {
    Some(match code {
        "authentication_failed" => match &access.key {
            Some(key) => format!(
                "the key from {} is not known there: give another with --key-file",
                key.source
            ),
            None => format!("no key was given: set {API_KEY_ENV} or use --key-file"),
        },
        "rate_limited" | "unavailable" => match wait {
            Some(wait) => format!("try again in {} s", wait.as_millis().div_ceil(1000)),
            None => "try again later".to_owned(),
        },
        _ => return None,
    })
}

/// Makes a foreign text part of one line: short, and without terminal control characters.
pub fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let short: String = words.join(" ").chars().take(DETAIL_CHARS_MAX).collect();
    escaped(&short)
}

#[cfg(test)]
mod tests {
    use actors::model::{BrokerError, MissingGrant, MissingSession, PathFailure, QuestionBudget};
    use serde_json::json;

    use super::*;
    use crate::access::BrokerUrl;
    use api::mcp::tools::TOOLS;
    use api::problem::Problem as Refusal;
    use common::refusal::error_object;

    fn tool_names() -> impl Iterator<Item = &'static str> {
        TOOLS.iter().map(|tool| tool.name)
    }

    fn access() -> BrokerAccess {
        let url = BrokerUrl::parse("http://127.0.0.1:1", "a test").unwrap();
        BrokerAccess::without_key(url)
    }

    /// What a command says of an error over REST and of the same from a tool.
    fn lines(error: &BrokerError) -> [String; 2] {
        let problem = Refusal::from(error);
        let answer = Response::builder().status(problem.status.as_u16()).body(()).unwrap();
        let of_tool = serde_json::from_value(error_object(error)).unwrap();
        [
            of_response(&access(), &answer, &problem.body()).line,
            super::of_tool(&access(), of_tool).line,
        ]
    }

    #[test]
    fn a_refusal_names_commands_and_no_tools() {
        let id = uuid::Uuid::nil();
        let not_registered = |versions: &[&str]| BrokerError::ProtocolNotFound {
            name: "chat".to_owned(),
            version: "1.0.0".to_owned(),
            versions: versions.iter().map(|version| (*version).to_owned()).collect(),
        };
        let full = |which| BrokerError::QuestionsFull { which, limit: 1 };
        for error in [
            BrokerError::SessionNotFound(MissingSession::own("alice")),
            BrokerError::SessionNotFound(MissingSession::other("alcie", vec!["alice".to_owned()])),
            BrokerError::SessionNotFound(MissingSession::Ended),
            BrokerError::SessionRequired,
            BrokerError::SessionTakenOver,
            not_registered(&[]),
            not_registered(&["2.0.0"]),
            BrokerError::TargetNotFound { id: "acme".to_owned() },
            BrokerError::CrossProjectForbidden {
                wall: MissingGrant::Project,
            },
            BrokerError::QuestionNotFound { id },
            full(QuestionBudget::Session),
            full(QuestionBudget::Drafts),
            BrokerError::listed_session_id("from"),
        ] {
            let told = error.to_string();
            assert!(
                tool_names().any(|name| told.contains(name)),
                "the text for agents names no tool: {told}"
            );
            for line in lines(&error) {
                assert!(!tool_names().any(|name| line.contains(name)), "{line}");
                assert!(
                    line.contains("mcp-broker ")
                        || line.contains("--from")
                        || line.contains("repeat")
                        || line.contains("name of the session"),
                    "{line}"
                );
            }
        }
        let [line, _] = lines(&BrokerError::SessionNotFound(MissingSession::other(
            "alcie",
            vec!["alice".to_owned()],
        )));
        assert_eq!(
            line,
            "session_not_found: no session \"alcie\", did you mean \"alice\"?; mcp-broker sessions --status all lists \
             the sessions"
        );
    }

    #[test]
    fn a_refused_payload_says_where_it_does_not_fit() {
        let failure = |at: usize| PathFailure {
            path: format!("/items/{at}"),
            reason: format!("\"{at}\" is not of type \"integer\""),
        };
        let of = |failures| lines(&BrokerError::PayloadInvalid { failures });
        for line in of(vec![
            failure(0),
            PathFailure {
                path: String::new(),
                reason: "\"text\" is a required property".to_owned(),
            },
        ]) {
            assert!(line.starts_with("payload_invalid: "), "{line}");
            assert!(
                line.ends_with(": /items/0 \"0\" is not of type \"integer\"; \"text\" is a required property"),
                "{line}"
            );
        }
        for line in of((0..9).map(failure).collect()) {
            assert!(line.contains("/items/4 ") && !line.contains("/items/5 "), "{line}");
            assert!(line.ends_with("; 4 more"), "{line}");
        }
    }

    #[test]
    fn a_refusal_for_want_of_rights_stays_as_the_broker_words_it() {
        for line in lines(&BrokerError::forbidden("this requires a key of scope member")) {
            assert_eq!(line, "forbidden: this requires a key of scope member");
        }
        for line in lines(&BrokerError::ProjectMismatch) {
            assert!(line.ends_with("or use a key of that project"), "{line}");
        }
    }

    #[test]
    fn a_problem_of_another_form_is_shown_as_far_as_it_can_be_read() {
        let answer = Response::builder().status(400).body(()).unwrap();
        let body = json!({"code": "new", "failures": [{"path": "/a"}], "detail": {"x": 1}}).to_string();
        assert_eq!(of_response(&access(), &answer, &body).line, "new: {\"x\":1}: /a");
    }

    #[test]
    fn the_text_of_a_broker_becomes_one_line() {
        assert_eq!(
            one_line("two\nlines \u{1b}[2J\u{202e}"),
            "two lines \\u{1b}[2J\\u{202e}"
        );
        assert_eq!(one_line(&"x".repeat(2000)).len(), DETAIL_CHARS_MAX);
    }
}
