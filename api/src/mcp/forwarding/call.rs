//! Runs a call of a backend to its answer: sends the request, passes progress on, and answers the caller once.

use std::{rc::Rc, sync::Arc, time::Duration};

use actors::{
    gateway::{
        BackendShared, CallEnd, CallEvent, CallStage, CallStatus, InputRequest, LentCall, Link, ParkedCall, Profile,
    },
    model::{BackendConfig, BackendEra, BackendFailure, BrokerError, CallTimeouts},
};
use futures_util::{StreamExt, future::LocalBoxFuture, stream::FuturesUnordered};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};

use super::{
    asking::{InputRequired, ROUNDS_MAX, States, ask_legacy_caller, forget_later, missing_capability},
    caller::note_addresses,
    question::{
        QUESTIONS_MAX, TOO_MANY_QUESTIONS, answer_in_place, answerable, can_answer, cannot_open_urls, required_urls,
        urls_required,
    },
    record::CallRecord,
    request::{ForwardedRequest, Input},
    response::{is_tool_error, translate_error, translate_progress, translate_result},
    route::{Route, unknown_tool},
    tasks,
};
use crate::mcp::{calls::Share, context::PeerContext, logging::Level, reply::ReplyTo, rpc::RpcError};
use common::json::frame;

/// Bytes of answers that may wait for a client that does not read them. A further one is refused.
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes that wait for a client, from which on it gets no progress and no log messages of backends.
const PROGRESS_WAITING_MAX: usize = 64 * 1024;

/// How long a call that has ended keeps its place for the answers of its caller. Other calls may wait for the place.
const LAST_ANSWERS_TIME_MAX: Duration = Duration::from_secs(5);

/// A question, and what its caller answers.
type Answered = (InputRequest, Result<Value, RpcError>);
/// What the caller is asked at the moment.
type Asking<'a> = FuturesUnordered<LocalBoxFuture<'a, Answered>>;

/// A call on its way.
pub struct RunningCall {
    pub context: Rc<PeerContext>,
    pub to: ReplyTo,
    pub route: Route,
    /// The table of its backend as the call has found it.
    pub config: Arc<BackendConfig>,
    pub request: ForwardedRequest,
    /// What the caller can be asked for.
    pub capabilities: Map<String, Value>,
    /// What the caller can be asked for, in the form that a legacy backend gets.
    pub profile: Profile,
    /// Names the caller to an instance that learns something of it: see `caller.rs`.
    pub learner: Arc<str>,
    pub _held: Share,
    /// Notified when the broker stops: the call then has only a short time left.
    pub shutdown: Rc<Notify>,
    pub record: CallRecord,
}

/// A call that was sent.
pub struct OpenCall {
    pub call: LentCall,
    pub era: BackendEra,
}

/// What follows from the events of a call.
enum Followed {
    Ended(CallEnd),
    /// A legacy backend asks a modern caller.
    Asked(Vec<InputRequest>),
}

/// Why a call was not sent.
pub(super) enum NotOpened {
    Failed(BackendFailure),
    /// The backend has listed what it offers, and this is not among it.
    Unknown,
}

impl From<BackendFailure> for NotOpened {
    fn from(failure: BackendFailure) -> Self {
        Self::Failed(failure)
    }
}

impl RunningCall {
    pub(super) fn backend(&self) -> &Arc<BackendShared> {
        &self.route.backend
    }

    /// How long the configuration lets the call take. Its tool counts once it is known what the backend offers.
    pub(super) fn timeouts(&self) -> CallTimeouts {
        let may_differ = self.route.method == "tools/call" && !self.config.tools.timeouts.is_empty();
        let has_tool = may_differ && self.backend().view().lists.is_some();
        let tool = has_tool.then(|| self.request.replaced()).flatten();
        self.config.call_timeouts(tool.as_deref())
    }

