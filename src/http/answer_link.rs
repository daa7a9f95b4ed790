//! `/a/{link}`: a link in a notification, by which one question can be answered without a login. Only POST answers: programs
//! that show a preview of a link fetch it with GET.

#![allow(unused_qualifications, reason = "what utoipa writes")]

use std::{borrow::Cow, fmt::Write as _, sync::LazyLock};

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    dev::Payload,
    http::{
        Method, StatusCode,
        header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
    },
    web,
};
use actors::{
    desk::{Human, Reader},
    model::{
        Answer, AnswerPart, BrokerError, Closing, Owner, Question, QuestionContent, QuestionItem, SessionName, Via,
    },
    project::ProjectHandle,
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    backpressure, docs,
    extract::{ApiError, NoQuery},
    resource::Resource,
    state::StateData,
};
use crate::targets::AnswerLink;
use api::problem::Problem;

/// The route. `/openapi.json` describes it.
pub const ROUTE: &str = "/a/{link}";
/// Bytes of an answer: a text of 64 KiB, escaped.
const BODY_LEN_MAX: usize = 512 * 1024;
/// The name under which an answer by a link is given: a link tells nothing of who has it.
const HUMAN: &str = "answer-link";
const STYLE: &str = include_str!("answer_link.css");

static POLICY: LazyLock<String> = LazyLock::new(|| {
    let style = docs::hash(STYLE);
    format!("default-src 'none'; style-src {style}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
});

/// The resources of this file.
pub fn resources() -> Vec<Resource> {
    vec![
        Resource::at(ROUTE)
            .on(Method::GET, web::to(show))
            .on(Method::POST, web::to(answer)),
    ]
}

/// An answer by a link: a choice, a text, or both.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LinkAnswer {
    /// Values of the chosen options.
    #[schema(max_items = 20)]
    selected: Vec<String>,
    /// A text in place of an option.
    #[schema(max_length = 8000)]
    other: Option<String>,
    /// A text next to the option, or the whole answer.
    #[schema(max_length = 65536)]
    text: Option<String>,
}

/// The question behind a link, with a form to answer it. It changes nothing.
#[utoipa::path(get, path = "/a/{link}", operation_id = "show_answer_link", tag = "desk", security(()),
    params(("link" = String, Path, description = "From a notification")), responses(
    (status = 200, description = "The question", body = String, content_type = "text/html"),
    (status = 404, description = "No question has this link", body = String, content_type = "text/html"),
))]
pub async fn show(state: StateData, _: NoQuery, link: web::Path<String>) -> HttpResponse {
    match find(&state, &link).await {
        Ok(found) if found.question.is_open() => page(StatusCode::OK, &form(&found.question, &found.content)),
        Ok(found) => page(StatusCode::OK, &closed(&found.question)),
        Err(response) => response,
    }
}

/// Answers the question behind a link, as JSON or as the form of its page. The link is good until the question is closed.
#[utoipa::path(post, path = "/a/{link}", operation_id = "answer_by_link", tag = "desk", security(()),
    params(("link" = String, Path, description = "From a notification")), request_body = LinkAnswer, responses(
    (status = 200, description = "The question is answered", body = String, content_type = "text/html"),
    (status = 400, description = "The answer does not fit the question"),
    (status = 404, description = "No question has this link", body = String, content_type = "text/html"),
    (status = 409, description = "The question is closed", body = String, content_type = "text/html"),
))]
pub async fn answer(
    request: HttpRequest,
    payload: web::Payload,
    state: StateData,
    _: NoQuery,
    link: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let found = match find(&state, &link).await {
        Ok(found) => found,
        Err(response) => return Ok(response),
    };
    let given = read(&request, payload.into_inner()).await?;
    let human = Human {
        name: SessionName::parse(HUMAN)?,
        // The link acts as the person or role to whom the question is addressed.
        roles: vec![found.question.to.as_str().to_owned()],
        owner: Owner::anonymous(),
        is_name_fixed: true,
        is_agent: false,
        via: Via::Link,
    };
    let part = AnswerPart {
        selected: given.selected,
        other: given.other.filter(|text| !text.is_empty()),
        text: given.text.filter(|text| !text.is_empty()),
    };
    let answer = Answer {
        part,
        ..Answer::default()
    };
    let answered = found.project.answer_question(found.question.id, &human, answer, None);
    match answered.await {
        Ok(question) => Ok(page(StatusCode::OK, &closed(&question))),
        Err(BrokerError::QuestionClosed { .. }) => {
            let now = found.project.question_record(found.question.id, &Reader::Admin).await?;
            Ok(page(StatusCode::CONFLICT, &closed(&now)))
        }
        Err(error) => Err(error.into()),
    }
}

/// A question with what is needed to show and answer it.
struct Found {
    project: ProjectHandle,
    question: std::sync::Arc<Question>,
    content: std::sync::Arc<QuestionContent>,
}

