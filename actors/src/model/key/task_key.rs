//! The key that signs the ids by which callers know tasks that outlive a broker process.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{hex, random};
use crate::model::BrokerError;

/// Signs the ids of tasks of a project. It is stored, and shown nowhere.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskKey(Arc<str>);

impl TaskKey {
    /// A key of 256 random bits.
    ///
    /// # Errors
    /// `unavailable` when the system has no random numbers.
    pub fn generate() -> Result<Self, BrokerError> {
        Ok(Self(hex(&random::<32>()?).into()))
    }

    /// The bytes that a signature is made with.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskKey(***)")
    }
}
