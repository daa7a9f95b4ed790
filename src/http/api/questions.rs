//! `/api/v1/questions`: questions of agents to people, and below `{question_id}` what people do with them, and its cancellation.

use std::{
    future::{Ready, ready},
    sync::Arc,
};

use actix_web::{
    FromRequest, HttpRequest, HttpResponse,
    dev::Payload,
    http::{
        StatusCode,
        header::{ETAG, IF_MATCH, LOCATION, TRANSFER_ENCODING},
    },
    web,
};
use actors::{
    desk::{Human, QuestionCursor, QuestionFilter, Reader, StateFilter},
    model::{AddressedTo, BrokerError, ConsoleId, Question, QuestionContent, QuestionId, Scope, Via},
};
use futures_util::future::LocalBoxFuture;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{desk_requests as documented, messages};
use crate::http::{
    extract::{Admin, ApiError, ApiResult, Caller, JsonArguments, ok, ok_text, parse_limit, parse_text},
    people::{NamedHuman, QuestionReader},
};
use api::{
    auth::{AuditedAction, Identity, only_value},
    problem::Problem,
    verbs::{
        arguments::Arguments,
        questions::{question_view, read_answer, read_question, read_reason},
    },
};
use common::json::{page::JsonPage, write_json};

const PAGE_LEN: usize = 100;
const PAGE_LEN_MAX: usize = 1000;

/// Selects questions.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Only questions of this state. `pending` questions are sorted by urgency, then by age; the others begin with the
    /// newest.
    #[param(pattern = "^(pending|answered|declined|expired|cancelled|all)$", default = "pending")]
    state: Option<String>,
    /// Only questions addressed to exactly this person, to this role, or to `desk`.
    #[param(max_length = 128)]
    to: Option<String>,
    /// Only questions of the session with this id or name.
    #[param(min_length = 1, max_length = 128)]
    asker: Option<String>,
    /// Only questions with this text in their summary or in the name of their asker, in any case.
    #[param(min_length = 1, max_length = 128)]
    q: Option<String>,
    /// Most questions of a page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// The questions that the caller may read: a member those of its own sessions, a person those that it may answer, handed
/// over or closed, an administrator all. They have a `summary` in place of their content. A page can be short, even empty,
/// and still be followed by another.
#[utoipa::path(get, path = "/api/v1/questions", operation_id = "list_questions", tag = "desk",
    params(ListQuery, documented::HumanHeaders), responses(
    (status = 200, description = "A page of the questions", body = rest::questions::Questions),
))]
pub async fn list(Caller(by): Caller, web::Query(query): web::Query<ListQuery>, named: NamedHuman) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let state = query.state.as_deref().map(|text| {
        let reason = "pending, answered, declined, expired, cancelled or all";
        StateFilter::parse(text).ok_or_else(|| BrokerError::invalid("state", reason))
    });
    let filter = QuestionFilter {
        state: state.transpose()?.unwrap_or_default(),
        to: query.to,
        asker: query.asker,
        text: query.q.map(|text| parse_text(&text)).transpose()?,
    };
    let after = query.cursor.map(|text| {
        QuestionCursor::parse(&text).ok_or_else(|| BrokerError::invalid("cursor", "not a cursor of this list"))
    });
    let after = after.transpose()?;
    let limit = parse_limit(query.limit, PAGE_LEN, PAGE_LEN_MAX)?;
    let reader = named.reading(&by).await?;
    let page = by
        .project
        .list_questions(&reader.reader(), &filter, limit, after)
        .await?;
    let mut text = JsonPage::new("questions");
    let last = text.push_all(&page.questions, |question| question_view(&by.project, question, None));
    let next = last.map(|last| QuestionCursor::behind(last)).or(page.next);
    ok_text(&by, text.finish(next.map(|next| next.to_string())))
}

