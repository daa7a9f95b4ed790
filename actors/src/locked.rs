//! Locks whose values stay in use after a panic: a holder leaves the value whole, or its actor throws it away.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// A value behind a mutex.
#[derive(Debug, Default)]
pub struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    /// Puts the value behind a mutex.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Locks the value until the guard is dropped.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the value if no other thread has locked it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value, for its only holder.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A value behind a lock for many readers or one writer.
#[derive(Debug, Default)]
pub struct RwLocked<T>(RwLock<T>);

impl<T> RwLocked<T> {
    /// Puts the value behind a lock.
    pub const fn new(value: T) -> Self {
        Self(RwLock::new(value))
    }

    /// Locks the value against writers until the guard is dropped.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the value until the guard is dropped.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
