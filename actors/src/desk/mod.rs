//! The desk: it brings the questions of agents before people, and keeps the order of yaps.
//!
//! A question is a stored record. The pure transitions of [`Question`](crate::model::Question) decide what may become of it, and a
//! change is stored by compare and set, from any replica. The actor `Desk` offers open questions to consoles, moves them
//! on, and lets them expire. People and agents reach all of it by the verbs of
//! [`ProjectHandle`](crate::project::ProjectHandle).

mod actor;
mod changes;
mod consoles;
mod feed;
mod inbox_watch;
mod load;
mod notice;
mod people;
mod question_watch;
mod requests;
mod shared;
mod state;
mod targets;
mod yap_rates;

pub use actor::Desk;
pub(crate) use changes::{NoticeFrom, QuestionChanges};
pub use consoles::ConsoleGuard;
pub use feed::{ConsoleChange, ConsoleView, DeskEvent, DeskFeed, DeskSummary, Presence};
pub use inbox_watch::InboxWatch;
pub(crate) use load::waiting_order;
pub use people::{Human, Reader};
pub use question_watch::QuestionWatch;
pub use requests::{
    AskedQuestion, NewQuestion, NewYap, QuestionCursor, QuestionFilter, QuestionPage, StateFilter, YapAccepted,
};
pub use shared::CONSOLES_MAX;
pub(crate) use shared::DeskShared;
