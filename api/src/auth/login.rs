//! The token that a login leaves in the cookie of a browser, and the record that the broker stores of it.
//!
//! A token is random. The broker stores its digest and the credential, encrypted under a key that only the token yields:
//! the store alone reveals no credential, and the cookie alone is good for nothing but `/api/v1` of this broker. A token
//! ends with its record (logout, expiry, deletion of the project) and with its credential, which is checked at each use.

use std::fmt;

use actors::model::{BrokerError, KeyDigest, LoginRecord, ProjectId};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::Sha256;

/// How long a login lasts.
const LIFETIME_MS: u64 = 7 * 24 * 60 * 60 * 1000;
/// Random bytes of a token.
const SECRET_LEN: usize = 32;

/// The token of a login: the project that has its record, and a random secret.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginToken {
    project: ProjectId,
    text: String,
}

impl LoginToken {
    /// A new token for a login whose record the project has.
    ///
    /// # Errors
    /// `unavailable` when the system has no random bytes.
    pub fn generate(project: &ProjectId) -> Result<Self, BrokerError> {
        let mut secret = [0; SECRET_LEN];
        getrandom::fill(&mut secret).map_err(|_| BrokerError::unavailable())?;
        Ok(Self {
            project: project.clone(),
            text: format!("{project}.{}", URL_SAFE_NO_PAD.encode(secret)),
        })
    }

    /// The token with this text; None for a text that no login has made.
    pub fn parse(text: &str) -> Option<Self> {
        let (project, secret) = text.split_once('.')?;
        (URL_SAFE_NO_PAD.decode(secret).ok()?.len() == SECRET_LEN).then_some(())?;
        Some(Self {
            project: ProjectId::parse(project).ok()?,
            text: text.to_owned(),
        })
    }

    /// The text of the token, for its cookie alone.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// The project that has the record of the login.
    pub fn project(&self) -> &ProjectId {
        &self.project
    }

    /// What the record of the login is found by.
    pub fn digest(&self) -> KeyDigest {
        KeyDigest::of_key(&self.text)
    }

    /// The record of a login of `holder` with this credential.
    pub fn record(&self, credential: &str, holder: &str, now_ms: u64) -> LoginRecord {
        let mut bytes = credential.as_bytes().to_vec();
        self.cipher()
            .seal_in_place_append_tag(only_nonce(), Aad::empty(), &mut bytes)
            .unwrap_or_else(|_| unreachable!("a credential is far shorter than what one key may encrypt"));
        LoginRecord {
            digest: self.digest(),
            sealed: URL_SAFE_NO_PAD.encode(bytes),
            holder: holder.to_owned(),
            created_at_ms: now_ms,
            expires_at_ms: now_ms.saturating_add(LIFETIME_MS),
        }
    }

    /// The credential in a record of [`Self::record`].
    pub fn credential_in(&self, record: &LoginRecord) -> Option<String> {
        let mut bytes = URL_SAFE_NO_PAD.decode(&record.sealed).ok()?;
        let text = self.cipher().open_in_place(only_nonce(), Aad::empty(), &mut bytes);
        String::from_utf8(text.ok()?.to_vec()).ok()
    }

    /// A text that only the holder of the token can make, for one purpose.
    pub(super) fn mac(&self, purpose: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.text.as_bytes()).unwrap_or_else(|never| unreachable!("{never}"));
        mac.update(purpose);
        mac
    }

    fn cipher(&self) -> LessSafeKey {
        let key = self.mac(b"mcp-broker login").finalize().into_bytes();
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key).unwrap_or_else(|never| unreachable!("{never}"));
        LessSafeKey::new(key)
    }
}

/// The nonce of the one text that the key of a token ever encrypts.
fn only_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

impl fmt::Debug for LoginToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoginToken({}.***)", self.project)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> LoginToken {
        LoginToken::generate(&ProjectId::default_project()).unwrap()
    }

    #[test]
    fn a_record_gives_its_credential_to_its_token_alone() {
        let (token, other) = (token(), token());
        let record = token.record("team_k1_secret", "key:team/k1", 1000);
        assert_eq!(token.credential_in(&record).as_deref(), Some("team_k1_secret"));
        assert_eq!(other.credential_in(&record), None);
        assert!(record.digest.matches(&token.digest()) && !record.digest.matches(&other.digest()));
        assert_eq!(record.expires_at_ms, 1000 + LIFETIME_MS);
        let stored = format!("{} {record:?}", record.sealed);
        assert!(!stored.contains("secret") && !format!("{token:?}").contains(&token.text[8..]));
    }

    #[test]
    fn the_text_of_a_token_is_read_as_the_same_token() {
        let token = token();
        assert_eq!(LoginToken::parse(token.reveal()).as_ref(), Some(&token));
        let long = format!("{}A", token.reveal());
        for wrong in [
            "",
            ".",
            "default",
            "default.",
            "team_k1_secret",
            "_.AAAA",
            &long,
            &token.text[1..].replace("efault", "-"),
        ] {
            assert_eq!(LoginToken::parse(wrong), None, "{wrong}");
        }
    }
}
