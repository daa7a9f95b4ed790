//! A client session over HTTP: Streamable HTTP of both eras, and HTTP+SSE of 2024-11-05. Each message of the broker is a
//! request of its own; the messages of the server come in the responses to them, and in streams of events.

mod awaited;
mod receiving;
mod session;

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use actors::{
    clock::now,
    gateway::{CallEnd, CallNumber, Direction, FrameLink, LaunchOrder, LinkEnded, ListKind, Profile},
    model::BackendEra,
};
use awaited::Awaited;
use futures_util::{StreamExt, future::LocalBoxFuture, stream::FuturesUnordered};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use tokio::{
    sync::{Mutex, Notify, Semaphore, oneshot},
    time::{sleep, timeout},
};

use super::{
    endpoint::{Endpoint, RequestFailure, Response, shortened},
    outgoing::{Outgoing, OutgoingKind, ToolHeaders},
    refusal::{LONG_TURNS, Refusal, media_type},
    transport::{Failed, Held, Transport},
};
use crate::instances::{
    answer_room::AnswerRoom,
    client_session::{ClientSession, Stop},
    lists::ReadTools,
    openings::Ending,
    probe::Opening,
};
use api::mcp::rpc::HEADER_MISMATCH;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// Failed requests within [`FAILURE_WINDOW`], after which the connection counts as lost.
const FAILURES_MAX: usize = 5;
const FAILURE_WINDOW: Duration = Duration::from_secs(30);
/// How long the end of a session may take at the server.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(2);
/// How long the list of tools may take that a call with wrong headers waits for.
const TOOLS_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a message that comes first holds up those after it. Later they overtake it.
const FIRST_TIME_MAX: Duration = Duration::from_secs(10);

/// What runs at the same time: the messages on their way, and the receipt of what the server sends on its own.
type Running<'a> = FuturesUnordered<LocalBoxFuture<'a, ()>>;

/// The id of the session that a legacy server has given to the broker.
type Session = Option<HeaderValue>;

/// A client session over HTTP.
pub struct HttpClientSession<'a> {
    endpoint: &'a Endpoint,
    transport: Transport,
    result_bytes_max: usize,
    /// The client capabilities that the server got.
    profile: Profile,
    link: Arc<FrameLink>,
    client_session: RefCell<ClientSession<'a>>,
    stop: Rc<Stop>,
    failed: Cell<Failed>,
    tools: Rc<ToolHeaders>,
    /// Where messages are posted.
    post_url: RefCell<Uri>,
    session: RefCell<Session>,
    /// Held while the session is being renewed.
    renewing: Mutex<()>,
    /// Notified when the session has been renewed.
    renewed: Notify,
    /// Notified when the server has got `notifications/initialized`.
    initialized: Notify,
    /// Ends the request of a call when it is dropped.
    open_requests: RefCell<HashMap<CallNumber, oneshot::Sender<()>>>,
    /// When requests failed, on the monotonic clock.
    failures: RefCell<VecDeque<u64>>,
    /// The server could not be reached, and has neither accepted nor refused a message since.
    was_away: Cell<bool>,
    /// Whose turn it is to read a long answer.
    long_turns: Semaphore,
}

impl<'a> HttpClientSession<'a> {
    pub fn new(order: &'a LaunchOrder, room: &Rc<AnswerRoom>, endpoint: &'a Endpoint, transport: Transport) -> Self {
        let known = order.known_lists.as_deref().map_or(&[][..], |lists| &lists.tools);
        let tools = Rc::new(ToolHeaders::new(Arc::clone(&order.log), known));
        let read_tools = (transport.era() == BackendEra::Modern).then(|| Rc::clone(&tools) as Rc<dyn ReadTools>);
        let opening = Opening::from(Some(transport.era()));
        let names_calls = transport != Transport::Sse;
        let client_session = ClientSession::new(order, room, opening, names_calls, read_tools);
        Self {
            endpoint,
            transport,
            result_bytes_max: order.config.result_bytes_max,
            profile: client_session.profile(),
            link: Arc::clone(client_session.link()),
            stop: Rc::clone(client_session.stop()),
            client_session: RefCell::new(client_session),
            failed: Cell::default(),
            tools,
            post_url: RefCell::new(endpoint.url().clone()),
            session: RefCell::default(),
            renewing: Mutex::default(),
            renewed: Notify::new(),
            initialized: Notify::new(),
            open_requests: RefCell::default(),
            failures: RefCell::default(),
            was_away: Cell::default(),
            long_turns: Semaphore::new(LONG_TURNS),
        }
    }

    /// Moves messages until the client session has to end. All calls have an end when this returns.
    pub async fn hold(self, ending: &Ending) -> Held {
        tokio::select! {
            () = self.exchange(ending) => {}
            () = self.stop.wait() => {}
            () = ending.asked() => {}
        }
        let _ = timeout(LEAVE_TIME_MAX, self.leave()).await;
        let Self {
            client_session, failed, ..
        } = self;
        let ended = LinkEnded::without_output("the connection was ended by the broker");
        let ended = client_session.into_inner().close(ended);
        match failed.get() {
            Failed::TryLater => Held::Ended(ended),
            Failed::OtherTransport => Held::OtherTransport(ended.to_string()),
            Failed::Refused => Held::Refused(ended.to_string()),
        }
    }

