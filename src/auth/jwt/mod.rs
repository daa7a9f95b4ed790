//! Bearer tokens of an issuer outside: JWTs that are signed with a key of its set.
//!
//! The broker is a resource server (2025-11-25 and 2026-07-28, basic/authorization, "Token Handling"): it takes what
//! the issuer made for it, and nothing else. What a token says of itself is believed only once its signature holds,
//! and which key that is comes from the configured set alone: `jku`, `jwk`, `x5u` and `x5c` of a header are not read.

mod claims;
mod fetch;
mod file;
mod key_cache;
mod keys;
mod token;

#[cfg(test)]
#[path = "../../../tests/support/issuer.rs"]
mod issuer;
#[cfg(test)]
mod tests;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use sha2::{Digest, Sha256};

use self::{fetch::Fetcher, file::KeyFile, key_cache::KeyCache, token::Token};

pub use claims::{EXPIRED, LEEWAY_S};

/// Bytes of a token. A longer one is refused before anything is read of it.
const TOKEN_LEN_MAX: usize = 8 * 1024;
/// Bytes of a key set.
const SET_LEN_MAX: u64 = 1024 * 1024;

/// Where the issuer's keys come from: a JWK set (RFC 7517, section 5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    File(PathBuf),
    /// `https`, or `http` to a loopback host.
    Url(String),
}

/// Whose tokens are taken, and how they are read. The name of a claim that has dots is a path into the claims, unless
/// there is a claim of the full name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// What `iss` has to be, to the letter.
    pub issuer: String,
    /// What `aud` has to be or to contain.
    pub audience: String,
    pub keys: KeySource,
    /// A string.
    pub project_claim: String,
    /// A string with spaces, or an array of strings.
    pub scope_claim: String,
}

/// What a token says that was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    pub subject: String,
    pub project: Option<String>,
    pub scopes: Vec<String>,
    /// Its `exp`, in milliseconds since the Unix epoch. The token is taken for [`LEEWAY_S`] longer.
    pub expires_at_ms: u64,
}

/// Why a token is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwtError {
    /// Why is for the log: a client that hears it learns what to forge next.
    Invalid(&'static str),
    /// There are no keys yet. The same token may be taken later.
    Unavailable,
}

/// How often keys are looked for, and how long they are waited for.
#[derive(Clone, Copy, Debug)]
struct JwtTimings {
    /// From one look at a file's modification time to the next.
    file_check_interval: Duration,
    /// From one fetch to the next, when nothing asks for one.
    refresh_interval: Duration,
    /// From the begin of one fetch to the begin of the next, whatever asks.
    fetch_interval_min: Duration,
    /// How long a fetch may take.
    fetch_timeout: Duration,
    /// How long a request waits for a fetch.
    wait_timeout: Duration,
}

impl JwtTimings {
    const DEFAULT: Self = Self {
        file_check_interval: Duration::from_secs(1),
        refresh_interval: Duration::from_secs(600),
        fetch_interval_min: Duration::from_secs(10),
        fetch_timeout: Duration::from_secs(5),
        wait_timeout: Duration::from_secs(2),
    };
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
    /// Reads the keys, or begins to fetch them. A URL that does not answer is asked again.
    ///
    /// # Errors
    /// When a file cannot be read or holds no usable key, or when the settings cannot be meant.
    pub fn open(settings: JwtSettings) -> Result<Arc<Self>, String> {
        Self::open_with(JwtTimings::DEFAULT, settings)
    }

    fn open_with(pace: JwtTimings, settings: JwtSettings) -> Result<Arc<Self>, String> {
        if settings.issuer.is_empty() || settings.audience.is_empty() {
            return Err("an issuer and an audience are needed to verify tokens".to_owned());
        }
        let ring = Arc::new(KeyCache::default());
        let source = match &settings.keys {
            KeySource::File(path) => Source::File(KeyFile::open(path.clone(), pace, Arc::clone(&ring))?),
            KeySource::Url(url) => Source::Url(Fetcher::start(url, pace, Arc::clone(&ring))?),
        };
        Ok(Arc::new(Self {
            settings,
            source,
            key_cache: ring,
        }))
    }

    pub fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    pub fn audience(&self) -> &str {
        &self.settings.audience
    }

    /// Whether this has the form of a JWT that could be verified. Any other bearer token is something else.
    pub fn is_jwt_shaped(token: &str) -> bool {
        token.len() <= TOKEN_LEN_MAX && token::has_jwt_form(token)
    }

    /// What this token says, if it is taken at this time.
    pub async fn verify(&self, token: &str, now_unix_s: u64) -> Result<Claims, JwtError> {
        if token.len() > TOKEN_LEN_MAX {
            return Err(JwtError::Invalid("it is too long"));
        }
        // Before the look at what was verified earlier: what a key that is gone has signed is forgotten.
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

    /// The newest set. A token that names a key which is not in it is a reason to ask for a newer one: the issuer may
    /// have changed its keys.
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
