//! The stored record of a session, its holder, and its presence status.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use super::{Capabilities, Owner, ProjectId, SessionId, SessionName, WakePreference};

/// Bytes of the id of a conversation.
const CONVERSATION_BYTES_MAX: usize = 128;

/// Whether a text can be the id of a conversation: at most 128 bytes on one line.
pub fn is_conversation(id: &str) -> bool {
    (1..=CONVERSATION_BYTES_MAX).contains(&id.len()) && !id.contains(char::is_control)
}

/// The `kind` in the metadata of the session of a person.
pub const HUMAN_KIND: &str = "human";

/// Aliases of one session.
pub const ALIASES_LEN_MAX: usize = 8;

/// A session as it is stored: what outlives the connection and the actor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    pub id: SessionId,
    /// The durable address; None for a session that ends when it leaves.
    pub name: Option<SessionName>,
    /// Further addresses, at most [`ALIASES_LEN_MAX`]. A name or alias belongs to one session of the project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<SessionName>,
    /// What the session declares it can do. The store and the directory share it.
    pub capabilities: Arc<Capabilities>,
    /// Free data of the caller.
    pub metadata: Map<String, Value>,
    /// The time of the first registration, in milliseconds since the Unix epoch.
    pub connected_at_ms: u64,
    /// The owner; no other caller can act as the session.
    #[serde(default)]
    pub owner: Owner,
    /// The caller that currently has the session.
    #[serde(default, skip_serializing_if = "Holder::is_default")]
    pub holder: Holder,
    /// When its agent may be woken.
    #[serde(default, skip_serializing_if = "WakePreference::is_default")]
    pub wake: WakePreference,
}

/// The member of the metadata of a session whose front has chosen its name.
pub const AUTOMATIC_NAME: &str = "automatic_name";

/// Whether the metadata say that a front has chosen the name of their session, and not its agent.
pub fn is_name_automatic(metadata: &Map<String, Value>) -> bool {
    metadata.get(AUTOMATIC_NAME) == Some(&Value::Bool(true))
}

/// The caller that currently has a session, as far as it can be distinguished from earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The number of the holder, random and not 0. Only the id that contains it acts as the session, so that the id in
    /// lists does not, and of two callers that register at the same time at two replicas one is refused.
    pub incarnation: u32,
    /// The holder registered without a connection. Earlier versions read it, and left the incarnation of a first holder at
    /// 0: one without a connection has no other id than that of the lists.
    pub by_id: bool,
    /// No agent has registered the session: commands send in its name. It ends soon after the last message, unless one
    /// waits for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_sends: bool,
}

impl Holder {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives references")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The id of the session in which commands of this owner send under this name. It is the same each time, so that a repeat
/// under an idempotency key is recognized after the session has ended. No session of another project has it.
pub fn id_of_sender(project: &ProjectId, owner: &Owner, name: &SessionName) -> SessionId {
    let text = [project.as_str(), owner.as_str(), name.as_str()].join("\n");
    let mut bytes: [u8; 16] = Sha256::digest(text).first_chunk().copied().unwrap_or_default();
    // A `UUIDv7` of the first moment that there is.
    bytes[..6].fill(0);
    bytes[6] = bytes[6] & 0x0f | 0x70;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    SessionId::from_uuid(uuid::Uuid::from_bytes(bytes)).durable()
}

impl SessionRecord {
    /// The broker as the sender of its own messages. No session has its id.
    pub fn broker() -> Self {
        Self {
            id: SessionId::BROKER,
            name: Some(SessionName::of_broker()),
            aliases: Vec::new(),
            capabilities: Arc::default(),
            metadata: Map::new(),
            connected_at_ms: 0,
            owner: Owner::operator(),
            holder: Holder::default(),
            wake: WakePreference::default(),
        }
    }

    /// Whether the session outlives its caller: another one can resume it by its name.
    pub fn is_durable(&self) -> bool {
        self.name.is_some() && !self.holder.only_sends
    }

    /// Whether the session is that of a person.
    pub fn is_human(&self) -> bool {
        self.metadata.get("kind").and_then(Value::as_str) == Some(HUMAN_KIND)
    }

    /// The name and the aliases.
    pub fn names(&self) -> impl Iterator<Item = &SessionName> {
        self.name.iter().chain(&self.aliases)
    }

