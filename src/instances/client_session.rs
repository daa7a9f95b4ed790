//! The client session with one instance of a backend: what is said to it first, and what becomes of the messages that it sends.
//! It knows nothing of pipes and sockets: `pipes` and `remote` move the messages.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use actors::{
    clock::{millis, now},
    gateway::{
        BackendCounters, Belongs, CallEnd, CallNumber, FIRST_PING, FrameLink, InputRequest, InstanceEvent, LaunchOrder,
        Link, LinkEnded, ListKind, Profile, ReadyInstance, SET_LOG_LEVEL, ServerInfo, process_number,
    },
    json::{self, scan},
    model::{BackendAddress, BackendEra, BackendOrigin, Sharing},
};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::{sync::Notify, time::timeout};
use tokio_util::task::AbortOnDropHandle;

use super::{
    answer_room::{AnswerRoom, Undelivered, WaitingAnswer},
    listener::{Heard, Listener},
    lists::{ListChanges, ListReader, ReadTools},
    message::{self, AnswerTo, Message, call_number},
    probe::{INITIALIZED, Opening, Probe, ProbeStep, error_code, error_text},
};
use api::mcp::{lines::LineEvent, rpc, skipped_frame::SkippedFrame};
use common::json::frame::{self, NO_PARAMS};

/// Bytes per second that are read of a backend whose messages reach no caller. Faster ones wait in its connection.
const FLOOD_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Lines that are no messages, which the log shows per minute.
const GARBAGE_SHOWN_MAX: u32 = 64;
/// Bytes of the params of a progress notification or a log message that is passed on.
const PROGRESS_BYTES_MAX: usize = 16 * 1024;
/// Bytes of such a line that the log shows.
const GARBAGE_BYTES_MAX: usize = 200;

/// How long the answer to the first ping is awaited. Servers that do not know it may not answer.
const PING_TIME_MAX: Duration = Duration::from_secs(1);

/// Why a client session has to end before its connection does.
#[derive(Default)]
pub struct Stop {
    reason: RefCell<Option<String>>,
    wake: Notify,
}

impl Stop {
    /// Ends the client session. The first reason counts.
    pub fn set(&self, reason: String) {
        self.reason.borrow_mut().get_or_insert(reason);
        self.wake.notify_one();
    }

    /// Whether the client session has to end.
    pub fn is_set(&self) -> bool {
        self.reason.borrow().is_some()
    }

    /// Waits until the client session has to end.
    pub async fn wait(&self) {
        while !self.is_set() {
            self.wake.notified().await;
        }
    }

    /// The reason, if there is one.
    pub fn reason(&self) -> Option<String> {
        self.reason.borrow().clone()
    }
}

/// The messages between the broker and one instance. Dropping it ends all its calls.
pub struct ClientSession<'a> {
    order: &'a LaunchOrder,
    link: Arc<FrameLink>,
    room: Rc<AnswerRoom>,
    /// The answers of the present read that have no room yet.
    waiting: Vec<WaitingAnswer>,
    /// The handshake, until it has ended.
    probe: Option<Probe>,
    /// The version that was agreed with the backend.
    protocol_version: Option<String>,
    /// The client capabilities that a legacy backend got.
    profile: Profile,
    stop: Rc<Stop>,
    changes: Rc<ListChanges>,
    read_tools: Option<Rc<dyn ReadTools>>,
    lists: Option<AbortOnDropHandle<()>>,
    /// The connection says which call a request of the backend belongs to.
    names_calls: bool,
    /// The answer to the first ping has come.
    pinged: Rc<Notify>,
    reporting: Option<AbortOnDropHandle<()>>,
    heard: Rc<Heard>,
    listener: Option<AbortOnDropHandle<()>>,
    /// The questions of the present read, each with the call that the connection names.
    asked: Vec<(Option<CallNumber>, InputRequest)>,
    garbage: Garbage,
    flood: Flood,
}

/// Counts the bytes of one second that belong to no answer.
#[derive(Default)]
struct Flood {
    second: u64,
    bytes: u64,
}

impl Flood {
    fn count(&mut self, bytes: usize, mono_ms: u64) {
        let second = mono_ms / 1_000;
        if self.second != second {
            *self = Self { second, bytes: 0 };
        }
        self.bytes += bytes as u64;
    }

