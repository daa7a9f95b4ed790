//! Begins a call of a backend: what it needs of its caller, and what its caller has brought.

use std::{rc::Rc, sync::Arc};

use actors::{
    gateway::{BackendView, CallStatus, ParkedCall},
    model::BackendFailure,
};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use super::{
    asking::{Brought, States, carried_capabilities, parked_key},
    call::{OpenCall, RunningCall},
    owner::learner_of,
    question::{check_opened, may_ask, profile_of},
    record::CallRecord,
    request::{ForwardedRequest, Input},
    route::Route,
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
