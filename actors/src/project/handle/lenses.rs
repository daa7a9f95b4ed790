//! Lenses: register, replace, remove.

use std::sync::Arc;

use lens::Lens;
use semver::Version;
use serde_json::Value;
use tokio::sync::oneshot;

use super::ProjectHandle;
use crate::{
    clock::now,
    model::{BrokerError, KeyId, LensRecord, Owner, ProtocolName, ProtocolRecord, SessionId},
    registry::{
        ChangeLens, LENSES_INTO_VERSION_MAX, LensChange, LensChanged, LensCheck, LensOutcome, Lenses, Protocol,
        Refresh, RefreshCatalog, builtin, check_schema_bytes,
    },
    storage::{StoredLens, Table},
};

/// Lenses of one protocol: a path through them is found within milliseconds.
const LENSES_OF_PROTOCOL_MAX: usize = 128;
/// How often a change of a lens is tried while others change the same lens.
const TRIES_MAX: usize = 4;

/// The record may be four times as large as its operations.
const LENS_TOO_LARGE: &str =
    "the lens and what is known about it take too many bytes: use shorter names or fewer operations";

/// A lens to register.
#[derive(Clone, Debug)]
pub struct LensDefinition {
    /// The version whose payloads it transforms.
    pub from: Version,
    /// The operations.
    pub ops: Value,
    pub direction: lens::Direction,
    /// The way forward may lose what is declared.
    pub allow_loss: bool,
    /// Replaces another lens of the same versions.
    pub replaces: bool,
}

/// Who registers.
#[derive(Clone, Debug, Default)]
pub struct Registrant {
    /// The session of the caller, if it has one.
    pub session: Option<SessionId>,
    /// None for a caller without a credential.
    pub owner: Option<Owner>,
    /// May change the lenses of every version.
    pub is_admin: bool,
}

/// A lens that may be registered.
pub(super) enum PreparedLens {
    Known(LensOutcome),
    Checked {
        record: Arc<LensRecord>,
        before: Option<StoredLens>,
    },
}

impl PreparedLens {
    /// The answer of a registration that stores it, or would.
    pub fn outcome(&self) -> LensOutcome {
        match self {
            Self::Known(outcome) => outcome.clone(),
            Self::Checked { record, before } => LensOutcome {
                record: Arc::clone(record),
                is_duplicate: false,
                is_replacement: before.is_some(),
            },
        }
    }
}

impl PreparedLens {
    /// Checks that a lens may be stored which was prepared for a new version, if another caller has registered it first.
    pub fn check_owner(&self, registered: &ProtocolRecord, by: &Registrant) -> Result<(), BrokerError> {
        match self {
            Self::Known(_) => Ok(()),
            Self::Checked { .. } => by.check_owns(registered),
        }
    }
}

impl Registrant {
    /// The first key of the rotation chain of the caller's key.
    fn lineage(&self) -> Option<KeyId> {
        KeyId::parse(self.owner.as_ref()?.as_str().strip_prefix("key:")?).ok()
    }

    /// Checks that the caller may change the lenses of a registered version. Without keys every caller is an administrator.
    fn check_owns(&self, protocol: &ProtocolRecord) -> Result<(), BrokerError> {
        if self.is_admin || self.owner.is_some() && self.owner == protocol.owner {
            return Ok(());
        }
        let text = format!(
            "the lenses of {} {} belong to the key that registered this version: use that key, one that was rotated from it, or \
             one of scope admin",
            protocol.name, protocol.version
        );
        Err(BrokerError::forbidden(text))
    }
}

impl ProjectHandle {
    /// Registers, or replaces, a lens into a registered version.
    ///
    /// # Errors
    /// `protocol_not_found`, `invalid_argument`, `invalid_lens`, `forbidden`; `protocol_exists` if the versions have another
    /// lens and the definition does not replace it; `unavailable`.
    pub async fn put_lens(
        &self,
        name: String,
        version: String,
        wanted: &LensDefinition,
        by: &Registrant,
    ) -> Result<LensOutcome, BrokerError> {
        builtin::check_lens(&name)?;
        let target = self
            .look_up(move |project| project.protocol(&name, &version))
            .answer()
            .await?;
        self.put_lens_into(&target, false, wanted, by).await
    }

    /// As [`Self::put_lens`]. `is_new` says that the caller has just registered the version.
    pub(super) async fn put_lens_into(
        &self,
        target: &Arc<Protocol>,
        is_new: bool,
        wanted: &LensDefinition,
        by: &Registrant,
    ) -> Result<LensOutcome, BrokerError> {
        let prepared = self.prepare_lens(target, is_new, wanted, by).await?;
        self.store_lens(prepared, target, is_new, wanted, by).await
    }