    /// How long to wait before the next read.
    fn pause(&self) -> Option<Duration> {
        if self.bytes <= FLOOD_BYTES_MAX {
            return None;
        }
        let mono_ms = now().mono_ms;
        (self.second == mono_ms / 1_000).then(|| Duration::from_millis(1_000 - mono_ms % 1_000))
    }
}

/// Limits what the log shows of lines that are no messages.
#[derive(Default)]
struct Garbage {
    minute: u64,
    shown: u32,
}

impl<'a> ClientSession<'a> {
    /// A client session whose opening waits in its link. `names_calls` says that its connection tells which call a request of
    /// the backend belongs to. `read_tools` looks at each list of tools before it is reported.
    pub fn new(
        order: &'a LaunchOrder,
        room: &Rc<AnswerRoom>,
        opening: Opening,
        names_calls: bool,
        read_tools: Option<Rc<dyn ReadTools>>,
    ) -> Self {
        let link = FrameLink::new();
        let profile = told_profile(order, names_calls);
        let (probe, lines) = Probe::begin(opening, profile);
        for line in lines {
            link.send(line.as_bytes());
        }
        Self {
            order,
            link,
            room: Rc::clone(room),
            waiting: Vec::new(),
            probe: Some(probe),
            protocol_version: None,
            profile,
            stop: Rc::default(),
            changes: Rc::default(),
            read_tools,
            lists: None,
            names_calls,
            pinged: Rc::default(),
            reporting: None,
            heard: Rc::default(),
            listener: None,
            asked: Vec::new(),
            garbage: Garbage::default(),
            flood: Flood::default(),
        }
    }

    /// The messages that wait for the backend.
    pub fn link(&self) -> &Arc<FrameLink> {
        &self.link
    }

    /// What is counted of the backend.
    pub fn counters(&self) -> &Arc<BackendCounters> {
        &self.order.counters
    }

    /// The client capabilities that a legacy backend got.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Ends the client session.
    pub fn stop(&self) -> &Rc<Stop> {
        &self.stop
    }

    /// The lists that are to be read again.
    pub fn changes(&self) -> &Rc<ListChanges> {
        &self.changes
    }

    /// The server has another session: its lists may have changed, and it knows no subscriptions.
    pub fn has_other_session(&self) {
        self.changes.add(&ListKind::ALL);
        self.heard.is_forgotten.notify_one();
    }

    /// Whether the handshake was completed.
    pub fn was_agreed(&self) -> bool {
        self.protocol_version.is_some()
    }

    /// The version that was agreed with the backend.
    pub fn protocol_version(&self) -> Option<&str> {
        self.protocol_version.as_deref()
    }

    /// All messages of a read were taken: questions among them go to their calls together. Returns how long to wait before
    /// more is read.
    pub fn end_of_read(&mut self) -> Option<Duration> {
        while let Some((of, _)) = self.asked.first() {
            let of = *of;
            let asked = std::mem::take(&mut self.asked);
            let (together, others): (Vec<_>, Vec<_>) = asked.into_iter().partition(|(call, _)| *call == of);
            self.asked = others;
            let questions = together.into_iter().map(|(_, question)| question).collect();
            for question in self.link.ask(of, questions) {
                self.answer(&question);
            }
        }
        self.flood.pause()
    }

    /// Ends all calls. Returns how the client session ended: as it had to, or else by the end of its connection.
    pub fn close(self, mut ended: LinkEnded) -> Arc<LinkEnded> {
        if let Some(reason) = self.stop.reason() {
            ended.status = reason;
        }
        let ended = Arc::new(ended);
        self.link.close(&ended);
        ended
    }

    /// Takes a line of at most `limit` bytes.
    pub fn line(&mut self, line: LineEvent<'_>, limit: usize) {
        match line {
            LineEvent::Text(text) => self.text(text),
            LineEvent::NotUtf8(bytes) => self.text(&String::from_utf8_lossy(bytes)),
            LineEvent::TooLong(frame) => self.too_long(frame, limit),
        }
    }

    /// Takes a message that was longer than `limit` bytes.
    pub fn too_long(&mut self, frame: SkippedFrame, limit: usize) {
        match frame.into_response_id().as_deref().and_then(call_number) {
            Some(number) => self.end(number, CallEnd::TooLarge { limit }),
            None => self.garbage("it is too long"),
        }
    }

    /// Takes a message, or a batch of them, from a connection that does not say which call it belongs to.
    pub fn text(&mut self, text: &str) {
        self.text_of(None, text);
    }

