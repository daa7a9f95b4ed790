//! Settings of token verification: issuer, audience, claims, and how keys are loaded.

use std::{path::PathBuf, time::Duration};

/// Bytes of a key set.
pub const SET_LEN_MAX: u64 = 1024 * 1024;

/// Where the issuer's keys are: a JWK set (RFC 7517, section 5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    File(PathBuf),
    /// An `https` URL, or `http` to a loopback host.
    Url(String),
}

/// Which tokens are accepted and how their claims are read. The name of a claim with dots is a path into the claims,
/// unless a claim has the full name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// The exact value of `iss`.
    pub issuer: String,
    /// The value that `aud` must be or contain.
    pub audience: String,
    pub keys: KeySource,
    /// The claim with the project id, a string.
    pub project_claim: String,
    /// The claim with the scopes: a string with spaces, or an array of strings.
    pub scope_claim: String,
    /// The claim with the name of the person, a string. Read with scope `answer` alone.
    pub human_claim: String,
    /// The claim with the roles of the person: a string with spaces, or an array of strings.
    pub roles_claim: String,
}

/// Intervals and timeouts of loading keys.
#[derive(Clone, Copy, Debug)]
pub struct JwtTimings {
    /// Time between two checks of a file's modification time.
    pub file_check_interval: Duration,
    /// Time between two fetches without a request.
    pub refresh_interval: Duration,
    /// Shortest time between the starts of two fetches.
    pub fetch_interval_min: Duration,
    /// Timeout of a fetch.
    pub fetch_timeout: Duration,
    /// Longest time that a request waits for a fetch.
    pub wait_timeout: Duration,
}

impl JwtTimings {
    /// The timings of the product; tests use others.
    pub const DEFAULT: Self = Self {
        file_check_interval: Duration::from_secs(1),
        refresh_interval: Duration::from_secs(600),
        fetch_interval_min: Duration::from_secs(10),
        fetch_timeout: Duration::from_secs(5),
        wait_timeout: Duration::from_secs(2),
    };
}
