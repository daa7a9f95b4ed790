//! A question that is also put to the client of its asker: a form of MCP (elicitation) in the window of the agent.
//!
//! A legacy client gets a request in addition to the desk, and the first answer wins. A modern client gets the request as the
//! result of the call, which ends the wait: only where the operator wants the client to be asked first.

use std::{collections::BTreeMap, rc::Rc, sync::Arc};

use actors::{
    clock::{millis, now},
    desk::{Human, Reader},
    model::{AddressedTo, Answer, AnswerPart, BrokerError, Question, QuestionContent, QuestionItem, SessionName, Via},
};
use futures_util::future::LocalBoxFuture;
use serde_json::{Map, Value, json};

use super::wait::{Wait, own_question};
use crate::{
    mcp::{
        client_input::{ClarifyBy, ClientInput},
        context::PeerContext,
        interactive::{ANSWER_TIMEOUT, InputRequest, accepts_forms},
        outbox::Outbox,
        reply::{ReplyTo, ResultForm, ToolResult, with_era_members},
        request_state::RequestFingerprint,
        rpc::{Params, RpcError},
        version::Era,
    },
    verbs::questions::parse_id,
};
use common::json::{frame, write_json};

/// The name of a person who answers in the client of an agent, and whom the broker does not know.
const CLIENT_HUMAN: &str = "human";
/// The key of the request in a modern result.
const REQUEST_KEY: &str = "answer";
/// The member of the state that names the question.
const QUESTION_ID: &str = "question_id";
/// Characters of the context that the form shows.
const CONTEXT_SHOWN_MAX: usize = 2_000;

/// Reads what concerns input of a call; None if its client cannot be asked.
///
/// # Errors
/// Invalid params if the state belongs to another request.
pub fn read_input(context: &PeerContext, params: &Params<'_>, era: &Era) -> Result<Option<Rc<ClientInput>>, RpcError> {
    let by = context.service.clarify_by;
    let takes_forms = match era {
        _ if by == ClarifyBy::Desk => false,
        Era::Legacy => accepts_forms(&context.legacy.capabilities()),
        Era::Modern { capabilities } => by == ClarifyBy::ClientThenDesk && accepts_forms(capabilities),
    };
    if !takes_forms {
        return Ok(None);
    }
    if *era == Era::Legacy {
        let input = ClientInput {
            fingerprint: None,
            round: None,
        };
        return Ok(Some(Rc::new(input)));
    }
    let mut params: Map<String, Value> = params.parse()?;
    params.remove("_meta");
    let (responses, state) = (params.remove("inputResponses"), params.remove("requestState"));
    let fingerprint = RequestFingerprint::new(&context.identity.owner_path(), "tools/call", &Value::Object(params));
    let round = state.map(|state| {
        let state = state.as_str().unwrap_or_default();
        let mut known = context
            .service
            .state_signer
            .verify(state, &fingerprint, now().unix_ms)?;
        let question = known.remove(QUESTION_ID).and_then(|id| id.as_str().map(str::to_owned));
        let response = responses
            .as_ref()
            .map_or(Value::Null, |responses| responses[REQUEST_KEY].clone());
        Ok::<_, RpcError>((question.unwrap_or_default(), response))
    });
    Ok(Some(Rc::new(ClientInput {
        fingerprint: Some(fingerprint),
        round: round.transpose()?,
    })))
}

impl Wait {
    /// The question of the round before, with the response of the client applied; None in the first round.
    pub async fn round(&self) -> Result<Option<Arc<Question>>, BrokerError> {
        let round = self.to.input.as_ref().and_then(|input| input.round.as_ref());
        let Some((id, response)) = round else { return Ok(None) };
        let question = own_question(&self.caller, parse_id(id)?).await?;
        let reader = Reader::Asker(self.caller.owner());
        let content = self.caller.project().question_content(question.id, &reader).await?;
        if let Some(answer) = answer_in(&content, response) {
            self.answer_as_client(&question, answer).await;
        }
        Ok(Some(own_question(&self.caller, question.id).await?))
    }

