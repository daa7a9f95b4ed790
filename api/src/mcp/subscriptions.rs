//! The subscriptions of a peer, in both eras, and the pushes and notifications that follow from them.

use std::rc::Rc;

use actors::{
    json,
    model::{ConnectionId, SessionId},
    session::{AckMode, PushMode, Subscribe},
};
use tokio::{sync::watch, task::AbortHandle};

use super::{outbox::PushFrame, version::PushSettings};
use common::json::frame::{self, JsonText};

/// The URI of the inbox of the connection's own session.
pub const INBOX: &str = "broker://inbox";

/// All subscriptions of one peer.
#[derive(Default)]
pub struct Subscriptions {
    /// Legacy `resources/subscribe`: the subscribed URIs of the inbox.
    legacy_inbox: Vec<String>,
    /// Legacy `resources/subscribe`: other subscribed resources.
    legacy_resources: Vec<(String, Notifier)>,
    listens: Vec<OpenListen>,
    /// The session that the peer acts as, for the subscriptions to what it may have an instance of its own of.
    session: Option<watch::Sender<Option<SessionId>>>,
}

/// An open `subscriptions/listen` (2026-07-28).
pub struct OpenListen {
    /// The id of the request as JSON, verbatim.
    pub id: Rc<str>,
    /// The URI by which the peer named its inbox, if it subscribed to it.
    pub inbox: Option<String>,
    /// How messages are pushed to it, if at all.
    pub push: Option<PushSettings>,
    /// Subscribed resources without the inbox, and tasks of backends.
    pub watched_len: usize,
    /// The tasks that send its other notifications.
    pub notifiers: Vec<Notifier>,
}

/// A task that sends notifications to a listen. Dropping it ends the task.
pub struct Notifier(pub AbortHandle);

impl Drop for Notifier {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The combined effect of all subscriptions, for the session and the outbox.
#[derive(Debug, Default, PartialEq)]
pub struct EffectiveSubscriptions {
    /// How messages are pushed, if at all.
    pub push: Option<PushSettings>,
    /// The frame around a pushed message.
    pub push_frame: Option<PushFrame>,
    /// The notifications about a changed inbox, one per subscription.
    pub inbox_frames: Vec<Box<[u8]>>,
}

impl EffectiveSubscriptions {
    /// The command that applies it to the session.
    pub fn to_subscribe(&self, connection: ConnectionId) -> Subscribe {
        let push = self.push.map(|PushSettings { window, auto_ack: auto }| PushMode {
            window,
            ack: if auto { AckMode::Auto } else { AckMode::Manual },
        });
        Subscribe {
            connection,
            inbox_changes: !self.inbox_frames.is_empty(),
            push,
        }
    }
}

impl Subscriptions {
    /// The session that the peer acts as, which is this one, and the later ones.
    pub fn sessions(&mut self, session: Option<SessionId>) -> watch::Receiver<Option<SessionId>> {
        self.session
            .get_or_insert_with(|| watch::Sender::new(session))
            .subscribe()
    }

    /// The peer acts as this session.
    pub fn acts_as(&self, session: Option<SessionId>) {
        if let Some(known) = &self.session {
            known.send_if_modified(|known| std::mem::replace(known, session) != session);
        }
    }

    /// Adds a legacy subscription; repeating it has no effect.
    pub fn subscribe_legacy(&mut self, uri: String) {
        if !self.legacy_inbox.contains(&uri) {
            self.legacy_inbox.push(uri);
        }
    }

    /// Adds a legacy subscription to another resource than the inbox, in place of one to the same resource.
    pub fn subscribe_legacy_resource(&mut self, uri: String, notifier: Notifier) {
        self.legacy_resources.retain(|(known, _)| *known != uri);
        self.legacy_resources.push((uri, notifier));
    }

    /// Ends a legacy subscription. Returns false if there is none to another resource than the inbox.
    pub fn unsubscribe_legacy(&mut self, uri: &str) -> bool {
        self.legacy_inbox.retain(|known| known != uri);
        let before = self.legacy_resources.len();
        self.legacy_resources.retain(|(known, _)| known != uri);
        self.legacy_resources.len() < before
    }

    /// Subscribed resources without the inbox, and tasks of backends.
    pub fn watched_len(&self) -> usize {
        let of_listens = self.listens.iter().map(|listen| listen.watched_len);
        self.legacy_resources.len() + of_listens.sum::<usize>()
    }

    /// Adds a listen.
    pub fn listen(&mut self, listen: OpenListen) {
        self.listens.push(listen);
    }

    /// Ends a listen; false if there is none with this id.
    pub fn end_listen(&mut self, id: &str) -> bool {
        let before = self.listens.len();
        self.listens.retain(|listen| &*listen.id != id);
        self.listens.len() < before
    }

    /// Ends all listens and returns their ids.
    pub fn end_all_listens(&mut self) -> Vec<Rc<str>> {
        self.listens.drain(..).map(|listen| Rc::clone(&listen.id)).collect()
    }

    /// Whether a listen with this id is open.
    pub fn has_listen(&self, id: &str) -> bool {
        self.listens.iter().any(|listen| &*listen.id == id)
    }

    /// Open listens.
    pub fn listens_len(&self) -> usize {
        self.listens.len()
    }

    /// Combines the subscriptions. Messages go to one place: the legacy connection if it takes them, else the first
    /// listen that does. A listen that gets messages gets no notifications about the same inbox.
    pub fn effective(&self, legacy_push: Option<PushSettings>) -> EffectiveSubscriptions {
        let mut wanted = EffectiveSubscriptions::default();
        if let Some(settings) = legacy_push {
            wanted.push = Some(settings);
            wanted.push_frame = Some(push_frame(None));
        }
        for uri in &self.legacy_inbox {
            wanted.inbox_frames.push(updated_frame(None, uri));
        }
        for listen in &self.listens {
            let Some(uri) = &listen.inbox else { continue };
            match listen.push {
                Some(settings) if wanted.push.is_none() => {
                    wanted.push = Some(settings);
                    wanted.push_frame = Some(push_frame(Some(&listen.id)));
                }
                _ => wanted.inbox_frames.push(updated_frame(Some(&listen.id), uri)),
            }
        }
        wanted
    }
}

/// The member of `_meta` that names the listen of a notification, as JSON.
pub const SUBSCRIPTION_ID: &str = "\"io.modelcontextprotocol/subscriptionId\"";

/// `_meta` of a notification that belongs to a listen, and the comma after it: the id of its request, verbatim.
pub fn meta(listen: Option<&str>) -> String {
    listen.map_or_else(String::new, |id| format!("\"_meta\":{{{SUBSCRIPTION_ID}:{id}}},"))
}

fn push_frame(listen: Option<&str>) -> PushFrame {
    let empty = frame::notification("notifications/dev.mcp-broker/message", "{}").into_text();
    let (params, after) = empty.split_at(empty.len() - "}}".len());
    let before = format!("{params}{}\"message\":", meta(listen));
    let subscription = listen.map_or_else(String::new, |id| format!("{SUBSCRIPTION_ID}:{id},"));
    PushFrame {
        before: before.into_bytes().into(),
        before_trace: format!("{params}\"_meta\":{{{subscription}").into_bytes().into(),
        after: after.as_bytes().into(),
    }
}

/// The notification that a resource has changed. `listen` is the id of the listen that asked for it, as JSON.
pub fn updated_frame(listen: Option<&str>, uri: &str) -> Box<[u8]> {
    let params = format!("{{{}\"uri\":{}}}", meta(listen), json::string(uri));
    frame::notification("notifications/resources/updated", params)
        .into_bytes()
        .into()
}
