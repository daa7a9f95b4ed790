//! Sends delivery reports ([`reports`](crate::project::reports)) to the senders of messages.
//!
//! The store says which dead letters are not reported yet, and one replica at a time has the claim to report them. A replica
//! that fails in between leaves them to the next one, which sends the same reports with the same idempotency keys.

use std::{sync::Arc, time::Duration};

use super::ProjectHandle;
use crate::{
    clock::now,
    faults,
    metrics::{METRICS, ReportResult},
    model::{
        Addressing, BrokerError, DeadLetter, DeadLetterReason, Message, NewMessage, Outcome, OutcomeKind, ProjectId,
        SessionId, SessionName, SessionRecord,
    },
    project::reports::{Fate, Report, ShownRecipient, reports},
    registry::builtin::DELIVERY_REPORT,
    router::{Recipients, Submission},
    session::Member,
    storage::{Acknowledge, Acknowledged, REPORTS, SessionKey, Unreported},
};

/// Batches of dead letters that are reported in one go. Others are left to the next sweep.
const BATCHES_MAX: usize = 20;
/// How long other replicas leave the reports of dead letters to this one, and the pause after a failure.
const CLAIM_TTL: Duration = Duration::from_secs(10);

impl ProjectHandle {
    /// Reports the dead letters of a project, if the broker has it open.
    pub(in crate::project) async fn report_dead_letters_of(project: Option<Self>) {
        let Some(project) = project else { return };
        if let Err(error) = project.report_dead_letters().await {
            tracing::warn!(project = %project.0.id, %error, "dead letters could not be reported to their senders; retrying");
            tokio::time::sleep(CLAIM_TTL).await;
        }
    }

    /// Reports dead letters to the senders of their messages.
    ///
    /// # Errors
    /// `unavailable`: a report could not be sent. It is sent later.
    async fn report_dead_letters(&self) -> Result<(), BrokerError> {
        let store = &self.0.store;
        let mut claim = None;
        for _ in 0..BATCHES_MAX {
            claim = store
                .claim(REPORTS.into(), store.own_holder(), CLAIM_TTL, "".into(), now())
                .await?;
            if claim.is_none() {
                return Ok(());
            }
            let Unreported { until, dead_letters } = store.unreported().await?;
            let Some(until) = until else { break };
            let outcomes = self.outcomes(&dead_letters).await?;
            let fates = dead_letters.iter().zip(outcomes).filter_map(|(dead, outcome)| {
                let recipient = shown_recipient(&dead.message, dead.recipient, self.recipient_name(dead));
                Fate::of_dead_letter(dead, recipient, outcome.as_deref())
            });
            self.send_reports(fates.collect(), Some(until)).await?;
            faults::point("reports_sent").await;
            store.mark_reported(until).await?;
        }
        if let Some(epoch) = claim {
            store.settle(epoch).await?;
        }
        Ok(())
    }

    /// What the recipients said of these messages when they rejected them, or why they could not get them.
    async fn outcomes(&self, dead_letters: &[DeadLetter]) -> Result<Vec<Option<Arc<Outcome>>>, BrokerError> {
        let is_rejected = |dead: &&DeadLetter| {
            let reason = dead.reason;
            reason == DeadLetterReason::Rejected || reason == DeadLetterReason::TransformFailed
        };
        let rejected: Vec<_> = dead_letters
            .iter()
            .filter(is_rejected)
            .map(|dead| dead.message.id)
            .collect();
        if rejected.is_empty() {
            return Ok(vec![None; dead_letters.len()]);
        }
        let mut statuses = self.0.store.message_statuses(rejected, now()).await?.into_iter();
        let outcome_of = |dead: &DeadLetter| {
            let recipients = is_rejected(&dead).then(|| statuses.next()).flatten().flatten()?;
            let own = recipients.into_iter().find(|status| status.session == dead.recipient)?;
            own.outcome
        };
        Ok(dead_letters.iter().map(outcome_of).collect())
    }

