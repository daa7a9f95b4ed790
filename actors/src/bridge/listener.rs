use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Message, StreamHandler, Supervised};

use super::{
    Bridge, BridgeEvent, DeliveryBatch, Frame,
    frame_sequence::{FrameOrder, FrameSequence},
};
use crate::model::ProjectId;

/// The actor that listens to the other replicas.
pub struct Listener {
    bridge: Arc<dyn Bridge>,
    sequence: FrameSequence,
    deliver: Box<dyn Fn(ReplicaEvent)>,
}

/// What a replica has to do about what it heard.
#[derive(Clone, Debug, PartialEq, Message)]
#[rtype(result = "()")]
#[allow(clippy::large_enum_variant, reason = "nearly all of them are frames")]
pub enum ReplicaEvent {
    /// The next frame of its project.
    Frame {
        frame: Frame,
        /// It was published by this replica.
        own: bool,
    },
    /// Messages that the store has handed over to this replica.
    Deliveries(DeliveryBatch),
    /// Frames were missed, of this project or of all: the store is to be looked at.
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
                // Whatever it says, it is in the store too.
                tracing::warn!(%error, "a frame cannot be read: everything is looked at");
                return (self.deliver)(ReplicaEvent::Resync(None));
            }
        };
        let own = frame.from == self.bridge.replica();
        match self.sequence.observe(&frame.project, frame.seq) {
            FrameOrder::Next => {}
            FrameOrder::Duplicate => return,
            FrameOrder::AfterGap => {
                tracing::warn!(project = %frame.project, "frames were lost: the project is looked at");
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

/// It listens anew, and what was published meanwhile is caught up with.
impl Supervised for Listener {
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.sequence.clear();
    }
}

impl StreamHandler<BridgeEvent> for Listener {
    fn handle(&mut self, incoming: BridgeEvent, _: &mut Context<Self>) {
        match incoming {
            BridgeEvent::Frame(text) => self.receive_frame(&text),
            BridgeEvent::DeliveryBatch(messages, last) => match DeliveryBatch::parse(messages, &last) {
                Ok(parcel) => (self.deliver)(ReplicaEvent::Deliveries(parcel)),
                Err(error) => {
                    tracing::warn!(%error, "a parcel cannot be read: everything is looked at");
                    (self.deliver)(ReplicaEvent::Resync(None));
                }
            },
            BridgeEvent::Connected => {
                self.sequence.clear();
                (self.deliver)(ReplicaEvent::Resync(None));
            }
            BridgeEvent::Disconnected => tracing::warn!("the other replicas are not heard: what they do is seen later"),
        }
    }

    fn finished(&mut self, _: &mut Context<Self>) {
        tracing::error!("the stream of the bridge has ended");
    }
}
