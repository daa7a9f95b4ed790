//! What the broker says, as far as a person is shown it. Fields that are not shown may change without notice here.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub struct Projects {
    pub projects: Vec<Project>,
    pub next_cursor: Option<String>,
}

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

/// None is the broker's default.
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

#[derive(Debug, Deserialize)]
pub struct Created {
    pub project: Project,
    pub api_keys: Vec<NewKey>,
}

#[derive(Debug, Deserialize)]
pub struct Changed {
    pub project: Project,
}

/// What the key may not see is not there.
#[derive(Debug, Deserialize)]
pub struct Shown {
    pub project: Project,
    pub counts: Option<Counts>,
    pub permissions: Option<Vec<Permission>>,
}

#[derive(Debug, Deserialize)]
pub struct Counts {
    pub sessions: u64,
    pub active_sessions: u64,
    pub protocols: u64,
    pub dead_letters: u64,
    pub keys: u64,
}

#[derive(Debug, Deserialize)]
pub struct Permission {
    pub target_project_id: String,
    /// Empty: all.
    #[serde(default)]
    pub allowed_protocols: Vec<String>,
    #[serde(default)]
    pub message_rate_limit: u64,
    pub granted_at: Option<String>,
}

/// A key that nobody shows again.
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

#[derive(Debug, Deserialize)]
pub struct Keys {
    pub keys: Vec<Key>,
}

#[derive(Debug, Deserialize)]
pub struct Key {
    #[serde(rename = "key_id")]
    pub id: String,
    pub label: Option<String>,
    pub scope: String,
    pub status: String,
    pub created_at: Option<String>,
    pub expires_at: Option<String>,
    pub last_used_at: Option<String>,
}

#[derive(Deserialize)]
pub struct KeyCreated {
    pub key: Key,
    pub api_key: String,
}

#[derive(Debug, Deserialize)]
pub struct KeysRevoked {
    pub revoked: Vec<Ended>,
}

#[derive(Debug, Deserialize)]
pub struct Rotated {
    pub api_keys: Vec<NewKey>,
    #[serde(default)]
    pub revoked: Vec<Ended>,
}

/// A key, and until when it is good.
#[derive(Debug, Deserialize)]
pub struct Ended {
    pub key_id: String,
    pub at: String,
}

#[derive(Debug, Deserialize)]
pub struct Granted {
    pub permission: Permission,
    #[serde(default)]
    pub warnings: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub struct GrantTaken {
    pub revoked: bool,
}

#[derive(Debug, Deserialize)]
pub struct Audit {
    pub entries: Vec<Entry>,
    pub next_cursor: Option<String>,
}

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
