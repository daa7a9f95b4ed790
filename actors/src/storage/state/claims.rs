//! The claims of a project in this process, which end with it.

use std::{collections::BTreeMap, ops::Bound, sync::Arc, time::Duration};

use uuid::Uuid;

use crate::{
    clock::Now,
    storage::claims::{ClaimEpoch, ENDED_AT_ONCE_MAX, HeldClaim},
};

/// The claims of a project.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    /// By thing; each with its end on the monotonic clock.
    held: BTreeMap<Arc<str>, (HeldClaim, u64)>,
    last: u64,
}

impl Claims {
    /// See [`ClaimStore::claim`](crate::storage::ClaimStore::claim).
    pub fn claim(
        &mut self,
        thing: Arc<str>,
        holder: Uuid,
        ttl: Duration,
        note: Arc<str>,
        now: Now,
    ) -> Option<ClaimEpoch> {
        let epoch = match self.held.get(&thing).filter(|(_, until_ms)| *until_ms > now.mono_ms) {
            Some((held, _)) if held.holder != holder => return None,
            Some((held, _)) => held.epoch,
            None => {
                self.last = (self.last + 1).max(now.unix_ms * 1_000);
                ClaimEpoch(self.last)
            }
        };
        let claim = HeldClaim {
            epoch,
            thing: Arc::clone(&thing),
            holder,
            note,
        };
        self.held.insert(thing, (claim, now.mono_after(ttl)));
        Some(epoch)
    }

    /// See [`ClaimStore::settle`](crate::storage::ClaimStore::settle).
    pub fn settle(&mut self, epoch: ClaimEpoch) -> bool {
        let len = self.held.len();
        self.held.retain(|_, (held, _)| held.epoch != epoch);
        self.held.len() < len
    }

    /// See [`ClaimStore::end_silent`](crate::storage::ClaimStore::end_silent).
    pub fn end_silent(&mut self, now: Now) -> Vec<HeldClaim> {
        let over = self
            .held
            .extract_if(.., |_, (_, until_ms)| *until_ms <= now.mono_ms)
            .take(ENDED_AT_ONCE_MAX);
        over.map(|(_, (ended, _))| ended).collect()
    }

    /// See [`ClaimStore::claims`](crate::storage::ClaimStore::claims).
    pub fn with_prefix(&self, prefix: &str, now: Now) -> Vec<HeldClaim> {
        let from = self
            .held
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(|(thing, _)| thing.starts_with(prefix));
        from.filter(|(_, (_, until_ms))| *until_ms > now.mono_ms)
            .map(|(_, (held, _))| held.clone())
            .collect()
    }
}
