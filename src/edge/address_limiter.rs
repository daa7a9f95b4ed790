//! Limits the open sockets of each network.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use actors::locked::Locked;

use api::auth::Network;

/// Limits the open sockets of one network, idle ones included, so that one client cannot use up `connections_max`.
pub struct AddressLimiter {
    network_max: usize,
    /// The limit of this machine itself, whose programs share an address.
    loopback_max: usize,
    open: Locked<HashMap<Network, usize>>,
}

impl AddressLimiter {
    /// A limiter with `network_max` sockets per network, and `loopback_max` for this machine.
    pub fn new(network_max: usize, loopback_max: usize) -> Arc<Self> {
        Arc::new(Self {
            network_max,
            loopback_max,
            open: Locked::default(),
        })
    }

    /// Returns a permit for one more socket from `address`; `None` at the limit.
    pub fn try_acquire(self: &Arc<Self>, address: IpAddr) -> Option<AddressPermit> {
        let network = Network::of(address);
        let mut open = self.open.lock();
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
}

/// Permit for one socket. It is released on drop.
pub struct AddressPermit {
    limiter: Arc<AddressLimiter>,
    network: Network,
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut open = self.limiter.open.lock();
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
    fn a_dropped_permit_allows_another_socket() {
        let addresses = AddressLimiter::new(2, 3);
        let (here, there) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let permits = [
            addresses.try_acquire(here).unwrap(),
            addresses.try_acquire(here).unwrap(),
        ];
        assert!(addresses.try_acquire(here).is_none() && addresses.try_acquire(there).is_some());
        let own: Vec<_> = (0..4)
            .filter_map(|_| addresses.try_acquire("::ffff:127.0.0.1".parse().unwrap()))
            .collect();
        assert_eq!(own.len(), 3);
        drop((permits, own));
        assert!(addresses.try_acquire(here).is_some());
        assert!(addresses.open.lock().is_empty(), "no entry stays after the last socket");
    }
}
