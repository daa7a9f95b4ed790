//! The storages that touch the world.

pub mod disk;
