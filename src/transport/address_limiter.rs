use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::auth::Network;

/// Open sockets by where they come from, whether anything was said on them or not: so that nobody takes all places.
pub struct AddressLimiter {
    network_max: usize,
    /// Of this machine itself: all its programs share an address.
    loopback_max: usize,
    open: Mutex<HashMap<Network, usize>>,
}

impl AddressLimiter {
    pub fn new(max: usize, own_max: usize) -> Arc<Self> {
        Arc::new(Self {
            network_max: max,
            loopback_max: own_max,
            open: Mutex::default(),
        })
    }

    /// A place for one more socket from there; None when there are as many as there may be.
    pub fn try_acquire(self: &Arc<Self>, address: IpAddr) -> Option<AddressPermit> {
        let network = Network::of(address);
        let mut open = self.open();
        let len = open.entry(network).or_default();
        let max = if address.to_canonical().is_loopback() {
            self.loopback_max
        } else {
            self.network_max
        };
        if *len >= max {
            return None;
        }
        *len += 1;
        Some(AddressPermit {
            limiter: Arc::clone(self),
            network,
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Network, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one socket, given up when it is dropped.
pub struct AddressPermit {
    limiter: Arc<AddressLimiter>,
    network: Network,
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut open = self.limiter.open();
        if let Some(len) = open.get_mut(&self.network) {
            *len -= 1;
            if *len == 0 {
                open.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_its_socket_is_gone() {
        let addresses = AddressLimiter::new(2, 3);
        let (here, there) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let places = [
            addresses.try_acquire(here).unwrap(),
            addresses.try_acquire(here).unwrap(),
        ];
        assert!(addresses.try_acquire(here).is_none() && addresses.try_acquire(there).is_some());
        let own: Vec<_> = (0..4)
            .filter_map(|_| addresses.try_acquire("::ffff:127.0.0.1".parse().unwrap()))
            .collect();
        assert_eq!(own.len(), 3);
        drop((places, own));
        assert!(addresses.try_acquire(here).is_some());
        assert!(addresses.open().is_empty(), "nothing is kept of who has gone");
    }
}
