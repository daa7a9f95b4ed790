//! Questions of a backend to its caller: a legacy backend sends a request in mid-call, a modern one answers with
//! `input_required`. A legacy caller gets requests and answers them; a modern one gets `input_required`, and repeats its request
//! with the answers (2026-07-28, basic/patterns/mrtr).

use std::{
    rc::Rc,
    sync::{Arc, LazyLock},
    time::Duration,
};

use actors::{
    clock::{millis, now},
    gateway::{BackendShared, InputRequest, Link},
    json,
    model::BackendEra,
};
use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use uuid::Uuid;

use super::{
    question::{QUESTIONS_MAX, URL_KEY, can_answer, note_asked, params_for_caller},
    request::{ForwardedRequest, Input},
};
use crate::mcp::{
    context::PeerContext,
    interactive::ANSWER_TIMEOUT,
    reply::ReplyTo,
    request_state::{RequestFingerprint, invalid_state},
    rpc::{INTERNAL_ERROR, MISSING_CAPABILITY, RpcError},
};
use common::json::{frame, scan};

/// Rounds of questions that a modern backend may ask a legacy caller in one call.
pub const ROUNDS_MAX: usize = 16;
/// Bytes of the state that a backend may give its caller to carry.
const STATE_BYTES_MAX: usize = 64 * 1024;
/// The members of a signed state: that of a backend, or the id of a parked call.
const BACKEND_STATE: &str = "state";
const PARKED_ID: &str = "parked";

/// Asks a legacy caller, in the place where its answer will go.
///
/// # Errors
/// It refuses, or does not answer in time.
pub async fn ask_legacy_caller(
    context: Rc<PeerContext>,
    to: ReplyTo,
    backend: &BackendShared,
    question: &InputRequest,
) -> Result<Value, RpcError> {
    let (id, answer) = context.client_requests.open();
    note_asked(&context, backend, question);
    let params = params_for_caller(&context, backend, question, false);
    to.notify(&context.outbox, frame::request(id, &question.method, params));
    if let Ok(Ok(outcome)) = timeout(ANSWER_TIMEOUT, answer).await {
        return outcome;
    }
    let reason = format!("{} was not answered", question.method);
    Err(RpcError::new(INTERNAL_ERROR, reason))
}

/// What a modern backend wants to know before it answers.
#[derive(Debug, Default)]
pub struct InputRequired {
    /// Its questions by key.
    questions: Vec<(String, InputRequest)>,
    /// The state that it wants back, as JSON.
    state: Option<String>,
}

impl InputRequired {
    /// The pages that a legacy backend wants its caller to open before the call is sent again.
    pub fn of_urls(pages: Vec<InputRequest>) -> Self {
        let keys = (1..).map(|number| format!("{URL_KEY}{number}"));
        Self {
            questions: keys.zip(pages).collect(),
            state: None,
        }
    }

    /// Reads a result. `None` for one that asks for nothing.
    ///
    /// # Errors
    /// It asks for something, and breaks a rule: which.
    pub fn read(result: &[u8], era: BackendEra) -> Result<Option<Self>, &'static str> {
        static FINDER: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(b"\"input_required\""));
        // Most results end here.
        if era == BackendEra::Legacy || FINDER.find(result).is_none() {
            return Ok(None);
        }
        let result = str::from_utf8(result).map_err(|_| "it is not UTF-8")?;
        let members = json::members(result).map_err(|_| "it is no object")?;
        let member = |name: &str| members.iter().find(|(key, _)| key == name).map(|(_, value)| *value);
        if member("resultType") != Some("\"input_required\"") {
            return Ok(None);
        }
        let mut questions = Vec::new();
        for (key, request) in
            json::members(member("inputRequests").unwrap_or("{}")).map_err(|_| "its questions are no object")?
        {
            let parts = json::members(request).map_err(|_| "one of its questions is no object")?;
            let part = |name: &str| parts.iter().find(|(key, _)| key == name).map(|(_, value)| *value);
            let method = part("method").and_then(scan::string);
            let method = method.ok_or("one of its questions has no method")?;
            let question = InputRequest {
                id: "null".into(),
                method: method.into(),
                params: part("params").unwrap_or("{}").into(),
            };
            questions.push((key.into_owned(), question));
        }
        if questions.len() > QUESTIONS_MAX {
            return Err("it asks more than 16 questions at once");
        }
        let state = member("requestState").map(str::to_owned);
        if state.as_ref().is_some_and(|state| state.len() > STATE_BYTES_MAX) {
            return Err("the state that it wants back has more than 64 KiB");
        }
        if questions.is_empty() && state.is_none() {
            return Err("it asks its caller for nothing");
        }
        Ok(Some(Self { questions, state }))
    }

    /// Checks that a caller with these capabilities can answer all of it.
    ///
    /// # Errors
    /// What it has not declared.
    pub fn check(&self, capabilities: &Map<String, Value>) -> Result<(), RpcError> {
        let mut questions = self.questions.iter();
        questions.try_for_each(|(_, question)| can_answer(capabilities, question))
    }

    /// Asks a legacy caller all questions at once. Returns what goes into the next request.
    ///
    /// # Errors
    /// It refuses one, or does not answer in time.
    pub async fn answered_by_legacy_caller(
        self,
        context: &Rc<PeerContext>,
        to: &ReplyTo,
        backend: &BackendShared,
    ) -> Result<Input, RpcError> {
        let asked = self.questions.iter().map(|(_, question)| {
            let (context, to) = (Rc::clone(context), to.clone());
            ask_legacy_caller(context, to, backend, question)
        });
        let answers = futures_util::future::try_join_all(asked).await?;
        let keys = self.questions.iter().map(|(key, _)| key.clone());
        let responses: Map<String, Value> = keys.zip(answers).collect();
        Ok(Input {
            responses: (!responses.is_empty()).then(|| Value::Object(responses).to_string()),
            state: self.state,
        })
    }
}

