//! API keys of projects, their digests and validity, and the owners of sessions.

mod human;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;
use utoipa::ToSchema;

pub use human::KeyHuman;

use super::{BrokerError, ProjectId, ToolSet};

words! {
    /// What a caller may do; each scope includes the ones before it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Scope {
        /// Reads, and takes no part in messaging.
        Observer = "observer",
        /// Answers questions as a person, and reads.
        Answer = "answer",
        /// Registers sessions, sends and receives.
        Member = "member",
        /// Administers the project.
        Admin = "admin",
        /// Administers the broker. No key of a project has this scope.
        #[serde(skip_deserializing)]
        Operator = "operator",
    }
}

/// The name of a key in its project. `^[a-z0-9]{1,32}$`: in the key it is between two `_`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(Arc<str>);

impl KeyId {
    const LEN_MAX: usize = 32;

    /// Parses a key id.
    ///
    /// # Errors
    /// `invalid_argument` when the text does not match the grammar above.
    pub fn parse(text: &str) -> Result<Self, BrokerError> {
        let is_well_formed = (1..=Self::LEN_MAX).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if is_well_formed {
            Ok(Self(text.into()))
        } else {
            Err(BrokerError::invalid("key_id", "1 to 32 of a-z and 0-9"))
        }
    }

    /// A random id: `k` and nine letters or digits that are hard to confuse.
    ///
    /// # Errors
    /// `unavailable` when the system has no random numbers.
    pub fn generate() -> Result<Self, BrokerError> {
        const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
        let mut bytes = random::<9>()?;
        for byte in &mut bytes {
            *byte = LETTERS[usize::from(*byte) % LETTERS.len()];
        }
        Ok(Self(format!("k{}", String::from_utf8_lossy(&bytes)).into()))
    }
}

super::ids::text_id!(KeyId, parse);

/// What the broker stores of a key. The key cannot be recovered from it.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// The SHA-256 of the whole key. A secret of 192 random bits needs no slow hash: guessing it is hopeless.
    pub fn of_key(key: &str) -> Self {
        Self(Sha256::digest(key.as_bytes()).into())
    }

    /// The lookup key. A match is then compared whole.
    pub fn prefix(&self) -> u128 {
        self.0.first_chunk().map_or(0, |first| u128::from_be_bytes(*first))
    }

    /// Compares in constant time.
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(***)")
    }
}

impl Serialize for KeyDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for KeyDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        let mut digest = [0; 32];
        let pairs = text.as_bytes().chunks_exact(2);
        if text.len() != 2 * digest.len() {
            return Err(serde::de::Error::custom("a digest has 64 hexadecimal digits"));
        }
        for (byte, pair) in digest.iter_mut().zip(pairs) {
            *byte = std::str::from_utf8(pair)
                .ok()
                .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                .ok_or_else(|| serde::de::Error::custom("a digest has 64 hexadecimal digits"))?;
        }
        Ok(Self(digest))
    }
}

/// A key in clear text, `{project_id}_{key_id}_{secret}`: shown once to the caller that created it and stored
/// nowhere.
#[derive(Clone)]
pub struct ApiKey(String);

impl ApiKey {
    /// A new key with a secret of 192 random bits.
    ///
    /// # Errors
    /// `unavailable` when the system has no random numbers.
    pub fn generate(project: &ProjectId, key: &KeyId) -> Result<Self, BrokerError> {
        Ok(Self(format!("{project}_{key}_{}", hex(&random::<24>()?))))
    }

    /// The key itself. Never log it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The digest under which the key is stored.
    pub fn digest(&self) -> KeyDigest {
        KeyDigest::of_key(&self.0)
    }

    /// The project and the key id that a text of this form names; nothing is verified.
    pub fn claimed_ids(text: &str) -> Option<(ProjectId, KeyId)> {
        let mut parts = text.splitn(3, '_');
        let (project, key) = (parts.next()?, parts.next()?);
        parts.next().filter(|secret| !secret.is_empty())?;
        Some((ProjectId::parse(project).ok()?, KeyId::parse(key).ok()?))
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(***)")
    }
}

