//! What the client of a call may be asked about a question to people, and what it has answered.

use serde_json::Value;

use super::request_state::RequestFingerprint;

/// By which ways `clarify` reaches people (`CLARIFY_BY`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClarifyBy {
    /// The desk only.
    Desk,
    /// The desk, and while no person is there the client of a legacy caller as well.
    #[default]
    DeskThenClient,
    /// The client, and the desk as well.
    ClientThenDesk,
}

/// What the client of a call may be asked, and what a modern one has answered.
pub struct ClientInput {
    /// For the state of a modern call; None for a legacy one.
    pub fingerprint: Option<RequestFingerprint>,
    /// The question of the round before, and the response of the client.
    pub round: Option<(String, Value)>,
}
