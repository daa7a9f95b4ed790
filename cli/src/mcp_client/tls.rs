//! TCP and TLS connections with a time limit.

use std::{
    io,
    net::{TcpStream, ToSocketAddrs},
    sync::Arc,
    time::{Duration, Instant},
};

use rustls::ClientConfig;
use ureq::http::Uri;

use common::tls::{self, Roots};

/// The settings of a TLS client that trusts the authorities of the user, as requests over `https://` do.
///
/// # Errors
/// The library refuses its own settings.
pub fn tls_config() -> Result<Arc<ClientConfig>, String> {
    tls::client_config(Roots::User.store()?).map(Arc::new)
}

/// Connects to the first address of a host that answers within `timeout`.
///
/// # Errors
/// The host has no address, or none of its addresses answers.
pub fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let until = Instant::now() + timeout;
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host.trim_start_matches('[').trim_end_matches(']'), port).to_socket_addrs()? {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                return Ok(stream);
            }
            Err(refused) => error = refused,
        }
    }
    Err(error)
}

/// The host and the port of an address, with the default port of its scheme.
pub fn split_address(url: &str) -> Option<(String, u16)> {
    let uri: Uri = url.parse().ok()?;
    let default = match uri.scheme_str()? {
        "https" | "wss" => 443,
        _ => 80,
    };
    Some((uri.host()?.to_owned(), uri.port_u16().unwrap_or(default)))
}
