//! Views of projects and keys: the JSON objects that MCP tools and the REST API return.
//!
//! The types hold only what a caller may see; secrets appear in the views of created and rotated keys alone.

use std::ops::Bound;

use actors::{
    broker::Keyring,
    clock::rfc3339_text,
    model::{
        AuditEntry, Grant, IssuedKey, KeyId, KeyRecord, KeyStatus, PageRoom, ProjectId, ProjectRecord, SessionId,
        ToolSet,
    },
};
use serde::Serialize;
use utoipa::ToSchema;

use super::schemas;

/// Takes the items that fit on one page. The flag says whether items are left.
pub fn page<T: Serialize>(items: impl Iterator<Item = T>) -> (Vec<T>, bool) {
    let mut page = PageRoom::default();
    let mut more = false;
    let fitting = items.take_while(|item| {
        // Serializing a plain object cannot fail.
        let len = serde_json::to_vec(item).map_or(0, |text| text.len());
        more = !page.try_take(len);
        !more
    });
    (fitting.collect(), more)
}

/// A project, without its secrets.
#[derive(Debug, Serialize, ToSchema)]
pub struct Project {
    #[schema(value_type = schemas::ProjectId)]
    pub project_id: String,
    #[schema(value_type = schemas::Name)]
    pub name: String,
    #[schema(required, value_type = Option<schemas::Description>)]
    pub description: Option<String>,
    #[schema(value_type = Vec<schemas::Tag>)]
    pub tags: Vec<String>,
    /// False once the project is deleted.
    pub active: bool,
    #[schema(format = DateTime)]
    pub created_at: String,
    pub config: Config,
}

/// The configuration of a project.
#[derive(Debug, Serialize, ToSchema)]
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
#[derive(Debug, Serialize, ToSchema)]
pub struct Limits {
    #[schema(minimum = 1, maximum = 10_000_000)]
    pub max_sessions: Option<usize>,
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub max_protocols: Option<usize>,
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub queue_capacity: Option<usize>,
    /// Requests per minute of all callers of the project together; 0 means no limit.
    #[schema(required = false, value_type = usize, maximum = 4_294_967_295_u32)]
    pub rate_limit: u32,
}

impl Project {
    /// The full view, for callers of the project itself.
    pub fn of(record: &ProjectRecord) -> Self {
        let config = &record.config;
        let mut project = Self::public_view(record);
        project.config.limits = Some(Limits {
            max_sessions: config.max_sessions,
            max_protocols: config.max_protocols,
            queue_capacity: config.queue_capacity,
            rate_limit: config.rate_limit,
        });
        project
    }

    /// The public view, for callers of other projects.
    pub fn public_view(record: &ProjectRecord) -> Self {
        Self {
            project_id: record.id.to_string(),
            name: record.name.clone(),
            description: record.description.clone(),
            tags: record.tags.iter().cloned().collect(),
            active: record.active,
            created_at: rfc3339_text(record.created_at_ms),
            config: Config {
                allow_cross_project: record.config.allow_cross_project,
                discoverable: record.config.discoverable,
                limits: None,
            },
        }
    }
}

/// Sizes of a project.
#[derive(Debug, Serialize, ToSchema)]
pub struct Counts {
    pub sessions: usize,
    pub active_sessions: usize,
    pub protocols: usize,
    pub dead_letters: usize,
    /// Keys that are valid now.
    pub keys: usize,
}

/// A grant: sessions of one project may send to another project.
#[derive(Debug, Serialize, ToSchema)]
pub struct Permission {
    #[schema(value_type = schemas::ProjectId)]
    pub target_project_id: String,
    /// Empty means all protocols.
    #[schema(value_type = Vec<schemas::ProtocolName>)]
    pub allowed_protocols: Vec<String>,
    /// Messages per minute; 0 means no limit.
    #[schema(value_type = usize, maximum = 4_294_967_295_u32)]
    pub message_rate_limit: u32,
    #[schema(format = DateTime)]
    pub granted_at: String,
}