    /// Runs the call to its answer.
    pub async fn run(self: Box<Self>, opened: Option<OpenCall>) {
        let mut deadlines = Deadlines::begin(self.timeouts(), self.record.begun);
        let mut opened = opened;
        let mut is_stopping = false;
        let mut rounds = 0;
        loop {
            let mut open = match opened.take() {
                Some(open) => open,
                // Rare waits lie elsewhere, so that the task of most calls is small.
                None => match Box::pin(self.open(&mut deadlines, &mut is_stopping)).await {
                    Ok(open) => open,
                    Err(NotOpened::Failed(failure)) => return self.fail(failure),
                    Err(NotOpened::Unknown) => return self.refuse_unknown(),
                },
            };
            if let Err(failure) = self.record.moves_to(CallStage::Running) {
                return self.fail(failure);
            }
            let mut asking = Asking::new();
            let followed = self.follow(&mut open, &mut asking, &mut deadlines, &mut is_stopping);
            let end = match followed.await {
                // The backend ended before it got a byte of the call, which goes to the next instance.
                Ok(Followed::Ended(CallEnd::NotSent)) => continue,
                Ok(Followed::Ended(end)) => end,
                Ok(Followed::Asked(questions)) => {
                    let OpenCall { call, .. } = open;
                    let entry = self.record.entry();
                    return self.park(ParkedCall { call, questions, entry });
                }
                Err(failure) => return self.fail(failure),
            };
            if let Err(failure) = self.record.moves_to(CallStage::Answered) {
                return self.fail(failure);
            }
            let Some(asked) = self.input_required(&end, open.era) else {
                self.answer(end, &open);
                if !is_stopping {
                    self.pass_last_answers(&open, asking).await;
                }
                return;
            };
            drop(open);
            rounds += 1;
            if let Some(Err(error)) = asked.as_ref().ok().map(|asked| asked.check(&self.capabilities)) {
                if let CallEnd::Error(_) = end {
                    return self.answer_error(&cannot_open_urls());
                }
                return self.fail(self.protocol(format!("it asks its caller, but {}", error.message)));
            }
            match asked {
                Ok(asked) if self.to.modern => return self.answer_input_required(&asked),
                Ok(asked) if rounds <= ROUNDS_MAX && !is_stopping => match Box::pin(self.ask_for_input(asked)).await {
                    Some(input) => self.request.set_input(input),
                    None => return,
                },
                Ok(_) => return self.fail(self.protocol("it asks its caller again and again".to_owned())),
                Err(reason) => return self.fail(self.protocol(reason.to_owned())),
            }
            deadlines = Deadlines::begin(self.timeouts(), Instant::now());
        }
    }

    fn protocol(&self, reason: String) -> BackendFailure {
        BackendFailure::Protocol {
            backend: self.backend().name.to_string(),
            reason,
        }
    }

