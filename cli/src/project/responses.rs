//! The parts of the broker's responses that are shown to a person. Other fields are ignored.

use serde::Deserialize;

/// A page of projects.
#[derive(Debug, Deserialize)]
pub struct Projects {
    pub projects: Vec<Project>,
    pub next_cursor: Option<String>,
}

/// A project.
#[derive(Debug, Deserialize)]
pub struct Project {
    #[serde(rename = "project_id")]
    pub id: String,
    pub name: String,
    pub description: Option<String>,
    #[serde(default)]
    pub tags: Vec<String>,
    pub active: bool,
    pub created_at: String,
    pub config: ProjectConfig,
}

/// `None` means the default of the broker.
#[derive(Debug, Deserialize)]
pub struct ProjectConfig {
    pub allow_cross_project: bool,
    pub discoverable: bool,
    pub max_sessions: Option<u64>,
    pub max_protocols: Option<u64>,
    pub queue_capacity: Option<u64>,
    #[serde(default)]
    pub rate_limit: u64,
}

/// A new project with its first key.
#[derive(Debug, Deserialize)]
pub struct Created {
    pub project: Project,
    pub api_keys: Vec<NewKey>,
}

/// A project after a change.
#[derive(Debug, Deserialize)]
pub struct Changed {
    pub project: Project,
}

/// Parts that the key may not see are absent.
#[derive(Debug, Deserialize)]
pub struct Shown {
    pub project: Project,
    pub counts: Option<Counts>,
    pub permissions: Option<Vec<Permission>>,
}

/// Sizes of a project.
#[derive(Debug, Deserialize)]
pub struct Counts {
    pub sessions: u64,
    pub active_sessions: u64,
    pub protocols: u64,
    pub dead_letters: u64,
    pub keys: u64,
}

/// A grant.
#[derive(Debug, Deserialize)]
pub struct Permission {
    pub target_project_id: String,
    /// Empty means all protocols.
    #[serde(default)]
    pub allowed_protocols: Vec<String>,
    #[serde(default)]
    pub message_rate_limit: u64,
    pub granted_at: Option<String>,
}

/// A key in clear text, which the broker shows once.
#[derive(Deserialize)]
pub struct NewKey {
    pub key_id: String,
    pub api_key: String,
}

impl std::fmt::Debug for NewKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewKey {{ key_id: {:?}, api_key: *** }}", self.key_id)
    }
}

/// The keys of a project.
#[derive(Debug, Deserialize)]
pub struct Keys {
    pub keys: Vec<Key>,
}

/// A key without its secret.
#[derive(Debug, Deserialize)]
pub struct Key {
    #[serde(rename = "key_id")]
    pub id: String,
    pub label: Option<String>,
    pub scope: String,
    pub human: Option<String>,
    #[serde(default)]
    pub roles: Vec<String>,
    pub tools: Option<String>,
    pub status: String,
    pub created_at: Option<String>,
    pub expires_at: Option<String>,
    pub last_used_at: Option<String>,
}

/// A new key, in clear text.
#[derive(Deserialize)]
pub struct KeyCreated {
    pub key: Key,
    pub api_key: String,
}

/// The keys that were revoked.
#[derive(Debug, Deserialize)]
pub struct KeysRevoked {
    pub revoked: Vec<Ended>,
}

/// The result of a rotation.
#[derive(Debug, Deserialize)]
pub struct Rotated {
    pub api_keys: Vec<NewKey>,
    #[serde(default)]
    pub revoked: Vec<Ended>,
}

/// A key and the time until which it is valid.
#[derive(Debug, Deserialize)]
pub struct Ended {
    pub key_id: String,
    pub at: String,
}

/// A new grant with its warnings.
#[derive(Debug, Deserialize)]
pub struct Granted {
    pub permission: Permission,
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// The result of revoking a grant.
#[derive(Debug, Deserialize)]
pub struct GrantTaken {
    pub revoked: bool,
}

/// A page of the audit.
#[derive(Debug, Deserialize)]
pub struct Audit {
    pub entries: Vec<Entry>,
    pub next_cursor: Option<String>,
}

/// An entry of the audit.
#[derive(Debug, Deserialize)]
pub struct Entry {
    pub at: String,
    pub actor: String,
    pub address: Option<String>,
    pub project: Option<String>,
    pub action: String,
    pub target: Option<String>,
    pub outcome: String,
    pub code: Option<String>,
}
