//! How the added backends of a project are changed: in the store first, then in the gateways of all replicas.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::actor::{GatewayHandle, LoadAdded};
use crate::{
    model::{BackendFailure, BackendName, BrokerError},
    storage::{ADDED_BACKENDS_MAX, BACKEND_TABLE_BYTES_MAX, Before, RecordPut, Table},
};

/// How often a change is made again because another one came between. Each time, another one was stored.
const CHANGE_ATTEMPTS_MAX: usize = 16;

impl GatewayHandle {
    /// Adds a backend. Returns once the store has it and this replica serves it.
    ///
    /// # Errors
    /// `backend_exists`, `command_not_allowed`, `invalid_argument`, `payload_too_large`, `forbidden` when the project has its
    /// maximum of added backends, or `unavailable`.
    pub async fn add_backend(&self, name: &BackendName, table: &str) -> Result<(), BrokerError> {
        self.check_table(name, table)?;
        let exists = || BackendFailure::Exists { name: name.to_string() };
        if self.is_in_file(name) {
            return Err(exists().into());
        }
        let key = name.as_str().into();
        let before = Before::Absent {
            len_max: ADDED_BACKENDS_MAX,
        };
        let put = self.store.put_if(Table::AddedBackends, key, before, Some(table.into()));
        match put.await? {
            RecordPut::Stored => {
                self.load_added().await;
                Ok(())
            }
            RecordPut::Differs(_) => Err(exists().into()),
            RecordPut::Full => {
                let text = format!("the project has its {ADDED_BACKENDS_MAX} added backends: remove one first");
                Err(BrokerError::forbidden(text))
            }
        }
    }

    /// Replaces the table of an added backend by what `change` makes of it; None removes the backend. Returns once the store
    /// has it and this replica serves it.
    ///
    /// # Errors
    /// `backend_not_found`, `forbidden` for a backend of the configuration file, those of `change`, and those of
    /// [`Self::add_backend`].
    pub async fn change_backend(
        &self,
        name: &str,
        change: impl Fn(&str) -> Result<Option<String>, BrokerError>,
    ) -> Result<(), BrokerError> {
        let not_found = || BackendFailure::NotFound {
            name: name.chars().take(64).collect(),
        };
        let name = BackendName::parse(name).map_err(|_| not_found())?;
        let in_file = || {
            let text = format!(
                "backend \"{name}\" is in the configuration file: change it there; disabled = true in its table switches it \
                 off, and mcp-broker gateway stop {name} ends it until gateway start"
            );
            BrokerError::forbidden(text)
        };
        let key = || name.as_str().into();
        let mut found = self.store.get(Table::AddedBackends, key()).await?;
        for _ in 0..CHANGE_ATTEMPTS_MAX {
            let Some(before) = found.take() else {
                return Err(if self.is_in_file(&name) {
                    in_file()
                } else {
                    not_found().into()
                });
            };
            let table = change(&before)?;
            // One that is not served because the file has its name can be removed.
            if let Some(table) = &table {
                if self.is_in_file(&name) {
                    return Err(in_file());
                }
                self.check_table(&name, table)?;
            }
            let table = table.map(Arc::from);
            let put = self
                .store
                .put_if(Table::AddedBackends, key(), Before::Text(before), table);
            match put.await? {
                RecordPut::Stored => {
                    self.load_added().await;
                    return Ok(());
                }
                RecordPut::Differs(stored) => found = stored,
                RecordPut::Full => break,
            }
        }
        Err(BrokerError::unavailable())
    }

    /// Has the gateway read the added backends again: another replica has changed them.
    pub(crate) fn added_changed(&self) {
        self.address.report(LoadAdded { pending: None });
    }

    /// Waits until this replica serves what the store has. If the store cannot be read now, the gateway keeps trying.
    async fn load_added(&self) {
        let (pending, served) = oneshot::channel();
        let pending = Some(Arc::new(pending));
        self.address.report(LoadAdded { pending });
        let _ = served.await;
    }

    fn check_table(&self, name: &BackendName, table: &str) -> Result<(), BrokerError> {
        if table.len() > BACKEND_TABLE_BYTES_MAX {
            let limit = BACKEND_TABLE_BYTES_MAX;
            return Err(BrokerError::PayloadTooLarge { limit });
        }
        self.settings.tables.read(name, table).map(drop)
    }

    fn is_in_file(&self, name: &BackendName) -> bool {
        let all = self.settings.backends.borrow();
        let backends = all.get(&self.project);
        backends.is_some_and(|backends| backends.iter().any(|config| config.name == *name))
    }
}
