//! The texts and JSON by which callers of every surface learn why a call was refused: errors of the domain, and JSON
//! that could not be deserialized.

use actors::{
    clock::{millis, rfc3339_text},
    model::{
        BackendFailure, BrokerError, BudgetFull, CrossProjectSide, MissingGrant, MissingSession, TransformFailure,
        TransformReason,
    },
};
use serde_json::{Value, json};

/// The error object of the contract, section 7. Every surface uses it, so a refusal reads the same everywhere.
pub fn error_object(error: &BrokerError) -> Value {
    let mut object = json!({"code": error.code(), "message": error.to_string()});
    let detail = error_detail(error);
    if !detail.is_null() {
        object["detail"] = detail;
    }
    if let Some(retry_after) = error.retry_after() {
        object["retry_after_ms"] = json!(millis(retry_after));
    }
    object
}

/// The `detail` of the error object; null if there is none.
pub fn error_detail(error: &BrokerError) -> Value {
    match error {
        BrokerError::PayloadInvalid { failures } => {
            let failures: Vec<_> = failures
                .iter()
                .map(|failure| json!({"path": failure.path, "reason": failure.reason}))
                .collect();
            json!({"failures": failures})
        }
        BrokerError::IncompatibleProtocol {
            recipient,
            name,
            version,
            speaks,
            suggestions,
        } => {
            let mut detail = json!({"recipient": recipient, "protocol": name, "version": version, "speaks": speaks});
            if !suggestions.is_empty() {
                detail["suggestions"] = json!(suggestions);
            }
            detail
        }
        BrokerError::NoLens { name, from, to } => json!({"protocol": name, "version": from, "to": to}),
        BrokerError::TransformFailed(failure) => transform_detail(failure),
        BrokerError::QueueFull(BudgetFull { budget, limit }) => {
            json!({"limit": limit, "unit": budget.unit(), "budget": budget.as_str()})
        }
        BrokerError::QuestionsFull { which, limit } => {
            json!({"limit": limit, "unit": which.unit(), "budget": which.as_str()})
        }
        BrokerError::Backend(failure) => backend_detail(failure),
        BrokerError::QuestionNotFound { id } => json!({"question_id": id}),
        BrokerError::CallNotFound { id } => json!({"call_id": id}),
        BrokerError::QuestionClosed { state, by, at_ms } => {
            json!({"state": state, "by": by, "at": rfc3339_text(*at_ms)})
        }
        BrokerError::RevisionMismatch { revision } => json!({"revision": revision}),
        BrokerError::PayloadTooLarge { limit } => json!({"limit": limit}),
        BrokerError::InvalidArgument { field, .. } => json!({"argument": field}),
        BrokerError::SessionNotFound(missing) => match missing {
            MissingSession::Own { id } => json!({"session_id": id}),
            MissingSession::Other { address, similar } => json!({"recipient": address, "similar": similar}),
            MissingSession::Remote { address } => json!({"recipient": address}),
            MissingSession::Ended => Value::Null,
        },
        BrokerError::ProtocolNotFound {
            name,
            version,
            versions,
        } => json!({"name": name, "version": version, "versions": versions}),
        BrokerError::ProtocolExists { name, version, differs } => {
            json!({"name": name, "version": version, "differs": differs})
        }
        BrokerError::LensNotFound { name, from, version } => json!({"name": name, "from": from, "version": version}),
        BrokerError::InvalidLens(error) => json!(error),
        BrokerError::ProjectExists { id } | BrokerError::TargetNotFound { id } => json!({"project_id": id}),
        BrokerError::CrossProjectDisabled { side } => json!({"project": match side {
            CrossProjectSide::Sender => "own",
            CrossProjectSide::Target => "target",
        }}),
        BrokerError::CrossProjectForbidden { wall } => json!({"missing": match wall {
            MissingGrant::Project => "permission",
            MissingGrant::Protocol => "protocol",
        }}),
        _ => Value::Null,
    }
}

/// The `detail` of a payload that lenses do not transform.
fn transform_detail(failure: &TransformFailure) -> Value {
    let mut detail = match &failure.reason {
        TransformReason::Fails(error) => json!(error),
        TransformReason::Loses(places) => json!({"reason": "would_lose", "loss": places}),
        TransformReason::NotCompiled(lens) => {
            let [from, to] = &**lens;
            json!({"reason": "lens_not_compiled", "lens": {"from": from, "to": to}})
        }
    };
    detail["from"] = json!(failure.from);
    detail["to"] = json!(failure.to);
    detail
}

/// The `detail` of an error of the gateway.
fn backend_detail(failure: &BackendFailure) -> Value {
    let mut detail = json!({"backend": failure.backend(), "retryable": failure.is_retryable()});
    match failure {
        BackendFailure::Unavailable { state, .. } => detail["state"] = json!(state),
        BackendFailure::Died { how, .. } => detail["how"] = json!(how),
        BackendFailure::TooLarge { limit, .. } => detail["limit"] = json!(limit),
        _ => {}
    }
    detail
}

/// Characters of a caller's word that a reason repeats.
const WORD_LEN_MAX: usize = 64;

/// Why a JSON text could not be deserialized, in words for its author. Serde's messages name Rust types and positions
/// that the caller does not see; this function translates them.
pub fn json_error_reason(error: &serde_json::Error) -> String {
    if !error.is_data() {
        return "not valid JSON".to_owned();
    }
    let text = error.to_string();
    serde_error_reason(text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text))
}

/// As [`json_error_reason`], for serde messages about other formats, such as a query string.
pub fn serde_error_reason(text: &str) -> String {
    translate(text).unwrap_or_else(|| text.to_owned())
}

