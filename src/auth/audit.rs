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

/// Refusals of one project that are written down in a minute. What goes beyond is counted: who is refused often is not to
/// fill disks.
const REFUSALS_PER_MINUTE: u32 = 600;
/// Characters of what a caller chose that are written down.
const SHOWN_CHARS_MAX: usize = 128;

/// Writes down who administered what and who was refused: as events of the log, and where `/api/v1/audit` reads.
pub struct Audit {
    broker: BrokerHandle,
    /// By project: who is refused often in one is not to keep others from being written down.
    refusals: CallerRates,
    /// Refusals that were not written down since the last that was.
    left_out: AtomicU64,
}

/// Something that is done to something.
#[derive(Clone, Debug)]
pub struct AuditedAction {
    /// Such as `project.create`.
    pub action: &'static str,
    /// In which project; that of who does it where none is said.
    pub project: Option<ProjectId>,
    pub target: Option<String>,
}

impl Audit {
    pub fn new(broker: BrokerHandle) -> Arc<Self> {
        Arc::new(Self {
            broker,
            refusals: CallerRates::per_minute(REFUSALS_PER_MINUTE),
            left_out: AtomicU64::new(0),
        })
    }

    /// It was done.
    pub fn record_done(&self, by: &Identity, act: &AuditedAction) {
        let project = act.project.as_ref().unwrap_or(by.project.id()).clone();
        self.write(AuditEntry {
            project: Some(project),
            target: act.target.as_deref().map(truncated),
            outcome: AuditOutcome::Done,
            ..entry(&by.principal.audit_name, by.address, act.action)
        });
    }

    /// It was refused. That is written down in the project of who asked: what they tried elsewhere is nobody's business
    /// there.
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

    /// Somebody was not let in, and so is of no project. What they brought is not written down.
    pub(super) fn record_unauthenticated(&self, arrival: &Credentials<'_>, code: &str) {
        if self.admits_refusal("") {
            self.write(AuditEntry {
                target: Some(known_path(arrival.path).to_owned()),
                code: Some(code.to_owned()),
                ..entry("unknown", arrival.address, "authenticate")
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

/// A refusal; its id and time are set where it is kept.
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

/// The beginning of a path, as far as it is ours: what follows is the caller's and may be anything.
fn known_path(path: &str) -> &'static str {
    const KNOWN: [&str; 10] = [
        "/mcp",
        "/sse",
        "/ws",
        "/api/v1/projects",
        "/api/v1/audit",
        "/api/v1/tree",
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
