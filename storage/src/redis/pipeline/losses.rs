//! Reports that Redis came back with older data: in the log, in the audit log, and by writing again what Redis stores of its data as a
//! whole.

use std::{sync::Arc, time::Duration};

use actors::model::{AuditEntry, AuditOutcome, ProjectId};

use super::{
    super::{
        client::RedisClient,
        schema::{BROKER_ID_KEY, SCHEMA_KEY, put_broker_id, put_schema_version},
        system,
        timeline::Witness,
    },
    Pipeline,
};

/// Losses within this time after the first are logged in one line.
const LOSS_LOG_DELAY: Duration = Duration::from_secs(1);

impl Pipeline {
    /// Takes over what a batch has seen. Reports a loss, if it shows one.
    pub(super) fn observe_and_report(&self, witness: Witness) {
        let is_first_to_notice = witness.is_begun_by(&self.client.replica.to_string());
        if self.observe(witness).is_none() {
            return;
        }
        if self.client.losses.record(&self.project) {
            self.client.thread.spawn(log_losses(Arc::clone(&self.client)));
        }
        if is_first_to_notice {
            self.client.thread.spawn(restore_schema(Arc::clone(&self.client)));
            self.client
                .thread
                .spawn(audit_loss(Arc::clone(&self.client), self.project.clone()));
        }
    }
}

/// Logs the losses of the last moments in one line. Every replica does.
async fn log_losses(client: Arc<RedisClient>) {
    tokio::time::sleep(LOSS_LOG_DELAY).await;
    let (projects, names) = client.losses.take_unlogged();
    tracing::warn!(
        projects,
        names,
        "Redis came back with older data: these projects are opened again from what it has, and their clients have to register again"
    );
}

/// Writes the version of the keys and the id of the broker, which may be lost as well.
async fn restore_schema(client: Arc<RedisClient>) {
    if let Err(error) = client.send_one(put_schema_version(), SCHEMA_KEY).await {
        tracing::warn!(%error, "the schema version is missing in Redis until a broker starts");
    }
    if let Err(error) = client.send_one(put_broker_id(client.broker_id), BROKER_ID_KEY).await {
        tracing::warn!(%error, "the id of the broker is missing in Redis: the next replica makes another one");
    }
}

/// Adds the loss to the audit log. The replica that noticed it first does.
async fn audit_loss(client: Arc<RedisClient>, project: ProjectId) {
    let entry = AuditEntry {
        id: uuid::Uuid::now_v7(),
        at_ms: actors::clock::now().unix_ms,
        actor: "broker".to_owned(),
        address: None,
        project: Some(project),
        action: "storage.went_back".to_owned(),
        target: None,
        outcome: AuditOutcome::Done,
        code: None,
    };
    if let Err(error) = system::append_audit(client, entry).await {
        tracing::warn!(%error, "an audit entry could not be stored; it is in the log only");
    }
}
