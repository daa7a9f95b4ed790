//! What the broker says of itself to a client that is shown backends: their instructions, and that its lists change.

use std::rc::Rc;

use actors::gateway::{GatewayShared, ListRevisions, Offered};
use serde_json::{Value, json};

use crate::mcp::{
    context::PeerContext,
    handshake::{discover_result, initialize_result},
    list_changes::List,
    subscriptions::Notifier,
    tasks,
};

/// Bytes of the instructions of one backend, and of all together.
const INSTRUCTIONS_LEN_MAX: usize = 2 * 1024;
const ALL_INSTRUCTIONS_LEN_MAX: usize = 8 * 1024;

/// The result of `server/discover`.
pub fn discover(context: &PeerContext) -> Value {
    introduced(context, discover_result())
}

/// The result of `initialize`. From then on the client is told of changed lists.
pub fn initialize(context: &Rc<PeerContext>, version: &str) -> Value {
    if let Some(gateway) = context.project.gateway()
        && context.exposure.has_backends()
    {
        context
            .list_notifier
            .replace(Some(notify_of_lists(context, gateway.shared())));
    }
    introduced(context, initialize_result(version, false))
}

fn introduced(context: &PeerContext, mut result: Value) -> Value {
    let Some(gateway) = context.project.gateway().filter(|_| context.exposure.has_backends()) else {
        return result;
    };
    let capabilities = &mut result["capabilities"];
    for list in ["tools", "prompts", "resources"] {
        capabilities[list]["listChanged"] = json!(true);
    }
    let offered = gateway.shared().offered();
    if context.exposure.has_own() {
        let own = result["instructions"].as_str().unwrap_or_default();
        result["instructions"] = json!(format!("{own}{}", instructions_of_all(&offered)));
        return result;
    }
    let only = context.exposure.only_backend(&offered);
    if let Some(capabilities) = capabilities.as_object_mut() {
        capabilities.remove("experimental");
        let had_extensions = capabilities.remove("extensions").is_some();
        if had_extensions && has_tasks(&offered, only) {
            capabilities.insert("extensions".to_owned(), json!({tasks::EXTENSION: {}}));
        }
    }
    let instructions = match only {
        Some(at) => offered.backends.get(at).and_then(|backend| {
            let view = backend.view();
            let instructions = view.server.as_ref()?.instructions.as_deref();
            let shown = instructions.filter(|_| view.config.shows_instructions)?;
            Some(cut(shown, ALL_INSTRUCTIONS_LEN_MAX).to_owned())
        }),
        None => Some(instructions_of_all(&offered).trim_start().to_owned()).filter(|all| !all.is_empty()),
    };
    match instructions {
        Some(instructions) => result["instructions"] = json!(instructions),
        None => drop(result.as_object_mut().and_then(|result| result.remove("instructions"))),
    }
    result
}

/// Whether a backend declares tasks: the one at a position, or any.
fn has_tasks(offered: &Offered, only: Option<usize>) -> bool {
    let mut backends = (0..).zip(&offered.backends);
    backends.any(|(at, backend)| {
        let server = backend
            .view()
            .server
            .clone()
            .filter(|_| only.is_none_or(|only| only == at));
        server
            .is_some_and(|server| serde_json::from_str(&server.capabilities).is_ok_and(|own| tasks::is_declared(&own)))
    })
}

/// The instructions of all backends, each under its name.
fn instructions_of_all(offered: &Offered) -> String {
    let mut all = String::new();
    for backend in &offered.backends {
        let view = backend.view();
        let instructions = view.server.as_ref().and_then(|server| server.instructions.as_deref());
        let Some(instructions) = instructions.filter(|_| view.config.shows_instructions) else {
            continue;
        };
        let shown = cut(instructions, INSTRUCTIONS_LEN_MAX);
        let part = format!("\n\n# {}\n\n{}", backend.name, shown.trim());
        if all.len() + part.len() > ALL_INSTRUCTIONS_LEN_MAX {
            break;
        }
        all.push_str(&part);
    }
    all
}

/// The beginning of a text, of at most this many bytes.
fn cut(text: &str, len_max: usize) -> &str {
    let mut end = text.len().min(len_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Starts to tell a legacy client of changed lists.
fn notify_of_lists(context: &PeerContext, gateway: &GatewayShared) -> Notifier {
    let mut revisions = gateway.revisions();
    let mut seen = *revisions.borrow_and_update();
    let outbox = std::sync::Arc::clone(&context.outbox);
    let task = actix_rt::spawn(async move {
        while revisions.changed().await.is_ok() {
            let now = *revisions.borrow_and_update();
            for list in List::ALL {
                if revision_of(list, &now) != revision_of(list, &seen) {
                    let method = list.notification();
                    outbox.send(format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\"}}").as_bytes());
                }
            }
            seen = now;
        }
    });
    Notifier(task.abort_handle())
}

/// How often a list of the backends has changed.
pub fn revision_of(list: List, revisions: &ListRevisions) -> u64 {
    match list {
        List::Tools => revisions.tools,
        List::Prompts => revisions.prompts,
        List::Resources => revisions.resources,
    }
}
