//! Streams of events that can be resumed (2025-03-26 to 2025-11-25, basic/transports, Resumability and Redelivery).

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::Waker,
    time::Duration,
};

use actix_web::web::{Bytes, BytesMut};
use actors::{model::ProjectId, session::CloseReason};

use super::{
    replay_logs::{LogEntry, LogLocation, ReplayLogs, STREAM_OVERHEAD_BYTES},
    sessions::HttpSession,
};
use crate::mcp::{Outbox, RetentionCounter, WriteMarks};

/// Bytes of one stream that can be asked for again.
const LOG_BYTES_MAX: usize = 256 * 1024;

/// Events in their order, of which one response after the other may be the bearer.
pub struct EventStream {
    pub number: u64,
    pub outbox: Arc<Outbox>,
    own: Weak<Self>,
    context: StreamContext,
    log: Mutex<ReplayLog>,
}

/// What the streams of a session have in common.
#[derive(Clone)]
pub struct StreamContext {
    pub logs: Arc<ReplayLogs>,
    pub project: ProjectId,
    pub session: Weak<HttpSession>,
}

/// The last events of a stream, and who reads it.
#[derive(Default)]
struct ReplayLog {
    chunks: VecDeque<Bytes>,
    len: usize,
    /// The last event that is not kept any more.
    last_dropped: u64,
    /// Who reads the stream: the last who began to.
    reader: u64,
    /// The reader has left, and what waits in the outbox waits for one that comes back.
    is_reader_gone: bool,
    /// Its place among all logs, while there is something in it.
    entry: Option<LogEntry>,
    /// Its session does not know the stream any more: no reader comes back.
    is_forgotten: bool,
}

impl ReplayLog {
    /// The events after this one, as far as they are kept.
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

    /// Keeps a chunk of the events of this stream.
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
    pub fn new(number: u64, outbox: Arc<Outbox>, home: StreamContext) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            number,
            outbox,
            own: Weak::clone(own),
            context: home,
            log: Mutex::default(),
        })
    }

    /// Whether it is the one of the session itself, and not of an answer.
    pub fn is_main(&self) -> bool {
        self.number == 0
    }

    /// The one who asks reads the stream from now on, and who did before no more. Returns which reader that is, and
    /// what came after the event of this number and was taken by others, as far as it is kept.
    pub fn attach_reader(&self, after: Option<u64>) -> (u64, Option<Bytes>) {
        let mut log = self.lock();
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

    /// This reader has left, unless another reads the stream by now. Of an answer no more is kept than of the log.
    pub fn detach_reader(&self, reader: u64) {
        let mut log = self.lock();
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

    /// Drops what is kept. Of an answer nothing is kept from now on: its session does not know the stream any more. The
    /// stream of the session itself goes on.
    pub fn drop_replay_log(&self) {
        let mut log = self.lock();
        log.clear(self.number);
        if !self.is_main() {
            log.is_forgotten = true;
            if log.is_reader_gone {
                self.outbox.detach_reader(0, Weak::<Self>::new());
            }
        }
    }

    pub fn is_read_by(&self, reader: u64) -> bool {
        self.lock().reader == reader
    }

    /// As [`Outbox::sleep`], for the one who reads the stream: whoever did before must not be woken in its place. False
    /// for that one too.
    pub fn sleep(&self, reader: u64, waker: &Waker) -> bool {
        let log = self.lock();
        log.reader == reader && self.outbox.register_waker(waker)
    }

    /// As [`Outbox::take`], for the one who reads the stream: there is nothing for whoever did before. What is taken is
    /// kept for a while, in case it has to be written again.
    pub fn take(&self, reader: u64, marks: &mut WriteMarks) -> (Bytes, Option<CloseReason>) {
        let mut log = self.lock();
        if log.reader != reader {
            return (Bytes::new(), None);
        }
        let mut bytes = Vec::new();
        let closing = self.outbox.take(&mut bytes, marks);
        let chunk = Bytes::from(bytes);
        // What has no numbers cannot be asked for.
        if !chunk.is_empty() && !log.is_forgotten && self.outbox.is_numbered() {
            log.append(chunk.clone(), self.number);
            drop(log);
            self.recount();
        }
        (chunk, closing)
    }

    fn lock(&self) -> MutexGuard<'_, ReplayLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there was an event of this number, and what came after it is kept.
    pub fn can_resume_after(&self, number: u64) -> bool {
        (self.lock().last_dropped..=self.outbox.events_len()).contains(&number)
    }
}

impl RetentionCounter for EventStream {
    /// Counts what is kept among all logs, of which the oldest may have to go.
    fn recount(&self) {
        let mut log = self.lock();
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

/// The events of a chunk, each with the empty line at its end.
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

/// What names an event: its stream, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId {
    pub stream: u64,
    pub number: u64,
}

pub fn parse_event_id(text: &str) -> Option<EventId> {
    let (stream, number) = text.split_once('-')?;
    Some(EventId {
        stream: stream.parse().ok()?,
        number: number.parse().ok()?,
    })
}

/// The first event of a stream: nothing but its number, and when to come back for the rest (2025-11-25,
/// basic/transports).
pub fn priming_event(stream: u64) -> Bytes {
    const RETRY: Duration = Duration::from_secs(1);
    format!("id: {stream}-0\nretry: {}\ndata: \n\n", RETRY.as_millis()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::Framing;

    fn stream_of(number: u64, frames: &[&str]) -> Arc<EventStream> {
        let framing = Framing::Events { stream: Some(number) };
        let home = StreamContext {
            logs: ReplayLogs::new(),
            project: ProjectId::parse("one").unwrap(),
            session: Weak::new(),
        };
        let stream = EventStream::new(number, Arc::new(Outbox::new(framing)), home);
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
    fn what_was_missed_is_what_came_after_the_last_event() {
        let stream = stream_of(3, &["{\"a\":\n1}", "{\"b\":2}", "{\"c\":3}"]);
        assert_eq!(text(missed(&stream, 3)), "");
        assert_eq!(text(missed(&stream, 2)), "id: 3-3\nevent: message\ndata: {\"c\":3}\n\n");
        assert!(text(missed(&stream, 1)).starts_with("id: 3-2\n"));
        // The number of the priming event, which is not in the log.
        assert_eq!(text(missed(&stream, 0)).matches("id: ").count(), 3);
        assert!(text(missed(&stream, 0)).contains("data: {\"a\": 1}\n"), "one line each");
        assert_eq!(text(missed(&stream, 99)), "");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let large = format!("\"{}\"", "x".repeat(LOG_BYTES_MAX / 3));
        let stream = stream_of(0, &[&large, &large, &large, &large]);
        assert_eq!(text(missed(&stream, 0)).matches("id: ").count(), 2);
    }

    #[test]
    fn a_log_that_is_dropped_begins_again_after_its_last_event() {
        let stream = stream_of(0, &["1", "2"]);
        stream.drop_replay_log();
        assert!(!stream.can_resume_after(1) && stream.can_resume_after(2));
        assert_eq!(text(missed(&stream, 0)), "");
    }

    #[test]
    fn the_id_of_an_event_names_its_stream() {
        assert_eq!(parse_event_id("7-12"), Some(EventId { stream: 7, number: 12 }));
        for bad in ["", "7", "-", "7-", "-12", "7-x", "a-1", "7-12-3"] {
            assert_eq!(parse_event_id(bad), None, "{bad}");
        }
    }
}
