//! The address of a server under load, and what each connection says first.

use std::net::{SocketAddr, ToSocketAddrs};

use test_client::websocket::upgrade_head;

use crate::error::{LoadError, Result};

/// The address of the server and the headers of each handshake. It holds keys: never print it.
#[derive(Clone)]
pub struct Target {
    pub address: SocketAddr,
    /// The request up to the headers of the caller.
    head: String,
    /// The headers of the caller, one per line.
    pub headers: String,
    pub upgrade: String,
}

impl Target {
    /// Resolves the address once: a name that changes its address during a run would mix two servers.
    pub fn parse(url: &str, headers: &[(&str, &str)]) -> Result<Self> {
        let bad = |reason: &str| LoadError::Url {
            url: url.into(),
            reason: reason.into(),
        };
        let rest = url
            .strip_prefix("ws://")
            .ok_or_else(|| bad("it must begin with ws://, TLS is not spoken here"))?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = if path.is_empty() { "/ws" } else { path };
        let with_port = if host.ends_with(']') || !host.contains(':') {
            format!("{host}:80")
        } else {
            host.into()
        };
        let mut found = with_port.to_socket_addrs().map_err(|e| bad(&e.to_string()))?;
        let address = found.next().ok_or_else(|| bad("the name has no address"))?;
        let target = Self {
            address,
            head: upgrade_head(host, path),
            headers: String::new(),
            upgrade: String::new(),
        };
        target.with(headers)
    }

    /// The same server with these headers and no others.
    pub fn with(&self, headers: &[(&str, &str)]) -> Result<Self> {
        let mut lines = String::new();
        for (name, value) in headers {
            if value.chars().any(char::is_control) {
                return Err(LoadError::Arguments(format!(
                    "the value of {name} holds a control character"
                )));
            }
            lines.extend([name, ": ", value, "\r\n"]);
        }
        Ok(Self {
            address: self.address,
            head: self.head.clone(),
            upgrade: format!("{}{lines}\r\n", self.head),
            headers: lines,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_default_port_path_and_headers() {
        let target = Target::parse("ws://127.0.0.1", &[("X-API-Key", "k")]).unwrap();
        assert_eq!(target.address.to_string(), "127.0.0.1:80");
        assert!(target.upgrade.starts_with("GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\n"));
        assert!(target.upgrade.ends_with("X-API-Key: k\r\n\r\n"));
        let other = target.with(&[("X-Project-ID", "p")]).unwrap().upgrade;
        assert!(other.ends_with("X-Project-ID: p\r\n\r\n") && !other.contains("X-API-Key"));
        assert!(Target::parse("wss://127.0.0.1", &[]).is_err());
        assert!(Target::parse("ws://127.0.0.1", &[("X-API-Key", "k\r\nX: y")]).is_err());
    }
}
