//! Target: what a backend gets for a request of a client, and what the client gets for its answer. Members are cut out and
//! added; all others keep their order and their bytes, and the whole is JSON.

use std::fmt;

use actors::{
    gateway::CallNumber,
    json::scan,
    model::{BackendEra, TraceContext},
};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Map, value::RawValue};

use crate::{
    mcp::{
        logging::Level,
        request::ForwardedRequest,
        response::{is_tool_error, translate_error, translate_progress, translate_result},
        rpc::{self, Incoming},
    },
    mutate::Choices,
};

pub const DICTIONARY: &[&str] = &[
    "{\"name\":\"a\",\"arguments\":{\"b\":[1.50]}}",
    "\"_meta\":{\"progressToken\":1,\"x\":2}",
    "\"io.modelcontextprotocol/clientInfo\":{}",
    "\"traceparent\":\"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\"",
    "\"inputResponses\":{}",
    "\"requestState\":\"s\"",
    "\"resultType\":\"complete\"",
    "\"structuredContent\":[1]",
    "\"isError\":true",
    "\"ttlMs\":0",
    "\"code\":-32002,\"message\":\"m\"",
    "\"n\\u0061me\":",
    "\n",
    "\r\n",
    "\\n",
    ",",
    "1e400",
];

const ERAS: [BackendEra; 2] = [BackendEra::Legacy, BackendEra::Modern];

/// The input holds choices and the text of the params, of a result or of an error.
pub fn run(input: &[u8]) {
    let mut choices = Choices(input);
    let (to, from_modern) = (ERAS[choices.below(2)], choices.byte() & 1 == 1);
    let trace = (choices.byte() & 1 == 1).then(|| TraceContext::recorded(1, 2, None));
    let Ok(text) = std::str::from_utf8(choices.0) else {
        return;
    };
    request(text, to, trace.as_ref());
    answer(text, to, from_modern);
}

fn request(text: &str, era: BackendEra, trace: Option<&TraceContext>) {
    let frame = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{text}}}");
    let Ok(Incoming::Request { params, .. }) = rpc::parse(&frame) else {
        return;
    };
    // The broker checks the params before it forwards them.
    if params.text.is_some_and(|text| scan::check(text).is_err()) {
        return;
    }
    let name = ("name", "\"own\"".to_owned());
    let Ok(request) = ForwardedRequest::new("tools/call", name, &params, None, trace) else {
        return;
    };
    let request = request.for_caller(&Map::new(), Some(Level::Info));
    let mut out = Vec::new();
    request.write(era, CallNumber(1_048_577), &mut out);
    let out = String::from_utf8(out).expect("a frame is UTF-8");
    assert!(!out.contains(['\n', '\r']), "a frame is one line: {out}");
    let frame = pairs(&out).unwrap_or_else(|| panic!("a frame is an object: {out}"));
    assert_eq!(keys(&frame), ["jsonrpc", "id", "method", "params"]);
    assert_eq!(frame[1].1, "1048577");
    let (Some(given), Some(sent)) = (pairs(text), pairs(&frame[3].1)) else {
        return;
    };

    let own = ["name", "_meta", "inputResponses", "requestState"];
    let is_kept = |key: &str| !own.contains(&key);
    assert_eq!(kept(&sent, is_kept), kept(&given, is_kept));
    assert_eq!(sent[0], ("name".to_owned(), "\"own\"".to_owned()));

    let meta_of = |members: &[(String, String)]| {
        let metas = members.iter().filter(|(key, _)| key == "_meta");
        metas.filter_map(|(_, meta)| pairs(meta)).flatten().collect::<Vec<_>>()
    };
    let (given, sent) = (meta_of(&given), meta_of(&sent));
    let is_kept = |key: &str| {
        let is_of_broker = key.starts_with("io.modelcontextprotocol/") || key == "dev.mcp-broker/via";
        let is_of_trace = ["traceparent", "tracestate"].contains(&key) && trace.is_some();
        !is_of_broker && !is_of_trace && key != "progressToken"
    };
    assert_eq!(kept(&sent, is_kept), kept(&given, is_kept));
    if let Some(trace) = trace {
        let told = sent
            .iter()
            .filter(|(key, _)| key == "traceparent")
            .map(|(_, value)| value);
        assert_eq!(told.collect::<Vec<_>>(), [&format!("\"{}\"", trace.traceparent())]);
    }
}

