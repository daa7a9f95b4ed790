//! What the broker and the bridge tell a project: its record, its end, and the changes of other replicas. No surface
//! may call this.

use std::sync::{Arc, atomic::Ordering};

use tokio::sync::oneshot;

use super::ProjectHandle;
use crate::{
    bridge::{DeliveryBatch, Frame, StoreEvent},
    clock::now,
    metrics::METRICS,
    model::{BrokerError, ProjectEvent, ProjectRecord},
    project::messages::{ApplyFrame, CloseProject, KeepHeartbeats, RequestResync},
    session::{CloseReason, DeliverPushed, KillSession},
};

/// The commands of the broker and the bridge to one project.
#[derive(Clone, Copy)]
pub(crate) struct ProjectControl<'a>(&'a ProjectHandle);

impl ProjectHandle {
    /// The commands that only the broker and the bridge give.
    pub(crate) const fn control(&self) -> ProjectControl<'_> {
        ProjectControl(self)
    }
}

impl ProjectControl<'_> {
    /// Applies a new version of the record: the limits change at once.
    pub fn update_record(self, record: Arc<ProjectRecord>) {
        self.0.0.policy.update(record);
    }

    /// Keeps the last signs of life of the sessions, because the broker ends.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn keep_heartbeats(self) -> Result<(), BrokerError> {
        self.0.0.project.request(|reply| KeepHeartbeats { reply }).await
    }

    /// Ends the sessions and the actors. The receiver is answered when the sessions have ended. The record must say
    /// that the project is closed.
    pub fn close(self) -> oneshot::Receiver<()> {
        let (done, closed) = oneshot::channel();
        self.0.0.questions.shared().close();
        self.close_backends();
        self.0.0.project.report(CloseProject { done });
        closed
    }

    /// Kills the actors and closes the connections for this reason. The store is left to the next subtree.
    pub fn kill(self, why: CloseReason) {
        self.0.0.policy.kill(why);
        self.0.0.questions.shared().close();
        self.close_backends();
        for member in self.0.0.directory.all() {
            member.address.report(KillSession { why });
        }
        self.0.0.project.report(KillSession { why });
    }

    fn close_backends(self) {
        if let Some(gateway) = &self.0.0.gateway {
            gateway.close();
        }
    }

    /// Applies a frame of the bridge; `own` says that this replica published it. Frames wait in the bounded mailbox of
    /// the project's actor. When it is full, frames are dropped until a resync begins, which reads what they announced.
    pub fn apply_frame(self, frame: Frame, own: bool) {
        let parts = &self.0.0;
        if parts.view.frames_dropped.load(Ordering::Acquire) {
            METRICS.bridge_frames_dropped.increment();
            return;
        }
        let changes_lenses = matches!(frame.event, StoreEvent::Lenses(_));
        // At once: messages that follow the frame may reach their sessions before the project's actor handles it.
        let lenses = changes_lenses.then(|| parts.catalog.expect_lenses());
        let is_full = parts.project.tell(ApplyFrame { frame, own, lenses }).is_err();
        if is_full {
            METRICS.bridge_frames_dropped.increment();
        }
        if is_full && !parts.view.frames_dropped.swap(true, Ordering::AcqRel) {
            tracing::warn!(project = %parts.id, "too many frames wait; dropping them and resyncing");
            self.request_resync();
        }
    }

    /// Gives pushed messages to their sessions. The prefetch limit of each session bounds the number of them in its mailbox.
    pub fn deliver(self, batch: &DeliveryBatch) {
        let parts = &self.0.0;
        let Some(store) = parts.store.push() else { return };
        match store.decode_batch(batch) {
            Ok(deliveries) => {
                for delivery in deliveries {
                    // The store releases the lease of a session that has ended since.
                    if let Some(member) = parts.directory.by_id(delivery.session) {
                        member.address.report(DeliverPushed(delivery));
                    }
                }
            }
            Err(error) => {
                tracing::warn!(project = %parts.id, %error, "pushed deliveries cannot be read; resyncing");
                self.request_resync();
            }
        }
    }

    /// Records an event in the log of the project.
    pub fn record(self, event: ProjectEvent) {
        self.0.0.store.record(event, now());
    }

    /// Has the project read the store again after missed frames.
    pub fn request_resync(self) {
        self.0.0.project.report(RequestResync { done: None });
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Weak, atomic::Ordering},
        time::Duration,
    };

    use actix_rt::{System, time::sleep};

    use super::*;
    use crate::{
        bridge::{FRAME_VERSION, StoreEvent},
        model::{PresenceTimeouts, ReplicaId},
        policy::{DeskSettings, ProjectSettings},
        project::Project,
        storage::{Storage, memory::MemoryStorage},
        supervise::{MAILBOX_LEN_MAX, RestartPolicy},
    };

    fn settings() -> ProjectSettings {
        ProjectSettings {
            queue_capacity: 1,
            sessions_max: 1,
            queue_warning: 1.0,
            delivery_limit: 1,
            heartbeat_interval: Duration::from_secs(1),
            presence: PresenceTimeouts {
                stale_after: Duration::from_secs(1),
                disconnect_after: Duration::from_secs(2),
            },
            session_retention: Duration::from_secs(1),
            payload_len_max: 1024,
            keeps_payloads: false,
            restarts: RestartPolicy::default(),
            desk: DeskSettings::default(),
            gateway: None,
        }
    }

    #[test]
    fn frames_beyond_the_mailbox_are_dropped_until_a_resync_begins() {
        System::new().block_on(async {
            let record = Arc::new(ProjectRecord::default_project(0));
            let store = MemoryStorage::default().open(&record.id);
            let project = Project::start(record, settings(), store, Weak::new(), || (), || ());
            let frame = |seq| Frame {
                v: FRAME_VERSION,
                from: ReplicaId::generate(),
                project: project.id().clone(),
                event: StoreEvent::Waiting(Vec::new()),
                number: 0,
                seq,
            };
            // The actor runs on this thread, so it takes nothing before the first await.
            for seq in 0..2 * MAILBOX_LEN_MAX as u64 {
                project.control().apply_frame(frame(seq), false);
            }
            assert!(project.0.view.frames_dropped.load(Ordering::Acquire));
            let mailbox_len = project.observe().mailbox_len;
            assert_eq!(mailbox_len, MAILBOX_LEN_MAX + 1, "the frames and one request to resync");
            let mut known = project.0.view.known_seq.subscribe();
            while project.0.view.frames_dropped.load(Ordering::Acquire) {
                sleep(Duration::from_millis(1)).await;
            }
            let last = 2 * MAILBOX_LEN_MAX as u64;
            project.control().apply_frame(frame(last), false);
            known.wait_for(|known| *known == Some(last)).await.unwrap();
        });
    }
}
