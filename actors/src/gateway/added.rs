//! The backends that administrators have added to a project. Their tables are in the store, which every replica follows.

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::model::{BackendConfig, BackendName, BrokerError, ProjectId};

/// Reads the tables of added backends.
pub trait BackendTables: fmt::Debug + Send + Sync {
    /// The backend that a table describes.
    ///
    /// # Errors
    /// `invalid_argument`, or `command_not_allowed`.
    fn read(&self, name: &BackendName, table: &str) -> Result<BackendConfig, BrokerError>;
}

/// The added backends of a project, as its gateway has read them.
#[derive(Default)]
pub(super) struct AddedBackends {
    /// None until the store has been read.
    backends: Option<BTreeMap<BackendName, AddedBackend>>,
    /// Why some of them are not served, as the log says.
    told: BTreeMap<BackendName, String>,
}

struct AddedBackend {
    table: Arc<str>,
    /// What the table describes, or why that cannot be served.
    config: Result<Arc<BackendConfig>, String>,
}

impl AddedBackends {
    /// Whether the store has been read.
    pub fn are_known(&self) -> bool {
        self.backends.is_some()
    }

    /// Takes what the store has. Only tables that have changed are read.
    pub fn set(&mut self, stored: Vec<(Vec<u8>, Arc<str>)>, tables: &dyn BackendTables) {
        let mut known = self.backends.take().unwrap_or_default();
        let read = |(key, table): (Vec<u8>, Arc<str>)| {
            let name = BackendName::parse(str::from_utf8(&key).ok()?).ok()?;
            let backend = known.remove(&name).filter(|known| known.table == table);
            let backend = backend.unwrap_or_else(|| {
                let config = tables.read(&name, &table).map(Arc::new);
                let config = config.map_err(|error| error.to_string());
                AddedBackend { table, config }
            });
            Some((name, backend))
        };
        self.backends = Some(stored.into_iter().filter_map(read).collect());
    }

    /// The backends of the file and the added ones, of which the log says once why one is not served.
    pub fn beside(&mut self, file: &[Arc<BackendConfig>], project: &ProjectId) -> Vec<Arc<BackendConfig>> {
        let mut served = file.to_vec();
        let mut not_served = BTreeMap::new();
        for (name, AddedBackend { config, .. }) in self.backends.iter().flatten() {
            let shadowed = || "the configuration file has a backend of this name, which is served".to_owned();
            let config = match config {
                Ok(_) if file.iter().any(|config| config.name == *name) => Err(shadowed()),
                config => config.clone(),
            };
            match config {
                Ok(config) => served.push(config),
                Err(reason) => {
                    not_served.insert(name.clone(), reason);
                }
            }
        }
        for (name, reason) in &not_served {
            if self.told.get(name) != Some(reason) {
                tracing::warn!(%project, backend = %name, reason, "an added backend is not served");
            }
        }
        self.told = not_served;
        served
    }
}
