//! Keeps the lenses of a project in its catalog as the store has them.

use std::{collections::BTreeMap, sync::Arc};

use lens::Lens;
use semver::Version;
use tokio::sync::Mutex;

use super::{
    catalog::{Catalog, Protocol},
    large_work::LargeWork,
    lenses::{BrokenLens, Lenses, RegisteredLens},
    messages::{LensChange, LensChanged, Refresh},
};
use crate::{
    clock::now,
    model::{LensChangeKind, LensRecord, ProjectEvent, ProtocolName},
    storage::{LensPut, Store, StoreError},
};

/// Reads and changes the lenses of a project. What it does to the catalog, it does in the order of its reads from the store.
pub(super) struct LensKeeper {
    catalog: Arc<Catalog>,
    /// Compiles them after a change of another replica. Deliveries wait for it, so it does not wait for registrations.
    compiling: LargeWork,
    store: Arc<dyn Store>,
    /// Held from a read of the store until the catalog has what was read.
    changing: Mutex<()>,
}

impl LensKeeper {
    pub fn new(catalog: Arc<Catalog>, store: Arc<dyn Store>) -> Self {
        Self {
            catalog,
            compiling: LargeWork::lenses(),
            store,
            changing: Mutex::default(),
        }
    }

    /// Loads all lenses after a start. The project serves nothing before that, so they are compiled here, on the worker.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn load(&self) -> Result<(), StoreError> {
        let _changing = self.changing.lock().await;
        for (name, records) in self.by_name(self.store.lenses(None).await?) {
            if let Some((known, records)) = self.changed(&name, records) {
                let lenses = compile(&self.catalog, known.as_deref(), records);
                self.catalog.set_lenses(&name, lenses);
            }
        }
        Ok(())
    }

    /// Reads lenses that another replica may have changed.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn refresh(&self, what: Refresh) -> Result<(), StoreError> {
        let _changing = self.changing.lock().await;
        let read = match what {
            Refresh::Protocol(..) => return Ok(()),
            Refresh::Lenses(name) => {
                let records = self.store.lenses(Some(&name)).await?;
                BTreeMap::from([(name, records)])
            }
            Refresh::All => self.by_name(self.store.lenses(None).await?),
        };
        for (name, records) in read {
            self.install(&name, records).await?;
        }
        Ok(())
    }

    /// Makes a change, unless another one came first. The catalog has it then.
    ///
    /// # Errors
    /// The store fails. It may have made the change then, and the other replicas may know it.
    pub async fn change(&self, change: LensChange) -> Result<LensChanged, StoreError> {
        let _changing = self.changing.lock().await;
        let name = change.name().clone();
        let changed = self.make_change(change).await;
        if changed.is_err()
            && let Err(error) = self.read_again(&name).await
        {
            tracing::warn!(%name, %error, "a lens may have been changed, and cannot be read");
        }
        changed
    }

    async fn make_change(&self, change: LensChange) -> Result<LensChanged, StoreError> {
        let (put, record, kind) = match change {
            LensChange::Put { record, before } => {
                let kind = match before {
                    Some(_) => LensChangeKind::Replaced,
                    None => LensChangeKind::Registered,
                };
                (self.store.put_lens(&record, before.as_ref()).await?, record, kind)
            }
            LensChange::Remove(stored) => {
                let put = self.store.remove_lens(&stored).await?;
                (put, stored.record, LensChangeKind::Removed)
            }
        };
        match put {
            LensPut::Stored => {}
            LensPut::Differs(_) => return Ok(LensChanged::Differs),
            LensPut::TooLarge => return Ok(LensChanged::TooLarge),
        }
        let event = ProjectEvent::Lens {
            name: record.name.clone(),
            version: record.to.clone(),
            from: record.from.clone(),
            change: kind,
        };
        self.store.record(event, now());
        self.read_again(&record.name).await?;
        Ok(LensChanged::Stored)
    }

    async fn read_again(&self, name: &ProtocolName) -> Result<(), StoreError> {
        let records = self.store.lenses(Some(name)).await?;
        self.install(name, records).await
    }

    /// Compiles the lenses of a protocol that are new, and has the catalog use them.
    async fn install(&self, name: &ProtocolName, records: Vec<Arc<LensRecord>>) -> Result<(), StoreError> {
        let Some((known, records)) = self.changed(name, records) else {
            return Ok(());
        };
        let (mut lenses, mut broken) = (Vec::with_capacity(records.len()), Vec::new());
        for record in records {
            if let Some(unchanged) = unchanged(known.as_deref(), &record) {
                lenses.push(unchanged);
                continue;
            }
            // One by one, so that other projects have a turn after each.
            let catalog = Arc::clone(&self.catalog);
            let compiled = self.compiling.run(move || compile_stored(&catalog, record)).await;
            match compiled.map_err(|error| StoreError::Unreachable(error.to_string()))? {
                Ok(lens) => lenses.push(lens),
                Err(lens) => broken.push(lens),
            }
        }
        self.catalog.set_lenses(name, Lenses::new(lenses).with_broken(broken));
        Ok(())
    }

    /// The lenses by protocol, with the protocols whose lenses were all removed.
    fn by_name(&self, records: Vec<Arc<LensRecord>>) -> BTreeMap<ProtocolName, Vec<Arc<LensRecord>>> {
        let known = self.catalog.names_with_lenses().into_iter();
        let mut by_name: BTreeMap<_, Vec<_>> = known.map(|name| (name, Vec::new())).collect();
        for record in records {
            by_name.entry(record.name.clone()).or_default().push(record);
        }
        by_name
    }

    /// The lenses that the catalog has and those that the store has; None if they are the same.
    #[expect(clippy::type_complexity, reason = "the two are used at once")]
    fn changed(
        &self,
        name: &ProtocolName,
        records: Vec<Arc<LensRecord>>,
    ) -> Option<(Option<Arc<Lenses>>, Vec<Arc<LensRecord>>)> {
        let known = self.catalog.lenses(name.as_str());
        let has_versions = |record: &LensRecord| versions_of(&self.catalog, record).is_ok();
        let is_same = known
            .as_ref()
            .map_or(records.is_empty(), |known| known.are(&records, has_versions));
        (!is_same).then_some((known, records))
    }
}

