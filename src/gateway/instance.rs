//! One running instance of a backend: the task that moves frames between the process and the link of its callers.

use std::{cell::Cell, io, rc::Rc, sync::Arc, time::Duration};

use actors::{
    clock::{millis, now},
    gateway::{
        BackendCounters, Belongs, CallEnd, CallNumber, FrameLink, InstanceEvent, LaunchOrder, LinkEnded, ReadyInstance,
        Report, ServerInfo,
    },
    json::scan::{self, ScanError},
    model::BackendEra,
};
use bytes::Bytes;
use futures_util::future::pending;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{ChildStdin, ChildStdout},
    sync::Notify,
    task::yield_now,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    lists::{ListChanges, ListReader},
    probe::{Opening, Probe, ProbeStep},
    process::{Process, RunningProcess},
};
use crate::mcp::{
    lines::{LineDecoder, LineEvent},
    rpc::{self, Incoming},
};

/// Bytes of one read.
const READ_LEN: usize = 64 * 1024;
/// How long the exit status of a process is awaited after the end of its output, before its calls are answered.
const STATUS_WAIT: Duration = Duration::from_millis(500);
/// How long the output of a process is read after its end: descendants may hold it open.
const OUTPUT_WAIT: Duration = Duration::from_millis(100);
/// Bytes per second that are read of a backend whose messages reach no caller. Faster ones wait in its pipe.
const FLOOD_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Lines that are no messages, which the log shows per minute.
const GARBAGE_SHOWN_MAX: u32 = 64;
/// Bytes of the params of a progress notification.
const PROGRESS_BYTES_MAX: usize = 16 * 1024;
/// Bytes of such a line that the log shows.
const GARBAGE_BYTES_MAX: usize = 200;

/// Runs an instance to its end, and reports what becomes of it.
pub async fn run(order: LaunchOrder, ending: Rc<Ending>) {
    let unreported = Unreported(Some(Arc::clone(&order.report)));
    let event = run_to_end(&order, &ending).await;
    unreported.report(event);
}

/// Reports an end also if the task fails.
struct Unreported(Option<Report>);

impl Unreported {
    fn report(mut self, event: InstanceEvent) {
        if let Some(report) = self.0.take() {
            report(event);
        }
    }
}

impl Drop for Unreported {
    fn drop(&mut self) {
        if let Some(report) = self.0.take() {
            let status = "the task of its process failed".to_owned();
            report(InstanceEvent::Ended(Arc::new(LinkEnded {
                status,
                last_line: None,
            })));
        }
    }
}

async fn run_to_end(order: &LaunchOrder, ending: &Ending) -> InstanceEvent {
    let mut opening = Opening::from(order.known_era);
    loop {
        let process = match Process::start(&order.config, &order.log) {
            Ok(process) => process,
            Err(reason) => return InstanceEvent::NotStarted(reason),
        };
        (order.report)(InstanceEvent::Running { pid: process.pid() });
        let conversation = Conversation::new(order, opening);
        let (was_agreed, ended) = conversation.hold(process, ending).await;
        // An old server ends when the first message is not `initialize`.
        if !was_agreed && opening == Opening::Both && !ending.is_asked() {
            opening = Opening::Legacy;
            continue;
        }
        return InstanceEvent::Ended(ended);
    }
}

/// Whether the instance is to be ended.
#[derive(Default)]
pub struct Ending {
    is_asked: Cell<bool>,
    wake: Notify,
}

impl Ending {
    /// Asks for the end.
    pub fn ask(&self) {
        self.is_asked.set(true);
        self.wake.notify_one();
    }

    fn is_asked(&self) -> bool {
        self.is_asked.get()
    }

    async fn asked(&self) {
        while !self.is_asked.get() {
            self.wake.notified().await;
        }
    }
}

/// The frames between the broker and one process. Dropping it ends all its calls.
struct Conversation<'a> {
    order: &'a LaunchOrder,
    link: Arc<FrameLink>,
    /// The handshake, until it has ended.
    probe: Option<Probe>,
    was_agreed: bool,
    /// Why the conversation has to end.
    refused: Option<String>,
    changes: Rc<ListChanges>,
    lists: Option<AbortOnDropHandle<()>>,
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
    fn pause(&self, mono_ms: u64) -> Option<Duration> {
        let is_over = self.bytes > FLOOD_BYTES_MAX && self.second == mono_ms / 1_000;
        is_over.then(|| Duration::from_millis(1_000 - mono_ms % 1_000))
    }
}

