//! Counters with a shard for each thread, and gauges.

use std::{
    cell::Cell,
    marker::PhantomData,
    sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
};

use super::label::Labelled;

/// Shards of a counter. Threads beyond that share them.
pub(super) const SHARDS: usize = 16;

/// The shard of this thread.
pub(super) fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    // A thread that ends has no shard of its own any longer.
    SHARD
        .try_with(|shard| {
            if shard.get() == usize::MAX {
                shard.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
            }
            shard.get()
        })
        .unwrap_or(0)
}

/// One shard of a counter, on cache lines of its own: processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Debug)]
struct Shard(AtomicU64);

/// A number that only grows.
#[derive(Debug)]
pub struct Counter([Shard; SHARDS]);

impl Counter {
    /// Zero.
    pub const fn new() -> Self {
        Self([const { Shard(AtomicU64::new(0)) }; SHARDS])
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0[shard()].0.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds 1.
    pub fn increment(&self) {
        self.add(1);
    }

    /// The sum of all shards.
    pub fn get(&self) -> u64 {
        self.0.iter().map(|shard| shard.0.load(Ordering::Relaxed)).sum()
    }
}

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}

/// A counter for each value of a label. `N` is the number of values.
#[derive(Debug)]
pub struct CounterVec<L, const N: usize> {
    counters: [Counter; N],
    label: PhantomData<fn(L)>,
}

impl<L: Labelled, const N: usize> CounterVec<L, N> {
    /// Zeros.
    pub const fn new() -> Self {
        Self {
            counters: [const { Counter::new() }; N],
            label: PhantomData,
        }
    }

    /// The counter of one value.
    pub fn of(&self, value: L) -> &Counter {
        &self.counters[value.index()]
    }

    /// The sum over all values.
    pub fn sum(&self) -> u64 {
        self.counters.iter().map(Counter::get).sum()
    }
}

impl<L: Labelled, const N: usize> Default for CounterVec<L, N> {
    fn default() -> Self {
        Self::new()
    }
}

/// A number that grows and shrinks.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Zero.
    pub const fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    /// Sets the number.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds `change`, which may be negative.
    pub fn add(&self, change: i64) {
        self.0.fetch_add(change, Ordering::Relaxed);
    }

    /// The number.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_count_is_added() {
        static COUNTER: Counter = Counter::new();
        let threads = (0..2 * SHARDS).map(|_| {
            std::thread::spawn(|| {
                for _ in 0..1000 {
                    COUNTER.increment();
                }
            })
        });
        for thread in threads.collect::<Vec<_>>() {
            thread.join().unwrap();
        }
        assert_eq!(COUNTER.get(), 2 * SHARDS as u64 * 1000);
    }
}
