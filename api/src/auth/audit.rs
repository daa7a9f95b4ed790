//! The audit: records administrative actions and refusals in the log and in the store.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use actors::{
    broker::BrokerHandle,
    model::{AuditEntry, AuditOutcome, BrokerError, ProjectId, Scope},
};
use uuid::Uuid;

use super::{Credentials, Identity, rates::CallerRates};

/// Refusals per minute that are recorded of one project. Further refusals are only counted, so that a caller cannot
/// fill the disk.
const REFUSALS_PER_MINUTE: u32 = 600;
/// Characters that are recorded of a value chosen by a caller.
const SHOWN_CHARS_MAX: usize = 128;

/// Records administrative actions and refusals: as log events with the target `audit`, and in the store for
/// `/api/v1/audit`.
pub struct Audit {
    broker: BrokerHandle,
    /// Limits refusals by project, so that one project does not displace the refusals of another.
    refusals: CallerRates,
    /// Refusals that were not recorded since the last recorded one.
    left_out: AtomicU64,
}

/// An administrative action with its target.
#[derive(Clone, Debug)]
pub struct AuditedAction {
    /// The name of the action, such as `project.create`.
    pub action: &'static str,
    /// The project that the action concerns; `None` means the caller's own.
    pub project: Option<ProjectId>,
    pub target: Option<String>,
}

impl Audit {
    /// An audit in the store of `broker`.
    pub fn new(broker: BrokerHandle) -> Arc<Self> {
        Arc::new(Self {
            broker,
            refusals: CallerRates::per_minute(REFUSALS_PER_MINUTE),
            left_out: AtomicU64::new(0),
        })
    }

    /// Records an action that succeeded.
    pub fn record_done(&self, by: &Identity, act: &AuditedAction) {
        self.record_done_as(by, &by.principal.audit_name, act);
    }

    /// Records what a person did: the actor is the caller with the name of the person.
    pub fn record_done_by_person(&self, by: &Identity, person: &str, act: &AuditedAction) {
        let actor = format!("{} as {}", by.principal.audit_name, truncated(person));
        self.record_done_as(by, &actor, act);
    }

    fn record_done_as(&self, by: &Identity, actor: &str, act: &AuditedAction) {
        let project = act.project.as_ref().unwrap_or(by.project.id()).clone();
        self.write(AuditEntry {
            project: Some(project),
            target: act.target.as_deref().map(truncated),
            outcome: AuditOutcome::Done,
            ..entry(actor, by.address, act.action)
        });
    }

    /// Records an action that was refused. An action on a foreign project is recorded in the caller's own project.
    pub fn record_refused(&self, by: &Identity, act: &AuditedAction, error: &BrokerError) {
        let own = by.project.id();
        let elsewhere = act.project.as_ref().filter(|project| *project != own);
        let (project, target) = match elsewhere {
            Some(elsewhere) if by.scope() < Scope::Operator => (own, Some(elsewhere.as_str())),
            elsewhere => (elsewhere.unwrap_or(own), act.target.as_deref()),
        };
        if self.admits_refusal(project.as_str()) {
            self.write(AuditEntry {
                project: Some(project.clone()),
                target: target.map(truncated),
                code: Some(error.code().to_owned()),
                ..entry(&by.principal.audit_name, by.address, act.action)
            });
        }
    }

    /// Records a caller that was not authenticated and so has no project. The credential is not recorded.
    pub(super) fn record_unauthenticated(&self, credentials: &Credentials<'_>, code: &str) {
        if self.admits_refusal("") {
            self.write(AuditEntry {
                target: Some(known_path(credentials.path).to_owned()),
                code: Some(code.to_owned()),
                ..entry("unknown", credentials.address, "authenticate")
            });
        }
    }

    fn admits_refusal(&self, project: &str) -> bool {
        let is_written = self.refusals.rate_of(project).is_none_or(|rate| rate.take().is_ok());
        if !is_written {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        is_written
    }

    fn write(&self, entry: AuditEntry) {
        let left_out = match entry.outcome {
            AuditOutcome::Refused => self.left_out.swap(0, Ordering::Relaxed),
            AuditOutcome::Done => 0,
        };
        tracing::info!(
            target: "audit",
            actor = %entry.actor,
            address = entry.address.as_deref(),
            project = entry.project.as_ref().map(ProjectId::as_str),
            action = %entry.action,
            on = entry.target.as_deref(),
            outcome = entry.outcome.as_str(),
            code = entry.code.as_deref(),
            left_out = (left_out > 0).then_some(left_out),
            "audit"
        );
        let broker = self.broker.clone();
        actix_rt::spawn(async move { broker.record_audit(entry).await });
    }
}

/// An entry for a refusal; the store sets its id and time.
fn entry(actor: &str, address: Option<IpAddr>, action: &str) -> AuditEntry {
    AuditEntry {
        id: Uuid::nil(),
        at_ms: 0,
        actor: actor.to_owned(),
        address: address.map(|address| address.to_string()),
        project: None,
        action: action.to_owned(),
        target: None,
        outcome: AuditOutcome::Refused,
        code: None,
    }
}

/// The known beginning of a path. The rest is chosen by the caller and is not recorded.
fn known_path(path: &str) -> &'static str {
    const KNOWN: [&str; 27] = [
        "/mcp",
        "/sse",
        "/ws",
        "/api/v1/projects",
        "/api/v1/backends",
        "/api/v1/audit",
        "/api/v1/tree",
        "/api/v1/sessions",
        "/api/v1/protocols",
        "/api/v1/messages",
        "/api/v1/dead-letters",
        "/api/v1/events",
        "/api/v1/stats",
        "/api/v1/compatibility",
        "/api/v1/login",
        "/api/v1/logout",
        "/api/v1/me",
        "/api/v1/flow",
        "/api/v1/threads",
        "/api/v1/settings",
        "/api/v1/questions",
        "/api/v1/yaps",
        "/api/v1/desk",
        "/security/status",
        "/sessions",
        "/protocols",
        "/metrics",
    ];
    KNOWN
        .into_iter()
        .find(|known| path.starts_with(known))
        .unwrap_or("another path")
}

fn truncated(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}