impl Permission {
    /// The view of a grant to `target`.
    pub fn of(target: &ProjectId, grant: &Grant) -> Self {
        Self {
            target_project_id: target.to_string(),
            allowed_protocols: grant.protocols.iter().map(ToString::to_string).collect(),
            message_rate_limit: grant.message_rate_limit,
            granted_at: rfc3339_text(grant.granted_at_ms),
        }
    }

    /// A page of the grants of a project, ordered by target. The flag says whether grants are left.
    pub fn page_of(record: &ProjectRecord, after: Option<&ProjectId>) -> (Vec<Self>, bool) {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let grants = record.grants.range::<ProjectId, _>((start, Bound::Unbounded));
        page(grants.map(|(target, grant)| Self::of(target, grant)))
    }
}

/// One project, as far as the caller may see it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProjectInfo {
    pub project: Project,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub counts: Option<Counts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub permissions: Option<Vec<Permission>>,
    /// True when more grants exist than fit: `GET /api/v1/projects/{project_id}/grants` lists them in pages.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub more_permissions: bool,
}

/// A page of projects.
#[derive(Debug, Serialize, ToSchema)]
pub struct Projects {
    pub projects: Vec<Project>,
    /// Cursor of the next page, when items are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = schemas::ProjectId)]
    pub next_cursor: Option<String>,
}

/// A project after a change.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChangedProject {
    pub project: Project,
}

/// A key in clear text. It is shown this one time.
#[derive(Serialize, ToSchema)]
pub struct NewApiKey {
    #[schema(value_type = schemas::KeyId)]
    pub key_id: String,
    #[schema(value_type = schemas::ApiKey)]
    pub api_key: String,
}

impl From<&IssuedKey> for NewApiKey {
    fn from(made: &IssuedKey) -> Self {
        Self {
            key_id: made.id.to_string(),
            api_key: made.key.reveal().to_owned(),
        }
    }
}

/// A new project with its first key.
#[derive(Serialize, ToSchema)]
pub struct CreatedProject {
    pub project: Project,
    pub api_keys: Vec<NewApiKey>,
}

/// The result of a rotation: the new keys, and when the old keys end.
#[derive(Serialize, ToSchema)]
pub struct RotatedKeys {
    pub api_keys: Vec<NewApiKey>,
    pub revoked: Vec<RevokedKey>,
}

/// The keys that a request revoked.
#[derive(Debug, Serialize, ToSchema)]
pub struct RevokedKeys {
    pub revoked: Vec<RevokedKey>,
}

/// A key that stops being valid at a given time.
#[derive(Debug, Serialize, ToSchema)]
pub struct RevokedKey {
    #[schema(value_type = schemas::KeyId)]
    pub key_id: String,
    #[schema(format = DateTime)]
    pub at: String,
}

impl RevokedKey {
    /// A key that ends at `at_ms`, in milliseconds since the Unix epoch.
    pub fn new(id: &KeyId, at_ms: u64) -> Self {
        Self {
            key_id: id.to_string(),
            at: rfc3339_text(at_ms),
        }
    }
}

/// A key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub struct Key {
    #[schema(value_type = schemas::KeyId)]
    pub key_id: String,
    #[schema(required, value_type = Option<schemas::Name>)]
    pub label: Option<String>,
    #[schema(value_type = schemas::KeyScope)]
    pub scope: &'static str,
    /// Of a key of scope `answer`: the person who holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<schemas::HumanName>)]
    pub human: Option<String>,
    /// Of a key of scope `answer`: the roles of that person.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<Vec<schemas::Role>>)]
    pub roles: Option<Vec<String>>,
    /// The tools that its callers are listed; without it those of the setting `tools`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<schemas::ToolSet>)]
    pub tools: Option<&'static str>,
    #[schema(value_type = schemas::KeyStatus)]
    pub status: &'static str,
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When the key expires, or has expired.
    #[schema(required, format = DateTime)]
    pub expires_at: Option<String>,
    /// Precise to the minute.
    #[schema(required, format = DateTime)]
    pub last_used_at: Option<String>,
}

