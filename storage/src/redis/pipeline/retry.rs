//! Batches whose answer never came: what they leased is returned, as if it had not been delivered.

use std::time::Duration;

use actors::model::SessionId;

use super::super::{error::Failure, operation::Operation};

/// The pause after a failure before leases are returned, or a group lease is acknowledged, another time.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(300);

/// A batch that may have leased messages for these sessions.
pub(super) struct UnansweredBatch {
    number: u64,
    sessions: Vec<SessionId>,
}

/// What these operations of a batch may have leased; None when none of them leases.
pub(super) fn leases_of<'a>(number: u64, operations: impl Iterator<Item = &'a Operation>) -> Option<UnansweredBatch> {
    let mut sessions: Vec<_> = operations.filter_map(|operation| operation.leases_for).collect();
    sessions.sort_unstable();
    sessions.dedup();
    (!sessions.is_empty()).then_some(UnansweredBatch { number, sessions })
}

/// What a batch that has failed may have leased. A batch that was refused has leased nothing.
pub(super) fn of_failed_batch<'a>(
    number: u64,
    operations: impl Iterator<Item = &'a Operation>,
    failure: &Failure,
) -> Option<UnansweredBatch> {
    let may_have_leased = matches!(failure, Failure::NoReply(_) | Failure::Unexpected(_));
    may_have_leased.then(|| leases_of(number, operations)).flatten()
}

/// The operation that returns the leases. Should the batch reach Redis later, it leases nothing.
pub(super) fn return_unclaimed(batch: &UnansweredBatch) -> Operation {
    let operation = Operation::new("return_unclaimed")
        .time(actors::clock::now())
        .number(batch.number);
    batch
        .sessions
        .iter()
        .fold(operation, |operation, session| operation.session(*session))
}