/// Limits what the log shows of lines that are no messages.
#[derive(Default)]
struct Garbage {
    minute: u64,
    shown: u32,
}

impl<'a> Conversation<'a> {
    fn new(order: &'a LaunchOrder, opening: Opening) -> Self {
        let link = FrameLink::new();
        let (probe, lines) = Probe::begin(opening);
        for line in lines {
            link.send(line.as_bytes());
        }
        Self {
            order,
            link,
            probe: Some(probe),
            was_agreed: false,
            refused: None,
            changes: Rc::default(),
            lists: None,
            garbage: Garbage::default(),
            flood: Flood::default(),
        }
    }

    /// Moves frames until the process has ended. Returns whether the handshake was completed, and how it ended. All calls
    /// have an end when this returns.
    async fn hold(mut self, process: Process, ending: &Ending) -> (bool, Arc<LinkEnded>) {
        let (mut process, input, output) = process.into_parts();
        self.exchange(&mut process, input, output, ending).await;
        let mut ended = process.ended_within(STATUS_WAIT).await;
        if let Some(reason) = self.refused.take() {
            ended.status = reason;
        }
        let ended = Arc::new(ended);
        self.link.close(&ended);
        process.reap().await;
        (self.was_agreed, ended)
    }

    /// Reads and writes until the output ends. The input is closed then, or when the end is asked for.
    async fn exchange(
        &mut self,
        process: &mut RunningProcess,
        input: ChildStdin,
        mut output: ChildStdout,
        ending: &Ending,
    ) {
        let mut input = Some(input);
        let mut decoder = LineDecoder::new(self.order.config.result_bytes_max);
        let mut read_buffer = vec![0; READ_LEN];
        let (mut frames, mut written) = (Vec::new(), 0);
        // Until when the output of a process that has ended is read.
        let mut read_until = None;
        let link = Arc::clone(&self.link);
        while self.refused.is_none() {
            let has_frames = written < frames.len();
            tokio::select! {
                read = output.read(&mut read_buffer) => match read {
                    Ok(len) if len > 0 => {
                        self.read(&mut decoder, &read_buffer[..len]);
                        match self.flood.pause(now().mono_ms) {
                            Some(pause) => sleep(pause).await,
                            // Other tasks of the worker have their turn between two reads.
                            None => yield_now().await,
                        }
                    }
                    _ => return,
                },
                done = write(&mut input, frames.get(written..).unwrap_or_default()), if has_frames => {
                    if let Ok(len) = done {
                        written += len;
                        link.note_written(len);
                    } else {
                        // The program has closed its input, so it takes no calls. Its last answers are read.
                        input = None;
                        frames.clear();
                    }
                }
                () = link.has_outgoing(), if !has_frames && input.is_some() => {
                    (frames, written) = (recycled(frames), 0);
                    link.take_outgoing(&mut frames);
                }
                () = ending.asked(), if input.is_some() => input = None,
                _ = process.wait(), if read_until.is_none() => {
                    read_until = Some(Instant::now() + OUTPUT_WAIT);
                    input = None;
                }
                () = until(read_until) => return,
            }
        }
    }

    fn read(&mut self, decoder: &mut LineDecoder, bytes: &[u8]) {
        let limit = decoder.line_len_max();
        decoder.decode(bytes, |line| match line {
            LineEvent::Text(text) => self.line(text),
            LineEvent::NotUtf8 => self.garbage("it is not UTF-8"),
            LineEvent::TooLong(frame) => match frame.into_response_id().and_then(|id| id.parse().ok()) {
                Some(number) => self.note(self.link.end(CallNumber(number), CallEnd::TooLarge { limit })),
                None => self.garbage("it is too long"),
            },
        });
    }

    fn line(&mut self, text: &str) {
        match rpc::parse(text) {
            Ok(Incoming::Batch(frames)) => frames.into_iter().for_each(|frame| match rpc::parse(frame) {
                Ok(Incoming::Batch(_)) | Err(_) => self.garbage(frame),
                Ok(message) => self.message(message),
            }),
            Ok(message) => self.message(message),
            Err(_) => self.garbage(text),
        }
    }

    fn message(&mut self, message: Incoming<'_>) {
        match message {
            Incoming::Response { id, outcome } => match id.and_then(|id| id.parse().ok()) {
                Some(number) => self.response(CallNumber(number), outcome),
                None => self.order.counters.note_dropped("unknown id"),
            },
            Incoming::Notification { method, params } => self.notification(&method, params.text),
            Incoming::Request { id, method, .. } => self.request(id, &method),
            Incoming::Batch(_) => {}
        }
    }

