//! Why a rung has not taken a wake.

use std::fmt::Display;

use api::mcp::waking::WakeResult;

/// A wake that a rung has not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    pub result: WakeResult,
    /// One sentence.
    pub detail: String,
}

impl Missed {
    /// The client offers no such way.
    pub fn absent(detail: impl Display) -> Self {
        Self::new(WakeResult::Absent, detail)
    }

    /// The client does not want it now.
    pub fn refused(detail: impl Display) -> Self {
        Self::new(WakeResult::Refused, detail)
    }

    /// It could not be sent to the client.
    pub fn failed(detail: impl Display) -> Self {
        Self::new(WakeResult::Failed, detail)
    }

    fn new(result: WakeResult, detail: impl Display) -> Self {
        Self {
            result,
            detail: detail.to_string(),
        }
    }
}