    /// Takes a message, or a batch of them, that came in the answer to the call of this number.
    pub fn text_of(&mut self, number: Option<CallNumber>, text: &str) {
        let text = message::sound(text);
        match message::read(&text) {
            Message::Batch(messages) => messages.into_iter().for_each(|text| match message::read(text) {
                Message::Batch(_) => self.garbage(text),
                message => self.message(number, message, text),
            }),
            message => self.message(number, message, &text),
        }
    }

    /// Ends a call.
    pub fn end(&self, number: CallNumber, end: CallEnd) {
        self.note(self.link.end(number, end));
    }

    fn message(&mut self, of: Option<CallNumber>, message: Message<'_>, text: &str) {
        match message {
            Message::Answer { to, outcome } => match (to, of, outcome) {
                (AnswerTo::Request(number), ..) => self.response(number, outcome),
                // It is the answer to the message that the connection names.
                (AnswerTo::Unnamed, Some(number), Err(_)) => self.response(number, outcome),
                (AnswerTo::Unnamed, None, Err(error)) => self.refused_unnamed(error),
                (AnswerTo::Unnamed | AnswerTo::Other, ..) => self.order.counters.note_dropped("unknown id"),
            },
            Message::Broken { to, reason } if Probe::is_opening(to) => {
                let error = json!({"code": rpc::PARSE_ERROR, "message": reason});
                self.response(to, Err(&error.to_string()));
            }
            Message::Broken { to, reason } => self.end(to, CallEnd::Broken { reason }),
            Message::Notification { method, params } => self.notification(of, &method, params),
            Message::Request { id, method, params } => self.request(of, id, &method, params),
            Message::Batch(_) | Message::Garbage => self.garbage(text),
        }
    }

    /// The backend refuses a message without saying which: the only open call, if there is one, where it could not read the
    /// message. Other errors may answer a notification.
    fn refused_unnamed(&self, error: &str) {
        let is_unread = matches!(error_code(error), Some(rpc::PARSE_ERROR | rpc::INVALID_REQUEST));
        match self.link.only_call().filter(|_| is_unread) {
            Some(number) => {
                let reason = format!("it refuses a message without its id: {}", error_text(error));
                self.end(number, CallEnd::Broken { reason });
            }
            None => self.order.counters.note_dropped("unknown id"),
        }
    }

    /// Takes an answer: a result or an error as JSON.
    pub fn response(&mut self, number: CallNumber, outcome: Result<&str, &str>) {
        if let Some(probe) = &mut self.probe {
            return match probe.answer(number, outcome) {
                ProbeStep::Wait => {}
                ProbeStep::Agreed(era, server) => self.agreed(era, server),
                ProbeStep::Refused(_) if self.hides_words() => self.stop.set("it refuses the handshake".to_owned()),
                ProbeStep::Refused(reason) => self.stop.set(reason),
            };
        }
        if number == FIRST_PING {
            self.pinged.notify_one();
        }
        if Probe::is_opening(number) || number == SET_LOG_LEVEL || number == FIRST_PING {
            return;
        }
        let (Ok(answer) | Err(answer)) = outcome;
        // What the broker itself has asked for is not passed on.
        let copied = if self.link.serves_caller(number) {
            self.room.copy(answer.as_bytes())
        } else {
            Some(Bytes::copy_from_slice(answer.as_bytes()))
        };
        match copied {
            Some(bytes) if outcome.is_ok() => self.end(number, CallEnd::Result(bytes)),
            Some(bytes) => self.end(number, CallEnd::Error(bytes)),
            None => self.waiting.push(WaitingAnswer {
                number,
                outcome: outcome.map(bytes_of).map_err(bytes_of),
            }),
        }
    }

    /// Takes the answers out that have no room yet. They are to be delivered before more is read.
    pub fn take_waiting(&mut self) -> Undelivered {
        Undelivered::new(&self.link, &self.room, std::mem::take(&mut self.waiting))
    }

