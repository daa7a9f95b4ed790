//! The cookie in which a browser keeps the token of its login, for `/api/v1` alone.
//!
//! A page of another origin cannot read it (`HttpOnly`) and does not send it (`SameSite=Strict`). A server at another port of
//! the same host does receive it, so it holds no key, and a page of that server can send it, so a change also needs a
//! second token, which only a page that reads answers of the broker can have.

use std::borrow::Cow;

use actix_http::{
    Method,
    header::{COOKIE, HOST, HeaderMap, HeaderName, ORIGIN},
};
use actors::model::BrokerError;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::Mac;

use super::login::LoginToken;

/// The header with the token that a change needs in addition to the cookie.
pub const CSRF_TOKEN: HeaderName = HeaderName::from_static("x-csrf-token");

/// The name of the cookie. The port of the `Host` follows, because cookies do not tell ports apart: each broker of a host has
/// a cookie of its own.
const NAME: &str = "mcp_broker_login";
/// Precedes the name over TLS: the browser accepts the cookie from this host alone, and over TLS alone (RFC 6265bis,
/// section 4.1.3.2).
const TLS_PREFIX: &str = "__Host-";
/// The paths at which the cookie is a credential begin with this.
const PATHS: &str = "/api/v1/";
/// What the CSRF token of a login is made of.
const CSRF_TEXT: &[u8] = b"mcp-broker csrf";

/// What browsers say of the page that causes a request, and no page can change (W3C, Fetch Metadata).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The text of the cookie of a request, where the cookie is a credential: at the paths of REST, and not from a page of
/// another origin (`Sec-Fetch-Site`, which every browser sends).
pub fn text_in<'a>(headers: &'a HeaderMap, path: &str) -> Option<&'a str> {
    if is_from_another_site(headers) || !path.starts_with(PATHS) {
        return None;
    }
    any_text_in(headers)
}

/// Whether a page of another origin caused a request.
pub fn is_from_another_site(headers: &HeaderMap) -> bool {
    let site = headers.get(SEC_FETCH_SITE).map(|site| site.as_bytes());
    site.is_some_and(|site| site != b"same-origin" && site != b"none")
}

/// The token in the cookie of a request to any path.
pub fn token_in(headers: &HeaderMap) -> Option<LoginToken> {
    any_text_in(headers).and_then(LoginToken::parse)
}

/// The cookie with the prefix comes first: a page without TLS, or of another host of the domain, may have set the other one.
fn any_text_in(headers: &HeaderMap) -> Option<&str> {
    let name = name_for(headers);
    let texts = [TLS_PREFIX, ""].map(|prefix| named_text_in(headers, prefix, &name));
    texts.into_iter().flatten().find(|text| !text.is_empty())
}

fn named_text_in<'a>(headers: &'a HeaderMap, prefix: &str, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(COOKIE).filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).map(str::trim);
    pairs.find_map(|pair| pair.strip_prefix(prefix)?.strip_prefix(name)?.strip_prefix('='))
}

/// The name of the cookie of a request, without the prefix.
fn name_for(headers: &HeaderMap) -> Cow<'static, str> {
    let port = text_of(headers, &HOST).rsplit_once(':').map(|(_, port)| port);
    match port.filter(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())) {
        Some(port) => format!("{NAME}_{port}").into(),
        None => NAME.into(),
    }
}

/// Checks that a request that authenticates by the cookie changes nothing, or has the CSRF token of the login.
///
/// # Errors
/// `forbidden` for a change without the CSRF token.
pub fn check_csrf_token(method: &Method, headers: &HeaderMap, login: &LoginToken) -> Result<(), BrokerError> {
    if [Method::GET, Method::HEAD, Method::OPTIONS].contains(method) {
        return Ok(());
    }
    let given = headers
        .get(CSRF_TOKEN)
        .and_then(|token| URL_SAFE_NO_PAD.decode(token.as_bytes()).ok());
    let is_right = given.is_some_and(|given| login.mac(CSRF_TEXT).verify_slice(&given).is_ok());
    is_right.then_some(()).ok_or_else(|| {
        BrokerError::forbidden("a change with the cookie needs the header X-CSRF-Token: GET /api/v1/me shows its value")
    })
}

