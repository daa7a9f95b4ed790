//! Bearer tokens of an external issuer: JWTs signed with a key of its key set.
//!
//! The broker is a resource server (2025-11-25 and 2026-07-28, basic/authorization, "Token Handling"): it accepts only
//! tokens that the issuer made for it. Claims are believed after the signature is verified, with a key of the
//! configured set; `jku`, `jwk`, `x5u` and `x5c` of a header are not read.

mod claims;
mod fetch;
mod file;
mod key_cache;
mod keys;
mod settings;
mod token;

#[cfg(test)]
#[allow(dead_code, reason = "shared with the black-box tests")]
#[path = "../../../../tests/support/issuer.rs"]
mod issuer;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use sha2::{Digest, Sha256};

use self::{fetch::Fetcher, file::KeyFile, key_cache::KeyCache, settings::JwtTimings, token::Token};

pub use claims::{Claims, EXPIRED, LEEWAY_S};
pub use settings::{JwtSettings, KeySource};

/// Bytes of a token; a longer one is refused unread.
const TOKEN_LEN_MAX: usize = 8 * 1024;
/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwtError {
    /// The token is invalid. The reason is for the log: a client that reads it learns what to forge next.
    Invalid(&'static str),
    /// No keys have been fetched yet. The same token may be accepted later.
    Unavailable,
}

enum Source {
    File(KeyFile),
    Url(Fetcher),
}

/// Verifies the tokens of one issuer.
pub struct JwtVerifier {
    settings: JwtSettings,
    source: Source,
    key_cache: Arc<KeyCache>,
}

impl fmt::Debug for JwtVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Jwt").field(&self.settings).finish()
    }
}

impl JwtVerifier {
    /// Reads the keys of a file, or starts to fetch them from a URL. A URL that does not answer is retried.
    ///
    /// # Errors
    /// The reason when a file cannot be read or holds no usable key, or when a setting is invalid.
    pub fn open(settings: JwtSettings) -> Result<Arc<Self>, String> {
        Self::open_with(JwtTimings::DEFAULT, settings)
    }

    fn open_with(timings: JwtTimings, settings: JwtSettings) -> Result<Arc<Self>, String> {
        if settings.issuer.is_empty() || settings.audience.is_empty() {
            return Err("an issuer and an audience are needed to verify tokens".to_owned());
        }
        let key_cache = Arc::new(KeyCache::default());
        let source = match &settings.keys {
            KeySource::File(path) => Source::File(KeyFile::open(path.clone(), timings, Arc::clone(&key_cache))?),
            KeySource::Url(url) => Source::Url(Fetcher::start(url, timings, Arc::clone(&key_cache))?),
        };
        Ok(Arc::new(Self {
            settings,
            source,
            key_cache,
        }))
    }

    /// The accepted issuer.
    pub fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    /// The accepted audience.
    pub fn audience(&self) -> &str {
        &self.settings.audience
    }

    /// Whether a text has the form of a JWT. Any other bearer token is an API key or belongs to a proxy.
    pub fn is_jwt_shaped(token: &str) -> bool {
        token.len() <= TOKEN_LEN_MAX && token::has_jwt_form(token)
    }

    /// Verifies a token and returns its claims.
    ///
    /// # Errors
    /// `Invalid` with the reason, or `Unavailable` while no keys are loaded.
    pub async fn verify(&self, token: &str, now_unix_s: u64) -> Result<Claims, JwtError> {
        if token.len() > TOKEN_LEN_MAX {
            return Err(JwtError::Invalid("it is too long"));
        }
        // Before the cache is read: claims verified with a removed key must be forgotten.
        if let Source::File(file) = &self.source {
            file.reload_if_changed();
        }
        let digest = Sha256::digest(token).into();
        if let Some(claims) = self.key_cache.cached_claims(&digest, now_unix_s) {
            return Ok(claims);
        }
        let token = Token::parse(token).map_err(JwtError::Invalid)?;
        let keys = self.keys_for(&token).await?;
        let accepted = keys
            .find(token.key_id.as_deref(), token.algorithm)
            .and_then(|key| token.verify_signature(key))
            .and_then(|()| claims::read(token.payload, &self.settings, now_unix_s))
            .map_err(JwtError::Invalid)?;
        let claims = accepted.claims.clone();
        self.key_cache.cache_claims(digest, accepted, &keys, now_unix_s);
        Ok(claims)
    }

    /// Returns the current key set. A token with an unknown key id causes a fetch: the issuer may have rotated its
    /// keys.
    async fn keys_for(&self, token: &Token<'_>) -> Result<Arc<keys::JwkSet>, JwtError> {
        let keys = self.key_cache.keys();
        let is_enough = |keys: &Arc<keys::JwkSet>| token.key_id.as_deref().is_none_or(|id| keys.contains(id));
        match &self.source {
            Source::Url(fetcher) if !keys.as_ref().is_some_and(is_enough) => {
                fetcher.wait_for_fetch().await;
                self.key_cache.keys()
            }
            _ => keys,
        }
        .ok_or(JwtError::Unavailable)
    }
}
