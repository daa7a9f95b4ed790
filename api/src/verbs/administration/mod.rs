//! Administration of projects, keys and grants: the verbs that the MCP tools and the REST API share.
//!
//! Each verb checks the caller's scope, performs the change and records it in the audit. It knows neither HTTP nor MCP.

mod backends;
mod lenses;
mod sessions;
mod views;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use actors::{
    broker::BrokerHandle,
    clock::{millis, now},
    model::{
        AuditOutcome, AuditQuery, BrokerError, Grant, KeyId, NewKey, NewProject, ProjectChanges, ProjectId,
        ProjectRecord, ProtocolName, Scope,
    },
};
use uuid::Uuid;

use crate::auth::{Audit, AuditedAction, Identity};
use rest::{
    projects::{
        AuditPage, ChangedProject, Counts, CreatedKey, CreatedProject, GrantRevoked, Granted, Grants, Keys, Project,
        ProjectInfo, Projects, RevokedKeys, RotatedKeys,
    },
    words::ApiKey,
};

/// Longest time that a rotated key stays valid in addition to its replacement.
pub const GRACE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Longest lifetime of a key that expires.
pub const KEY_LIFE_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const AUDIT_PAGE_LEN: usize = 100;
/// Most entries of a page of the audit.
pub const AUDIT_PAGE_LEN_MAX: usize = 1000;

type Result<T> = std::result::Result<T, BrokerError>;

/// Administers the projects of a broker. Each verb takes the caller as `by`.
pub struct Administration {
    broker: BrokerHandle,
    audit: Arc<Audit>,
    multi_project: bool,
}

/// Selects projects of a list.
#[derive(Clone, Debug, Default)]
pub struct ProjectFilter {
    pub include_inactive: bool,
    /// Only projects that have all of these tags.
    pub tags: BTreeSet<String>,
    /// Only projects with this text, in lower case, in their id or name.
    pub text: Option<String>,
    /// Only projects whose id sorts after this one.
    pub after: Option<ProjectId>,
}

/// Selects entries of the audit.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    pub project: Option<ProjectId>,
    pub action: Option<String>,
    pub outcome: Option<AuditOutcome>,
    /// Only entries with this text, in lower case, in their actor, action or target.
    pub text: Option<String>,
    pub limit: Option<usize>,
    pub cursor: Option<Uuid>,
}

impl Administration {
    /// Administers the projects of `broker`; `multi_project` says whether it may have more than one.
    pub fn new(broker: BrokerHandle, audit: Arc<Audit>, multi_project: bool) -> Self {
        Self {
            broker,
            audit,
            multi_project,
        }
    }

    /// The audit in which the verbs are recorded.
    pub fn audit(&self) -> &Arc<Audit> {
        &self.audit
    }

    /// Whether the broker may have more than one project.
    pub fn is_multi_project(&self) -> bool {
        self.multi_project
    }

    /// Creates a project with its first key. Requires the scope `operator`.
    ///
    /// # Errors
    /// `forbidden`, `project_exists`, `invalid_argument`, or `unavailable` when the storage fails.
    pub async fn create(&self, by: &Arc<Identity>, wanted: NewProject) -> Result<CreatedProject> {
        let allowed = by.check_scope(Scope::Operator);
        let act = audited_action("project.create", &wanted.id, Some(wanted.id.to_string()));
        self.audited(by, act, allowed, async move |broker| {
            let (record, made) = broker.create_project(wanted).await?;
            Ok(CreatedProject {
                project: views::project(&record),
                api_keys: vec![views::new_key(&made)],
            })
        })
        .await
    }

