//! Tasks of backends (2026-07-28, the extension `io.modelcontextprotocol/tasks`). A backend sees one client, the broker. So a
//! caller gets another id, which is signed for it alone and says all that the broker has to know: nothing is kept here for a
//! task.

use std::{borrow::Cow, sync::Arc, time::Duration};

use actors::{
    gateway::{BackendShared, Link, Profile, process_number},
    json,
};
use tokio::time::sleep;

use super::{
    caller::owner_of,
    question::{named, names_backends},
    request::ForwardedRequest,
    route::{Route, backend_with_tool},
    subscription::OwnInstance,
    task_id::TaskId,
};
use crate::mcp::{context::PeerContext, outbox::Outbox, rpc::RpcError, subscriptions::meta, tasks};
use common::json::{
    frame,
    scan::{self, ScanError},
};

/// Bytes of the id that a backend gives a task.
const ID_LEN_MAX: usize = 1024;
/// The shortest time between two notifications about one task.
const INTERVAL: Duration = Duration::from_millis(100);
/// Bytes that wait for a client, from which on the state of a task waits too. A later one takes its place.
const WAITING_MAX: usize = 64 * 1024;

/// A task that a backend has made of the call of a tool.
struct BackendTask {
    backend: Arc<BackendShared>,
    /// The backend's own name of the tool.
    tool: String,
    /// The number of the process that has it.
    process: u64,
    /// The backend's own id of the task.
    id: String,
}

impl BackendTask {
    /// The task that the caller knows by this id, if it still sees its backend and its tool.
    ///
    /// # Errors
    /// Another replica has signed the id.
    fn find(context: &PeerContext, id: &str) -> Result<Option<Self>, RpcError> {
        let signer = &context.service.state_signer;
        let Some(TaskId {
            backend,
            tool,
            process,
            id,
        }) = TaskId::read(signer, &context.identity.owner_path(), id)?
        else {
            return Ok(None);
        };
        let backend = backend_with_tool(context, &backend, &tool);
        let backend = backend.filter(|backend| is_alive(context, backend, process));
        Ok(backend.map(|backend| Self {
            backend,
            tool,
            process,
            id,
        }))
    }
}

/// Whether the process that made a task still serves the caller; servers at a URL outlive their connections.
fn is_alive(context: &PeerContext, backend: &BackendShared, process: u64) -> bool {
    let view = backend.view();
    let owner = |sharing| owner_of(context, sharing);
    let affinity = view.affinity("tools/call", Profile::NONE, owner);
    process == 0 || backend.checkouts.has_link(&affinity, process)
}

/// The way of a request about a task, if the task is one of a backend.
///
/// # Errors
/// It is at another replica.
pub fn task_route(context: &PeerContext, method: &'static str, id: &str) -> Result<Option<Route>, RpcError> {
    let task = BackendTask::find(context, id)?;
    Ok(task.map(|task| Route {
        backend: task.backend,
        method,
        replaced: ("taskId", json::string(&task.id)),
        awaited: None,
        task: Some(id.to_owned()),
    }))
}

/// How a result breaks a rule.
struct Broken(&'static str);

impl From<ScanError> for Broken {
    fn from(_: ScanError) -> Self {
        Self("it is no object")
    }
}

/// A result in which the task that it is, or names, has the id by which the caller knows it. `takes_task` says that the
/// result may be a task.
///
/// # Errors
/// It breaks a rule: which.
pub fn for_caller<'r>(
    context: &PeerContext,
    route: &Route,
    request: &ForwardedRequest,
    link: &dyn Link,
    takes_task: bool,
    result: Cow<'r, [u8]>,
) -> Result<Cow<'r, [u8]>, &'static str> {
    // Most results end here, unread where the caller takes no task.
    let may_be_task = takes_task && memchr::memmem::find(&result, b"\"task\"").is_some();
    if route.task.is_none() && !may_be_task {
        return Ok(result);
    }
    let text = str::from_utf8(&result).map_err(|_| "it is not UTF-8")?;
    let replaced = match &route.task {
        Some(known_as) => of_known_task(context, route, known_as, text),
        None if json::member(text, "resultType") == Some("\"task\"") => {
            let tool = request.replaced().unwrap_or_default();
            of_new_task(text, |id| {
                let task = TaskId {
                    backend: route.backend.name.to_string(),
                    tool: tool.clone(),
                    process: process_number(&route.backend.view().config.address, link),
                    id: id.to_owned(),
                };
                task.sign(&context.service.state_signer, &context.identity.owner_path())
            })
        }
        None => return Ok(result),
    };
    let replaced = replaced.map_err(|Broken(reason)| reason)?;
    Ok(Cow::Owned(replaced.into_bytes()))
}

/// The result of a call that has become a task.
fn of_new_task(text: &str, signed: impl Fn(&str) -> String) -> Result<String, Broken> {
    let mut ids = 0;
    let replaced = json::replace_values::<Broken>(text, |key, value| {
        if key != "taskId" {
            return Ok(None);
        }
        ids += 1;
        let id = scan::string(value).filter(|id| !id.is_empty() && id.len() <= ID_LEN_MAX);
        let id = id.ok_or(Broken("the id of its task is no text of 1 to 1,024 bytes"))?;
        Ok(Some(json::string(&signed(&id))))
    })?;
    if ids == 1 {
        Ok(replaced)
    } else {
        Err(Broken("its task has not exactly one id"))
    }
}

