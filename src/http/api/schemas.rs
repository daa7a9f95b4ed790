//! Schemas for `/openapi.json` of what the verbs of a project write as text. No value has these types.

#![allow(dead_code, reason = "schemas only")]

use utoipa::ToSchema;

use api::admin::schemas;

/// A semantic version.
#[derive(ToSchema)]
#[schema(
    pattern = r"^(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$",
    example = "1.0.0"
)]
pub struct Version(String);

/// The presence of a session.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum SessionStatus {
    Active,
    Stale,
    Disconnected,
}

/// A filter by presence.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum SessionStatusFilter {
    Active,
    Stale,
    Disconnected,
    All,
}

/// A session.
#[allow(clippy::struct_field_names, reason = "the names are those of the contract")]
#[derive(ToSchema)]
pub struct Session {
    #[schema(format = "uuid")]
    session_id: String,
    /// The durable address, unique in the project.
    #[schema(required, max_length = 128)]
    name: Option<String>,
    /// Its further addresses, each unique in the project; absent without one.
    #[schema(nullable = false, max_items = 8)]
    aliases: Option<Vec<String>>,
    project_id: schemas::ProjectId,
    status: SessionStatus,
    #[schema(format = DateTime)]
    connection_time: String,
    #[schema(format = DateTime)]
    last_heartbeat: String,
    /// Messages that wait.
    queue_size: usize,
    activity: Activity,
    /// The ways in which the client of the agent can wake it; null if there is none.
    #[schema(required)]
    wakes_by: Option<Vec<Rung>>,
    /// Of a person: `human`.
    #[schema(nullable = false)]
    kind: Option<SessionKind>,
    /// Of a person: whether they are at the desk.
    #[schema(nullable = false)]
    presence: Option<HumanPresence>,
    /// Of a person: questions at their consoles.
    #[schema(nullable = false)]
    open: Option<usize>,
    /// With `include_capabilities`.
    #[schema(nullable = false)]
    capabilities: Option<Capabilities>,
    /// Free data of the session, with `include_capabilities`.
    #[schema(nullable = false, value_type = Option<Object>)]
    metadata: Option<()>,
}

/// The kind of a session that is not an agent's.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum SessionKind {
    Human,
}

/// Whether a person is at the desk, by the console at which they are most present.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum HumanPresence {
    Present,
    Idle,
    Away,
}

/// What the sender of a message may know of its recipient.
#[derive(ToSchema)]
#[allow(dead_code, reason = "documentation of what is written elsewhere")]
pub struct Recipient {
    status: SessionStatus,
    activity: Activity,
    /// The ways in which the client of the agent can wake it; null if there is none.
    #[schema(required)]
    wakes_by: Option<Vec<Rung>>,
    /// When it was last given messages; null if that is not known.
    #[schema(required, format = DateTime)]
    last_read_at: Option<String>,
}

/// What an agent does, as far as its client tells.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[allow(dead_code, reason = "documentation of what is written elsewhere")]
pub enum Activity {
    Unknown,
    Idle,
    Busy,
}

/// A way in which the client of an agent can be asked to wake it.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[allow(dead_code, reason = "documentation of what is written elsewhere")]
pub enum Rung {
    Inbox,
    Channel,
    Queue,
    Tmux,
    Hook,
}

/// What a session declares it can do.
#[derive(ToSchema)]
pub struct Capabilities {
    /// Versions by name of protocol. A session without any accepts every protocol.
    #[schema(value_type = std::collections::BTreeMap<String, Vec<String>>)]
    supported_protocols: (),
    supported_features: Vec<String>,
}

/// A page of sessions.
#[allow(clippy::struct_field_names, reason = "the names are those of the contract")]
#[derive(ToSchema)]
pub struct Sessions {
    sessions: Vec<Session>,
    /// All sessions that match, on this page and the others.
    total: usize,
    /// Cursor of the next page, when items are left.
    #[schema(nullable = false)]
    next_cursor: Option<String>,
}

