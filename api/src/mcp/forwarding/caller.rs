//! What a backend and its pool know of the caller of a call: its names, what it can be asked for, and which addresses it was
//! handed.
//!
//! A caller has three names for three purposes:
//!
//! - [`Caller::id`], a number: callers that wait take turns by it.
//! - [`owner_of`]: the owner of an instance that the project does not share. It is a part of the affinity of the call.
//! - [`learner_of`]: an instance that runs one call at a time, and has learnt something of a caller (an answer to a question),
//!   serves only this caller.

use std::{
    borrow::Cow,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use actors::{
    gateway::{BackendView, CallerId, Profile, scheme_of},
    model::{BackendEra, BackendName, SessionId, Sharing},
    session::Connection,
};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::mcp::{
    client::PeerKind,
    context::PeerContext,
    interactive::{accepts_forms, accepts_urls},
    version::Era,
};
use common::json::scan::{self, ScanError};

/// A caller without the session that it acts as, which may become another one.
pub struct Caller {
    /// The path of its key.
    key: String,
    /// Its connection; `None` for a request that has none.
    connection: Option<u64>,
}

impl Caller {
    /// The caller of a peer.
    pub fn of(context: &PeerContext) -> Self {
        let has_connection = context.kind != PeerKind::Stateless;
        Self {
            key: context.identity.owner_path(),
            connection: has_connection.then(|| context.outbox.id().get()),
        }
    }

    /// Its owner: its key; or its session, if it acts as one, or else its connection. Requests without
    /// either belong to their key.
    pub fn owner(&self, sharing: Sharing, session: Option<SessionId>) -> Arc<str> {
        match (sharing, session, self.connection) {
            (Sharing::Session, Some(session), _) => format!("session {session}").into(),
            (Sharing::Session, None, Some(connection)) => format!("connection {connection}").into(),
            _ => self.key.as_str().into(),
        }
    }

    /// The number under which its calls take turns: that of its connection, because agents may share a key. Requests without
    /// a connection belong to their key.
    pub fn id(&self) -> CallerId {
        self.connection.unwrap_or_else(|| {
            let mut hasher = DefaultHasher::new();
            self.key.hash(&mut hasher);
            hasher.finish()
        })
    }
}

/// The caller of a peer, as an instance that has learnt something of it knows it: its session or its connection. A request
/// without either is a caller of its own.
pub fn learner_of(context: &PeerContext) -> Arc<str> {
    let caller = Caller::of(context);
    match (context.session_id(), caller.connection) {
        (None, None) => format!("request {}", Uuid::new_v4()).into(),
        (session, _) => caller.owner(Sharing::Session, session),
    }
}

/// The owner of the calls of a peer.
pub fn owner_of(context: &PeerContext, sharing: Sharing) -> Arc<str> {
    Caller::of(context).owner(sharing, context.session_id())
}

/// The kinds of input that the broker passes on, of those that the caller of a request declares.
pub fn carried_capabilities(context: &PeerContext, era: &Era) -> Map<String, Value> {
    let declared = match era {
        Era::Legacy => context.legacy.capabilities(),
        Era::Modern { capabilities } => capabilities.clone(),
    };
    let carried = ["elicitation", "sampling", "roots"];
    declared
        .into_iter()
        .filter(|(name, _)| carried.contains(&name.as_str()))
        .collect()
}

/// Whether a backend may ask its callers for input. By default modern ones may.
pub fn may_ask(view: &BackendView) -> bool {
    let era = view.link.as_ref().map(|link| link.era());
    view.config.asks.unwrap_or(era != Some(BackendEra::Legacy))
}

/// What a caller with these capabilities can be asked for.
pub fn profile_of(capabilities: &Map<String, Value>) -> Profile {
    Profile::NONE
        .with(Profile::FORM, accepts_forms(capabilities))
        .with(Profile::URL, accepts_urls(capabilities))
        .with(Profile::SAMPLING, capabilities.contains_key("sampling"))
        .with(Profile::ROOTS, capabilities.contains_key("roots"))
}

/// Addresses of one result that are noted.
const NOTED_MAX: usize = 1_000;
/// Levels of a result below which no address is looked for: that of a resource in a message of the result of a task.
const DEPTH_MAX: usize = 6;
/// Bytes of a `_meta` in which addresses are looked for.
const META_LEN_MAX: usize = 64 * 1024;

/// Notes what a result hands out that a backend gives the caller. A client that sees one backend needs no note.
pub fn note_addresses(context: &PeerContext, backend: &BackendName, result: &[u8]) {
    let Some(gateway) = context.project.gateway() else {
        return;
    };
    let may_have_any = [b"\"uri\"".as_slice(), b"\"_meta\""]
        .iter()
        .any(|member| memchr::memmem::find(result, member).is_some());
    if !may_have_any || context.exposure.only_backend(&gateway.shared().offered()).is_some() {
        return;
    }
    let mut addresses = Vec::new();
    collect(str::from_utf8(result).unwrap_or_default(), DEPTH_MAX, &mut addresses);
    let caller = Caller::of(context).id();
    for address in addresses {
        gateway.shared().handed_out.note(caller, backend, &address);
    }
}

/// The addresses in a result, in one of its parts or in a list of such.
fn collect<'a>(value: &'a str, depth: usize, addresses: &mut Vec<Cow<'a, str>>) {
    let Some(below) = depth.checked_sub(1).filter(|_| addresses.len() < NOTED_MAX) else {
        return;
    };
    // What is no JSON has no addresses.
    let _ = match value.as_bytes().first() {
        Some(b'{') => scan::members::<ScanError>(value, |key, value| {
            match &*key {
                "uri" => addresses.extend(scan::string(value)),
                "_meta" if value.len() <= META_LEN_MAX => collect_texts(value, DEPTH_MAX, addresses),
                "content" | "contents" | "messages" | "resource" | "result" => collect(value, below, addresses),
                _ => {}
            }
            Ok(())
        }),
        Some(b'[') => scan::elements::<ScanError>(value, |element| {
            collect(element, below, addresses);
            Ok(())
        }),
        _ => Ok(()),
    };
}

