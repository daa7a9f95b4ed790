//! The thread that reads the client's frames: it answers what the front can answer, and passes the rest to the broker or
//! keeps it until there is one.

use std::{
    io::{self, Write},
    net::Shutdown,
    ops::Range,
    os::fd::AsFd,
    sync::{Arc, MutexGuard},
    time::{Duration, Instant},
};

use actors::model::BrokerError;
use memchr::memmem;
use serde_json::Value;
use uuid::Uuid;

use super::{
    identity::Naming,
    lines::{self, Brought, Lines},
    own_answers::{self, Answerer, OfferedEra},
    refusal,
    requests::{Answer, Cancelled, Effect, Repeat, Traits},
    shared::{Link, Lists, Shared, Stage, State},
    splice, stdio,
};
use api::mcp::{
    lists::result_text,
    rpc::{self, INVALID_REQUEST, Incoming, Malformed, PARSE_ERROR, Params, RpcError},
    skipped_frame::SkippedFrame,
    tools,
    version::BATCH_VERSION,
};
use common::json::{
    frame::{self, JsonText},
    scan::{self, ScanError},
};

/// How long the last answers may take after the client has sent its last frame.
const DRAIN_MAX: Duration = Duration::from_millis(650);
/// How long a handshake waits for what the broker says of itself.
const INTRODUCTION_WAIT_MAX: Duration = Duration::from_secs(3);
/// The member of `_meta` that makes a request modern.
const VERSION_MEMBER: &[u8] = b"io.modelcontextprotocol/protocolVersion";

/// The traits of a frame that needs no answer: a notification, or a request that the front has answered already.
const UNANSWERED: Traits = Traits {
    effect: Effect::None,
    repeat: Repeat::Never,
    answer: Answer::None,
    acts_as_session: false,
};
/// What the name of an inbox has, in the params of a subscription.
const INBOX: &[u8] = b"inbox";

/// The thread of the client.
pub struct ClientSide {
    shared: Arc<Shared>,
    era: OfferedEra,
    /// Bytes of the longest frame.
    frame_len_max: usize,
    /// Answers of the front to the frames of one read.
    answers: Vec<u8>,
    /// Frames of one read for the broker, and the connection that they are for.
    frames: Vec<u8>,
    link: Option<Link>,
    /// The client has sent a frame.
    has_spoken: bool,
    /// Until when handshakes wait for what the broker says. The first one sets it.
    introduces_until: Option<Instant>,
    /// How long the first lists wait for the broker, and until when. The first one sets that.
    list_wait: Option<Duration>,
    lists_until: Option<Instant>,
}

impl ClientSide {
    /// Reads frames of at most `frame_len_max` bytes. The first lists wait for the broker as long as `list_wait` says.
    pub fn new(shared: Arc<Shared>, era: OfferedEra, frame_len_max: usize, list_wait: Option<Duration>) -> Self {
        Self {
            shared,
            era,
            frame_len_max,
            answers: Vec::new(),
            frames: Vec::new(),
            link: None,
            has_spoken: false,
            introduces_until: None,
            list_wait,
            lists_until: None,
        }
    }

    /// Reads until the client ends, and then ends the process.
    pub fn run(mut self) -> ! {
        let stdin = io::stdin();
        let mut lines = Lines::new(self.frame_len_max);
        loop {
            let mut state = self.shared.state();
            while !state.requests.has_room() {
                state = self.shared.wait(state, None);
            }
            drop(state);
            let len = match stdio::read(stdin.as_fd(), lines.free()) {
                Ok(0) | Err(_) => break,
                Ok(len) => len,
            };
            self.take(lines.filled(len));
            lines.consume();
            self.flush();
        }
        self.take(lines.rest());
        self.flush();
        self.shared.state().advance(Stage::Draining);
        let until = Instant::now() + DRAIN_MAX;
        self.shared.wait_until(until, |state| state.requests.is_answered());
        self.shared.end("the client has ended")
    }