    /// Lists the projects that the caller may see: its own and the discoverable ones; an operator sees all.
    pub fn list(&self, by: &Arc<Identity>, filter: &ProjectFilter) -> Projects {
        let is_wanted = |record: &Arc<ProjectRecord>| {
            filter.after.as_ref().is_none_or(|after| record.id > *after)
                && (record.active || filter.include_inactive)
                && is_visible_to(by, record)
                && filter.tags.is_subset(&record.tags)
                && filter
                    .text
                    .as_ref()
                    .is_none_or(|text| record.id.as_str().contains(text) || record.name.to_lowercase().contains(text))
        };
        let records = self.broker.records().into_iter().filter(is_wanted);
        let (projects, more) = views::page(records.map(|record| view(by, &record)));
        let next_cursor = projects.last().filter(|_| more).map(|last| last.project_id.clone());
        Projects { projects, next_cursor }
    }

    /// Returns one project; the caller's own where `id` is `None`. A caller from outside sees the public part only.
    ///
    /// # Errors
    /// `project_not_found` when the project does not exist or the caller may not see it.
    pub async fn show(&self, by: &Arc<Identity>, id: Option<&ProjectId>) -> Result<ProjectInfo> {
        let id = id.unwrap_or(by.project.id());
        let record = self.broker.record(id).filter(|record| is_visible_to(by, record));
        let record = record.ok_or(BrokerError::ProjectNotFound)?;
        if !sees_all_of(by, &record) {
            return Ok(ProjectInfo {
                project: views::public_project(&record),
                counts: None,
                permissions: None,
                more_permissions: false,
            });
        }
        let now = now();
        let counts = match self.broker.project(id).await {
            Err(_) => None,
            Ok(project) => Some(Counts {
                sessions: project.directory().len(),
                active_sessions: project.directory().active_len(now),
                protocols: project.protocols_len(),
                dead_letters: project.dead_letter_count().await?,
                keys: record
                    .keys
                    .iter()
                    .filter(|key| key.status(now.unix_ms).is_valid())
                    .count(),
            }),
        };
        let (permissions, more_permissions) = views::permissions(&record, None);
        Ok(ProjectInfo {
            project: views::project(&record),
            counts,
            permissions: Some(permissions),
            more_permissions,
        })
    }

    /// Changes a project. Requires the scope `admin`; changed limits require `operator`.
    ///
    /// # Errors
    /// `forbidden`, `project_not_found`, `invalid_argument`, or `unavailable` when the storage fails.
    pub async fn change(&self, by: &Arc<Identity>, id: &ProjectId, changes: ProjectChanges) -> Result<ChangedProject> {
        let allowed = self.check_project(by, id, Scope::Admin);
        let allowed = if changes.config.touches_limits() {
            allowed.and(by.check_scope(Scope::Operator))
        } else {
            allowed
        };
        let id = id.clone();
        self.audited(
            by,
            audited_action("project.change", &id, None),
            allowed,
            async move |broker| {
                let record = broker.change_project(&id, changes).await?;
                Ok(ChangedProject {
                    project: views::project(&record),
                })
            },
        )
        .await
    }

    /// Deletes a project with its keys, sessions and messages. Requires the scope `operator`.
    ///
    /// # Errors
    /// `forbidden`, `project_not_found`, or `unavailable` when the storage fails.
    pub async fn delete(&self, by: &Arc<Identity>, id: &ProjectId) -> Result<()> {
        let allowed = self.check_project(by, id, Scope::Operator);
        let id = id.clone();
        let act = audited_action("project.delete", &id, Some(id.to_string()));
        self.audited(by, act, allowed, async move |broker| broker.delete_project(&id).await)
            .await
    }

    /// Lists the keys of a project. Requires the scope `admin`.
    ///
    /// # Errors
    /// `forbidden` or `project_not_found`.
    pub fn keys(&self, by: &Arc<Identity>, id: &ProjectId) -> Result<Keys> {
        self.audit_refusal(
            by,
            &audited_action("key.list", id, None),
            self.check_project(by, id, Scope::Admin),
        )?;
        let record = self.record(id)?;
        let now_ms = now().unix_ms;
        let keyring = self.broker.keyring();
        let keys = record.keys.iter().map(|key| views::key(key, keyring, now_ms)).collect();
        Ok(Keys { keys })
    }

