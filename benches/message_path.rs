//! The stages of a message inside the broker, each alone, in nanoseconds per message: `cargo bench`.
//!
//! Each stage is run in rounds for a second; the fastest round and the median are printed. The whole path, with sockets
//! and many connections, is what `mcp-broker-load` measures.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use actors::{
    clock::now,
    model::{
        Addressing, Headers, MessageIds, NewMessage, ProjectId, SessionId, SessionName, SessionRecord, WakePreference,
    },
    registry::Schema,
    storage::{Acknowledge, Append, Audience, PutSession, Retention, Storage, Store, memory::MemoryStorage},
};
use api::mcp::rpc;
use mcp_broker::transport::websocket::frame::Decoder;
use serde_json::{Value, json};

const ROUND: usize = 6400;
const BATCH: usize = 64;

fn main() {
    let text = "lorem ipsum dolor sit amet ".repeat(6);
    let payload = format!(r#"{{"type":"task","seq":1000000000,"text":"{text}"}}"#);
    let frame = format!(
        r#"{{"jsonrpc":"2.0","id":1000000000,"method":"tools/call","params":{{"name":"send_message","arguments":{{"recipient_id":"agent-000001","protocol_name":"bench","protocol_version":"1.0.0","payload":{payload}}}}}}}"#
    );
    println!(
        "{} bytes in a frame, {} in its payload; ns per message: fastest, median",
        frame.len(),
        payload.len()
    );
    decode(&frame);
    parse(&frame);
    validate(&payload);
    encode(&payload);
    store(&payload);
}

/// Runs rounds of [`ROUND`] messages for a second and prints what one message took.
fn measure(stage: &str, mut round: impl FnMut()) {
    round();
    let mut nanos = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(1) {
        let start = Instant::now();
        round();
        nanos.push(start.elapsed().as_nanos() / ROUND as u128);
    }
    nanos.sort_unstable();
    println!("{stage:<44} {:>6} {:>6}", nanos[0], nanos[nanos.len() / 2]);
}

fn decode(frame: &str) {
    let mut one = vec![0x81, 0xfe];
    one.extend_from_slice(&u16::try_from(frame.len()).unwrap_or(u16::MAX).to_be_bytes());
    one.extend_from_slice(&[0; 4]);
    one.extend_from_slice(frame.as_bytes());
    let mut turn = one.repeat(BATCH);
    let mut decoder = Decoder::new(1 << 20);
    measure("decode WebSocket frames, 64 a read", || {
        for _ in 0..ROUND / BATCH {
            let decoded = decoder.decode(&mut turn, |event| {
                black_box(event);
            });
            black_box(decoded).unwrap_or(());
        }
    });
}

fn parse(frame: &str) {
    measure("find the parts of a tools/call", || {
        for _ in 0..ROUND {
            black_box(rpc::parse(black_box(frame)).is_ok());
        }
    });
}

/// Checks the payload on both paths. `allOf` leaves the part of the language that the fast path knows and changes nothing else.
fn validate(payload: &str) {
    let mut schema = json!({
        "type": "object",
        "properties": {"type": {"type": "string"}, "seq": {"type": "integer"}, "text": {"type": "string"}},
        "required": ["type", "seq", "text"],
    });
    validate_with("validate the payload", &schema, payload);
    schema["allOf"] = json!([true]);
    validate_with("validate it without the fast path", &schema, payload);
}

fn validate_with(stage: &str, schema: &Value, payload: &str) {
    let schema = Schema::compile(schema).expect("the schema is valid");
    measure(stage, || {
        for _ in 0..ROUND {
            black_box(schema.validate(black_box(payload)).is_ok());
        }
    });
}

fn sender() -> SessionRecord {
    SessionRecord {
        id: SessionId::generate(),
        name: SessionName::parse("sender-000001").ok(),
        capabilities: Arc::default(),
        metadata: serde_json::Map::new(),
        aliases: Vec::new(),
        connected_at_ms: 0,
        owner: actors::model::Owner::anonymous(),
        holder: actors::model::Holder::default(),
        wake: WakePreference::default(),
    }
}

fn encode(payload: &str) {
    let (project, sender, headers, ids) = (
        ProjectId::default_project(),
        sender(),
        Headers::default(),
        MessageIds::default(),
    );
    let recipient = SessionId::generate();
    let mut out = Vec::new();
    measure("encode, seal and write the message", || {
        let now = now();
        for _ in 0..ROUND {
            let draft = NewMessage::new(
                &project,
                &sender,
                Addressing::Direct,
                ("bench", "1.0.0"),
                payload,
                &headers,
            );
            let message = draft.seal(ids.next(now), Some(recipient), now, false);
            out.clear();
            message.write(&mut out, 1);
            black_box(&out);
        }
    });
}

fn store(payload: &str) {
    let project = ProjectId::default_project();
    let store = MemoryStorage::new(Retention::default()).open(&project);
    let (sender, ids) = (sender(), MessageIds::default());
    let recipient = SessionId::generate();
    let record = SessionRecord {
        id: recipient,
        name: None,
        ..sender.clone()
    };
    if done(store.put_session(record, PutSession::default())).is_none() {
        return;
    }
    measure("encode, append, lease, acknowledge, 64 a batch", || {
        for _ in 0..ROUND / BATCH {
            exchange(&*store, &project, &sender, recipient, &ids, payload);
        }
    });
}

/// One batch through the store. Encoding is part of it: an append takes the message.
fn exchange(
    store: &dyn Store,
    project: &ProjectId,
    sender: &SessionRecord,
    recipient: SessionId,
    ids: &MessageIds,
    payload: &str,
) {
    let now = now();
    let headers = Headers::default();
    let batch = (0..BATCH)
        .map(|_| {
            let draft = NewMessage::new(
                project,
                sender,
                Addressing::Direct,
                ("bench", "1.0.0"),
                payload,
                &headers,
            );
            Append {
                message: draft.seal(ids.next(now), Some(recipient), now, false),
                audience: Audience::One(recipient),
                queue_capacity: 100_000,
                idempotency_key: None,
                roster_version: None,
            }
        })
        .collect();
    done(store.append(batch, now));
    let leased = done(store.lease(recipient, None, BATCH, usize::MAX, now)).unwrap_or_default();
    let ids = leased.deliveries.iter().map(|delivery| delivery.message.id).collect();
    black_box(done(store.acknowledge(recipient, Acknowledge::Ids(ids), now)));
}

/// The memory store answers at the first poll.
fn done<T>(op: actors::storage::Op<T>) -> Option<T> {
    use futures_util::FutureExt;
    op.now_or_never()?.ok()
}
