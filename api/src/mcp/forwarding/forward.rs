//! Begins a call of a backend: what it needs of its caller, and what its caller has brought. It is sent once an instance of the
//! backend is lent to it: at once, if the pool has one, or after a wait, in which the backend may have to start.

use std::{rc::Rc, sync::Arc, time::Duration};

use actors::{
    clock::now,
    gateway::{
        Affinity, BackendCommand, BackendShared, BackendState, BackendView, CallStage, CallStatus, Checkout, Lane,
        Link, LinkRefusal, NotLent, ParkedCall, Queued, TooManyWait,
    },
    model::{BackendEra, BackendFailure},
};
use serde_json::{Map, Value, json};
use tokio::{sync::Notify, time::timeout_at};

use super::{
    asking::{Brought, States, parked_key},
    call::{Deadlines, NotOpened, OpenCall, RunningCall},
    caller::{Caller, carried_capabilities, learner_of, may_ask, owner_of, profile_of},
    question::check_opened,
    record::CallRecord,
    request::{ForwardedRequest, Input},
    route::{Route, awaited_name},
};
use crate::mcp::{
    calls::{Resource, ShutdownBehaviour},
    context::PeerContext,
    reply::ReplyTo,
    request_state::invalid_state,
    rpc::{Params, RpcError},
    tasks,
    version::Era,
};
use common::json::scan;

/// When a call is worth another attempt whose instance is being started.
const STARTING_RETRY: Duration = Duration::from_secs(1);
/// Bytes of the open requests of one connection.
const HELD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Forwards a request to its backend, and answers it while further frames are read.
///
/// # Errors
/// The params are not JSON.
pub fn forward(
    context: &Rc<PeerContext>,
    to: &ReplyTo,
    params: &Params<'_>,
    era: &Era,
    route: Route,
) -> Result<(), RpcError> {
    if !context.calls.has_free_slot() {
        let backend = route.backend.name.to_string();
        context.refuse(to, &BackendFailure::TooManyCalls { backend }.into());
        return Ok(());
    }
    params.text.map_or(Ok(()), scan::check)?;
    let view = route.backend.view();
    let capabilities = capabilities_for(context, to, era, &route, &view);
    let mut record = CallRecord::begin(context, &route, to.trace.as_deref());
    let trace = record.trace(to.trace.as_deref());
    let request = ForwardedRequest::new(
        route.method,
        route.replaced.clone(),
        params,
        context.client(),
        trace.as_ref(),
    )?
    .for_caller(&capabilities, to.log_level);
    let held = context.calls.held(Resource::RequestBytes);
    // A single request is never too large: transports bound it.
    if held > 0 && held + request.len() > HELD_BYTES_MAX {
        let failure = BackendFailure::Busy {
            backend: route.backend.name.to_string(),
            reason: "the open calls of this connection hold too many bytes",
        };
        context.refuse(to, &failure.into());
        return Ok(());
    }
    let held = context.calls.hold(Resource::RequestBytes, request.len());
    let resumed = brought_by(context, to, &route, &request)?;
    if let Some(parked) = &resumed {
        record.resumes(&parked.entry);
    }
    let shutdown = Rc::<Notify>::default();
    record.ends_as(CallStatus::Cancelled);
    // In a box, because the task that it becomes a part of is moved several times.
    let call = Box::new(RunningCall {
        context: Rc::clone(context),
        to: to.clone(),
        record,
        config: Arc::clone(&view.config),
        route,
        request,
        profile: profile_of(&capabilities),
        learner: learner_of(context),
        capabilities,
        _held: held,
        shutdown: Rc::clone(&shutdown),
    });
    let opened = match resumed {
        Some(parked) if parked.questions.is_empty() => Some(OpenCall {
            era: parked.call.link().era(),
            call: parked.call,
        }),
        Some(parked) => {
            call.park(parked);
            return Ok(());
        }
        // Sent now if that is possible, so that the requests of one read keep their order.
        None => call.open_now(&view),
    };
    // The backend's own progress is passed on instead of the broker's.
    let quiet = ReplyTo {
        progress: None,
        ..to.clone()
    };
    context
        .calls
        .spawn(&quiet, ShutdownBehaviour::Notify(shutdown), async move {
            call.run(opened).await
        });
    Ok(())
}

/// The capabilities of the caller that the backend gets.
fn capabilities_for(
    context: &PeerContext,
    to: &ReplyTo,
    era: &Era,
    route: &Route,
    view: &BackendView,
) -> Map<String, Value> {
    let mut capabilities = if may_ask(view) {
        carried_capabilities(context, era)
    } else {
        Map::new()
    };
    if to.takes_tasks && (route.method == "tools/call" || route.task.is_some()) {
        capabilities.insert("extensions".to_owned(), json!({tasks::EXTENSION: {}}));
    }
    capabilities
}

/// The parked call that a modern caller resumes. The backend gets the answers that the caller has brought; the questions
/// without one stay. What a backend gets back is put into the request.
fn brought_by(
    context: &PeerContext,
    to: &ReplyTo,
    route: &Route,
    request: &ForwardedRequest,
) -> Result<Option<ParkedCall>, RpcError> {
    let input = request.input();
    if !to.modern {
        request.set_input(Input::default());
        return Ok(None);
    }
    if input.state.is_none() {
        check_opened(&route.backend, &input)?;
        return Ok(None);
    }
    match States::new(context, &route.backend, route.method, request).read(&input)? {
        Brought::Nothing => Ok(None),
        Brought::State(state) => {
            request.set_input(Input {
                state: Some(state),
                ..input
            });
            Ok(None)
        }
        Brought::Parked(id, mut answers) => {
            let mut parked = route.backend.parked.take(id).ok_or_else(invalid_state)?;
            let asked = std::mem::take(&mut parked.questions).into_iter().enumerate();
            for (at, question) in asked {
                match answers.remove(&parked_key(at)).filter(Value::is_object) {
                    Some(answer) => {
                        parked.call.link().note_learnt();
                        parked.call.link().answer(&question, Ok(&answer.to_string()));
                    }
                    None => parked.questions.push(question),
                }
            }
            Ok(Some(parked))
        }
    }
}

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
