//! What a response is read for, and whether it says that the session is lost.

use std::cell::RefCell;

use actors::gateway::CallNumber;

use crate::instances::remote::refusal::lost_session_error;

/// What a response is read for.
#[derive(Default)]
pub struct Awaited {
    /// The request that it answers. `None` for a stream of its own.
    pub number: Option<CallNumber>,
    /// An error that says that the session is lost is not passed on.
    pub may_renew: bool,
    /// That error.
    pub lost: RefCell<Option<String>>,
}

impl Awaited {
    /// Whether a message says that the session is lost, and is not passed on.
    pub fn loses_session(&self, text: &str) -> bool {
        let number = self.number.filter(|_| self.may_renew);
        let lost = number.and_then(|number| lost_session_error(number, text));
        let is_lost = lost.is_some();
        if is_lost {
            self.lost.replace(lost);
        }
        is_lost
    }
}
