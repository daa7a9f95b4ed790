//! Wakes the agent of the front when the broker asks for it.
//!
//! `options` decides which rungs a client has. `Waker` tries them from the top, on a thread of its own that lives as long as
//! a wake, and tells the broker once what became of it: `inbox`, `program` and `tmux` reach the client.

mod inbox;
mod missed;
mod options;
mod program;
mod tmux;
mod waker;

pub use inbox::Inbox;
pub use options::{WakeMode, WakeOptions};
pub use tmux::Pane;
pub use waker::Waker;
