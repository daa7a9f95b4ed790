//! The storages and what depends on them: Redis and the replicas that share it, the disk, and the data of older brokers.

#[allow(dead_code, unused_imports, reason = "these tests need a part of it")]
mod support;

mod disk;
mod replicas;
mod storage;
mod upgrade;
