//! How the replicas of one broker hear each other.

pub mod redis;
