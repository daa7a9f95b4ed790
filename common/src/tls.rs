//! What TLS connections of the broker to other servers trust.

use std::{path::Path, sync::Arc};

use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::CertificateDer};

/// Whose signature makes a certificate valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roots {
    /// The authorities of Mozilla, compiled in.
    Bundled,
    /// The authorities of this machine (`SSL_CERT_FILE`, `SSL_CERT_DIR`).
    System,
    /// Those that a command of a user trusts: [`user_certificates`], or those of Mozilla where there are none.
    User,
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
            Self::User => {
                store.add_parsable_certificates(user_certificates());
                if store.is_empty() {
                    return Self::Bundled.store();
                }
            }
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

/// Where systems keep all their authorities in one file.
const SYSTEM_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The authorities that `SSL_CERT_FILE` and `SSL_CERT_DIR` name, and next to them those of the system. Empty where there are
/// none.
pub fn user_certificates() -> Vec<CertificateDer<'static>> {
    let mut certificates = rustls_native_certs::load_native_certs().certs;
    let system = SYSTEM_FILES.iter().map(Path::new).find(|file| file.exists());
    for certificate in rustls_native_certs::load_certs_from_paths(system, None).certs {
        if !certificates.contains(&certificate) {
            certificates.push(certificate);
        }
    }
    certificates
}

/// The settings of a TLS client that trusts these authorities.
///
/// # Errors
/// The library refuses its own settings.
pub fn client_config(roots: RootCertStore) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}
