//! A frame, as it goes from one replica to the others: one JSON object, its version first.
//!
//! The store completes a frame when it publishes it, with two numbers that only it knows: the writer gives it all up to
//! them ([`Frame::head`]), and it appends `NUMBER,"n":SERIAL}`.

use serde::{Deserialize, Serialize};

use crate::model::{MessageId, ProjectId, ProtocolName, ReplicaId, SessionId, SessionRecord};

/// Of the frames this build writes and understands.
pub const FRAME_VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    pub v: u32,
    /// Who published it.
    pub from: ReplicaId,
    pub project: ProjectId,
    #[serde(rename = "news")]
    pub event: StoreEvent,
    /// Of a session that was put or removed: the version of the roster. Of a claim: its epoch. Else 0.
    #[serde(rename = "x")]
    pub number: u64,
    /// Counts the frames of the project, over all replicas, without gaps.
    #[serde(rename = "n")]
    pub seq: u64,
}

/// What has happened in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreEvent {
    /// Something waits in these inboxes that did not before.
    Waiting(Vec<SessionId>),
    /// A session is new, or has a new record.
    Session(Box<SessionRecord>),
    SessionRemoved(SessionId),
    /// Somebody has the session in hand now; whoever had it before has not.
    Claimed(SessionId),
    Protocol {
        name: ProtocolName,
        version: semver::Version,
    },
    /// The record of the project is of this revision.
    Project(u64),
    /// A message that its sender waits for has come further.
    Progress(MessageId),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error(
        "a frame of version {0}, and this replica understands {FRAME_VERSION}: another replica runs another version"
    )]
    Version(u32),
    #[error("not a frame: {0}")]
    Malformed(String),
}

#[derive(Deserialize)]
struct Versioned {
    v: u32,
}

impl Frame {
    /// The text of a frame but for its numbers.
    #[must_use]
    pub fn head(from: ReplicaId, project: &ProjectId, news: &StoreEvent) -> String {
        let news = serde_json::to_string(news).unwrap_or_default();
        format!(r#"{{"v":{FRAME_VERSION},"from":"{from}","project":"{project}","news":{news},"x":"#)
    }

    /// # Errors
    /// When it is of another version, or not a frame.
    pub fn parse(text: &[u8]) -> Result<Self, FrameError> {
        let malformed = |error: serde_json::Error| FrameError::Malformed(error.to_string());
        match serde_json::from_slice(text) {
            Ok(Self { v, .. }) if v != FRAME_VERSION => Err(FrameError::Version(v)),
            Ok(frame) => Ok(frame),
            // What another version has changed is not known: its version is where it always was.
            Err(error) => match serde_json::from_slice::<Versioned>(text) {
                Ok(Versioned { v }) if v != FRAME_VERSION => Err(FrameError::Version(v)),
                _ => Err(malformed(error)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Capabilities, Owner, SessionName};

    fn completed(news: &StoreEvent) -> String {
        let from = ReplicaId::parse("0192f3a0-0000-7000-8000-000000000001").unwrap();
        let project = ProjectId::parse("acme").unwrap();
        format!("{}7,\"n\":42}}", Frame::head(from, &project, news))
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
        for (news, text) in [
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
                StoreEvent::Protocol { name, version },
                r#"{"protocol":{"name":"chat","version":"1.2.0"}}"#.to_owned(),
            ),
            (StoreEvent::Project(3), r#"{"project":3}"#.to_owned()),
        ] {
            assert_eq!(completed(&news), format!("{head}{text},\"x\":7,\"n\":42}}"));
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let record = SessionRecord {
            id: session(),
            name: Some(SessionName::parse("alice \"the first\"").unwrap()),
            capabilities: Capabilities::default(),
            metadata: serde_json::Map::new(),
            connected_at_ms: 5,
            owner: Owner::anonymous(),
            holder: crate::model::Holder::default(),
        };
        for news in [
            StoreEvent::Session(Box::new(record)),
            StoreEvent::Waiting(vec![session(); 3]),
        ] {
            let frame = Frame::parse(completed(&news).as_bytes()).unwrap();
            assert_eq!((frame.event, frame.number, frame.seq), (news, 7, 42));
        }
    }

    #[test]
    fn a_frame_of_another_version_is_told_from_rubbish() {
        assert_eq!(Frame::parse(br#"{"v":2,"kind":[1]}"#), Err(FrameError::Version(2)));
        let newer = completed(&StoreEvent::Project(1)).replacen("\"v\":1", "\"v\":9", 1);
        assert_eq!(Frame::parse(newer.as_bytes()), Err(FrameError::Version(9)));
        assert!(matches!(Frame::parse(b"{\"v\":1}"), Err(FrameError::Malformed(_))));
        assert!(matches!(Frame::parse(b"rubbish"), Err(FrameError::Malformed(_))));
    }
}
