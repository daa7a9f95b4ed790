//! The desk: it brings the questions of agents before people, and keeps the order of yaps.
//!
//! A question is a stored record. The pure transitions of [`Question`](crate::model::Question) decide what may become of it, and a
//! change is stored by compare and set, from any replica. The actor `Desk` offers open questions to consoles, moves them
//! on, and lets them expire. People and agents reach all of it by the verbs of
//! [`ProjectHandle`](crate::project::ProjectHandle).

mod actor;
mod changes;
mod consoles;
mod load;
mod requests;
mod shared;
mod state;
mod targets;
mod yap_rates;

pub use actor::Desk;
pub use changes::QuestionWatch;
pub use consoles::{ConsoleGuard, InboxWatch};
pub use requests::{
    AskedQuestion, ConsoleChange, ConsoleView, DeskEvent, DeskFeed, DeskSummary, Human, NewQuestion, NewYap, Presence,
    QuestionCursor, QuestionFilter, QuestionPage, Reader, StateFilter, YapAccepted,
};
pub use shared::CONSOLES_MAX;

pub(crate) use changes::{NoticeFrom, QuestionChanges};
pub(crate) use load::waiting_order;
pub(crate) use shared::DeskShared;
