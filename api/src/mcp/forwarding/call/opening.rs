//! Sends a call once an instance of its backend is lent to it: at once, if the pool has one, or after a wait, in which the
//! backend may have to start.

use std::{sync::Arc, time::Duration};

use actors::{
    clock::now,
    gateway::{
        Affinity, BackendCommand, BackendShared, BackendState, BackendView, CallStage, Checkout, Lane, Link,
        LinkRefusal, NotLent, Queued, TooManyWait,
    },
    model::{BackendEra, BackendFailure},
};
use tokio::time::timeout_at;

use super::{NotOpened, OpenCall, RunningCall};
use crate::mcp::forwarding::{
    deadlines::Deadlines,
    owner::{Caller, owner_of},
    route::awaited_name,
};

/// When a call is worth another attempt whose instance is being started.
const STARTING_RETRY: Duration = Duration::from_secs(1);

impl RunningCall {
    /// Sends the call if an instance can be lent to it now.
    pub fn open_now(&self, view: &BackendView) -> Option<OpenCall> {
        if self.route.awaited.is_some() {
            return None;
        }
        let checkouts = &self.backend().checkouts;
        let checkout = checkouts.try_lend(&self.affinity(view), &self.learner)?;
        self.send(checkout).ok()
    }

    /// Sends the call to the instance that is lent to it.
    fn send(&self, checkout: Checkout) -> Result<OpenCall, LinkRefusal> {
        let era = self.prepare(&**checkout.link());
        let call = checkout.open(&mut |number, out| self.request.write(era, number, out))?;
        Ok(OpenCall { call, era })
    }

    /// Sends the call once an instance is lent to it.
    pub(super) async fn open(&self, deadlines: &mut Deadlines, is_stopping: &mut bool) -> Result<OpenCall, NotOpened> {
        self.record.moves_to(CallStage::Waiting)?;
        let opening = self.wait_and_open();
        tokio::pin!(opening);
        loop {
            tokio::select! {
                opened = timeout_at(deadlines.next, &mut opening) => {
                    let opened = opened.unwrap_or_else(|_| Err(self.not_running(*is_stopping).into()));
                    if opened.is_ok() && self.route.awaited.is_some() && !*is_stopping {
                        deadlines.learn(self.timeouts());
                    }
                    return opened;
                }
                failure = self.record.ended() => return Err(failure.into()),
                () = self.shutdown.notified(), if !*is_stopping => {
                    *is_stopping = true;
                    deadlines.shorten(self.context.service.call_drain);
                }
            }
        }
    }

    async fn wait_and_open(&self) -> Result<OpenCall, NotOpened> {
        let backend = self.backend();
        let mut views = backend.views();
        let mut waits_for_name = self.route.awaited.is_some();
        let mut waiting: Option<Queued> = None;
        loop {
            let view = Arc::clone(&views.borrow_and_update());
            if waits_for_name && view.has_announced {
                self.find_name().await?;
                waits_for_name = false;
            }
            let affinity = if waits_for_name {
                Affinity::EVERYONE
            } else {
                self.affinity(&view)
            };
            let queued = match waiting.take().filter(|queued| queued.affinity == affinity) {
                Some(queued) => queued,
                None => self.wait_for(affinity)?,
            };
            let queued = waiting.insert(queued);
            match view.state {
                BackendState::Idle => backend.command(BackendCommand::Want),
                BackendState::Starting | BackendState::Ready | BackendState::Replacing | BackendState::Stopping => {}
                BackendState::Backoff | BackendState::Failed | BackendState::Disabled => {
                    return Err(unavailable(backend, &view).into());
                }
            }
            tokio::select! {
                lent = queued.lent(), if !waits_for_name => {
                    if let Some(open) = self.send_lent(lent)? {
                        return Ok(open);
                    }
                    // The instance has ended just now, and another one may be there already.
                    waiting = None;
                }
                changed = views.changed() => if changed.is_err() {
                    return Err(unavailable(backend, &view).into());
                }
            }
        }
    }