    /// The conversation that the session serves, as its metadata say; None where it cannot be an address.
    pub fn conversation(&self) -> Option<&str> {
        let id = self.metadata.get("conversation")?.as_str()?;
        is_conversation(id).then_some(id)
    }

    /// The id by which the holder names the session.
    pub fn holder_id(&self) -> SessionId {
        match self.holder.incarnation {
            0 => self.id,
            incarnation => self.id.of_incarnation(incarnation),
        }
    }

    /// Whether a caller that passes this id acts as the session.
    pub fn acts_by(&self, id: SessionId) -> bool {
        let Holder { incarnation, by_id, .. } = self.holder;
        self.holder_id() == id && (incarnation != 0 || by_id)
    }

    /// A random incarnation for the next holder.
    pub fn new_incarnation(&self) -> u32 {
        if self.id.durable() != self.id {
            // An id that is no `UUIDv7` of this broker has no room for an incarnation.
            return 0;
        }
        let random = uuid::Uuid::new_v4().as_u64_pair().1 as u32;
        // The id of incarnation 0 is public.
        random.max(1)
    }
}

impl SessionRecord {
    /// Bytes of the record as stores keep it: JSON.
    pub fn stored_len(&self) -> usize {
        // Writing plain values to memory cannot fail.
        serde_json::to_vec(self).map_or(0, |text| text.len())
    }
}

words! {
    /// The presence of a session, derived from its last heartbeat; never stored.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum SessionStatus {
        /// Seen within `stale_after`.
        Active = "active",
        /// Silent for `stale_after` or longer.
        Stale = "stale",
        /// Silent for `disconnect_after` or longer, or it has left.
        Disconnected = "disconnected",
    }
}

/// The silence after which a session counts as stale and as disconnected. `stale_after < disconnect_after`.
#[derive(Clone, Copy, Debug)]
pub struct PresenceTimeouts {
    pub stale_after: Duration,
    pub disconnect_after: Duration,
}

impl PresenceTimeouts {
    /// The status after this time of silence.
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
impl SessionRecord {
    /// A session for unit tests, without a name and without capabilities.
    pub fn unnamed() -> Self {
        Self {
            id: SessionId::generate(),
            name: None,
            capabilities: Arc::default(),
            metadata: Map::new(),
            aliases: Vec::new(),
            connected_at_ms: 0,
            owner: Owner::anonymous(),
            holder: Holder::default(),
            wake: WakePreference::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_stores_its_holder_unless_it_is_the_default() {
        let mut record = SessionRecord::unnamed();
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
    fn a_new_holder_gets_a_random_incarnation_if_the_id_has_room() {
        let record_of_this_form = SessionRecord::unnamed();
        let (first, second) = (
            record_of_this_form.new_incarnation(),
            record_of_this_form.new_incarnation(),
        );
        assert!(first != 0 && second != 0 && first != second, "{first} {second}");
        let id_without_room = SessionId::from_uuid(uuid::Uuid::from_u128(1));
        assert_eq!(
            SessionRecord {
                id: id_without_room,
                ..SessionRecord::unnamed()
            }
            .new_incarnation(),
            0
        );
    }

    #[test]
    fn only_the_id_of_its_holder_acts_as_a_session() {
        let mut record = SessionRecord::unnamed();
        assert!(!record.acts_by(record.id), "a connection of an earlier version");
        record.holder.by_id = true;
        assert!(
            record.acts_by(record.id),
            "a caller without a connection, of an earlier version"
        );
        record.holder.incarnation = record.new_incarnation();
        assert!(record.acts_by(record.holder_id()));
        assert!(!record.acts_by(record.id), "the id in lists");
        assert!(!record.acts_by(record.id.of_incarnation(record.holder.incarnation ^ 1)));
    }

    #[test]
    fn the_sender_of_commands_has_one_id_for_each_project_owner_and_name() {
        let id = |project: &str, owner: &Owner, name: &str| {
            let name = SessionName::parse(name).unwrap();
            id_of_sender(&ProjectId::parse(project).unwrap(), owner, &name)
        };
        let (anonymous, operator) = (Owner::anonymous(), Owner::operator());
        let own = id("default", &anonymous, "ops");
        assert_eq!((own, own.durable()), (id("default", &anonymous, "ops"), own));
        for other in [
            id("other", &anonymous, "ops"),
            id("default", &operator, "ops"),
            id("default", &anonymous, "op"),
        ] {
            assert_ne!(own, other);
        }
        assert!(own < SessionId::generate());
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
