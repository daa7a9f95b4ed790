//! What replicas tell each other.
//!
//! Whatever a replica changes in a shared store is published by that operation itself, in the same transaction; there is
//! no second truth. A frame says where to look. One that is lost costs time: whoever notices looks at everything.

mod actor;
mod frame;
mod parcel;
mod serials;

use std::pin::Pin;

use bytes::Bytes;
use futures_util::Stream;

pub use actor::{Listener, Told};
pub use frame::{Frame, FrameError, News, VERSION};
pub use parcel::Parcel;

use crate::model::ReplicaId;

/// Hears what the replicas of one broker publish, this one included.
pub trait Bridge: Send + Sync + 'static {
    /// This replica, as its frames name it.
    fn replica(&self) -> ReplicaId;

    /// Begins to listen. The stream goes on for as long as it is held, through every loss of the connection.
    fn listen(&self) -> Heard;
}

pub type Heard = Pin<Box<dyn Stream<Item = Incoming> + Send>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// From here on everything is heard. What was published before may have been missed.
    Connected,
    /// A frame, as it was published.
    Frame(Bytes),
    /// The messages of a parcel for this replica and its last part, as they were published.
    Parcel(Vec<Bytes>, Bytes),
    /// Nothing is heard for the time being.
    Lost,
}