/// How a protocol is meant to be used.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum Pattern {
    PointToPoint,
    Broadcast,
    RequestResponse,
    Streaming,
}

/// Who made a protocol, and what for.
#[derive(ToSchema)]
pub struct ProtocolMetadata {
    author: Option<String>,
    description: Option<String>,
    #[schema(required = false)]
    tags: Vec<String>,
}

/// A protocol.
#[derive(ToSchema)]
pub struct Protocol {
    name: schemas::ProtocolName,
    version: Version,
    capabilities: Vec<Pattern>,
    metadata: ProtocolMetadata,
    #[schema(format = DateTime)]
    registered_at: String,
    /// The session that registered it; null for one that was registered here.
    #[schema(required, format = "uuid")]
    registered_by: Option<String>,
    /// The JSON Schema of payloads; in lists with `include_schema`.
    #[schema(nullable = false, value_type = Option<Object>)]
    schema: Option<()>,
}

/// A protocol that was registered.
#[derive(ToSchema)]
pub struct RegisteredProtocol {
    name: schemas::ProtocolName,
    version: Version,
    capabilities: Vec<Pattern>,
    metadata: ProtocolMetadata,
    #[schema(format = DateTime)]
    registered_at: String,
    #[schema(required, format = "uuid")]
    registered_by: Option<String>,
    /// The identical protocol was registered before.
    existed: bool,
}

/// A page of protocols, by name and version.
#[derive(ToSchema)]
pub struct Protocols {
    protocols: Vec<Protocol>,
    /// Cursor of the next page, when items are left.
    #[schema(nullable = false)]
    next_cursor: Option<String>,
}

/// Urgency of a message.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Priority {
    Low,
    Normal,
    High,
    Urgent,
}

/// How to deliver a message.
#[derive(ToSchema)]
#[schema(as = MessageHeaders)]
pub struct Headers {
    #[schema(nullable = false)]
    priority: Option<Priority>,
    /// The message is not delivered later than this many seconds after acceptance.
    #[schema(minimum = 1)]
    ttl_seconds: Option<usize>,
    /// Ties an answer to its question. At most 256 bytes.
    #[schema(max_length = 256)]
    correlation_id: Option<String>,
    /// Where to answer. At most 256 bytes.
    #[schema(max_length = 256)]
    reply_to: Option<String>,
    /// A repeat within 24 hours sends nothing and gets the first answer. At most 256 bytes.
    #[schema(max_length = 256)]
    idempotency_key: Option<String>,
    /// The thread that the message belongs to. At most 128 bytes, without control characters. A message without it is
    /// the first of the thread that its message id names.
    #[schema(max_length = 128)]
    thread_id: Option<String>,
    /// What the message is about: one line of at most 200 characters.
    #[schema(max_length = 200)]
    subject: Option<String>,
    /// How many messages in a row, each caused by the one before, led to this one.
    #[schema(maximum = 64)]
    hops: Option<u64>,
    /// Absent: the sender gets a report if the message becomes a dead letter.
    #[schema(nullable = false)]
    report: Option<ReportChoice>,
}

/// `none`: the sender wants no report about the message.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum ReportChoice {
    None,
}

/// The envelope of a message.
#[derive(ToSchema)]
pub struct Envelope {
    #[schema(format = "uuid")]
    message_id: String,
    project_id: schemas::ProjectId,
    #[schema(format = "uuid")]
    sender_id: String,
    #[schema(required)]
    sender_name: Option<String>,
    /// Null for a broadcast.
    #[schema(required, format = "uuid")]
    recipient_id: Option<String>,
    #[schema(format = DateTime)]
    timestamp: String,
    protocol_name: schemas::ProtocolName,
    protocol_version: Version,
    /// With `include=payload`, while it is kept.
    #[schema(nullable = false, value_type = Option<Object>)]
    payload: Option<()>,
    headers: Headers,
    /// Deliveries without an acknowledgement.
    #[schema(nullable = false)]
    delivery_count: Option<usize>,
}