    fn response(&mut self, number: CallNumber, outcome: Result<&str, &str>) {
        if let Some(probe) = &mut self.probe {
            match probe.answer(number, outcome) {
                ProbeStep::Wait => return,
                ProbeStep::Agreed(era, server) => return self.agreed(era, server),
                ProbeStep::Refused(reason) => {
                    self.refused = Some(reason);
                    return;
                }
            }
        }
        if Probe::is_opening(number) {
            return;
        }
        let end = match outcome {
            Ok(result) => CallEnd::Result(Bytes::copy_from_slice(result.as_bytes())),
            Err(error) => CallEnd::Error(Bytes::copy_from_slice(error.as_bytes())),
        };
        self.note(self.link.end(number, end));
    }

    /// The handshake is complete: calls are taken, and the lists are read.
    fn agreed(&mut self, era: BackendEra, server: ServerInfo) {
        self.probe = None;
        self.was_agreed = true;
        self.link.set_era(era);
        if era == BackendEra::Legacy {
            self.link
                .send(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        }
        let link = Arc::clone(&self.link);
        let known = self.order.known_lists.as_deref().cloned().unwrap_or_default();
        let reader = ListReader::new(Arc::clone(&link) as _, &server, Rc::clone(&self.changes), known);
        let ready = ReadyInstance {
            link,
            server: Arc::new(server),
        };
        (self.order.report)(InstanceEvent::Ready(ready));
        let reading = actix_rt::spawn(reader.run(Arc::clone(&self.order.report)));
        self.lists = Some(AbortOnDropHandle::new(reading));
    }

    fn notification(&mut self, method: &str, params: Option<&str>) {
        self.flood
            .count(params.map_or(0, str::len) + method.len(), now().mono_ms);
        match method {
            "notifications/progress" => {
                let params = params.unwrap_or("{}");
                let is_sound = params.len() <= PROGRESS_BYTES_MAX && scan::check(params).is_ok();
                match progress_token(params) {
                    _ if !is_sound => self.order.counters.note_dropped("progress that is too long or no JSON"),
                    Some(number) => {
                        let params = Bytes::copy_from_slice(params.as_bytes());
                        self.note(self.link.progress(number, params));
                    }
                    None => self.order.counters.note_dropped("unknown progress token"),
                }
            }
            "notifications/message" => self.log_message(params.unwrap_or_default()),
            _ => self.changes.note(method),
        }
    }

    /// Answers a request of the backend. It names no call, and the broker has told it of no capabilities.
    fn request(&mut self, id: &str, method: &str) {
        let answer = match method {
            "ping" => "\"result\":{}",
            "roots/list" => "\"result\":{\"roots\":[]}",
            _ => {
                "\"error\":{\"code\":-32601,\"message\":\"Method not found: the client has not declared this capability\"}"
            }
        };
        let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{answer}}}");
        if !self.link.send(answer.as_bytes()) {
            self.order.counters.note_dropped("answer that is not read");
        }
    }

    /// Keeps a log message of the backend: it does not say which call it belongs to.
    fn log_message(&mut self, params: &str) {
        let shown: String = params.chars().take(GARBAGE_BYTES_MAX).collect();
        self.show(&format!("message: {shown}"));
    }

    /// Counts and shows a line that is no message. Servers print what should go to stderr.
    fn garbage(&mut self, line: &str) {
        self.flood.count(line.len(), now().mono_ms);
        self.order.counters.note_dropped("no message");
        let shown: String = line.chars().take(GARBAGE_BYTES_MAX).collect();
        self.show(&format!("stdout, not a message of MCP: {shown}"));
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

impl Drop for Conversation<'_> {
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

/// The call that a progress notification belongs to.
fn progress_token(params: &str) -> Option<CallNumber> {
    let mut token = None;
    scan::members::<ScanError>(params, |key, value| {
        if key == "progressToken" {
            token = value.parse().ok().map(CallNumber);
        }
        Ok(())
    })
    .ok()?;
    token
}

async fn write(input: &mut Option<ChildStdin>, bytes: &[u8]) -> io::Result<usize> {
    match input {
        Some(input) => input.write(bytes).await,
        None => pending().await,
    }
}

/// Waits until this time, or for ever if there is none.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// An empty buffer, which keeps its memory unless it has grown large.
fn recycled(mut buffer: Vec<u8>) -> Vec<u8> {
    if buffer.capacity() > READ_LEN {
        return Vec::new();
    }
    buffer.clear();
    buffer
}
