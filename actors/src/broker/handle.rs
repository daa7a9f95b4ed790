//! The verbs of the broker that every surface calls. Callers are authorized before they get here.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::{sync::watch, time::timeout};
use uuid::Uuid;

use super::{
    actor::Broker,
    keyring::Keyring,
    messages::{CreateProject, RecordUpdate, UpdateProject},
};
use crate::{
    bridge::Listener,
    clock::now,
    model::{
        ApiKey, AuditEntry, AuditQuery, BrokerError, Grant, IssuedKey, KeyDigest, KeyId, KeyRecord, KeyRotation,
        LoginRecord, NewKey, NewProject, ProjectChanges, ProjectEvent, ProjectId, ProjectRecord, Scope,
    },
    project::{ProjectHandle, Projects},
    storage::Storage,
    supervise::{ActorNode, Address},
};

/// The longest time that a caller waits right after the start until the projects are loaded.
const LOADED_WAIT_MAX: Duration = Duration::from_secs(5);

/// The verbs of the broker: projects, their keys and grants, the audit log. Cheap to clone.
#[derive(Clone)]
pub struct BrokerHandle {
    pub(super) address: Address<Broker>,
    /// The listener, where the storage is shared.
    pub(super) listener: Option<Address<Listener>>,
    pub(super) projects: Arc<Projects>,
    pub(super) keyring: Arc<Keyring>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) loaded: watch::Receiver<bool>,
    pub(super) changes: watch::Receiver<u64>,
}

impl BrokerHandle {
    /// The project of this id. Waits until the projects are loaded.
    ///
    /// # Errors
    /// `project_not_found` for a closed project as for one that never existed, equally fast; `unavailable` when the
    /// broker ends before its projects are loaded.
    pub async fn project(&self, id: &ProjectId) -> Result<ProjectHandle, BrokerError> {
        if let Some(project) = self.projects.get(id) {
            return Ok(project);
        }
        self.wait_until_loaded().await?;
        self.projects.get(id).ok_or(BrokerError::ProjectNotFound)
    }

    /// Waits until the projects and their keys are loaded.
    ///
    /// # Errors
    /// `unavailable` when the broker ends before that, or the storage cannot be read for five seconds.
    pub async fn wait_until_loaded(&self) -> Result<(), BrokerError> {
        let mut loaded = self.loaded.clone();
        match timeout(LOADED_WAIT_MAX, loaded.wait_for(|loaded| *loaded)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(BrokerError::unavailable()),
        }
    }

    /// Whether the projects and their keys are loaded.
    pub fn is_loaded(&self) -> bool {
        *self.loaded.borrow()
    }

    /// The open projects.
    pub fn open_projects(&self) -> Vec<ProjectHandle> {
        self.projects.all_open()
    }

    /// Keeps the last signs of life of all sessions, because the broker ends.
    pub async fn keep_heartbeats(&self) {
        let projects = self.open_projects();
        let kept = projects.iter().map(|project| project.control().keep_heartbeats());
        for failed in join_all(kept).await.into_iter().filter_map(Result::err) {
            tracing::warn!(error = %failed, "the last signs of life of sessions could not be stored");
        }
    }

    /// The records of all projects, deleted ones included, sorted by id.
    pub fn records(&self) -> Vec<Arc<ProjectRecord>> {
        self.projects.records()
    }

    /// The record of a project, deleted ones included.
    pub fn record(&self, id: &ProjectId) -> Option<Arc<ProjectRecord>> {
        self.projects.record(id)
    }

    /// The keys of all projects.
    pub fn keyring(&self) -> &Arc<Keyring> {
        &self.keyring
    }

    /// Changes whenever a project or one of its keys changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// The storage of the broker.
    pub fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    /// The actor tree as data. It is read without asking an actor, so it works when one is stuck.
    pub fn observe(&self) -> ActorNode {
        let mut projects = self.open_projects();
        projects.sort_by(|a, b| a.id().cmp(b.id()));
        let listener = self.listener.iter().map(|listener| listener.metrics().node(Vec::new()));
        self.address
            .metrics()
            .node(listener.chain(projects.iter().map(ProjectHandle::observe)).collect())
    }

