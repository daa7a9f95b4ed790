//! Calls that interact with their caller while they run: they report progress and ask for input.
//!
//! A tool asks in the same way in all eras. A legacy client receives JSON-RPC requests and answers them; a modern
//! client receives the input requests as the result and calls again with the answers (2026-07-28, basic/patterns/mrtr);
//! the client of a task reads them from the task.

use std::{cell::RefCell, future::Future, panic::AssertUnwindSafe, rc::Rc, sync::Arc, time::Duration};

use actors::{
    clock::{millis, now},
    registry::Schema,
};
use futures_util::{
    FutureExt,
    future::{LocalBoxFuture, try_join_all},
};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{
    calls::ShutdownBehaviour,
    context::PeerContext,
    logging::Level,
    reply::{ReplyTo, with_era_members},
    request_state::{RequestFingerprint, invalid_state},
    rpc::{INTERNAL_ERROR, INVALID_REQUEST, MISSING_CAPABILITY, RpcError},
    tasks::{self, Task},
};
use common::json::{
    frame::{self, JsonText},
    write_json,
};

/// How long a human or a model may take to answer. Then a request to a legacy client fails, and a `requestState`
/// expires.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// Why a call ended without a result.
#[derive(Debug)]
pub enum Interrupted {
    /// The client has to answer these input requests first, and then calls again.
    InputRequired(Map<String, Value>),
    /// The call fails with this error.
    Failed(RpcError),
}

impl From<RpcError> for Interrupted {
    fn from(error: RpcError) -> Self {
        Self::Failed(error)
    }
}

/// A tool or prompt that interacts with its caller.
pub type InteractiveFn = fn(InteractiveCall) -> LocalBoxFuture<'static, InteractiveResult>;

/// The members of a result, or why there is none.
pub type InteractiveResult = Result<Value, Interrupted>;

/// A request for input from the client.
#[derive(Debug)]
pub struct InputRequest {
    method: &'static str,
    capability: &'static str,
    params: Value,
}

impl InputRequest {
    /// Asks the user to fill in a form.
    pub fn elicitation(message: &str, schema: Value) -> Self {
        Self {
            method: "elicitation/create",
            capability: "elicitation",
            params: json!({"message": message, "requestedSchema": schema}),
        }
    }

    /// Asks the client's model.
    pub fn sampling(params: Value) -> Self {
        Self {
            method: "sampling/createMessage",
            capability: "sampling",
            params,
        }
    }

    /// Asks for the folders that the client works in.
    pub fn roots() -> Self {
        Self {
            method: "roots/list",
            capability: "roots",
            params: json!({}),
        }
    }

    /// The request as an element of a modern result.
    pub fn to_json(&self) -> Value {
        json!({"method": self.method, "params": self.params})
    }

    /// The request to a legacy client.
    pub fn frame(&self, id: u64) -> impl JsonText {
        frame::request(id, self.method, &self.params)
    }

    /// Whether an answer fits the request. An answer that does not is discarded, and the request repeated.
    pub fn accepts(&self, answer: &Value) -> bool {
        match self.method {
            "elicitation/create" => match answer["action"].as_str() {
                Some("accept") => {
                    let schema = Schema::compile(&self.params["requestedSchema"]);
                    let content = answer.get("content").filter(|content| content.is_object());
                    content
                        .is_some_and(|content| schema.is_ok_and(|schema| schema.validate(&content.to_string()).is_ok()))
                }
                Some("decline" | "cancel") => true,
                _ => false,
            },
            "sampling/createMessage" => answer["content"].is_object() || answer["content"].is_array(),
            _ => answer["roots"].is_array(),
        }
    }
}

/// Whether a client with these capabilities shows forms to its user.
pub fn accepts_forms(capabilities: &Map<String, Value>) -> bool {
    // Without modes, it means forms.
    capabilities.get("elicitation").is_some_and(|declared| {
        declared.get("form").is_some() || declared.as_object().is_some_and(|modes| modes.get("url").is_none())
    })
}

/// Whether a client with these capabilities opens a URL for its user.
pub fn accepts_urls(capabilities: &Map<String, Value>) -> bool {
    let declared = capabilities.get("elicitation");
    declared.is_some_and(|modes| modes.get("url").is_some())
}

/// One call, as its tool sees it.
#[derive(Clone)]
pub struct InteractiveCall(Rc<Call>);

struct Call {
    context: Rc<PeerContext>,
    to: ReplyTo,
    params: Value,
    capabilities: Map<String, Value>,
    fingerprint: RequestFingerprint,
    /// The answers of this round, by the keys of their requests.
    responses: Map<String, Value>,
    /// The accepted answers of this round and earlier ones.
    accepted_answers: RefCell<Map<String, Value>>,
    task: RefCell<Option<Arc<Task>>>,
}

