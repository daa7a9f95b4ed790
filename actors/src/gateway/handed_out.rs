//! The addresses that backends have handed out in results. Results are passed on as they are, so an address in one does not say
//! which backend it is of. Bounded: the last ones of a project are known.

use std::collections::HashMap;

use super::turns::CallerId;
use crate::{locked::Locked, model::BackendName};

/// Addresses, and their bytes, after which the older ones are forgotten.
const ADDRESSES_MAX: usize = 5_000;
const BYTES_MAX: usize = 1024 * 1024;
/// Bytes of one address.
const ADDRESS_LEN_MAX: usize = 4 * 1024;

/// The addresses of a project that were handed out, by caller.
#[derive(Debug, Default)]
pub struct HandedOut(Locked<Generations>);

/// At least the last [`ADDRESSES_MAX`] addresses, and at most twice as many.
#[derive(Debug, Default)]
struct Generations {
    recent: Generation,
    before: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    of: HashMap<CallerId, HashMap<Box<str>, BackendName>>,
    len: usize,
    bytes: usize,
}

impl HandedOut {
    /// Notes an address in a result of a backend. The last backend that hands it out to a caller counts.
    pub fn note(&self, caller: CallerId, backend: &BackendName, address: &str) {
        if address.len() > ADDRESS_LEN_MAX {
            return;
        }
        let mut all = self.0.lock();
        if all.recent.len >= ADDRESSES_MAX || all.recent.bytes >= BYTES_MAX {
            all.before = std::mem::take(&mut all.recent);
        }
        let recent = &mut all.recent;
        let of_caller = recent.of.entry(caller).or_default();
        if let Some(known) = of_caller.get_mut(address) {
            known.clone_from(backend);
            return;
        }
        of_caller.insert(address.into(), backend.clone());
        recent.len += 1;
        recent.bytes += address.len();
    }

    /// The backend that has handed out an address to a caller.
    pub fn backend_of(&self, caller: CallerId, address: &str) -> Option<BackendName> {
        let all = self.0.lock();
        let mut found = [&all.recent, &all.before].into_iter();
        found.find_map(|generation| generation.of.get(&caller)?.get(address).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> BackendName {
        BackendName::parse(text).unwrap()
    }

    #[test]
    fn an_address_leads_its_caller_to_the_last_backend_that_handed_it_out() {
        let handed_out = HandedOut::default();
        handed_out.note(1, &name("a"), "x:1");
        handed_out.note(2, &name("b"), "x:1");
        assert_eq!(handed_out.backend_of(1, "x:1"), Some(name("a")));
        assert_eq!(handed_out.backend_of(3, "x:1"), None);
        handed_out.note(1, &name("b"), "x:1");
        assert_eq!(handed_out.backend_of(1, "x:1"), Some(name("b")));
    }

    #[test]
    fn the_last_addresses_are_known_and_no_more_than_twice_as_many() {
        let handed_out = HandedOut::default();
        for at in 0..ADDRESSES_MAX * 5 {
            handed_out.note(1, &name("a"), &format!("x:{at}"));
        }
        let is_known = |at: &usize| handed_out.backend_of(1, &format!("x:{at}")).is_some();
        let known = (0..ADDRESSES_MAX * 5).filter(is_known).count();
        assert!((ADDRESSES_MAX..=ADDRESSES_MAX * 2).contains(&known), "{known}");
        assert!((ADDRESSES_MAX * 4..ADDRESSES_MAX * 5).all(|at| is_known(&at)));
        handed_out.note(1, &name("a"), &"x".repeat(ADDRESS_LEN_MAX + 1));
        assert_eq!(handed_out.backend_of(1, &"x".repeat(ADDRESS_LEN_MAX + 1)), None);
    }
}