    /// The mailboxes of the root actor and of the listener, in this order.
    pub fn root_mailboxes(&self) -> (usize, Option<usize>) {
        let listener = self.listener.as_ref().map(|listener| listener.metrics().mailbox_len());
        (self.address.metrics().mailbox_len(), listener)
    }

    /// Creates a project and its first key, which has the scope `admin`.
    ///
    /// # Errors
    /// `project_exists`, `invalid_argument` for a field that does not fit, `forbidden` when the broker has its
    /// maximum of projects or `enable_multi_project` is false, `unavailable`.
    pub async fn create_project(&self, wanted: NewProject) -> Result<(Arc<ProjectRecord>, IssuedKey), BrokerError> {
        let now_ms = now().unix_ms;
        let mut record = ProjectRecord::new(wanted, now_ms)?;
        let made = make_key(&record.id)?;
        let key = NewKey {
            label: None,
            scope: Scope::Admin,
            human: None,
            tools: None,
            expires_at_ms: None,
        };
        record.add_key(&made, &key, now_ms)?;
        let record = self.address.request(|reply| CreateProject { record, reply }).await?;
        Ok((record, made))
    }

    /// Changes a project.
    ///
    /// # Errors
    /// `project_not_found`, `invalid_argument` for a field that does not fit, `unavailable`.
    pub async fn change_project(
        &self,
        id: &ProjectId,
        changes: ProjectChanges,
    ) -> Result<Arc<ProjectRecord>, BrokerError> {
        self.update(id, move |record| record.change(&changes)).await
    }

