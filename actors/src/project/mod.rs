//! A tenant: an actor that owns a registry, a router and sessions, and the verbs that surfaces call. It knows no
//! other project except to send messages to it.

mod actor;
mod handle;
mod heartbeats;
mod messages;
mod pending_puts;
mod presence;
mod projects;
mod registration;
mod replication;
mod reports;
mod resync;
mod sessions;
mod start;
mod view;

pub use actor::Project;
pub use handle::{
    CrossProjectSend, EnvelopePage, Flow, FlowEdge, LateAnswer, LensDefinition, LifeChange, ListedMessage, Lookup,
    MailboxFigures, MessageFilter, MessageLife, MessagePage, Page, Party, PendingLookup, PreparedSend, ProjectFigures,
    ProjectHandle, ProtocolDefinition, ProtocolUsage, ReceiveRequest, RecipientLife, RedriveRequest, Registrant,
    RequestTrace, SendRequest, SessionSet, StatusFilter, Thread, ThreadCursor, ThreadKey, ThreadPage, TransformRequest,
    TransformedPayload, VersionUsage,
};
pub use projects::Projects;
pub use registration::{Registered, Registration};

pub use crate::{
    directory::{SessionOrder, SessionQuery, SessionSort, SortKey, SortedPage, SortedPlace},
    policy::ProjectSettings,
};
