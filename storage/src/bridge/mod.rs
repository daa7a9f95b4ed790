//! How the replicas of one broker send each other events.

pub mod redis;
