//! The targets outside the broker that receive questions: webhooks, services of notifications.
//!
//! A [`Target`] says what it wants and how it is sent. The desk of each project decides when, and tries again what failed.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};

use crate::model::{ProjectId, Question, QuestionChange, QuestionContent};

/// Targets of a broker, at most.
pub const TARGETS_MAX: usize = 32;

/// A target outside the broker.
pub trait Target: fmt::Debug + Send + Sync {
    /// Its identity: under this id the store keeps how far events have been sent to it.
    fn id(&self) -> TargetId;

    /// What logs call it. It contains no secret.
    fn name(&self) -> &str;

    /// Whether it wants to know of changes of this kind.
    fn wants(&self, change: QuestionChange) -> bool;

    /// Sends an event, or decides that it need not be sent. Ends within [`SEND_TIME_MAX`].
    fn send(&self, news: News) -> BoxFuture<'static, Sending>;
}

/// A target, by its address: the same address is the same target after a restart and at another replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetId([u8; Self::LEN]);

impl TargetId {
    /// Bytes of an id.
    pub const LEN: usize = 16;

    /// The target with this address.
    pub fn of_address(address: &str) -> Self {
        let hash: [u8; 32] = Sha256::digest(address).into();
        let mut id = [0; Self::LEN];
        id.copy_from_slice(&hash[..Self::LEN]);
        Self(id)
    }

    /// The bytes of the id.
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The longest time that [`Target::send`] takes: below the time after which another replica takes over.
pub const SEND_TIME_MAX: Duration = Duration::from_secs(15);

/// A change of a question, for a target.
#[derive(Clone, Debug)]
pub struct News {
    pub project: ProjectId,
    /// The id of the event, the same at each attempt: the project, `_`, and its id in `GET /api/v1/events`.
    pub id: String,
    /// When it happened, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    pub change: QuestionChange,
    /// The question as it is now.
    pub question: Arc<Question>,
    pub content: Arc<QuestionContent>,
    /// People who are present at the desk now.
    pub present: usize,
}

/// What became of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sending {
    /// The target has it, or need not know it.
    Done,
    /// It is decided at this time, in milliseconds since the Unix epoch.
    NotBefore(u64),
    /// The target could not be reached or refused it: why. It is tried again.
    Failed(String),
}
