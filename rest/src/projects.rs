//! Projects with their keys and grants, and the audit.

use actors::model::{AuditOutcome, KeyStatus, ToolSet};
use answer::answer;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::words::{self, ApiKey, Id, Time};

/// A project, without its secrets.
#[answer]
pub struct Project {
    #[schema(value_type = words::ProjectId)]
    pub project_id: String,
    #[schema(value_type = words::Name)]
    pub name: String,
    #[schema(value_type = Option<words::Description>)]
    pub description: Option<String>,
    #[schema(value_type = Vec<words::Tag>)]
    pub tags: Vec<String>,
    /// False once the project is deleted.
    pub active: bool,
    pub created_at: Time,
    pub config: Config,
}

/// The configuration of a project.
#[answer]
pub struct Config {
    /// Sessions of this project may exchange messages with other projects, where a grant allows it.
    pub allow_cross_project: bool,
    /// Other projects see this one in lists.
    pub discoverable: bool,
    /// Not shown to other projects.
    #[serde(flatten)]
    #[schema(value_type = Limits)]
    pub limits: Option<Limits>,
}

/// Limits of a project; null means the default of the broker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Limits {
    #[schema(minimum = 1, maximum = 10_000_000)]
    pub max_sessions: Option<usize>,
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub max_protocols: Option<usize>,
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub queue_capacity: Option<usize>,
    /// Requests per minute of all callers of the project together; 0 means no limit.
    #[serde(default)]
    #[schema(value_type = usize, maximum = 4_294_967_295_u32)]
    pub rate_limit: u32,
}

/// Sizes of a project.
#[answer]
pub struct Counts {
    pub sessions: usize,
    pub active_sessions: usize,
    pub protocols: usize,
    pub dead_letters: usize,
    /// Keys that are valid now.
    pub keys: usize,
}

/// A grant: sessions of one project may send to another project.
#[answer]
pub struct Permission {
    #[schema(value_type = words::ProjectId)]
    pub target_project_id: String,
    /// Empty means all protocols.
    #[schema(value_type = Vec<words::ProtocolName>)]
    pub allowed_protocols: Vec<String>,
    /// Messages per minute; 0 means no limit.
    #[schema(value_type = usize, maximum = 4_294_967_295_u32)]
    pub message_rate_limit: u32,
    pub granted_at: Time,
}

/// One project, as far as the caller may see it.
#[answer]
pub struct ProjectInfo {
    pub project: Project,
    #[absent]
    pub counts: Option<Counts>,
    #[absent]
    pub permissions: Option<Vec<Permission>>,
    /// True when more grants exist than fit: `GET /api/v1/projects/{project_id}/grants` lists them in pages.
    #[absent]
    pub more_permissions: bool,
}

/// A page of projects.
#[answer]
pub struct Projects {
    pub projects: Vec<Project>,
    /// Cursor of the next page, when items are left.
    #[absent]
    #[schema(value_type = words::ProjectId)]
    pub next_cursor: Option<String>,
}

/// A project after a change.
#[answer]
pub struct ChangedProject {
    pub project: Project,
}

/// A key in clear text. It is shown this one time.
#[answer]
pub struct NewApiKey {
    #[schema(value_type = words::KeyId)]
    pub key_id: String,
    pub api_key: ApiKey,
}

/// A new project with its first key.
#[answer]
pub struct CreatedProject {
    pub project: Project,
    pub api_keys: Vec<NewApiKey>,
}

/// The result of a rotation: the new keys, and when the old keys end.
#[answer]
pub struct RotatedKeys {
    pub api_keys: Vec<NewApiKey>,
    pub revoked: Vec<RevokedKey>,
}

/// The keys that a request revoked.
#[answer]
pub struct RevokedKeys {
    pub revoked: Vec<RevokedKey>,
}

/// A key that stops being valid at a given time.
#[answer]
pub struct RevokedKey {
    #[schema(value_type = words::KeyId)]
    pub key_id: String,
    pub at: Time,
}

/// A key, without its secret.
#[answer]
pub struct Key {
    #[schema(value_type = words::KeyId)]
    pub key_id: String,
    #[schema(value_type = Option<words::Name>)]
    pub label: Option<String>,
    #[schema(value_type = words::KeyScope)]
    pub scope: String,
    /// Of a key of scope `answer`: the person who holds it.
    #[absent]
    #[schema(value_type = Option<words::HumanName>)]
    pub human: Option<String>,
    /// Of a key of scope `answer`: the roles of that person.
    #[absent]
    #[schema(value_type = Option<Vec<words::Role>>)]
    pub roles: Option<Vec<String>>,
    /// The tools that its callers are listed; without it those of the setting `tools`.
    #[absent]
    #[schema(value_type = Option<ToolSet>)]
    pub tools: Option<String>,
    #[schema(value_type = KeyStatus)]
    pub status: String,
    pub created_at: Time,
    /// When the key expires, or has expired.
    pub expires_at: Option<Time>,
    /// Precise to the minute.
    pub last_used_at: Option<Time>,
}

/// The keys of a project.
#[answer]
pub struct Keys {
    pub keys: Vec<Key>,
}

/// A new key with its record.
#[answer]
pub struct CreatedKey {
    pub key: Key,
    /// The key in clear text. It is shown this one time.
    pub api_key: ApiKey,
}

/// A new grant.
#[answer]
pub struct Granted {
    pub permission: Permission,
    /// Reasons why messages still cannot pass; empty when none applies.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// A page of grants.
#[answer]
pub struct Grants {
    pub grants: Vec<Permission>,
    /// Cursor of the next page, when items are left.
    #[absent]
    #[schema(value_type = words::ProjectId)]
    pub next_cursor: Option<String>,
}

/// The result of revoking a grant.
#[answer]
pub struct GrantRevoked {
    /// False when the grant did not exist.
    pub revoked: bool,
}

/// One entry of the audit.
#[answer]
pub struct AuditLine {
    pub id: Id,
    pub at: Time,
    pub actor: String,
    pub address: Option<String>,
    #[schema(value_type = Option<words::ProjectId>)]
    pub project: Option<String>,
    pub action: String,
    pub target: Option<String>,
    #[schema(value_type = AuditOutcome)]
    pub outcome: String,
    pub code: Option<String>,
}

/// A page of the audit, newest entries first.
#[answer]
pub struct AuditPage {
    pub entries: Vec<AuditLine>,
    #[absent]
    pub next_cursor: Option<Id>,
}