    /// Creates a key. Requires the scope `admin`.
    ///
    /// # Errors
    /// `forbidden`, `project_not_found`, `invalid_argument`, or `unavailable` when the storage fails.
    pub async fn add_key(&self, by: &Arc<Identity>, id: &ProjectId, wanted: NewKey) -> Result<CreatedKey> {
        let allowed = self.check_project(by, id, Scope::Admin);
        let id = id.clone();
        let act = audited_action("key.create", &id, Some(wanted.scope.as_str().to_owned()));
        self.audited(by, act, allowed, async move |broker| {
            let made = broker.add_key(&id, wanted).await?;
            let record = broker.record(&id).ok_or(BrokerError::ProjectNotFound)?;
            let key = record.keys.iter().find(|key| key.id == made.id);
            let key = key.ok_or(BrokerError::unavailable())?;
            Ok(CreatedKey {
                key: views::key(key, broker.keyring(), now().unix_ms),
                api_key: ApiKey(made.key.reveal().to_owned()),
            })
        })
        .await
    }

    /// Revokes a key at once. Requires the scope `admin`.
    ///
    /// # Errors
    /// `forbidden`, `project_not_found`, `invalid_argument` for an unknown key, or `unavailable` when the storage
    /// fails.
    pub async fn revoke_key(&self, by: &Arc<Identity>, id: &ProjectId, key: KeyId) -> Result<RevokedKeys> {
        let allowed = self.check_project(by, id, Scope::Admin);
        let id = id.clone();
        let act = audited_action("key.revoke", &id, Some(key.to_string()));
        self.audited(by, act, allowed, async move |broker| {
            let at_ms = broker.revoke_key(&id, key.clone()).await?;
            Ok(RevokedKeys {
                revoked: vec![views::revoked_key(&key, at_ms)],
            })
        })
        .await
    }

    /// Replaces one key, or all keys; the old ones stay valid for `grace`. Requires the scope `admin`.
    ///
    /// # Errors
    /// `forbidden`, `project_not_found`, `invalid_argument` for an unknown key, or `unavailable` when the storage
    /// fails.
    pub async fn rotate(
        &self,
        by: &Arc<Identity>,
        id: &ProjectId,
        key: Option<KeyId>,
        grace: Duration,
    ) -> Result<RotatedKeys> {
        let allowed = self.check_project(by, id, Scope::Admin);
        let id = id.clone();
        let act = audited_action("key.rotate", &id, key.as_ref().map(ToString::to_string));
        self.audited(by, act, allowed, async move |broker| {
            let rotated = broker.rotate_keys(&id, key.as_ref(), millis(grace)).await?;
            let revoked = rotated.retired.iter();
            Ok(RotatedKeys {
                api_keys: rotated.issued.iter().map(views::new_key).collect(),
                revoked: revoked.map(|(key, at_ms)| views::revoked_key(key, *at_ms)).collect(),
            })
        })
        .await
    }

    /// Returns a page of the grants of a project, after the target `after`. Requires the scope `observer`.
    ///
    /// # Errors
    /// `forbidden` or `project_not_found`.
    pub fn grants(&self, by: &Arc<Identity>, id: &ProjectId, after: Option<&ProjectId>) -> Result<Grants> {
        self.check_project(by, id, Scope::Observer)?;
        let (grants, more) = views::permissions(&*self.record(id)?, after);
        let last = grants.last().filter(|_| more);
        Ok(Grants {
            next_cursor: last.map(|last| last.target_project_id.clone()),
            grants,
        })
    }

