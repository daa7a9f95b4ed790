//! The thread that holds the connection to the broker: it connects, sends the opening, passes the broker's frames to the
//! client, and connects again when the connection is lost.

use std::{
    io::{self, ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    sync::{Arc, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use actors::{
    backoff::{Backoff, random},
    faults,
    model::SessionName,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use super::{
    broker_frame::{self, BrokerFrame},
    dial::{Dial, DialError, Dialed, FRAME_LEN_MAX},
    identity::Naming,
    lines::{self, Lines},
    own_answers, refusal,
    replay::{Opening, Purpose, Session},
    requests::{Effect, Request},
    shared::{GOODBYE_ID, Link, Lists, RENEWED_ID, Shared, Stage, State},
    threads::spawn,
    wake::Waker,
};
use api::mcp::{backend_instructions::after_own, handshake::INSTRUCTIONS, list_changes::List, rpc::Params};
use common::{
    json::frame::{self, JsonText, NO_PARAMS},
    user_broker::hello::HelloResult,
};

/// The pauses before another attempt to connect.
const BACKOFF: Backoff = Backoff {
    min: Duration::from_millis(50),
    max: Duration::from_secs(2),
};
/// The pauses while no request waits.
const IDLE_BACKOFF: Backoff = Backoff {
    max: Duration::from_secs(10),
    ..BACKOFF
};
/// Longest wait for the answers to an opening.
const OPENING_MAX: Duration = Duration::from_secs(10);
/// How often a write that makes no progress looks whether the client is still there.
const WRITE_CHECK: Duration = Duration::from_millis(500);
/// Bytes of waiting requests that are written at once.
const BATCH_BYTES: usize = 256 * 1024;
/// The code with which the broker closes a connection whose session another one has taken over.
const TAKEN_OVER: u64 = 4001;

/// The thread of the connection.
pub struct BrokerSide {
    shared: Arc<Shared>,
    dial: Arc<dyn Dial>,
    /// The number of the last connection.
    number: u64,
    /// The number of the identity that the broker got on it.
    told_identity: u64,
    waker: Arc<Waker>,
    /// A warning has said why no broker can be reached, since the last connection.
    has_warned: bool,
}

/// Why a connection is no longer used.
enum Lost {
    /// It was closed or failed.
    Connection(String),
    /// The broker must get another identity.
    OtherIdentity,
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self::Connection(error.to_string())
    }
}

impl BrokerSide {
    /// Reaches a broker by `dial`.
    pub fn new(shared: Arc<Shared>, dial: Arc<dyn Dial>) -> Self {
        Self {
            waker: Waker::new(Arc::clone(&shared)),
            shared,
            dial,
            number: 0,
            told_identity: 0,
            has_warned: false,
        }
    }

    /// Runs until the process ends. Connects once the client has sent a frame.
    pub fn run(mut self) -> ! {
        let mut state = self.shared.state();
        while state.stage == Stage::Silent {
            state = self.shared.wait(state, None);
        }
        drop(state);
        let mut failures = 0;
        loop {
            let mut lost = match self.dialed() {
                Err(error) => {
                    self.note_failure(&error.0);
                    failures += 1;
                    self.pause(failures);
                    continue;
                }
                Ok(None) => continue,
                Ok(Some(dialed)) => self.serve(dialed, &mut failures),
            };
            self.lose_connection(&mut lost);
            if self.shared.state().stage >= Stage::Ending {
                loop {
                    thread::park();
                }
            }
            if let Lost::Connection(_) = lost {
                failures += 1;
                self.pause(failures);
            }
        }
    }

    /// Connects on a thread of its own, and meanwhile refuses requests that have waited too long. `None` if the identity
    /// has changed since the attempt began: the broker would have got the old one.
    fn dialed(&mut self) -> Result<Option<Dialed>, DialError> {
        let mut state = self.shared.state();
        self.told_identity = state.identity_number;
        let wants_name =
            state.naming == Naming::Automatic && state.replay.may_name() && !state.identity.awaits_conversation();
        let wanted = wants_name.then(|| match state.replay.name_by_front() {
            Some(name) => name.to_owned(),
            None => state.identity.folder_name().as_str().to_owned(),
        });
        let mut agent = state.identity.agent(wanted);
        agent.wake = state.wake.rung_names(&state.identity);
        state.dialed = None;
        drop(state);
        let (shared, dial) = (Arc::clone(&self.shared), Arc::clone(&self.dial));
        let dialing = move || {
            let dialed = dial.dial(agent);
            shared.state().dialed = Some(dialed);
            shared.notify();
        };
        spawn("dial", dialing).map_err(|error| DialError(format!("no thread can be started: {error}")))?;
        loop {
            let mut state = self.shared.state();
            if let Some(dialed) = state.dialed.take() {
                let is_current = state.identity_number == self.told_identity;
                return dialed.map(|dialed| is_current.then_some(dialed));
            }
            let until = state.requests.next_expiry();
            state = self.shared.wait(state, until);
            self.refuse_expired(state);
        }
    }

    fn refuse_expired(&self, mut state: MutexGuard<'_, State>) {
        let expired = state.requests.expired(Instant::now());
        if expired.is_empty() {
            return;
        }
        let error = refusal::not_attached(state.trouble.as_deref());
        drop(state);
        self.refuse(&expired, &error);
        self.shared.notify();
    }

    fn refuse(&self, requests: &[Request], error: &serde_json::Value) {
        let mut out = Vec::new();
        for request in requests {
            refusal::write(&mut out, request, error);
        }
        self.shared.to_client(&out);
    }

    fn note_failure(&mut self, why: &str) {
        self.shared.log.event(&format!("not attached: {why}"));
        if !std::mem::replace(&mut self.has_warned, true) {
            let _ = writeln!(io::stderr(), "mcp-broker connect: {why}");
        }
        self.shared.state().trouble = Some(why.to_owned());
        self.shared.notify();
    }

    /// Waits before the next attempt: longer after each failure. A request that arrives shortens a long pause.
    fn pause(&self, failures: u32) {
        let (now, random) = (Instant::now(), random());
        let soon = now + BACKOFF.wait(failures, random);
        let late = now + IDLE_BACKOFF.wait(failures, random);
        loop {
            let mut state = self.shared.state();
            let until = if state.requests.none_waits() { late } else { soon };
            if state.stage >= Stage::Ending || Instant::now() >= until {
                return;
            }
            let until = state.requests.next_expiry().map_or(until, |expiry| expiry.min(until));
            state = self.shared.wait(state, Some(until));
            self.refuse_expired(state);
        }
    }

    /// Uses a connection until it is lost.
    fn serve(&mut self, dialed: Dialed, failures: &mut u32) -> Lost {
        if let Some(text) = faults::text("FAULT_PRINT") {
            println!("{text}");
        }
        self.number += 1;
        let Dialed { stream, hello } = dialed;
        let stream = Arc::new(stream);
        let link = Link {
            stream: Arc::clone(&stream),
            number: self.number,
        };
        let mut lines = Lines::new(FRAME_LEN_MAX);
        let opened = self.open(link, hello.as_ref(), &mut lines);
        if let Err(lost) = opened {
            return lost;
        }
        *failures = 0;
        self.has_warned = false;
        let version = hello
            .as_ref()
            .map_or("of unknown version", |hello| hello.version.as_str());
        let pid = hello.as_ref().map_or(0, |hello| hello.pid);
        self.shared
            .log
            .event(&format!("attached to broker {version}, pid {pid}"));
        loop {
            let passed_on = wait_for_frames(&stream).and_then(|()| self.pass_on(&stream, &mut lines));
            if let Err(lost) = passed_on {
                return lost;
            }
        }
    }

    /// Sends the opening and the waiting requests, and then opens the connection for further requests.
    fn open(&self, link: Link, hello: Option<&HelloResult>, lines: &mut Lines) -> Result<(), Lost> {
        let stream = Arc::clone(&link.stream);
        let mut state = self.shared.state();
        state.name = name_to_register(&state, hello.and_then(|hello| hello.name.as_deref()), hello.is_some());
        let metadata = state.identity.metadata(&state.naming);
        let opening = state.replay.opening(state.name.as_ref(), &metadata, hello.is_none());
        let lists_changed = hello.is_some_and(|hello| {
            state.note_introduction(Some(after_own(INSTRUCTIONS, &hello.backend_instructions)));
            state.note_lists(hello.lists != own_answers::LIST_VIEWER.digest())
        });
        state.link = Some(link);
        state.is_open = false;
        drop(state);
        self.shared.notify();
        stream.set_write_timeout(Some(WRITE_CHECK))?;
        stream.set_read_timeout(Some(OPENING_MAX))?;
        self.shared.to_broker(&stream, &opening.frames)?;
        self.await_answers(&stream, lines, &opening)?;
        stream.set_read_timeout(None)?;
        let mut out = Vec::new();
        loop {
            let mut state = self.shared.state();
            state.requests.send_waiting(&mut out, BATCH_BYTES);
            if out.is_empty() {
                state.is_open = true;
                state.trouble = None;
                let mut notifications = state.replay.note_attached();
                drop(state);
                if lists_changed {
                    notifications.extend(changes_of_lists());
                }
                self.shared.to_client(&notifications);
                self.shared.notify();
                return Ok(());
            }
            drop(state);
            self.write_and_read(&stream, &out, lines)?;
            out.clear();
        }
    }

    /// Writes frames, and passes on what the broker sends meanwhile: it takes no frames while many of its answers are
    /// unread.
    fn write_and_read(&self, stream: &UnixStream, mut frames: &[u8], lines: &mut Lines) -> Result<(), Lost> {
        stream.set_nonblocking(true)?;
        while !frames.is_empty() {
            let mut polled = [PollFd::new(stream, PollFlags::IN | PollFlags::OUT)];
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
            if polled[0].revents().intersects(PollFlags::IN | PollFlags::HUP) {
                self.pass_on(stream, lines)?;
            }
            match (&mut &*stream).write(frames) {
                Ok(len) => frames = frames.get(len..).unwrap_or_default(),
                Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(stream.set_nonblocking(false)?)
    }

    /// Reads until all requests of an opening are answered. The client gets all frames but those answers.
    fn await_answers(&self, stream: &UnixStream, lines: &mut Lines, opening: &Opening) -> Result<(), Lost> {
        let mut open = opening.purposes.len();
        while open > 0 {
            let mut out = Vec::new();
            let whole = read_lines(stream, lines)?;
            for line in lines::split(whole) {
                let text = str::from_utf8(line).unwrap_or_default();
                let frame = broker_frame::read(text);
                if let BrokerFrame::Response { id } = frame
                    && let Some(purpose) = opening.purpose(id)
                {
                    open -= 1;
                    self.note_answer(purpose, text, &mut out);
                } else if self.note(&frame) {
                    out.extend_from_slice(line);
                    out.push(b'\n');
                }
            }
            lines.consume();
            self.shared.to_client(&out);
        }
        Ok(())
    }

    /// Applies the answer to a request of the front.
    fn note_answer(&self, purpose: &Purpose, frame: &str, out: &mut Vec<u8>) {
        let mut state = self.shared.state();
        match purpose {
            Purpose::Setting(method) => {
                if *method == "initialize" {
                    state.note_introduction(broker_frame::instructions(frame));
                    self.shared.notify();
                }
                if broker_frame::result_text(frame).is_none() {
                    let event = format!("the broker refused {method}: {}", excerpt(frame));
                    self.shared.log.event(&event);
                }
            }
            Purpose::Register { arguments, by_front } => match broker_frame::call_result(frame) {
                Some(result) => {
                    let name = result["name"].as_str().unwrap_or("(none)").to_owned();
                    state.replay.note_registered(arguments.clone(), &result, *by_front);
                    drop(state);
                    self.shared.log.event(&format!("registered as {name}"));
                }
                None => self
                    .shared
                    .log
                    .event(&format!("the name was refused: {}", excerpt(frame))),
            },
            Purpose::Lists => {
                let own = own_answers::LIST_VIEWER.list("tools/list", &Params::default(), true);
                let theirs = broker_frame::result_text(frame);
                let differs = own.and_then(Result::ok).as_deref() != theirs.map(str::as_bytes);
                if state.note_lists(differs) {
                    out.extend(changes_of_lists());
                }
            }
        }
    }

    /// Passes what one read brings to the client.
    fn pass_on(&self, stream: &UnixStream, lines: &mut Lines) -> Result<(), Lost> {
        let whole = read_lines(stream, lines)?;
        // Most reads bring only frames for the client, which are written without a copy.
        let mut kept: Option<Vec<u8>> = None;
        let mut at = 0;
        for line in whole.split_inclusive(|byte| *byte == b'\n') {
            let goes_on = str::from_utf8(line).is_ok_and(|text| self.goes_to_client(text.trim_end()));
            match &mut kept {
                None if !goes_on => kept = Some(whole.get(..at).unwrap_or_default().to_vec()),
                Some(kept) if goes_on => kept.extend_from_slice(line),
                _ => {}
            }
            at += line.len();
        }
        self.shared.to_client(kept.as_deref().unwrap_or(whole));
        lines.consume();
        Ok(())
    }

    /// Takes note of a frame; returns whether the client gets it.
    fn goes_to_client(&self, frame: &str) -> bool {
        match broker_frame::read(frame) {
            BrokerFrame::Response { id } => id != GOODBYE_ID && id != RENEWED_ID && self.answered(id, frame),
            BrokerFrame::Acknowledged { id } => {
                let mut state = self.shared.state();
                match state.requests.listen(id.as_bytes()) {
                    // The client got the beginning on an earlier connection.
                    Some(Effect::Listen { is_acknowledged }) => !std::mem::replace(is_acknowledged, true),
                    _ => true,
                }
            }
            other => self.note(&other),
        }
    }

    /// Takes note of a frame that is no answer; returns whether the client gets it.
    fn note(&self, frame: &BrokerFrame<'_>) -> bool {
        match frame {
            BrokerFrame::Request { id } => {
                self.shared.state().asked.push((*id).to_owned());
                true
            }
            BrokerFrame::Closing { code } => {
                if *code == TAKEN_OVER {
                    self.shared.state().replay.note_taken_over();
                }
                self.shared
                    .log
                    .event(&format!("the broker closes the connection with code {code}"));
                false
            }
            BrokerFrame::ListsChanged => {
                self.shared.state().lists = Lists::Broker;
                true
            }
            BrokerFrame::Wake(wake) => {
                let link = self.shared.state().link.clone();
                if let (Some(link), Some(wake)) = (link, wake) {
                    self.waker.wake(link, (**wake).clone());
                }
                false
            }
            _ => true,
        }
    }

    /// Applies the answer to a request of the client; returns whether the client gets it.
    fn answered(&self, id: &str, frame: &str) -> bool {
        let mut state = self.shared.state();
        let mut wakes = state.stage >= Stage::Draining || !state.requests.has_room();
        let Some(request) = state.requests.answered(id.as_bytes()) else {
            return true;
        };
        let lacked_subscriptions = state.replay.lacks_subscriptions();
        if request.traits.effect != Effect::None {
            apply(&mut state, &request, frame);
        }
        let goes_on = request.traits.effect != Effect::Initialize;
        wakes |= !goes_on;
        state.requests.recycle(request);
        let renews = lacked_subscriptions && !state.replay.is_taken_over();
        let renewing = renews.then(|| (state.link.clone(), state.replay.renewed_subscriptions(RENEWED_ID)));
        drop(state);
        if let Some((Some(link), frames)) = renewing {
            self.write_aside(link, frames);
        }
        if wakes {
            self.shared.notify();
        }
        goes_on
    }

    /// Writes frames of the front on a thread of its own. This thread must not wait until the broker has room: the broker
    /// may wait until this thread reads. If it fails, the next connection begins with the same.
    fn write_aside(&self, link: Link, frames: Vec<u8>) {
        let shared = Arc::clone(&self.shared);
        let writing = move || {
            let _ = shared.to_broker(&link.stream, &frames);
        };
        if let Err(error) = spawn("renew", writing) {
            self.shared
                .log
                .event(&format!("no thread renews the subscriptions: {error}"));
        }
    }

    /// Refuses the requests that must not be repeated, and keeps the others for the next connection.
    fn lose_connection(&self, lost: &mut Lost) {
        let mut state = self.shared.state();
        if state.identity_number != self.told_identity {
            *lost = Lost::OtherIdentity;
        }
        state.link = None;
        state.is_open = false;
        if state.stage >= Stage::Ending {
            // The end of the front answers the requests.
            state.advance(Stage::Closed);
            drop(state);
            return self.shared.notify();
        }
        let keeps_session = state.replay.keeps_session();
        let refused = state.requests.lose_connection(Instant::now(), keeps_session);
        let taken_over = if state.replay.is_taken_over() {
            state.requests.take_acts_as_session()
        } else {
            Vec::new()
        };
        let asked = std::mem::take(&mut state.asked);
        let why = match lost {
            Lost::Connection(why) => format!("the connection was lost: {why}"),
            Lost::OtherIdentity => "connecting again, because the conversation is known now".to_owned(),
        };
        drop(state);
        self.shared.log.event(&why);
        let mut out = Vec::new();
        for id in asked {
            let params = format_args!("{{\"requestId\":{id},\"reason\":\"the broker was restarted\"}}");
            out.extend(frame::notification("notifications/cancelled", params).into_line());
        }
        self.shared.to_client(&out);
        self.refuse(&refused, &refusal::lost());
        self.refuse(&taken_over, &refusal::taken_over());
        self.shared.notify();
    }
}

/// The lists of the broker are others than those that the client may have.
fn changes_of_lists() -> impl Iterator<Item = u8> {
    let notification = |list: List| frame::notification(list.notification(), NO_PARAMS).into_line();
    List::ALL.into_iter().flat_map(notification)
}

/// The name that the front registers on a new connection. `given` is the one that the broker has made unique.
fn name_to_register(state: &State, given: Option<&str>, is_local: bool) -> Option<SessionName> {
    if !state.replay.may_name() {
        return None;
    }
    match &state.naming {
        Naming::ByAgent => None,
        Naming::Given(name) => Some(name.clone()),
        Naming::Automatic if state.identity.awaits_conversation() => None,
        Naming::Automatic if is_local => SessionName::parse(given?).ok(),
        Naming::Automatic => Some(state.identity.conversation_name()),
    }
}

/// Notes what an answered request has changed for later connections.
fn apply(state: &mut State, request: &Request, frame: &str) {
    let params = broker_frame::request_params(request.text());
    match request.traits.effect {
        Effect::Register => {
            if let Some(result) = broker_frame::call_result(frame) {
                state
                    .replay
                    .note_registered(params.arguments.unwrap_or_default(), &result, false);
            }
        }
        Effect::Leave => {
            if broker_frame::call_result(frame).is_some() && !matches!(state.replay.session(), Session::None) {
                state.replay.note_left();
            }
        }
        Effect::Initialize => state.note_introduction(broker_frame::instructions(frame)),
        _ if broker_frame::result_text(frame).is_none() => {}
        Effect::SetLogLevel => state.replay.note_log_level(&params.text),
        Effect::Subscribe => params.uri.into_iter().for_each(|uri| state.replay.note_subscribed(uri)),
        Effect::Unsubscribe => params.uri.iter().for_each(|uri| state.replay.note_unsubscribed(uri)),
        Effect::None | Effect::Listen { .. } => {}
    }
}

/// Waits until the broker has sent something. A thread that waits in a read is also woken by each frame that the broker
/// takes, because that makes room for others.
fn wait_for_frames(stream: &UnixStream) -> Result<(), Lost> {
    match poll(&mut [PollFd::new(stream, PollFlags::IN)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

/// Reads once, and returns the whole lines that are there now.
fn read_lines<'a>(stream: &UnixStream, lines: &'a mut Lines) -> Result<&'a [u8], Lost> {
    let len = loop {
        match (&mut &*stream).read(lines.free()) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    if len == 0 {
        return Err(Lost::Connection("the broker closed it".to_owned()));
    }
    let brought = lines.filled(len);
    if brought.too_long.is_some() {
        return Err(Lost::Connection("a frame was too long".to_owned()));
    }
    Ok(brought.lines)
}

/// The beginning of a frame, for the log.
fn excerpt(frame: &str) -> String {
    frame.chars().take(300).collect()
}
