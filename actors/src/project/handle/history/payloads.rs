//! The newest messages of a version that are kept: a lens is tried on them.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    super::ProjectHandle,
    LIST_SCAN_MAX, READ_RECORDS,
    scan::{LogScan, Span},
};
use crate::{
    model::{BrokerError, EventKind, EventKinds, MessageId, ProjectEvent},
    registry::{KeptPayload, Protocol},
    storage::{Direction, EventStart},
};

/// Messages on which a lens is tried.
const MESSAGES_MAX: usize = 256;
/// Bytes of payloads on which a lens is tried, unless the last one has more.
const BYTES_MAX: usize = 4 << 20;

/// What is read of an envelope.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    payload: &'a RawValue,
}

impl ProjectHandle {
    /// The newest messages of a version that are kept, among the last 5,000 of the project.
    ///
    /// # Errors
    /// `unavailable`.
    pub(in crate::project) async fn kept_payloads(&self, protocol: &Protocol) -> Result<Vec<KeptPayload>, BrokerError> {
        let mut found = self.newest_of(protocol).await?;
        let (mut kept, mut bytes) = (Vec::new(), 0);
        while let Some((message, logged)) = found.pop_front().filter(|_| bytes < BYTES_MAX) {
            let payload = match logged {
                Some(payload) => Some(payload),
                None => self.payload_of_kept(message).await?,
            };
            let Some(payload) = payload else { continue };
            bytes += payload.len();
            kept.push(KeptPayload {
                message_id: message.to_string(),
                payload,
            });
        }
        Ok(kept)
    }

    /// The newest messages of a version, with the payload if the log has it.
    async fn newest_of(&self, protocol: &Protocol) -> Result<VecDeque<(MessageId, Option<String>)>, BrokerError> {
        let _permit = self.walk_permit().await;
        let mut scan = LogScan::new(Span {
            from: EventStart::Newest,
            direction: Direction::Backward,
            until_ms: None,
            since_ms: None,
            kinds: EventKinds::of(&[EventKind::Accepted]),
            scan_max: LIST_SCAN_MAX,
            read_max: READ_RECORDS,
        });
        let mut found = VecDeque::new();
        while let Some(events) = scan.next(self).await? {
            for logged in events {
                let ProjectEvent::Accepted(accepted) = logged.event else {
                    continue;
                };
                let is_of_version = accepted.parse_head().is_some_and(|head| {
                    head.protocol_name == protocol.name() && head.protocol_version == *protocol.version_text
                });
                if is_of_version {
                    found.push_back((accepted.message, accepted.payload));
                }
                if found.len() == MESSAGES_MAX {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    async fn payload_of_kept(&self, message: MessageId) -> Result<Option<String>, BrokerError> {
        let kept = self.kept_message(message).await?;
        Ok(kept.and_then(|message| {
            if let Some(fragments) = message.fragments() {
                return String::from_utf8(fragments.payload.to_vec()).ok();
            }
            let mut envelope = Vec::with_capacity(message.encoded_len(0));
            message.write(&mut envelope, 0);
            let envelope: Envelope<'_> = serde_json::from_slice(&envelope).ok()?;
            Some(envelope.payload.get().to_owned())
        }))
    }
}