fn answer(text: &str, to: BackendEra, from_modern: bool) {
    is_tool_error(text.as_bytes());
    // The answers of backends are JSON before they are translated.
    let Some(given) = pairs(text.trim_matches([' ', '\t', '\n', '\r'])) else {
        return;
    };
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    let (from, to_modern) = (ERAS[usize::from(from_modern)], to == BackendEra::Modern);
    if let Ok(result) = translate_result(text, "resources/read", from, to_modern, false) {
        let sent = pairs(std::str::from_utf8(&result).expect("a result is UTF-8")).expect("a result is an object");
        let is_kept = |key: &str| !["resultType", "ttlMs", "cacheScope", "structuredContent"].contains(&key);
        // A null in the place of a member that may be absent is cut out.
        let is_cut = |key: &str, value: &str| {
            value == "null" && ["_meta", "isError", "structuredContent", "nextCursor", "resultType"].contains(&key)
        };
        let exact = |members: &[(String, String)]| -> Vec<(String, String)> {
            let kept = members.iter().filter(|(key, value)| is_kept(key) && !is_cut(key, value));
            kept.cloned().collect()
        };
        assert_eq!(exact(&sent), exact(&given));
        assert!(!sent.iter().any(|(key, value)| is_cut(key, value)), "in {sent:?}");
        if to_modern || from_modern {
            let kinds = sent.iter().filter(|(key, _)| key == "resultType").count();
            assert_eq!(kinds, usize::from(to_modern), "in {sent:?}");
        } else if !given.iter().any(|(key, value)| is_cut(key, value)) {
            assert_eq!(*result, *text.as_bytes(), "legacy answers stay as they are");
        }
    }
    if let Ok(error) = translate_error(text, to_modern) {
        let sent = pairs(std::str::from_utf8(&error).expect("an error is UTF-8")).expect("an error is an object");
        let others = |key: &str| !["code", "message"].contains(&key);
        assert_eq!(kept(&sent, others), kept(&given, others));
        let is_message = |key: &str| key == "message";
        let (told, telling) = (kept(&given, is_message), kept(&sent, is_message));
        if told.last().is_none_or(|(_, text)| text == "null") {
            assert_eq!(telling.len(), 1, "an error has a message: {sent:?}");
        } else {
            assert_eq!(telling, told);
        }
    }
    let progress = translate_progress(text, "\"t\"");
    let sent = pairs(std::str::from_utf8(&progress).expect("params are UTF-8")).expect("params are an object");
    assert_eq!(
        kept(&sent, |key| key != "progressToken"),
        kept(&given, |key| key != "progressToken")
    );
}

fn keys(members: &[(String, String)]) -> Vec<&str> {
    members.iter().map(|(key, _)| key.as_str()).collect()
}

/// The members with these keys, on one line.
fn kept(members: &[(String, String)], is_kept: impl Fn(&str) -> bool) -> Vec<(&str, String)> {
    members
        .iter()
        .filter(|(key, _)| is_kept(key))
        .map(|(key, value)| (key.as_str(), value.replace(['\n', '\r'], " ")))
        .collect()
}

/// The members of an object as serde finds them; `None` if the text is no object.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    struct Pairs(Vec<(String, String)>);

    impl<'de> Deserialize<'de> for Pairs {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct InOrder;

            impl<'de> Visitor<'de> for InOrder {
                type Value = Pairs;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("an object")
                }

                fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                    let mut pairs = Vec::new();
                    while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                        pairs.push((key, value.get().to_owned()));
                    }
                    Ok(Pairs(pairs))
                }
            }

            deserializer.deserialize_map(InOrder)
        }
    }

    serde_json::from_str::<Pairs>(text).ok().map(|Pairs(pairs)| pairs)
}
