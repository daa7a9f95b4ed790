//! A page of the envelopes in the event log, without what became of the messages: a thread in its order, and a search.

use super::{
    MessageFilter, ProjectHandle, begin_ms,
    scan::{COUNT_READ_MAX, COUNT_SCAN_MAX, LogScan, Span, behind},
};
use crate::{
    model::{AcceptedMessage, BrokerError, EventKind, EventKinds, MessageId, PAGE_BYTES_MAX, ProjectEvent},
    storage::{Direction, EventPosition, EventStart},
};

/// Bytes of payloads that one page looks at, at most, unless its last read has more.
const PAYLOAD_SCAN_BYTES_MAX: usize = 8 << 20;
/// Bytes of payloads after which a search lets others work: 8 ms for the texts that cost most.
const PAYLOAD_PAUSE_BYTES: usize = 256 << 10;

/// A page of envelopes, in the direction in which they were asked for.
#[derive(Clone, Debug, Default)]
pub struct EnvelopePage {
    /// Each with its place in the log: the cursor behind it.
    pub messages: Vec<(EventPosition, Box<AcceptedMessage>)>,
    /// Where the next page begins; None after the last one.
    pub next: Option<EventPosition>,
}

impl ProjectHandle {
    /// A page of at most `limit` envelopes of the log behind the one at `after`. It looks at up to 50,000 records and
    /// 8 MiB of payloads, so it may be short, or empty, and still have a successor. Envelopes with payloads
    /// (`with_payloads`, where the log keeps them) end it before they have more bytes than a page.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn envelopes(
        &self,
        filter: &MessageFilter,
        direction: Direction,
        after: Option<EventPosition>,
        limit: usize,
        with_payloads: bool,
    ) -> Result<EnvelopePage, BrokerError> {
        let _permit = self.walk_permit().await;
        let named = self.sessions_named(filter);
        let mut scan = LogScan::new(Span {
            from: after.map_or_else(|| filter.start(direction), |after| behind(after, direction)),
            direction,
            until_ms: filter.until_ms,
            since_ms: filter.since_ms,
            kinds: EventKinds::of(&[EventKind::Accepted]),
            scan_max: COUNT_SCAN_MAX,
            read_max: COUNT_READ_MAX,
        });
        let mut page = EnvelopePage::default();
        let (mut searched, mut searched_at_pause, mut kept) = (0, 0, 0);
        while let Some(events) = scan.next(self).await? {
            for logged in events {
                let ProjectEvent::Accepted(mut accepted) = logged.event else {
                    continue;
                };
                let payload = accepted.payload.as_ref().map_or(0, String::len);
                searched += payload;
                if searched - searched_at_pause > PAYLOAD_PAUSE_BYTES {
                    searched_at_pause = searched;
                    tokio::task::yield_now().await;
                }
                if !filter.selects(&accepted, named.as_ref()) {
                    continue;
                }
                if with_payloads {
                    kept += payload;
                } else {
                    accepted.payload = None;
                }
                let is_full = page.messages.len() == limit || kept > PAGE_BYTES_MAX;
                if is_full && let Some((last, _)) = page.messages.last() {
                    page.next = Some(*last);
                    return Ok(page);
                }
                page.messages.push((logged.position, accepted));
            }
            if searched >= PAYLOAD_SCAN_BYTES_MAX {
                scan.end();
            }
        }
        page.next = scan.rest();
        Ok(page)
    }
}

impl MessageFilter {
    /// Where the first page begins.
    fn start(&self, direction: Direction) -> EventStart {
        match direction {
            Direction::Backward => self.until_ms.map_or(EventStart::Newest, EventStart::At),
            Direction::Forward => {
                // A thread that is named by its first message has no older one.
                let first = self.thread_id.as_deref().and_then(MessageId::parse).map(begin_ms);
                first.max(self.since_ms).map_or(EventStart::Oldest, EventStart::At)
            }
        }
    }
}