/// The error of a modern backend that needs more of its caller than the caller has declared. `None` for any other error.
pub fn missing_capability(error: &[u8]) -> Option<RpcError> {
    #[derive(Deserialize)]
    struct Missing {
        code: i32,
        message: String,
        data: Option<Value>,
    }
    let error: Missing = serde_json::from_slice(error).ok()?;
    (error.code == MISSING_CAPABILITY).then(|| RpcError {
        code: error.code,
        message: error.message.into(),
        data: error.data,
    })
}

/// What a modern caller has brought with its request.
#[derive(Debug, PartialEq, Eq)]
pub enum Brought {
    /// Nothing that was signed here: the request begins.
    Nothing,
    /// The state of a backend, as JSON.
    State(String),
    /// The id of a parked call, and the answers by the keys of its questions.
    Parked(Uuid, Map<String, Value>),
}

/// The key of a question of a parked call, by its position.
pub fn parked_key(at: usize) -> String {
    match at {
        0 => "input".to_owned(),
        at => format!("input-{}", at + 1),
    }
}

/// The states that modern callers carry for one request. A backend sees one client, the broker; so the broker signs what
/// belongs to one caller and one request, and another caller cannot bring it back.
pub struct States<'a> {
    context: &'a PeerContext,
    fingerprint: RequestFingerprint,
}

impl<'a> States<'a> {
    pub fn new(context: &'a PeerContext, backend: &BackendShared, method: &str, request: &ForwardedRequest) -> Self {
        let unchanging = json!([backend.name.as_str(), request.unchanging()]);
        Self {
            context,
            fingerprint: RequestFingerprint::new(&context.identity.owner_path(), method, &unchanging),
        }
    }

    /// Reads what the caller has brought.
    ///
    /// # Errors
    /// The state is not of this caller and this request, or has expired.
    pub fn read(&self, input: &Input) -> Result<Brought, RpcError> {
        let Some(state) = &input.state else {
            return Ok(Brought::Nothing);
        };
        let signer = &self.context.service.state_signer;
        let state: String = serde_json::from_str(state).map_err(|_| invalid_state())?;
        let mut content = signer.verify(&state, &self.fingerprint, now().unix_ms)?;
        if let Some(Value::String(state)) = content.remove(BACKEND_STATE) {
            return Ok(Brought::State(state));
        }
        let id = content.get(PARKED_ID).and_then(Value::as_str);
        let id = id.and_then(|id| id.parse().ok()).ok_or_else(invalid_state)?;
        let responses = input.responses.as_ref();
        let responses = responses.and_then(|text| serde_json::from_str(text).ok());
        Ok(Brought::Parked(id, responses.unwrap_or_default()))
    }

    fn sign(&self, member: &str, value: &str) -> String {
        let content = Map::from_iter([(member.to_owned(), Value::from(value))]);
        let expires_at = now().unix_ms + millis(ANSWER_TIMEOUT);
        let signer = &self.context.service.state_signer;
        signer.sign(&self.fingerprint, content, expires_at)
    }

