//! Backends behind a URL: Streamable HTTP of both eras, HTTP+SSE, and WebSocket.
//!
//! `endpoint` sends requests, with the headers of the configuration and within one origin, to addresses that `resolver`
//! allows. `http` and `websocket` move the messages of a client session (`http/receiving` those of the server); `transport`
//! names the kinds of the first, `refusal` reads responses as a
//! whole, `outgoing` says which headers repeat parts of a message. It is pure.

mod endpoint;
mod http;
mod outgoing;
mod refusal;
mod resolver;
mod transport;
mod websocket;

use std::{collections::BTreeMap, rc::Rc, sync::Arc};

use actors::{
    gateway::{InstanceEvent, LaunchOrder, LinkEnded},
    model::{BackendEra, HttpTransport},
};
use endpoint::Endpoint;
use http::HttpClientSession;
use transport::{Held, Transport};

use super::{answer_room::AnswerRoom, openings::Ending};

pub use endpoint::names_link_local;
pub use resolver::LINK_LOCAL;

/// Connects to a server and speaks with it until the connection has ended.
pub async fn run(
    order: &LaunchOrder,
    room: &Rc<AnswerRoom>,
    (url, headers, transport): (&str, &BTreeMap<String, String>, Option<HttpTransport>),
    ending: &Ending,
) -> InstanceEvent {
    let endpoint = match Endpoint::new(url, headers, order.config.origin) {
        Ok(endpoint) => endpoint,
        Err(reason) => return InstanceEvent::NotStarted(reason),
    };
    if endpoint.is_websocket() {
        return websocket::run(order, room, &endpoint, ending).await;
    }
    let mut answers = Vec::new();
    for &transport in transports(order.known_era, transport) {
        match HttpClientSession::new(order, room, &endpoint, transport)
            .hold(ending)
            .await
        {
            Held::Ended(ended) => return InstanceEvent::Ended(ended),
            Held::Refused(reason) => return InstanceEvent::NotStarted(reason),
            Held::OtherTransport(answer) => answers.push(format!("{transport}: {answer}")),
        }
        if ending.is_asked() {
            break;
        }
    }
    let status = format!("no MCP is spoken at this url ({})", answers.join("; "));
    InstanceEvent::Ended(Arc::new(LinkEnded::without_output(status)))
}

/// What is tried, in this order (2026-07-28, basic/transports/streamable-http, Backward Compatibility).
fn transports(era: Option<BackendEra>, transport: Option<HttpTransport>) -> &'static [Transport] {
    const ALL: [Transport; 3] = [
        Transport::Streamable(BackendEra::Modern),
        Transport::Streamable(BackendEra::Legacy),
        Transport::Sse,
    ];
    match (transport, era) {
        (Some(HttpTransport::Sse), _) => &ALL[2..],
        (None, None) => &ALL,
        (None, Some(BackendEra::Legacy)) => &ALL[1..],
        (_, Some(BackendEra::Modern)) => &ALL[..1],
        (Some(HttpTransport::Streamable), None) => &ALL[..2],
        (Some(HttpTransport::Streamable), Some(BackendEra::Legacy)) => &ALL[1..2],
    }
}
