//! What a server sends: bodies that are one message, and streams of events.

use std::time::Duration;

use actors::{
    backoff::{Backoff, random},
    gateway::{CallNumber, Direction},
    model::BackendEra,
};
use api::mcp::event_stream::{Event, EventDecoder};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use tokio::{
    task::yield_now,
    time::{Instant, sleep, timeout},
};

use super::{HttpClientSession, awaited::Awaited};
use crate::instances::{
    probe::Probe,
    remote::{
        endpoint::{Response, shortened},
        refusal::{LONG_LEN, Refusal, media_type, read_body_in_turn},
        transport::Failed,
    },
};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How long a stream of events may last after the answer, so that its connection can be used again.
const AFTER_ANSWER: Duration = Duration::from_millis(50);
/// The pauses before a stream is opened again. They are short again once a stream has lasted for the longest.
const STREAM_BACKOFF: Backoff = Backoff {
    min: Duration::from_secs(1),
    max: Duration::from_secs(60),
};

impl HttpClientSession<'_> {
    /// Reads a body that is one message.
    pub(super) async fn take_body(&self, awaited: &Awaited, number: CallNumber, response: Response) {
        match read_body_in_turn(response, self.result_bytes_max, &self.long_turns).await {
            Ok(Some((body, _turn))) => {
                self.count(Direction::Received, body.len());
                let text = String::from_utf8_lossy(&body);
                if awaited.loses_session(&text) {
                    return;
                }
                let undelivered = {
                    let mut client_session = self.client_session.borrow_mut();
                    client_session.text_of(Some(number), &text);
                    // Nothing more of this body is read.
                    let _ = client_session.end_of_read();
                    client_session.take_waiting()
                };
                undelivered.deliver().await;
            }
            Ok(None) => self.too_large(number),
            Err(reason) => {
                self.died(number, &reason);
                self.note_failure(&reason);
            }
        }
    }

    /// Reads the stream of events that answers a request. A legacy server may end it before the answer and continue in another
    /// one, which is asked for with the id of its last event (2025-11-25, basic/transports, Resumability).
    pub(super) async fn take_events(
        &self,
        awaited: &Awaited,
        number: CallNumber,
        response: Response,
        is_subscription: bool,
    ) {
        let mut decoder = EventDecoder::new(self.result_bytes_max);
        let mut response = response;
        loop {
            let ended = self.read_events(response, &mut decoder, awaited).await;
            if !self.is_awaited(number) || awaited.lost.borrow().is_some() {
                return;
            }
            let pause = Duration::from_millis(decoder.retry_ms().unwrap_or(1_000)).min(STREAM_BACKOFF.max);
            let resumed = match decoder.last_id() {
                Some(id) if self.transport.era() == BackendEra::Legacy => {
                    sleep(pause).await;
                    self.open_stream(Some(id)).await.ok()
                }
                _ => None,
            };
            let Some(stream) = resumed else {
                let reason = ended.err().unwrap_or_else(|| "its stream of events ended".to_owned());
                self.died(number, &format!("{reason} before the answer"));
                // A server may end a subscription whenever it likes.
                if !is_subscription {
                    self.note_failure(&reason);
                }
                return;
            };
            decoder.begin_stream();
            response = stream;
        }
    }

    /// Whether the answer to a request has not come.
    fn is_awaited(&self, number: CallNumber) -> bool {
        if Probe::is_opening(number) {
            !self.client_session.borrow().was_agreed() && !self.stop.is_set()
        } else {
            self.link.has_call(number)
        }
    }

    /// Reads a stream of events until it ends, or has brought the answer to a request.
    ///
    /// # Errors
    /// What broke the connection.
    async fn read_events(
        &self,
        mut response: Response,
        decoder: &mut EventDecoder,
        awaited: &Awaited,
    ) -> Result<(), String> {
        let number = awaited.number;
        let is_awaited = |number: &CallNumber| self.is_awaited(*number);
        let mut turn = None;
        while number.as_ref().is_none_or(is_awaited) {
            let Some(bytes) = response.next().await? else {
                return Ok(());
            };
            self.count(Direction::Received, bytes.len());
            decoder.decode(&bytes, |event| match event {
                Event::Data {
                    name: "message", data, ..
                } if awaited.loses_session(data) => {}
                event => self.event(number, event),
            });
            if awaited.lost.borrow().is_some() {
                return Ok(());
            }
            if let (Some(number), true) = (number, decoder.is_skipping()) {
                self.too_large(number);
                return Ok(());
            }
            let undelivered = self.client_session.borrow_mut().take_waiting();
            undelivered.deliver().await;
            // A server has one stream that answers no request.
            if number.is_none() || decoder.buffered_len() <= LONG_LEN {
                turn = None;
            } else if turn.is_none() {
                turn = self.long_turns.acquire().await.ok();
            }
            let pause = self.client_session.borrow_mut().end_of_read();
            match pause {
                Some(pause) => sleep(pause).await,
                None => yield_now().await,
            }
        }
        // The end of the stream makes its connection free for the next request.
        let rest = async { while let Ok(Some(_)) = response.next().await {} };
        let _ = timeout(AFTER_ANSWER, rest).await;
        Ok(())
    }

    /// Takes an event of the stream that answers this request, or of another one.
    fn event(&self, number: Option<CallNumber>, event: Event<'_>) {
        let mut client_session = self.client_session.borrow_mut();
        match event {
            Event::Data {
                name: "message", data, ..
            } => client_session.text_of(number, data),
            Event::Data { .. } => {}
            Event::TooLong(frame) => client_session.too_long(frame, self.result_bytes_max),
            Event::NotUtf8(data) => client_session.text_of(number, &String::from_utf8_lossy(data)),
        }
    }

    /// Opens the stream of what belongs to no request.
    ///
    /// # Errors
    /// It has none, or cannot be reached.
    async fn open_stream(&self, after: Option<&str>) -> Result<Response, StreamFailure> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        self.add_legacy_headers(&self.session.borrow(), &mut headers);
        if let Some(Ok(id)) = after.map(HeaderValue::try_from) {
            headers.insert(LAST_EVENT_ID, id);
        }
        let response = self
            .endpoint
            .request(Method::GET, self.endpoint.url(), &headers, Bytes::new())
            .await
            .map_err(|failure| StreamFailure::Broken(failure.to_string()))?;
        if response.status().is_success() && media_type(response.headers()) == "text/event-stream" {
            return Ok(response);
        }
        Err(StreamFailure::Refused(Refusal::read(response).await))
    }

    /// Receives the notifications and requests of a legacy server that offers a stream for them. Each session has its own.
    pub(super) async fn receive_notifications(&self) {
        self.initialized.notified().await;
        let mut ends = 0;
        let new_decoder = || EventDecoder::new(self.result_bytes_max);
        let (mut decoder, mut has_renewed) = (new_decoder(), false);
        loop {
            let (begun, session) = (Instant::now(), self.session.borrow().clone());
            match self.open_stream(decoder.last_id()).await {
                Ok(response) => {
                    decoder.begin_stream();
                    has_renewed = false;
                    let awaited = Awaited::default();
                    tokio::select! {
                        _ = self.read_events(response, &mut decoder, &awaited) => {}
                        () = self.other_session(&session) => {}
                    }
                }
                Err(StreamFailure::Refused(refusal))
                    if !has_renewed && refusal.is_of_lost_session_of_stream(session.is_some()) =>
                {
                    has_renewed = self.renew(&session).await.is_ok();
                }
                // It has no such stream.
                Err(StreamFailure::Refused(refusal)) if refusal.status < 500 && refusal.status != 429 => return,
                Err(StreamFailure::Refused(_) | StreamFailure::Broken(_)) => {}
            }
            if *self.session.borrow() != session {
                // The ids of events are those of one session.
                decoder = new_decoder();
            }
            ends = if begun.elapsed() >= STREAM_BACKOFF.max {
                1
            } else {
                ends + 1
            };
            sleep(STREAM_BACKOFF.wait(ends, random())).await;
        }
    }

    /// Opens the stream of HTTP+SSE, and waits for the address of messages.
    pub(super) async fn open_messages(&self) -> Option<(Response, EventDecoder)> {
        let mut response = match self.open_stream(None).await {
            Ok(response) => response,
            Err(StreamFailure::Broken(reason)) => {
                self.stop.set(reason);
                return None;
            }
            Err(StreamFailure::Refused(refusal)) => {
                self.opening_refused(&refusal);
                return None;
            }
        };
        let mut decoder = EventDecoder::new(self.result_bytes_max);
        loop {
            let bytes = match response.next().await {
                Ok(Some(bytes)) => bytes,
                Err(reason) => {
                    self.stop.set(reason);
                    return None;
                }
                Ok(None) => {
                    self.stop
                        .set("its stream of events ended before it named an address".to_owned());
                    return None;
                }
            };
            let mut address = None;
            decoder.decode(&bytes, |event| match event {
                Event::Data {
                    name: "endpoint", data, ..
                } if address.is_none() => address = Some(data.to_owned()),
                event => self.event(None, event),
            });
            if let Some(address) = address {
                let Some(url) = self.endpoint.resolve(self.endpoint.url(), address.trim()) else {
                    self.failed.set(Failed::Refused);
                    let address = shortened(&address);
                    self.stop
                        .set(format!("it wants messages to be sent to another server: {address}"));
                    return None;
                };
                *self.post_url.borrow_mut() = url;
                return Some((response, decoder));
            }
        }
    }

    /// Receives all messages of a server over HTTP+SSE.
    pub(super) async fn receive_messages(&self, response: Response, mut decoder: EventDecoder) {
        let ended = self.read_events(response, &mut decoder, &Awaited::default()).await;
        self.stop.set(match ended {
            Ok(()) => "its stream of events ended".to_owned(),
            Err(reason) => reason,
        });
    }
}

/// Why there is no stream.
pub(super) enum StreamFailure {
    Refused(Refusal),
    Broken(String),
}
