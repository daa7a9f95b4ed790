//! The actor that reads the bridge: it checks the sequence of frames per project and turns what it reads into
//! [`ReplicaEvent`]s. It knows no project and no store.

use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, StreamHandler, Supervised};

use super::{
    Bridge, BridgeEvent, DeliveryBatch, Frame,
    frame::{FrameOrder, FrameSequence},
};
use crate::{metrics::METRICS, model::ProjectId};

/// Reads the bridge and passes on what it reads, in order.
pub struct Listener {
    bridge: Arc<dyn Bridge>,
    sequence: FrameSequence,
    deliver: Box<dyn Fn(ReplicaEvent)>,
}

/// What this replica does in response to what the bridge delivered.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "nearly all of them are frames")]
pub enum ReplicaEvent {
    /// The next frame of its project.
    Frame {
        frame: Frame,
        /// This replica published the frame.
        own: bool,
    },
    /// Messages that the store leased to sessions of this replica.
    Deliveries(DeliveryBatch),
    /// Frames were missed, of this project or (None) of all projects: the projects read the store again.
    Resync(Option<ProjectId>),
}

impl Listener {
    pub(crate) fn new(bridge: Arc<dyn Bridge>, deliver: impl Fn(ReplicaEvent) + 'static) -> Self {
        Self {
            bridge,
            sequence: FrameSequence::default(),
            deliver: Box::new(deliver),
        }
    }

    fn receive_frame(&mut self, text: &[u8]) {
        let frame = match Frame::parse(text) {
            Ok(frame) => frame,
            Err(error) => {
                // The content of a frame is also in the store, so a resync replaces the frame.
                tracing::warn!(%error, "unreadable bridge frame; resyncing all projects");
                return (self.deliver)(ReplicaEvent::Resync(None));
            }
        };
        let own = frame.from == self.bridge.replica();
        match self.sequence.observe(&frame.project, frame.seq) {
            FrameOrder::Next => {}
            FrameOrder::Duplicate => return,
            FrameOrder::AfterGap => {
                METRICS.bridge_gaps.increment();
                tracing::warn!(project = %frame.project, "frames were missed; resyncing the project");
                (self.deliver)(ReplicaEvent::Resync(Some(frame.project.clone())));
            }
        }
        (self.deliver)(ReplicaEvent::Frame { frame, own });
    }
}

impl Actor for Listener {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.add_stream(self.bridge.listen());
    }
}

/// After a restart the listener subscribes again; the bridge's `Connected` event then starts a resync.
impl Supervised for Listener {
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.sequence.clear();
    }
}

impl StreamHandler<BridgeEvent> for Listener {
    fn handle(&mut self, incoming: BridgeEvent, _: &mut Context<Self>) {
        if matches!(incoming, BridgeEvent::Frame(_) | BridgeEvent::DeliveryBatch(..)) {
            METRICS.bridge_frames.increment();
        }
        match incoming {
            BridgeEvent::Frame(text) => self.receive_frame(&text),
            BridgeEvent::DeliveryBatch(messages, last) => match DeliveryBatch::parse(messages, &last) {
                Ok(batch) => (self.deliver)(ReplicaEvent::Deliveries(batch)),
                Err(error) => {
                    tracing::warn!(%error, "unreadable delivery batch; resyncing all projects");
                    (self.deliver)(ReplicaEvent::Resync(None));
                }
            },
            BridgeEvent::Connected => {
                self.sequence.clear();
                (self.deliver)(ReplicaEvent::Resync(None));
            }
            BridgeEvent::Disconnected => {
                METRICS.bridge_disconnects.increment();
                tracing::warn!("bridge connection lost; changes of other replicas arrive late")
            }
        }
    }

    fn finished(&mut self, _: &mut Context<Self>) {
        tracing::error!("bridge stream has ended");
    }
}
