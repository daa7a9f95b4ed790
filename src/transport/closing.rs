//! Why the broker closes a lasting connection, as a code and a text for the peer. The codes are those of RFC 6455, and
//! others of the range for private use (section 7.4.2).

use std::borrow::Cow;

use actix_web_actors::ws::CloseCode;
use actors::session::CloseReason;

/// A newer connection has taken over the session.
pub const TAKEN_OVER: u16 = 4001;
/// The peer sent nothing for the silence timeout.
pub const SILENT: u16 = 4002;
/// The peer took no bytes for the stall timeout.
pub const SLOW_CONSUMER: u16 = 4003;
/// The session has ended.
pub const RELEASED: u16 = 4004;
/// The credential was revoked or has expired.
pub const UNAUTHORIZED: u16 = 4005;
/// The storage lost recent data.
pub const STORE_ROLLED_BACK: u16 = 4006;
/// An administrator has disconnected the session.
pub const DISCONNECTED: u16 = 4007;

/// The code and the text for the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closing {
    pub code: u16,
    pub reason: Cow<'static, str>,
}

impl Closing {
    /// A closing with this code.
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            reason: reason.into(),
        }
    }

    /// A closing with a code of RFC 6455.
    pub fn standard(code: CloseCode, reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code.into(), reason)
    }

    /// The confirmation of a close that the peer began.
    pub fn confirmation(code: Option<u16>) -> Self {
        Self::new(code.unwrap_or(u16::from(CloseCode::Normal)), "")
    }

    /// Whether the broker stops.
    pub fn is_shutdown(&self) -> bool {
        self.code == u16::from(CloseCode::Restart)
    }
}

impl From<CloseReason> for Closing {
    fn from(why: CloseReason) -> Self {
        match why {
            CloseReason::TakenOver => Self::new(TAKEN_OVER, "a newer connection has taken over this session"),
            CloseReason::Silent => Self::new(SILENT, "no sign of life"),
            CloseReason::Disconnected => Self::new(DISCONNECTED, "an administrator has disconnected this session"),
            CloseReason::SessionEnded => Self::new(RELEASED, "the session has ended"),
            CloseReason::Unauthorized => Self::new(UNAUTHORIZED, "the credential was revoked or has expired"),
            CloseReason::StoreRolledBack => Self::new(
                STORE_ROLLED_BACK,
                "the storage came back with older data: connect and register again",
            ),
            CloseReason::Failed => Self::standard(CloseCode::Error, "the session failed: connect again"),
            CloseReason::ShuttingDown => {
                let retry_ms = 200 + uuid::Uuid::new_v4().as_u128() % 1800;
                Self::standard(CloseCode::Restart, format!("shutting down: retry in {retry_ms} ms"))
            }
        }
    }
}