/// A question with its content. A person who reads it has seen it.
#[utoipa::path(get, path = "/api/v1/questions/{question_id}", operation_id = "get_question", tag = "desk",
    params(documented::QuestionPath, documented::HumanHeaders), responses(
    (status = 200, description = "The question", body = rest::questions::Question,
        headers(("ETag" = String, description = "The revision, for If-Match"))),
))]
pub async fn show(Caller(by): Caller, named: NamedHuman, path: web::Path<String>) -> ApiResult {
    by.check_scope(Scope::Observer)?;
    let reader = named.reading(&by).await?;
    let (question, content) = by.project.question(parse_id(&path)?, &reader.reader()).await?;
    Ok(question_response(&by, StatusCode::OK, &question, &content))
}

/// Asks people a question in the name of a session, as the tool `clarify` does, without waiting. Requires the scope
/// `member`.
#[utoipa::path(post, path = "/api/v1/questions", operation_id = "ask_question", tag = "desk",
    request_body = documented::AskQuestion, responses(
    (status = 201, description = "The question is asked", body = rest::questions::Question,
        headers(("Location" = String, description = "The path of the question"))),
    (status = 200, description = "The session asked with this idempotency key before: the earlier question",
        body = rest::questions::Question),
    (status = 409, description = "The session was taken over"),
))]
pub async fn ask(Caller(by): Caller, body: JsonArguments) -> ApiResult {
    by.check_scope(Scope::Member)?;
    let mut arguments = body.arguments()?;
    let from = arguments.required_text("from")?.into_owned();
    let new = read_question(&mut arguments)?;
    arguments.finish()?;
    let asker = messages::sender(&by, &from, false).await?;
    let asked = by.project.ask(&asker, new).await?;
    let reader = QuestionReader::Asker(by.owner().clone());
    let content = by.project.question_content(asked.question.id, &reader.reader()).await?;
    let status = if asked.is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let mut response = question_response(&by, status, &asked.question, &content);
    let location = format!("/api/v1/questions/{}", asked.question.id);
    if let Ok(location) = location.parse() {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// Forgets a question with its content and its drafts, open or closed. Requires the scope `admin`.
#[utoipa::path(delete, path = "/api/v1/questions/{question_id}", operation_id = "remove_question", tag = "desk",
    params(documented::QuestionPath), responses((status = 204, description = "The question is forgotten")))]
pub async fn remove(admin: Admin, Caller(by): Caller, path: web::Path<String>) -> ApiResult {
    let act = audited("question.remove", &path);
    let removed = match by.check_scope(Scope::Admin) {
        Ok(()) => by.project.remove_question(parse_id(&path)?).await,
        Err(error) => Err(error),
    };
    match removed {
        Ok(()) => admin.audit().record_done(&by, &act),
        Err(error) => {
            admin.audit().record_refused(&by, &act, &error);
            return Err(error.into());
        }
    }
    Ok(HttpResponse::NoContent().finish())
}

/// The id of a question in a path. A text that cannot be an id names no question.
pub fn parse_id(text: &str) -> Result<QuestionId, ApiError> {
    QuestionId::parse(text).ok_or_else(|| {
        let problem = Problem::new(StatusCode::NOT_FOUND, "question_not_found", "no such question");
        ApiError::from(problem)
    })
}

/// A question as a response, with its revision as `ETag`.
pub fn question_response(
    by: &Identity,
    status: StatusCode,
    question: &Question,
    content: &QuestionContent,
) -> HttpResponse {
    let mut text = Vec::new();
    write_json(&mut text, &question_view(&by.project, question, Some(content)));
    by.charge_answer(text.len());
    HttpResponse::build(status)
        .insert_header((ETAG, format!("\"{}\"", question.revision)))
        .content_type("application/json")
        .body(text)
}

/// An action on a question, for the audit.
pub fn audited(action: &'static str, id: &str) -> AuditedAction {
    AuditedAction {
        action,
        project: None,
        target: Some(id.to_owned()),
    }
}

/// Bytes of the JSON of a draft. The project has a bound of its own, in bytes of text, which is lower.
const DRAFT_JSON_MAX: usize = 1024 * 1024;

/// A body of arguments, which may be absent.
pub struct OptionalArguments(Option<JsonArguments>);

