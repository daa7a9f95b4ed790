//! Sends a call once it is its turn and its backend runs.

use std::{sync::Arc, time::Duration};

use actors::{
    clock::now,
    gateway::{
        Affinity, BackendCommand, BackendShared, BackendState, BackendView, CallPurpose, CallStage, CallerId, Link,
        LinkRefusal, NotLent, Place, PoolKind, Turn,
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

const TOO_MANY_WAIT: &str = "too many calls wait for their turn";

impl RunningCall {
    /// Sends the call if the backend runs and a turn is free.
    pub fn open_now(&self, view: &BackendView) -> Option<OpenCall> {
        if self.route.awaited.is_some() {
            return None;
        }
        let link = view.link.as_ref()?;
        if view.pool != PoolKind::Closed && self.affinity(view).is_some() {
            return None;
        }
        let turn = self.backend().turns.try_take()?;
        let era = self.prepare(&**link);
        let call = Arc::clone(link)
            .open(CallPurpose::Caller, &mut |number, out| {
                self.request.write(era, number, out);
            })
            .ok()?;
        let call = call.in_place(Place::Turn(turn));
        Some(OpenCall { call, era })
    }

    /// Sends the call once it is its turn and the backend runs.
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
                () = self.hurry.notified(), if !*is_stopping => {
                    *is_stopping = true;
                    deadlines.shorten(self.context.service.call_drain);
                }
            }
        }
    }

    async fn wait_and_open(&self) -> Result<OpenCall, NotOpened> {
        let backend = self.backend();
        // One with an instance of its own takes no turn of the main one.
        let mut turn = match self.affinity(&backend.view()) {
            Some(_) => None,
            None => Some(self.wait_for_turn().await?),
        };
        let mut views = backend.views();
        let mut waits_for_name = self.route.awaited.is_some();
        loop {
            let view = Arc::clone(&views.borrow_and_update());
            if waits_for_name && view.has_told {
                self.find_name().await?;
                waits_for_name = false;
            }
            if let Some(main) = view.link.clone().filter(|_| !waits_for_name)
                && let Some(place) = self.place_in(&view, &mut turn).await?
            {
                let link = match &place {
                    Place::Turn(_) => main,
                    Place::Checkout(checkout) => Arc::clone(checkout.link()),
                };
                let era = self.prepare(&*link);
                // One that an operator has ended meanwhile is not sent.
                self.record.moves_to(CallStage::Running)?;
                match link.open(CallPurpose::Caller, &mut |number, out| {
                    self.request.write(era, number, out)
                }) {
                    Ok(call) => {
                        let call = call.in_place(place);
                        return Ok(OpenCall { call, era });
                    }
                    Err(LinkRefusal::Busy) => return Err(self.busy("it does not read its input").into()),
                    // The instance has ended just now, and another one may be there already.
                    Err(LinkRefusal::Closed) => self.record.moves_to(CallStage::Waiting)?,
                }
                if matches!(place, Place::Checkout(_)) {
                    continue;
                }
            }
            match view.state {
                BackendState::Idle => backend.command(BackendCommand::Want),
                BackendState::Starting | BackendState::Ready | BackendState::Replacing | BackendState::Stopping => {}
                BackendState::Backoff | BackendState::Failed | BackendState::Disabled => {
                    return Err(unavailable(backend, &view).into());
                }
            }
            if views.changed().await.is_err() {
                return Err(unavailable(backend, &view).into());
            }
        }
    }

    async fn wait_for_turn(&self) -> Result<Turn, BackendFailure> {
        let turn = self.backend().turns.take(self.caller());
        let turn = turn.map_err(|_| self.busy(TOO_MANY_WAIT))?;
        turn.await.map_err(|_| self.busy("the turn was lost"))
    }

    /// Waits for an instance of its own, if the call needs one, or takes its turn in the main one. `None` if the backend does
    /// not run.
    async fn place_in(&self, view: &BackendView, turn: &mut Option<Turn>) -> Result<Option<Place>, BackendFailure> {
        let Some(affinity) = self.affinity(view) else {
            let turn = match turn.take() {
                Some(turn) => turn,
                None => self.wait_for_turn().await?,
            };
            return Ok(Some(Place::Turn(turn)));
        };
        // The main instance has one call less.
        *turn = None;
        match self
            .backend()
            .checkouts
            .lend(self.caller(), &affinity, &self.learner)
            .await
        {
            Ok(checkout) => Ok(Some(Place::Checkout(checkout))),
            Err(NotLent::NotRunning) => Ok(None),
            Err(NotLent::TooManyWait) => Err(self.busy(TOO_MANY_WAIT)),
            Err(NotLent::Resting(rest)) => Err(BackendFailure::Unavailable {
                backend: self.backend().name.to_string(),
                state: BackendState::Backoff.as_str(),
                reason: Some(rest.reason),
                retry_after: Some(Duration::from_millis(rest.until_ms.saturating_sub(now().mono_ms))),
            }),
        }
    }

    /// For whom the instance is that the call needs; `None` if the main one takes it.
    fn affinity(&self, view: &BackendView) -> Option<Affinity> {
        view.affinity(self.route.method, self.profile, |sharing| {
            owner_of(&self.context, sharing)
        })
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
        match affinity {
            _ if !matches!(view.state, BackendState::Ready | BackendState::Replacing) => {
                unavailable(self.backend(), &view)
            }
            Some(affinity) if self.backend().checkouts.is_starting(&affinity) => BackendFailure::Unavailable {
                backend,
                state: BackendState::Starting.as_str(),
                reason: None,
                retry_after: Some(STARTING_RETRY),
            },
            Some(_) => BackendFailure::Busy {
                backend,
                reason: "other calls take all its instances",
            },
            None => BackendFailure::Busy {
                backend,
                reason: "other calls take all its turns",
            },
        }
    }

    /// The caller whose calls wait behind each other.
    fn caller(&self) -> CallerId {
        Caller::of(&self.context).id()
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
