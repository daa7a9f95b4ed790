use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use actors::{
    broker::BrokerHandle,
    model::{AuditEntry, AuditOutcome, BrokerError, ProjectId},
    rate::Rate,
};
use uuid::Uuid;

use super::{Arrival, Identity};

/// Refusals that are written down in a minute. What goes beyond is counted: who is refused often is not to fill disks.
const REFUSALS_PER_MINUTE: NonZeroU32 = NonZeroU32::new(600).unwrap();
/// Characters of what a caller chose that are written down.
const SHOWN_CHARS_MAX: usize = 128;

/// Writes down who administered what and who was refused: as events of the log, and where `/api/v1/audit` reads.
pub struct Audit {
    broker: BrokerHandle,
    refusals: Rate,
    /// Refusals that were not written down since the last that was.
    left_out: AtomicU64,
}

/// Something that is done to something.
#[derive(Clone, Copy, Debug)]
pub struct Act<'a> {
    /// Such as `project.create`.
    pub action: &'a str,
    pub project: Option<&'a ProjectId>,
    pub target: Option<&'a str>,
}

impl Audit {
    pub fn new(broker: BrokerHandle) -> Arc<Self> {
        Arc::new(Self {
            broker,
            refusals: Rate::new(REFUSALS_PER_MINUTE),
            left_out: AtomicU64::new(0),
        })
    }

    /// It was done.
    pub fn done(&self, by: &Identity, act: Act<'_>) {
        self.write(AuditEntry {
            outcome: AuditOutcome::Done,
            ..entry(by, act)
        });
    }

    /// It was refused.
    pub fn refused(&self, by: &Identity, act: Act<'_>, error: &BrokerError) {
        if self.is_to_be_written() {
            self.write(AuditEntry {
                code: Some(error.code().to_owned()),
                ..entry(by, act)
            });
        }
    }

    /// Somebody was not let in. What they brought is not written down, and the project they named only if it is of the
    /// form of one.
    pub(super) fn turned_away(&self, arrival: &Arrival<'_>, code: &str) {
        if !self.is_to_be_written() {
            return;
        }
        let named = arrival.project().ok().flatten();
        self.write(AuditEntry {
            id: Uuid::nil(),
            at_ms: 0,
            actor: "unknown".to_owned(),
            address: arrival.address.map(|address| address.to_string()),
            project: named.and_then(|text| ProjectId::parse(text).ok()),
            action: "authenticate".to_owned(),
            target: Some(way_in(arrival.path).to_owned()),
            outcome: AuditOutcome::Refused,
            code: Some(code.to_owned()),
        });
    }

    fn is_to_be_written(&self) -> bool {
        let is_written = self.refusals.take().is_ok();
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

fn entry(by: &Identity, act: Act<'_>) -> AuditEntry {
    AuditEntry {
        id: Uuid::nil(),
        at_ms: 0,
        actor: by.principal.name.to_string(),
        address: by.address.map(|address| address.to_string()),
        project: Some(act.project.unwrap_or(by.project.id()).clone()),
        action: act.action.to_owned(),
        target: act.target.map(shown),
        outcome: AuditOutcome::Refused,
        code: None,
    }
}

/// The beginning of a path, as far as it is ours: what follows is the caller's and may be anything.
fn way_in(path: &str) -> &'static str {
    const KNOWN: [&str; 9] = [
        "/mcp",
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

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}
