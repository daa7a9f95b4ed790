//! Identifies a local client and starts its connection.

use std::{sync::Arc, time::Duration};

use actors::{metrics::TransportKind, model::ProjectId};
use rustix::process::geteuid;
use serde::Deserialize;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::{
    service::{ClientEntry, LocalService},
    wire::{LocalStream, LocalWire},
};
use crate::transport::{LastingConnection, Timeouts};
use api::{
    auth::Identity,
    budget::Reservation,
    mcp::{
        Exposure, Framing, Peer,
        lines::LineDecoder,
        rpc::{self, INVALID_REQUEST, Incoming, REFUSED, RpcError},
    },
    problem::Problem,
};
use common::{
    json::frame::JsonText,
    user_broker::hello::{self, AUTHENTICATION_FAILED},
};

/// Longest time until the first byte of a client.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time until the hello of a client that has to bring a key.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of that hello.
const HELLO_LEN_MAX: usize = 64 * 1024;

/// A client whose connection has begun.
pub struct Admitted<S: LocalStream> {
    connection: Box<LastingConnection<LocalWire<S>, ()>>,
    first: Vec<u8>,
}

impl<S: LocalStream> Admitted<S> {
    /// Runs the connection to its end. Returns the stream, and what the next client on it has sent already.
    pub async fn run(self) -> (S, LineDecoder, Vec<u8>) {
        let (stream, wire, decoder) = self.connection.run(self.first).await;
        (stream, decoder, wire.into_next_client())
    }
}

/// The start of the lines of a client: the state of the decoder, and lines that have been read already.
pub struct FirstLines {
    pub decoder: LineDecoder,
    pub read: Vec<u8>,
}

impl FirstLines {
    /// The state before anything was read.
    pub fn new(service: &LocalService) -> Self {
        Self {
            decoder: LineDecoder::new(service.context.message_len_max()),
            read: Vec::new(),
        }
    }
}

/// Admits the client at the other end of `stream`.
///
/// # Errors
/// The refusal: authentication failed, there are too many connections, or the broker stops.
pub async fn admit<S: LocalStream>(
    mut stream: S,
    entry: ClientEntry,
    mut first: FirstLines,
) -> Result<Admitted<S>, (S, RpcError)> {
    let service = Arc::clone(entry.service());
    let identity = match identify(&mut stream, &service, &mut first).await {
        Ok(identity) => identity,
        Err(error) => return Err((stream, error)),
    };
    let context = &service.context;
    let outbox = context.service.outbox(Framing::Line, identity.project.id());
    let connections = &context.connections;
    let permit = if S::HAS_MANY_CLIENTS {
        connections.acquire_standing(&outbox, &identity, TransportKind::Local)
    } else {
        connections.try_acquire(&outbox, &identity, TransportKind::Local)
    };
    let Some(permit) = permit else {
        return Err((
            stream,
            refused(&Problem::unavailable("too many connections: try again later")),
        ));
    };
    let inbound = Reservation::new(&context.inbound, identity.project.id());
    let peer = Peer::local(
        Arc::clone(&identity),
        Arc::clone(&outbox),
        Arc::clone(&context.service),
        Exposure::All,
    );
    let wire = LocalWire::new(entry, identity, Arc::clone(&outbox));
    let connection = LastingConnection::new(
        (stream, wire),
        peer,
        outbox,
        (first.decoder, inbound),
        timeouts::<S>(context.timeouts),
        (permit, ()),
    );
    Ok(Admitted {
        connection,
        first: first.read,
    })
}

/// The timeouts of a stream. A stream that serves one client after another has no limit of silence or slowness: it waits
/// for its next client.
fn timeouts<S: LocalStream>(general: Timeouts) -> Timeouts {
    if S::HAS_MANY_CLIENTS {
        return Timeouts {
            stall_timeout: Duration::MAX,
            silence_timeout: Duration::MAX,
            ..general
        };
    }
    Timeouts {
        silence_timeout: general.silence_timeout.min(FIRST_BYTE_TIMEOUT),
        ..general
    }
}

async fn identify<S: LocalStream>(
    stream: &mut S,
    service: &LocalService,
    first: &mut FirstLines,
) -> Result<Arc<Identity>, RpcError> {
    let auth = &service.context.auth;
    let identified = if service.facts.requires_key {
        let key = timeout(HELLO_TIMEOUT, read_key(stream, &mut first.read)).await;
        let missing = || {
            let text = "Invalid Request: this broker has local_auth: begin with dev.mcp-broker/hello and its api_key";
            RpcError::new(INVALID_REQUEST, text).with_data(json!({"code": AUTHENTICATION_FAILED}))
        };
        let key = key.ok().flatten().ok_or_else(missing)?;
        auth.authenticate_key(&key).await
    } else {
        auth.authenticate_user(geteuid().as_raw(), &ProjectId::default_project())
            .await
    };
    identified.map_err(|problem| refused(&problem))
}

/// Reads the first line, a hello, and returns its key. None if it has none, or if there is no such line.
async fn read_key<S: LocalStream>(stream: &mut S, read: &mut Vec<u8>) -> Option<String> {
    #[derive(Deserialize)]
    struct WithKey {
        api_key: String,
    }
    while !read.contains(&b'\n') {
        let left = HELLO_LEN_MAX.checked_sub(read.len()).filter(|left| *left > 0)?;
        let len = (&mut *stream).take(left as u64).read_buf(read).await.ok()?;
        if len == 0 {
            return None;
        }
    }
    let line = read.split(|byte| *byte == b'\n').next()?;
    match rpc::parse(std::str::from_utf8(line).ok()?) {
        Ok(Incoming::Request { method, params, .. }) if method == hello::METHOD => {
            params.parse::<WithKey>().ok().map(|hello| hello.api_key)
        }
        _ => None,
    }
}

fn refused(problem: &Problem) -> RpcError {
    RpcError::new(REFUSED, problem.detail().to_owned()).with_data(json!({"code": problem.code()}))
}

/// Tells a client why it is not served, without waiting for it to read.
pub async fn refuse<S: LocalStream>(mut stream: S, error: &RpcError) {
    let line = rpc::error_response(Some("null"), error).into_line();
    let _ = timeout(HELLO_TIMEOUT, stream.write_all(&line)).await;
}
