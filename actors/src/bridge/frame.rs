//! What replicas publish: frames, whose order has no gaps, and delivery batches.
//!
//! A [`Frame`] is what one replica publishes to all replicas after a change in a shared store. One JSON object, its version
//! first:
//!
//! `{"v":1,"from":"0192f3a0-…","project":"acme","news":{"waiting":["0192f3a0-…"]},"x":7,"n":42}`
//!
//! The store completes a frame when it publishes it, because only the store knows the last two numbers: the replica
//! sends the text up to them ([`Frame::head`]), and the store appends `NUMBER,"n":SEQ}`.
//!
//! A replica of an earlier build reads every project again after a frame that it cannot read. Events that such builds do
//! not know are therefore in addition to a `news` that they know and that says nothing, in `desk`, whose events were the first of
//! these:
//!
//! `{"v":1,"from":"0192f3a0-…","project":"acme","news":{"waiting":[]},"desk":{"yaps":17},"x":0,"n":43}`
//!
//! A [`DeliveryBatch`] has messages that the store leased to sessions of one replica in the operation that accepted them. Only
//! sessions that this replica has claimed and that have push delivery started are leased to in this way. The channel of the replica
//! carries the messages first, each in its stored form, and then a trailer that says who they are for: the byte `P`, the version
//! (4 bytes, big-endian), the length of the project id (2 bytes, big-endian), the id, and the recipients in the store's own format.

use std::collections::HashMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::model::{MessageId, ProjectId, ProtocolName, QuestionId, ReplicaId, SessionId, SessionRecord};

/// The version of the frames that this build writes and reads.
pub const FRAME_VERSION: u32 = 1;

/// A frame as it is read from the bridge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// Always [`FRAME_VERSION`].
    pub v: u32,
    /// The replica that published the frame.
    pub from: ReplicaId,
    pub project: ProjectId,
    /// What happened.
    #[serde(rename = "news")]
    pub event: StoreEvent,
    /// For a session that was put or removed: the version of the roster. For a claim: its epoch. Otherwise 0.
    #[serde(rename = "x")]
    pub number: u64,
    /// The sequence number of the frame in its project: counts the frames of all replicas, without gaps.
    #[serde(rename = "n")]
    pub seq: u64,
}

/// A change in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreEvent {
    /// Messages wait in these inboxes that were empty before.
    Waiting(Vec<SessionId>),
    /// A session is new or has a new record.
    Session(Box<SessionRecord>),
    /// The session has ended and its record is gone.
    SessionRemoved(SessionId),
    /// A replica has claimed the session; the claim of the replica before it has ended.
    Claimed(SessionId),
    /// A protocol version was registered.
    Protocol {
        name: ProtocolName,
        version: semver::Version,
    },
    /// The record of the project has this revision.
    Project(u64),
    /// The delivery status of a tracked message has changed.
    Progress(MessageId),
    /// A question is new, has a new record, or is removed.
    Question(QuestionId),
    /// Yaps got their place in the order, up to this number.
    Yaps(u64),
    /// An added backend is new, has another table, or is removed.
    Backends,
    /// A lens of this protocol is new, replaced or removed.
    Lenses(ProtocolName),
}

/// Why bytes from the bridge cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("frame version {0}, expected {FRAME_VERSION}: another replica runs another version")]
    Version(u32),
    #[error("not a frame: {0}")]
    Malformed(String),
}

#[derive(Deserialize)]
struct Versioned {
    v: u32,
}

#[derive(Deserialize)]
struct LaterFrame {
    #[serde(rename = "desk")]
    event: StoreEvent,
}