/// Why a message was given up.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum DeadLetterReason {
    Expired,
    DeliveryLimit,
    RecipientGone,
    Rejected,
}

/// What a recipient says of a message when it acknowledges it.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum Outcome {
    Done,
    Blocked,
    Rejected,
}

/// A message that was given up.
#[derive(ToSchema)]
pub struct DeadLetter {
    message: Envelope,
    /// The recipient.
    #[schema(format = "uuid")]
    session_id: String,
    /// The name of the recipient, or the one that it had when the message was given up. Null for a recipient without a
    /// name.
    #[schema(required)]
    session_name: Option<String>,
    reason: DeadLetterReason,
    #[schema(format = DateTime)]
    at: String,
    deliveries: usize,
}

/// A page of dead letters, oldest first. A page may have fewer entries than its limit, or none, and still be followed by
/// another.
#[derive(ToSchema)]
pub struct DeadLetters {
    dead_letters: Vec<DeadLetter>,
    /// Cursor of the next page, when items are left.
    #[schema(nullable = false)]
    next_cursor: Option<String>,
}

/// What became of a redrive.
#[allow(clippy::struct_field_names, reason = "the names are those of the contract")]
#[derive(ToSchema)]
pub struct Redriven {
    /// Messages that wait again.
    redriven: usize,
    /// Ids that are not among the dead letters.
    unknown: Vec<String>,
    failures: Vec<RedriveFailure>,
}

/// A dead letter that stays one.
#[derive(ToSchema)]
pub struct RedriveFailure {
    #[schema(format = "uuid")]
    message_id: String,
    code: String,
}

/// What two sessions have in common.
#[derive(ToSchema)]
pub struct MatrixRow {
    #[schema(format = "uuid")]
    session_a: String,
    #[schema(format = "uuid")]
    session_b: String,
    compatible: bool,
    /// The agreed version by name of protocol.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    common_protocols: (),
    common_features: Vec<String>,
}

/// A page of the matrix.
#[derive(ToSchema)]
pub struct Matrix {
    rows: Vec<MatrixRow>,
    /// Cursor of the next page, when rows are left.
    #[schema(nullable = false)]
    next_cursor: Option<String>,
}

/// The status of a message for one recipient.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum DeliveryStatus {
    Queued,
    Delivered,
    Acknowledged,
    Expired,
    DeadLettered,
}

/// The answer to a direct message, or to a broadcast: the latter has the members from `recipients` on.
#[derive(ToSchema)]
pub struct Sent {
    #[schema(format = "uuid")]
    message_id: String,
    #[schema(nullable = false)]
    status: Option<DeliveryStatus>,
    /// Messages that wait for the recipient, unless it is in another project.
    #[schema(nullable = false)]
    queue_size: Option<usize>,
    #[schema(format = DateTime)]
    delivered_at: Option<String>,
    /// What the recipient said of it, if the sender waited for it.
    #[schema(nullable = false)]
    outcome: Option<Outcome>,
    #[schema(nullable = false)]
    note: Option<String>,
    /// What is known of the recipient of a direct message that waits, in the project of the sender.
    #[schema(nullable = false)]
    recipient: Option<Recipient>,
    #[schema(nullable = false)]
    recipients: Option<usize>,
    #[schema(nullable = false)]
    delivered: Option<usize>,
    #[schema(nullable = false)]
    queued: Option<usize>,
    #[schema(nullable = false)]
    failed: Option<usize>,
    #[schema(nullable = false)]
    skipped: Option<usize>,
    #[schema(nullable = false)]
    failures: Option<Vec<RecipientFailure>>,
}

/// A recipient that does not get a broadcast.
#[derive(ToSchema)]
pub struct RecipientFailure {
    #[schema(format = "uuid")]
    session_id: String,
    code: String,
}

