use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Message, StreamHandler, Supervised};

use super::{
    Bridge, Frame, Incoming, Parcel,
    serials::{Place, Serials},
};
use crate::model::ProjectId;

/// The actor that listens to the other replicas.
pub struct Listener {
    bridge: Arc<dyn Bridge>,
    serials: Serials,
    deliver: Box<dyn Fn(Told)>,
}

/// What a replica has to do about what it heard.
#[derive(Clone, Debug, PartialEq, Message)]
#[rtype(result = "()")]
#[allow(clippy::large_enum_variant, reason = "nearly all of them are frames")]
pub enum Told {
    /// The next frame of its project.
    Frame {
        frame: Frame,
        /// It was published by this replica.
        own: bool,
    },
    /// Messages that the store has handed over to this replica.
    Parcel(Parcel),
    /// Frames were missed, of this project or of all: the store is to be looked at.
    CatchUp(Option<ProjectId>),
}

impl Listener {
    pub(crate) fn new(bridge: Arc<dyn Bridge>, deliver: impl Fn(Told) + 'static) -> Self {
        Self {
            bridge,
            serials: Serials::default(),
            deliver: Box::new(deliver),
        }
    }

    fn heard(&mut self, text: &[u8]) {
        let frame = match Frame::parse(text) {
            Ok(frame) => frame,
            Err(error) => {
                // Whatever it says, it is in the store too.
                tracing::warn!(%error, "a frame cannot be read: everything is looked at");
                return (self.deliver)(Told::CatchUp(None));
            }
        };
        let own = frame.from == self.bridge.replica();
        match self.serials.heard(&frame.project, frame.serial) {
            Place::Next => {}
            Place::Repeated => return,
            Place::AfterGap => {
                tracing::warn!(project = %frame.project, "frames were lost: the project is looked at");
                (self.deliver)(Told::CatchUp(Some(frame.project.clone())));
            }
        }
        (self.deliver)(Told::Frame { frame, own });
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
        self.serials.clear();
    }
}

impl StreamHandler<Incoming> for Listener {
    fn handle(&mut self, incoming: Incoming, _: &mut Context<Self>) {
        match incoming {
            Incoming::Frame(text) => self.heard(&text),
            Incoming::Parcel(messages, last) => match Parcel::parse(messages, &last) {
                Ok(parcel) => (self.deliver)(Told::Parcel(parcel)),
                Err(error) => {
                    tracing::warn!(%error, "a parcel cannot be read: everything is looked at");
                    (self.deliver)(Told::CatchUp(None));
                }
            },
            Incoming::Connected => {
                self.serials.clear();
                (self.deliver)(Told::CatchUp(None));
            }
            Incoming::Lost => tracing::warn!("the other replicas are not heard: what they do is seen later"),
        }
    }

    fn finished(&mut self, _: &mut Context<Self>) {
        tracing::error!("the stream of the bridge has ended");
    }
}