impl FromRequest for OptionalArguments {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let headers = request.headers();
        let len = headers.get("content-length").and_then(|len| len.to_str().ok());
        if !headers.contains_key(TRANSFER_ENCODING) && len.is_none_or(|len| len == "0") {
            return Box::pin(ready(Ok(Self(None))));
        }
        let body = JsonArguments::from_request(request, payload);
        Box::pin(async move { body.await.map(|body| Self(Some(body))) })
    }
}

impl OptionalArguments {
    fn arguments(&self) -> Result<Arguments<'_>, BrokerError> {
        match &self.0 {
            Some(body) => body.arguments(),
            None => Ok(Arguments::new(Vec::new())?.exact()),
        }
    }
}

/// The header `If-Match`: the revision that the person has seen, in quotes.
pub struct IfMatch(Option<u64>);

impl FromRequest for IfMatch {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let value = only_value(request.headers(), &IF_MATCH).map_err(ApiError::from);
        ready(value.map(|value| {
            let text = value.map(|value| value.to_str().unwrap_or_default().trim());
            Self(text.filter(|text| *text != "*").map(|text| {
                let tag = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
                // No question has the last revision: a tag that is none of ours does not hold.
                tag.and_then(|tag| tag.parse().ok()).unwrap_or(u64::MAX)
            }))
        }))
    }
}

/// The arguments `console` and `via`.
fn read_console(arguments: &mut Arguments<'_>) -> Result<Option<ConsoleId>, BrokerError> {
    let text = arguments.text("console")?;
    let console = text.map(|text| {
        let parsed = ConsoleId::parse(&text);
        parsed.ok_or_else(|| BrokerError::invalid("console", "not the id of a console"))
    });
    console.transpose()
}

fn read_via(arguments: &mut Arguments<'_>) -> Result<Via, BrokerError> {
    match arguments.text("via")?.as_deref() {
        None => Ok(Via::Api),
        Some("console") => Ok(Via::Console),
        Some("web") => Ok(Via::Web),
        Some(_) => Err(BrokerError::invalid("via", "console, web, or absent")),
    }
}

/// Answers with the question, and records who did what with it from where.
async fn changed(
    admin: &Admin,
    by: &Identity,
    human: &Human,
    action: &'static str,
    result: Result<Arc<Question>, BrokerError>,
) -> ApiResult {
    let question = result?;
    let act = audited(action, &question.id.to_string());
    admin.audit().record_done_by_person(by, human.name.as_str(), &act);
    respond(by, &question, &Reader::Human(human)).await
}

/// The question with its content.
async fn respond(by: &Identity, question: &Question, reader: &Reader<'_>) -> ApiResult {
    // A person who has changed the question may read it, also after a handover to another person.
    let content = by.project.question_content(question.id, reader).await?;
    Ok(question_response(by, StatusCode::OK, question, &content))
}

/// A person opens a question to answer it. Others see it for ten minutes, longer while the person types; a claim of another
/// person ends.
#[utoipa::path(post, path = "/api/v1/questions/{question_id}/claim", operation_id = "claim_question", tag = "desk",
    params(documented::QuestionPath, documented::IfMatchHeader, documented::HumanHeaders),
    request_body = Option<documented::AtConsole>, responses(
    (status = 200, description = "The question", body = rest::questions::Question,
        headers(("ETag" = String, description = "The revision, for If-Match"))),
    (status = 409, description = "The question is closed: `state`, `by` and `at` say how"),
    (status = 412, description = "If-Match does not hold: `revision` is the present one"),
))]
pub async fn claim(
    admin: Admin,
    Caller(by): Caller,
    named: NamedHuman,
    IfMatch(revision): IfMatch,
    path: web::Path<String>,
    body: OptionalArguments,
) -> ApiResult {
    let mut arguments = body.arguments()?;
    let console = read_console(&mut arguments)?;
    arguments.finish()?;
    let human = named.acting(&by, Via::Api).await?;
    let result = by
        .project
        .claim_question(parse_id(&path)?, &human, console, revision)
        .await;
    changed(&admin, &by, &human, "question.claim", result).await
}

