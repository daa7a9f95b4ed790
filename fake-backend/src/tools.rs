//! The tools: what each does, and how it misbehaves.

use std::{
    fs,
    io::{Write, stderr},
    process::{Command, Stdio, exit},
    sync::{PoisonError, atomic::Ordering},
    thread::sleep,
    time::Duration,
};

use serde_json::{Map, Value, json};

use crate::{Server, handshake::error, lists, tasks};

/// The names of the tools, in the order of the list.
const NAMES: &[&str] = &[
    "echo",
    "sleep",
    "never",
    "late",
    "die",
    "kill",
    "twice",
    "unknown_id",
    "garbage",
    "bad_utf8",
    "raw",
    "hold_input",
    "most_at_once",
    "deep",
    "big",
    "endless",
    "progress",
    "stray_progress",
    "log",
    "flood",
    "list_changed",
    "add_tool",
    "lists",
    "env",
    "fds",
    "cwd",
    "pid",
    "stderr",
    "stop_reading",
    "child",
    "daemon",
    "told",
    "ask",
    "ask_both",
    "ask_when_cancelled",
    "error",
    "tool_error",
    "received",
    "cancelled",
    "structured_array",
    "input_required",
    "needs_page",
    "complete",
    "touch",
    "subscribed",
    "hand_out",
];

/// The list of tools.
pub fn list(server: &Server) -> Vec<Value> {
    let generated = (0..server.script.extra_tools).map(|at| format!("extra_{at}"));
    let added = server.state().added.clone();
    let of_capabilities = of_capabilities(server);
    NAMES
        .iter()
        .map(|name| (*name).to_owned())
        .chain(
            tasks::TOOLS
                .iter()
                .filter(|_| server.script.has_tasks)
                .map(|name| (*name).to_owned()),
        )
        .chain(server.script.tools.iter().cloned())
        .chain(of_capabilities)
        .chain(generated)
        .chain(added)
        .map(|name| {
            let description = match (name.as_str(), &server.script.description) {
                ("echo", Some(description)) => description.clone(),
                _ => format!(
                    "The tool {name} of the fake backend. {}",
                    "It does what its name says. ".repeat(4)
                ),
            };
            json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
        })
        .collect()
}

/// The tools that the server has because of what its client has declared.
fn of_capabilities(server: &Server) -> Vec<String> {
    let state = server.state();
    let declared = state.capabilities.keys().filter(|_| server.script.lists_by_capability);
    declared.map(|capability| format!("for_{capability}")).collect()
}

/// A call on its thread.
struct Call<'a> {
    server: &'a Server,
    id: &'a Value,
    params: &'a Value,
}

/// Serves one call.
pub fn call(server: &Server, id: &Value, params: &Value) {
    let call = Call { server, id, params };
    let name = params["name"].as_str().unwrap_or_default();
    let running = server.running.fetch_add(1, Ordering::SeqCst) + 1;
    server.most_running.fetch_max(running, Ordering::SeqCst);
    let outcome = call.serve(name);
    server.running.fetch_sub(1, Ordering::SeqCst);
    if let Some(outcome) = outcome {
        server.answer(id, outcome);
    }
    let calls = server.calls.fetch_add(1, Ordering::SeqCst) + 1;
    if server.script.exit_after == Some(calls) {
        exit(7);
    }
}

