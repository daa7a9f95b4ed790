//! Tells the frames of the broker apart. Most of them are responses, which are recognized by their first bytes. Pure.

use memchr::memchr;
use serde::Deserialize;
use serde_json::Value;

use api::mcp::{
    rpc::{self, Incoming},
    waking::{WAKE, Wake},
};
use common::{json::scan, user_broker::hello::CLOSING};

/// A frame of the broker.
#[derive(Debug, PartialEq, Eq)]
pub enum BrokerFrame<'a> {
    /// The response to a request, or to all requests of a batch: one of their ids, as JSON.
    Response { id: &'a str },
    /// A request to the client: its id, as JSON.
    Request { id: &'a str },
    /// The broker closes the connection, with a code of the WebSocket transport.
    Closing { code: u64 },
    /// A subscription has begun: the id of its request, as JSON.
    Acknowledged { id: String },
    /// The agent is to be woken; `None` if the params cannot be read.
    Wake(Option<Box<Wake>>),
    /// The broker's lists are others than before: only backends change them.
    ListsChanged,
    /// Another notification, or a line that is no frame.
    Other,
}

/// How responses begin.
const RESPONSE: &str = "{\"jsonrpc\":\"2.0\",\"id\":";
/// How notifications begin.
const NOTIFICATION: &str = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/";
/// How the names of the notifications of changed lists continue.
const LISTS_CHANGED: [&str; 3] = [
    "tools/list_changed\"",
    "prompts/list_changed\"",
    "resources/list_changed\"",
];
/// The first notification of a subscription.
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Reads a frame.
pub fn read(frame: &str) -> BrokerFrame<'_> {
    if let Some(id) = response_id(frame) {
        return BrokerFrame::Response { id };
    }
    if let Some(rest) = frame.strip_prefix(NOTIFICATION) {
        if LISTS_CHANGED.iter().any(|name| rest.starts_with(name)) {
            return BrokerFrame::ListsChanged;
        }
        let is_of_interest = [CLOSING, ACKNOWLEDGED, WAKE].iter().any(|method| {
            let name = method.trim_start_matches("notifications/");
            rest.strip_prefix(name).is_some_and(|rest| rest.starts_with('"'))
        });
        if !is_of_interest {
            return BrokerFrame::Other;
        }
    }
    match rpc::parse(frame) {
        Ok(Incoming::Response { id: Some(id), .. }) => BrokerFrame::Response { id },
        Ok(Incoming::Request { id, .. }) => BrokerFrame::Request { id },
        Ok(Incoming::Notification { method, params }) => notification(&method, params.text),
        Ok(Incoming::Batch(frames)) => frames
            .into_iter()
            .find_map(|frame| match rpc::parse(frame) {
                Ok(Incoming::Response { id: Some(id), .. }) => Some(BrokerFrame::Response { id }),
                _ => None,
            })
            .unwrap_or(BrokerFrame::Other),
        _ => BrokerFrame::Other,
    }
}

/// The id of a response in the form in which the broker writes it.
fn response_id(frame: &str) -> Option<&str> {
    let rest = frame.strip_prefix(RESPONSE)?;
    let len = match rest.as_bytes() {
        [b'"', inside @ ..] => {
            let end = memchr(b'"', inside)?;
            if memchr(b'\\', &inside[..end]).is_some() {
                return None;
            }
            end + 2
        }
        digits => memchr(b',', digits)?,
    };
    let (id, after) = rest.split_at_checked(len)?;
    (after.starts_with(",\"result\":") || after.starts_with(",\"error\":")).then_some(id)
}

fn notification<'a>(method: &str, params: Option<&str>) -> BrokerFrame<'a> {
    let params: Value = params
        .and_then(|params| serde_json::from_str(params).ok())
        .unwrap_or_default();
    match method {
        CLOSING => BrokerFrame::Closing {
            code: params["code"].as_u64().unwrap_or(0),
        },
        ACKNOWLEDGED => BrokerFrame::Acknowledged {
            id: params["_meta"][SUBSCRIPTION_ID].to_string(),
        },
        WAKE => BrokerFrame::Wake(serde_json::from_value(params).ok()),
        _ => BrokerFrame::Other,
    }
}