    /// Sends what the frames of one read have caused.
    fn flush(&mut self) {
        self.shared.to_client(&self.answers);
        self.answers.clear();
        if let Some(link) = self.link.take() {
            // The other thread notices the end of a connection, and knows which requests were sent on it.
            let _ = self.shared.to_broker(&link.stream, &self.frames);
        }
        self.frames.clear();
        if self.frames.capacity() > 64 * 1024 {
            self.frames = Vec::new();
        }
    }

    fn take(&mut self, brought: Brought<'_>) {
        if let Some(frame) = brought.too_long {
            self.refuse_long(frame);
        }
        lines::split(brought.lines).for_each(|line| self.line(line));
    }

    /// Takes a frame. The first one says who the client is, which the front sends to the broker when it connects.
    fn line(&mut self, line: &[u8]) {
        self.frame(line);
        self.begin_serving();
    }

    /// Lets the other thread connect.
    fn begin_serving(&mut self) {
        if !self.has_spoken {
            self.has_spoken = true;
            self.shared.state().advance(Stage::Serving);
            self.shared.notify();
        }
    }

    fn frame(&mut self, line: &[u8]) {
        if line.len() > self.frame_len_max {
            return self.refuse_long(SkippedFrame::beginning_with(line));
        }
        let Ok(text) = str::from_utf8(line) else {
            return self.refuse(None, &RpcError::new(PARSE_ERROR, "Parse error: the frame is not UTF-8"));
        };
        match rpc::parse(text) {
            Ok(Incoming::Request { id, method, params }) => {
                if let Err(error) = self.request(text, id, &method, &params) {
                    let id = (error.code != PARSE_ERROR).then_some(id);
                    self.refuse(id, &error);
                }
            }
            Ok(Incoming::Notification { method, params }) => self.notification(text, &method, &params),
            Ok(Incoming::Response { id, .. }) => self.response(text, id),
            Ok(Incoming::Batch(elements)) => self.batch(text, &elements),
            Err(Malformed { id, code, message }) => self.refuse(id, &RpcError::new(code, message)),
        }
    }

    /// Answers with an error. Its id is null if that of the frame could not be read.
    fn refuse(&mut self, id: Option<&str>, error: &RpcError) {
        rpc::error_response(id.or(Some("null")), error).write_to(&mut self.answers);
        self.answers.push(b'\n');
    }

    /// Refuses a frame that is too long.
    fn refuse_long(&mut self, frame: SkippedFrame) {
        let message = format!("Invalid Request: the frame has more than {} bytes", self.frame_len_max);
        self.refuse(frame.into_id().as_deref(), &RpcError::new(INVALID_REQUEST, message));
    }

    fn request(&mut self, text: &str, id: &str, method: &str, params: &Params<'_>) -> Result<(), RpcError> {
        let place = place_in(text, id);
        // The broker answers a frame that is not JSON with a null id, so the request would be kept for ever.
        if params.text.is_some_and(|params| scan::check(params).is_err()) {
            return Err(ScanError::Syntax.into());
        }
        if method == "tools/call" {
            self.call(text, id, place, params);
            return Ok(());
        }
        if own_answers::is_list(method) {
            self.await_lists();
        }
        let mut state = self.shared.state();
        let answerer = own_answers::answer(&mut state, self.era, method, params)?;
        match answerer {
            Answerer::Front(result) => {
                drop(state);
                self.answer(id, &result);
                return Ok(());
            }
            Answerer::Both(result) => {
                // Without a connection, the opening of the next one has it.
                let is_known = state.link.is_none();
                drop(state);
                if !is_known {
                    let traits = Traits {
                        effect: Effect::Initialize,
                        ..UNANSWERED
                    };
                    self.forward(text, place, traits);
                }
                let result = self.introduced(result);
                self.answer(id, &result_text(result, false));
                return Ok(());
            }
            Answerer::Discover => {
                drop(state);
                self.await_introduction(|state| state.can_introduce() || state.open_link().is_some());
                state = self.shared.state();
                if let Some(result) = own_answers::discover(&state) {
                    drop(state);
                    self.answer(id, &result);
                    return Ok(());
                }
            }
            Answerer::Broker => {}
        }
        let names_inbox = || memmem::find(params.text.unwrap_or_default().as_bytes(), INBOX).is_some();
        let acts_as_session = matches!(method, "resources/subscribe" | "subscriptions/listen") && names_inbox();
        if acts_as_session && state.replay.is_taken_over() {
            return Err(RpcError::refused(&BrokerError::SessionTakenOver));
        }
        drop(state);
        let effect = match method {
            "logging/setLevel" => Effect::SetLogLevel,
            "resources/subscribe" => Effect::Subscribe,
            "resources/unsubscribe" => Effect::Unsubscribe,
            "subscriptions/listen" => Effect::Listen { is_acknowledged: false },
            _ => Effect::None,
        };
        let traits = Traits {
            effect,
            repeat: Repeat::Always,
            answer: Answer::Error,
            acts_as_session,
        };
        self.forward(text, place, traits);
        Ok(())
    }