/// The texts in a value that look like URIs.
fn collect_texts<'a>(value: &'a str, depth: usize, addresses: &mut Vec<Cow<'a, str>>) {
    let Some(below) = depth.checked_sub(1).filter(|_| addresses.len() < NOTED_MAX) else {
        return;
    };
    let _ = match value.as_bytes().first() {
        Some(b'"') => {
            addresses.extend(scan::string(value).filter(|text| scheme_of(text).is_some()));
            Ok(())
        }
        Some(b'{') => scan::members::<ScanError>(value, |_, value| {
            collect_texts(value, below, addresses);
            Ok(())
        }),
        Some(b'[') => scan::elements::<ScanError>(value, |element| {
            collect_texts(element, below, addresses);
            Ok(())
        }),
        _ => Ok(()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_all_kinds_of_results_are_found() {
        for (result, expected) in [
            (
                r#"{"content":[{"type":"resource_link","uri":"a:1"},{"type":"resource","resource":{"uri":"a:2"}}]}"#,
                &["a:1", "a:2"][..],
            ),
            (
                r#"{"contents":[{"uri":"a:1","blob":""},{"uri":"a:\u0032"}]}"#,
                &["a:1", "a:2"],
            ),
            (
                r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a:1"}}}]}"#,
                &["a:1"],
            ),
            (
                r#"{"_meta":{"ui":{"resourceUri":"ui://a"},"n":[1,"a:2","a text: no URI"]},"content":[]}"#,
                &["ui://a", "a:2"],
            ),
            (
                r#"{"taskId":"t","result":{"content":[{"type":"resource_link","uri":"a:1"}]}}"#,
                &["a:1"],
            ),
            (r#"{"structuredContent":{"uri":"a:1"},"content":[]}"#, &[]),
            ("[", &[]),
        ] {
            let mut addresses = Vec::new();
            collect(result, DEPTH_MAX, &mut addresses);
            assert_eq!(addresses, expected, "{result}");
        }
    }

    #[test]
    fn the_addresses_of_one_result_are_bounded() {
        let link = r#"{"type":"resource_link","uri":"a:1"}"#;
        let result = format!("{{\"content\":[{}]}}", vec![link; NOTED_MAX * 2].join(","));
        let mut addresses = Vec::new();
        collect(&result, DEPTH_MAX, &mut addresses);
        assert_eq!(addresses.len(), NOTED_MAX);
    }
}
