//! TCP and TLS connections with a time limit.

use std::{
    io,
    net::{TcpStream, ToSocketAddrs},
    sync::Arc,
    time::{Duration, Instant},
};

use rustls::{ClientConfig, RootCertStore, crypto::ring};
use ureq::http::Uri;

/// Whose signature makes a certificate valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roots {
    /// The authorities of Mozilla, compiled in.
    Bundled,
    /// The authorities of this machine (`SSL_CERT_FILE`, `SSL_CERT_DIR`).
    System,
}

impl Roots {
    /// Reads the authorities.
    ///
    /// # Errors
    /// The authorities of this machine cannot be read, or it has none.
    pub fn store(self) -> Result<RootCertStore, String> {
        let mut store = RootCertStore::empty();
        match self {
            Self::Bundled => store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Self::System => {
                let found = rustls_native_certs::load_native_certs();
                store.add_parsable_certificates(found.certs);
                if store.is_empty() {
                    let reason = found
                        .errors
                        .first()
                        .map_or_else(|| "it has none".to_owned(), ToString::to_string);
                    return Err(format!(
                        "the certificate authorities of this machine cannot be read: {reason}"
                    ));
                }
            }
        }
        Ok(store)
    }
}

/// The settings of a TLS client that trusts the bundled authorities, as requests over `https://` do.
///
/// # Errors
/// The library refuses its own settings.
pub fn tls_config() -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(Roots::Bundled.store()?)
        .with_no_client_auth();
    Ok(Arc::new(config))
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
