//! The cookie in which a browser keeps an API key, for `/api/v1` alone.
//!
//! The cookie is the key itself: the broker stores nothing, every replica accepts it, and it ends with the key. A page of
//! another origin cannot read it (`HttpOnly`) and does not send it (`SameSite=Strict`). A page of another port of the same
//! host does send it, so that a change also needs a token, which only a page that reads answers of the broker can have.

use std::borrow::Cow;

use actix_http::{
    Method,
    header::{COOKIE, HeaderMap, HeaderName, ORIGIN},
};
use actors::model::BrokerError;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use sha2::Sha256;

/// The header with the token that a change needs beside the cookie.
pub const CSRF_TOKEN: HeaderName = HeaderName::from_static("x-csrf-token");
/// Bytes of the longest value of the cookie: browsers drop a longer one without a word (RFC 6265, section 6.1).
const VALUE_LEN_MAX: usize = 3800;

const NAME: &str = "mcp_broker_key";
/// The paths at which the cookie is a credential begin with this.
const PATHS: &str = "/api/v1/";
/// What the token of a key is made of.
const CSRF_TEXT: &[u8] = b"mcp-broker csrf";
/// ASCII characters that are not allowed in the value of a cookie (RFC 6265, section 4.1.1), and the escape itself. The
/// keys of projects have none of them.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b',').add(b';').add(b'\\').add(b'%');

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The key in the cookie of a request, where the cookie is a credential: at the paths of REST, and not from a page of
/// another origin (`Sec-Fetch-Site`, which every browser sends).
pub fn key_in<'a>(headers: &'a HeaderMap, path: &str) -> Option<Cow<'a, str>> {
    if !path.starts_with(PATHS) {
        return None;
    }
    let site = headers.get(SEC_FETCH_SITE).map(|site| site.as_bytes());
    if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
        return None;
    }
    let pairs = headers.get_all(COOKIE).filter_map(|line| line.to_str().ok());
    let mut pairs = pairs.flat_map(|line| line.split(';'));
    let value = pairs.find_map(|pair| pair.trim().strip_prefix(NAME)?.strip_prefix('='))?;
    let key = percent_decode_str(value).decode_utf8().ok()?;
    (!key.is_empty()).then_some(key)
}

/// Checks that a request that authenticates by the cookie changes nothing, or has the token of the key.
///
/// # Errors
/// `forbidden` for a change without the token.
pub fn check_csrf_token(method: &Method, headers: &HeaderMap, key: &str) -> Result<(), BrokerError> {
    if [Method::GET, Method::HEAD, Method::OPTIONS].contains(method) {
        return Ok(());
    }
    let given = headers
        .get(CSRF_TOKEN)
        .and_then(|token| URL_SAFE_NO_PAD.decode(token.as_bytes()).ok());
    let is_right = given.is_some_and(|given| csrf_mac(key).verify_slice(&given).is_ok());
    is_right.then_some(()).ok_or_else(|| {
        BrokerError::forbidden("a change with the cookie needs the header X-CSRF-Token: GET /api/v1/me shows its value")
    })
}

/// The token that changes with the cookie of this key need.
pub fn csrf_token(key: &str) -> String {
    URL_SAFE_NO_PAD.encode(csrf_mac(key).finalize().into_bytes())
}

fn csrf_mac(key: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap_or_else(|never| unreachable!("{never}"));
    mac.update(CSRF_TEXT);
    mac
}

/// The value of `Set-Cookie` that keeps a key until the browser ends; None for a key that is too long for a cookie.
/// `headers` are those of the request.
pub fn keep(key: &str, headers: &HeaderMap) -> Option<String> {
    let value = utf8_percent_encode(key, ESCAPED).to_string();
    (value.len() <= VALUE_LEN_MAX).then(|| format!("{NAME}={value}; {}", attributes(headers)))
}

/// The value of `Set-Cookie` that removes the cookie.
pub fn remove(headers: &HeaderMap) -> String {
    format!("{NAME}=; Max-Age=0; {}", attributes(headers))
}

/// `Secure` where the browser has used TLS, as its `Origin` or the proxy in front of the broker says. A caller who lies
/// about it changes its own cookie only.
fn attributes(headers: &HeaderMap) -> String {
    let text_of = |name: &HeaderName| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let is_secure = text_of(&ORIGIN).starts_with("https://")
        || text_of(&X_FORWARDED_PROTO)
            .split(',')
            .next()
            .is_some_and(|proto| proto.trim().eq_ignore_ascii_case("https"));
    let secure = if is_secure { "; Secure" } else { "" };
    format!("Path=/; HttpOnly; SameSite=Strict{secure}")
}

#[cfg(test)]
mod tests {
    use actix_http::header::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    fn key_at(path: &str, pairs: &[(&str, &str)]) -> Option<String> {
        key_in(&headers(pairs), path).map(Cow::into_owned)
    }

    #[test]
    fn a_key_comes_back_from_its_cookie() {
        for key in ["team_k1_secret-A", r#"a;b,c"d\e%f=g"#, "eyJ.e30.x-_"] {
            let set = keep(key, &HeaderMap::new()).unwrap();
            let (pair, attributes) = set.split_once("; ").unwrap();
            assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Strict");
            let sent = format!("theme=dark; {pair}; mcp_broker_key_2=x");
            assert_eq!(key_at("/api/v1/me", &[("cookie", &sent)]).as_deref(), Some(key));
        }
        assert_eq!(keep(&"k".repeat(VALUE_LEN_MAX + 1), &HeaderMap::new()), None);
    }

    #[test]
    fn the_cookie_is_a_credential_for_rest_from_the_own_origin() {
        let cookie = ("cookie", "mcp_broker_key=k");
        for path in [
            "/mcp",
            "/ws",
            "/metrics",
            "/sessions",
            "/api/v1",
            "/dashboard",
            "/x/api/v1/me",
        ] {
            assert_eq!(key_at(path, &[cookie]), None, "{path}");
        }
        for (site, key) in [
            ("same-origin", Some("k")),
            ("none", Some("k")),
            ("same-site", None),
            ("cross-site", None),
        ] {
            let found = key_at("/api/v1/me", &[cookie, ("sec-fetch-site", site)]);
            assert_eq!(found.as_deref(), key, "{site}");
        }
        for nothing in [
            "",
            "mcp_broker_key",
            "mcp_broker_key=",
            "xmcp_broker_key=k",
            "mcp_broker_key=%ff",
        ] {
            assert_eq!(key_at("/api/v1/me", &[("cookie", nothing)]), None, "{nothing}");
        }
    }

    #[test]
    fn a_change_needs_the_token_of_its_own_key() {
        let is_allowed = |method: &Method, token: &str| {
            check_csrf_token(method, &headers(&[("x-csrf-token", token)]), "key").is_ok()
        };
        assert!(is_allowed(&Method::POST, &csrf_token("key")));
        for wrong in ["", "x", &csrf_token("another"), &csrf_token("key")[1..]] {
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
            let headers = headers(&[(name, value)]);
            for set in [keep("k", &headers).unwrap(), remove(&headers)] {
                assert_eq!(set.contains("; Secure"), is_secure, "{name}: {value}");
            }
        }
    }
}
