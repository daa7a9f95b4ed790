//! Stores that outlive the process.

pub mod redis;