    /// What a backend wants of its caller before it answers; `None` if it has answered.
    fn input_required(&self, end: &CallEnd, era: BackendEra) -> Option<Result<InputRequired, &'static str>> {
        if !matches!(self.route.method, "tools/call" | "prompts/get" | "resources/read") {
            return None;
        }
        match end {
            CallEnd::Result(result) => InputRequired::read(result, era).transpose(),
            CallEnd::Error(error) if self.to.modern => {
                let pages = self.required_urls(error, era)?;
                Some(Ok(InputRequired::of_urls(pages)))
            }
            _ => None,
        }
    }

    /// The pages that a legacy backend wants its caller to open first.
    fn required_urls(&self, error: &[u8], era: BackendEra) -> Option<Vec<InputRequest>> {
        let is_asked = era == BackendEra::Legacy && self.config.asks == Some(true);
        is_asked.then(|| required_urls(error)).flatten()
    }

    /// Asks a legacy caller what a modern backend wants to know. `None` if the call has ended by that.
    async fn ask_for_input(&self, asked: InputRequired) -> Option<Input> {
        // What was answered was the round before this one.
        let _ = self.record.moves_to(CallStage::Waiting);
        let answered = tokio::select! {
            answered = asked.answered_by_legacy_caller(&self.context, &self.to, self.backend()) => answered,
            () = self.shutdown.notified() => {
                self.fail(BackendFailure::ShuttingDown { backend: self.backend().name.to_string() });
                return None;
            }
            failure = self.record.ended() => {
                self.fail(failure);
                return None;
            }
        };
        answered
            .map_err(|error| {
                if let Err(failure) = self.record.moves_to(CallStage::Answered) {
                    return self.fail(failure);
                }
                self.record.ends_as(CallStatus::Error);
                self.to.trace_failure("json_rpc_error");
                self.to.error(&self.context.outbox, &error);
            })
            .ok()
    }

    fn states(&self) -> States<'_> {
        States::new(&self.context, self.backend(), self.route.method, &self.request)
    }

    /// Answers a modern caller with the questions of a modern backend.
    fn answer_input_required(&self, asked: &InputRequired) {
        self.record.ends_as(CallStatus::Ok);
        let result = self.states().input_required(self.backend(), asked);
        self.to.result(&self.context.outbox, &*result);
    }

    /// Keeps a call open whose modern caller is asked by a legacy backend, and answers the caller with the questions.
    pub fn park(&self, call: ParkedCall) {
        let (questions, link) = (call.questions.clone(), Arc::clone(call.call.link()));
        let Ok(id) = self.backend().parked.park(call) else {
            let reason = "it asks its caller, but too many calls wait for input of their callers";
            return self.fail(self.protocol(reason.to_owned()));
        };
        if let Err(failure) = self.record.moves_to(CallStage::Parked) {
            drop(self.backend().parked.take(id));
            return self.fail(failure);
        }
        forget_later(Arc::clone(self.backend()), id, link);
        self.record.ends_as(CallStatus::Ok);
        let result = self.states().parked(self.backend(), id, &questions);
        self.to.result(&self.context.outbox, &*result);
    }

    /// Passes progress and questions on until the call has ended or has taken too long. The time in which a caller thinks
    /// does not count as silence of the backend.
    async fn follow<'a>(
        &'a self,
        open: &mut OpenCall,
        asking: &mut Asking<'a>,
        deadlines: &mut Deadlines,
        is_stopping: &mut bool,
    ) -> Result<Followed, BackendFailure> {
        let link = Arc::clone(open.call.link());
        loop {
            let asks = asking.len();
            let next = if asks == 0 { deadlines.next } else { deadlines.last };
            tokio::select! {
                event = open.call.next() => match event {
                    CallEvent::Ended(end) => return Ok(Followed::Ended(end)),
                    CallEvent::Log(params) => self.pass_log(&params),
                    CallEvent::Progress(params) => {
                        deadlines.sign_of_life();
                        self.pass_progress(&params);
                    }
                    CallEvent::Asked(question) => match can_answer(&self.capabilities, &question) {
                        Ok(()) if self.to.modern => {
                            let beside = open.call.take_questions();
                            return Ok(Followed::Asked(answerable(&self.capabilities, &*link, question, beside)));
                        }
                        Ok(()) if asks < QUESTIONS_MAX => asking.push(Box::pin(self.asked_caller(question))),
                        Ok(()) => link.answer(&question, Err(TOO_MANY_QUESTIONS)),
                        Err(error) => answer_in_place(&*link, &question, &error),
                    },
                },
                Some(answered) = asking.next(), if asks > 0 => {
                    deadlines.sign_of_life();
                    pass_answer(&*link, answered);
                }
                failure = self.record.ended() => return Err(failure),
                () = sleep_until(next) => {
                    let backend = self.backend().name.to_string();
                    return Err(if *is_stopping {
                        BackendFailure::ShuttingDown { backend }
                    } else {
                        BackendFailure::TimedOut { backend, after: deadlines.begun.elapsed() }
                    });
                }
                () = self.shutdown.notified(), if !*is_stopping => {
                    *is_stopping = true;
                    deadlines.shorten(self.context.service.call_drain);
                }
            }
        }
    }

    /// Passes the answers on to what the backend has asked before the end of its call. The call keeps its place meanwhile.
    async fn pass_last_answers(&self, open: &OpenCall, mut asking: Asking<'_>) {
        let link = open.call.link();
        let passing = async {
            while let Some(answered) = asking.next().await {
                pass_answer(&**link, answered);
            }
        };
        tokio::select! {
            _ = timeout(LAST_ANSWERS_TIME_MAX, passing) => {}
            () = self.shutdown.notified() => {}
        }
    }

    /// A question with the answer of a legacy caller.
    async fn asked_caller(&self, question: InputRequest) -> Answered {
        let (context, to) = (Rc::clone(&self.context), self.to.clone());
        let outcome = ask_legacy_caller(context, to, self.backend(), &question).await;
        (question, outcome)
    }

    /// Passes a log message on, if the caller wants its level.
    fn pass_log(&self, params: &[u8]) {
        #[derive(Deserialize)]
        struct Message {
            level: Level,
        }
        let message = serde_json::from_slice::<Message>(params).ok();
        if let (Some(Message { level }), Some(wanted)) = (message, self.to.log_level)
            && level >= wanted
        {
            self.notify("notifications/message", params);
        }
    }

    /// Sends a notification of the backend to the caller, unless the caller does not read its waiting frames.
    fn notify(&self, method: &str, params: &[u8]) {
        if self.to.route.outbox(&self.context.outbox).waiting_len() > PROGRESS_WAITING_MAX {
            return;
        }
        self.to
            .notify(&self.context.outbox, frame::notification(method, params));
    }

    fn pass_progress(&self, params: &[u8]) {
        let (Some(token), Ok(params)) = (&self.to.progress, str::from_utf8(params)) else {
            return;
        };
        self.notify("notifications/progress", &translate_progress(params, token));
    }

    fn answer(&self, end: CallEnd, open: &OpenCall) {
        let era = open.era;
        let backend = || self.backend().name.to_string();
        match end {
            CallEnd::Result(result) => self.answer_result(&result, open),
            CallEnd::Error(error) => {
                // Only if the backend got all that the caller declares.
                let was_told = self.to.modern && self.config.asks != Some(false);
                if let Some(error) = was_told.then(|| missing_capability(&error)).flatten() {
                    return self.answer_error(&error);
                }
                if let Some(pages) = self.required_urls(&error, era) {
                    let error = urls_required(&self.context, self.backend(), &error, &pages);
                    return self.answer_raw_error(error.as_bytes());
                }
                let text = str::from_utf8(&error).map_err(|_| "it is not UTF-8".to_owned());
                match text.and_then(|text| translate_error(text, self.to.modern)) {
                    Ok(error) => self.answer_raw_error(&error),
                    Err(reason) => self.fail(BackendFailure::Protocol {
                        backend: backend(),
                        reason,
                    }),
                }
            }
            CallEnd::TooLarge { limit } => self.fail(BackendFailure::TooLarge {
                backend: backend(),
                limit,
            }),
            CallEnd::Broken { reason } => self.fail(self.protocol(reason)),
            CallEnd::NoRoom => self.fail(BackendFailure::NoRoom { backend: backend() }),
            CallEnd::HttpError {
                status,
                reason,
                retry_after,
            } => self.fail(BackendFailure::Http {
                backend: backend(),
                status,
                reason,
                retry_after,
            }),
            CallEnd::Died(ended) => self.fail(BackendFailure::Died {
                backend: backend(),
                how: ended.to_string(),
            }),
            CallEnd::NotSent => self.fail(self.not_running(false)),
        }
    }

    /// Answers with an error that the backend causes.
    fn answer_error(&self, error: &RpcError) {
        self.record.ends_as(CallStatus::Error);
        self.to.error(&self.context.outbox, error);
    }

    /// Answers with the error of the backend.
    fn answer_raw_error(&self, error: &[u8]) {
        self.record.ends_as(CallStatus::Error);
        self.to.trace_failure("json_rpc_error");
        self.to.raw_error(&self.context.outbox, error);
    }

    fn answer_result(&self, result: &[u8], open: &OpenCall) {
        let (era, link) = (open.era, &**open.call.link());
        let text = str::from_utf8(result).map_err(|_| "it is not UTF-8");
        let takes_task = self.to.takes_tasks && self.route.method == "tools/call";
        let translated = text
            .and_then(|text| translate_result(text, self.route.method, era, self.to.modern, takes_task))
            .and_then(|result| tasks::for_caller(&self.context, &self.route, &self.request, link, takes_task, result));
        match translated {
            Ok(result) => {
                let waiting = self.to.route.outbox(&self.context.outbox).waiting_len();
                let is_full = waiting > 0 && waiting + result.len() > WAITING_BYTES_MAX;
                if is_full || self.to.route.check_room().is_err() {
                    return self.fail(BackendFailure::GivenUp {
                        backend: self.backend().name.to_string(),
                    });
                }
                self.record
                    .ends_as(if self.route.method == "tools/call" && is_tool_error(&result) {
                        CallStatus::ToolError
                    } else {
                        CallStatus::Ok
                    });
                note_addresses(&self.context, &self.backend().name, &result);
                self.context.identity.charge_answer(result.len());
                self.to.result(&self.context.outbox, &*result);
            }
            Err(reason) => self.fail(BackendFailure::Protocol {
                backend: self.backend().name.to_string(),
                reason: reason.to_owned(),
            }),
        }
    }

    fn fail(&self, failure: BackendFailure) {
        // An operator who has read that the call is ended is right.
        let failure = self.record.moves_to(CallStage::Answered).err().unwrap_or(failure);
        self.record.ends_as(CallStatus::of(&failure));
        let error = BrokerError::from(failure);
        if self.route.method == "tools/call" {
            self.context.refuse(&self.to, &error);
        } else {
            self.to.trace_failure(error.code());
            self.to.error(&self.context.outbox, &RpcError::refused(&error));
        }
    }

    fn refuse_unknown(&self) {
        if let Err(failure) = self.record.moves_to(CallStage::Answered) {
            return self.fail(failure);
        }
        self.record.ends_as(CallStatus::Refused);
        let name = self.route.awaited.as_deref().unwrap_or_default();
        let error = match self.route.method {
            "prompts/get" => RpcError::invalid_params(format!("Unknown prompt: {name}")),
            _ => unknown_tool(name),
        };
        self.to.error(&self.context.outbox, &error);
    }
}