/// The person gives up their claim: the question waits again.
#[utoipa::path(post, path = "/api/v1/questions/{question_id}/release", operation_id = "release_question", tag = "desk",
    params(documented::QuestionPath, documented::HumanHeaders), request_body = Option<documented::Nothing>, responses(
    (status = 200, description = "The question", body = rest::questions::Question),
    (status = 409, description = "The question is closed: `state`, `by` and `at` say how"),
))]
pub async fn release(
    Caller(by): Caller,
    named: NamedHuman,
    path: web::Path<String>,
    body: OptionalArguments,
) -> ApiResult {
    body.arguments()?.finish()?;
    let human = named.acting(&by, Via::Api).await?;
    let question = by.project.release_question(parse_id(&path)?, &human).await?;
    respond(&by, &question, &Reader::Human(&human)).await
}

/// Hands a question over to another person, to a role, or back to the desk. It keeps its age and its place.
#[utoipa::path(post, path = "/api/v1/questions/{question_id}/handover", operation_id = "hand_over_question", tag = "desk",
    params(documented::QuestionPath, documented::HumanHeaders), request_body = documented::Handover, responses(
    (status = 200, description = "The question", body = rest::questions::Question),
    (status = 409, description = "The question is closed: `state`, `by` and `at` say how"),
))]
pub async fn hand_over(
    admin: Admin,
    Caller(by): Caller,
    named: NamedHuman,
    path: web::Path<String>,
    body: JsonArguments,
) -> ApiResult {
    let mut arguments = body.arguments()?;
    let to = AddressedTo::from(arguments.required_text("to")?.into_owned());
    let note = arguments.text("note")?.map(std::borrow::Cow::into_owned);
    arguments.finish()?;
    let human = named.acting(&by, Via::Api).await?;
    let result = by.project.hand_over_question(parse_id(&path)?, &human, to, note).await;
    changed(&admin, &by, &human, "question.handover", result).await
}

/// Answers a question. The agent gets the answer in its inbox, and where it waits, as the result of its call. Of several
/// answers the first counts.
#[utoipa::path(post, path = "/api/v1/questions/{question_id}/answer", operation_id = "answer_question", tag = "desk",
    params(documented::QuestionPath, documented::IfMatchHeader, documented::HumanHeaders),
    request_body = documented::AnswerQuestion, responses(
    (status = 200, description = "The answered question", body = rest::questions::Question),
    (status = 409, description = "The question is closed: `state`, `by` and `at` say how. The text is kept as a draft"),
    (status = 412, description = "If-Match does not hold: `revision` is the present one"),
))]
pub async fn answer(
    admin: Admin,
    Caller(by): Caller,
    named: NamedHuman,
    IfMatch(revision): IfMatch,
    path: web::Path<String>,
    body: JsonArguments,
) -> ApiResult {
    let mut arguments = body.arguments()?;
    let via = read_via(&mut arguments)?;
    let answer = read_answer(&mut arguments)?;
    arguments.finish()?;
    let human = named.acting(&by, via).await?;
    let result = by
        .project
        .answer_question(parse_id(&path)?, &human, answer, revision)
        .await;
    changed(&admin, &by, &human, "question.answer", result).await
}

/// Declines a question: the agent gets the reason, and no answer.
#[utoipa::path(post, path = "/api/v1/questions/{question_id}/decline", operation_id = "decline_question", tag = "desk",
    params(documented::QuestionPath, documented::IfMatchHeader, documented::HumanHeaders),
    request_body = Option<documented::DeclineQuestion>, responses(
    (status = 200, description = "The declined question", body = rest::questions::Question),
    (status = 409, description = "The question is closed: `state`, `by` and `at` say how"),
    (status = 412, description = "If-Match does not hold: `revision` is the present one"),
))]
pub async fn decline(
    admin: Admin,
    Caller(by): Caller,
    named: NamedHuman,
    IfMatch(revision): IfMatch,
    path: web::Path<String>,
    body: OptionalArguments,
) -> ApiResult {
    let mut arguments = body.arguments()?;
    let via = read_via(&mut arguments)?;
    let reason = read_reason(&mut arguments)?;
    arguments.finish()?;
    let human = named.acting(&by, via).await?;
    let result = by
        .project
        .decline_question(parse_id(&path)?, &human, reason, revision)
        .await;
    changed(&admin, &by, &human, "question.decline", result).await
}