/// The object of a successful call of a tool, in its response; `None` for a failure.
pub fn call_result(frame: &str) -> Option<Value> {
    #[derive(Deserialize)]
    struct Response {
        result: CallResult,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CallResult {
        structured_content: Value,
        #[serde(default)]
        is_error: bool,
    }
    let Response { result } = serde_json::from_str(frame).ok()?;
    (!result.is_error).then_some(result.structured_content)
}

/// The text of the result in a response; `None` for an error.
pub fn result_text(frame: &str) -> Option<&str> {
    match rpc::parse(frame) {
        Ok(Incoming::Response {
            outcome: Ok(result), ..
        }) => Some(result),
        _ => None,
    }
}

/// The instructions in the response to `initialize`.
pub fn instructions(frame: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Introduction {
        instructions: Option<String>,
    }
    let introduction: Introduction = serde_json::from_str(result_text(frame)?).ok()?;
    introduction.instructions
}

/// The members of the params of a request that the front repeats later.
#[derive(Debug, Default)]
pub struct RequestParams {
    pub uri: Option<String>,
    pub arguments: Option<serde_json::Map<String, Value>>,
    /// The whole text.
    pub text: String,
}

/// Reads the params of a request of the client.
pub fn request_params(frame: &str) -> RequestParams {
    let Ok(Incoming::Request { params, .. }) = rpc::parse(frame) else {
        return RequestParams::default();
    };
    let mut uri = None;
    let text = params.text.unwrap_or("{}");
    let _ = scan::members::<scan::ScanError>(text, |name, value| {
        if name == "uri" {
            uri = scan::string(value).map(|uri| uri.into_owned());
        }
        Ok(())
    });
    RequestParams {
        uri,
        arguments: params
            .arguments
            .and_then(|arguments| serde_json::from_str(arguments).ok()),
        text: text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_are_told_apart() {
        for (frame, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
                BrokerFrame::Response { id: "7" },
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a,b","error":{}}"#,
                BrokerFrame::Response { id: "\"a,b\"" },
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a\"b","result":{}}"#,
                BrokerFrame::Response { id: r#""a\"b""# },
            ),
            (
                r#"{"result":{},"id":7,"jsonrpc":"2.0"}"#,
                BrokerFrame::Response { id: "7" },
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#,
                BrokerFrame::Request { id: "7" },
            ),
            (
                r#"{"id":7,"jsonrpc":"2.0","method":"roots/list"}"#,
                BrokerFrame::Request { id: "7" },
            ),
            (
                r#"[{"jsonrpc":"2.0","id":7,"result":{}},{"jsonrpc":"2.0","id":8,"result":{}}]"#,
                BrokerFrame::Response { id: "7" },
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#,
                BrokerFrame::Other,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
                BrokerFrame::ListsChanged,
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"error":{}}"#,
                BrokerFrame::Response { id: "null" },
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/dev.mcp-broker/closing","params":{"code":4001}}"#,
                BrokerFrame::Closing { code: 4001 },
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l1"}}}"#,
                BrokerFrame::Acknowledged {
                    id: "\"l1\"".to_owned(),
                },
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/dev.mcp-broker/wake","params":{"wake_id":"7"}}"#,
                BrokerFrame::Wake(None),
            ),
            ("", BrokerFrame::Other),
        ] {
            assert_eq!(read(frame), expected, "{frame}");
        }
    }

    #[test]
    fn the_object_of_a_failed_call_is_no_result() {
        let response = |is_error: bool| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[],"structuredContent":{{"a":1}},"isError":{is_error}}}}}"#
            )
        };
        assert_eq!(call_result(&response(false)), Some(serde_json::json!({"a": 1})));
        assert_eq!(call_result(&response(true)), None);
        assert_eq!(call_result(r#"{"jsonrpc":"2.0","id":1,"error":{}}"#), None);
    }

    proptest! {
        #[test]
        fn the_short_way_finds_the_id_that_the_parser_finds(
            id in prop_oneof![any::<i64>().prop_map(Value::from), "[ -~é\\\\\"]{0,12}".prop_map(Value::from)],
            is_error in any::<bool>(),
        ) {
            let member = if is_error { "error" } else { "result" };
            let frame = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"{member}\":{{\"id\":1}}}}");
            prop_assert_eq!(read(&frame), BrokerFrame::Response { id: &id.to_string() });
        }
    }
}
