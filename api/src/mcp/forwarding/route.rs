//! Where a request leads: to the broker itself, or to a backend under the backend's own name.

use std::{borrow::Cow, sync::Arc};

use actors::{
    gateway::{BackendShared, GatewayShared, ListKind, Offered, Target},
    json,
    model::Scope,
};

use super::caller::Caller;
use crate::mcp::{
    client::Exposure,
    context::PeerContext,
    rpc::{Params, RpcError, shortened},
    tools,
};
use common::json::scan;

/// What the URIs of the broker's own resources begin with. No backend can take their place.
const OWN_SCHEME: &str = "broker:";

/// The way of a request to a backend.
#[derive(Clone)]
pub struct Route {
    /// The backend.
    pub backend: Arc<BackendShared>,
    /// The method of the request.
    pub method: &'static str,
    /// The member of the params that is replaced, and its new value as JSON.
    pub replaced: (&'static str, String),
    /// The name that was called, if no instance of the backend has listed yet what it offers. It is looked up once one has.
    pub awaited: Option<String>,
    /// The id by which the caller knows the task that the request is about.
    pub task: Option<String>,
}

/// The backend that answers a request; `None` if the broker does.
///
/// # Errors
/// Invalid params if the client sees only one backend, which has no such tool or prompt.
pub fn find_route(context: &PeerContext, method: &str, params: &Params<'_>) -> Result<Option<Route>, RpcError> {
    if method == "tools/call" {
        return tool_route(context, params);
    }
    let Some((_, offered)) = gateway_of(context) else {
        return Ok(None);
    };
    match method {
        "prompts/get" => prompt_route(context, &offered, params),
        "resources/read" => Ok(resource_route(context, &offered, params)),
        "completion/complete" => Ok(completion_route(context, &offered, params)),
        _ => Ok(None),
    }
}

/// The backends that the caller may use, and what they offer now; `None` if it may use none.
fn gateway_of(context: &PeerContext) -> Option<(&Arc<GatewayShared>, Arc<Offered>)> {
    if !context.exposure.has_backends() || context.identity.check_scope(Scope::Member).is_err() {
        return None;
    }
    let gateway = context.project.gateway()?.shared();
    let offered = gateway.offered();
    let may_have_any = !offered.backends.is_empty() || !offered.is_complete();
    (may_have_any || !context.exposure.has_own()).then_some((gateway, offered))
}

/// The backends whose lists a caller sees.
pub struct ShownLists {
    pub gateway: Arc<GatewayShared>,
    /// The caller may use no backend, and sees nothing else.
    are_empty: bool,
}

impl ShownLists {
    /// As [`Exposure::only_backend`](crate::mcp::client::Exposure::only_backend).
    pub fn only_backend(&self, context: &PeerContext, offered: &Offered) -> Option<usize> {
        if self.are_empty {
            return Some(usize::MAX);
        }
        context.exposure.only_backend(offered)
    }
}

/// The backends whose lists the caller sees; `None` for the broker's own lists alone.
pub fn lists_of(context: &PeerContext) -> Option<ShownLists> {
    if let Some((gateway, _)) = gateway_of(context) {
        return Some(ShownLists {
            gateway: Arc::clone(gateway),
            are_empty: false,
        });
    }
    let gateway = context.project.gateway().filter(|_| !context.exposure.has_own())?;
    Some(ShownLists {
        gateway: Arc::clone(gateway.shared()),
        are_empty: true,
    })
}

/// The error for a tool that does not exist for the caller.
pub fn unknown_tool(name: &str) -> RpcError {
    RpcError::invalid_params(format!("Unknown tool: {}", shortened(name)))
}

/// A call of one of the broker's own tools does not look at what the backends offer.
fn tool_route(context: &PeerContext, params: &Params<'_>) -> Result<Option<Route>, RpcError> {
    let Some(name) = params.named() else {
        return Ok(None);
    };
    let has_own = context.exposure.has_own();
    if has_own && tools::find(&name).is_some() {
        return Ok(None);
    }
    let route = gateway_of(context)
        .and_then(|(_, offered)| named_route(context, &offered, ListKind::Tools, "tools/call", &name));
    match route {
        None if !has_own => Err(unknown_tool(&name)),
        route => Ok(route),
    }
}

fn prompt_route(context: &PeerContext, offered: &Offered, params: &Params<'_>) -> Result<Option<Route>, RpcError> {
    let Some(name) = params.named() else {
        return Ok(None);
    };
    match named_route(context, offered, ListKind::Prompts, "prompts/get", &name) {
        None if !context.exposure.has_own() => Err(RpcError::invalid_params(format!(
            "Unknown prompt: {}",
            shortened(&name)
        ))),
        route => Ok(route),
    }
}

fn named_route(
    context: &PeerContext,
    offered: &Offered,
    kind: ListKind,
    method: &'static str,
    name: &str,
) -> Option<Route> {
    let only = context.exposure.only_backend(offered);
    let route = |backend: &Arc<BackendShared>, original: &str, awaited| Route {
        backend: Arc::clone(backend),
        method,
        replaced: ("name", json::string(original)),
        awaited,
        task: None,
    };
    if let Some(target) = find_name(context, offered, kind, name) {
        // What the store has kept may have changed: the running instance decides.
        let is_kept = !offered.has_announced(target.backend);
        let awaited = is_kept.then(|| name.to_owned());
        return Some(route(offered.backend_of(target)?, &target.original, awaited));
    }
    // A backend of which it was not known what it offers, when these names were made, may have it.
    let at = if let Some(at) = only {
        at
    } else {
        let naming = &context.project.gateway()?.settings().naming;
        offered.backends.iter().enumerate().position(|(at, backend)| {
            let rest = name.strip_prefix(backend.name.as_str()).unwrap_or_default();
            !offered.is_known(at) && naming.separators().any(|separator| rest.starts_with(separator))
        })?
    };
    let backend = offered.backends.get(at).filter(|_| !offered.is_known(at))?;
    Some(route(backend, name, Some(name.to_owned())))
}

/// Where a name leads. A client that sees all backends and nothing else may know names of a time with one backend, or with
/// several: both are found.
fn find_name<'a>(context: &PeerContext, offered: &'a Offered, kind: ListKind, name: &str) -> Option<&'a Target> {
    let find_in = |backend| offered.routes.listing(backend, kind).find(name);
    if context.exposure != Exposure::Backends {
        return find_in(context.exposure.only_backend(offered));
    }
    find_in(None).or_else(|| {
        let mut bare = (0..offered.backends.len()).filter_map(|at| find_in(Some(at)));
        let found = bare.next()?;
        bare.next().is_none().then_some(found)
    })
}

