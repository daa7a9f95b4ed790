//! The certificates of the servers that the broker reaches over TLS, and the authorities that it trusts.

use std::{fmt, net::TcpStream, sync::Arc, time::Duration};

use actors::{clock::rfc3339_text, locked::Locked};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use super::{findings::Finding, setup::Setup};
use crate::mcp_client::{connect_tcp, split_address};
use common::{config::StorageKind, tls::Roots};
use storage::redis::tls_servers;

/// Longest time of each read and write.
const TIMEOUT: Duration = Duration::from_secs(3);
/// A certificate that expires within this time is a warning.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 24 * 3600);
/// Most servers that are asked.
const SERVERS_MAX: usize = 8;

/// A server that the broker, or this command, reaches over TLS.
struct TlsServer {
    /// The setting that names it.
    setting: &'static str,
    host: String,
    port: u16,
    roots: Roots,
}

/// Asks each server for its certificate.
pub fn check(setup: &Setup) -> Vec<Finding> {
    let servers = servers(setup);
    if servers.is_empty() {
        return vec![Finding::ok("nothing is reached over TLS")];
    }
    let asked = servers.iter().take(SERVERS_MAX);
    std::thread::scope(|scope| {
        let running: Vec<_> = asked.map(|server| scope.spawn(|| finding(server))).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

fn servers(setup: &Setup) -> Vec<TlsServer> {
    let mut servers = Vec::new();
    let mut add_url = |setting, url: &str| {
        if let (true, Some((host, port))) = (url.starts_with("https://"), split_address(url)) {
            // The broker itself fetches the keys of an issuer, and trusts the bundled authorities.
            let roots = if setting == "--url" {
                Roots::User
            } else {
                Roots::Bundled
            };
            servers.push(TlsServer {
                setting,
                host,
                port,
                roots,
            });
        }
    };
    add_url("--url", &setup.access.url.text);
    if let Some(config) = setup.config() {
        add_url("jwt_jwks", config.jwt_jwks.as_deref().unwrap_or_default());
    }
    for variable in ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"] {
        add_url(variable, &setup.variable(variable).unwrap_or_default());
    }
    let redis = setup.config().filter(|config| config.storage == StorageKind::Redis);
    let redis = redis.and_then(|config| tls_servers(config.redis_address().ok()?.as_str()).ok());
    let redis = redis.unwrap_or_default();
    servers.extend(redis.into_iter().map(|(host, port)| TlsServer {
        setting: "redis_url",
        host,
        port,
        roots: Roots::System,
    }));
    servers
}

fn finding(server: &TlsServer) -> Finding {
    let TlsServer {
        setting,
        host,
        port,
        roots,
    } = server;
    let at = format!("the certificate of {host}:{port} ({setting})");
    let verdict = match verdict(server) {
        Ok(verdict) => verdict,
        Err(reason) => {
            return Finding::warning(format!("{at} cannot be checked: {reason}"))
                .cure("see whether the server runs and speaks TLS on that port");
        }
    };
    let (found, cure) = match verdict {
        Verdict::Valid => return Finding::ok(format!("{at} is valid for the next {} days", days(EXPIRES_SOON))),
        Verdict::ExpiresSoon(at_time) => {
            let found = format!("{at} expires soon{at_time}");
            return Finding::warning(found).cure("renew it on that server");
        }
        Verdict::Expired(at_time) => (format!("{at} has expired{at_time}"), "renew it on that server"),
        Verdict::OtherName => (
            format!("{at} is for other names"),
            "use a name that is in the certificate",
        ),
        Verdict::UnknownIssuer => {
            let cure = match roots {
                Roots::System | Roots::User => "name the file with its authority: SSL_CERT_FILE=/path/to/ca.pem",
                Roots::Bundled => "use a certificate of a public authority there",
            };
            (format!("{at} is signed by an authority that is not trusted"), cure)
        }
        Verdict::Invalid(reason) => (format!("{at} is not valid: {reason}"), "renew it on that server"),
    };
    Finding::error(found).cure(cure)
}

fn days(time: Duration) -> u64 {
    time.as_secs() / (24 * 3600)
}

/// What a certificate is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Valid,
    ExpiresSoon(Instant),
    Expired(Instant),
    OtherName,
    UnknownIssuer,
    Invalid(String),
}

/// A point of time, if it is known. Its text follows a verb.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Instant(Option<UnixTime>);

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(time) => write!(f, ": {}", rfc3339_text(time.as_secs() * 1000)),
            None => Ok(()),
        }
    }
}

impl From<Error> for Verdict {
    fn from(error: Error) -> Self {
        use CertificateError as Certificate;
        let Error::InvalidCertificate(error) = error else {
            return Self::Invalid(error.to_string());
        };
        match error {
            Certificate::ExpiredContext { not_after, .. } => Self::Expired(Instant(Some(not_after))),
            Certificate::Expired => Self::Expired(Instant(None)),
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => Self::OtherName,
            Certificate::UnknownIssuer => Self::UnknownIssuer,
            other => Self::Invalid(format!("{other:?}")),
        }
    }
}

/// Connects, and judges the certificate that the server shows. No data are sent.
fn verdict(server: &TlsServer) -> Result<Verdict, String> {
    let provider = Arc::new(ring::default_provider());
    let roots = Arc::new(server.roots.store()?);
    let inner = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
    let judge = Arc::new(Judge {
        inner: inner.map_err(|error| error.to_string())?,
        verdict: Locked::default(),
    });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(judge.clone())
        .with_no_client_auth();
    let name = ServerName::try_from(server.host.clone()).map_err(|error| error.to_string())?;
    let mut tls = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
    let mut tcp = connect_tcp(&server.host, server.port, TIMEOUT).map_err(|error| error.to_string())?;
    let shaken = shake_hands(&mut tls, &mut tcp);
    let verdict = judge.verdict.lock().take();
    // A server may refuse a client without a certificate after it has shown its own.
    verdict.ok_or_else(|| shaken.err().unwrap_or_else(|| "it shows none".to_owned()))
}

fn shake_hands(tls: &mut ClientConnection, tcp: &mut TcpStream) -> Result<(), String> {
    while tls.is_handshaking() {
        tls.complete_io(tcp).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Judges a certificate and accepts it in any case, so that the handshake continues. Nothing is sent afterwards.
#[derive(Debug)]
struct Judge {
    inner: Arc<WebPkiServerVerifier>,
    verdict: Locked<Option<Verdict>>,
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let judge = |time| {
            self.inner
                .verify_server_cert(certificate, others, name, ocsp, time)
                .err()
        };
        let later = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs()) + EXPIRES_SOON);
        let verdict = match (judge(now).map(Verdict::from), judge(later).map(Verdict::from)) {
            (Some(verdict), _) => verdict,
            (None, Some(Verdict::Expired(at))) => Verdict::ExpiresSoon(at),
            (None, _) => Verdict::Valid,
        };
        *self.verdict.lock() = Some(verdict);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