impl InteractiveCall {
    /// A call with these params.
    ///
    /// # Errors
    /// Invalid params if `inputResponses` or `requestState` of the client are malformed, or belong to another request.
    pub fn new(
        context: &Rc<PeerContext>,
        to: &ReplyTo,
        method: &str,
        mut params: Map<String, Value>,
        capabilities: Map<String, Value>,
    ) -> Result<Self, RpcError> {
        params.remove("_meta");
        let (responses, state) = (params.remove("inputResponses"), params.remove("requestState"));
        let params = Value::Object(params);
        let fingerprint = RequestFingerprint::new(&context.identity.owner_path(), method, &params);
        let (responses, answers) = if to.modern {
            (
                read_responses(responses)?,
                read_accepted_answers(context, &fingerprint, state)?,
            )
        } else {
            Default::default()
        };
        Ok(Self(Rc::new(Call {
            context: Rc::clone(context),
            to: to.clone(),
            params,
            capabilities,
            fingerprint,
            responses,
            accepted_answers: RefCell::new(answers),
            task: RefCell::default(),
        })))
    }

    /// Runs the call to its answer, during other frames of the connection.
    pub fn start<F: Future<Output = InteractiveResult> + 'static>(self, tool: impl FnOnce(Self) -> F + 'static) {
        let call = Rc::clone(&self.0);
        // The call reports its own progress.
        let to = ReplyTo {
            progress: None,
            ..call.to.clone()
        };
        // The tool must not run before its call is registered: an unregistered call cannot become a task.
        let running = async move { tool(self).await };
        let run = {
            let call = Rc::clone(&call);
            async move {
                let outcome = AssertUnwindSafe(running).catch_unwind().await;
                let panicked = |_| Err(RpcError::new(INTERNAL_ERROR, "Internal error").into());
                call.finish(outcome.unwrap_or_else(panicked));
            }
        };
        call.context.calls.spawn(&to, ShutdownBehaviour::Refuse, run);
    }

    /// An argument of the tool or prompt; null if absent.
    pub fn argument(&self, name: &str) -> &Value {
        &self.0.params["arguments"][name]
    }

    /// The params of the request, without the members of the protocol.
    pub fn params(&self) -> &Value {
        &self.0.params
    }

    /// Whether the client declared this kind of input: `elicitation`, `sampling` or `roots`.
    pub fn declares(&self, capability: &str) -> bool {
        let capabilities = &self.0.capabilities;
        if capability == "elicitation" {
            return accepts_forms(capabilities);
        }
        capabilities.contains_key(capability)
    }

    /// Checks that the client declared this kind of input.
    ///
    /// # Errors
    /// [`Interrupted::Failed`] if it did not.
    pub fn require(&self, capability: &str) -> Result<(), Interrupted> {
        if self.declares(capability) {
            return Ok(());
        }
        let error = if self.0.to.modern {
            let data = json!({"requiredCapabilities": {capability: {}}});
            RpcError::new(MISSING_CAPABILITY, "Missing required client capability").with_data(data)
        } else {
            RpcError::new(INVALID_REQUEST, format!("the client has not declared {capability}"))
        };
        Err(error.into())
    }

    /// Sends a progress notification if the caller asked for them. A task sends none.
    pub fn notify_progress(&self, progress: f64, total: f64) {
        if self.0.task.borrow().is_none() {
            let call = &self.0;
            call.to
                .notify_progress(&call.context.outbox, progress, Some(total), None);
        }
    }

    /// The token for progress notifications, as JSON.
    pub fn progress_token(&self) -> Option<&str> {
        self.0.to.progress.as_deref()
    }

    /// Sends a log message if the caller asked for this severity. A task sends none.
    pub fn log(&self, level: Level, logger: &str, data: &Value) {
        if self.0.task.borrow().is_none() {
            let call = &self.0;
            call.to.log(&call.context.outbox, level, logger, data);
        }
    }

    /// Ends the HTTP response of the call early; the client reconnects for the answer (2025-11-25, basic/transports).
    pub fn close_stream(&self) {
        self.0.to.route.outbox(&self.0.context.outbox).interrupt();
    }

    /// Notifies all subscribed clients that a list has changed.
    #[cfg(feature = "conformance-fixtures")]
    pub fn notify_list_changed(&self, list: super::list_changes::List) {
        self.0.context.service.lists.changed(list);
    }

    /// Continues as a task; false if the client accepts none.
    pub fn become_task(&self) -> bool {
        let call = &self.0;
        if call.task.borrow().is_some() {
            return true;
        }
        let Some(task) = call.context.become_task(&call.to) else {
            return false;
        };
        if let Some(runner) = call.context.calls.detach(&call.to) {
            task.set_runner(runner);
        }
        *call.task.borrow_mut() = Some(task);
        true
    }

    /// Continues as a task.
    ///
    /// # Errors
    /// [`Interrupted::Failed`] if the client accepts no tasks.
    pub fn require_task(&self) -> Result<(), Interrupted> {
        if self.become_task() {
            Ok(())
        } else {
            Err(tasks::extension_not_declared().into())
        }
    }

    /// Asks for one input. `key` identifies it across rounds.
    ///
    /// # Errors
    /// [`Interrupted`]: the tool passes it on, which ends the call or this round.
    pub async fn ask(&self, key: &str, request: InputRequest) -> Result<Value, Interrupted> {
        let mut answers = self.ask_all(vec![(key, request)]).await?;
        Ok(answers.pop().unwrap_or_default())
    }

    /// Asks for several inputs at once; the answers are in the same order.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn ask_all(&self, requests: Vec<(&str, InputRequest)>) -> Result<Vec<Value>, Interrupted> {
        for (_, request) in &requests {
            self.require(request.capability)?;
        }
        let call = &self.0;
        let task = call.task.borrow().clone();
        if let Some(task) = task {
            return try_join_all(
                requests
                    .into_iter()
                    .map(|(key, request)| ask_in_task(&task, key, request)),
            )
            .await;
        }
        if call.to.modern {
            return call.answers_or_input_required(&requests);
        }
        try_join_all(requests.into_iter().map(|(_, request)| call.ask_legacy_client(request))).await
    }
}

