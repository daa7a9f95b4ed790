//! Clients of a flood over WebSocket: they keep a window of requests in flight and never slow down.

use std::sync::mpsc::Sender;

use memchr::memmem;
use serde_json::{Value, json};

use super::{FloodKind, FloodSize, FloodState, SWITCH_DELAY_MAX};
use crate::{
    error::Result,
    event_loop::{Nanos, Outbox},
    fleet::{Push, Workload},
    messages::{self, Template},
    workloads::RunContext,
};

/// Large messages in flight on a connection: both sides hold them in memory.
const LARGE_WINDOW_MAX: usize = 2;
/// Connections of the flood of the largest messages: both sides hold the messages in memory.
const LARGEST_CONNECTIONS_MAX: usize = 8;
/// Bytes of the metadata of a session; the broker allows 16 KiB.
const METADATA_LEN: usize = 15_000;
/// The broker closes a connection after ten frames in a row that are not JSON.
const GARBAGE_IN_A_ROW: u64 = 9;
const NOTIFICATIONS_PER_REQUEST: usize = 16;

const NOT_JSON: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_message",,}}"#;

const PUSH: Push = Push {
    window: 64,
    manual: false,
};

/// Runs all clients of a flood until it ends. Sends on `ready` when they are connected.
pub fn clients(
    kind: FloodKind,
    size: FloodSize,
    bench: &RunContext,
    shared: &FloodState,
    ready: &Sender<()>,
) -> Result<()> {
    let connections = match kind {
        FloodKind::Largest => size.connections.min(LARGEST_CONNECTIONS_MAX),
        _ => size.connections,
    };
    let mut fleet = bench.fleet(connections)?;
    let links = bench.log_in(&mut fleet, "noisy", connections, |role| role.pushed(PUSH))?;
    let (frame_bytes, window) = match kind {
        FloodKind::Large => (size.large, size.window.min(LARGE_WINDOW_MAX)),
        FloodKind::Largest => (size.largest, 1),
        _ => (bench.size, size.window),
    };
    let run = messages::fresh_tag();
    let mut flood = Requests {
        kind,
        window,
        clients: vec![],
        shared,
        answered: 0,
    };
    for (stream, &link) in links.iter().enumerate() {
        let to = bench.name("noisy", (stream + 1) % links.len());
        let (first, template) = match kind {
            FloodKind::Schemas => costly_messages(stream),
            FloodKind::Answers => long_answers(&bench.name("noisy", stream)),
            _ => {
                let to = json!({"recipient_id": to});
                (None, Template::new("send_message", to, &run, stream, frame_bytes).0)
            }
        };
        flood.clients.resize_with(link + 1, || None);
        flood.clients[link] = Some(Client {
            first,
            template,
            sent: 0,
            in_flight: 0,
        });
    }
    _ = ready.send(());
    while !shared.is_over() {
        flood.top_up(fleet.outbox());
        fleet.run_for(SWITCH_DELAY_MAX, "flooding", &mut flood)?;
    }
    Ok(())
}

/// Items of a payload that the validator has to compare pairwise: they differ, and hash alike. About as many as the
/// broker checks in one message.
const UNIQUE_ITEMS_LEN: usize = 700;

/// A protocol that requires unique items, and broadcasts whose items are expensive to compare. No session speaks the
/// protocol, so only the check costs anything.
fn costly_messages(stream: usize) -> (Option<Template>, Template) {
    let name = format!("costly-{stream}");
    let schema = json!({"type": "object", "properties": {"items": {"type": "array", "uniqueItems": true}}});
    let protocol = json!({"name": name, "version": "1.0.0", "schema": schema});
    let bits = UNIQUE_ITEMS_LEN.ilog2() + 1;
    let item = |at: usize| -> Value {
        let bit = |bit: u32| if at >> bit & 1 == 1 { json!([[]]) } else { json!([]) };
        (0..bits).map(bit).collect()
    };
    let items: Vec<_> = (0..UNIQUE_ITEMS_LEN).map(item).collect();
    let message = json!({"protocol_name": name, "protocol_version": "1.0.0", "payload": {"items": items}});
    (
        Some(Template::of_call("register_protocol", &protocol)),
        Template::of_call("broadcast_message", &message),
    )
}

/// A session with the largest allowed metadata, and a call that lists all such sessions.
fn long_answers(name: &str) -> (Option<Template>, Template) {
    let session = json!({"name": name, "metadata": {"pad": "x".repeat(METADATA_LEN)}});
    let list = json!({"limit": 1000, "include_capabilities": true});
    (
        Some(Template::of_call("register_session", &session)),
        Template::of_call("list_sessions", &list),
    )
}

struct Client {
    /// Sent before everything else.
    first: Option<Template>,
    template: Template,
    sent: u64,
    in_flight: usize,
}

struct Requests<'a> {
    kind: FloodKind,
    window: usize,
    /// By number of the connection; None once the broker has closed it.
    clients: Vec<Option<Client>>,
    shared: &'a FloodState,
    answered: u64,
}

impl Requests<'_> {
    fn top_up(&mut self, out: &mut Outbox) {
        (0..self.clients.len()).for_each(|link| self.ask(link, out));
    }

    /// Fills the window of a connection.
    fn ask(&mut self, link: usize, out: &mut Outbox) {
        let Some(client) = &mut self.clients[link] else { return };
        while client.in_flight < self.window && self.shared.is_on() {
            let seq = client.sent;
            client.sent += 1;
            client.in_flight += 1;
            match self.kind {
                FloodKind::Garbage if seq % (GARBAGE_IN_A_ROW + 1) < GARBAGE_IN_A_ROW => {
                    out.text(link, NOT_JSON);
                    continue;
                }
                FloodKind::Notifications => {
                    let unknown = messages::empty_acknowledgement();
                    (0..NOTIFICATIONS_PER_REQUEST).for_each(|_| out.text(link, unknown));
                }
                _ => {}
            }
            match &mut client.first {
                Some(first) if seq == 0 => out.text(link, first.frame(seq)),
                _ => out.text(link, client.template.frame(seq)),
            }
        }
    }
}

impl Workload for Requests<'_> {
    fn frame(&mut self, link: usize, frame: &[u8], _: Nanos, out: &mut Outbox) -> Result<()> {
        let has = |text: &str| memmem::find(frame, text.as_bytes()).is_some();
        if has("\"method\":") {
            return Ok(());
        }
        self.answered += 1;
        FloodState::add(if has("rate_limited") {
            &self.shared.refused
        } else if has("\"error\":") || has("\"isError\":true") {
            &self.shared.failed
        } else {
            &self.shared.accepted
        });
        if let Some(client) = &mut self.clients[link] {
            client.in_flight = client.in_flight.saturating_sub(1);
        }
        self.ask(link, out);
        Ok(())
    }

    /// The connection is not replaced: a project over its rate limit cannot log in again.
    fn lost(&mut self, link: usize) -> bool {
        FloodState::add(&self.shared.lost);
        self.clients[link] = None;
        true
    }

    fn progress(&self) -> u64 {
        self.answered
    }
}
