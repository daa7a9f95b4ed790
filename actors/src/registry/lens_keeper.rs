//! Keeps the lenses of a project in its catalog as the store has them.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::Mutex;

use super::{catalog::Catalog, compiler::Compiler, lenses::Lenses, messages::Refresh};
use crate::{
    model::{LensRecord, ProtocolName},
    storage::{Store, StoreError},
};

/// Reads and changes the lenses of a project. What it does to the catalog, it does in the order of its reads from the store.
pub(super) struct LensKeeper {
    catalog: Arc<Catalog>,
    compiler: Arc<Compiler>,
    store: Arc<dyn Store>,
    /// Held from a read of the store until the catalog has what was read.
    changing: Mutex<()>,
}

impl LensKeeper {
    pub fn new(catalog: Arc<Catalog>, compiler: Arc<Compiler>, store: Arc<dyn Store>) -> Self {
        Self {
            catalog,
            compiler,
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
                let lenses = Lenses::compile(&self.catalog, known.as_deref(), records);
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
            if let Some((known, records)) = self.changed(&name, records) {
                let catalog = Arc::clone(&self.catalog);
                let compile = move || Lenses::compile(&catalog, known.as_deref(), records);
                let compiled = self.compiler.run(compile).await;
                let lenses = compiled.map_err(|error| StoreError::Unreachable(error.to_string()))?;
                self.catalog.set_lenses(&name, lenses);
            }
        }
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
        let is_same = known.as_ref().map_or(records.is_empty(), |known| known.are(&records));
        (!is_same).then_some((known, records))
    }
}
