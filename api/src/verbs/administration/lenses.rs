//! Registrations with lenses. What replaces or removes a lens is in the audit.

use std::sync::Arc;

use actors::{
    model::{BrokerError, Scope, SessionId},
    project::{LensDefinition, ProtocolDefinition, Registrant},
    registry::{LensOutcome, RegisteredProtocol},
};
use semver::Version;

use super::{Administration, Result, audited_action};
use crate::auth::{AuditedAction, Identity};

impl Administration {
    /// Registers a protocol, with its lens. Requires the scope `member`.
    ///
    /// # Errors
    /// As [`actors::project::ProjectHandle::register_protocol`].
    pub async fn register_protocol(
        &self,
        by: &Arc<Identity>,
        mut definition: ProtocolDefinition,
    ) -> Result<RegisteredProtocol> {
        by.check_scope(Scope::Member)?;
        definition.by = registrant(by, definition.by.session);
        let project = by.project.clone();
        let replaced = definition
            .lens
            .as_ref()
            .filter(|lens| lens.replaces && !definition.dry_run);
        let Some(lens) = replaced else {
            return project.register_protocol(definition).await;
        };
        let act = action(
            by,
            "lens.replace",
            definition.name.as_str(),
            &definition.version,
            &lens.from,
        );
        let registering = async move { project.register_protocol(definition).await };
        let is_replacement =
            |registered: &RegisteredProtocol| registered.lens.as_ref().is_some_and(|lens| lens.is_replacement);
        self.replacing(by, act, registering, is_replacement).await
    }

    /// Registers, or replaces, a lens into a registered version. Requires the scope `member`.
    ///
    /// # Errors
    /// As [`actors::project::ProjectHandle::put_lens`].
    pub async fn put_lens(
        &self,
        by: &Arc<Identity>,
        name: String,
        version: String,
        lens: LensDefinition,
    ) -> Result<LensOutcome> {
        by.check_scope(Scope::Member)?;
        let (project, registrant) = (by.project.clone(), registrant(by, None));
        let act = action(by, "lens.replace", &name, &version, &lens.from);
        let putting = async move { project.put_lens(name, version, &lens, &registrant).await };
        self.replacing(by, act, putting, |lens| lens.is_replacement).await
    }

    /// Removes a lens. Requires the scope `member`.
    ///
    /// # Errors
    /// As [`actors::project::ProjectHandle::remove_lens`].
    pub async fn remove_lens(&self, by: &Arc<Identity>, name: String, version: String, from: Version) -> Result<()> {
        let allowed = by.check_scope(Scope::Member);
        let (project, registrant) = (by.project.clone(), registrant(by, None));
        let act = action(by, "lens.remove", &name, &version, &from);
        self.audited(by, act, allowed, async move |_| {
            project.remove_lens(name, version, &from, &registrant).await
        })
        .await
    }

    /// Runs a registration to its end, and records it if it replaces a lens or may not.
    async fn replacing<T: 'static>(
        &self,
        by: &Arc<Identity>,
        act: AuditedAction,
        registering: impl Future<Output = Result<T>> + 'static,
        is_replacement: impl Fn(&T) -> bool + 'static,
    ) -> Result<T> {
        let (audit, by) = (Arc::clone(&self.audit), Arc::clone(by));
        let doing = actix_rt::spawn(async move {
            let result = registering.await;
            match &result {
                Ok(registered) if is_replacement(registered) => audit.record_done(&by, &act),
                Err(error @ BrokerError::Forbidden { .. }) => audit.record_refused(&by, &act, error),
                _ => {}
            }
            result
        });
        doing.await.unwrap_or(Err(BrokerError::unavailable()))
    }
}

/// The caller as the registry knows it.
fn registrant(by: &Identity, session: Option<SessionId>) -> Registrant {
    let is_known = *by.owner() != actors::model::Owner::anonymous();
    Registrant {
        session,
        owner: is_known.then(|| by.owner().clone()),
        is_admin: by.scope() >= Scope::Admin,
    }
}

fn action(by: &Identity, action: &'static str, name: &str, version: impl ToString, from: &Version) -> AuditedAction {
    let version = version.to_string();
    audited_action(action, by.project.id(), Some(format!("{name} {from} {version}")))
}