fn random<const LEN: usize>() -> Result<[u8; LEN], BrokerError> {
    let mut bytes = [0; LEN];
    getrandom::fill(&mut bytes).map_err(|_| BrokerError::unavailable())?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// A key of a project as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    pub id: KeyId,
    /// The first key of the rotation chain. All keys of a chain own the same sessions.
    pub lineage: KeyId,
    /// A text for the administrator.
    pub label: Option<String>,
    pub scope: Scope,
    /// Of a key of scope `answer`: the person who holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub human: Option<KeyHuman>,
    /// The tools that its callers are listed; None: those of the setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolSet>,
    pub digest: KeyDigest,
    /// Times are milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    pub expires_at_ms: Option<u64>,
    /// When the key becomes invalid, because it was revoked or rotated.
    pub retired_at_ms: Option<u64>,
    /// The key was revoked: it is invalid even if the clock is set back.
    #[serde(default)]
    pub revoked: bool,
    pub last_used_at_ms: Option<u64>,
}

words! {
    /// The status of a key at some time.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
    #[schema(rename_all = "lowercase")]
    pub enum KeyStatus {
        Active = "active",
        /// Still valid, for the grace period of its rotation.
        Retiring = "retiring",
        Expired = "expired",
        Revoked = "revoked",
    }
}

impl KeyStatus {
    /// Whether the key is accepted.
    pub const fn is_valid(self) -> bool {
        matches!(self, Self::Active | Self::Retiring)
    }
}

impl KeyRecord {
    /// The status at this time, in milliseconds since the Unix epoch.
    pub fn status(&self, now_ms: u64) -> KeyStatus {
        if self.revoked || self.retired_at_ms.is_some_and(|at| at <= now_ms) {
            KeyStatus::Revoked
        } else if self.expires_at_ms.is_some_and(|at| at <= now_ms) {
            KeyStatus::Expired
        } else if self.retired_at_ms.is_some() {
            KeyStatus::Retiring
        } else {
            KeyStatus::Active
        }
    }

    /// When the key becomes invalid, in milliseconds since the Unix epoch; `u64::MAX` for never, 0 for a revoked key.
    pub fn valid_until_ms(&self) -> u64 {
        if self.revoked {
            return 0;
        }
        let ends = [self.expires_at_ms, self.retired_at_ms];
        ends.into_iter().flatten().min().unwrap_or(u64::MAX)
    }
}

/// The owner of a session. Only this owner can act as the session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Owner(Arc<str>);

impl<'de> Deserialize<'de> for Owner {
    /// Earlier versions stored programs on the local socket as an owner of their own, `uid:` and the number of their user.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(match text.strip_prefix("uid:") {
            Some(_) => Self::anonymous(),
            None => Self(text.into()),
        })
    }
}

impl Owner {
    /// The owner of all callers without a key: programs on the local socket, and callers over HTTP where keys are not
    /// required.
    pub fn anonymous() -> Self {
        Self("anonymous".into())
    }

    /// The owner of callers with the admin key.
    pub fn operator() -> Self {
        Self("admin".into())
    }

    /// The owner for a key of a project, named by the first key of its rotation chain.
    pub fn key(lineage: &KeyId) -> Self {
        Self(format!("key:{lineage}").into())
    }

    /// The owner for a subject of the external token issuer.
    pub fn subject(subject: &str) -> Self {
        Self(format!("jwt:{subject}").into())
    }

    /// The owner of a session whose agent is still to come: the first caller that registers its name becomes the owner.
    pub fn unclaimed() -> Self {
        Self("unclaimed".into())
    }

    /// Whether the first caller that registers the session becomes its owner.
    pub fn is_unclaimed(&self) -> bool {
        &*self.0 == "unclaimed"
    }

    /// Whether the owner is a key of a project.
    pub fn is_key(&self) -> bool {
        self.0.starts_with("key:")
    }

    /// The text under which sessions store their owner.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Owner {
    fn default() -> Self {
        Self::anonymous()
    }
}

/// Until when a credential is valid, and when it was last used. All connections of the credential share it, so a
/// revocation reaches them at once.
#[derive(Debug)]
pub struct CredentialStatus {
    good_until_ms: AtomicU64,
    last_used_at_ms: AtomicU64,
}