impl Frame {
    /// The text of a frame up to the two numbers that the store appends.
    pub fn head(from: ReplicaId, project: &ProjectId, event: &StoreEvent) -> String {
        let text = serde_json::to_string(event).unwrap_or_default();
        let news = match event {
            StoreEvent::Question(_) | StoreEvent::Yaps(_) | StoreEvent::Backends | StoreEvent::Lenses(_) => {
                format!(r#"{{"waiting":[]}},"desk":{text}"#)
            }
            _ => text,
        };
        format!(r#"{{"v":{FRAME_VERSION},"from":"{from}","project":"{project}","news":{news},"x":"#)
    }

    /// The frame with the event that earlier builds do not know, if its text has one.
    fn with_later_event(self, text: &[u8]) -> Self {
        match serde_json::from_slice(text) {
            Ok(LaterFrame { event }) => Self { event, ..self },
            Err(_) => self,
        }
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// [`FrameError::Version`] for a frame of another version, [`FrameError::Malformed`] for text that is no frame.
    pub fn parse(text: &[u8]) -> Result<Self, FrameError> {
        let malformed = |error: serde_json::Error| FrameError::Malformed(error.to_string());
        match serde_json::from_slice(text) {
            Ok(Self { v, .. }) if v != FRAME_VERSION => Err(FrameError::Version(v)),
            Ok(frame) => match &frame.event {
                StoreEvent::Waiting(sessions) if sessions.is_empty() => Ok(frame.with_later_event(text)),
                _ => Ok(frame),
            },
            // A frame of another version may differ in every other field, so only its version is read.
            Err(error) => match serde_json::from_slice::<Versioned>(text) {
                Ok(Versioned { v }) if v != FRAME_VERSION => Err(FrameError::Version(v)),
                _ => Err(malformed(error)),
            },
        }
    }
}

/// The last sequence number per project since the connection was established.
#[derive(Debug, Default)]
pub(super) struct FrameSequence(HashMap<ProjectId, u64>);

/// How a frame follows the last one of its project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameOrder {
    /// It is the next one.
    Next,
    /// Frames before it were lost, or the store lost its counter and started again.
    AfterGap,
    /// It was delivered before.
    Duplicate,
}

impl FrameSequence {
    /// Records a frame and says how it follows the last one.
    pub fn observe(&mut self, project: &ProjectId, seq: u64) -> FrameOrder {
        let Some(last) = self.0.get_mut(project) else {
            self.0.insert(project.clone(), seq);
            return FrameOrder::Next;
        };
        let before = std::mem::replace(last, seq);
        match seq {
            _ if seq == before + 1 => FrameOrder::Next,
            _ if seq == before => FrameOrder::Duplicate,
            _ => FrameOrder::AfterGap,
        }
    }

    /// Forgets all projects: the next frame of each is accepted as the next one.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// The first byte of a trailer. No stored message begins with it.
const TRAILER_MARK: u8 = b'P';

/// Messages for sessions of one project. The store decodes the recipients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryBatch {
    /// The project of all recipients.
    pub project: ProjectId,
    /// In their stored form.
    pub messages: Vec<Bytes>,
    /// The recipients, in the store's own format.
    pub recipients: Bytes,
}

impl DeliveryBatch {
    /// The first bytes of the trailer for a project; the recipients follow.
    pub fn trailer_head(project: &ProjectId) -> Vec<u8> {
        let id = project.as_str().as_bytes();
        // A project id has at most 63 bytes.
        let len = u16::try_from(id.len()).unwrap_or(u16::MAX);
        [
            &[TRAILER_MARK][..],
            &FRAME_VERSION.to_be_bytes(),
            &len.to_be_bytes(),
            id,
        ]
        .concat()
    }

    /// Whether these bytes are the trailer of a batch.
    pub fn is_trailer(part: &[u8]) -> bool {
        part.first() == Some(&TRAILER_MARK)
    }

    /// Reads a batch from its messages and its trailer.
    ///
    /// # Errors
    /// [`FrameError::Version`] for a batch of another version, [`FrameError::Malformed`] for a trailer that is cut
    /// short or names no project.
    pub fn parse(messages: Vec<Bytes>, last: &Bytes) -> Result<Self, FrameError> {
        let malformed = || FrameError::Malformed("the trailer of a delivery batch is cut short".to_owned());
        let rest = last.strip_prefix(&[TRAILER_MARK]).ok_or_else(malformed)?;
        let (version, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
        match u32::from_be_bytes(*version) {
            FRAME_VERSION => {}
            other => return Err(FrameError::Version(other)),
        }
        let (len, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
        let (id, addresses) = rest
            .split_at_checked(u16::from_be_bytes(*len).into())
            .ok_or_else(malformed)?;
        let id = std::str::from_utf8(id).map_err(|error| FrameError::Malformed(error.to_string()))?;
        Ok(Self {
            project: ProjectId::parse(id).map_err(|error| FrameError::Malformed(error.to_string()))?,
            messages,
            recipients: last.slice_ref(addresses),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{Owner, SessionName, WakePreference};

    fn completed(event: &StoreEvent) -> String {
        let from = ReplicaId::parse("0192f3a0-0000-7000-8000-000000000001").unwrap();
        let project = ProjectId::parse("acme").unwrap();
        format!("{}7,\"n\":42}}", Frame::head(from, &project, event))
    }

    fn session() -> SessionId {
        SessionId::parse("0192f3a0-0000-7000-8000-00000000000a").unwrap()
    }

    #[test]
    fn the_bytes_of_a_frame_are_those_of_version_1() {
        let head = r#"{"v":1,"from":"0192f3a0-0000-7000-8000-000000000001","project":"acme","news":"#;
        let session_id = r#""0192f3a0-0000-7000-8000-00000000000a""#;
        let name = ProtocolName::parse("chat").unwrap();
        let version = semver::Version::new(1, 2, 0);
        for (event, text) in [
            (
                StoreEvent::Waiting(vec![session()]),
                format!("{{\"waiting\":[{session_id}]}}"),
            ),
            (
                StoreEvent::SessionRemoved(session()),
                format!("{{\"session_removed\":{session_id}}}"),
            ),
            (StoreEvent::Claimed(session()), format!("{{\"claimed\":{session_id}}}")),
            (
                StoreEvent::Protocol {
                    name: name.clone(),
                    version,
                },
                r#"{"protocol":{"name":"chat","version":"1.2.0"}}"#.to_owned(),
            ),
            (StoreEvent::Project(3), r#"{"project":3}"#.to_owned()),
            (
                StoreEvent::Question(QuestionId::from_uuid(*session().as_uuid())),
                format!("{{\"waiting\":[]}},\"desk\":{{\"question\":{session_id}}}"),
            ),
            (StoreEvent::Yaps(17), r#"{"waiting":[]},"desk":{"yaps":17}"#.to_owned()),
            (StoreEvent::Backends, r#"{"waiting":[]},"desk":"backends""#.to_owned()),
            (
                StoreEvent::Lenses(name),
                r#"{"waiting":[]},"desk":{"lenses":"chat"}"#.to_owned(),
            ),
        ] {
            assert_eq!(completed(&event), format!("{head}{text},\"x\":7,\"n\":42}}"));
        }
    }

    #[test]
    fn a_frame_is_read_back() {
        let record = SessionRecord {
            id: session(),
            name: Some(SessionName::parse("alice \"the first\"").unwrap()),
            capabilities: Arc::default(),
            metadata: serde_json::Map::new(),
            aliases: Vec::new(),
            connected_at_ms: 5,
            owner: Owner::anonymous(),
            holder: crate::model::Holder::default(),
            wake: WakePreference::default(),
        };
        for event in [
            StoreEvent::Session(Box::new(record)),
            StoreEvent::Waiting(vec![session(); 3]),
            StoreEvent::Question(QuestionId::from_uuid(*session().as_uuid())),
            StoreEvent::Yaps(u64::MAX),
            StoreEvent::Backends,
            StoreEvent::Lenses(ProtocolName::parse("chat").unwrap()),
        ] {
            let frame = Frame::parse(completed(&event).as_bytes()).unwrap();
            assert_eq!((frame.event, frame.number, frame.seq), (event, 7, 42));
        }
    }

    /// The frame as builds read it that do not know the desk.
    #[test]
    fn an_event_of_the_desk_says_nothing_to_an_earlier_build() {
        #[derive(Deserialize)]
        struct Earlier {
            news: StoreEvent,
            n: u64,
        }
        let frame: Earlier = serde_json::from_str(&completed(&StoreEvent::Yaps(17))).unwrap();
        assert_eq!((frame.news, frame.n), (StoreEvent::Waiting(Vec::new()), 42));
    }

    #[test]
    fn a_frame_of_another_version_differs_from_a_malformed_one() {
        assert_eq!(Frame::parse(br#"{"v":2,"kind":[1]}"#), Err(FrameError::Version(2)));
        let newer = completed(&StoreEvent::Project(1)).replacen("\"v\":1", "\"v\":9", 1);
        assert_eq!(Frame::parse(newer.as_bytes()), Err(FrameError::Version(9)));
        assert!(matches!(Frame::parse(b"{\"v\":1}"), Err(FrameError::Malformed(_))));
        assert!(matches!(Frame::parse(b"rubbish"), Err(FrameError::Malformed(_))));
    }

    #[test]
    fn a_lost_frame_is_detected_by_the_next_frame_of_its_project() {
        let (acme, other) = (ProjectId::parse("acme").unwrap(), ProjectId::parse("other").unwrap());
        let mut sequence = FrameSequence::default();
        let places = [
            (&acme, 7),
            (&acme, 8),
            (&other, 3),
            (&acme, 10),
            (&acme, 11),
            (&other, 4),
        ]
        .map(|(project, seq)| sequence.observe(project, seq));
        let (next, gap) = (FrameOrder::Next, FrameOrder::AfterGap);
        assert_eq!(places, [next, next, next, gap, next, next]);
    }

    #[test]
    fn a_restarted_counter_is_a_gap() {
        let acme = ProjectId::parse("acme").unwrap();
        let mut sequence = FrameSequence::default();
        sequence.observe(&acme, 900);
        assert_eq!(sequence.observe(&acme, 900), FrameOrder::Duplicate);
        assert_eq!(sequence.observe(&acme, 1), FrameOrder::AfterGap);
        assert_eq!(sequence.observe(&acme, 2), FrameOrder::Next);
        sequence.clear();
        assert_eq!(sequence.observe(&acme, 5), FrameOrder::Next);
    }

    #[test]
    fn a_delivery_batch_is_read_back() {
        let project = ProjectId::parse("acme").unwrap();
        let last = [&DeliveryBatch::trailer_head(&project)[..], b"addresses"].concat();
        let messages = vec![Bytes::from_static(b"message")];
        let batch = DeliveryBatch::parse(messages.clone(), &last.clone().into()).unwrap();
        let addresses = Bytes::from_static(b"addresses");
        assert_eq!(
            batch,
            DeliveryBatch {
                project,
                messages,
                recipients: addresses
            }
        );
        assert!(DeliveryBatch::is_trailer(&last) && !DeliveryBatch::is_trailer(b"message"));
        for len in 0..last.len() - b"addresses".len() {
            let cut = last[..len].to_vec().into();
            assert!(DeliveryBatch::parse(Vec::new(), &cut).is_err(), "{len} bytes");
        }
        let mut newer = last;
        newer[4] += 1;
        let error = FrameError::Version(FRAME_VERSION + 1);
        assert_eq!(DeliveryBatch::parse(Vec::new(), &newer.into()), Err(error));
    }
}
