//! The answer of a backend in the era of its caller. Between equal eras it is passed on byte for byte.

use std::{borrow::Cow, sync::LazyLock};

use actors::{json, model::BackendEra};
use memchr::memmem::Finder;

use crate::mcp::rpc::{HEADER_MISMATCH, INVALID_PARAMS, MISSING_CAPABILITY, RESOURCE_NOT_FOUND, UNSUPPORTED_VERSION};
use common::json::{scan, whole_number};

/// Translates a result. `takes_task` says that the caller takes a task in its place.
///
/// # Errors
/// The caller cannot take it: why.
pub fn translate_result<'a>(
    result: &'a str,
    method: &str,
    from: BackendEra,
    to_modern: bool,
    takes_task: bool,
) -> Result<Cow<'a, [u8]>, &'static str> {
    if !result.starts_with('{') {
        return Err("it is no object");
    }
    let is_plain = from == BackendEra::Legacy && !to_modern;
    if is_plain && NULL.find(result.as_bytes()).is_none() {
        return Ok(Cow::Borrowed(result.as_bytes()));
    }
    let members = json::members(result).map_err(|_| "it is no object")?;
    let has_spoilt = members.iter().any(|(key, value)| is_spoilt(key, value));
    if is_plain && !has_spoilt {
        return Ok(Cow::Borrowed(result.as_bytes()));
    }
    let mut kinds = 0;
    if from == BackendEra::Modern {
        let said = |(key, kind): &&(Cow<'_, str>, &str)| key == "resultType" && *kind != "null";
        for (_, kind) in members.iter().filter(said) {
            check_kind(kind, takes_task)?;
            kinds += 1;
        }
        if to_modern && kinds == 1 && !has_spoilt {
            return Ok(Cow::Borrowed(result.as_bytes()));
        }
    }
    let kept = members.iter().filter(|(key, value)| match &**key {
        _ if is_spoilt(key, value) => false,
        // Between legacy peers it is a member like others.
        "resultType" => is_plain,
        "ttlMs" | "cacheScope" | "structuredContent" if is_plain => true,
        // Hints of a modern backend are for modern clients; a legacy backend gives none.
        "ttlMs" | "cacheScope" => from == BackendEra::Modern && to_modern,
        // Legacy clients take only objects there; the content says the same.
        "structuredContent" => to_modern || value.starts_with('{'),
        _ => true,
    });
    let kept = kept.map(|(key, value)| (&**key, *value));
    let mut out = Vec::with_capacity(result.len() + 80);
    let cache_hints: &[_] = match (from, method) {
        (BackendEra::Legacy, "resources/read") => &[("ttlMs", "0"), ("cacheScope", "\"private\"")],
        _ => &[],
    };
    if to_modern {
        let added = [("resultType", "\"complete\"")]
            .into_iter()
            .chain(cache_hints.iter().copied());
        json::write_object(&mut out, added.chain(kept));
    } else {
        json::write_object(&mut out, kept);
    }
    Ok(Cow::Owned(out))
}

static NULL: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(b"null"));

/// Whether a member may be absent and is null instead, which clients refuse.
fn is_spoilt(key: &str, value: &str) -> bool {
    value == "null"
        && matches!(
            key,
            "_meta" | "isError" | "structuredContent" | "nextCursor" | "resultType"
        )
}

/// Whether the result of a tool says that the tool has failed. Most results are not parsed for it.
pub fn is_tool_error(result: &[u8]) -> bool {
    const MEMBER: &[u8] = b"\"isError\"";
    static FINDER: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(MEMBER));
    let is_true = |at: usize| {
        let value = result[at + MEMBER.len()..].trim_ascii_start();
        value
            .strip_prefix(b":")
            .is_some_and(|value| value.trim_ascii_start().starts_with(b"true"))
    };
    FINDER.find_iter(result).any(is_true)
        && str::from_utf8(result).is_ok_and(|result| json::member(result, "isError") == Some("true"))
}

/// Checks that a modern result is the end of its call.
fn check_kind(kind: &str, takes_task: bool) -> Result<(), &'static str> {
    match kind {
        "\"complete\"" => Ok(()),
        "\"input_required\"" => Err(
            "it asks its caller for input, which the broker passes on for calls of tools, prompts and resources alone",
        ),
        "\"task\"" if takes_task => Ok(()),
        "\"task\"" => Err("it is a task, which the caller has not declared"),
        _ => Err("it has a resultType that is not known"),
    }
}

