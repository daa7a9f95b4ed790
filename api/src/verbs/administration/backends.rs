//! What operators do with the backends of a project.

use std::sync::Arc;

use actors::{
    gateway::BackendCommand,
    model::{BrokerError, Scope},
    project::ProjectHandle,
};

use super::{Administration, Result, audited_action};
use crate::auth::{AuditedAction, Identity};

/// Characters of a name that the audit shows. Names of backends are shorter; a caller may send any text.
const NAME_CHARS_MAX: usize = 64;

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

    /// Ends an open call of a backend of the caller's project. Requires the scope `admin`. `end` does it at this replica, and
    /// returns the name of the backend. `elsewhere` has the other replicas do it, and returns whether one has; it is absent if
    /// another replica has sent the request on. The replica that ends the call records it, and the one that was asked first a
    /// refusal.
    ///
    /// # Errors
    /// `forbidden`, or the error of `end` or `elsewhere`.
    pub async fn end_call(
        &self,
        by: &Arc<Identity>,
        id: &str,
        end: impl FnOnce() -> Result<String>,
        elsewhere: Option<impl AsyncFnOnce() -> Result<bool>>,
    ) -> Result<()> {
        let act = |target| audited_action("backend.cancel_call", by.project.id(), Some(target));
        let mut ended = by.check_scope(Scope::Admin).and_then(|()| end());
        if let Err(error @ BrokerError::CallNotFound { .. }) = ended {
            let Some(elsewhere) = elsewhere else {
                return Err(error);
            };
            match elsewhere().await {
                Ok(true) => return Ok(()),
                Ok(false) => ended = Err(error),
                Err(unknown) => ended = Err(unknown),
            }
        }
        match ended {
            Ok(backend) => {
                self.audit().record_done(by, &act(format!("{backend} {id}")));
                Ok(())
            }
            Err(error) => {
                let id = id.chars().take(NAME_CHARS_MAX).collect();
                self.audit().record_refused(by, &act(id), &error);
                Err(error)
            }
        }
    }

    /// Adds, changes or removes a backend of the caller's project. Requires the scope `admin`. `change` does it.
    ///
    /// # Errors
    /// `forbidden`, or the error of `change`.
    pub async fn change_backends(
        &self,
        by: &Arc<Identity>,
        action: &'static str,
        name: &str,
        change: impl AsyncFnOnce(&ProjectHandle) -> Result<()> + 'static,
    ) -> Result<()> {
        let allowed = by.check_scope(Scope::Admin);
        let name = name.chars().take(NAME_CHARS_MAX).collect();
        let act = audited_action(action, by.project.id(), Some(name));
        let project = by.project.clone();
        self.audited(by, act, allowed, async move |_| change(&project).await)
            .await
    }
}
