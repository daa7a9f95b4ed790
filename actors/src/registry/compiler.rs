//! Compiling schemas where it blocks no worker: one may take 100 ms.

use std::sync::Arc;

use tokio::sync::{Mutex, Semaphore};

use crate::model::{BrokerError, ProtocolRecord};

use super::Protocol;

/// Schemas that are compiled at once in this process. Projects take turns, in the order in which they came.
static COMPILE_PERMIT: Semaphore = Semaphore::const_new(1);

/// Compiles the protocols of one project, one after another.
#[derive(Debug, Default)]
pub(crate) struct Compiler {
    /// Of several schemas of a project only one waits for its turn among those of other projects.
    project_lock: Mutex<()>,
}

impl Compiler {
    /// Compiles a protocol on a thread of its own.
    ///
    /// # Errors
    /// `invalid_schema`, as [`Protocol::compile`]; `unavailable` while the runtime ends.
    pub async fn compile(&self, record: Arc<ProtocolRecord>) -> Result<Arc<Protocol>, BrokerError> {
        let _own = self.project_lock.lock().await;
        let _all = COMPILE_PERMIT.acquire().await.map_err(|_| BrokerError::unavailable())?;
        tokio::task::spawn_blocking(|| Protocol::compile(record))
            .await
            .unwrap_or(Err(BrokerError::unavailable()))
    }
}