/// The name of the backend for a called name, once an instance has listed what it offers. `None` before; an error if it does
/// not offer the name.
pub fn awaited_name(context: &PeerContext, route: &Route, called: &str) -> Option<Result<String, ()>> {
    let gateway = context.project.gateway()?;
    let offered = gateway.shared().offered();
    let at = offered
        .backends
        .iter()
        .position(|backend| Arc::ptr_eq(backend, &route.backend))?;
    if !offered.has_announced(at) {
        return None;
    }
    let kind = match route.method {
        "prompts/get" => ListKind::Prompts,
        _ => ListKind::Tools,
    };
    let found = find_name(context, &offered, kind, called).filter(|target| target.backend == at);
    Some(found.map(|target| json::string(&target.original)).ok_or(()))
}

fn resource_route(context: &PeerContext, offered: &Offered, params: &Params<'_>) -> Option<Route> {
    let uri = string_member(params.text?, "uri")?;
    let target = resource_target(context, offered, &uri)?;
    Some(Route {
        backend: Arc::clone(offered.backend_of(&target)?),
        method: "resources/read",
        replaced: ("uri", json::string(&target.original)),
        awaited: None,
        task: None,
    })
}

fn resource_target(context: &PeerContext, offered: &Offered, uri: &str) -> Option<Target> {
    if context.exposure.has_own() && uri.starts_with(OWN_SCHEME) {
        return None;
    }
    let only = context.exposure.only_backend(offered);
    let listed = (only.is_none() || context.exposure == Exposure::Backends).then(|| {
        let offered_resource = offered.routes.offered_resource(uri);
        offered_resource
            .or_else(|| handed_out(context, offered, uri))
            .or_else(|| offered.routes.resource(uri))
    });
    listed.flatten().or_else(|| {
        only.map(|backend| Target {
            backend,
            original: uri.into(),
        })
    })
}

/// Where a URI leads that a result has handed out to the caller.
fn handed_out(context: &PeerContext, offered: &Offered, uri: &str) -> Option<Target> {
    let known = &context.project.gateway()?.shared().handed_out;
    let name = known.backend_of(Caller::of(context).id(), uri)?;
    let backend = offered.backends.iter().position(|backend| backend.name == name)?;
    Some(Target {
        backend,
        original: uri.into(),
    })
}

/// The backend that has the resource of this URI, and the URI that the backend gives it.
pub fn resource_of(context: &PeerContext, uri: &str) -> Option<(Arc<BackendShared>, Box<str>)> {
    let (_, offered) = gateway_of(context)?;
    let target = resource_target(context, &offered, uri)?;
    Some((Arc::clone(offered.backend_of(&target)?), target.original))
}

/// The backend of this name, if the caller sees it and is offered its tool of this original name.
pub fn backend_with_tool(context: &PeerContext, name: &str, tool: &str) -> Option<Arc<BackendShared>> {
    let (_, offered) = gateway_of(context)?;
    let (at, backend) = offered.backend_with_tool(name, tool)?;
    let only = context.exposure.only_backend(&offered);
    only.is_none_or(|only| only == at).then(|| Arc::clone(backend))
}

/// A completion belongs to the backend whose prompt or resource it refers to.
fn completion_route(context: &PeerContext, offered: &Offered, params: &Params<'_>) -> Option<Route> {
    let reference = json::member(params.text?, "ref")?;
    let (key, target) = if let Some(name) = string_member(reference, "name") {
        ("name", find_name(context, offered, ListKind::Prompts, &name)?.clone())
    } else {
        let uri = string_member(reference, "uri")?;
        ("uri", template_target(context, offered, &uri)?)
    };
    let members = json::members(reference).ok()?;
    let original = json::string(&target.original);
    let mut replaced = Vec::new();
    json::write_object(
        &mut replaced,
        members
            .iter()
            .map(|(member, value)| (&**member, if *member == key { original.as_str() } else { value })),
    );
    Some(Route {
        backend: Arc::clone(offered.backend_of(&target)?),
        method: "completion/complete",
        replaced: ("ref", String::from_utf8(replaced).ok()?),
        awaited: None,
        task: None,
    })
}

fn template_target(context: &PeerContext, offered: &Offered, uri: &str) -> Option<Target> {
    match find_name(context, offered, ListKind::Templates, uri) {
        Some(target) => Some(target.clone()),
        None => resource_target(context, offered, uri),
    }
}

fn string_member<'a>(text: &'a str, wanted: &str) -> Option<Cow<'a, str>> {
    scan::string(json::member(text, wanted)?)
}
