//! Hash maps keyed by message and session ids.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasherDefault, Hasher},
};

/// A map keyed by ids that the broker created.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;
/// A set of ids that the broker created.
pub type IdSet<K> = HashSet<K, BuildHasherDefault<IdHasher>>;

/// Uses the random bits of a `UUIDv7` as the hash. The broker creates all ids that are stored; never key a map by
/// something that a client may choose.
#[derive(Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(low) = bytes.last_chunk() {
            // The lowest 32 bits are random, the ones above count. Both ends of the hash need random bits, because the
            // table takes the bucket from one end and the tag from the other.
            let low = u64::from_be_bytes(*low);
            self.0 = low ^ low.rotate_left(32);
        }
    }

    /// The length adds nothing: all ids have the same length.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault};

    use super::*;
    use crate::{clock::now, model::MessageIds};

    #[test]
    fn consecutive_ids_spread_over_buckets_and_tags() {
        let (ids, build) = (MessageIds::default(), BuildHasherDefault::<IdHasher>::default());
        let hashes: Vec<_> = (0..4096).map(|_| build.hash_one(ids.next(now()))).collect();
        let distinct = |part: fn(u64) -> u64| hashes.iter().map(|&h| part(h)).collect::<HashSet<_>>().len();
        assert_eq!(distinct(|hash| hash >> 57), 128);
        // 4096 balls in 4096 bins hit about 63 % of them.
        assert!(distinct(|hash| hash & 4095) > 2300);
    }
}