    /// The handshake is complete: calls are taken, and the lists are read.
    fn agreed(&mut self, era: BackendEra, server: ServerInfo) {
        self.probe = None;
        self.protocol_version = Some(server.protocol_version.clone());
        self.link.set_era(era);
        if era == BackendEra::Legacy {
            self.link.send(frame::notification(INITIALIZED, NO_PARAMS));
        }
        let (link, server) = (Arc::clone(&self.link), Arc::new(server));
        let known = self.order.known_lists.as_deref().cloned().unwrap_or_default();
        let changes = Rc::clone(&self.changes);
        let (link_of_lists, origin) = (Arc::clone(&link) as _, self.order.config.origin);
        let reader = ListReader::new(link_of_lists, &server, changes, known, self.read_tools.clone(), origin);
        if era == BackendEra::Legacy && has_capability(&server, "logging") {
            link.enable_log_levels();
        }
        let ready = ReadyInstance {
            link: Arc::clone(&link) as _,
            server: Arc::clone(&server),
            asks_without_call: era == BackendEra::Legacy && may_ask(self.order) && !self.names_calls,
        };
        if ready.asks_without_call && self.profile != Profile::NONE {
            link.keep_questions();
            self.report_ready_after_questions(ready);
        } else {
            (self.order.report)(InstanceEvent::Ready(ready));
        }
        let tells_lists = self.order.profile.is_none_or(|profile| profile == Profile::ALL);
        if tells_lists || self.read_tools.is_some() {
            let report = if tells_lists {
                Arc::clone(&self.order.report)
            } else {
                Arc::new(|_| ())
            };
            let reading = actix_rt::spawn(reader.run(report));
            self.lists = Some(AbortOnDropHandle::new(reading));
        }
        if let Some(subscribed) = self.order.subscribed.clone() {
            let listener = Listener {
                link,
                subscribed,
                process: self.process(),
                hears_of_lists: self.order.profile.is_none(),
                log: Arc::clone(&self.order.log),
                heard: Rc::clone(&self.heard),
            };
            let listening = actix_rt::spawn(async move { listener.run(&server).await });
            self.listener = Some(AbortOnDropHandle::new(listening));
        }
    }

    /// Reports that the instance takes calls, once what it asks at its start has come: the answer to a ping is behind that.
    fn report_ready_after_questions(&mut self, ready: ReadyInstance) {
        self.link.send(frame::request(FIRST_PING.0, "ping", NO_PARAMS));
        let (pinged, report) = (Rc::clone(&self.pinged), Arc::clone(&self.order.report));
        let reporting = actix_rt::spawn(async move {
            let _ = timeout(PING_TIME_MAX, pinged.notified()).await;
            report(InstanceEvent::Ready(ready));
        });
        self.reporting = Some(AbortOnDropHandle::new(reporting));
    }

    fn notification(&mut self, of: Option<CallNumber>, method: &str, params: Option<&str>) {
        self.flood
            .count(params.map_or(0, str::len) + method.len(), now().mono_ms);
        match method {
            "notifications/progress" => {
                let params = params.unwrap_or("{}");
                let is_sound = params.len() <= PROGRESS_BYTES_MAX && scan::check(params).is_ok();
                match json::member(params, "progressToken").and_then(call_number) {
                    _ if !is_sound => self.order.counters.note_dropped("progress that is too long or no JSON"),
                    Some(number) => {
                        let params = Bytes::copy_from_slice(params.as_bytes());
                        self.note(self.link.progress(number, params));
                    }
                    None => self.order.counters.note_dropped("unknown progress token"),
                }
            }
            "notifications/message" => self.log_message(of, params.unwrap_or("{}")),
            "notifications/elicitation/complete" => {
                let id = params.and_then(|params| json::member(params, "elicitationId"));
                // What a modern caller was asked for is complete when it calls again.
                let _ = id.and_then(scan::string).map(|id| self.order.urls.complete(&id));
            }
            "notifications/subscriptions/acknowledged" => self.heard.acknowledged.notify_one(),
            "notifications/resources/updated" | "notifications/tasks" => self.told_of_change(method, params),
            _ => self.changes.note(method),
        }
    }

    /// The number of the process that gives tasks their ids.
    fn process(&self) -> u64 {
        process_number(&self.order.config.address, &*self.link)
    }

    /// Passes a change of a resource or a task on. Instances that no caller has subscribed at may mean something else by the
    /// same URI or id.
    fn told_of_change(&self, method: &str, params: Option<&str>) {
        let Some(subscribed) = &self.order.subscribed else {
            return;
        };
        let noted = if method == "notifications/tasks" {
            subscribed.tasks.note_state(self.process(), params.unwrap_or("{}"))
        } else {
            let uri = params.and_then(|params| json::member(params, "uri"));
            let uri = uri.and_then(scan::string).ok_or("a changed resource without a URI");
            uri.map(|uri| subscribed.resources.note_change(&uri))
        };
        if let Err(why) = noted {
            self.order.counters.note_dropped(why);
        }
    }