/// Compiles stored lenses of one protocol. Takes those of `known` that are the same.
fn compile(catalog: &Catalog, known: Option<&Lenses>, records: Vec<Arc<LensRecord>>) -> Lenses {
    let (mut lenses, mut broken) = (Vec::with_capacity(records.len()), Vec::new());
    for record in records {
        match unchanged(known, &record).map_or_else(|| compile_stored(catalog, record), Ok) {
            Ok(lens) => lenses.push(lens),
            Err(lens) => broken.push(lens),
        }
    }
    Lenses::new(lenses).with_broken(broken)
}

/// The lens of `known` that has this record.
fn unchanged(known: Option<&Lenses>, record: &Arc<LensRecord>) -> Option<RegisteredLens> {
    let known = known?.of_pair(&record.from, &record.to)?;
    (known.record == *record).then(|| known.clone())
}

/// Compiles a stored lens. One that does not compile is logged, and leads nowhere: the others are used.
fn compile_stored(catalog: &Catalog, record: Arc<LensRecord>) -> Result<RegisteredLens, BrokenLens> {
    compile_one(catalog, &record).map_err(|error| {
        let LensRecord { name, from, to, .. } = &*record;
        tracing::error!(%name, %from, %to, error, "a stored lens does not compile and is not used: replace it");
        let has_versions = versions_of(catalog, &record).is_ok();
        BrokenLens { record, has_versions }
    })
}

/// The versions between which a lens leads.
fn versions_of(catalog: &Catalog, record: &LensRecord) -> Result<[Arc<Protocol>; 2], String> {
    let version = |version: &Version| {
        let protocol = catalog.get(record.name.as_str(), &version.to_string());
        protocol.ok_or_else(|| format!("version {version} is not registered"))
    };
    Ok([version(&record.from)?, version(&record.to)?])
}

/// Compiles a lens that was checked when it was registered.
fn compile_one(catalog: &Catalog, record: &Arc<LensRecord>) -> Result<RegisteredLens, String> {
    let [source, target] = versions_of(catalog, record)?;
    let compiled = Lens::parse(&record.ops)
        .and_then(|lens| lens.compile(&source.record.schema, &target.record.schema, record.direction));
    Ok(RegisteredLens {
        record: Arc::clone(record),
        compiled: Arc::new(compiled.map_err(|error| error.to_string())?),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use serde_json::json;
    use tokio::sync::oneshot;

    use super::*;
    use crate::{
        model::ProjectId,
        registry::{Protocol, actor::SCHEMAS_BYTES_MAX, check_schema_bytes, compiler::Compiler, fixtures},
        storage::{Storage, memory::MemoryStorage},
    };

    /// A keeper whose store has a lens that its catalog lacks.
    async fn keeper() -> LensKeeper {
        let store = MemoryStorage::default().open(&ProjectId::default_project());
        let catalog = Arc::<Catalog>::default();
        for version in ["1.0.0", "2.0.0"] {
            let record = fixtures::protocol_record("chat", version, json!({"type": "object"}));
            catalog.insert(Protocol::compile(Arc::new(record)).unwrap());
        }
        let record = fixtures::lens_record("chat", json!([]));
        assert_eq!(store.put_lens(&record, None).await, Ok(LensPut::Stored));
        LensKeeper::new(catalog, store)
    }

    #[tokio::test]
    async fn lenses_of_another_replica_do_not_wait_for_registrations() {
        let keeper = keeper().await;
        let ((begin, begun), (end, ended)) = (oneshot::channel(), mpsc::channel::<()>());
        let registration = async move {
            let check = move || {
                let _ = begin.send(());
                // An error, once the other end is dropped.
                ended.recv()
            };
            Compiler::default().run(check).await
        };
        let registration = tokio::spawn(registration);
        begun.await.unwrap();
        keeper.refresh(Refresh::All).await.unwrap();
        assert_eq!(keeper.catalog.lenses_len(), 1);
        drop(end);
        assert!(registration.await.unwrap().unwrap().is_err());
    }

    #[tokio::test]
    async fn compiled_lenses_take_the_room_of_schemas() {
        let keeper = keeper().await;
        let schemas = keeper.catalog.bytes_len();
        keeper.refresh(Refresh::All).await.unwrap();
        let more = keeper.catalog.bytes_len() - schemas;
        assert!(more > 100, "{more} bytes");
        let filled = |of: usize| check_schema_bytes(keeper.catalog.bytes_len(), of);
        let room = SCHEMAS_BYTES_MAX - schemas - more;
        assert_eq!(
            (filled(room), filled(room + 1).map_err(|error| error.code())),
            (Ok(()), Err("forbidden"))
        );
    }
}