    /// Stores a checked lens. If another change comes first, it is checked again.
    pub(super) async fn store_lens(
        &self,
        mut prepared: PreparedLens,
        target: &Arc<Protocol>,
        is_new: bool,
        wanted: &LensDefinition,
        by: &Registrant,
    ) -> Result<LensOutcome, BrokerError> {
        for _ in 0..TRIES_MAX {
            let outcome = prepared.outcome();
            let PreparedLens::Checked { record, before } = prepared else {
                let LensRecord { name, from, to, .. } = &*outcome.record;
                self.catch_up(name, from, to, Some(&outcome.record)).await?;
                return Ok(outcome);
            };
            let change = LensChange::Put { record, before };
            match self.change_lens(change).await? {
                LensChanged::Stored => return Ok(outcome),
                LensChanged::TooLarge => return Err(BrokerError::forbidden(LENS_TOO_LARGE)),
                LensChanged::Differs => prepared = self.prepare_lens(target, is_new, wanted, by).await?,
            }
        }
        Err(BrokerError::unavailable())
    }

    /// Removes a lens.
    ///
    /// # Errors
    /// `protocol_not_found` without such a version or lens, `forbidden`, `unavailable`.
    pub async fn remove_lens(
        &self,
        name: String,
        version: String,
        from: &Version,
        by: &Registrant,
    ) -> Result<(), BrokerError> {
        builtin::check_lens(&name)?;
        let target = self
            .look_up(move |project| project.protocol(&name, &version))
            .answer()
            .await?;
        let (name, to) = (&target.record.name, &target.record.version);
        by.check_owns(&target.record)?;
        for _ in 0..TRIES_MAX {
            let Some(stored) = self.0.store.lens(name, from, to).await? else {
                self.catch_up(name, from, to, None).await?;
                return Err(BrokerError::LensNotFound {
                    name: name.to_string(),
                    from: from.to_string(),
                    version: to.to_string(),
                });
            };
            if matches!(self.change_lens(LensChange::Remove(stored)).await?, LensChanged::Stored) {
                return Ok(());
            }
        }
        Err(BrokerError::unavailable())
    }

    /// The lenses of a protocol as the store has them: every change that any replica answered before is known here then.
    /// Without other replicas it waits for nothing.
    ///
    /// # Errors
    /// `unavailable` if the store could not be read.
    pub async fn current_lenses(&self, name: &str) -> Result<Option<Arc<Lenses>>, BrokerError> {
        if self.is_shared() {
            self.wait_until_current().await?;
        }
        Ok(self.lenses(name))
    }

    /// The lenses of a protocol as this replica knows them; None without any.
    pub fn lenses(&self, name: &str) -> Option<Arc<Lenses>> {
        self.0.catalog.lenses(name)
    }

    /// The number of lenses.
    pub fn lenses_len(&self) -> usize {
        self.0.catalog.lenses_len()
    }

    /// Reads the lenses of a protocol again if the store has another one of these versions than the catalog: the answer to
    /// the change may have been lost.
    async fn catch_up(
        &self,
        name: &ProtocolName,
        from: &Version,
        to: &Version,
        stored: Option<&LensRecord>,
    ) -> Result<(), BrokerError> {
        let lenses = self.lenses(name.as_str());
        let known = lenses.as_ref().and_then(|lenses| lenses.of_pair(from, to));
        if known.map(|known| &*known.record) == stored {
            return Ok(());
        }
        let (done, is_read) = oneshot::channel();
        let what = Refresh::Lenses(name.clone());
        self.0.registry.report(RefreshCatalog { what, done });
        is_read.await.map_err(|_| BrokerError::unavailable())
    }

    async fn change_lens(&self, change: LensChange) -> Result<LensChanged, BrokerError> {
        let command = |reply| ChangeLens { change, reply };
        self.0.registry.request(command).await
    }

