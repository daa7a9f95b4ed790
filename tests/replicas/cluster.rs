//! Several broker replicas on one Redis, which a test kills and restarts.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use crate::support::{Broker, Redis, eventually};

/// The addresses of the running replicas.
#[derive(Clone, Default)]
pub struct ReplicaAddresses(Arc<Mutex<Vec<SocketAddr>>>);

impl ReplicaAddresses {
    /// One address, of a load balancer.
    pub fn of(address: SocketAddr) -> Self {
        Self(Arc::new(Mutex::new(vec![address])))
    }

    /// The address with this number, modulo their count.
    pub fn pick(&self, number: usize) -> SocketAddr {
        let addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        addresses[number % addresses.len()]
    }

    pub fn put(&self, at: usize, address: SocketAddr) {
        let mut addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if at < addresses.len() {
            addresses[at] = address;
        } else {
            addresses.push(address);
        }
    }
}

/// Replicas that share one Redis.
pub struct BrokerCluster {
    pub replicas: Vec<Broker>,
    pub addresses: ReplicaAddresses,
    redis_url: String,
    flags: Vec<String>,
}

impl BrokerCluster {
    pub fn start(len: usize, redis: &Redis) -> Self {
        Self::start_with(len, &redis.url(), &[])
    }

    /// Starts `len` replicas and registers the protocol `note`.
    pub fn start_with(len: usize, redis_url: &str, flags: &[&str]) -> Self {
        let mut cluster = Self {
            replicas: Vec::new(),
            addresses: ReplicaAddresses::default(),
            redis_url: redis_url.to_owned(),
            flags: flags.iter().map(ToString::to_string).collect(),
        };
        for at in 0..len {
            let replica = cluster.launch();
            cluster.addresses.put(at, replica.address);
            cluster.replicas.push(replica);
        }
        Broker::register_note_protocol(&cluster.replicas[0].client());
        cluster
    }

    fn launch(&self) -> Broker {
        let flags: Vec<_> = self.flags.iter().map(String::as_str).collect();
        Broker::replica(&self.redis_url, &flags)
    }

    /// Kills a replica (SIGKILL) and starts another in its place.
    pub fn kill(&mut self, at: usize) {
        self.replicas[at].kill();
        self.replace(at);
    }

    /// Stops a replica as an operator does (SIGTERM), and starts another in its place.
    pub fn restart(&mut self, at: usize) {
        self.replicas[at].terminate();
        let status = self.replicas[at].wait_for_exit();
        assert!(status.success(), "{status:?}: {}", self.replicas[at].log());
        self.replace(at);
    }

    fn replace(&mut self, at: usize) {
        self.replicas[at] = self.launch();
        self.addresses.put(at, self.replicas[at].address);
    }

    /// Waits until every replica reports this readiness.
    pub fn await_readiness(&self, ready: bool) {
        let status = if ready { 200 } else { 503 };
        for replica in &self.replicas {
            eventually(&format!("/readyz says {status}"), || {
                (replica.get("/readyz").status == status).then_some(())
            });
            assert_eq!(replica.get("/livez").status, 200);
        }
    }
}