/// Codes with a meaning for the connection between the broker and its backend, and not for a caller: the headers, the
/// capabilities and the version of a request, and a URL that a legacy server wants its client to open.
const CODES_OF_THE_CONNECTION: [i64; 4] = [
    HEADER_MISMATCH as i64,
    MISSING_CAPABILITY as i64,
    UNSUPPORTED_VERSION as i64,
    -32042,
];

/// Translates an error object.
///
/// # Errors
/// The caller cannot take it: why.
pub fn translate_error(error: &str, to_modern: bool) -> Result<Cow<'_, [u8]>, String> {
    let wrong = || "it is no error of JSON-RPC".to_owned();
    let members = json::members(error).map_err(|_| wrong())?;
    let member = |name: &str| {
        let mut named = members.iter().rev().filter(|(key, _)| key == name);
        named.next().map(|(_, value)| *value)
    };
    let raw = member("code").ok_or_else(wrong)?;
    let code = whole_number(raw).ok_or_else(wrong)?;
    let message = match member("message") {
        None | Some("null") => None,
        Some(message) => Some(scan::string(message).ok_or_else(wrong)?),
    };
    if CODES_OF_THE_CONNECTION.contains(&code) {
        let message: String = message.unwrap_or_default().chars().take(200).collect();
        return Err(format!("it refuses the broker's request with code {code}: {message}"));
    }
    let code = if to_modern && code == i64::from(RESOURCE_NOT_FOUND) {
        INVALID_PARAMS.to_string()
    } else {
        code.to_string()
    };
    if code == raw && message.is_some() {
        return Ok(Cow::Borrowed(error.as_bytes()));
    }
    let others = members
        .iter()
        .filter(|(key, _)| key != "code" && (key != "message" || message.is_some()));
    let mut out = Vec::with_capacity(error.len());
    let no_message = message
        .is_none()
        .then_some(("message", "\"an error without a message\""));
    let others = others.map(|(key, value)| (&**key, *value));
    json::write_object(
        &mut out,
        [("code", code.as_str())].into_iter().chain(no_message).chain(others),
    );
    Ok(Cow::Owned(out))
}

