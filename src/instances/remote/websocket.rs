//! A client session over a WebSocket: one text message for each message of MCP.

use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};

use actix_http::ws::{Frame, Item, Message};
use actors::{
    clock::now,
    gateway::{BackendCounters, Direction, FrameLink, InstanceEvent, LaunchOrder, LinkEnded},
};
use bytes::{Bytes, BytesMut};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use tokio::{
    sync::Notify,
    task::yield_now,
    time::{interval, sleep, timeout},
};

use super::endpoint::Endpoint;
use crate::instances::{
    answer_room::AnswerRoom,
    client_session::ClientSession,
    openings::{Attempt, Ending, try_openings},
};

/// How often the server is asked for a sign of life.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long the server may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(75);
/// How long the closing of the connection may take.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);

/// Connects and speaks until the connection has ended.
pub async fn run(order: &LaunchOrder, room: &Rc<AnswerRoom>, endpoint: &Endpoint, ending: &Ending) -> InstanceEvent {
    try_openings(order, ending, async |opening| {
        let message_len_max = order.config.result_bytes_max;
        let socket = tokio::select! {
            socket = endpoint.open_socket(message_len_max) => socket,
            () = ending.asked() => Err("the connection was ended by the broker".to_owned()),
        };
        let socket = socket.map_err(|status| InstanceEvent::Ended(Arc::new(LinkEnded::without_output(status))))?;
        let (write, read) = socket.split();
        let client_session = ClientSession::new(order, room, opening, false, None);
        Ok(hold(client_session, (write, read), message_len_max, ending).await)
    })
    .await
}

async fn hold<E: std::fmt::Display>(
    mut client_session: ClientSession<'_>,
    (mut write, read): (
        impl Sink<Message, Error = E> + Unpin,
        impl Stream<Item = Result<Frame, E>> + Unpin,
    ),
    message_len_max: usize,
    ending: &Ending,
) -> Attempt {
    let (link, counters) = (Arc::clone(client_session.link()), Arc::clone(client_session.counters()));
    let stop = Rc::clone(client_session.stop());
    let heard = Heard::new();
    let status = tokio::select! {
        status = receive(&mut client_session, read, message_len_max, &heard) => status,
        status = send(&link, &mut write, &heard, &counters) => status,
        () = stop.wait() => String::new(),
        () = ending.asked() => "the connection was ended by the broker".to_owned(),
    };
    let _ = timeout(CLOSE_TIME_MAX, write.send(Message::Close(None))).await;
    let was_agreed = client_session.was_agreed();
    Attempt {
        was_agreed,
        has_read: true,
        ended: client_session.close(LinkEnded::without_output(status)),
    }
}

/// What the reading side tells the writing side.
struct Heard {
    /// When the server was heard last, on the monotonic clock.
    at_ms: Cell<u64>,
    /// A ping that has to be answered.
    ping: Cell<Option<Bytes>>,
    wake: Notify,
}

impl Heard {
    fn new() -> Self {
        Self {
            at_ms: Cell::new(now().mono_ms),
            ping: Cell::default(),
            wake: Notify::new(),
        }
    }
}

/// Reads messages until the connection ends. Returns why it has ended.
async fn receive<E: std::fmt::Display>(
    client_session: &mut ClientSession<'_>,
    mut read: impl Stream<Item = Result<Frame, E>> + Unpin,
    message_len_max: usize,
    heard: &Heard,
) -> String {
    // The parts of a message that comes in several frames.
    let mut partial = BytesMut::new();
    loop {
        let frame = match read.next().await {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return format!("the connection broke: {error}"),
            None => return "its server has closed the connection".to_owned(),
        };
        heard.at_ms.set(now().mono_ms);
        let whole = match frame {
            Frame::Text(text) | Frame::Binary(text) => Some(text),
            Frame::Continuation(Item::FirstText(part) | Item::FirstBinary(part)) => {
                partial = BytesMut::from(&part[..]);
                None
            }
            Frame::Continuation(Item::Continue(part)) => {
                partial.extend_from_slice(&part);
                None
            }
            Frame::Continuation(Item::Last(part)) => {
                partial.extend_from_slice(&part);
                Some(std::mem::take(&mut partial).freeze())
            }
            Frame::Ping(payload) => {
                heard.ping.set(Some(payload));
                heard.wake.notify_one();
                None
            }
            Frame::Pong(_) => None,
            Frame::Close(reason) => {
                let said = reason.and_then(|reason| reason.description);
                return match said.filter(|said| !said.is_empty()) {
                    Some(said) => format!("its server has closed the connection: {said}"),
                    None => "its server has closed the connection".to_owned(),
                };
            }
        };
        if partial.len() > message_len_max {
            return format!("a message has more than {message_len_max} bytes");
        }
        if let Some(text) = whole {
            client_session
                .counters()
                .bytes
                .add(Direction::Received, text.len() as u64);
            client_session.text(&String::from_utf8_lossy(&text));
        }
        client_session.take_waiting().deliver().await;
        match client_session.end_of_read() {
            Some(pause) => sleep(pause).await,
            None => yield_now().await,
        }
    }
}

/// Writes the waiting messages to the server until that fails, or the server is silent for too long. Returns why it has ended.
async fn send<E: std::fmt::Display>(
    link: &FrameLink,
    write: &mut (impl Sink<Message, Error = E> + Unpin),
    heard: &Heard,
    counters: &BackendCounters,
) -> String {
    let mut frames = Vec::new();
    let mut pings = interval(PING_INTERVAL);
    loop {
        let sent = tokio::select! {
            () = link.has_outgoing() => {
                frames.clear();
                link.take_outgoing(&mut frames);
                counters.bytes.add(Direction::Sent, frames.len() as u64);
                write_lines(link, &frames, write).await
            }
            () = heard.wake.notified() => match heard.ping.take() {
                Some(payload) => write.send(Message::Pong(payload)).await,
                None => Ok(()),
            },
            _ = pings.tick() => {
                let silence_ms = now().mono_ms.saturating_sub(heard.at_ms.get());
                if u128::from(silence_ms) > SILENCE_MAX.as_millis() {
                    return format!("its server was silent for {} s", silence_ms / 1_000);
                }
                write.send(Message::Ping(Bytes::new())).await
            }
        };
        if let Err(error) = sent {
            return format!("the connection broke: {error}");
        }
    }
}

/// Writes each line as a message.
async fn write_lines<E>(
    link: &FrameLink,
    lines: &[u8],
    write: &mut (impl Sink<Message, Error = E> + Unpin),
) -> Result<(), E> {
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line));
        // From here on the server may see it.
        link.note_written(line.len());
        write.feed(Message::Text(text.into_owned().into())).await?;
    }
    write.flush().await
}