    /// Takes a request of the backend: a question goes to the caller that it is for, if the backend may ask
    /// it, and if it is known which one that is. All others are answered here.
    fn request(&mut self, of: Option<CallNumber>, id: &str, method: &str, params: Option<&str>) {
        let question = InputRequest {
            id: id.into(),
            method: method.into(),
            params: params.unwrap_or("{}").into(),
        };
        if self.profile.has_any(asked_by(method)) {
            self.asked.push((of, question));
        } else {
            self.answer(&question);
        }
    }

    /// Answers a request of the backend that goes to no caller.
    fn answer(&self, question: &InputRequest) {
        let answer = match &*question.method {
            "ping" => Ok("{}"),
            "roots/list" => Ok("{\"roots\":[]}"),
            _ => Err("{\"code\":-32601,\"message\":\"Method not found: the client has not declared this capability\"}"),
        };
        self.link.answer(question, answer);
    }

    /// Keeps a log message of the backend, and passes it to its call.
    fn log_message(&mut self, of: Option<CallNumber>, params: &str) {
        if params.len() <= PROGRESS_BYTES_MAX && scan::check(params).is_ok() {
            self.link.log(of, Bytes::copy_from_slice(params.as_bytes()));
        }
        let shown: String = params.chars().take(GARBAGE_BYTES_MAX).collect();
        self.show(&format!("message: {shown}"));
    }

    /// Counts and shows a line that is no message. Servers print what should go to stderr.
    fn garbage(&mut self, line: &str) {
        self.flood.count(line.len(), now().mono_ms);
        self.order.counters.note_dropped("no message");
        if self.hides_words() {
            return self.show(&format!("{} bytes that are no message of MCP", line.len()));
        }
        let shown: String = line.chars().take(GARBAGE_BYTES_MAX).collect();
        self.show(&format!("stdout, not a message of MCP: {shown}"));
    }

    /// Whether what the server sends besides MCP is hidden: the administrator of one project has chosen its URL, and pages
    /// that only the broker's host can read may be at it.
    fn hides_words(&self) -> bool {
        let config = &self.order.config;
        config.origin == BackendOrigin::Added && matches!(config.address, BackendAddress::Url { .. })
    }

    fn show(&mut self, text: &str) {
        let minute = now().mono_ms / millis(Duration::from_mins(1));
        if self.garbage.minute != minute {
            self.garbage = Garbage { minute, shown: 0 };
        }
        self.garbage.shown += 1;
        if self.garbage.shown <= GARBAGE_SHOWN_MAX {
            self.order.log.push(text, now().unix_ms);
        }
    }

    fn note(&self, belongs: Belongs) {
        note_belonging(&self.order.counters, belongs);
    }
}

fn bytes_of(text: &str) -> Box<[u8]> {
    text.as_bytes().into()
}

impl Drop for ClientSession<'_> {
    fn drop(&mut self) {
        self.link.close(&Arc::default());
    }
}

fn note_belonging(counters: &BackendCounters, belongs: Belongs) {
    match belongs {
        Belongs::ToCall => {}
        Belongs::ToEndedCall => counters.note_dropped("late"),
        Belongs::ToNone => counters.note_dropped("unknown id"),
    }
}

fn has_capability(server: &ServerInfo, name: &str) -> bool {
    let capabilities: Value = serde_json::from_str(&server.capabilities).unwrap_or_default();
    capabilities.get(name).is_some()
}

/// The client capabilities that a legacy backend gets. A main instance next to a pool gets none:
/// it serves the callers that cannot be asked, or none.
fn told_profile(order: &LaunchOrder, names_calls: bool) -> Profile {
    let is_single = order.config.sharing == Sharing::Project && order.config.instances_max() == 1;
    match order.profile {
        _ if names_calls && may_ask(order) => Profile::ALL,
        Some(profile) => profile,
        None if is_single && may_ask(order) => Profile::ALL,
        None => Profile::NONE,
    }
}

/// Whether a legacy backend may ask its callers for input. A modern one asks in its results.
fn may_ask(order: &LaunchOrder) -> bool {
    order.config.asks == Some(true)
}

/// The capabilities of a client that this request asks for; none if it asks no client.
fn asked_by(method: &str) -> Profile {
    match method {
        "elicitation/create" => Profile::NONE.with(Profile::FORM, true).with(Profile::URL, true),
        "sampling/createMessage" => Profile::SAMPLING,
        "roots/list" => Profile::ROOTS,
        _ => Profile::NONE,
    }
}