impl CredentialStatus {
    /// The time of the last use is rounded down to the minute.
    const USE_RESOLUTION_MS: u64 = 60_000;

    /// A credential that is valid until this time, in milliseconds since the Unix epoch.
    pub fn valid_until(good_until_ms: u64) -> Self {
        Self {
            good_until_ms: AtomicU64::new(good_until_ms),
            last_used_at_ms: AtomicU64::new(0),
        }
    }

    /// The end of validity, in milliseconds since the Unix epoch.
    pub fn valid_until_ms(&self) -> u64 {
        self.good_until_ms.load(Ordering::Relaxed)
    }

    /// Whether the credential is valid at this time, in milliseconds since the Unix epoch.
    pub fn is_valid(&self, now_ms: u64) -> bool {
        now_ms < self.valid_until_ms()
    }

    /// Changes the end of validity, in milliseconds since the Unix epoch.
    pub fn set_valid_until_ms(&self, good_until_ms: u64) {
        self.good_until_ms.store(good_until_ms, Ordering::Relaxed);
    }

    /// Records a use at this time, in milliseconds since the Unix epoch.
    pub fn record_use(&self, now_ms: u64) {
        let minute = now_ms - now_ms % Self::USE_RESOLUTION_MS;
        self.last_used_at_ms.fetch_max(minute, Ordering::Relaxed);
    }