    /// Puts the call into the queue for an instance.
    fn wait_for(&self, affinity: Affinity) -> Result<Queued, BackendFailure> {
        let checkouts = &self.backend().checkouts;
        let queued = checkouts.wait(Caller::of(&self.context).id(), affinity, &self.learner);
        queued.map_err(|TooManyWait| self.busy("too many calls wait for their turn"))
    }

    /// Sends the call that has waited. `None` if the instance has ended before.
    fn send_lent(&self, lent: Result<Checkout, NotLent>) -> Result<Option<OpenCall>, BackendFailure> {
        let checkout = match lent {
            Ok(checkout) => checkout,
            Err(NotLent::Gone) => return Ok(None),
            Err(NotLent::CoolingDown(cooldown)) => {
                return Err(BackendFailure::Unavailable {
                    backend: self.backend().name.to_string(),
                    state: BackendState::Backoff.as_str(),
                    reason: Some(cooldown.reason),
                    retry_after: Some(Duration::from_millis(cooldown.until_ms.saturating_sub(now().mono_ms))),
                });
            }
        };
        // One that an operator has ended meanwhile is not sent.
        self.record.moves_to(CallStage::Running)?;
        match self.send(checkout) {
            Ok(open) => Ok(Some(open)),
            Err(LinkRefusal::Busy) => Err(self.busy("it does not read its input")),
            Err(LinkRefusal::Closed) => {
                self.record.moves_to(CallStage::Waiting)?;
                Ok(None)
            }
        }
    }

    /// The affinity of the call: which instance it needs.
    fn affinity(&self, view: &BackendView) -> Affinity {
        let owner = |sharing| owner_of(&self.context, sharing);
        view.affinity(self.route.method, self.profile, owner)
    }

    fn busy(&self, reason: &'static str) -> BackendFailure {
        BackendFailure::Busy {
            backend: self.backend().name.to_string(),
            reason,
        }
    }

    /// Waits for the routing table that has what the backend offers, and looks the called name up.
    async fn find_name(&self) -> Result<(), NotOpened> {
        let (Some(called), Some(gateway)) = (&self.route.awaited, self.context.project.gateway()) else {
            return Ok(());
        };
        let found = gateway
            .shared()
            .wait_for(|| awaited_name(&self.context, &self.route, called));
        match found.await {
            Some(Ok(name)) => {
                self.record.found(&self.route, &name);
                self.request.set_replaced(name);
                Ok(())
            }
            Some(Err(())) | None => Err(NotOpened::Unknown),
        }
    }

    /// Tells a legacy backend which log messages the caller wants. Returns the era of the backend.
    fn prepare(&self, link: &dyn Link) -> BackendEra {
        let era = link.era();
        if let (BackendEra::Legacy, Some(level)) = (era, self.to.log_level) {
            link.want_log_level(level as u8 + 1, level.as_str());
        }
        era
    }

    pub(super) fn not_running(&self, is_stopping: bool) -> BackendFailure {
        if is_stopping {
            return BackendFailure::ShuttingDown {
                backend: self.backend().name.to_string(),
            };
        }
        let view = self.backend().view();
        let backend = self.backend().name.to_string();
        let affinity = self.affinity(&view);
        if !matches!(view.state, BackendState::Ready | BackendState::Replacing) {
            return unavailable(self.backend(), &view);
        }
        if self.backend().checkouts.is_starting(&affinity) {
            return BackendFailure::Unavailable {
                backend,
                state: BackendState::Starting.as_str(),
                reason: None,
                retry_after: Some(STARTING_RETRY),
            };
        }
        self.busy(match affinity.lane() {
            Lane::Main => "other calls take all its turns",
            Lane::Others => "other calls take all its instances",
        })
    }
}

fn unavailable(backend: &BackendShared, view: &BackendView) -> BackendFailure {
    let is_tried_again = matches!(view.state, BackendState::Backoff | BackendState::Failed);
    let wait_ms = view.retry_at_ms.map(|at| at.saturating_sub(now().mono_ms));
    let retry_after = match view.state {
        BackendState::Starting => Some(STARTING_RETRY),
        _ => wait_ms.filter(|_| is_tried_again).map(Duration::from_millis),
    };
    BackendFailure::Unavailable {
        backend: backend.name.to_string(),
        state: view.state.as_str(),
        reason: view.reason.clone(),
        retry_after,
    }
}