    /// The result that asks a modern client for the answer; None if it is not to be asked.
    pub fn input_required(&self, question: &Question, content: &QuestionContent) -> Option<ToolResult> {
        let input = self.to.input.as_ref()?;
        let fingerprint = input.fingerprint.as_ref()?;
        if input.round.is_some() || !question.is_open() || !may_be_asked(question) {
            return None;
        }
        let state = Map::from_iter([(QUESTION_ID.to_owned(), json!(question.id))]);
        let signer = &self.caller.context.service.state_signer;
        let state = signer.sign(fingerprint, state, now().unix_ms + millis(ANSWER_TIMEOUT));
        let requests = json!({REQUEST_KEY: form(content).to_json()});
        let mut result = with_era_members(json!({"inputRequests": requests, "requestState": state}), true);
        result["resultType"] = json!("input_required");
        let mut text = Vec::new();
        write_json(&mut text, &result);
        Some(ToolResult::of_form(text, ResultForm::Whole))
    }

    /// Puts a question to a legacy client in addition to the desk, if no person is there. The future ends with the answer of the
    /// client; dropping it withdraws the request.
    pub async fn ask_client(
        &self,
        question: &Arc<Question>,
        content: Arc<QuestionContent>,
    ) -> Option<LocalBoxFuture<'_, ()>> {
        self.to.input.as_ref().filter(|input| input.fingerprint.is_none())?;
        if !may_be_asked(question) {
            return None;
        }
        let comes_first = self.caller.context.service.clarify_by == ClarifyBy::ClientThenDesk;
        if !comes_first && self.humans().await.present > 0 {
            return None;
        }
        let question = Arc::clone(question);
        Some(Box::pin(async move {
            let request = form(&content);
            let context = &self.caller.context;
            let (id, answer) = context.client_requests.open();
            let mut asked = AskedClient {
                to: &self.to,
                connection: &context.outbox,
                id,
                is_answered: false,
            };
            self.to.notify(&context.outbox, request.frame(id));
            let response = answer.await;
            asked.is_answered = true;
            // A client that declines closes this way only: the question stays at the desk.
            if let Ok(Ok(response)) = response
                && request.accepts(&response)
                && let Some(answer) = answer_in(&content, &response)
            {
                self.answer_as_client(&question, answer).await;
            }
        }))
    }

    /// Answers as the person at the client. Where another answer came first, or this one does not fit, the question
    /// tells how it ended.
    async fn answer_as_client(&self, question: &Question, answer: Answer) {
        let Ok(name) = SessionName::parse(CLIENT_HUMAN) else {
            return;
        };
        let human = Human {
            name,
            roles: Vec::new(),
            owner: self.caller.owner().clone(),
            is_name_fixed: true,
            is_agent: false,
            via: Via::Elicitation,
        };
        let project = self.caller.project();
        if let Err(error) = project.answer_question(question.id, &human, answer, None).await {
            tracing::debug!(project = %project.id(), %error, "an answer of a client was not taken");
        }
    }
}

/// A request to the client that is withdrawn unless it was answered.
struct AskedClient<'a> {
    to: &'a ReplyTo,
    connection: &'a Outbox,
    id: u64,
    is_answered: bool,
}

impl Drop for AskedClient<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            let params = json!({"requestId": self.id, "reason": "the question is answered, or its call has ended"});
            let cancelled = frame::notification("notifications/cancelled", params);
            self.to.notify(self.connection, cancelled);
        }
    }
}

/// Whether the person at the client may answer: any person may, and no secret goes through a client.
fn may_be_asked(question: &Question) -> bool {
    question.to == AddressedTo::Anyone && !question.is_sensitive
}

/// The form of a question: options are choices with their labels as titles.
fn form(content: &QuestionContent) -> InputRequest {
    let (mut properties, mut required, mut message) = (Map::new(), Vec::new(), String::new());
    for item in &content.items {
        let key = key_of(item);
        if !message.is_empty() {
            message.push('\n');
        }
        message.push_str(&item.question);
        let mut answer = answer_schema(item);
        if content.is_form {
            answer["title"] = json!(item.question.chars().take(200).collect::<String>());
        }
        properties.insert(key.to_owned(), answer);
        let has_other = !item.options.is_empty() && item.allow_other;
        if has_other {
            let title = if content.is_form {
                format!("Other ({key})")
            } else {
                "Other".to_owned()
            };
            properties.insert(other_key(item), json!({"type": "string", "title": title}));
        }
        if (item.required || !content.is_form) && !has_other {
            required.push(key.to_owned());
        }
    }
    if let Some(context) = &content.context {
        message.push_str("\n\n");
        message.extend(context.chars().take(CONTEXT_SHOWN_MAX));
    }
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    InputRequest::elicitation(&message, schema)
}