/// How many recipients of a message have each status.
#[derive(ToSchema)]
pub struct RecipientCounts {
    queued: usize,
    delivered: usize,
    acknowledged: usize,
    expired: usize,
    dead_lettered: usize,
}

/// A message of the list: its envelope, and what became of it.
#[derive(ToSchema)]
pub struct ListedMessage {
    #[serde(flatten)]
    envelope: Envelope,
    /// Null for a broadcast, and for a recipient without a name or one that has ended.
    #[schema(required)]
    recipient_name: Option<String>,
    /// The header `thread_id`, or the id of the message, which is then the first of its thread.
    #[schema(max_length = 128)]
    thread_id: String,
    /// With `include=excerpt`: its first words, on one line. Null once the payload is not kept.
    #[schema(max_length = 160)]
    excerpt: Option<String>,
    /// Of a message with one recipient, while its receipt is kept.
    #[schema(required)]
    status: Option<DeliveryStatus>,
    /// Null once the receipts are forgotten.
    #[schema(required)]
    recipients: Option<RecipientCounts>,
}

/// A page of messages, newest first.
#[derive(ToSchema)]
#[allow(clippy::struct_field_names, reason = "the names are those of the API")]
pub struct Messages {
    messages: Vec<ListedMessage>,
    /// The payloads of messages are kept after the acknowledgement (`message_history_payloads`).
    payloads_kept: bool,
    /// Cursor of the next page.
    #[schema(nullable = false)]
    next_cursor: Option<String>,
}

/// What happened to a message for a recipient.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum LifeEvent {
    Queued,
    Delivered,
    Released,
    Acknowledged,
    Expired,
    DeadLettered,
    Redriven,
}

/// A change in the life of a message for a recipient.
#[derive(ToSchema)]
pub struct LifeChange {
    event: LifeEvent,
    #[schema(format = DateTime)]
    at: String,
    /// Of a delivery: which one.
    #[schema(nullable = false)]
    delivery: Option<usize>,
    /// Of a dead letter.
    #[schema(nullable = false)]
    reason: Option<DeadLetterReason>,
    /// Of a redrive: the recipient before.
    #[schema(nullable = false, format = "uuid")]
    from: Option<String>,
}

/// The life of a message for one recipient.
#[derive(ToSchema)]
pub struct RecipientLife {
    #[schema(format = "uuid")]
    session_id: String,
    /// Null for a session without a name, or one that has ended.
    #[schema(required)]
    name: Option<String>,
    /// The present status; null once the receipt is forgotten.
    #[schema(required)]
    status: Option<DeliveryStatus>,
    #[schema(nullable = false, format = DateTime)]
    at: Option<String>,
    #[schema(nullable = false)]
    reason: Option<DeadLetterReason>,
    /// What the recipient said of it.
    #[schema(nullable = false)]
    outcome: Option<Outcome>,
    /// What the recipient added.
    #[schema(nullable = false, max_length = 1000)]
    note: Option<String>,
    /// In their order.
    events: Vec<LifeChange>,
}

/// The life of a message.
#[derive(ToSchema)]
pub struct MessageLife {
    #[schema(format = "uuid")]
    message_id: String,
    /// Null once the history has forgotten the message.
    #[schema(required)]
    message: Option<Envelope>,
    /// The header `thread_id`, or the id of the message, which is then the first of its thread. Null as `message`.
    #[schema(required, max_length = 128)]
    thread_id: Option<String>,
    #[schema(required, format = DateTime)]
    accepted_at: Option<String>,
    /// A page of the recipients.
    recipients: Vec<RecipientLife>,
    /// The payloads of messages are kept after the acknowledgement (`message_history_payloads`).
    payloads_kept: bool,
    /// The history after the message is too long to be searched to its end: later events may be missing.
    incomplete: bool,
    /// Cursor of the next page of recipients.
    #[schema(nullable = false, format = "uuid")]
    next_cursor: Option<String>,
}