    /// The result of `initialize`, with what the broker says of itself.
    fn introduced(&mut self, result: Value) -> Value {
        self.await_introduction(State::can_introduce);
        own_answers::introduced(&self.shared.state(), result)
    }

    /// Waits until a handshake can be answered. What was read before it is sent first.
    fn await_introduction(&mut self, is_ready: impl Fn(&State) -> bool) {
        if is_ready(&self.shared.state()) {
            return;
        }
        self.flush();
        self.begin_serving();
        let until = *self
            .introduces_until
            .get_or_insert_with(|| Instant::now() + INTRODUCTION_WAIT_MAX);
        self.shared.wait_until(until, is_ready);
    }

    /// Waits until it is known whose lists the client gets. What was read before is sent first. Without a broker the client
    /// gets those of this program, and later hears that they have changed.
    fn await_lists(&mut self) {
        let Some(wait) = self.list_wait else { return };
        let is_known = |state: &State| {
            state.lists != Lists::Awaited || state.open_link().is_some() || state.stage >= Stage::Draining
        };
        if is_known(&self.shared.state()) {
            return;
        }
        self.flush();
        self.begin_serving();
        let until = *self.lists_until.get_or_insert_with(|| Instant::now() + wait);
        self.shared.wait_until(until, is_known);
        let mut state = self.shared.state();
        if is_known(&state) {
            return;
        }
        state.lists = Lists::Unconfirmed;
        let why = state.trouble.clone().unwrap_or_else(|| "it does not answer".to_owned());
        drop(state);
        let text = format!(
            "the first lists are without the tools of the broker's backends, because the broker could not be asked within \
             {} ms: {why}",
            wait.as_millis()
        );
        self.shared.log.event(&text);
        let _ = writeln!(io::stderr(), "mcp-broker connect: {text}");
    }

    fn answer(&mut self, id: &str, result: &[u8]) {
        frame::result(id, result).write_to(&mut self.answers);
        self.answers.push(b'\n');
    }