fn read_responses(responses: Option<Value>) -> Result<Map<String, Value>, RpcError> {
    match responses {
        None => Ok(Map::new()),
        Some(Value::Object(responses)) => Ok(responses),
        Some(_) => Err(RpcError::invalid_params(
            "Invalid params: inputResponses must be an object",
        )),
    }
}

fn read_accepted_answers(
    context: &PeerContext,
    fingerprint: &RequestFingerprint,
    state: Option<Value>,
) -> Result<Map<String, Value>, RpcError> {
    let Some(state) = state else { return Ok(Map::new()) };
    let state = state.as_str().ok_or_else(invalid_state)?;
    let signer = &context.service.state_signer;
    Ok(signer.verify(state, fingerprint, now().unix_ms)?)
}

async fn ask_in_task(task: &Task, key: &str, request: InputRequest) -> Result<Value, Interrupted> {
    loop {
        let answer = task.ask(key, request.to_json()).await;
        match answer {
            Ok(answer) if request.accepts(&answer) => return Ok(answer),
            Ok(_) => {}
            Err(_) => return Err(RpcError::new(INTERNAL_ERROR, "the task is over").into()),
        }
    }
}

impl Call {
    /// The answers that the client has sent. If some are missing, the round ends with requests for them.
    fn answers_or_input_required(&self, requests: &[(&str, InputRequest)]) -> Result<Vec<Value>, Interrupted> {
        let mut taken = self.accepted_answers.borrow_mut();
        let mut answers = Vec::with_capacity(requests.len());
        let mut missing = Map::new();
        for (key, request) in requests {
            let answer = self.responses.get(*key).or_else(|| taken.get(*key)).cloned();
            match answer.filter(|answer| request.accepts(answer)) {
                Some(answer) => {
                    taken.insert((*key).to_owned(), answer.clone());
                    answers.push(answer);
                }
                None => drop(missing.insert((*key).to_owned(), request.to_json())),
            }
        }
        if missing.is_empty() {
            Ok(answers)
        } else {
            Err(Interrupted::InputRequired(missing))
        }
    }

    async fn ask_legacy_client(&self, request: InputRequest) -> Result<Value, Interrupted> {
        let (id, answer) = self.context.client_requests.open();
        self.to.notify(&self.context.outbox, request.frame(id));
        match timeout(ANSWER_TIMEOUT, answer).await {
            Ok(Ok(Ok(answer))) if request.accepts(&answer) => Ok(answer),
            Ok(Ok(Ok(_))) => Err(RpcError::new(INVALID_REQUEST, format!("no answer to {}", request.method)).into()),
            Ok(Ok(Err(error))) => Err(error.into()),
            Ok(Err(_)) | Err(_) => {
                Err(RpcError::new(INTERNAL_ERROR, format!("{} was not answered", request.method)).into())
            }
        }
    }

    fn finish(&self, result: InteractiveResult) {
        let outbox = &self.context.outbox;
        let task = self.task.borrow().clone();
        match (task, result) {
            (Some(task), Ok(result)) => {
                let mut out = Vec::new();
                write_json(&mut out, &with_era_members(result, true));
                task.complete(out);
            }
            (Some(task), Err(Interrupted::Failed(error))) => task.fail(error),
            (Some(task), Err(Interrupted::InputRequired(_))) => {
                task.fail(RpcError::new(INTERNAL_ERROR, "Internal error"))
            }
            (None, Ok(result)) => self.to.result(outbox, with_era_members(result, self.to.modern)),
            (None, Err(Interrupted::InputRequired(requests))) => {
                let expires_at = now().unix_ms + millis(ANSWER_TIMEOUT);
                let answers = self.accepted_answers.borrow().clone();
                let state = self
                    .context
                    .service
                    .state_signer
                    .sign(&self.fingerprint, answers, expires_at);
                let mut result = with_era_members(json!({"inputRequests": requests, "requestState": state}), true);
                result["resultType"] = json!("input_required");
                self.to.result(outbox, &result);
            }
            (None, Err(Interrupted::Failed(error))) => self.to.error(outbox, &error),
        }
    }
}
