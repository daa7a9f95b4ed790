//! What replicas tell each other.
//!
//! Whatever a replica changes in a shared store is published by that operation itself, in the same transaction; there is
//! no second truth. A frame says where to look. One that is lost costs time: whoever notices looks at everything.

mod delivery_batch;
mod frame;
mod frame_sequence;
mod listener;

use std::pin::Pin;

use bytes::Bytes;
use futures_util::Stream;

pub use delivery_batch::DeliveryBatch;
pub use frame::{FRAME_VERSION, Frame, FrameError, StoreEvent};
pub use listener::{Listener, ReplicaEvent};

use crate::model::ReplicaId;

/// Hears what the replicas of one broker publish, this one included.
pub trait Bridge: Send + Sync + 'static {
    /// This replica, as its frames name it.
    fn replica(&self) -> ReplicaId;

    /// Begins to listen. The stream goes on for as long as it is held, through every loss of the connection.
    fn listen(&self) -> BridgeStream;
}

pub type BridgeStream = Pin<Box<dyn Stream<Item = BridgeEvent> + Send>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BridgeEvent {
    /// From here on everything is heard. What was published before may have been missed.
    Connected,
    /// A frame, as it was published.
    Frame(Bytes),
    /// The messages of a parcel for this replica and its last part, as they were published.
    DeliveryBatch(Vec<Bytes>, Bytes),
    /// Nothing is heard for the time being.
    Disconnected,
}
