//! Content negotiation: the media types of a request's body and of its answer.

use actix_web::http::{
    StatusCode,
    header::{self, HeaderMap},
};

use super::refusal::Refusal;
use api::mcp::{
    ResponseForm,
    rpc::{INVALID_REQUEST, RpcError},
};

/// The media types that a caller accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepts {
    json: bool,
    events: bool,
    /// Events were named before JSON.
    prefers_events: bool,
}

impl Accepts {
    /// A caller that accepts events only.
    pub const EVENTS: Self = Self {
        json: false,
        events: true,
        prefers_events: true,
    };

    /// Whether events are accepted.
    pub fn events(self) -> bool {
        self.events
    }

    /// The form of an answer. A caller that names events first gets events, even for an answer that is ready at once.
    pub fn form(self) -> ResponseForm {
        match (self.json, self.events) {
            (true, true) if !self.prefers_events => ResponseForm::Either,
            (true, true) => ResponseForm::Events,
            (false, true) => ResponseForm::EventsOnly,
            (_, false) => ResponseForm::Whole,
        }
    }
}

/// Parses `Accept`; without it everything is accepted (RFC 9110, section 12.5.1).
///
/// # Errors
/// 406 when neither JSON nor events are accepted.
pub fn accepts(headers: &HeaderMap) -> Result<Accepts, Refusal> {
    let mut accepts = Accepts {
        json: false,
        events: false,
        prefers_events: false,
    };
    let mut any = false;
    for value in headers.get_all(header::ACCEPT) {
        any = true;
        for range in value.to_str().unwrap_or("").split(',') {
            let mut parts = range.split(';').map(str::trim);
            let range = parts.next().unwrap_or("");
            let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            if weight.and_then(|weight| weight.parse().ok()) == Some(0.0) {
                continue;
            }
            if ["application/json", "application/*", "*/*"]
                .iter()
                .any(|known| range.eq_ignore_ascii_case(known))
            {
                accepts.json = true;
            }
            if ["text/event-stream", "text/*", "*/*"]
                .iter()
                .any(|known| range.eq_ignore_ascii_case(known))
            {
                accepts.prefers_events |= !accepts.json;
                accepts.events = true;
            }
        }
    }
    if !any {
        (accepts.json, accepts.events) = (true, true);
    }
    if accepts.json || accepts.events {
        return Ok(accepts);
    }
    Err(not_acceptable())
}

/// 406: the caller does not accept the form of the answer.
pub fn not_acceptable() -> Refusal {
    let error = RpcError::new(
        INVALID_REQUEST,
        "Not Acceptable: accept application/json and text/event-stream",
    );
    Refusal::new(StatusCode::NOT_ACCEPTABLE, error)
}

/// Checks the media type of the body.
///
/// # Errors
/// 415 when it is not JSON.
pub fn check_content_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        let kind = value.to_str().unwrap_or("").split(';').next().unwrap_or("").trim();
        kind.eq_ignore_ascii_case("application/json")
    });
    if is_json {
        return Ok(());
    }
    let error = RpcError::new(
        INVALID_REQUEST,
        "Unsupported Media Type: the Content-Type must be application/json",
    );
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name.parse().unwrap(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn form(accept: &[&str]) -> Option<ResponseForm> {
        let lines: Vec<_> = accept.iter().map(|value| ("accept", *value)).collect();
        accepts(&headers(&lines)).ok().map(Accepts::form)
    }

    #[test]
    fn the_accept_header_decides_the_form_of_the_answers() {
        for (accept, expected) in [
            (&[][..], Some(ResponseForm::Either)),
            (&["application/json, text/event-stream"], Some(ResponseForm::Either)),
            (&["application/json", "text/event-stream"], Some(ResponseForm::Either)),
            (&["*/*"], Some(ResponseForm::Either)),
            (
                &["APPLICATION/JSON;q=0.5,Text/Event-Stream"],
                Some(ResponseForm::Either),
            ),
            (&["text/event-stream, application/json"], Some(ResponseForm::Events)),
            (&["text/event-stream"], Some(ResponseForm::EventsOnly)),
            (&["text/*"], Some(ResponseForm::EventsOnly)),
            (&["application/json"], Some(ResponseForm::Whole)),
            (&["application/*"], Some(ResponseForm::Whole)),
            (
                &["application/json;q=0, text/event-stream"],
                Some(ResponseForm::EventsOnly),
            ),
            (&["text/event-stream; q=0.0, */*;q=0.1"], Some(ResponseForm::Either)),
            (&["text/html"], None),
            (&[""], None),
        ] {
            assert_eq!(form(accept), expected, "{accept:?}");
        }
    }
}
