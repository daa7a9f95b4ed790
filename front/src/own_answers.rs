//! The requests that the front answers itself, because the answer depends on the build alone, and the era that it offers.

use std::borrow::Cow;

use actors::{
    json::replace_values,
    model::{Scope, ToolSet},
};
use serde_json::{Value, json};

use super::{
    identity::CLAUDE_CODE,
    shared::{Lists, State},
};
use api::mcp::{
    handshake::{
        ALREADY_INITIALIZED, Introduction, discover_result, initialize_result, with_changing_lists, with_name,
    },
    lists::{ListViewer, result_text},
    rpc::{INVALID_REQUEST, Params, RpcError},
    version::{ClientInfo, RequestMeta},
};
use common::json::scan::ScanError;

/// The viewer that the front's own lists are for: an agent of this user.
pub const LIST_VIEWER: ListViewer = ListViewer {
    is_multi_project: true,
    has_backends: false,
    scope: Scope::Member,
    tools: ToolSet::Agent,
};

/// Which generations of MCP the front offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OfferedEra {
    /// Both, but for clients that receive notifications in the legacy era only.
    #[default]
    Auto,
    /// Revisions up to 2025-11-25.
    Legacy,
    /// 2026-07-28.
    Modern,
}

/// Who answers a request.
#[derive(Debug)]
pub enum Answerer {
    /// The front, with this result.
    Front(Cow<'static, [u8]>),
    /// The front, and the broker gets it as well: `initialize`.
    Both(Value),
    /// The one that knows what the broker says of itself: `server/discover`.
    Discover,
    /// The broker.
    Broker,
}

/// Decides who answers a request, and answers it if the front does.
///
/// # Errors
/// Those of the broker for the same request.
pub fn answer(state: &mut State, era: OfferedEra, method: &str, params: &Params<'_>) -> Result<Answerer, RpcError> {
    let is_list = is_list(method);
    if !is_list && !matches!(method, "initialize" | "ping" | "server/discover") {
        return Ok(Answerer::Broker);
    }
    params.check_is_object()?;
    let meta = RequestMeta::parse(params)?;
    let is_modern = meta.is_modern();
    if is_modern {
        meta.log_level()?;
        meta.check_modern()?;
        if let Some(client) = ClientInfo::from_meta(params) {
            state.identity.meet(&client);
        }
    }
    params.check(method)?;
    match (method, is_modern) {
        ("ping", false) => Ok(Answerer::Front(Cow::Borrowed(b"{}"))),
        ("initialize", false) if era != OfferedEra::Modern => initialize(state, params).map(Answerer::Both),
        ("server/discover", true) if offers_modern(state, era) => Ok(Answerer::Discover),
        _ if !is_list => Err(RpcError::method_not_found(method)),
        // Without a connection only the front's own lists are at hand.
        _ if state.lists == Lists::Broker && state.link.is_some() => Ok(Answerer::Broker),
        _ if state.lists == Lists::Awaited && state.trouble.is_none() => Ok(Answerer::Broker),
        _ => match LIST_VIEWER.list(method, params, is_modern) {
            Some(list) => list.map(|list| Answerer::Front(for_now(state, list))),
            None => Ok(Answerer::Broker),
        },
    }
}

/// Whether a method asks for a list.
pub fn is_list(method: &str) -> bool {
    matches!(
        method,
        "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list"
    )
}

/// A list of the front. The client must not keep it where that of the broker is expected to be another one.
fn for_now(state: &mut State, list: Cow<'static, [u8]>) -> Cow<'static, [u8]> {
    if state.lists == Lists::Awaited {
        state.lists = Lists::Unconfirmed;
    }
    if state.lists != Lists::Unconfirmed {
        return list;
    }
    let text = str::from_utf8(&list).unwrap_or_default();
    let short = replace_values::<ScanError>(text, |key, _| Ok((key == "ttlMs").then(|| "0".to_owned())));
    short.map_or(list, |list| Cow::Owned(list.into_bytes()))
}

/// The result of `server/discover`; `None` if the broker can be asked, and may answer something else.
pub fn discover(state: &State) -> Option<Vec<u8>> {
    let is_known = state.lists == Lists::Own && !state.awaits_introduction;
    (is_known || state.open_link().is_none()).then(|| {
        let result = with_changing_lists(introduced(state, discover_result()));
        result_text(result, true)
    })
}

/// The result of a handshake, with the instructions of the broker and its backends, and the name of the agent.
pub fn introduced(state: &State, mut result: Value) -> Value {
    if let Some(instructions) = &state.instructions {
        result["instructions"] = json!(instructions);
    }
    match &state.name {
        Some(name) => with_name(result, name.as_str()),
        None => result,
    }
}

fn initialize(state: &mut State, params: &Params<'_>) -> Result<Value, RpcError> {
    if state.replay.has_initialize() {
        return Err(RpcError::new(INVALID_REQUEST, ALREADY_INITIALIZED));
    }
    let introduction = Introduction::parse(params, false)?;
    state
        .replay
        .note_initialize(params.text.unwrap_or("{}"), introduction.version);
    if let Some(client) = &introduction.client {
        state.identity.meet(client);
    }
    let mut result = with_changing_lists(initialize_result(introduction.version));
    if state.wake.is_channel(&state.identity) {
        result["capabilities"]["experimental"]["claude/channel"] = json!({});
    }
    Ok(result)
}

/// Whether the front answers `server/discover`. Claude Code would otherwise choose the modern era, in which it shows no
/// notifications of a server on stdio.
fn offers_modern(state: &State, era: OfferedEra) -> bool {
    match era {
        OfferedEra::Auto => !state.identity.is_product(CLAUDE_CODE),
        OfferedEra::Legacy => false,
        OfferedEra::Modern => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::mcp::rpc::{self, Incoming};

    fn ask(state: &mut State, era: OfferedEra, method: &str, params: &Value) -> Result<Value, i32> {
        let frame = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let Ok(Incoming::Request { params, .. }) = rpc::parse(&frame) else {
            panic!("{frame} is a request")
        };
        match answer(state, era, method, &params) {
            Ok(Answerer::Front(result)) => Ok(serde_json::from_slice(&result).unwrap()),
            Ok(Answerer::Both(result)) => Ok(result),
            Ok(Answerer::Discover) => Ok(serde_json::from_slice(&discover(state).unwrap()).unwrap()),
            Ok(Answerer::Broker) => Ok(Value::Null),
            Err(error) => Err(error.code),
        }
    }

    fn modern(client: &str) -> Value {
        json!({"_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": client, "version": "1"},
        }})
    }

    fn legacy(client: &str) -> Value {
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": client, "version": "1"}})
    }

    #[test]
    fn the_modern_era_is_offered_to_clients_that_see_its_notifications() {
        for (era, client, is_offered) in [
            (OfferedEra::Auto, "claude-code", false),
            (OfferedEra::Auto, "cursor", true),
            (OfferedEra::Legacy, "cursor", false),
            (OfferedEra::Modern, "claude-code", true),
        ] {
            let discovered = ask(&mut State::default(), era, "server/discover", &modern(client));
            assert_eq!(discovered.is_ok(), is_offered, "{era:?} {client}");
            assert!(is_offered || discovered == Err(rpc::METHOD_NOT_FOUND));
        }
        let state = &mut State::default();
        assert_eq!(
            ask(state, OfferedEra::Modern, "initialize", &legacy("x")),
            Err(rpc::METHOD_NOT_FOUND)
        );
        assert_eq!(
            ask(state, OfferedEra::Auto, "server/discover", &json!({})),
            Err(rpc::METHOD_NOT_FOUND)
        );
    }

    #[test]
    fn initialize_is_answered_once_and_announces_that_the_tools_may_change() {
        let state = &mut State::default();
        let result = ask(state, OfferedEra::Auto, "initialize", &legacy("x")).unwrap();
        assert_eq!(result["protocolVersion"], "2025-06-18");
        assert_eq!(result["capabilities"]["tools"]["listChanged"], true);
        assert_eq!(
            ask(state, OfferedEra::Auto, "initialize", &legacy("x")),
            Err(INVALID_REQUEST)
        );
        assert_eq!(ask(state, OfferedEra::Auto, "ping", &json!({})), Ok(json!({})));
    }

    #[test]
    fn lists_are_those_of_the_build_and_calls_go_to_the_broker() {
        let state = &mut State::default();
        let tools = ask(state, OfferedEra::Auto, "tools/list", &json!({})).unwrap();
        assert!(tools["tools"].as_array().unwrap().len() > 10);
        let cursor = json!({"cursor": "x"});
        assert_eq!(
            ask(state, OfferedEra::Auto, "tools/list", &cursor),
            Err(rpc::INVALID_PARAMS)
        );
        for method in ["tools/call", "resources/read", "unknown"] {
            assert_eq!(ask(state, OfferedEra::Auto, method, &json!({})), Ok(Value::Null));
        }
    }
}