    /// Allows a project to send to `target`: `protocols` (empty means all), at most `message_rate_limit` messages per
    /// minute (0 means no limit). Requires the scope `admin`.
    ///
    /// # Errors
    /// `forbidden`, `project_not_found`, `target_not_found` for an operator, `invalid_argument`, or `unavailable` when
    /// the storage fails.
    pub async fn grant(
        &self,
        by: &Arc<Identity>,
        id: &ProjectId,
        target: ProjectId,
        protocols: BTreeSet<ProtocolName>,
        message_rate_limit: u32,
    ) -> Result<Granted> {
        let allowed = self.check_project(by, id, Scope::Admin);
        let allowed = allowed.and_then(|()| self.check_target(by, &target));
        let id = id.clone();
        let act = audited_action("grant.create", &id, Some(target.to_string()));
        let sees_all = by.scope() == Scope::Operator;
        self.audited(by, act, allowed, async move |broker| {
            let grant = Grant {
                protocols,
                message_rate_limit,
                granted_at_ms: now().unix_ms,
            };
            let permission = views::permission(&target, &grant);
            broker.grant(&id, target.clone(), grant).await?;
            let warnings = cross_project_warnings(broker, sees_all, &id, &target);
            Ok(Granted { permission, warnings })
        })
        .await
    }

    /// Changes this process itself, such as what it logs. Requires the scope `operator`.
    ///
    /// # Errors
    /// `forbidden`, or the error of `change`.
    pub fn change_process<T>(
        &self,
        by: &Arc<Identity>,
        action: &'static str,
        target: &str,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let act = AuditedAction {
            action,
            project: None,
            target: Some(target.to_owned()),
        };
        let changed = by.check_scope(Scope::Operator).and_then(|()| change());
        match &changed {
            Ok(_) => self.audit.record_done(by, &act),
            Err(error) => self.audit.record_refused(by, &act, error),
        }
        changed
    }

    /// Only an operator learns that a target project does not exist. To other callers a missing project looks like a
    /// closed one.
    fn check_target(&self, by: &Identity, target: &ProjectId) -> Result<()> {
        let is_there = || self.broker.record(target).is_some_and(|record| record.active);
        if by.scope() == Scope::Operator && !is_there() {
            return Err(BrokerError::TargetNotFound { id: target.to_string() });
        }
        Ok(())
    }

    /// Revokes a grant. Requires the scope `admin`.
    ///
    /// # Errors
    /// `forbidden`, `project_not_found`, or `unavailable` when the storage fails.
    pub async fn revoke_grant(&self, by: &Arc<Identity>, id: &ProjectId, target: &ProjectId) -> Result<GrantRevoked> {
        let allowed = self.check_project(by, id, Scope::Admin);
        let (id, target) = (id.clone(), target.clone());
        let act = audited_action("grant.revoke", &id, Some(target.to_string()));
        self.audited(by, act, allowed, async move |broker| {
            let revoked = broker.revoke_grant(&id, &target).await?;
            Ok(GrantRevoked { revoked })
        })
        .await
    }

    /// Returns a page of the audit, newest entries first: of one project, or for an operator of all.
    ///
    /// # Errors
    /// `project_not_found` for a foreign project, `forbidden` without the scope `admin`, `unavailable` when the storage
    /// fails.
    pub async fn audit_page(&self, by: &Arc<Identity>, filter: AuditFilter) -> Result<AuditPage> {
        let project = match &filter.project {
            Some(id) => Some(id),
            None if by.scope() == Scope::Operator => None,
            None => Some(by.project.id()),
        };
        let asked = audited_action("audit.read", project.unwrap_or(by.project.id()), None);
        let allowed = match project {
            Some(id) => self.check_project(by, id, Scope::Admin),
            None => Ok(()),
        };
        self.audit_refusal(by, &asked, allowed)?;
        let limit = filter.limit.unwrap_or(AUDIT_PAGE_LEN).clamp(1, AUDIT_PAGE_LEN_MAX);
        let query = AuditQuery {
            project: project.cloned(),
            action: filter.action,
            outcome: filter.outcome,
            text: filter.text,
            before: filter.cursor,
            limit: limit + 1,
        };
        let entries = self.broker.audit(query).await?;
        let (mut lines, mut more) = views::page(entries.iter().map(|entry| views::audit_line(entry)));
        more |= lines.len() > limit;
        lines.truncate(limit);
        let next_cursor = lines.last().filter(|_| more).map(|last| last.id.clone());
        Ok(AuditPage {
            entries: lines,
            next_cursor,
        })
    }

