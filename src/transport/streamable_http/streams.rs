//! Resumable event streams (2025-03-26 to 2025-11-25, basic/transports, Resumability and Redelivery).

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
    task::Waker,
    time::Duration,
};

use actix_web::web::{Bytes, BytesMut};
use actors::{locked::Locked, model::ProjectId, session::CloseReason};

use super::replay_logs::{LogEntry, LogLocation, LogOwner, ReplayLogs, STREAM_OVERHEAD_BYTES};
use api::mcp::{Outbox, RetentionCounter, WriteMarks};

/// Bytes of one stream that can be replayed.
const LOG_BYTES_MAX: usize = 256 * 1024;

/// Numbered events that one response after another may carry.
pub struct EventStream {
    pub number: u64,
    pub outbox: Arc<Outbox>,
    own: Weak<Self>,
    context: StreamContext,
    log: Locked<ReplayLog>,
}

/// What the streams of a session share.
#[derive(Clone)]
pub struct StreamContext {
    pub logs: Arc<ReplayLogs>,
    pub project: ProjectId,
    pub session: Weak<dyn LogOwner>,
}

/// The last events of a stream, and its current reader.
#[derive(Default)]
struct ReplayLog {
    chunks: VecDeque<Bytes>,
    len: usize,
    /// The number of the last event that was dropped.
    last_dropped: u64,
    /// The number of the current reader.
    reader: u64,
    /// The reader has disconnected; the outbox waits for the next one.
    is_reader_gone: bool,
    /// The registration among all logs, while the log is not empty.
    entry: Option<LogEntry>,
    /// The session has forgotten the stream: no reader can resume it.
    is_forgotten: bool,
}

impl ReplayLog {
    /// The retained events after `number`.
    fn events_after(&self, number: u64, stream: u64) -> Option<Bytes> {
        let mut missed = BytesMut::new();
        let mut found = false;
        for event in self.chunks.iter().flat_map(|chunk| events(chunk)) {
            found |= event_number(event, stream).is_some_and(|known| known > number);
            if found {
                missed.extend_from_slice(event);
            }
        }
        (!missed.is_empty()).then(|| missed.freeze())
    }

    /// Appends a chunk of events, and drops the oldest chunks beyond [`LOG_BYTES_MAX`].
    fn append(&mut self, chunk: Bytes, stream: u64) {
        self.len += chunk.len();
        self.chunks.push_back(chunk);
        while self.len > LOG_BYTES_MAX
            && let Some(oldest) = self.chunks.pop_front()
        {
            self.len -= oldest.len();
            self.note_dropped(&oldest, stream);
        }
    }

    fn note_dropped(&mut self, chunk: &[u8], stream: u64) {
        let last = events(chunk).filter_map(|event| event_number(event, stream)).last();
        self.last_dropped = last.unwrap_or(self.last_dropped);
    }

    fn clear(&mut self, stream: u64) {
        if let Some(newest) = self.chunks.pop_back() {
            self.note_dropped(&newest, stream);
        }
        self.chunks = VecDeque::new();
        self.len = 0;
        self.entry = None;
    }
}

impl EventStream {
    /// A stream with this number around an outbox.
    pub fn new(number: u64, outbox: Arc<Outbox>, context: StreamContext) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            number,
            outbox,
            own: Weak::clone(own),
            context,
            log: Locked::default(),
        })
    }

    /// Whether it is the stream of the session itself, and not of an answer.
    pub fn is_main(&self) -> bool {
        self.number == 0
    }

    /// Makes the caller the reader of the stream, in place of the previous one. Returns the reader's number, and the
    /// retained events after the event `after` that earlier readers took.
    pub fn attach_reader(&self, after: Option<u64>) -> (u64, Option<Bytes>) {
        let mut log = self.log.lock();
        log.reader += 1;
        log.is_reader_gone = false;
        self.outbox.attach_reader();
        self.outbox.wake();
        let taken = (
            log.reader,
            after.and_then(|number| log.events_after(number, self.number)),
        );
        drop(log);
        self.recount();
        taken
    }

    /// Detaches a reader, unless another has attached since. The outbox of an answer then retains at most as much as
    /// the log may.
    pub fn detach_reader(&self, reader: u64) {
        let mut log = self.log.lock();
        if log.reader != reader || self.is_main() {
            return;
        }
        log.is_reader_gone = true;
        let bytes_max = if log.is_forgotten { 0 } else { LOG_BYTES_MAX };
        self.outbox
            .detach_reader(bytes_max, Weak::clone(&self.own) as Weak<dyn RetentionCounter>);
        drop(log);
        self.recount();
    }

    /// Drops the replay log. The stream of an answer retains nothing from now on; the stream of the session continues.
    pub fn drop_replay_log(&self) {
        let mut log = self.log.lock();
        log.clear(self.number);
        if !self.is_main() {
            log.is_forgotten = true;
            if log.is_reader_gone {
                self.outbox.detach_reader(0, Weak::<Self>::new());
            }
        }
    }

    /// Whether this reader is the current one.
    pub fn is_read_by(&self, reader: u64) -> bool {
        self.log.lock().reader == reader
    }

    /// As [`Outbox::register_waker`], for the current reader. False for an earlier reader, which must not be woken
    /// instead.
    pub fn sleep(&self, reader: u64, waker: &Waker) -> bool {
        let log = self.log.lock();
        log.reader == reader && self.outbox.register_waker(waker)
    }

    /// As [`Outbox::take`], for the current reader; empty for an earlier one. Numbered events are retained for a
    /// replay.
    pub fn take(&self, reader: u64, marks: &mut WriteMarks) -> (Bytes, Option<CloseReason>) {
        let mut log = self.log.lock();
        if log.reader != reader {
            return (Bytes::new(), None);
        }
        let mut bytes = Vec::new();
        let closing = self.outbox.take(&mut bytes, marks);
        let chunk = Bytes::from(bytes);
        // Only numbered events can be resumed.
        if !chunk.is_empty() && !log.is_forgotten && self.outbox.is_numbered() {
            log.append(chunk.clone(), self.number);
            drop(log);
            self.recount();
        }
        (chunk, closing)
    }

    /// Whether the stream can be resumed after this event: the event existed, and all later ones are retained.
    pub fn can_resume_after(&self, number: u64) -> bool {
        (self.log.lock().last_dropped..=self.outbox.events_len()).contains(&number)
    }
}