    /// The result for a modern caller that a modern backend asks.
    pub fn input_required(&self, backend: &BackendShared, asked: &InputRequired) -> Vec<u8> {
        let state = asked.state.as_ref().map(|state| self.sign(BACKEND_STATE, state));
        let questions = asked.questions.iter();
        let questions = questions.map(|(key, question)| (key.as_str(), question));
        self.write(backend, questions, state.as_deref())
    }

    /// The result for a modern caller whose call is parked.
    pub fn parked(&self, backend: &BackendShared, id: Uuid, questions: &[InputRequest]) -> Vec<u8> {
        let state = self.sign(PARKED_ID, &id.to_string());
        let keys: Vec<String> = (0..questions.len()).map(parked_key).collect();
        let questions = keys.iter().map(String::as_str).zip(questions);
        self.write(backend, questions, Some(&state))
    }

    fn write<'q>(
        &self,
        backend: &BackendShared,
        questions: impl Iterator<Item = (&'q str, &'q InputRequest)>,
        state: Option<&str>,
    ) -> Vec<u8> {
        let asked: Vec<(&str, String)> = questions
            .map(|(key, question)| {
                let params = params_for_caller(self.context, backend, question, true);
                let method = json::string(&question.method);
                (key, format!("{{\"method\":{method},\"params\":{params}}}"))
            })
            .collect();
        let mut requests = Vec::new();
        json::write_object(&mut requests, asked.iter().map(|(key, text)| (*key, text.as_str())));
        let requests = String::from_utf8(requests).unwrap_or_default();
        let state = state.map(json::string);
        let mut members = vec![("resultType", "\"input_required\"")];
        if !asked.is_empty() {
            members.push(("inputRequests", &requests));
        }
        if let Some(state) = &state {
            members.push(("requestState", state));
        }
        let mut out = Vec::new();
        json::write_object(&mut out, members);
        out
    }
}

/// Ends a parked call whose caller does not come back, and frees its place when its instance ends.
pub fn forget_later(backend: Arc<BackendShared>, id: Uuid, link: Arc<dyn Link>) {
    actix_rt::spawn(async move {
        let too_late = Instant::now() + ANSWER_TIMEOUT + Duration::from_secs(1);
        if timeout_at(too_late, link.wait_until_closed()).await.is_ok() {
            backend.parked.vacate(id);
            sleep_until(too_late).await;
        }
        if let Some(parked) = backend.parked.take(id) {
            let link = parked.call.link();
            for question in &parked.questions {
                match &*question.method {
                    "elicitation/create" => link.answer(question, Ok("{\"action\":\"cancel\"}")),
                    _ => link.answer(
                        question,
                        Err("{\"code\":-32603,\"message\":\"the caller has not answered\"}"),
                    ),
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_asks_is_told_from_one_that_does_not() {
        let read = |text: &str| InputRequired::read(text.as_bytes(), BackendEra::Modern);
        let asks =
            r#"{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}},"requestState":"s"}"#;
        let asked = read(asks).unwrap().unwrap();
        assert_eq!(asked.state.as_deref(), Some("\"s\""));
        assert_eq!(
            (asked.questions[0].0.as_str(), &*asked.questions[0].1.method),
            ("a", "roots/list")
        );
        assert!(
            InputRequired::read(asks.as_bytes(), BackendEra::Legacy)
                .unwrap()
                .is_none()
        );
        for other in ["{}", r#"{"resultType":"complete","content":["\"input_required\""]}"#] {
            assert!(read(other).unwrap().is_none(), "{other}");
        }
        for wrong in [
            r#"{"resultType":"input_required"}"#,
            r#"{"resultType":"input_required","inputRequests":{"a":1}}"#,
            r#"{"resultType":"input_required","inputRequests":{"a":{}}}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let many: Vec<String> = (0..=QUESTIONS_MAX)
            .map(|at| format!(r#""{at}":{{"method":"roots/list"}}"#))
            .collect();
        let many = format!(
            r#"{{"resultType":"input_required","inputRequests":{{{}}}}}"#,
            many.join(",")
        );
        assert_eq!(read(&many).unwrap_err(), "it asks more than 16 questions at once");
        let long = "x".repeat(STATE_BYTES_MAX);
        assert!(read(&format!(r#"{{"resultType":"input_required","requestState":"{long}"}}"#)).is_err());
    }
}