/// Tells a backend what its caller has answered.
fn pass_answer(link: &dyn Link, (question, outcome): Answered) {
    match outcome {
        Ok(answer) => {
            link.note_learnt();
            link.answer(&question, Ok(&answer.to_string()));
        }
        Err(error) => link.answer(&question, Err(&error.to_json().to_string())),
    }
}

/// When a call has taken too long.
pub struct Deadlines {
    pub begun: Instant,
    /// When the call has taken too long without a sign of life.
    pub next: Instant,
    /// When it has taken too long in all.
    pub last: Instant,
    timeouts: CallTimeouts,
}

impl Deadlines {
    /// The deadlines of a call that began at this time.
    pub fn begin(timeouts: CallTimeouts, begun: Instant) -> Self {
        Self {
            begun,
            next: begun + timeouts.silent,
            last: begun + timeouts.total,
            timeouts,
        }
    }

    /// The backend has listed the tool of the call, and gets it: these timeouts hold from here on.
    pub fn learn(&mut self, timeouts: CallTimeouts) {
        if timeouts != self.timeouts {
            self.timeouts = timeouts;
            self.last = Instant::now() + timeouts.total;
            self.sign_of_life();
        }
    }

    /// The backend has shown that it works on the call.
    pub fn sign_of_life(&mut self) {
        self.next = (Instant::now() + self.timeouts.silent).min(self.last);
    }

    /// Ends the call after this time at the latest.
    pub fn shorten(&mut self, drain: Duration) {
        let end = Instant::now() + drain;
        (self.next, self.last) = (self.next.min(end), self.last.min(end));
    }
}