    async fn exchange(&self, ending: &Ending) {
        let stream = match self.transport {
            Transport::Sse => match self.open_messages().await {
                Some(stream) => Some(stream),
                None => return,
            },
            Transport::Streamable(_) => None,
        };
        let receiving = async {
            match (self.transport, stream) {
                (Transport::Sse, Some((response, decoder))) => self.receive_messages(response, decoder).await,
                (Transport::Streamable(BackendEra::Legacy), _) => self.receive_notifications().await,
                _ => {}
            }
        };
        let mut running = Running::new();
        running.push(Box::pin(receiving));
        let mut frames = Vec::new();
        while !ending.is_asked() {
            tokio::select! {
                () = self.link.has_outgoing() => {
                    frames.clear();
                    self.link.take_outgoing(&mut frames);
                    // Each message goes its own way from here: none of them is sent twice.
                    self.link.note_written(frames.len());
                    self.count(Direction::Sent, frames.len());
                    for line in frames.split(|byte| *byte == b'\n') {
                        match Outgoing::parse(line) {
                            Some(first) if first.comes_first() => self.send_first(first, &mut running).await,
                            Some(outgoing) => running.push(Box::pin(self.send(outgoing))),
                            None => {}
                        }
                    }
                }
                Some(()) = running.next() => {}
            }
        }
    }

    // Sending