fn key_of(item: &QuestionItem) -> &str {
    if item.id.is_empty() { REQUEST_KEY } else { &item.id }
}

fn other_key(item: &QuestionItem) -> String {
    format!("{}_other", key_of(item))
}

fn answer_schema(item: &QuestionItem) -> Value {
    if item.options.is_empty() {
        return json!({"type": "string"});
    }
    let choices: Vec<_> = item
        .options
        .iter()
        .map(|option| json!({"const": option.value, "title": option.label}))
        .collect();
    if item.multi_select {
        return json!({"type": "array", "items": {"anyOf": choices}});
    }
    json!({"type": "string", "oneOf": choices})
}

/// The answer in the response of a client; None unless the person has accepted the form and filled in something.
fn answer_in(content: &QuestionContent, response: &Value) -> Option<Answer> {
    if response["action"] != "accept" {
        return None;
    }
    let given = response.get("content")?;
    let text_of = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let part_of = |item: &QuestionItem| {
        let value = &given[key_of(item)];
        let selected = match value {
            Value::Array(values) => values
                .iter()
                .filter_map(|value| value.as_str().map(str::to_owned))
                .collect(),
            value => text_of(value).into_iter().collect::<Vec<_>>(),
        };
        if item.options.is_empty() {
            return AnswerPart {
                text: text_of(value),
                ..AnswerPart::default()
            };
        }
        // With one chosen option, own words are what the person adds.
        let words = text_of(&given[other_key(item)]);
        let (other, text) = if selected.is_empty() {
            (words, None)
        } else {
            (None, words)
        };
        AnswerPart { selected, other, text }
    };
    if !content.is_form {
        let part = part_of(content.items.first()?);
        return Some(Answer {
            part,
            ..Answer::default()
        });
    }
    let is_given = |part: &AnswerPart| *part != AnswerPart::default();
    let answers: BTreeMap<_, _> = content
        .items
        .iter()
        .map(|item| (item.id.clone(), part_of(item)))
        .filter(|(_, part)| is_given(part))
        .collect();
    Some(Answer {
        answers: Some(answers),
        ..Answer::default()
    })
}

#[cfg(test)]
mod tests {
    use actors::model::QuestionChoice;

    use super::*;

    fn item(id: &str, options: &[&str], multi_select: bool) -> QuestionItem {
        let choice = |value: &&str| QuestionChoice {
            value: (*value).to_owned(),
            label: value.to_uppercase(),
            description: None,
        };
        QuestionItem {
            id: id.to_owned(),
            question: format!("{id}?"),
            options: options.iter().map(choice).collect(),
            multi_select,
            allow_other: true,
            required: false,
        }
    }

    #[test]
    fn options_are_choices_with_titles_and_come_back_as_their_values() {
        let content = QuestionContent {
            items: vec![item("", &["drop", "keep"], false)],
            ..QuestionContent::default()
        };
        let request = form(&content).to_json();
        let schema = &request["params"]["requestedSchema"];
        assert_eq!(
            schema["properties"]["answer"]["oneOf"],
            json!([{"const": "drop", "title": "DROP"}, {"const": "keep", "title": "KEEP"}])
        );
        let accepted = json!({"action": "accept", "content": {"answer": "drop", "answer_other": "but dump it"}});
        let answer = answer_in(&content, &accepted).unwrap();
        assert_eq!(
            (&*answer.part.selected[0], answer.part.text.as_deref()),
            ("drop", Some("but dump it"))
        );
        for action in ["decline", "cancel"] {
            assert_eq!(answer_in(&content, &json!({"action": action})), None);
        }
    }

    #[test]
    fn a_form_has_a_property_for_each_question() {
        let content = QuestionContent {
            items: vec![item("a", &[], false), item("b", &["x", "y"], true)],
            is_form: true,
            ..QuestionContent::default()
        };
        let request = form(&content).to_json();
        let properties = &request["params"]["requestedSchema"]["properties"];
        assert_eq!(properties["a"]["type"], "string");
        assert_eq!(
            properties["b"]["items"]["anyOf"][1],
            json!({"const": "y", "title": "Y"})
        );
        let accepted = json!({"action": "accept", "content": {"b": ["x", "y"]}});
        let answers = answer_in(&content, &accepted).unwrap().answers.unwrap();
        assert_eq!(answers.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(answers["b"].selected, ["x", "y"]);
    }
}
