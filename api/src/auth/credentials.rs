//! Extracts credential, project and network of a request from its head. Whether a credential is valid is decided in the
//! parent module.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

use actix_http::{
    Method, RequestHead,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
};
use actors::model::BrokerError;
use percent_encoding::percent_decode_str;

use super::{cookie, login::LoginToken};

/// The header that names a project.
pub const PROJECT_ID: HeaderName = HeaderName::from_static("x-project-id");

/// What a request carries to authenticate its caller.
pub struct Credentials<'a> {
    pub method: &'a Method,
    pub headers: &'a HeaderMap,
    /// The query of the request's URI.
    pub query: Option<&'a str>,
    pub path: &'a str,
    pub address: Option<IpAddr>,
    /// The caller is a program of this machine that needs a key.
    pub stranger: Option<Stranger>,
}

/// Why a program of this machine needs a key, where the broker asks the kernel for its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// It runs as another user.
    OtherUser,
    /// The kernel does not know its user.
    UnknownUser,
}

/// What authenticates a caller.
pub enum Credential<'a> {
    /// An API key or a bearer token.
    Key(&'a str),
    /// The token of a login.
    Login(LoginToken),
    /// The text of a cookie that no login has made. It is never valid, even if it is a key: a page of another origin may send
    /// the cookie.
    NoLogin(&'a str),
}

/// The header with an API key.
pub const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Query parameters that probably carry a key.
const QUERY_KEY_NAMES: [&str; 10] = [
    "api_key",
    "api-key",
    "apikey",
    "x-api-key",
    "x_api_key",
    "key",
    "token",
    "access_token",
    "authorization",
    "admin_key",
];
/// Bytes of a header value; a longer one cannot be a credential.
const CREDENTIAL_LEN_MAX: usize = 16 * 1024;

impl<'a> Credentials<'a> {
    /// The credentials in the head of a request.
    pub fn of(head: &'a RequestHead) -> Self {
        Self {
            method: &head.method,
            headers: head.headers(),
            query: head.uri.query(),
            path: head.uri.path(),
            address: head.peer_addr.map(|address| address.ip()),
            stranger: None,
        }
    }

    /// Returns the credential of the request: that of a header, or else that of the cookie.
    ///
    /// # Errors
    /// `invalid_argument` when a header appears twice, both headers differ, or the query names a key; `forbidden` for a
    /// change with the cookie and without its CSRF token.
    pub fn credential(&self) -> Result<Option<Credential<'a>>, BrokerError> {
        self.check_query()?;
        if let Some(key) = self.credential_of_headers()? {
            return Ok(Some(Credential::Key(key)));
        }
        let Some(text) = cookie::text_in(self.headers, self.path) else {
            return Ok(None);
        };
        let Some(login) = LoginToken::parse(text) else {
            return Ok(Some(Credential::NoLogin(text)));
        };
        cookie::check_csrf_token(self.method, self.headers, &login)?;
        Ok(Some(Credential::Login(login)))
    }

    /// Whether the credential of the request is its cookie.
    pub fn is_cookie(&self) -> bool {
        matches!(self.credential_of_headers(), Ok(None)) && cookie::text_in(self.headers, self.path).is_some()
    }

    fn credential_of_headers(&self) -> Result<Option<&'a str>, BrokerError> {
        let key = single_value(self.headers, &API_KEY)?;
        let bearer = match single_value(self.headers, &AUTHORIZATION)? {
            None => None,
            Some(text) => text
                .split_once(' ')
                .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
                .map(|(_, token)| token.trim()),
        };
        match (key, bearer) {
            (Some(key), Some(bearer)) if key != bearer => Err(BrokerError::invalid(
                "X-API-Key",
                "differs from the key in Authorization: send one of them",
            )),
            (key, bearer) => Ok(key.or(bearer)),
        }
    }

    /// Refuses a request that carries a key in its URL: URLs end up in logs.
    ///
    /// # Errors
    /// `invalid_argument` when the query names a key.
    pub fn check_query(&self) -> Result<(), BrokerError> {
        if self.query.is_some_and(query_names_key) {
            let text =
                "a key must not be in a URL, because URLs end up in logs: send it as X-API-Key, and replace this key";
            return Err(BrokerError::invalid("query", text));
        }
        Ok(())
    }

    /// Whether the request has a key that is meant for this broker: an `X-API-Key`, or the cookie. `Authorization` alone
    /// may be meant for a proxy.
    pub fn has_api_key(&self) -> bool {
        self.headers.contains_key(&API_KEY) || self.is_cookie()
    }

    /// Returns the project that `X-Project-ID` names.
    ///
    /// # Errors
    /// `invalid_argument` when the header appears twice.
    pub fn project(&self) -> Result<Option<&'a str>, BrokerError> {
        single_value(self.headers, &PROJECT_ID)
    }

    /// The network of the caller; `None` without an address.
    pub fn network(&self) -> Option<Network> {
        self.address.map(Network::of)
    }
}