    /// Checks that the caller has `needed` in this project. A foreign project is `project_not_found`.
    fn check_project(&self, by: &Arc<Identity>, id: &ProjectId, needed: Scope) -> Result<()> {
        if by.scope() != Scope::Operator && by.project.id() != id {
            return Err(BrokerError::ProjectNotFound);
        }
        by.check_scope(needed)?;
        self.record(id).map(drop)
    }

    fn record(&self, id: &ProjectId) -> Result<Arc<ProjectRecord>> {
        let record = self.broker.record(id).filter(|record| record.active);
        record.ok_or(BrokerError::ProjectNotFound)
    }

    /// Performs a change and records its result in the audit. A refused caller is recorded too. The change runs in a
    /// task of its own, so it is completed and recorded even when the caller disconnects.
    async fn audited<T: 'static>(
        &self,
        by: &Arc<Identity>,
        act: AuditedAction,
        allowed: Result<()>,
        does: impl AsyncFnOnce(&BrokerHandle) -> Result<T> + 'static,
    ) -> Result<T> {
        self.audit_refusal(by, &act, allowed)?;
        let (broker, audit, by) = (self.broker.clone(), Arc::clone(&self.audit), Arc::clone(by));
        let doing = actix_rt::spawn(async move {
            let result = does(&broker).await;
            match &result {
                Ok(_) => audit.record_done(&by, &act),
                Err(error) => audit.record_refused(&by, &act, error),
            }
            result
        });
        doing.await.unwrap_or(Err(BrokerError::unavailable()))
    }

    /// Records a refusal in the audit and passes the result on.
    fn audit_refusal<T>(&self, by: &Identity, act: &AuditedAction, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| self.audit.record_refused(by, act, error))
    }
}

/// Says which of two projects still blocks messages although a grant exists. About the other project, the caller learns
/// only what sending to it would tell: nothing while its own project is closed, and a closed project looks like a
/// missing one.
fn cross_project_warnings(broker: &BrokerHandle, sees_all: bool, own: &ProjectId, target: &ProjectId) -> Vec<String> {
    let is_open = |id| {
        let record = broker.record(id);
        record.is_some_and(|record| record.active && record.config.allow_cross_project)
    };
    let mut warnings = Vec::new();
    let is_own_open = is_open(own);
    if !is_own_open {
        warnings.push("this project sends nothing to others yet: set its allow_cross_project".to_owned());
    }
    if (sees_all || is_own_open) && !is_open(target) {
        warnings.push(
            "the other project takes nothing from others yet, or does not exist: its allow_cross_project must be set"
                .to_owned(),
        );
    }
    warnings
}

fn is_visible_to(by: &Identity, record: &ProjectRecord) -> bool {
    sees_all_of(by, record) || (record.active && record.config.discoverable)
}

/// Whether the caller sees all of a project, and not only its public part.
fn sees_all_of(by: &Identity, record: &ProjectRecord) -> bool {
    by.scope() == Scope::Operator || *by.project.id() == record.id
}

fn view(by: &Identity, record: &ProjectRecord) -> Project {
    if sees_all_of(by, record) {
        views::project(record)
    } else {
        views::public_project(record)
    }
}

fn audited_action(action: &'static str, project: &ProjectId, target: Option<String>) -> AuditedAction {
    AuditedAction {
        action,
        project: Some(project.clone()),
        target,
    }
}
