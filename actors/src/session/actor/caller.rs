//! The caller of `receive_messages`, while its call waits in the session.

use std::sync::Arc;

use actix::SpawnHandle;
use tokio::sync::oneshot;

use crate::{
    model::BrokerError,
    session::{ReadBudget, ReceiveMode, ReceiveOutcome, receives, speaking::Room},
    storage::{Depth, Lease},
};

/// A call, and how it is answered.
pub(super) type Waiter = receives::Waiter<Caller>;

/// A call for which the inbox was read, and its lease without the messages.
pub(super) struct ForCall {
    pub waiter: Waiter,
    pub lease: Lease,
}

impl ForCall {
    /// The room of its answer.
    pub fn room(&self) -> Room {
        let Caller { budget, bytes_max, .. } = &self.waiter.caller;
        Room::Call(Arc::clone(budget), *bytes_max)
    }

    /// The inbox after the lease.
    pub fn depth_mut(&mut self) -> &mut Depth {
        &mut self.lease.depth
    }
}

/// What a caller asks for, and how it is answered.
pub(super) struct Caller {
    pub limit: usize,
    pub bytes_max: usize,
    pub budget: Arc<dyn ReadBudget>,
    pub mode: ReceiveMode,
    pub reply: oneshot::Sender<Result<ReceiveOutcome, BrokerError>>,
    /// The timer of the end of the waiting time, while the call waits.
    pub timer: Option<SpawnHandle>,
}

impl Caller {
    /// Whether the caller has dropped the other end of the reply.
    pub fn is_gone(&self) -> bool {
        self.reply.is_closed()
    }

    /// Answers the call with an error.
    pub fn refuse(self, error: BrokerError) {
        self.answer(Err(error));
    }

    /// Answers the call. A caller that is gone does not need the answer.
    pub fn answer(self, answer: Result<ReceiveOutcome, BrokerError>) {
        let _ = self.reply.send(answer);
    }
}
