//! What the server offers beside calls: lists in pages, prompts, resources and completions.

use serde_json::{Value, json};

use crate::{Server, handshake::error, tasks, tools};

pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Serves a method that is no handshake and no call of a tool.
pub fn serve(server: &Server, method: &str, params: &Value) -> Result<Value, Value> {
    let uri = params["uri"].as_str().unwrap_or_default();
    let mut result = match method {
        _ if server.script.missing_methods.iter().any(|missing| missing == method) => {
            return Err(error(-32601, "Method not found"));
        }
        "tools/list" => {
            server.state().tools_lists += 1;
            if server.script.refuses_lists {
                return Err(error(-32603, "the tools are lost"));
            }
            page(server, "tools", tools::list(server), params)?
        }
        "prompts/list" => page(server, "prompts", prompts(), params)?,
        "resources/list" => page(server, "resources", resources(server), params)?,
        "resources/templates/list" => {
            let template = json!({"uriTemplate": "fake://{id}", "name": "any"});
            page(server, "resourceTemplates", vec![template], params)?
        }
        "prompts/get" if params["name"] == "greet" => {
            let text = format!("Hello {}", params["arguments"]["name"].as_str().unwrap_or("you"));
            json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
        }
        "prompts/get" => return Err(error(-32602, "no such prompt")),
        "resources/read" if uri.starts_with("fake://") && uri != "fake://none" => {
            let text = format!("content of {uri}{}", server.script.name);
            json!({"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]})
        }
        "resources/read" if server.is_modern() => return Err(error(-32602, "no such resource")),
        "resources/read" => return Err(error(-32002, "no such resource")),
        "resources/subscribe" => {
            server.state().subscribed.insert(uri.to_owned());
            json!({})
        }
        "resources/unsubscribe" => {
            server.state().subscribed.remove(uri);
            json!({})
        }
        "completion/complete" => {
            json!({"completion": {"values": ["alpha", "beta"], "total": 2, "hasMore": false}, "asked": params["ref"]})
        }
        "tasks/get" | "tasks/update" | "tasks/cancel" if server.script.has_tasks => {
            tasks::serve(server, method, params)?
        }
        _ => return Err(error(-32601, "Method not found")),
    };
    if server.is_modern() {
        result["resultType"] = json!("complete");
    }
    Ok(result)
}

/// Opens a subscription, which goes on until it is cancelled.
pub fn listen(server: &Server, id: &Value, params: &Value) {
    let asked = {
        let mut state = server.state();
        state.listen_requests += 1;
        state.listen_requests
    };
    if asked <= server.script.refused_listens {
        return server.answer(id, Err(error(-32603, "no subscription this time")));
    }
    let wanted = |member: &str| -> Vec<String> {
        let wanted = params["notifications"][member].as_array().into_iter().flatten();
        wanted.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut state = server.state();
    state.listens.insert(id.to_string(), wanted("resourceSubscriptions"));
    state.task_listens.insert(id.to_string(), wanted("taskIds"));
    drop(state);
    let params = json!({"_meta": {SUBSCRIPTION_ID: id}, "notifications": params["notifications"]});
    server.notify("notifications/subscriptions/acknowledged", &params);
}

/// Tells of a change of a resource, if a client wants to know.
pub fn touch(server: &Server, uri: &str) {
    let (is_subscribed, listens) = {
        let state = server.state();
        let listening = state
            .listens
            .iter()
            .filter(|(_, uris)| uris.iter().any(|known| known == uri));
        let listens: Vec<String> = listening.map(|(id, _)| id.clone()).collect();
        (state.subscribed.contains(uri), listens)
    };
    let ids = listens.iter().map(|id| serde_json::from_str(id).unwrap_or_default());
    for id in ids.map(|id: Value| Some(id)).chain(is_subscribed.then_some(None)) {
        let mut params = json!({"uri": uri});
        if let Some(id) = id {
            params["_meta"] = json!({SUBSCRIPTION_ID: id});
        }
        server.notify("notifications/resources/updated", &params);
    }
}

/// One page of a list.
fn page(server: &Server, member: &str, mut items: Vec<Value>, params: &Value) -> Result<Value, Value> {
    let script = &server.script;
    let further = script.items.iter().filter(|(list, _)| list == member);
    items.extend(further.map(|(_, item)| item.clone()));
    let last_cursor = script.last_cursor.as_deref();
    let from: usize = match params["cursor"].as_str() {
        None => 0,
        Some("") if last_cursor == Some("") => 0,
        cursor if cursor == last_cursor => items.len(),
        Some(cursor) => cursor.parse().map_err(|_| error(-32602, "Invalid cursor"))?,
    };
    let size = script.page_size.unwrap_or(usize::MAX);
    if script.failing_page == Some(from / size + 1) {
        return Err(error(-32603, "the page is lost"));
    }
    let more = from.checked_add(size).filter(|next| *next < items.len());
    let items: Vec<Value> = items.into_iter().skip(from).take(size).collect();
    let mut page = json!({(member): items});
    if let Some(next) = more.map(|next| next.to_string()).or(script.last_cursor.clone()) {
        page["nextCursor"] = json!(next);
    }
    if server.is_modern() {
        page["ttlMs"] = json!(60_000);
        page["cacheScope"] = json!("public");
    }
    Ok(page)
}

fn prompts() -> Vec<Value> {
    vec![json!({"name": "greet", "arguments": [{"name": "name"}]})]
}

fn resources(server: &Server) -> Vec<Value> {
    let own = ["fake://one", "fake://two"].map(str::to_owned);
    own.iter()
        .chain(&server.script.resources)
        .map(|uri| json!({"uri": uri, "name": uri}))
        .collect()
}
