//! What operators do with the backends of a project.

use std::sync::Arc;

use actors::{
    gateway::BackendCommand,
    model::{BrokerError, Scope},
};

use super::{Administration, Result};
use crate::auth::{AuditedAction, Identity};

impl Administration {
    /// Starts, restarts or stops a backend of the caller's project. Requires the scope `admin`. `run` finds the backend and
    /// gives it the command.
    ///
    /// # Errors
    /// `forbidden`, or the error of `run`.
    pub fn command_backend(
        &self,
        by: &Arc<Identity>,
        name: &str,
        command: BackendCommand,
        run: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let act = AuditedAction {
            action: match command {
                BackendCommand::Want => "backend.start",
                BackendCommand::Restart => "backend.restart",
                BackendCommand::Stop => "backend.stop",
            },
            project: Some(by.project.id().clone()),
            target: Some(name.to_owned()),
        };
        let done: std::result::Result<(), BrokerError> = by.check_scope(Scope::Admin).and_then(|()| run());
        match &done {
            Ok(()) => self.audit().record_done(by, &act),
            Err(error) => self.audit().record_refused(by, &act, error),
        }
        done
    }
}