/// The CSRF token that changes with the cookie of this login need.
pub fn csrf_token(login: &LoginToken) -> String {
    URL_SAFE_NO_PAD.encode(login.mac(CSRF_TEXT).finalize().into_bytes())
}

/// The value of `Set-Cookie` that keeps the token of a login until the browser ends. `headers` are those of the request.
pub fn keep(login: &LoginToken, headers: &HeaderMap) -> String {
    let prefix = if is_over_tls(headers) { TLS_PREFIX } else { "" };
    set_cookie(prefix, &name_for(headers), login.reveal(), "")
}

/// The values of `Set-Cookie` that remove the cookies of the request. A GET has no `Origin` to know TLS by, but the name of
/// its cookie shows it.
pub fn removals(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let name = name_for(headers);
    let sent = ["", TLS_PREFIX]
        .into_iter()
        .filter(move |prefix| named_text_in(headers, prefix, &name).is_some());
    sent.map(|prefix| set_cookie(prefix, &name_for(headers), "", " Max-Age=0;"))
}

fn set_cookie(prefix: &str, name: &str, value: &str, lifetime: &str) -> String {
    let secure = if prefix.is_empty() { "" } else { "; Secure" };
    format!("{prefix}{name}={value};{lifetime} Path=/; HttpOnly; SameSite=Strict{secure}")
}

/// Whether the browser has used TLS, as its `Origin` or the proxy in front of the broker says. A caller who lies about it
/// changes its own cookie only.
fn is_over_tls(headers: &HeaderMap) -> bool {
    let proto = text_of(headers, &X_FORWARDED_PROTO)
        .split(',')
        .next()
        .unwrap_or_default();
    text_of(headers, &ORIGIN).starts_with("https://") || proto.trim().eq_ignore_ascii_case("https")
}

