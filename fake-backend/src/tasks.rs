//! Calls that go on as tasks (2026-07-28, the extension `io.modelcontextprotocol/tasks`).

use serde_json::{Value, json};

use crate::{Server, handshake::error, lists::SUBSCRIPTION_ID};

pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The tools of a server with tasks: `task` becomes one, `finish` ends it, and `tell` tells of it.
pub const TOOLS: &[&str] = &["task", "finish", "tell"];

/// A call that goes on.
pub struct Task {
    status: &'static str,
    questions: Option<Value>,
    result: Option<Value>,
}

/// The result of a call that becomes a task. `None` for a client that takes none, unless the call says `forced`.
pub fn create(server: &Server, params: &Value) -> Option<Value> {
    let capabilities = &params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    let takes_tasks = capabilities["extensions"][EXTENSION].is_object();
    let arguments = &params["arguments"];
    if !takes_tasks && arguments["forced"] != true {
        return None;
    }
    let questions = (arguments["asks"] == true).then(|| {
        let schema = json!({"type": "object", "properties": {"colour": {"type": "string"}}});
        let asked = json!({"message": "Which colour?", "requestedSchema": schema});
        json!({"q": {"method": "elicitation/create", "params": asked}})
    });
    let task = Task {
        status: if questions.is_some() {
            "input_required"
        } else {
            "working"
        },
        questions,
        result: None,
    };
    let mut state = server.state();
    let id = format!("task-{}", state.tasks.len() + 1);
    let mut created = task.detailed(&id);
    if let Some(created) = created.as_object_mut() {
        created.remove("inputRequests");
    }
    created["resultType"] = json!("task");
    state.tasks.insert(id, task);
    Some(created)
}

/// Serves a request about a task.
pub fn serve(server: &Server, method: &str, params: &Value) -> Result<Value, Value> {
    let id = params["taskId"].as_str().unwrap_or_default();
    let mut state = server.state();
    let task = state
        .tasks
        .get_mut(id)
        .ok_or_else(|| error(-32602, "the fake has no such task"))?;
    match method {
        "tasks/get" => return Ok(task.detailed(id)),
        "tasks/update" => {
            let structured = json!({"responses": params["inputResponses"]});
            task.end(
                "completed",
                Some(json!({"content": [], "structuredContent": structured})),
            );
        }
        _ => task.end("cancelled", None),
    }
    drop(state);
    tell(server, id);
    Ok(json!({}))
}

/// Completes a task.
pub fn finish(server: &Server, id: &str, result: Value) {
    if let Some(task) = server.state().tasks.get_mut(id) {
        task.end("completed", Some(result));
    }
    tell(server, id);
}

/// Tells of the state of a task, if a client wants to know.
pub fn tell(server: &Server, id: &str) {
    let frames: Vec<Value> = {
        let state = server.state();
        let Some(task) = state.tasks.get(id) else { return };
        let listens = state
            .task_listens
            .iter()
            .filter(|(_, ids)| ids.iter().any(|known| known == id));
        listens
            .map(|(listen, _)| {
                let mut params = task.detailed(id);
                let listen: Value = serde_json::from_str(listen).unwrap_or_default();
                params["_meta"] = json!({SUBSCRIPTION_ID: listen});
                params
            })
            .collect()
    };
    for params in frames {
        server.notify("notifications/tasks", &params);
    }
}

impl Task {
    fn end(&mut self, status: &'static str, result: Option<Value>) {
        (self.status, self.questions, self.result) = (status, None, result);
    }

    fn detailed(&self, id: &str) -> Value {
        let at = "2026-07-28T00:00:00Z";
        let mut task = json!({
            "taskId": id, "status": self.status, "createdAt": at, "lastUpdatedAt": at, "ttlMs": null,
            "exact": 10_000_000_000_000_000_001_u64,
        });
        if let Some(questions) = &self.questions {
            task["inputRequests"] = questions.clone();
        }
        if let Some(result) = &self.result {
            task["result"] = result.clone();
        }
        task
    }
}
