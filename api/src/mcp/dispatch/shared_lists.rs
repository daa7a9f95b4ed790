//! The lists that the broker and its backends share: the broker's own items first, then those of the backends, in pages.

use std::rc::Rc;

use actors::{
    clock::now,
    gateway::{ListKind, ListPage},
    model::PAGE_BYTES_MAX,
};
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use crate::{
    mcp::{
        calls::ShutdownBehaviour,
        context::PeerContext,
        forwarding::ShownLists,
        lists::{ListViewer, result_text},
        reply::ReplyTo,
        rpc::{INTERNAL_ERROR, Params, RpcError},
    },
    verbs::backends,
};
use common::json::scan::{self, ScanError};

/// How long a client may cache the lists, in milliseconds. It gets notifications of changes.
const TTL_MS: u64 = 60_000;
/// What a cursor begins with; the position of its first item follows.
const CURSOR: &str = "b";

/// Serves a list. The first ones wait for backends that have not listed yet what they offer.
pub(super) fn serve(
    context: &Rc<PeerContext>,
    to: &ReplyTo,
    kind: ListKind,
    params: &Params<'_>,
    shown: ShownLists,
) -> Result<(), RpcError> {
    let from = first_item(params)?;
    let list_wait = context.project.gateway().map(|gateway| gateway.settings().list_wait);
    let list_wait = list_wait.unwrap_or_default();
    let wait_left = move |context: &PeerContext, shown: &ShownLists| {
        let only = shown.only_backend(context, &shown.gateway.offered());
        shown.gateway.wait_left(only, list_wait, now())
    };
    let at_most = wait_left(context, &shown);
    if at_most.is_zero() {
        return answer(context, to, kind, from, &shown);
    }
    if !context.calls.has_free_slot() {
        return Err(RpcError::new(INTERNAL_ERROR, "too many calls are under way"));
    }
    let (waiting, to_waiting) = (Rc::clone(context), to.clone());
    let wait = async move {
        let all_known = shown
            .gateway
            .wait_for(|| wait_left(&waiting, &shown).is_zero().then_some(()));
        let _ = timeout(at_most, all_known).await;
        if let Err(error) = answer(&waiting, &to_waiting, kind, from, &shown) {
            to_waiting.error(&waiting.outbox, &error);
        }
    };
    context.calls.spawn(to, ShutdownBehaviour::Finish, wait);
    Ok(())
}

/// The position of the first item of the wanted page; `None` for the first page, which has the broker's own items.
fn first_item(params: &Params<'_>) -> Result<Option<usize>, RpcError> {
    #[derive(Deserialize)]
    struct ListParams {
        cursor: Option<String>,
    }
    let invalid = || RpcError::invalid_params("Invalid cursor");
    let Some(cursor) = params.parse::<ListParams>()?.cursor else {
        return Ok(None);
    };
    let position = cursor.strip_prefix(CURSOR).and_then(|position| position.parse().ok());
    position.map(Some).ok_or_else(invalid)
}

fn answer(
    context: &PeerContext,
    to: &ReplyTo,
    kind: ListKind,
    from: Option<usize>,
    shown: &ShownLists,
) -> Result<(), RpcError> {
    let own_text = (from.is_none() && context.exposure.has_own())
        .then(|| viewer_of(context).list(kind.method(), &Params::default(), to.modern))
        .flatten()
        .transpose()?;
    let own = own_text.as_deref().and_then(|text| str::from_utf8(text).ok());
    let own = own.and_then(|text| items_of(text, kind)).unwrap_or_default();
    let offered = shown.gateway.offered();
    let listing = offered.routes.listing(shown.only_backend(context, &offered), kind);
    let (first, room) = (from.unwrap_or_default(), PAGE_BYTES_MAX.saturating_sub(own.len()));
    let page = listing.page(first, room);
    let mut page = page.ok_or_else(|| RpcError::invalid_params("Invalid cursor"))?;
    // An item that is longer than the rest of the page begins the next one.
    if !own.is_empty() && page.text.len() > room {
        page = ListPage {
            text: "",
            next: Some(first),
        };
    }
    let is_known = offered.is_complete() && (0..offered.backends.len()).all(|at| offered.is_known(at));
    let mut members = json!({
        "ttlMs": if is_known { TTL_MS } else { 0 },
        "cacheScope": "private",
    });
    if let Some(next) = page.next {
        members["nextCursor"] = json!(format!("{CURSOR}{next}"));
    }
    let rest = result_text(members, to.modern);
    let mut out = Vec::with_capacity(own.len() + page.text.len() + rest.len() + 32);
    out.extend_from_slice(format!("{{\"{}\":[", kind.member()).as_bytes());
    out.extend_from_slice(own.as_bytes());
    if !own.is_empty() && !page.text.is_empty() {
        out.push(b',');
    }
    out.extend_from_slice(page.text.as_bytes());
    out.extend_from_slice(b"],");
    out.extend_from_slice(rest.strip_prefix(b"{").unwrap_or(&rest));
    context.identity.charge_answer(out.len());
    to.result(&context.outbox, &*out);
    Ok(())
}

/// The items of the broker's own list, separated by commas.
fn items_of(list: &str, kind: ListKind) -> Option<&str> {
    let mut items = None;
    scan::members::<ScanError>(list, |key, value| {
        if key == kind.member() {
            items = value.strip_prefix('[').and_then(|value| value.strip_suffix(']'));
        }
        Ok(())
    })
    .ok()?;
    items
}

/// Who gets the same lists as this caller.
pub(super) fn viewer_of(context: &PeerContext) -> ListViewer {
    ListViewer::of(&context.service, &context.identity, backends::any(&context.project))
}
