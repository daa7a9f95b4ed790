//! Checks the `Host` and `Origin` headers of a request before anything else of it is read.

use std::sync::Arc;

use actix_http::{
    StatusCode,
    header::{HOST, HeaderMap, HeaderName, ORIGIN},
};

use crate::hops;
use api::{auth::cookie::is_from_another_site, problem::Problem};

/// The allowed `Host` and `Origin` headers. They protect against DNS rebinding and against web pages of other sites
/// that call a broker on the user's own machine.
#[derive(Clone, Debug)]
pub struct Admission {
    hosts: Arc<[String]>,
    origins: Arc<[String]>,
}

const ANY: &str = "*";

/// How the page that causes a request wants its answer, and for what (W3C, Fetch Metadata).
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

impl Admission {
    /// Both lists are in lower case; hosts have no port, IPv6 addresses have no brackets. `*` allows every value.
    pub fn new(hosts: &[String], origins: &[String]) -> Self {
        Self {
            hosts: hosts.into(),
            origins: origins.into(),
        }
    }

    /// Whether pages of every origin may call the broker.
    pub fn allows_every_origin(&self) -> bool {
        self.origins.iter().any(|origin| origin == ANY)
    }

    /// Checks `Host` and `Origin`.
    ///
    /// # Errors
    /// 403 with the setting that would allow the request.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if !self.is_host_allowed(headers) {
            return Err(forbidden("this Host is not allowed: see allowed_hosts"));
        }
        self.check_origin(headers)
    }

    /// Checks `Origin` only, and that the request has not come from this broker. Probes use this: a load balancer or a kubelet addresses the broker by IP, and asks for
    /// nothing secret.
    ///
    /// # Errors
    /// 403 with the setting that would allow the request.
    pub fn check_origin(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if hops::has_own_hop(headers) {
            return Err(forbidden(hops::LED_BACK));
        }
        if headers.contains_key(ORIGIN) && !self.is_origin_allowed(headers) {
            return Err(forbidden("this Origin is not allowed: see cors_origins"));
        }
        Ok(())
    }

    /// Refuses a request that a page of another site causes, such as one in its frame, unless its origin is allowed. A
    /// link may lead to a page of the broker (`is_page`), which then has the window for itself.
    ///
    /// # Errors
    /// 403.
    pub fn check_site(&self, headers: &HeaderMap, is_page: bool) -> Result<(), Problem> {
        let says = |name: &HeaderName, text: &str| headers.get(name).is_some_and(|value| value == text);
        let is_link = is_page && says(&SEC_FETCH_MODE, "navigate") && says(&SEC_FETCH_DEST, "document");
        if !is_from_another_site(headers) || is_link || self.is_origin_allowed(headers) {
            return Ok(());
        }
        Err(forbidden(
            "a page of another site caused this request: open the address itself, or see cors_origins",
        ))
    }

    fn is_host_allowed(&self, headers: &HeaderMap) -> bool {
        if self.hosts.iter().any(|host| host == ANY) {
            return true;
        }
        let mut given = headers.get_all(HOST);
        let (Some(host), None) = (given.next(), given.next()) else {
            return false;
        };
        let Ok(host) = host.to_str() else { return false };
        let name = without_port(host).to_ascii_lowercase();
        self.hosts.contains(&name)
    }

    /// An origin is allowed when it is the broker's own host, by HTTP or through a proxy by HTTPS, or is listed.
    fn is_origin_allowed(&self, headers: &HeaderMap) -> bool {
        if self.allows_every_origin() {
            return true;
        }
        let mut given = headers.get_all(ORIGIN);
        let (Some(origin), None) = (given.next(), given.next()) else {
            return false;
        };
        let Ok(origin) = origin.to_str().map(str::to_ascii_lowercase) else {
            return false;
        };
        let own = headers
            .get(HOST)
            .and_then(|host| host.to_str().ok())
            .is_some_and(|host| {
                let named = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
                named == Some(&host.to_ascii_lowercase())
            });
        own || self.origins.contains(&origin)
    }
}

fn forbidden(reason: &str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "forbidden", reason)
}

/// `name:port`, `[v6]:port`, `name` or `[v6]`, without port and brackets.
fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    }
}

#[cfg(test)]
mod tests {
    use actix_http::header::HeaderValue;

    use super::*;

    fn is_admitted(host: Option<&str>, origin: Option<&str>) -> bool {
        let hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let admission = Admission::new(&hosts, &["https://ops.example".to_owned()]);
        let mut headers = HeaderMap::new();
        for (name, value) in [(HOST, host), (ORIGIN, origin)] {
            if let Some(value) = value {
                headers.append(name, HeaderValue::from_str(value).unwrap());
            }
        }
        admission.check(&headers).is_ok()
    }

    #[test]
    fn a_page_of_another_site_causes_no_request_and_may_lead_to_a_page() {
        let admission = Admission::new(&["localhost".to_owned()], &["https://ops.example".to_owned()]);
        let admits = |is_page: bool, given: [&'static str; 3], origin: Option<&'static str>| {
            let names = ["sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest"].map(HeaderName::from_static);
            let mut headers = HeaderMap::new();
            for (name, value) in names.into_iter().zip(given).filter(|(_, value)| !value.is_empty()) {
                headers.insert(name, HeaderValue::from_static(value));
            }
            if let Some(origin) = origin {
                headers.insert(ORIGIN, HeaderValue::from_static(origin));
            }
            admission.check_site(&headers, is_page).is_ok()
        };
        for own in ["", "same-origin", "none"] {
            assert!(admits(false, [own, "cors", "empty"], None), "{own}");
            assert!(admits(true, [own, "navigate", "iframe"], None), "{own}");
        }
        for other in ["cross-site", "same-site", "new-word"] {
            assert!(admits(true, [other, "navigate", "document"], None), "{other}");
            for (is_page, mode, dest) in [
                (false, "navigate", "document"),
                (true, "navigate", "iframe"),
                (true, "navigate", ""),
                (true, "no-cors", "image"),
                (false, "no-cors", "empty"),
                (false, "websocket", "empty"),
            ] {
                assert!(!admits(is_page, [other, mode, dest], None), "{other} {mode} {dest}");
                assert!(
                    admits(is_page, [other, mode, dest], Some("https://ops.example")),
                    "{other}"
                );
            }
        }
    }

    #[test]
    fn only_allowed_hosts_and_origins_are_admitted() {
        for host in ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "[::1]"] {
            assert!(is_admitted(Some(host), None), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:8000",
            "",
            "127.0.0.1.evil.example",
        ] {
            assert!(!is_admitted(Some(host), None), "{host}");
        }
        assert!(!is_admitted(None, None));
        assert!(is_admitted(Some("localhost:8000"), Some("https://ops.example")));
        assert!(is_admitted(Some("localhost:8000"), Some("http://localhost:8000")));
        assert!(is_admitted(Some("localhost"), Some("https://localhost")));
        for origin in [
            "https://evil.example",
            "null",
            "http://localhost:8001",
            "https://ops.example.evil.example",
        ] {
            assert!(!is_admitted(Some("localhost:8000"), Some(origin)), "{origin}");
        }
    }
}