/// `None` if the message comes from a type of the broker, which words it for callers already.
fn translate(text: &str) -> Option<String> {
    match text {
        "invalid digit found in string" => return Some("must be a whole number, not negative".to_owned()),
        "provided string was not `true` or `false`" => return Some("must be true or false".to_owned()),
        _ => {}
    }
    if let Some(rest) = text.strip_prefix("unknown variant ") {
        let (word, allowed) = rest.split_once(", expected ")?;
        return Some(format!(
            "{} is not allowed; allowed: {}",
            quoted_word(word),
            listed(allowed)
        ));
    }
    if let Some(rest) = text.strip_prefix("unknown field ") {
        let (word, known) = rest.split_once(", ")?;
        let known = known
            .strip_prefix("expected ")
            .map(|known| format!("; known: {}", listed(known)));
        return Some(format!(
            "{} is not known{}",
            quoted_word(word),
            known.unwrap_or_default()
        ));
    }
    if let Some(word) = text.strip_prefix("missing field ") {
        return Some(format!("{} is missing", quoted_word(word)));
    }
    if let Some(word) = text.strip_prefix("duplicate field ") {
        return Some(format!("{} is given twice", quoted_word(word)));
    }
    if let Some(rest) = text.strip_prefix("invalid length ") {
        let (len, expected) = rest.split_once(", expected ")?;
        return Some(format!("must be {}, not {len} long", expected_json_type(expected)));
    }
    let rest = text
        .strip_prefix("invalid type: ")
        .or_else(|| text.strip_prefix("invalid value: "))?;
    // The caller's text may contain the same words; the expectation comes last.
    let (given, expected) = rest.rsplit_once(", expected ")?;
    Some(format!(
        "must be {}, not {}",
        expected_json_type(expected),
        given_json_type(given)
    ))
}

/// "one of `a`, `b`" and "`a` or `b`" as a list.
fn listed(words: &str) -> String {
    words.trim_start_matches("one of ").replace("` or `", "`, `")
}

fn quoted_word(word: &str) -> String {
    let word = word.trim_matches('`');
    let shown: String = word.chars().take(WORD_LEN_MAX).collect();
    let rest = if shown.len() < word.len() { "..." } else { "" };
    format!("`{shown}{rest}`")
}

/// The type that serde expected, in words of JSON.
fn expected_json_type(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, not negative",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        "any valid JSON value" => "JSON",
        "string or map" => "a string",
        other if other.starts_with("struct ") => "an object",
        other => other,
    }
}

/// The type that serde found, in words of JSON.
fn given_json_type(given: &str) -> String {
    match given.split([' ', '`']).next().unwrap_or_default() {
        "string" | "character" => "a string".to_owned(),
        "boolean" => "a boolean".to_owned(),
        "sequence" => "a list".to_owned(),
        "map" => "an object".to_owned(),
        "null" | "unit" | "Option" => "null".to_owned(),
        "integer" | "floating" | "number" => match given.split('`').nth(1) {
            Some(number) => number.to_owned(),
            None => "this number".to_owned(),
        },
        _ => quoted_word(given),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Colour {
        Red,
        Green,
        Blue,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Side {
        Left,
        Right,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only what goes wrong is looked at")]
    struct Thing {
        colour: Colour,
        count: Option<usize>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Empty {}

    fn of<T: for<'a> Deserialize<'a>>(text: &str) -> String {
        match serde_json::from_str::<T>(text) {
            Ok(_) => panic!("{text} is right"),
            Err(error) => json_error_reason(&error),
        }
    }

    #[test]
    fn each_deserialization_error_is_reported_in_words_of_json() {
        for (told, expected) in [
            (
                of::<usize>("\"10\""),
                "must be a whole number, not negative, not a string",
            ),
            (of::<usize>("1.5"), "must be a whole number, not negative, not 1.5"),
            (of::<usize>("-1"), "must be a whole number, not negative, not -1"),
            (of::<u8>("300"), "must be a whole number, not negative, not 300"),
            (of::<f64>("[]"), "must be a number, not a list"),
            (of::<bool>("\"a, expected b\""), "must be a boolean, not a string"),
            (of::<String>("null"), "must be a string, not null"),
            (of::<String>("{}"), "must be a string, not an object"),
            (of::<Vec<String>>("true"), "must be a list, not a boolean"),
            (
                of::<BTreeMap<String, String>>("\"x\""),
                "must be an object, not a string",
            ),
            (
                of::<Colour>("\"pink\""),
                "`pink` is not allowed; allowed: `red`, `green`, `blue`",
            ),
            (of::<Side>("\"up\""), "`up` is not allowed; allowed: `left`, `right`"),
            (of::<Thing>("{}"), "`colour` is missing"),
            (
                of::<Thing>(r#"{"size": 1}"#),
                "`size` is not known; known: `colour`, `count`",
            ),
            (of::<Thing>(r#"{"count": 1, "count": 2}"#), "`count` is given twice"),
            (of::<Thing>("7"), "must be an object, not 7"),
            (of::<Empty>(r#"{"size": 1}"#), "`size` is not known"),
            (of::<[u8; 2]>("[1]"), "must be an array of length 2, not 1 long"),
            (of::<Thing>("{"), "not valid JSON"),
            (of::<Thing>("{]"), "not valid JSON"),
        ] {
            assert_eq!(told, expected);
        }
        let long = of::<Colour>(&format!("\"{}\"", "x".repeat(1000)));
        assert!(long.len() < 200, "{long}");
    }
}