    /// Sends a message that later ones must not overtake. All else runs meanwhile: the message may wait for a session that
    /// another one renews.
    async fn send_first<'b>(&'b self, first: Outgoing, running: &mut Running<'b>) {
        let mut sent: LocalBoxFuture<'b, ()> = Box::pin(self.send(first));
        let mut too_long = pin!(sleep(FIRST_TIME_MAX));
        loop {
            tokio::select! {
                () = &mut sent => return,
                () = &mut too_long => return running.push(sent),
                Some(()) = running.next() => {}
            }
        }
    }

    /// Sends a message, and takes what the server answers to it. Ends early if its call is cancelled.
    async fn send(&self, outgoing: Outgoing) {
        match outgoing.kind {
            OutgoingKind::Request(number) => {
                let (open, cancelled) = oneshot::channel();
                self.open_requests.borrow_mut().insert(number, open);
                tokio::select! {
                    () = self.deliver(&outgoing) => {}
                    _ = cancelled => {}
                }
                self.open_requests.borrow_mut().remove(&number);
            }
            OutgoingKind::Cancel(number) => {
                // A modern server takes the end of the connection for it; to a legacy one it has to be said.
                self.open_requests.borrow_mut().remove(&number);
                if self.transport.era() == BackendEra::Legacy {
                    self.deliver(&outgoing).await;
                }
            }
            OutgoingKind::Initialized => {
                self.deliver(&outgoing).await;
                self.initialized.notify_one();
            }
            OutgoingKind::LogLevel | OutgoingKind::Other => self.deliver(&outgoing).await,
        }
    }

    async fn deliver(&self, outgoing: &Outgoing) {
        let mut is_first = true;
        loop {
            let session = self.session.borrow().clone();
            let response = match self.post(outgoing, &session).await {
                Ok(response) => response,
                Err(failure) => return self.request_failed(outgoing, &failure),
            };
            if response.status().is_success() {
                self.was_away.set(false);
                let may_renew = std::mem::take(&mut is_first) && session.is_some();
                let Some((number, error)) = self.answered(outgoing, response, may_renew).await else {
                    return;
                };
                if self.renew(&session).await.is_ok() {
                    continue;
                }
                return self.client_session.borrow_mut().response(number, Err(&error));
            }
            let refusal = Refusal::read(response).await;
            if std::mem::take(&mut is_first) {
                // A 5xx may come from a gateway in front of the server.
                let was_away = refusal.status < 500 && self.was_away.take();
                if refusal.is_of_lost_session(session.is_some(), was_away) {
                    match self.renew(&session).await {
                        Ok(()) => continue,
                        Err(reason) if refusal.is_final() => self.stop.set(reason),
                        Err(_) => {}
                    }
                } else if refusal.code() == Some(HEADER_MISMATCH) && outgoing.is_tool_call() {
                    // The tool has changed: its new definition says which headers it wants.
                    let read = self.tools.read.notified();
                    self.client_session.borrow().changes().add(&[ListKind::Tools]);
                    if timeout(TOOLS_TIME_MAX, read).await.is_ok() {
                        continue;
                    }
                }
            }
            return self.refused(outgoing, refusal);
        }
    }

    async fn post(&self, outgoing: &Outgoing, session: &Session) -> Result<Response, RequestFailure> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let accepted = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(header::ACCEPT, accepted);
        outgoing.add_trace_headers(&mut headers);
        match self.transport.era() {
            BackendEra::Modern => outgoing.add_modern_headers(&self.tools, &mut headers),
            BackendEra::Legacy if outgoing.is_opening() => {}
            BackendEra::Legacy => self.add_legacy_headers(session, &mut headers),
        }
        let url = self.post_url.borrow().clone();
        let body = outgoing.body.clone();
        self.endpoint.request(Method::POST, &url, &headers, body).await
    }

    /// A request has no response.
    fn request_failed(&self, outgoing: &Outgoing, failure: &RequestFailure) {
        let reason = failure.to_string();
        self.was_away.set(true);
        if let OutgoingKind::Request(number) = outgoing.kind {
            if outgoing.is_opening() {
                return self.stop.set(reason);
            }
            if failure.may_be_sent {
                self.died(number, &reason);
            } else {
                self.client_session.borrow().end(number, CallEnd::NotSent);
            }
        }
        self.note_failure(&reason);
    }

    /// Ends a call whose answer is lost.
    fn died(&self, number: CallNumber, status: &str) {
        let ended = LinkEnded::without_output(status);
        self.client_session.borrow().end(number, CallEnd::Died(Arc::new(ended)));
    }

    /// Counts a failure. With too many of them the client session ends, so that calls fail at once and the server is tried
    /// again with growing pauses.
    fn note_failure(&self, reason: &str) {
        let now_ms = now().mono_ms;
        let window = u64::try_from(FAILURE_WINDOW.as_millis()).unwrap_or(u64::MAX);
        let mut failures = self.failures.borrow_mut();
        failures.retain(|at| now_ms.saturating_sub(*at) < window);
        failures.push_back(now_ms);
        if failures.len() >= FAILURES_MAX {
            self.stop.set(reason.to_owned());
        }
    }

    /// The server has refused a message.
    fn refused(&self, outgoing: &Outgoing, refusal: Refusal) {
        let OutgoingKind::Request(number) = outgoing.kind else {
            return;
        };
        if outgoing.is_opening() {
            return self.opening_refused(&refusal);
        }
        if matches!(refusal.status, 502..=504) {
            // The server may be slow to answer one call.
            if refusal.status != 504 {
                self.was_away.set(true);
            }
            self.note_failure(&refusal.to_string());
        }
        match &refusal.error {
            Some(error) => self.client_session.borrow_mut().response(number, Err(error.get())),
            None => self.client_session.borrow().end(
                number,
                CallEnd::HttpError {
                    status: refusal.status,
                    reason: refusal.text,
                    retry_after: refusal.retry_after,
                },
            ),
        }
    }

    fn opening_refused(&self, refusal: &Refusal) {
        self.failed.set(match refusal.status {
            401 | 403 => Failed::Refused,
            429 => Failed::TryLater,
            200..=499 => Failed::OtherTransport,
            _ if refusal.error.is_some() => Failed::OtherTransport,
            _ => Failed::TryLater,
        });
        self.stop.set(refusal.to_string());
    }

    /// A message was accepted: takes what the server answers. Returns the number of its call and the error if that says that
    /// the session is lost, and it `may_renew` it.
    async fn answered(&self, outgoing: &Outgoing, response: Response, may_renew: bool) -> Option<(CallNumber, String)> {
        let OutgoingKind::Request(number) = outgoing.kind else {
            return None;
        };
        if outgoing.is_opening() {
            *self.session.borrow_mut() = response.headers().get(SESSION_ID).cloned();
        }
        let status = response.status().as_u16();
        if self.transport == Transport::Sse {
            return None;
        }
        let kind = media_type(response.headers()).to_owned();
        let awaited = Awaited {
            number: Some(number),
            may_renew,
            lost: RefCell::default(),
        };
        match kind.as_str() {
            "application/json" => self.take_body(&awaited, number, response).await,
            "text/event-stream" => {
                let is_subscription = outgoing.is_subscription();
                self.take_events(&awaited, number, response, is_subscription).await;
            }
            _ => {}
        }
        if let Some(error) = awaited.lost.into_inner() {
            return Some((number, error));
        }
        if outgoing.is_opening() {
            if !self.client_session.borrow().was_agreed() {
                self.failed.set(Failed::OtherTransport);
                let answer = if kind.is_empty() { "nothing" } else { &kind };
                self.stop.set(format!("it answers with HTTP {status} and {answer}"));
            }
        } else if self.link.has_call(number) {
            let reason = match kind.as_str() {
                "application/json" => "its JSON is not the answer to the call".to_owned(),
                "" => "it has no body".to_owned(),
                kind => format!("it is {}, and no answer of MCP", shortened(kind)),
            };
            let retry_after = None;
            let end = CallEnd::HttpError {
                status,
                reason,
                retry_after,
            };
            self.client_session.borrow().end(number, end);
        }
        None
    }

    fn count(&self, direction: Direction, len: usize) {
        self.client_session.borrow().counters().bytes.add(direction, len as u64);
    }

    fn too_large(&self, number: CallNumber) {
        let limit = self.result_bytes_max;
        self.client_session.borrow().end(number, CallEnd::TooLarge { limit });
    }
}