    fn call(&mut self, text: &str, id: &str, place: Range<usize>, params: &Params<'_>) {
        let name = params.named().unwrap_or_default();
        let is_modern = params
            .meta
            .is_some_and(|meta| memmem::find(meta.as_bytes(), VERSION_MEMBER).is_some());
        let names_session = names_session(params);
        let tool = tools::find(&name);
        if let Some(meta) = params.meta {
            self.note_conversation(meta);
        }
        let acts_as_session = acts_as_session(&name, params);
        if acts_as_session && self.shared.state().replay.is_taken_over() {
            let answer = Answer::ToolResult { is_modern };
            refusal::write_one(&mut self.answers, id, answer, &refusal::taken_over());
            self.answers.push(b'\n');
            return;
        }
        let effect = match &*name {
            tools::REGISTER_SESSION => Effect::Register,
            tools::DISCONNECT_SESSION if !names_session => Effect::Leave,
            _ => Effect::None,
        };
        let mut traits = Traits {
            effect,
            repeat: if tool.is_none_or(|tool| tool.is_repeatable()) {
                Repeat::Always
            } else {
                Repeat::Never
            },
            answer: Answer::ToolResult { is_modern },
            acts_as_session,
        };
        let insertion = if effect == Effect::Register {
            let state = self.shared.state();
            let known = state.identity.conversation();
            known.and_then(|known| splice::conversation(text, params, known))
        } else if tools::takes_idempotency_key(&name) || tools::asks_with_key(&name) {
            let key_place = if tools::asks_with_key(&name) {
                splice::place_in_arguments(text, params)
            } else {
                splice::place(text, params)
            };
            if key_place != splice::Place::None {
                traits.repeat = if names_session {
                    Repeat::Always
                } else {
                    Repeat::InSameSession
                };
            }
            let mut key = Uuid::encode_buffer();
            splice::key(key_place, Uuid::now_v7().hyphenated().encode_lower(&mut key))
        } else {
            None
        };
        let mut buffer = self.shared.state().requests.buffer();
        let (moved, at) = splice::write(&mut buffer, text.as_bytes(), insertion.as_ref());
        let place = if place.start >= at {
            place.start + moved..place.end + moved
        } else {
            place
        };
        buffer.push(b'\n');
        self.keep(buffer, place, traits);
    }

    /// Notes the thread of a call, and connects again once the conversation is known if the name depends on it.
    fn note_conversation(&self, meta: &str) {
        let mut state = self.shared.state();
        let may_name = state.naming == Naming::Automatic && state.replay.may_name();
        if !state.identity.note_call(meta) || !may_name {
            return;
        }
        state.identity_number += 1;
        let keeps_session = state.replay.keeps_session();
        let link = state.link.take();
        state.is_open = false;
        let lost = state.requests.lose_connection(Instant::now(), keeps_session);
        drop(state);
        if let Some(link) = link {
            let _ = link.stream.shutdown(Shutdown::Both);
        }
        let mut out = Vec::new();
        for request in &lost {
            refusal::write(&mut out, request, &refusal::lost());
        }
        self.shared.to_client(&out);
    }

    fn notification(&mut self, text: &str, method: &str, params: &Params<'_>) {
        let mut state = self.shared.state();
        match method {
            "notifications/initialized" => {
                state.replay.note_initialized();
                if state.link.is_none() {
                    return;
                }
            }
            "notifications/cancelled" => {
                let id = params.text.and_then(cancelled_id);
                let cancelled = id.map(|id| state.requests.cancel(id.as_bytes()));
                if cancelled == Some(Cancelled::Withdrawn) || state.link.is_none() {
                    return;
                }
            }
            _ => {}
        }
        drop(state);
        self.forward(text, 0..0, UNANSWERED);
    }

    /// Passes on the answer to a request of the broker, unless the connection of that request was lost.
    fn response(&mut self, text: &str, id: Option<&str>) {
        let mut state = self.shared.state();
        let asked = state.asked.iter().position(|asked| Some(asked.as_str()) == id);
        let Some(at) = asked else { return };
        state.asked.swap_remove(at);
        drop(state);
        self.forward(text, 0..0, UNANSWERED);
    }

