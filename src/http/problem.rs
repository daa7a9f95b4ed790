use actix_web::{HttpResponse, http::StatusCode};
use serde_json::json;

/// An error of the HTTP side (RFC 9457), with a code of the contract.
pub fn problem(status: StatusCode, code: &str, detail: &str) -> HttpResponse {
    HttpResponse::build(status)
        .content_type("application/problem+json")
        .body(
            json!({
                "type": "about:blank",
                "title": status.canonical_reason().unwrap_or(""),
                "status": status.as_u16(),
                "code": code,
                "detail": detail,
            })
            .to_string(),
        )
}