impl Call<'_> {
    fn number(&self, name: &str) -> u64 {
        self.params["arguments"][name].as_u64().unwrap_or_default()
    }

    fn text(&self, name: &str) -> &str {
        self.params["arguments"][name].as_str().unwrap_or_default()
    }

    fn millis(&self) -> Duration {
        Duration::from_millis(self.number("ms"))
    }

    /// The result or the error of the call; `None` if it is not answered here.
    #[expect(clippy::too_many_lines, reason = "one arm for each tool")]
    fn serve(&self, name: &str) -> Option<Result<Value, Value>> {
        let is_echo = name == "echo"
            || name.starts_with("extra_")
            || self.server.script.tools.iter().any(|tool| tool == name)
            || of_capabilities(self.server).iter().any(|tool| tool == name)
            || self.server.state().added.iter().any(|tool| tool == name);
        match name {
            _ if is_echo => {
                let params = self.params;
                if self.number("ms") > 0 && self.server.wait_for_cancellation(self.id, self.millis()) {
                    return None;
                }
                Some(self.object(json!({"arguments": params["arguments"], "meta": params["_meta"], "name": name})))
            }
            "sleep" => (!self.server.wait_for_cancellation(self.id, self.millis())).then(|| self.done()),
            "never" => {
                eprintln!("never answers");
                None
            }
            "late" => {
                sleep(self.millis());
                Some(self.done())
            }
            "die" => {
                eprintln!("dying on request");
                exit(i32::try_from(self.number("code")).unwrap_or(1))
            }
            "kill" => {
                let own = std::process::id().to_string();
                let _ = Command::new("kill").args(["-9", &own]).status();
                None
            }
            "twice" => {
                self.server.answer(self.id, self.done());
                Some(self.done())
            }
            "env" => {
                let env: Map<String, Value> = std::env::vars().map(|(name, value)| (name, json!(value))).collect();
                Some(self.object(json!(env)))
            }
            "fds" => Some(self.object(json!({"fds": open_files()}))),
            "cwd" => Some(self.object(json!({"cwd": std::env::current_dir().unwrap_or_default()}))),
            "pid" => {
                let calls = self.server.calls.load(Ordering::SeqCst);
                Some(self.object(json!({"pid": std::process::id(), "calls": calls})))
            }
            "child" => Some(self.object(json!({"pid": start(&["sleep", "1000"])}))),
            "daemon" => Some(self.object(json!({"pid": start(&["setsid", "sleep", "1000"])}))),
            "error" => {
                let code = self.params["arguments"]["code"].clone();
                Some(Err(
                    json!({"code": code, "message": self.text("message"), "data": {"x": 1}}),
                ))
            }
            "hand_out" => {
                let uri = |number: u32| match self.text("uri") {
                    "" => format!("fake://handed-out/{number}"),
                    given => given.to_owned(),
                };
                let content = json!([
                    {"type": "resource_link", "uri": uri(1), "name": "link"},
                    {"type": "resource", "resource": {"uri": uri(2), "text": "embedded"}},
                ]);
                Some(self.result(json!({"content": content, "_meta": {"example.com/see": uri(3)}})))
            }
            "tool_error" => Some(self.result(json!({"content": [], "isError": true}))),
            "received" => Some(self.object(json!({"lines": self.server.state().received}))),
            "cancelled" => Some(self.object(json!({"ids": self.server.state().cancelled}))),
            "lists" => Some(self.object(json!({"tools_lists": self.server.state().tools_lists}))),
            "structured_array" => {
                let content = json!([{"type": "text", "text": "[1,2]"}]);
                Some(self.result(json!({"content": content, "structuredContent": [1, 2]})))
            }
            "input_required" => Some(Ok(self.input_required())),
            "task" => Some(match tasks::create(self.server, self.params) {
                Some(task) => Ok(task),
                None => self.done(),
            }),
            "tell" => {
                tasks::tell(self.server, self.text("task"));
                Some(self.done())
            }
            "finish" => {
                tasks::finish(self.server, self.text("task"), self.done().unwrap_or_default());
                Some(self.done())
            }
            "needs_page" => Some(self.needs_page()),
            _ => self.misbehave(name),
        }
    }

    /// Tools that write more than their answer.
    fn misbehave(&self, name: &str) -> Option<Result<Value, Value>> {
        let server = self.server;
        match name {
            "unknown_id" => {
                server.answer(&json!(999_999_999), self.done());
                server.answer(&json!("nope"), self.done());
            }
            "garbage" => (0..self.number("lines")).for_each(|at| server.write(format!("hello {at}\n").as_bytes())),
            "bad_utf8" => {
                let id = self.id;
                server.write(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"x\":\"").as_bytes());
                server.write(b"\xff\"}}\n");
                return None;
            }
            "deep" => {
                let depth = usize::try_from(self.number("depth")).unwrap_or_default();
                let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
                let id = self.id;
                server.write(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"x\":{deep}}}}}\n").as_bytes());
                return None;
            }
            "big" => {
                let text = "x".repeat(usize::try_from(self.number("bytes")).unwrap_or_default());
                let content = json!([{"type": "text", "text": text}]);
                let (result, id) = (self.result(json!({"content": content})).unwrap_or_default(), self.id);
                server.write(format!("{{\"result\":{result},\"jsonrpc\":\"2.0\",\"id\":{id}}}\n").as_bytes());
                return None;
            }
            "endless" => {
                let piece = vec![b'y'; 64 * 1024];
                (0..self.number("bytes") / 65_536).for_each(|_| server.write(&piece));
                server.write(b"\n");
            }
            "progress" => {
                let token = &self.params["_meta"]["progressToken"];
                let steps = self.number("steps");
                for step in 1..=steps {
                    let params = json!({"progressToken": token, "progress": step, "total": steps, "message": "on it"});
                    server.notify("notifications/progress", &params);
                    sleep(self.millis());
                }
            }
            "stray_progress" => {
                server.notify(
                    "notifications/progress",
                    &json!({"progressToken": 424_242, "progress": 1}),
                );
            }
            "log" => self.log(),
            "flood" => (0..self.number("count")).for_each(|_| self.log()),
            "list_changed" => (0..self.number("count")).for_each(|_| self.tools_changed()),
            "add_tool" => {
                server.state().added.push(self.text("name").to_owned());
                self.tools_changed();
            }
            "stderr" => {
                let line = format!("{}\n", "e".repeat(99));
                (0..self.number("bytes") / 100).for_each(|_| drop(stderr().write_all(line.as_bytes())));
            }
            "complete" => {
                server.state().is_opened = true;
                let id = json!({"elicitationId": self.text("id")});
                server.notify("notifications/elicitation/complete", &id);
            }
            "stop_reading" => server.stops_reading.store(true, Ordering::SeqCst),
            "touch" => lists::touch(server, self.text("uri")),
            "subscribed" => {
                let state = server.state();
                let listened: Vec<&String> = state.listens.values().flatten().collect();
                let tasks: Vec<&String> = state.task_listens.values().flatten().collect();
                return Some(self.object(json!({
                    "subscribed": state.subscribed,
                    "listened": listened,
                    "tasks": tasks,
                    "listen_requests": state.listen_requests,
                })));
            }
            _ => return self.deviate(name),
        }
        Some(self.done())
    }

    /// Tools that answer in their own way, or hold what they should not.
    fn deviate(&self, name: &str) -> Option<Result<Value, Value>> {
        let server = self.server;
        match name {
            // The text as a line, with the id of the call in place of ID.
            "raw" => {
                let text = self.text("text").replace("ID", &self.id.to_string());
                server.write(format!("{text}\n").as_bytes());
                return None;
            }
            "hold_input" => {
                // It never sees the end of its input.
                let input = fs::File::options().write(true).open("/proc/self/fd/0");
                std::mem::forget(input.unwrap_or_else(|error| panic!("its input can be opened: {error}")));
            }
            "most_at_once" => {
                let most = server.most_running.load(Ordering::SeqCst);
                return Some(self.object(json!({"calls": most})));
            }
            _ => return Some(self.interact(name)),
        }
        Some(self.done())
    }

    /// Tools that ask the client.
    fn interact(&self, name: &str) -> Result<Value, Value> {
        match name {
            "told" => {
                let capabilities = self.server.state().capabilities.clone();
                self.object(json!({"pid": std::process::id(), "capabilities": capabilities}))
            }
            "ask" => self.object(json!({"response": self.ask()})),
            "ask_both" => self.object(json!({"responses": self.ask_both()})),
            "ask_when_cancelled" => {
                eprintln!("waits to be cancelled");
                self.server.wait_for_cancellation(self.id, Duration::from_secs(600));
                self.ask();
                self.done()
            }
            _ => Err(error(-32602, &format!("Unknown tool: {name}"))),
        }
    }

    fn log(&self) {
        let data = json!({"call": self.params["arguments"]});
        self.server
            .notify("notifications/message", &json!({"level": "info", "data": data}));
    }

    fn tools_changed(&self) {
        self.server.notify("notifications/tools/list_changed", &json!({}));
    }

    /// Asks the client, and waits for its answer.
    fn ask(&self) -> Value {
        let params = match self.text("method") {
            "elicitation/create" if self.text("mode") == "url" => page(),
            "elicitation/create" => {
                let schema = json!({"type": "object", "properties": {"colour": {"type": "string"}}});
                json!({"message": "Which colour?", "requestedSchema": schema})
            }
            "sampling/createMessage" => json!({"messages": [], "maxTokens": 10}),
            _ => json!({}),
        };
        let id = format!("ask-{}", self.id);
        let request = json!({"jsonrpc": "2.0", "id": id, "method": self.text("method"), "params": params});
        self.server.send(&request);
        self.answer_of(&id)
    }

    /// Asks two questions in one write, and waits for both answers.
    fn ask_both(&self) -> Vec<Value> {
        let schema = json!({"type": "object", "properties": {"colour": {"type": "string"}}});
        let form = json!({"message": "Which colour?", "requestedSchema": schema});
        let ids = ["form", "roots"].map(|kind| format!("{kind}-{}", self.id));
        let requests = [
            json!({"jsonrpc": "2.0", "id": ids[0], "method": "elicitation/create", "params": form}),
            json!({"jsonrpc": "2.0", "id": ids[1], "method": "roots/list"}),
        ];
        let [form, roots] = requests;
        self.server.write(format!("{form}\n{roots}\n").as_bytes());
        ids.iter().map(|id| self.answer_of(id)).collect()
    }

    fn answer_of(&self, id: &str) -> Value {
        let state = self.server.state();
        let mut state = self
            .server
            .changed
            .wait_while(state, |state| !state.answers.contains_key(id))
            .unwrap_or_else(PoisonError::into_inner);
        state.answers.remove(id).unwrap_or_default()
    }

    fn input_required(&self) -> Value {
        if let Some(responses) = self.params.get("inputResponses") {
            let state = &self.params["requestState"];
            return self
                .object(json!({"responses": responses, "state": state}))
                .unwrap_or_default();
        }
        let schema = json!({"type": "object", "properties": {"colour": {"type": "string"}}});
        let asked = if self.text("mode") == "url" {
            let mut page = page();
            page.as_object_mut().map(|page| page.remove("elicitationId"));
            page
        } else {
            json!({"message": "Which colour?", "requestedSchema": schema})
        };
        json!({
            "resultType": "input_required",
            "inputRequests": {"q": {"method": "elicitation/create", "params": asked}},
            "requestState": "fake-state",
        })
    }

    /// Refuses the call until its page was opened.
    fn needs_page(&self) -> Result<Value, Value> {
        if self.server.state().is_opened {
            return self.done();
        }
        let mut error = error(-32042, "A page has to be opened first");
        error["data"] = json!({"elicitations": [page()], "x": 1});
        Err(error)
    }

    fn done(&self) -> Result<Value, Value> {
        self.object(json!({"done": true}))
    }

    fn object(&self, object: Value) -> Result<Value, Value> {
        let content = json!([{"type": "text", "text": object.to_string()}]);
        self.result(json!({"content": content, "structuredContent": object}))
    }

    #[allow(clippy::unnecessary_wraps, reason = "tools return it beside errors")]
    fn result(&self, mut result: Value) -> Result<Value, Value> {
        if self.server.is_modern() {
            result["resultType"] = json!("complete");
        }
        Ok(result)
    }
}

/// The question to open a page, as a legacy server asks it.
fn page() -> Value {
    json!({"mode": "url", "elicitationId": "page-1", "url": "https://example.com/page", "message": "Please sign in."})
}

/// The open files of this process, with what they lead to.
fn open_files() -> Vec<String> {
    let files = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    files
        .map(|file| {
            let target = fs::read_link(file.path()).unwrap_or_default();
            format!("{} -> {}", file.file_name().to_string_lossy(), target.display())
        })
        .collect()
}

/// Starts a program that goes on without this process.
fn start(words: &[&str]) -> u32 {
    let child = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    child.map(|child| child.id()).unwrap_or_default()
}