fn text_of<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use actix_http::header::HeaderValue;
    use actors::model::ProjectId;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    fn login() -> LoginToken {
        LoginToken::generate(&ProjectId::default_project()).unwrap()
    }

    fn text_at(path: &str, pairs: &[(&str, &str)]) -> Option<String> {
        text_in(&headers(pairs), path).map(str::to_owned)
    }

    #[test]
    fn a_token_comes_back_from_its_cookie() {
        for (given, wanted) in [
            (headers(&[]), "Path=/; HttpOnly; SameSite=Strict"),
            (
                headers(&[("origin", "https://broker.example")]),
                "Path=/; HttpOnly; SameSite=Strict; Secure",
            ),
        ] {
            let login = login();
            let set = keep(&login, &given);
            let (pair, attributes) = set.split_once("; ").unwrap();
            assert_eq!(attributes, wanted);
            assert_eq!(pair.starts_with("__Host-"), wanted.contains("Secure"));
            let sent = headers(&[("cookie", &format!("theme=dark; {pair}; mcp_broker_login_2=x"))]);
            assert_eq!(token_in(&sent), Some(login));
        }
    }

    #[test]
    fn brokers_at_two_ports_of_a_host_have_two_cookies() {
        let (one, two) = (login(), login());
        let at = |port: u16| ("host", format!("localhost:{port}"));
        let pair_at = |login: &LoginToken, port| {
            let (name, host) = at(port);
            let set = keep(login, &headers(&[(name, &host)]));
            set.split(';').next().unwrap().to_owned()
        };
        let sent = format!("{}; {}", pair_at(&one, 8000), pair_at(&two, 80));
        for (port, wanted) in [(8000, Some(&one)), (80, Some(&two)), (800, None)] {
            let (name, host) = at(port);
            let found = token_in(&headers(&[(name, &host), ("cookie", &sent)]));
            assert_eq!(found.as_ref(), wanted, "{port}");
        }
        for host in ["broker.example", "[::1]", "localhost:", "localhost:x"] {
            assert!(
                keep(&one, &headers(&[("host", host)])).starts_with("mcp_broker_login="),
                "{host}"
            );
        }
    }

    #[test]
    fn the_cookie_is_a_credential_for_rest_from_the_own_origin() {
        let cookie = ("cookie", "mcp_broker_login=k");
        for path in [
            "/mcp",
            "/ws",
            "/metrics",
            "/sessions",
            "/api/v1",
            "/dashboard",
            "/x/api/v1/me",
        ] {
            assert_eq!(text_at(path, &[cookie]), None, "{path}");
        }
        for (site, text) in [
            ("same-origin", Some("k")),
            ("none", Some("k")),
            ("same-site", None),
            ("cross-site", None),
        ] {
            let found = text_at("/api/v1/me", &[cookie, ("sec-fetch-site", site)]);
            assert_eq!(found.as_deref(), text, "{site}");
        }
        for nothing in ["", "mcp_broker_login", "mcp_broker_login=", "xmcp_broker_login=k"] {
            assert_eq!(text_at("/api/v1/me", &[("cookie", nothing)]), None, "{nothing}");
        }
    }

    #[test]
    fn a_change_needs_the_csrf_token_of_its_own_login() {
        let (own, other) = (login(), login());
        let is_allowed =
            |method: &Method, token: &str| check_csrf_token(method, &headers(&[("x-csrf-token", token)]), &own).is_ok();
        assert!(is_allowed(&Method::POST, &csrf_token(&own)));
        for wrong in ["", "x", &csrf_token(&other), &csrf_token(&own)[1..]] {
            assert!(is_allowed(&Method::GET, wrong) && is_allowed(&Method::HEAD, wrong));
            for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                assert!(!is_allowed(&method, wrong), "{method} {wrong}");
            }
        }
    }

    #[test]
    fn the_cookie_is_secure_where_the_browser_used_tls() {
        for (name, value, is_secure) in [
            ("origin", "https://broker.example", true),
            ("origin", "http://broker.example", false),
            ("x-forwarded-proto", "https", true),
            ("x-forwarded-proto", "HTTPS, http", true),
            ("x-forwarded-proto", "http, https", false),
        ] {
            let set = keep(&login(), &headers(&[(name, value)]));
            assert_eq!(set.contains("; Secure"), is_secure, "{name}: {value}");
            assert_eq!(set.starts_with("__Host-"), is_secure, "{name}: {value}");
        }
    }

    #[test]
    fn the_cookie_of_tls_comes_first_and_each_that_came_is_removed() {
        let (plain, tls) = ("mcp_broker_login=p", "__Host-mcp_broker_login=t");
        for (sent, text, removed) in [
            (format!("{plain}; {tls}"), Some("t"), 2),
            (format!("{tls}; {plain}"), Some("t"), 2),
            (plain.to_owned(), Some("p"), 1),
            (tls.to_owned(), Some("t"), 1),
            ("__Host-mcp_broker_login=; mcp_broker_login=p".to_owned(), Some("p"), 2),
            ("theme=dark".to_owned(), None, 0),
        ] {
            let headers = headers(&[("cookie", &sent)]);
            assert_eq!(any_text_in(&headers), text, "{sent}");
            let removals: Vec<_> = removals(&headers).collect();
            assert_eq!(removals.len(), removed, "{sent}");
            for removal in removals {
                assert!(removal.contains("mcp_broker_login=; Max-Age=0;"), "{removal}");
                assert_eq!(
                    removal.starts_with("__Host-"),
                    removal.ends_with("; Secure"),
                    "{removal}"
                );
            }
        }
    }
}