/// Cancels a question of a session of the caller, or with the scope `admin` any question. A closed question stays as it is.
#[utoipa::path(post, path = "/api/v1/questions/{question_id}/cancel", operation_id = "cancel_question", tag = "desk",
    params(documented::QuestionPath), request_body = Option<documented::CancelQuestion>, responses(
    (status = 200, description = "The question, cancelled or closed before", body = rest::questions::Question),
))]
pub async fn cancel(Caller(by): Caller, path: web::Path<String>, body: OptionalArguments) -> ApiResult {
    let mut arguments = body.arguments()?;
    let reason = read_reason(&mut arguments)?;
    arguments.finish()?;
    by.check_scope(Scope::Answer)?;
    let reader = QuestionReader::of_scope(&by)?;
    let question = by
        .project
        .cancel_question(parse_id(&path)?, &reader.reader(), reason)
        .await?;
    respond(&by, &question, &reader.reader()).await
}

/// The person types: their claim lasts on, or begins if no person has claimed the question.
#[utoipa::path(post, path = "/api/v1/questions/{question_id}/typed", operation_id = "typed_at_question", tag = "desk",
    params(documented::QuestionPath, documented::HumanHeaders), request_body = Option<documented::AtConsole>, responses(
    (status = 200, description = "The question", body = rest::questions::Question),
    (status = 409, description = "The question is closed: `state`, `by` and `at` say how"),
))]
pub async fn typed(
    Caller(by): Caller,
    named: NamedHuman,
    path: web::Path<String>,
    body: OptionalArguments,
) -> ApiResult {
    let mut arguments = body.arguments()?;
    let console = read_console(&mut arguments)?;
    arguments.finish()?;
    let human = named.acting(&by, Via::Api).await?;
    let question = by.project.typed_at_question(parse_id(&path)?, &human, console).await?;
    respond(&by, &question, &Reader::Human(&human)).await
}

/// What the person has written so far; no other person sees it.
#[utoipa::path(get, path = "/api/v1/questions/{question_id}/draft", operation_id = "get_draft", tag = "desk",
    params(documented::QuestionPath, documented::HumanHeaders), responses(
    (status = 200, description = "The draft; an empty text if there is none", body = documented::Draft),
))]
pub async fn draft(Caller(by): Caller, named: NamedHuman, path: web::Path<String>) -> ApiResult {
    let human = named.acting(&by, Via::Api).await?;
    let text = by.project.draft(parse_id(&path)?, &human).await?;
    ok(serde_json::json!({"text": text}))
}

/// Keeps what the person has written so far. An empty text removes it.
#[utoipa::path(put, path = "/api/v1/questions/{question_id}/draft", operation_id = "put_draft", tag = "desk",
    params(documented::QuestionPath, documented::HumanHeaders), request_body = documented::Draft, responses(
    (status = 200, description = "The draft as it is kept", body = documented::Draft),
))]
pub async fn put_draft(
    Caller(by): Caller,
    named: NamedHuman,
    path: web::Path<String>,
    body: JsonArguments,
) -> ApiResult {
    let mut arguments = body.arguments()?;
    let text: Option<String> = arguments.optional_within("text", DRAFT_JSON_MAX)?;
    let text = text.ok_or_else(|| BrokerError::invalid("text", "required"))?;
    arguments.finish()?;
    let human = named.acting(&by, Via::Api).await?;
    by.project.put_draft(parse_id(&path)?, &human, text.clone()).await?;
    ok(serde_json::json!({"text": text}))
}