fn query_names_key(query: &str) -> bool {
    query
        .split(['&', ';'])
        .map(|pair| percent_decode_str(pair).decode_utf8_lossy())
        .filter_map(|pair| pair.split('=').next().map(str::to_owned))
        .any(|name| QUERY_KEY_NAMES.iter().any(|known| name.eq_ignore_ascii_case(known)))
}

/// The value of a header that may be given once.
///
/// # Errors
/// `InvalidArgument` for a header that is given twice.
pub fn only_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, BrokerError> {
    let mut values = headers.get_all(name);
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(BrokerError::invalid(name.as_str(), "given twice")),
        (value, None) => Ok(value),
    }
}

/// Returns the single value of a header; an empty value counts as absent.
fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, BrokerError> {
    let Some(value) = only_value(headers, name)? else {
        return Ok(None);
    };
    if value.len() > CREDENTIAL_LEN_MAX {
        let reason = format!("too long: at most {CREDENTIAL_LEN_MAX} bytes");
        return Err(BrokerError::invalid(name.as_str(), reason));
    }
    match value.to_str().map(str::trim) {
        Ok("") => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(BrokerError::invalid(name.as_str(), "not of visible ASCII characters")),
    }
}

/// The network of a caller, which groups the addresses of one host: an IPv4 address, or the /64 of an IPv6 address (RFC
/// 6177).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(IpAddr);

impl Network {
    /// The network of an address.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            address @ IpAddr::V4(_) => address,
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(headers: &[(&str, &str)], query: Option<&str>) -> Result<Option<String>, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let credentials = Credentials {
            method: &Method::GET,
            headers: &map,
            query,
            path: "/",
            address: None,
            stranger: None,
        };
        match credentials.credential() {
            Ok(Some(Credential::Key(key))) => Ok(Some(key.to_owned())),
            Ok(_) => Ok(None),
            Err(BrokerError::InvalidArgument { field, .. }) => Err(field),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_header_that_cannot_be_read_is_refused_for_what_it_is() {
        let refused = |value: HeaderValue| {
            let mut map = HeaderMap::new();
            map.insert(API_KEY, value);
            single_value(&map, &API_KEY).unwrap_err().to_string()
        };
        let long = HeaderValue::from_str(&"k".repeat(CREDENTIAL_LEN_MAX + 1)).unwrap();
        assert!(refused(long).contains("too long: at most"));
        assert!(refused(HeaderValue::from_bytes(b"k\xff").unwrap()).contains("not of visible ASCII"));
    }

    #[test]
    fn a_credential_is_in_one_of_two_headers() {
        let found = |headers: &[(&str, &str)]| credential(headers, None).unwrap();
        assert_eq!(found(&[("x-api-key", " k ")]).as_deref(), Some("k"));
        for scheme in ["Bearer", "bearer", "BEARER"] {
            assert_eq!(
                found(&[("authorization", &format!("{scheme} k"))]).as_deref(),
                Some("k")
            );
        }
        assert_eq!(
            found(&[("authorization", "Bearer k"), ("x-api-key", "k")]).as_deref(),
            Some("k")
        );
        for nothing in [
            &[][..],
            &[("x-api-key", "")],
            &[("authorization", "Basic k")],
            &[("authorization", "k")],
        ] {
            assert_eq!(found(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn two_different_credentials_are_refused() {
        assert!(credential(&[("authorization", "Bearer a"), ("x-api-key", "b")], None).is_err());
        assert!(credential(&[("x-api-key", "a"), ("x-api-key", "a")], None).is_err());
    }

    #[test]
    fn a_key_in_a_query_is_refused_even_beside_a_header() {
        for query in [
            "api_key=a",
            "x=1&ACCESS_TOKEN=a",
            "token",
            "a;key=1",
            "%61pi%5Fkey=a",
            "token%3Da",
        ] {
            assert_eq!(
                credential(&[("x-api-key", "k")], Some(query)),
                Err("query".to_owned()),
                "{query}"
            );
        }
        for query in [
            "",
            "session_id=a",
            "keys=1",
            "cursor=key",
            "%",
            "%4",
            "%zzkey",
            "%c3%a9=key",
        ] {
            assert!(credential(&[], Some(query)).is_ok(), "{query}");
        }
    }

    #[test]
    fn addresses_of_one_host_are_one_network() {
        let network = |text: &str| Network::of(text.parse().unwrap());
        assert_eq!(network("2001:db8:1:2:3::1"), network("2001:db8:1:2:ffff::9"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
        assert_ne!(network("10.0.0.2"), network("10.0.0.1"));
    }
}
