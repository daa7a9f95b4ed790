//! Values: parsed once at the edge and immutable from then on. They know no actor and no I/O.

mod audit;
mod backend;
mod backend_failure;
mod budget;
mod capabilities;
mod error;
mod event;
pub mod id_map;
mod ids;
mod key;
mod lens;
mod mail;
mod message;
mod page;
mod project;
mod protocol;
mod question;
mod receipt;
mod session;
mod tool_set;
mod trace;
mod version;
mod wake;
mod yap;

pub use audit::{AuditEntry, AuditOutcome, AuditQuery};
pub use backend::{
    BackendAddress, BackendConfig, BackendEra, BackendName, BackendOrigin, BackendsConfig, CallTimeouts, HttpTransport,
    ProcessLimits, RestartChoice, Sharing, StartChoice, ToolChoice, ToolOverride,
};
pub use backend_failure::BackendFailure;
pub use budget::{Budget, BudgetFull};
pub use capabilities::{Capabilities, CapabilityFilter, TEXT_PROTOCOL, TEXT_VERSION};
pub use error::{
    BrokerError, CrossProjectSide, MissingGrant, MissingSession, PathFailure, QuestionBudget, TransformFailure,
    TransformReason,
};
pub use event::{
    AcceptedMessage, ActorChange, ActorKind, EnvelopeHead, EventKind, EventKinds, LensChangeKind, LoggedRecipients,
    ProjectEvent, QuestionChange, RecipientLookup, SessionChange, SessionMark,
};
pub use ids::{ConnectionId, MessageId, ProjectId, QuestionId, ReplicaId, SessionId, SessionName, UNSET_ID};
pub use key::{ApiKey, CredentialStatus, KeyDigest, KeyHuman, KeyId, KeyRecord, KeyStatus, Owner, Scope};
pub use lens::LensRecord;
pub use mail::{MAIL_NAMES_MAX, MailSummary};
pub use message::{
    Addressing, Complement, DeadLetter, DeadLetterReason, DeliveryStatus, EnvelopeFragments, EnvelopeSummary, HOPS_MAX,
    Headers, Message, MessageIds, MessageText, NOTE_CHARACTERS_MAX, NewMessage, Outcome, OutcomeKind, Priority,
    Progress, RecipientStatus, ReportChoice, StoredMessage, StoredMessageError, TransformHeaders, TransformRule,
    Transformed, Transforms, excerpt,
};
pub use page::{PAGE_BYTES_MAX, PageRoom};
pub use project::{
    ConfigChanges, Grant, IssuedKey, KeyRotation, LoginRecord, NewKey, NewProject, ProjectChanges, ProjectConfig,
    ProjectRecord,
};
pub use protocol::{Pattern, ProtocolMetadata, ProtocolName, ProtocolRecord};
pub use question::{
    ANSWER_BYTES_MAX, ASKER_GONE, AddressedTo, Answer, AnswerPart, AnswerSeal, AnsweredBy, Asker, CLAIM_TIME,
    CONTEXT_BYTES_MAX, Closed, Closing, ConsoleId, Handover, IMAGES_BYTES_MAX, IMAGES_LEN_MAX, Image, LINKS_LEN_MAX,
    Link, OPTIONS_LEN_MAX, Offer, QUESTION_CHARACTERS_MAX, QUESTIONS_LEN_MAX, Question, QuestionChoice, QuestionClaim,
    QuestionContent, QuestionItem, QuestionState, REMARK_CHARACTERS_MAX, Refusal, TYPING_GRACE, TYPING_GRACE_MAX,
    TYPING_SHOWN, Urgency, Via,
};
pub use receipt::CallReceipt;
pub use session::{
    ALIASES_LEN_MAX, AUTOMATIC_NAME, HUMAN_KIND, Holder, PresenceTimeouts, SessionRecord, SessionStatus, id_of_sender,
    is_conversation, is_name_automatic,
};
pub use tool_set::ToolSet;
pub use trace::TraceContext;
pub use version::{accepts_version, are_compatible};
pub use wake::{
    Activity, MIN_INTERVAL_MAX, QuietHours, Rung, Rungs, Wake, WakeFor, WakePreference, WakeReason, WakeRecord,
    WakeResult,
};
pub use yap::{ShownYap, YAP_CHARACTERS_MAX, Yap};
