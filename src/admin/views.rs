//! What is shown of projects and keys: the same objects in the results of tools and in REST.

use std::ops::Bound;

use actors::{
    broker::Keyring,
    clock::rfc3339_text,
    model::{AuditEntry, Grant, IssuedKey, KeyId, KeyRecord, KeyStatus, PageRoom, ProjectId, ProjectRecord},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::schemas;

/// The items that one page has room for, and whether there are more.
pub fn page<T: Serialize>(items: impl Iterator<Item = T>) -> (Vec<T>, bool) {
    let mut room = PageRoom::default();
    let mut more = false;
    let fitting = items.take_while(|item| {
        // Plain objects: there is nothing that could fail.
        let len = serde_json::to_vec(item).map_or(0, |text| text.len());
        more = !room.try_take(len);
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
    /// False once it was deleted.
    pub active: bool,
    #[schema(format = DateTime)]
    pub created_at: String,
    pub config: Config,
}

/// How a project wants to be.
#[derive(Debug, Serialize, ToSchema)]
pub struct Config {
    /// Its sessions may send to other projects, and be sent to, where a permission says so.
    pub allow_cross_project: bool,
    /// Other projects see that it exists.
    pub discoverable: bool,
    /// Not shown to other projects.
    #[serde(flatten)]
    #[schema(value_type = Limits)]
    pub limits: Option<Limits>,
}

/// What a project may have; null is the broker's default.
#[derive(Debug, Serialize, ToSchema)]
pub struct Limits {
    #[schema(minimum = 1, maximum = 10_000_000)]
    pub max_sessions: Option<usize>,
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub max_protocols: Option<usize>,
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub queue_capacity: Option<usize>,
    /// Requests per minute of all its callers together; 0 is no limit.
    #[schema(required = false, value_type = usize, maximum = 4_294_967_295_u32)]
    pub rate_limit: u32,
}

impl Project {
    /// As its own members see it.
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

    /// As others see it, where they see it at all.
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

/// How much there is in a project.
#[derive(Debug, Serialize, ToSchema)]
pub struct Counts {
    pub sessions: usize,
    pub active_sessions: usize,
    pub protocols: usize,
    pub dead_letters: usize,
    /// Those that are good.
    pub keys: usize,
}

/// The sessions of one project may send to another.
#[derive(Debug, Serialize, ToSchema)]
pub struct Permission {
    #[schema(value_type = schemas::ProjectId)]
    pub target_project_id: String,
    /// Empty: all.
    #[schema(value_type = Vec<schemas::ProtocolName>)]
    pub allowed_protocols: Vec<String>,
    /// Messages per minute; 0 is no limit.
    #[schema(value_type = usize, maximum = 4_294_967_295_u32)]
    pub message_rate_limit: u32,
    #[schema(format = DateTime)]
    pub granted_at: String,
}

impl Permission {
    pub fn of(target: &ProjectId, grant: &Grant) -> Self {
        Self {
            target_project_id: target.to_string(),
            allowed_protocols: grant.protocols.iter().map(ToString::to_string).collect(),
            message_rate_limit: grant.message_rate_limit,
            granted_at: rfc3339_text(grant.granted_at_ms),
        }
    }

    /// A page of those of a project, by target, and whether there are more.
    pub fn page_of(record: &ProjectRecord, after: Option<&ProjectId>) -> (Vec<Self>, bool) {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let grants = record.grants.range::<ProjectId, _>((start, Bound::Unbounded));
        page(grants.map(|(target, grant)| Self::of(target, grant)))
    }
}

/// One project in full, as far as the caller may see it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProjectInfo {
    pub project: Project,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub counts: Option<Counts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub permissions: Option<Vec<Permission>>,
    /// There are more permissions than fit: `GET /api/v1/projects/{project_id}/grants` has them in pages.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub more_permissions: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Projects {
    pub projects: Vec<Project>,
    /// Where this page ended, if there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = schemas::ProjectId)]
    pub next_cursor: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ChangedProject {
    pub project: Project,
}

/// A key in clear: this is the only time that it is shown.
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

/// A project that was just made, with its first key.
#[derive(Serialize, ToSchema)]
pub struct CreatedProject {
    pub project: Project,
    pub api_keys: Vec<NewApiKey>,
}

/// Keys that were rotated: the new ones, and until when the old ones are good.
#[derive(Serialize, ToSchema)]
pub struct RotatedKeys {
    pub api_keys: Vec<NewApiKey>,
    pub revoked: Vec<RevokedKey>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct RevokedKeys {
    pub revoked: Vec<RevokedKey>,
}

/// A key that is good no more from some time on.
#[derive(Debug, Serialize, ToSchema)]
pub struct RevokedKey {
    #[schema(value_type = schemas::KeyId)]
    pub key_id: String,
    #[schema(format = DateTime)]
    pub at: String,
}

impl RevokedKey {
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
    #[schema(value_type = schemas::KeyStatus)]
    pub status: &'static str,
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When it ends, or has ended.
    #[schema(required, format = DateTime)]
    pub expires_at: Option<String>,
    /// To the minute.
    #[schema(required, format = DateTime)]
    pub last_used_at: Option<String>,
}

impl Key {
    pub fn of(key: &KeyRecord, keyring: &Keyring, now_ms: u64) -> Self {
        let status = key.status(now_ms);
        let ends = key.expires_at_ms.into_iter().chain(key.retired_at_ms).min();
        let last_used = keyring.last_used_at_ms(&key.digest).max(key.last_used_at_ms);
        debug_assert!(status != KeyStatus::Retiring || ends.is_some());
        Self {
            key_id: key.id.to_string(),
            label: key.label.clone(),
            scope: key.scope.as_str(),
            status: status.as_str(),
            created_at: rfc3339_text(key.created_at_ms),
            expires_at: ends.map(rfc3339_text),
            last_used_at: last_used.map(rfc3339_text),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Keys {
    pub keys: Vec<Key>,
}

/// A key that was just made, and what is kept of it.
#[derive(Serialize, ToSchema)]
pub struct CreatedKey {
    pub key: Key,
    /// This is the only time that it is shown.
    #[schema(value_type = schemas::ApiKey)]
    pub api_key: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Granted {
    pub permission: Permission,
    /// What still stands in the way of messages; empty for nothing.
    pub warnings: Vec<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Grants {
    pub grants: Vec<Permission>,
    /// Where this page ended, if there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = schemas::ProjectId)]
    pub next_cursor: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct GrantRevoked {
    /// False when there was none.
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

/// The newest entries first.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditPage {
    pub entries: Vec<AuditLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = "uuid")]
    pub next_cursor: Option<String>,
}