    /// Deletes a project: ends its keys and its sessions, and discards the messages they hold.
    ///
    /// # Errors
    /// `project_not_found`, `forbidden` for the default project, `unavailable`.
    pub async fn delete_project(&self, id: &ProjectId) -> Result<(), BrokerError> {
        if *id == ProjectId::default_project() {
            let text = "the default project cannot be deleted";
            return Err(BrokerError::forbidden(text));
        }
        self.update(id, |record| {
            record.close(now().unix_ms);
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Creates a key.
    ///
    /// # Errors
    /// `project_not_found`, `invalid_argument` for a field that does not fit or when the project has its maximum of
    /// keys, `unavailable`.
    pub async fn add_key(&self, id: &ProjectId, wanted: NewKey) -> Result<IssuedKey, BrokerError> {
        let made = make_key(id)?;
        let adds = made.clone();
        self.update(id, move |record| record.add_key(&adds, &wanted, now().unix_ms))
            .await?;
        Ok(made)
    }

    /// Revokes a key. Returns the time from which it is invalid, in milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// `project_not_found`, `invalid_argument` when the project has no such key, `unavailable`.
    pub async fn revoke_key(&self, id: &ProjectId, key: KeyId) -> Result<u64, BrokerError> {
        let revoked = key.clone();
        let record = self
            .update(id, move |record| record.revoke_key(&revoked, now().unix_ms).map(drop))
            .await?;
        let known = record.keys.iter().find(|known| known.id == key);
        Ok(known.and_then(|known| known.retired_at_ms).unwrap_or(0))
    }

    /// Replaces this key, or (None) every active key, with a new one. The old ones stay valid for `grace_ms`.
    ///
    /// # Errors
    /// `project_not_found`, `invalid_argument` when the key does not exist or is not active, `unavailable`.
    pub async fn rotate_keys(
        &self,
        id: &ProjectId,
        only: Option<&KeyId>,
        grace_ms: u64,
    ) -> Result<KeyRotation, BrokerError> {
        self.wait_until_loaded().await?;
        let record = self.record(id).filter(|record| record.active);
        let record = record.ok_or(BrokerError::ProjectNotFound)?;
        let now_ms = now().unix_ms;
        let retired_at_ms = now_ms.saturating_add(grace_ms);
        let mut replaced = Vec::new();
        for key in record.rotatable_keys(only, now_ms)? {
            replaced.push((key, make_key(id)?));
        }
        let rotated = KeyRotation {
            issued: replaced.iter().map(|(_, made)| made.clone()).collect(),
            retired: Vec::new(),
        };
        let ids: Vec<_> = replaced.iter().map(|(key, _)| key.clone()).collect();
        let record = self
            .update(id, move |record| record.rotate(&replaced, retired_at_ms, now().unix_ms))
            .await?;
        let ends = |key: &KeyRecord| key.expires_at_ms.into_iter().chain(key.retired_at_ms).min();
        let retired = record.keys.iter().filter(|key| ids.contains(&key.id));
        Ok(KeyRotation {
            retired: retired
                .map(|key| (key.id.clone(), ends(key).unwrap_or(retired_at_ms)))
                .collect(),
            ..rotated
        })
    }

    /// Stores a login of a browser.
    ///
    /// # Errors
    /// `project_not_found`, `unavailable`.
    pub async fn add_login(&self, id: &ProjectId, login: LoginRecord) -> Result<(), BrokerError> {
        self.update(id, move |record| {
            record.add_login(login.clone(), now().unix_ms);
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Ends the login whose token has this digest, if it exists.
    ///
    /// # Errors
    /// `project_not_found`, `unavailable`.
    pub async fn end_login(&self, id: &ProjectId, digest: KeyDigest) -> Result<(), BrokerError> {
        self.update(id, move |record| {
            record.end_login(&digest);
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Allows a project to send to another one.
    ///
    /// # Errors
    /// `project_not_found`, `invalid_argument`, `forbidden` when the grants of the project reach their bound,
    /// `unavailable`.
    pub async fn grant(&self, id: &ProjectId, target: ProjectId, grant: Grant) -> Result<(), BrokerError> {
        self.update(id, move |record| record.grant(target.clone(), grant.clone()))
            .await?;
        Ok(())
    }

    /// Revokes a grant. Returns false when the project had none for this target.
    ///
    /// # Errors
    /// `project_not_found`, `unavailable`.
    pub async fn revoke_grant(&self, id: &ProjectId, target: &ProjectId) -> Result<bool, BrokerError> {
        self.wait_until_loaded().await?;
        let had = self.record(id).is_some_and(|record| record.grants.contains_key(target));
        if had {
            let target = target.clone();
            self.update(id, move |record| {
                record.grants.remove(&target);
                Ok(())
            })
            .await?;
        }
        Ok(had)
    }

    /// Applies an update to a record, again and again until no other replica interferes.
    ///
    /// # Errors
    /// As the update itself; `project_not_found`, `unavailable`.
    async fn update(
        &self,
        id: &ProjectId,
        update: impl Fn(&mut ProjectRecord) -> Result<(), BrokerError> + Send + Sync + 'static,
    ) -> Result<Arc<ProjectRecord>, BrokerError> {
        self.wait_until_loaded().await?;
        let command = |reply| UpdateProject {
            project: id.clone(),
            update: RecordUpdate::new(update),
            reply,
        };
        self.address.request(command).await
    }

    /// Appends an entry to the audit log. Sets its id and time. A store that fails is logged.
    pub async fn record_audit(&self, mut entry: AuditEntry) {
        entry.id = Uuid::now_v7();
        entry.at_ms = now().unix_ms;
        let project = entry.project.as_ref().and_then(|project| self.projects.get(project));
        let event = ProjectEvent::Audit {
            entry: entry.id,
            action: entry.action.clone(),
            outcome: entry.outcome,
        };
        if let Err(error) = self.storage.append_audit(entry).await {
            tracing::warn!(%error, "audit entry could not be stored; it is only in the log");
        } else if let Some(project) = project {
            project.control().record(event);
        }
    }

    /// Entries of the audit log, newest first.
    ///
    /// # Errors
    /// `unavailable` when the store cannot be read.
    pub async fn audit(&self, query: AuditQuery) -> Result<Vec<Arc<AuditEntry>>, BrokerError> {
        Ok(self.storage.audit(query).await?)
    }

    /// The address of the root actor. Compiled in for tests only.
    #[cfg(feature = "faults")]
    pub fn address(&self) -> &Address<Broker> {
        &self.address
    }
}

fn make_key(project: &ProjectId) -> Result<IssuedKey, BrokerError> {
    let id = KeyId::generate()?;
    let key = ApiKey::generate(project, &id)?;
    Ok(IssuedKey { id, key })
}
