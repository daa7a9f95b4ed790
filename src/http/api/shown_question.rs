//! What the handlers of questions share: the id in the path, the question as a response, and the audit.

use actix_web::{
    HttpResponse,
    http::{StatusCode, header::ETAG},
};
use actors::model::{Question, QuestionContent, QuestionId};

use crate::http::extract::ApiError;
use api::{
    auth::{AuditedAction, Identity},
    problem::Problem,
    verbs::questions::question_view,
};
use common::json::write_json;

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