impl RetentionCounter for EventStream {
    /// Updates the registration of the log; the oldest logs of the process may be dropped.
    fn recount(&self) {
        let mut log = self.log.lock();
        let waiting = if log.is_reader_gone {
            self.outbox.waiting_len()
        } else {
            0
        };
        let kept = log.len + waiting;
        if log.is_forgotten || (self.is_main() && kept == 0) {
            log.entry = None;
            return;
        }
        let StreamContext { logs, project, session } = &self.context;
        let entry = log.entry.get_or_insert_with(|| {
            let session = Weak::clone(session);
            let stream = self.number;
            logs.register(project, LogLocation { session, stream })
        });
        entry.set(STREAM_OVERHEAD_BYTES + kept);
        drop(log);
        logs.evict_until_within_budget(project);
    }
}

/// The events of a chunk, each with its terminating empty line.
fn events(chunk: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = chunk;
    std::iter::from_fn(move || {
        let end = memchr::memmem::find(rest, b"\n\n")? + 2;
        let (event, after) = rest.split_at(end);
        rest = after;
        Some(event)
    })
}

fn event_number(event: &[u8], stream: u64) -> Option<u64> {
    let line = event.strip_prefix(b"id: ")?.split(|&byte| byte == b'\n').next()?;
    let id = parse_event_id(std::str::from_utf8(line).ok()?)?;
    (id.stream == stream).then_some(id.number)
}

/// The id of an event: its stream, and its number in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId {
    pub stream: u64,
    pub number: u64,
}

/// Parses `stream-number`.
pub fn parse_event_id(text: &str) -> Option<EventId> {
    let (stream, number) = text.split_once('-')?;
    Some(EventId {
        stream: stream.parse().ok()?,
        number: number.parse().ok()?,
    })
}

/// The first event of a stream: its id and the reconnection time, without data (2025-11-25, basic/transports).
pub fn priming_event(stream: u64) -> Bytes {
    const RETRY: Duration = Duration::from_secs(1);
    format!("id: {stream}-0\nretry: {}\ndata: \n\n", RETRY.as_millis()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::streamable_http::sessions::HttpSession;
    use api::mcp::Framing;

    fn stream_of(number: u64, frames: &[&str]) -> Arc<EventStream> {
        let framing = Framing::Events { stream: Some(number) };
        let context = StreamContext {
            logs: ReplayLogs::new(),
            project: ProjectId::parse("one").unwrap(),
            session: Weak::<HttpSession>::new(),
        };
        let stream = EventStream::new(number, Arc::new(Outbox::new(framing)), context);
        let (reader, _) = stream.attach_reader(None);
        for frame in frames {
            stream.outbox.send(frame.as_bytes());
            stream.take(reader, &mut WriteMarks::default());
        }
        stream
    }

    fn missed(stream: &EventStream, number: u64) -> Option<Bytes> {
        stream.attach_reader(Some(number)).1
    }

    fn text(missed: Option<Bytes>) -> String {
        String::from_utf8(missed.unwrap_or_default().to_vec()).unwrap()
    }

    #[test]
    fn a_resumed_stream_replays_the_events_after_the_last_one() {
        let stream = stream_of(3, &["{\"a\":\n1}", "{\"b\":2}", "{\"c\":3}"]);
        assert_eq!(text(missed(&stream, 3)), "");
        assert_eq!(text(missed(&stream, 2)), "id: 3-3\nevent: message\ndata: {\"c\":3}\n\n");
        assert!(text(missed(&stream, 1)).starts_with("id: 3-2\n"));
        // The priming event has number 0 and is not in the log.
        assert_eq!(text(missed(&stream, 0)).matches("id: ").count(), 3);
        assert!(text(missed(&stream, 0)).contains("data: {\"a\": 1}\n"), "one line each");
        assert_eq!(text(missed(&stream, 99)), "");
    }

    #[test]
    fn a_replay_log_is_bounded() {
        let large = format!("\"{}\"", "x".repeat(LOG_BYTES_MAX / 3));
        let stream = stream_of(0, &[&large, &large, &large, &large]);
        assert_eq!(text(missed(&stream, 0)).matches("id: ").count(), 2);
    }

    #[test]
    fn a_dropped_log_resumes_after_its_last_event() {
        let stream = stream_of(0, &["1", "2"]);
        stream.drop_replay_log();
        assert!(!stream.can_resume_after(1) && stream.can_resume_after(2));
        assert_eq!(text(missed(&stream, 0)), "");
    }

    #[test]
    fn an_event_id_names_its_stream_and_number() {
        assert_eq!(parse_event_id("7-12"), Some(EventId { stream: 7, number: 12 }));
        for bad in ["", "7", "-", "7-", "-12", "7-x", "a-1", "7-12-3"] {
            assert_eq!(parse_event_id(bad), None, "{bad}");
        }
    }
}
