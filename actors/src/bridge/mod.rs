//! What replicas tell each other about changes in a shared store.
//!
//! The store operation that makes a change also publishes it, in the same transaction, so the bridge never
//! contradicts the store. Most frames say where to look; a delivery batch carries messages. A lost frame costs time
//! and no data: the gap in the sequence starts a resync.

mod frame;
mod listener;

use std::pin::Pin;

use bytes::Bytes;
use futures_util::Stream;

use crate::model::ReplicaId;

pub use frame::{DeliveryBatch, FRAME_VERSION, Frame, FrameError, StoreEvent};
pub use listener::{Listener, ReplicaEvent};

/// Delivers what the replicas of one broker publish, including this replica.
pub trait Bridge: Send + Sync + 'static {
    /// The id by which frames name this replica.
    fn replica(&self) -> ReplicaId;

    /// Subscribes. The stream lasts until it is dropped and survives lost connections.
    fn listen(&self) -> BridgeStream;
}

/// The stream of [`Bridge::listen`].
pub type BridgeStream = Pin<Box<dyn Stream<Item = BridgeEvent> + Send>>;

/// One item of the stream of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BridgeEvent {
    /// The subscription is active. Frames published before it may have been missed.
    Connected,
    /// A frame, as it was published.
    Frame(Bytes),
    /// A delivery batch for this replica, as it was published: its messages, then its trailer.
    DeliveryBatch(Vec<Bytes>, Bytes),
    /// The connection is lost; nothing is delivered until the next `Connected`.
    Disconnected,
}
