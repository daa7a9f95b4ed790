//! What callers may see of projects and keys. Secrets are in created and rotated keys alone.

use std::ops::Bound;

use actors::{
    broker::Keyring,
    clock::rfc3339_text,
    model::{AuditEntry, Grant, IssuedKey, KeyId, KeyRecord, KeyStatus, PageRoom, ProjectId, ProjectRecord},
};
use rest::{
    projects::{AuditLine, Config, Key, Limits, NewApiKey, Permission, Project, RevokedKey},
    words::ApiKey,
};
use serde::Serialize;

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

/// A project for its own callers.
pub fn project(record: &ProjectRecord) -> Project {
    let config = &record.config;
    let mut project = public_project(record);
    project.config.limits = Some(Limits {
        max_sessions: config.max_sessions,
        max_protocols: config.max_protocols,
        queue_capacity: config.queue_capacity,
        rate_limit: config.rate_limit,
    });
    project
}

/// A project for callers of other projects.
pub fn public_project(record: &ProjectRecord) -> Project {
    Project {
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

/// A grant to `target`.
pub fn permission(target: &ProjectId, grant: &Grant) -> Permission {
    Permission {
        target_project_id: target.to_string(),
        allowed_protocols: grant.protocols.iter().map(ToString::to_string).collect(),
        message_rate_limit: grant.message_rate_limit,
        granted_at: rfc3339_text(grant.granted_at_ms),
    }
}

/// A page of the grants of a project, ordered by target. The flag says whether grants are left.
pub fn permissions(record: &ProjectRecord, after: Option<&ProjectId>) -> (Vec<Permission>, bool) {
    let start = after.map_or(Bound::Unbounded, Bound::Excluded);
    let grants = record.grants.range::<ProjectId, _>((start, Bound::Unbounded));
    page(grants.map(|(target, grant)| permission(target, grant)))
}

/// A new key in clear text.
pub fn new_key(made: &IssuedKey) -> NewApiKey {
    NewApiKey {
        key_id: made.id.to_string(),
        api_key: ApiKey(made.key.reveal().to_owned()),
    }
}

/// A key that ends at `at_ms`, in milliseconds since the Unix epoch.
pub fn revoked_key(id: &KeyId, at_ms: u64) -> RevokedKey {
    RevokedKey {
        key_id: id.to_string(),
        at: rfc3339_text(at_ms),
    }
}

/// A key at `now_ms`, in milliseconds since the Unix epoch.
pub fn key(key: &KeyRecord, keyring: &Keyring, now_ms: u64) -> Key {
    let status = key.status(now_ms);
    let ends = key.expires_at_ms.into_iter().chain(key.retired_at_ms).min();
    let last_used = keyring.last_used_at_ms(&key.digest).max(key.last_used_at_ms);
    // A minute begins before a key that was made and used in it.
    let last_used = last_used.map(|at| at.max(key.created_at_ms));
    debug_assert!(status != KeyStatus::Retiring || ends.is_some());
    Key {
        key_id: key.id.to_string(),
        label: key.label.clone(),
        scope: key.scope.as_str().to_owned(),
        human: key.human.as_ref().map(|human| human.name.to_string()),
        roles: key.human.as_ref().map(|human| human.roles.clone()),
        tools: key.tools.map(|tools| tools.as_str().to_owned()),
        status: status.as_str().to_owned(),
        created_at: rfc3339_text(key.created_at_ms),
        expires_at: ends.map(rfc3339_text),
        last_used_at: last_used.map(rfc3339_text),
    }
}

/// An entry of the audit.
pub fn audit_line(entry: &AuditEntry) -> AuditLine {
    AuditLine {
        id: entry.id.to_string(),
        at: rfc3339_text(entry.at_ms),
        actor: entry.actor.clone(),
        address: entry.address.clone(),
        project: entry.project.as_ref().map(ToString::to_string),
        action: entry.action.clone(),
        target: entry.target.clone(),
        outcome: entry.outcome.as_str().to_owned(),
        code: entry.code.clone(),
    }
}
