use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Capabilities, Owner, SessionId, SessionName};

/// A session as it is stored: what survives the connection and the actor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    pub id: SessionId,
    pub name: Option<SessionName>,
    pub capabilities: Capabilities,
    pub metadata: Map<String, Value>,
    /// Milliseconds since the Unix epoch, of the first registration.
    pub connected_at_ms: u64,
    /// Who made it, and alone can act as it.
    #[serde(default)]
    pub owner: Owner,
    #[serde(default, skip_serializing_if = "Holder::is_default")]
    pub holder: Holder,
}

/// The caller that has a session, as far as it is told apart from those that had it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Which caller has the session; 0 for the first. The id that a caller passes names its incarnation, and is refused
    /// when the session has another. Random, so that of two callers that register at once, at two replicas, one is refused.
    pub incarnation: u32,
    /// The caller names the session by id, and so may come by any connection.
    pub by_id: bool,
}

impl Holder {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives references")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl SessionRecord {
    /// The id by which the caller that has the session names it.
    #[must_use]
    pub fn holder_id(&self) -> SessionId {
        match self.holder.incarnation {
            0 => self.id,
            incarnation => self.id.of_incarnation(incarnation),
        }
    }

    /// An incarnation for another caller, by whose id it is told apart from all before.
    #[must_use]
    pub fn new_incarnation(&self) -> u32 {
        if self.id.durable() != self.id {
            // An id of another form has no room for one.
            return 0;
        }
        let random = uuid::Uuid::new_v4().as_u64_pair().1 as u32;
        // Never that of the first, whose id is known to all.
        random.max(1)
    }
}

impl SessionRecord {
    /// Bytes of the record as storages keep it: JSON.
    #[must_use]
    pub fn stored_len(&self) -> usize {
        // Writing plain values to memory cannot fail.
        serde_json::to_vec(self).map_or(0, |text| text.len())
    }
}

/// Presence of a session, derived from its last sign of life; never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    Active,
    Stale,
    Disconnected,
}

impl SessionStatus {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Stale => "stale",
            Self::Disconnected => "disconnected",
        }
    }
}

/// After how much silence a session is what. `stale_after < disconnect_after`.
#[derive(Clone, Copy, Debug)]
pub struct PresenceTimeouts {
    pub stale_after: Duration,
    pub disconnect_after: Duration,
}

impl PresenceTimeouts {
    #[must_use]
    pub fn status(&self, silence: Duration) -> SessionStatus {
        if silence >= self.disconnect_after {
            SessionStatus::Disconnected
        } else if silence >= self.stale_after {
            SessionStatus::Stale
        } else {
            SessionStatus::Active
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: SessionId) -> SessionRecord {
        SessionRecord {
            id,
            name: None,
            capabilities: Capabilities::default(),
            metadata: Map::new(),
            connected_at_ms: 0,
            owner: Owner::anonymous(),
            holder: Holder::default(),
        }
    }

    #[test]
    fn a_record_names_its_holder_only_when_it_is_another_than_the_first() {
        let mut record = record(SessionId::generate());
        let stored = |record: &SessionRecord| serde_json::to_value(record).unwrap();
        assert_eq!(stored(&record).get("holder"), None);
        record.holder.by_id = true;
        assert_eq!(stored(&record)["holder"]["by_id"], true);
        assert_eq!(
            serde_json::from_value::<SessionRecord>(stored(&record)).unwrap(),
            record
        );
    }

    #[test]
    fn another_holder_has_another_incarnation_wherever_the_id_has_room_for_one() {
        let record_of_this_form = record(SessionId::generate());
        let (first, second) = (
            record_of_this_form.new_incarnation(),
            record_of_this_form.new_incarnation(),
        );
        assert!(first != 0 && second != 0 && first != second, "{first} {second}");
        let id_without_room = SessionId::from_uuid(uuid::Uuid::from_u128(1));
        assert_eq!(record(id_without_room).new_incarnation(), 0);
    }

    #[test]
    fn silence_makes_a_session_stale_and_then_disconnected() {
        let presence = PresenceTimeouts {
            stale_after: Duration::from_secs(30),
            disconnect_after: Duration::from_secs(60),
        };
        for (seconds, status, name) in [
            (0, SessionStatus::Active, "active"),
            (29, SessionStatus::Active, "active"),
            (30, SessionStatus::Stale, "stale"),
            (59, SessionStatus::Stale, "stale"),
            (60, SessionStatus::Disconnected, "disconnected"),
            (61, SessionStatus::Disconnected, "disconnected"),
        ] {
            assert_eq!(presence.status(Duration::from_secs(seconds)), status, "{seconds} s");
            assert_eq!(
                (status.as_str(), serde_json::to_value(status).unwrap()),
                (name, name.into())
            );
        }
    }
}
