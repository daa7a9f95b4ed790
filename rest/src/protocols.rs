//! Protocols.

use actors::model::Pattern;
use answer::answer;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::words::{self, Id, Time};

/// A protocol.
#[answer]
pub struct Protocol {
    #[schema(value_type = Vec<Pattern>)]
    pub capabilities: Vec<String>,
    /// The lenses into this version, if it has any.
    #[absent]
    pub lenses: Vec<Lens>,
    pub metadata: ProtocolMetadata,
    #[schema(value_type = words::ProtocolName)]
    pub name: String,
    pub registered_at: Time,
    /// The session that registered it; null for one that was registered here.
    pub registered_by: Option<Id>,
    /// The JSON Schema of payloads; in lists with `include_schema`.
    #[absent]
    #[schema(value_type = Option<Object>)]
    pub schema: Option<Value>,
    #[schema(value_type = words::Version)]
    pub version: String,
}

/// Who made a protocol, and what for.
#[answer(lenient)]
pub struct ProtocolMetadata {
    #[absent]
    pub author: Option<String>,
    #[absent]
    pub description: Option<String>,
    pub tags: Vec<String>,
}

/// A protocol that was registered.
#[answer]
pub struct RegisteredProtocol {
    #[serde(flatten)]
    pub protocol: Protocol,
    /// The identical protocol was registered before.
    pub existed: bool,
    /// The lens that was registered with it.
    #[absent]
    pub lens: Option<RegisteredLens>,
    /// Nothing was stored: a registration would answer this.
    #[absent]
    pub dry_run: bool,
}

/// How payloads of one version become payloads of a higher one, and back.
#[answer]
pub struct Lens {
    #[schema(value_type = words::Version)]
    pub from: String,
    #[schema(value_type = words::Version)]
    pub to: String,
    /// Which way messages are transformed.
    #[schema(value_type = LensDirection)]
    pub direction: String,
    /// What is known about the way from `from` to `to`; null if `direction` excludes it.
    pub forward: Option<LensVerdict>,
    /// What is known about the way back; null if `direction` excludes it.
    pub backward: Option<LensVerdict>,
    /// Grows with each replacement.
    pub revision: u64,
    /// The operations; in lists with `include_schema`.
    #[absent]
    #[schema(value_type = Option<Vec<Object>>)]
    pub ops: Option<Value>,
}

/// Which way messages are transformed by a lens.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LensDirection {
    Both,
    Forward,
    Backward,
}

/// What is known about one way of a lens.
#[answer]
pub struct LensVerdict {
    /// `exact`: loses and makes up nothing that is declared. `defaulted`: may make up values. `lossy`: may lose values.
    #[schema(value_type = LensClass)]
    pub class: String,
    /// `proved` for all payloads, or tried on sample payloads.
    #[schema(value_type = LensProof)]
    pub proof: String,
    /// JSON Pointers, with `*` for each item of an array; at most 32.
    pub may_lose: Vec<String>,
    pub unproved: Vec<Unproved>,
}

/// What a way of a lens does to what is declared.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LensClass {
    Exact,
    Defaulted,
    Lossy,
}

/// How it is known that the results of a lens fit.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LensProof {
    Proved,
    Sampled,
}

/// A place where the rules of the proof do not decide.
#[answer]
pub struct Unproved {
    /// A JSON Pointer, with `*` for each item of an array.
    pub path: String,
    pub reason: String,
}

/// A lens that was registered.
#[answer]
pub struct RegisteredLens {
    #[serde(flatten)]
    pub lens: Lens,
    /// The identical lens was registered before.
    pub existed: bool,
}

/// A page of protocols, by name and version.
#[answer]
pub struct Protocols {
    pub protocols: Vec<Protocol>,
    /// Cursor of the next page, when items are left.
    #[absent]
    pub next_cursor: Option<String>,
}

/// A payload as a recipient of another version gets it.
#[answer]
pub struct TransformedPayload {
    #[schema(value_type = Object)]
    pub payload: Value,
    #[schema(value_type = words::Version)]
    pub from: String,
    #[schema(value_type = words::Version)]
    pub to: String,
    /// The versions from one to the other, by the lenses between them.
    #[schema(value_type = Vec<words::Version>)]
    pub path: Vec<String>,
    /// What the lenses of this path may do: `exact`, `defaulted` or `lossy`.
    pub class: String,
    /// Places of the payload that the way back would not restore: JSON Pointers with `*` for items, at most 32.
    pub loss: Vec<String>,
    /// Places of the result that were made up, at most 32.
    pub defaulted: Vec<String>,
    /// There are more places of one kind.
    #[absent]
    pub more: Option<bool>,
    /// Restores what is lost on the reverse path.
    #[absent]
    #[schema(value_type = Option<Object>)]
    pub complement: Option<Value>,
}

/// Who speaks which version of a protocol, and in which versions messages were sent.
#[answer]
pub struct ProtocolUsage {
    #[schema(value_type = words::ProtocolName)]
    pub name: String,
    /// Since when messages were counted: the start of the window, or later if not all were.
    pub since: Time,
    pub until: Time,
    /// Whether all versions are listed and all messages of the window were counted. One answer looks at up to 50,000 events.
    pub complete: bool,
    /// The lowest version first.
    pub versions: Vec<VersionUsage>,
}

/// A version of a protocol, and who uses it.
#[answer]
pub struct VersionUsage {
    #[schema(value_type = words::Version)]
    pub version: String,
    pub registered_at: Time,
    /// From lower versions to this one.
    pub lenses: Vec<LensUsage>,
    pub sessions: SpeakingSessions,
    /// Messages that were accepted in this version.
    pub sent: u64,
    pub delivered: DeliveredCopies,
    /// No session needs it: it is the highest version of none, and no message of the window had it.
    pub retirable: bool,
}

/// A lens to a version, and what it does.
#[answer]
pub struct LensUsage {
    #[schema(value_type = words::Version)]
    pub from: String,
    /// `exact`, `defaulted` or `lossy`; null if messages do not go this way.
    pub forward: Option<String>,
    /// As `forward`, for the way back.
    pub backward: Option<String>,
}

/// Sessions that declare a version.
#[answer]
pub struct SpeakingSessions {
    /// Those that are not disconnected.
    pub active: usize,
    /// Disconnected ones that keep their name.
    pub kept: usize,
    /// Those of both whose highest version it is.
    pub only: usize,
}

/// Copies of messages that were delivered in a version; a broadcast has one for each recipient.
#[answer]
pub struct DeliveredCopies {
    pub as_sent: u64,
    /// Of messages that were sent in another version.
    pub transformed: u64,
}