/// The result of a request about a task.
fn of_known_task(context: &PeerContext, route: &Route, known_as: &str, text: &str) -> Result<String, Broken> {
    let (_, own) = &route.replaced;
    let own = scan::string(own);
    let names = names_backends(context);
    json::replace_values(text, |key, value| match key {
        "taskId" if scan::string(value) == own => Ok(Some(json::string(known_as))),
        "taskId" => Err(Broken("it is about another task")),
        "inputRequests" if names => Ok(Some(named_questions(&route.backend, value))),
        _ => Ok(None),
    })
}

/// The questions of a task with the name of the backend before their messages.
fn named_questions(backend: &BackendShared, questions: &str) -> String {
    let named = json::replace_values::<ScanError>(questions, |_, question| {
        let method = json::member(question, "method").and_then(scan::string);
        let named = json::replace_values::<ScanError>(question, |key, params| {
            let method = method.as_ref().filter(|_| key == "params");
            Ok(method.map(|method| named(backend, method, params)))
        });
        Ok(named.ok())
    });
    named.unwrap_or_else(|_| questions.to_owned())
}

/// Tells the listen of this id of the states of a task of a backend, until the future is dropped. `None` if the caller knows
/// no task by this id, its backend sends no changes of tasks, or has too many subscriptions.
pub fn watch_task(
    context: &PeerContext,
    listen: &str,
    known_as: &str,
    outbox: Arc<Outbox>,
) -> Option<impl Future<Output = ()> + use<>> {
    let task = BackendTask::find(context, known_as).ok()??;
    let (backend, tool) = (task.backend, task.tool);
    let gateway = Arc::clone(context.project.gateway()?.shared());
    let server = backend.view().server.clone();
    // One that was not started yet is asked when it starts.
    if server.is_some_and(|server| !tasks::is_declared_by(&server)) {
        return None;
    }
    let mut instance = OwnInstance::new(context, &backend, Profile::NONE);
    let mut subscription = instance.subscribed().tasks.subscribe(task.process, &task.id)?;
    instance.want();
    let names = names_backends(context);
    let before = format!("{{{}\"taskId\":{}", meta(Some(listen)), json::string(known_as));
    Some(async move {
        loop {
            tokio::select! {
                () = subscription.changed() => {}
                // Another instance may mean another task by this id.
                () = instance.wait_for_another() => return,
            }
            while outbox.waiting_len() > WAITING_MAX {
                sleep(INTERVAL).await;
            }
            let is_offered = gateway
                .offered()
                .backend_with_tool(backend.name.as_str(), &tool)
                .is_some();
            if let Some(state) = subscription.state().filter(|_| is_offered) {
                let questions_of = names.then_some(&*backend);
                outbox.send(frame::notification(
                    tasks::CHANGED,
                    state_params(&before, questions_of, &state),
                ));
            }
            sleep(INTERVAL).await;
        }
    })
}

/// The params of the notification of a state, which is an object. `before` is their text up to it; the questions of
/// `questions_of` get its name.
fn state_params(before: &str, questions_of: Option<&BackendShared>, state: &str) -> String {
    let named = questions_of.and_then(|backend| {
        let named = json::replace_values::<ScanError>(state, |key, value| {
            Ok((key == "inputRequests").then(|| named_questions(backend, value)))
        });
        named.ok()
    });
    let state = named.as_deref().unwrap_or(state);
    let members = state.strip_prefix('{').unwrap_or_default();
    let comma = if members == "}" { "" } else { "," };
    format!("{before}{comma}{members}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(text: &str) -> Result<String, &'static str> {
        of_new_task(text, |id| format!("signed {id}")).map_err(|Broken(reason)| reason)
    }

    #[test]
    fn of_a_new_task_only_the_id_changes() {
        let text = r#"{ "resultType" : "task", "x":1e400,"taskId" :"a\u0062", "result":{"taskId":"c"} }"#;
        let expected = r#"{ "resultType" : "task", "x":1e400,"taskId" :"signed ab", "result":{"taskId":"c"} }"#;
        assert_eq!(renamed(text).as_deref(), Ok(expected));
    }

    #[test]
    fn a_task_without_one_good_id_is_refused() {
        let long = format!(r#"{{"taskId":"{}"}}"#, "x".repeat(ID_LEN_MAX + 1));
        for wrong in [
            "{}",
            r#"{"taskId":7}"#,
            r#"{"taskId":""}"#,
            r#"{"taskId":"a","taskId":"b"}"#,
            &long,
        ] {
            assert!(renamed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_notification_has_the_members_of_the_state() {
        let params = |state: &str| state_params(r#"{"taskId":"k""#, None, state);
        assert_eq!(
            params(r#"{"status":"working"}"#),
            r#"{"taskId":"k","status":"working"}"#
        );
        assert_eq!(params("{}"), r#"{"taskId":"k"}"#);
    }
}