    /// The reports to the senders of these messages once their recipient has acknowledged them as blocked.
    pub(super) async fn fates_of_blocked(&self, by: &Member, which: &Acknowledge) -> Result<Vec<Fate>, BrokerError> {
        let Acknowledge::Concluded(ids, outcome) = which else {
            return Ok(Vec::new());
        };
        let mut fates = Vec::new();
        if outcome.kind == OutcomeKind::Blocked {
            for id in ids {
                // One at a time: a message may have megabytes.
                let message = self.0.store.messages(vec![*id]).await?.pop().flatten();
                fates.extend(message.and_then(|message| {
                    let recipient = shown_recipient(&message, by.record.id, by.record.name.clone());
                    Fate::of_blocked(&message, recipient, outcome, now().unix_ms)
                }));
            }
        }
        Ok(fates)
    }

    /// Tells the senders that the recipient of their messages is blocked. The receipts say it already, so a report that
    /// cannot be sent is given up.
    pub(super) async fn report_blocked(&self, mut fates: Vec<Fate>, done: &Acknowledged) {
        fates.retain(|fate| !done.unknown.contains(&fate.message));
        if let Err(error) = self.send_reports(fates, None).await {
            tracing::debug!(project = %self.0.id, %error, "a blocked message was not reported to its sender");
        }
    }

    /// Sends reports to the senders that are still there. With `until`, each has an idempotency key that is made of it.
    ///
    /// # Errors
    /// `unavailable`: at least one could not be sent, and a repeat may send it.
    async fn send_reports(&self, fates: Vec<Fate>, until: Option<u64>) -> Result<(), BrokerError> {
        let mut failed = None;
        for report in reports(fates) {
            let result = self.send_report(&report, until).await;
            if let Err(error) = &result
                && error.retry_after().is_some()
            {
                failed = Some(error.clone());
                continue;
            }
            let result = if result == Ok(true) {
                ReportResult::Sent
            } else {
                ReportResult::Refused
            };
            METRICS.delivery_reports.of(result).increment();
        }
        failed.map_or(Ok(()), Err)
    }

    /// Sends one report. False if its recipient has ended.
    async fn send_report(&self, report: &Report, until: Option<u64>) -> Result<bool, BrokerError> {
        let target = match &report.project {
            None => self.clone(),
            Some(origin) => match self.other_project(origin) {
                Some(project) => project,
                None => return Ok(false),
            },
        };
        let Some(member) = target.report_recipient(report.recipient).await? else {
            return Ok(false);
        };
        let key = until.map(|until| report_key(&self.0.id, until, report.recipient));
        let protocol = (DELIVERY_REPORT.name, DELIVERY_REPORT.version);
        let draft = NewMessage::new(
            &target.0.id,
            &SessionRecord::broker(),
            Addressing::Direct,
            protocol,
            &report.payload,
            &report.headers,
        );
        let submission = Submission {
            draft,
            target: Recipients::One(member),
            idempotency_key: key,
            is_tracked: false,
            is_report: true,
            forms: None,
            spans: None,
        };
        let answers = target.submit(vec![submission])?.await;
        let answer = answers.ok().and_then(|mut answers| answers.pop());
        answer.unwrap_or(Err(BrokerError::unavailable())).map(|_| true)
    }

    /// The session that gets a report; None if it has ended.
    async fn report_recipient(&self, id: SessionId) -> Result<Option<Arc<Member>>, BrokerError> {
        let member = self.0.directory.by_id(id);
        if member.is_none() && self.is_shared() && self.0.store.find_session(SessionKey::Id(id)).await?.is_some() {
            // This replica does not know the session yet.
            return Err(BrokerError::unavailable());
        }
        Ok(member)
    }
}

/// The idempotency key of a report: the same at every replica. The dead letters of a project up to `until` are in one
/// report for each sender.
fn report_key(project: &ProjectId, until: u64, recipient: SessionId) -> String {
    format!("report:{project}:{until}:{recipient}")
}

/// The recipient as the sender may know it: of another project only the session to which it has sent.
fn shown_recipient(message: &Message, recipient: SessionId, name: Option<SessionName>) -> ShownRecipient {
    if message.origin.is_some() {
        return ShownRecipient {
            id: message.recipient.filter(|to| *to == recipient),
            name: None,
        };
    }
    ShownRecipient {
        id: Some(recipient),
        name,
    }
}