    /// Finds out what a registration of a lens does, and checks it.
    pub(super) async fn prepare_lens(
        &self,
        target: &Arc<Protocol>,
        is_new: bool,
        wanted: &LensDefinition,
        by: &Registrant,
    ) -> Result<PreparedLens, BrokerError> {
        let (name, to) = (&target.record.name, &target.record.version);
        let source = self.source_of(name, to, &wanted.from).await?;
        let from = &source.record.version;
        let lens = Lens::parse(&wanted.ops).map_err(BrokerError::invalid_lens)?;
        let before = self.0.store.lens(name, from, to).await?;
        if let Some(stored) = &before {
            let record = &stored.record;
            let is_same = record.direction == wanted.direction
                && record.allow_loss == wanted.allow_loss
                && Lens::parse(&record.ops).is_ok_and(|known| known == lens);
            if is_same {
                return Ok(PreparedLens::Known(LensOutcome {
                    record: Arc::clone(record),
                    is_duplicate: true,
                    is_replacement: false,
                }));
            }
            if !wanted.replaces {
                return Err(BrokerError::ProtocolExists {
                    name: name.to_string(),
                    version: to.to_string(),
                    differs: vec!["lens"],
                });
            }
        } else if self
            .lenses(name.as_str())
            .is_some_and(|lenses| lenses.registered().len() >= LENSES_OF_PROTOCOL_MAX)
        {
            let text = format!(
                "{name} has {LENSES_OF_PROTOCOL_MAX} lenses, its maximum: remove those of versions that are no longer spoken"
            );
            return Err(BrokerError::forbidden(text));
        } else if self.lenses_into(name, to) >= LENSES_INTO_VERSION_MAX {
            let text = format!(
                "{name} {to} has lenses from {LENSES_INTO_VERSION_MAX} versions, its maximum: remove one, or write a lens into \
                 one of these versions"
            );
            return Err(BrokerError::forbidden(text));
        }
        if !is_new {
            by.check_owns(&target.record)?;
        }
        let mut record = LensRecord {
            name: name.clone(),
            from: from.clone(),
            to: to.clone(),
            ops: wanted.ops.clone(),
            direction: wanted.direction,
            allow_loss: wanted.allow_loss,
            revision: before.as_ref().map_or(1, |stored| stored.record.revision + 1),
            forward: None,
            backward: None,
            registered_by_key: by.lineage(),
            registered_at_ms: now().unix_ms,
        };
        let check = LensCheck::new(lens, source, Arc::clone(target), wanted.direction, wanted.allow_loss);
        let checked = self.check_lens(check).await?;
        check_schema_bytes(self.0.catalog.bytes_len(), checked.compiled.bytes_len())?;
        let verdict = |verdict: Option<lens::Verdict>| verdict.and_then(|verdict| serde_json::to_value(verdict).ok());
        record.forward = verdict(checked.forward);
        record.backward = verdict(checked.backward);
        if serde_json::to_string(&record).unwrap_or_default().len() > Table::Lenses.text_bytes_max() {
            return Err(BrokerError::forbidden(LENS_TOO_LARGE));
        }
        Ok(PreparedLens::Checked {
            record: Arc::new(record),
            before,
        })
    }

    /// Checks a lens. Where rules do not decide, it is tried on the newest messages that are kept.
    async fn check_lens(&self, check: LensCheck) -> Result<lens::Checked, BrokerError> {
        let run = move |check: LensCheck, of_source: Vec<_>, of_target: Vec<_>| {
            let check = move || check.run(&of_source, &of_target);
            self.0.compiler.run(check)
        };
        let checked = run(check, Vec::new(), Vec::new()).await?;
        let (checked, check) = checked.map_err(BrokerError::invalid_lens)?;
        if !check.wants_kept(&checked) {
            return Ok(checked);
        }
        let of_source = self.kept_payloads(&check.source).await?;
        let of_target = self.kept_payloads(&check.target).await?;
        if of_source.is_empty() && of_target.is_empty() {
            return Ok(checked);
        }
        let checked = run(check, of_source, of_target).await?;
        let (checked, _) = checked.map_err(BrokerError::invalid_lens)?;
        Ok(checked)
    }

    /// The protocol from which a lens leads to the version `to`.
    async fn source_of(&self, name: &ProtocolName, to: &Version, from: &Version) -> Result<Arc<Protocol>, BrokerError> {
        if !from.cmp_precedence(to).is_lt() {
            return Err(BrokerError::invalid("from", format!("must be lower than {to}")));
        }
        let (name, from) = (name.clone(), from.to_string());
        let source = self.look_up(move |project| project.protocol(name.as_str(), &from));
        source.answer().await
    }

    /// The number of lenses into a version.
    fn lenses_into(&self, name: &ProtocolName, to: &Version) -> usize {
        self.lenses(name.as_str())
            .map_or(0, |lenses| lenses.into_version(to).len())
    }
}
