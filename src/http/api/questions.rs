//! `/api/v1/questions`: questions of agents to people. `answering` has what people do with them.

use actix_web::{
    HttpResponse,
    http::{StatusCode, header::LOCATION},
    web,
};
use actors::{
    desk::{QuestionCursor, QuestionFilter, StateFilter},
    model::{BrokerError, Scope},
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    desk_requests as documented, messages,
    shown_question::{audited, parse_id, question_response},
};
use crate::http::{
    extract::{Admin, ApiResult, Caller, JsonArguments, ok_text, parse_limit, parse_text},
    people::{NamedHuman, QuestionReader},
};
use api::verbs::questions::{question_view, read_question};
use common::json::page::JsonPage;

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