    /// The last use in this process, in milliseconds since the Unix epoch; None before the first.
    pub fn last_used_at_ms(&self) -> Option<u64> {
        Some(self.last_used_at_ms.load(Ordering::Relaxed)).filter(|&at| at > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project() -> ProjectId {
        ProjectId::parse("team-a").unwrap()
    }

    #[test]
    fn a_key_names_its_project_and_itself() {
        let id = KeyId::generate().unwrap();
        let key = ApiKey::generate(&project(), &id).unwrap();
        assert_eq!(ApiKey::claimed_ids(key.reveal()), Some((project(), id)));
        assert_eq!(key.reveal().split('_').count(), 3);
        assert!(key.reveal().rsplit('_').next().unwrap().len() >= 32);
    }

    #[test]
    fn a_text_without_the_form_of_a_key_names_no_key() {
        for text in [
            "", "a", "a_b", "a_b_", "_b_c", "a__c", "A_b_c", "a_B_c", "a_b-c_d", "a.b.c",
        ] {
            assert_eq!(ApiKey::claimed_ids(text), None, "{text}");
        }
        assert!(
            ApiKey::claimed_ids("a_b_c_d").is_some(),
            "a secret may contain anything"
        );
    }

    #[test]
    fn debug_output_hides_a_key_and_its_digest() {
        let key = ApiKey::generate(&project(), &KeyId::generate().unwrap()).unwrap();
        let shown = format!("{key:?} {:?}", key.digest());
        assert_eq!(shown, "ApiKey(***) KeyDigest(***)");
    }

    #[test]
    fn a_digest_is_stored_and_read_back() {
        let digest = KeyDigest::of_key("a_b_c");
        let text = serde_json::to_string(&digest).unwrap();
        assert!(serde_json::from_str::<KeyDigest>(&text).unwrap().matches(&digest));
        assert!(!digest.matches(&KeyDigest::of_key("a_b_d")));
        for bad in [
            "\"\"",
            "\"zz\"",
            &format!("\"{}\"", "z".repeat(64)),
            &format!("\"{}\"", "é".repeat(32)),
        ] {
            assert!(serde_json::from_str::<KeyDigest>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_key_is_valid_until_it_expires_or_is_retired() {
        let id = KeyId::parse("k1").unwrap();
        let mut key = KeyRecord {
            lineage: id.clone(),
            id,
            label: None,
            scope: Scope::Member,
            human: None,
            tools: None,
            digest: KeyDigest::of_key("x"),
            created_at_ms: 0,
            expires_at_ms: None,
            retired_at_ms: None,
            revoked: false,
            last_used_at_ms: None,
        };
        assert_eq!(
            (key.status(u64::MAX), key.valid_until_ms()),
            (KeyStatus::Active, u64::MAX)
        );
        key.expires_at_ms = Some(100);
        assert_eq!(
            (key.status(99), key.status(100)),
            (KeyStatus::Active, KeyStatus::Expired)
        );
        key.retired_at_ms = Some(50);
        assert_eq!(
            (key.status(49), key.status(50)),
            (KeyStatus::Retiring, KeyStatus::Revoked)
        );
        assert_eq!(key.valid_until_ms(), 50);
        key.revoked = true;
        assert_eq!(
            (key.status(0), key.valid_until_ms()),
            (KeyStatus::Revoked, 0),
            "the clock was set back"
        );
    }

    #[test]
    fn no_stored_key_can_be_of_an_operator() {
        assert!(serde_json::from_str::<Scope>("\"operator\"").is_err());
        assert_eq!(serde_json::from_str::<Scope>("\"admin\"").unwrap(), Scope::Admin);
        assert!(Scope::Operator > Scope::Admin && Scope::Admin > Scope::Member && Scope::Member > Scope::Answer);
        assert!(Scope::Answer > Scope::Observer);
    }

    #[test]
    fn scopes_and_statuses_of_keys_have_the_names_of_the_contract() {
        assert_eq!(
            Scope::ALL.map(Scope::as_str),
            ["observer", "answer", "member", "admin", "operator"]
        );
        for scope in Scope::ALL {
            assert_eq!(serde_json::to_value(scope).unwrap(), scope.as_str());
        }
        let statuses = [
            KeyStatus::Active,
            KeyStatus::Retiring,
            KeyStatus::Expired,
            KeyStatus::Revoked,
        ];
        assert_eq!(
            statuses.map(KeyStatus::as_str),
            ["active", "retiring", "expired", "revoked"]
        );
    }

    #[test]
    fn the_id_of_a_key_has_letters_that_cannot_be_mistaken_for_each_other() {
        let ids: Vec<_> = (0..500).map(|_| KeyId::generate().unwrap()).collect();
        let letters: std::collections::BTreeSet<_> = ids.iter().flat_map(|id| id.as_str()[1..].chars()).collect();
        assert_eq!(
            letters.into_iter().collect::<String>(),
            "23456789abcdefghijkmnpqrstuvwxyz"
        );
        assert!(
            ids.iter()
                .all(|id| id.as_str().starts_with('k') && id.as_str().len() == 10)
        );
    }

    #[test]
    fn an_owner_says_what_kind_of_caller_it_is() {
        let key = Owner::key(&KeyId::parse("k1").unwrap());
        let (operator, subject) = (Owner::operator(), Owner::subject("key:k1"));
        assert_eq!(
            [&Owner::anonymous(), &operator, &key, &subject].map(Owner::as_str),
            ["anonymous", "admin", "key:k1", "jwt:key:k1"]
        );
        assert_eq!(
            [&Owner::default(), &operator, &key, &subject].map(Owner::is_key),
            [false, false, true, false]
        );
    }

    #[test]
    fn a_program_on_the_local_socket_is_the_owner_of_all_callers_without_a_key() {
        let stored = |text: &str| serde_json::from_value::<Owner>(text.into()).unwrap();
        assert_eq!(stored("uid:1000"), Owner::anonymous());
        for owner in [
            Owner::anonymous(),
            Owner::operator(),
            Owner::unclaimed(),
            Owner::subject("uid:1"),
        ] {
            assert_eq!(stored(owner.as_str()), owner);
        }
    }

    #[test]
    fn a_credential_is_valid_until_its_end() {
        let standing = CredentialStatus::valid_until(100);
        assert_eq!([99, 100].map(|now_ms| standing.is_valid(now_ms)), [true, false]);
        standing.set_valid_until_ms(50);
        assert_eq!([49, 50].map(|now_ms| standing.is_valid(now_ms)), [true, false]);
    }

    #[test]
    fn a_use_is_recorded_to_the_minute() {
        let standing = CredentialStatus::valid_until(u64::MAX);
        assert_eq!(standing.last_used_at_ms(), None);
        standing.record_use(123_456);
        standing.record_use(60_001);
        assert_eq!(standing.last_used_at_ms(), Some(120_000));
    }
}
