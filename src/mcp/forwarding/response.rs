//! The answer of a backend in the era of its caller. Between equal eras it is passed on byte for byte.

use std::{borrow::Cow, sync::LazyLock};

use actors::{json, model::BackendEra};
use memchr::memmem::Finder;
use serde::Deserialize;

use crate::{
    json::JsonObject,
    mcp::rpc::{HEADER_MISMATCH, INVALID_PARAMS, MISSING_CAPABILITY, RESOURCE_NOT_FOUND, UNSUPPORTED_VERSION},
};

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
    if from == BackendEra::Legacy && !to_modern {
        return Ok(Cow::Borrowed(result.as_bytes()));
    }
    let members = json::members(result).map_err(|_| "it is no object")?;
    let mut kinds = 0;
    if from == BackendEra::Modern {
        for (_, kind) in members.iter().filter(|(key, _)| key == "resultType") {
            check_kind(kind, takes_task)?;
            kinds += 1;
        }
        if to_modern && kinds == 1 {
            return Ok(Cow::Borrowed(result.as_bytes()));
        }
    }
    let kept = members.iter().filter(|(key, value)| match &**key {
        "resultType" => false,
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
        "\"input_required\"" => Err("it asks its caller for input, which the broker does not pass on yet"),
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
    #[derive(Deserialize)]
    struct Shape<'a> {
        code: i64,
        #[serde(borrow)]
        message: Cow<'a, str>,
    }
    let shape: JsonObject<Shape<'_>> =
        serde_json::from_str(error).map_err(|_| "it is no error of JSON-RPC".to_owned())?;
    let JsonObject(Shape { code, message }) = shape;
    if CODES_OF_THE_CONNECTION.contains(&code) {
        let message: String = message.chars().take(200).collect();
        return Err(format!("it refuses the broker's request with code {code}: {message}"));
    }
    if !to_modern || code != i64::from(RESOURCE_NOT_FOUND) {
        return Ok(Cow::Borrowed(error.as_bytes()));
    }
    let modern = INVALID_PARAMS.to_string();
    let members = json::members(error).map_err(|_| "it is no error of JSON-RPC".to_owned())?;
    let mut out = Vec::with_capacity(error.len());
    json::write_object(
        &mut out,
        members
            .iter()
            .map(|(key, value)| (&**key, if key == "code" { modern.as_str() } else { value })),
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
            "{\"code\":\"1\",\"message\":\"\"}",
            "{\"code\":-32022,\"message\":\"no\"}",
        ] {
            assert!(translate_error(wrong, true).is_err(), "{wrong}");
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