    /// Passes on a batch (2025-03-26) as a whole: its answers come as one array.
    fn batch(&mut self, text: &str, elements: &[&str]) {
        if self.shared.state().replay.version() != Some(BATCH_VERSION) {
            let error = RpcError::new(INVALID_REQUEST, "Invalid Request: batches are of 2025-03-26 only");
            return self.refuse(None, &error);
        }
        let (mut ids, mut may_repeat, mut is_call, mut acts) = (Vec::new(), true, false, false);
        for element in elements {
            if let Ok(Incoming::Request { id, method, params }) = rpc::parse(element) {
                let offset = element.as_ptr() as usize - text.as_ptr() as usize;
                let place = place_in(element, id);
                ids.push(offset + place.start..offset + place.end);
                let tool = params.named().and_then(|name| tools::find(&name));
                is_call |= method == "tools/call";
                acts |= method == "tools/call" && acts_as_session(&params.named().unwrap_or_default(), &params);
                may_repeat &= method != "tools/call" || tool.is_none_or(|tool| tool.is_repeatable());
            }
        }
        if ids.is_empty() {
            return self.forward(text, 0..0, UNANSWERED);
        }
        let traits = Traits {
            effect: Effect::None,
            repeat: if may_repeat { Repeat::Always } else { Repeat::Never },
            answer: if is_call {
                Answer::ToolResult { is_modern: false }
            } else {
                Answer::Error
            },
            acts_as_session: acts,
        };
        let frame = format!("{text}\n").into_bytes();
        let mut state = self.shared.state();
        if acts && state.replay.is_taken_over() {
            state.requests.keep_batch(frame, ids, traits, Some(Instant::now()));
            for batch in state.requests.take_acts_as_session() {
                refusal::write(&mut self.answers, &batch, &refusal::taken_over());
            }
            return;
        }
        let waits_since = Self::queue(&mut self.frames, &mut self.link, &state, &frame);
        state.requests.keep_batch(frame, ids, traits, waits_since);
        self.wake(state, waits_since);
    }

    /// Sends a frame to the broker with the others of this read, or keeps it until there is one.
    fn forward(&mut self, text: &str, id: Range<usize>, traits: Traits) {
        let mut buffer = self.shared.state().requests.buffer();
        buffer.extend_from_slice(text.as_bytes());
        buffer.push(b'\n');
        self.keep(buffer, id, traits);
    }

    fn keep(&mut self, frame: Vec<u8>, id: Range<usize>, traits: Traits) {
        let mut state = self.shared.state();
        let waits_since = Self::queue(&mut self.frames, &mut self.link, &state, &frame);
        if waits_since.is_some() || !id.is_empty() {
            state.requests.keep(frame, id, traits, waits_since);
        }
        self.wake(state, waits_since);
    }

    /// Adds a frame to those for the connection. Returns since when it waits if there is none.
    fn queue(frames: &mut Vec<u8>, link: &mut Option<Link>, state: &State, frame: &[u8]) -> Option<Instant> {
        let Some(open) = state.open_link() else {
            return Some(Instant::now());
        };
        if link.as_ref().is_none_or(|link| link.number != open.number) {
            // Frames for an earlier connection are lost with it. `lose_connection` has dealt with their requests.
            frames.clear();
            *link = Some(open.clone());
        }
        frames.extend_from_slice(frame);
        None
    }

    /// Shortens the pause before the next attempt to connect.
    fn wake(&self, state: MutexGuard<'_, State>, waits_since: Option<Instant>) {
        drop(state);
        if waits_since.is_some() {
            self.shared.notify();
        }
    }
}

/// Whether a call of a tool acts as the session of its connection.
fn acts_as_session(tool: &str, params: &Params<'_>) -> bool {
    let acts = tools::find(tool).is_some_and(|tool| tool.acts_as_session) || tools::receives_messages(tool);
    acts && !names_session(params)
}

/// Whether the arguments of a call name a session.
fn names_session(params: &Params<'_>) -> bool {
    params.members.iter().any(|(name, _)| name == "session_id")
}

/// Where a slice of a text is in it.
fn place_in(text: &str, slice: &str) -> Range<usize> {
    let start = (slice.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    start..start + slice.len()
}

/// The id of the request that a `notifications/cancelled` names, as JSON.
fn cancelled_id(params: &str) -> Option<&str> {
    let mut id = None;
    let scanned = scan::members::<ScanError>(params, |name, value| {
        if name == "requestId" {
            id = Some(value);
        }
        Ok(())
    });
    scanned.ok().and(id)
}