/// The params of a progress notification with the caller's token.
pub fn translate_progress(params: &str, token: &str) -> Vec<u8> {
    let members = json::members(params).unwrap_or_default();
    let mut out = Vec::with_capacity(params.len() + token.len());
    json::write_object(
        &mut out,
        members
            .iter()
            .map(|(key, value)| (&**key, if key == "progressToken" { token } else { value })),
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(result: &str, from: BackendEra, to_modern: bool) -> Result<String, &'static str> {
        let translated = translate_result(result, "tools/call", from, to_modern, false)?;
        Ok(String::from_utf8(translated.into_owned()).unwrap())
    }

    #[test]
    fn between_equal_eras_not_a_byte_changes() {
        let odd = "{ \"z\" : 1e400, \"a\":[10000000000000000001 ],\"resultType\":\"complete\" }";
        assert_eq!(text(odd, BackendEra::Legacy, false).as_deref(), Ok(odd));
        assert_eq!(text(odd, BackendEra::Modern, true).as_deref(), Ok(odd));
    }

    #[test]
    fn members_of_the_other_era_are_cut_out_or_added() {
        let (legacy, modern) = (BackendEra::Legacy, BackendEra::Modern);
        for (from, to_modern, result, expected) in [
            (legacy, true, "{}", r#"{"resultType":"complete"}"#),
            (
                legacy,
                true,
                r#"{"resultType":"task","ttlMs":1,"a":[1.50]}"#,
                r#"{"resultType":"complete","a":[1.50]}"#,
            ),
            (
                modern,
                true,
                r#"{"content":[]}"#,
                r#"{"resultType":"complete","content":[]}"#,
            ),
            (
                modern,
                false,
                r#"{"resultType":"complete","ttlMs":1,"cacheScope":"public","x":"}"}"#,
                r#"{"x":"}"}"#,
            ),
            (
                modern,
                false,
                r#"{"structuredContent":[1],"content":[]}"#,
                r#"{"content":[]}"#,
            ),
            (
                modern,
                false,
                r#"{"structuredContent":{"a":1}}"#,
                r#"{"structuredContent":{"a":1}}"#,
            ),
        ] {
            assert_eq!(text(result, from, to_modern).as_deref(), Ok(expected), "{result}");
        }
        let read = translate_result("{\"contents\":[]}", "resources/read", legacy, true, false).unwrap();
        assert_eq!(
            str::from_utf8(&read).unwrap(),
            r#"{"resultType":"complete","ttlMs":0,"cacheScope":"private","contents":[]}"#
        );
    }

    #[test]
    fn only_a_result_that_says_so_is_the_error_of_a_tool() {
        for (result, expected) in [
            (r#"{"content":[],"isError":true}"#, true),
            ("{\"isError\" :\n true}", true),
            (r#"{"isError":false}"#, false),
            (r#"{"content":[]}"#, false),
            (r#"{"structuredContent":{"isError":true},"isError":false}"#, false),
            (r#"{"content":[{"type":"text","text":"\"isError\":true"}]}"#, false),
        ] {
            assert_eq!(is_tool_error(result.as_bytes()), expected, "{result}");
        }
    }

    #[test]
    fn what_a_caller_cannot_take_is_refused() {
        for wrong in [
            r#"{"resultType":"input_required"}"#,
            r#"{"resultType":"complete","resultType":"task"}"#,
            r#"{"resultType":1}"#,
            "null",
            "[]",
        ] {
            assert!(text(wrong, BackendEra::Modern, true).is_err(), "{wrong}");
        }
        assert!(text("null", BackendEra::Legacy, false).is_err());
        for wrong in [
            "\"text\"",
            "{}",
            "{\"code\":\"one\",\"message\":\"\"}",
            "{\"code\":1,\"message\":{}}",
            "{\"code\":-32022,\"message\":\"no\"}",
        ] {
            assert!(translate_error(wrong, true).is_err(), "{wrong}");
        }
    }

    #[test]
    fn members_that_are_null_or_written_in_another_way_spoil_no_answer() {
        let (legacy, modern) = (BackendEra::Legacy, BackendEra::Modern);
        for (from, to_modern, result, expected) in [
            (
                legacy,
                false,
                r#"{"content":[],"structuredContent":null,"isError":null,"x":null}"#,
                r#"{"content":[],"x":null}"#,
            ),
            (legacy, false, r#"{"content":[null]}"#, r#"{"content":[null]}"#),
            (legacy, true, r#"{"_meta":null}"#, r#"{"resultType":"complete"}"#),
            (
                modern,
                true,
                r#"{"resultType":null,"a":1}"#,
                r#"{"resultType":"complete","a":1}"#,
            ),
            (
                modern,
                true,
                r#"{"resultType":"complete","_meta":null}"#,
                r#"{"resultType":"complete"}"#,
            ),
        ] {
            assert_eq!(text(result, from, to_modern).as_deref(), Ok(expected), "{result}");
        }
        for (error, expected) in [
            (r#"{"code":-32000.0,"message":"m"}"#, r#"{"code":-32000,"message":"m"}"#),
            (r#"{"message":"m","code":"-32000"}"#, r#"{"code":-32000,"message":"m"}"#),
            (
                r#"{"code":7,"message":null}"#,
                r#"{"code":7,"message":"an error without a message"}"#,
            ),
            (
                r#"{"code":7 ,"message":"m","data":null}"#,
                r#"{"code":7 ,"message":"m","data":null}"#,
            ),
        ] {
            assert_eq!(&*translate_error(error, true).unwrap(), expected.as_bytes(), "{error}");
        }
    }

    #[test]
    fn a_task_is_for_a_caller_that_takes_it() {
        let task = r#"{"resultType":"task","taskId":"a"}"#;
        assert!(text(task, BackendEra::Modern, true).is_err());
        let translated = translate_result(task, "tools/call", BackendEra::Modern, true, true);
        assert_eq!(translated.as_deref(), Ok(task.as_bytes()));
    }

    #[test]
    fn the_code_for_a_missing_resource_is_that_of_the_caller() {
        let error = r#"{"code":-32002,"message":"gone","data":{"a":1}}"#;
        let modern = translate_error(error, true).unwrap();
        assert_eq!(&*modern, br#"{"code":-32602,"message":"gone","data":{"a":1}}"#);
        assert_eq!(&*translate_error(error, false).unwrap(), error.as_bytes());
    }

    #[test]
    fn progress_gets_the_token_of_the_caller() {
        let params = r#"{"progressToken":1048577,"progress":0.5,"_meta":{"x":1}}"#;
        let translated = translate_progress(params, "\"t\"");
        assert_eq!(translated, br#"{"progressToken":"t","progress":0.5,"_meta":{"x":1}}"#);
    }
}
