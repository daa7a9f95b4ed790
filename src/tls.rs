//! What TLS connections of the broker to other servers trust.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore, crypto::ring};

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
