//! Checks the `Host` and `Origin` headers of a request before anything else of it is read.

use std::sync::Arc;

use actix_http::{
    StatusCode,
    header::{HOST, HeaderMap, ORIGIN},
};

use crate::{hops, problem::Problem};

/// The allowed `Host` and `Origin` headers. They protect against DNS rebinding and against web pages of other sites
/// that call a broker on the user's own machine.
#[derive(Clone, Debug)]
pub struct Admission {
    hosts: Arc<[String]>,
    origins: Arc<[String]>,
}

const ANY: &str = "*";

impl Admission {
    /// Both lists are in lower case; hosts have no port, IPv6 addresses have no brackets. `*` allows every value.
    pub fn new(hosts: &[String], origins: &[String]) -> Self {
        Self {
            hosts: hosts.into(),
            origins: origins.into(),
        }
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
            return Err(forbidden(
                "this request has come from this broker itself: a backend must not lead back to it",
            ));
        }
        if headers.contains_key(ORIGIN) && !self.is_origin_allowed(headers) {
            return Err(forbidden("this Origin is not allowed: see cors_origins"));
        }
        Ok(())
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
        if self.origins.iter().any(|origin| origin == ANY) {
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
