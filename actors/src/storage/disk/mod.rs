//! The durable backend of a single broker: the same state and decisions as in memory, with every change on the disk
//! before the operation is answered.
//!
//! An operation takes effect in memory at its first poll, under the lock of its project. Its changes become records
//! there (`recorder`), join the next group (`commits`), and are written with that group (`writer`). On opening,
//! everything is read back (`load`). The key-value store beneath is an [`Engine`] that the caller supplies.

mod codec;
mod commits;
mod disk_state;
mod engine;
mod event_reader;
mod load;
mod project;
mod recorder;
mod records;
mod send_result;
mod status;
mod storage;
mod store;
mod writer;

pub use self::{
    engine::{DiskSpace, Engine, EngineReader, Record, ScanVisitor},
    load::layout_version,
    records::VERSION as LAYOUT_VERSION,
    storage::{DiskSettings, DiskStorage},
};

#[cfg(test)]
mod tests;