impl Key {
    /// The view of a key at `now_ms`, in milliseconds since the Unix epoch.
    pub fn of(key: &KeyRecord, keyring: &Keyring, now_ms: u64) -> Self {
        let status = key.status(now_ms);
        let ends = key.expires_at_ms.into_iter().chain(key.retired_at_ms).min();
        let last_used = keyring.last_used_at_ms(&key.digest).max(key.last_used_at_ms);
        // A minute begins before a key that was made and used in it.
        let last_used = last_used.map(|at| at.max(key.created_at_ms));
        debug_assert!(status != KeyStatus::Retiring || ends.is_some());
        Self {
            key_id: key.id.to_string(),
            label: key.label.clone(),
            scope: key.scope.as_str(),
            human: key.human.as_ref().map(|human| human.name.to_string()),
            roles: key.human.as_ref().map(|human| human.roles.clone()),
            tools: key.tools.map(ToolSet::as_str),
            status: status.as_str(),
            created_at: rfc3339_text(key.created_at_ms),
            expires_at: ends.map(rfc3339_text),
            last_used_at: last_used.map(rfc3339_text),
        }
    }
}

/// The keys of a project.
#[derive(Debug, Serialize, ToSchema)]
pub struct Keys {
    pub keys: Vec<Key>,
}

/// A new key with its record.
#[derive(Serialize, ToSchema)]
pub struct CreatedKey {
    pub key: Key,
    /// The key in clear text. It is shown this one time.
    #[schema(value_type = schemas::ApiKey)]
    pub api_key: String,
}

/// A new grant.
#[derive(Debug, Serialize, ToSchema)]
pub struct Granted {
    pub permission: Permission,
    /// Reasons why messages still cannot pass; empty when none applies.
    pub warnings: Vec<String>,
}

/// A page of grants.
#[derive(Debug, Serialize, ToSchema)]
pub struct Grants {
    pub grants: Vec<Permission>,
    /// Cursor of the next page, when items are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = schemas::ProjectId)]
    pub next_cursor: Option<String>,
}

/// The result of revoking a grant.
#[derive(Debug, Serialize, ToSchema)]
pub struct GrantRevoked {
    /// False when the grant did not exist.
    pub revoked: bool,
}

/// One entry of the audit.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditLine {
    #[schema(format = "uuid")]
    pub id: String,
    #[schema(format = DateTime)]
    pub at: String,
    pub actor: String,
    #[schema(required)]
    pub address: Option<String>,
    #[schema(required, value_type = Option<schemas::ProjectId>)]
    pub project: Option<String>,
    pub action: String,
    #[schema(required)]
    pub target: Option<String>,
    #[schema(value_type = schemas::Outcome)]
    pub outcome: &'static str,
    #[schema(required)]
    pub code: Option<String>,
}

impl From<&AuditEntry> for AuditLine {
    fn from(entry: &AuditEntry) -> Self {
        Self {
            id: entry.id.to_string(),
            at: rfc3339_text(entry.at_ms),
            actor: entry.actor.clone(),
            address: entry.address.clone(),
            project: entry.project.as_ref().map(ToString::to_string),
            action: entry.action.clone(),
            target: entry.target.clone(),
            outcome: entry.outcome.as_str(),
            code: entry.code.clone(),
        }
    }
}

/// A page of the audit, newest entries first.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditPage {
    pub entries: Vec<AuditLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = "uuid")]
    pub next_cursor: Option<String>,
}

/// A session after it was disconnected or ended.
#[derive(Debug, Serialize, ToSchema)]
pub struct EndedSession {
    #[schema(format = "uuid")]
    pub session_id: String,
    pub status: SessionEnd,
    /// Messages that wait for a disconnected session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub queue_size: Option<usize>,
    /// Messages of an ended session that became dead letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub dead_letters: Option<usize>,
    /// Replicas that did not answer: the session may be connected there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub partial: Vec<String>,
}

/// How a session was ended: `disconnected` keeps its name and inbox.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionEnd {
    Disconnected,
    Ended,
}

impl EndedSession {
    /// The view of a session without numbers.
    pub fn new(session: SessionId, status: SessionEnd) -> Self {
        Self {
            session_id: session.to_string(),
            status,
            queue_size: None,
            dead_letters: None,
            partial: Vec::new(),
        }
    }
}
