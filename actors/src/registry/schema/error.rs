//! The error of a schema that is refused, and the bound of the failures that are listed.

use crate::model::BrokerError;

/// The largest number of failures listed for one payload.
pub(super) const FAILURES_LEN_MAX: usize = 20;

/// Refuses a schema.
///
/// # Errors
/// Always `invalid_schema` with this reason.
pub(super) fn refuse<T>(reason: impl Into<String>) -> Result<T, BrokerError> {
    Err(BrokerError::InvalidSchema { reason: reason.into() })
}
