//! One follower: what it missed since the event that it names, and then what the reader of its project shares.

use std::{sync::Arc, time::Duration};

use actix_web::web::{Bytes, BytesMut};
use actors::{
    model::{BrokerError, EventKind, Owner},
    project::{ProjectHandle, SessionSet},
    storage::{Direction, EventPosition, EventQuery, EventStart},
};
use futures_util::FutureExt;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{
    Followers, Place, TooManyFollowers, frame,
    tail::{Entry, Parties, Senders, Tail},
    topics::Topics,
};
use crate::transport::OpenResponse;

/// Bytes that are written at once.
const CHUNK_BYTES_MAX: usize = 64 * 1024;
/// Records of one read of the past.
const REPLAY_RECORDS: usize = 500;
/// How long the first read of the log is awaited.
const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the list of a member's own sessions is used.
const OWN_SESSIONS_AGE_MAX: Duration = Duration::from_secs(1);

/// What a follower may see and wants to see.
pub struct View {
    pub topics: Topics,
    /// Of messages, only those that sessions of this owner sent or got.
    pub messages_of: Option<Owner>,
}

/// A follower of the events of a project.
pub struct Follower {
    tail: Arc<Tail>,
    changes: watch::Receiver<u64>,
    view: View,
    own: Option<(Instant, SessionSet)>,
    /// The frame to write first.
    first: Option<Bytes>,
    replay: Option<Replay>,
    /// The number of the next entry of the ring.
    next: u64,
    heartbeat_interval: Duration,
    response: OpenResponse,
    _place: Place,
}

/// The past that a follower missed.
struct Replay {
    after: EventPosition,
    /// From here on the ring has the events.
    until: EventPosition,
    senders: Senders,
}

impl Follower {
    /// Follows a project: from the event with the id `after` on, or from now on.
    ///
    /// # Errors
    /// The project or the replica has its maximum of followers.
    pub fn join(
        followers: &Arc<Followers>,
        project: &ProjectHandle,
        view: View,
        response: OpenResponse,
        heartbeat_interval: Duration,
    ) -> Result<Self, TooManyFollowers> {
        let (tail, place) = followers.join(project, view.topics.kinds())?;
        Ok(Self {
            changes: tail.changes(),
            tail,
            view,
            own: None,
            first: None,
            replay: None,
            next: 0,
            heartbeat_interval,
            response,
            _place: place,
        })
    }

    /// Waits until the position of the log is known, and takes up the events behind `after`.
    ///
    /// # Errors
    /// `unavailable` when the log cannot be read.
    pub async fn begin(mut self, after: Option<EventPosition>) -> Result<Self, BrokerError> {
        let tail = Arc::clone(&self.tail);
        let ready = async {
            loop {
                if let Some(end) = tail.end() {
                    return Some(end);
                }
                if tail.has_ended() || self.changes.changed().await.is_err() {
                    return None;
                }
            }
        };
        let end = timeout(READY_TIMEOUT, ready).await.ok().flatten();
        let (until, next) = end.ok_or(BrokerError::unavailable())?;
        self.next = next;
        self.first = Some(frame::first(after.is_none().then_some(until)));
        self.replay = after.map(|after| Replay {
            after,
            until,
            senders: Senders::default(),
        });
        Ok(self)
    }

    /// The next bytes of the stream; None at its end.
    pub async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            if self.response.closed().now_or_never().is_some() {
                return None;
            }
            self.refresh_own_sessions();
            if self.replay.is_some() {
                match self.replayed().await {
                    Ok(chunk) if chunk.is_empty() => continue,
                    Ok(chunk) => return Some(chunk),
                    // The client connects again and names the last event that it got.
                    Err(_) => return None,
                }
            }
            self.changes.borrow_and_update();
            let taken = self.tail.take(&mut self.next, CHUNK_BYTES_MAX);
            let missed = (taken.missed > 0).then(|| frame::gap(Some(taken.missed)));
            let seen = taken.entries.iter().filter(|entry| self.sees(entry));
            let frames: Vec<_> = missed.iter().chain(seen.map(|entry| &entry.frame)).collect();
            let mut chunk = BytesMut::with_capacity(frames.iter().map(|frame| frame.len()).sum());
            for frame in frames {
                chunk.extend_from_slice(frame);
            }
            if !chunk.is_empty() {
                return Some(chunk.freeze());
            }
            if taken.has_ended {
                return None;
            }
            if !taken.entries.is_empty() {
                continue;
            }
            tokio::select! {
                changed = self.changes.changed() => if changed.is_err() {
                    return None;
                },
                _ = self.response.closed() => return None,
                () = sleep(self.heartbeat_interval) => return Some(frame::HEARTBEAT),
            }
        }
    }

    /// The next part of the past; empty if none of it is for this follower.
    async fn replayed(&mut self) -> Result<Bytes, BrokerError> {
        let Some(mut replay) = self.replay.take() else {
            return Ok(Bytes::new());
        };
        let query = EventQuery {
            from: EventStart::After(replay.after),
            direction: Direction::Forward,
            kinds: self.view.topics.kinds(),
            scan_max: REPLAY_RECORDS,
            bytes_max: CHUNK_BYTES_MAX,
        };
        let project = self.tail.project().clone();
        let page = project.events(query).await?;
        let mut chunk = BytesMut::new();
        if page.gap {
            chunk.extend_from_slice(&frame::gap(None));
        }
        for logged in &page.events {
            if is_behind(logged.position, replay.until) {
                return Ok(chunk.freeze());
            }
            let entry = Entry {
                kind: Some(logged.event.kind()),
                parties: replay.senders.parties(&logged.event),
                frame: frame::event(project.id(), logged),
            };
            if self.sees(&entry) {
                chunk.extend_from_slice(&entry.frame);
            }
        }
        if let Some(next) = page.next.filter(|next| page.more && *next != replay.until) {
            replay.after = next;
            self.replay = Some(replay);
        }
        Ok(chunk.freeze())
    }

    fn refresh_own_sessions(&mut self) {
        let Some(owner) = &self.view.messages_of else { return };
        let is_fresh = |(at, _): &(Instant, _)| at.elapsed() < OWN_SESSIONS_AGE_MAX;
        if !self.own.as_ref().is_some_and(is_fresh) {
            self.own = Some((Instant::now(), self.tail.project().own_sessions(owner)));
        }
    }

    /// Whether an entry is for this follower.
    fn sees(&self, entry: &Entry) -> bool {
        let is_wanted = |kind: EventKind| self.view.topics.contains(kind);
        // A gap of any events is for everyone.
        let Some(kind) = entry.kind else { return true };
        is_wanted(kind)
            && match (&entry.parties, &self.own) {
                (Parties::All, _) | (_, None) => true,
                (Parties::Message(accepted), Some((_, own))) => own.sent_or_got(accepted),
                (Parties::Sessions(session, sender), Some((_, own))) => {
                    own.contains(*session) || sender.is_some_and(|sender| own.contains(sender))
                }
            }
    }
}

/// Whether a position is behind another one of the same log.
fn is_behind(position: EventPosition, other: EventPosition) -> bool {
    position.incarnation == other.incarnation && position > other
}
