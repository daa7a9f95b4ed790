//! The desk: it brings the questions of agents before people, and keeps the order of yaps.
//!
//! A question is a stored record. The pure transitions of [`Question`](crate::model::Question) decide what may become of it, and a
//! change is stored by compare and set, from any replica. The actor `Desk` offers open questions to consoles, moves them
//! on, and lets them expire. People and agents reach all of it by the verbs of
//! [`ProjectHandle`](crate::project::ProjectHandle).

mod consoles;
mod feed;
mod people;
mod requests;

pub use consoles::{ConsoleChange, ConsoleGuard};
pub use feed::{ConsoleView, DeskEvent, DeskFeed, DeskSummary, Presence};
pub use people::{Human, Reader};
pub use requests::{
    AskedQuestion, NewQuestion, NewYap, QuestionCursor, QuestionFilter, QuestionPage, StateFilter, YapAccepted,
};