/// The question of a link, or the answer that there is none. A sensitive question has no link.
async fn find(state: &StateData, link: &str) -> Result<Found, HttpResponse> {
    let unknown = || page(StatusCode::NOT_FOUND, "<h1>No question has this link</h1>");
    let signer = state.links.as_ref().ok_or_else(unknown)?;
    let link = AnswerLink::parse(signer, link).ok_or_else(unknown)?;
    let unavailable = || Problem::unavailable("the broker is starting").into_response();
    let ready = state.ready.get().ok_or_else(unavailable)?;
    let project = ready.broker.project(&link.project).await.map_err(|_| unknown())?;
    match project.question(link.question, &Reader::Admin).await {
        Ok((question, _)) if question.is_sensitive => Err(unknown()),
        Ok((question, content)) => Ok(Found {
            project,
            question,
            content,
        }),
        Err(BrokerError::QuestionNotFound { .. }) => Err(unknown()),
        Err(error) => Err(Problem::from(&error).into_response()),
    }
}

/// Reads a body of JSON or of a form.
async fn read(request: &HttpRequest, payload: Payload) -> Result<LinkAnswer, ApiError> {
    let content_type = request.content_type().to_owned();
    let (body, _reservation) = backpressure::read_body(request, payload, BODY_LEN_MAX).await?;
    let invalid = |reason: String| ApiError::from(BrokerError::invalid("body", reason));
    match &*content_type {
        "application/json" => serde_json::from_slice(&body).map_err(|error| invalid(error.to_string())),
        "application/x-www-form-urlencoded" => {
            let mut answer = LinkAnswer::default();
            for (name, value) in form_urlencoded::parse(&body) {
                match &*name {
                    "selected" => answer.selected.push(value.into_owned()),
                    "other" => answer.other = Some(value.into_owned()),
                    // Browsers end the lines of a text area with CR LF.
                    "text" => answer.text = Some(value.replace("\r\n", "\n")),
                    other => return Err(invalid(format!("no field of the form: {other:.64?}"))),
                }
            }
            Ok(answer)
        }
        _ => {
            let detail = "the body must be JSON or a form: application/json or application/x-www-form-urlencoded";
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_argument", detail).into())
        }
    }
}

fn page(status: StatusCode, body: &str) -> HttpResponse {
    HttpResponse::build(status)
        .insert_header((CONTENT_SECURITY_POLICY, POLICY.as_str()))
        .insert_header((CACHE_CONTROL, "no-store"))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        // The address is a secret. Without any referrer a browser would hide the origin of the form, too.
        .insert_header((REFERRER_POLICY, "same-origin"))
        .content_type("text/html; charset=utf-8")
        .body(format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>mcp-broker</title>\n\
             <style>{STYLE}</style>\n<body>{body}</body>\n</html>\n"
        ))
}

/// A text as the content or an attribute of an element.
fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>', '"', '\'']) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

fn asker(question: &Question) -> Cow<'_, str> {
    escaped(question.asker.name.as_ref().map_or("an agent", SessionName::as_str))
}

fn form(question: &Question, content: &QuestionContent) -> String {
    let mut html = format!("<p class=\"faint\">{} asks</p>", asker(question));
    let [item] = content.items.as_slice() else {
        html.push_str("<h1>Several questions</h1><p>Open the desk to answer them.</p>");
        return html;
    };
    // Writing to a string cannot fail.
    let _ = write!(html, "<h1>{}</h1>", escaped(&item.question));
    if let Some(context) = &content.context {
        let _ = write!(html, "<pre>{}</pre>", escaped(context));
    }
    if content.is_form {
        html.push_str("<p>Open the desk to answer it.</p>");
        return html;
    }
    // The form has no address: it is posted to that of the page.
    html.push_str("<form method=\"post\">");
    html.push_str(&options(item));
    html.push_str(
        "<label>Text<textarea name=\"text\" maxlength=\"65536\"></textarea></label><button>Answer</button></form>",
    );
    html
}

fn options(item: &QuestionItem) -> String {
    let kind = if item.multi_select { "checkbox" } else { "radio" };
    item.options.iter().fold(String::new(), |mut html, option| {
        let description = option.description.as_deref().unwrap_or_default();
        let _ = write!(
            html,
            "<label><input type=\"{kind}\" name=\"selected\" value=\"{}\"> {} <span class=\"faint\">{}</span></label>",
            escaped(&option.value),
            escaped(&option.label),
            escaped(description)
        );
        html
    })
}

fn closed(question: &Question) -> String {
    let how = match question.closed().map(|closed| &closed.how) {
        Some(Closing::Answered { by, .. } | Closing::Declined { by, .. }) => {
            format!("{} by {}", question.state_str(), escaped(by.human.as_str()))
        }
        _ => question.state_str().to_owned(),
    };
    format!(
        "<p class=\"faint\">{} asks</p><h1>{}</h1><p>This question is {how}.</p>",
        asker(question),
        escaped(&question.summary)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_shown_and_not_carried_out() {
        let hostile = "<script>alert(\"1\" & '2')</script>";
        let shown = escaped(hostile);
        assert_eq!(
            shown,
            "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;"
        );
        assert_eq!(escaped("plain"), "plain");
    }

    #[test]
    fn the_style_stays_in_its_element() {
        assert!(!STYLE.contains("</") && !STYLE.contains("url(") && !STYLE.contains('\r'));
    }
}
