//! Compiles schemas, and checks lenses, off the workers, because one may take 100 ms.

use std::sync::Arc;

use tokio::sync::{Mutex, Semaphore};

use crate::model::{BrokerError, ProtocolRecord};

use super::catalog::Protocol;

/// At most one schema is compiled at a time in this process. Projects take turns in the order of their requests.
static COMPILE_PERMIT: Semaphore = Semaphore::const_new(1);

/// Compiles the protocols of one project, one after another.
#[derive(Debug, Default)]
pub(crate) struct Compiler {
    /// Lets only one schema of the project wait among those of other projects.
    project_lock: Mutex<()>,
}

impl Compiler {
    /// Compiles a protocol on a blocking thread.
    ///
    /// # Errors
    /// `invalid_schema`, as [`Protocol::compile`]; `unavailable` while the runtime shuts down.
    pub async fn compile(&self, record: Arc<ProtocolRecord>) -> Result<Arc<Protocol>, BrokerError> {
        self.run(|| Protocol::compile(record)).await?
    }

    /// Runs work of up to 100 ms on a blocking thread.
    ///
    /// # Errors
    /// `unavailable` while the runtime shuts down.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, BrokerError> {
        let _own = self.project_lock.lock().await;
        let _all = COMPILE_PERMIT.acquire().await.map_err(|_| BrokerError::unavailable())?;
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|_| BrokerError::unavailable())
    }
}
