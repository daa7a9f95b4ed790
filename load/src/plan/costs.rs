//! What a step costs, as it was measured. `costs.json` has the figures; each names the command that measured it.

use std::{fs, path::Path};

use serde::Deserialize;

use crate::error::{LoadError, Result};

/// The costs of this build, which `scripts/scale-costs` has measured.
const MEASURED: &str = include_str!("costs.json");

/// A figure and where it comes from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cost {
    value: f64,
    source: String,
}

/// Declares the costs, each with its text.
macro_rules! costs {
    ($($(#[$text:meta])* $name:ident,)*) => {
        /// The file of costs.
        #[derive(Clone, Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File { machine: String, $($name: Cost,)* }

        /// The measured costs. The name of each ends with its unit; "us" is processor time in microseconds.
        #[derive(Clone, Copy, Debug)]
        pub struct Costs { $($(#[$text])* pub $name: f64,)* }

        impl File {
            fn values(&self) -> Costs {
                Costs { $($name: self.$name.value,)* }
            }

            fn all(&self) -> Vec<(&'static str, &Cost)> {
                vec![$((stringify!($name), &self.$name),)*]
            }
        }
    };
}

costs! {
    /// A direct message in memory, when the worker has slept for a millisecond or more: other programs had its caches.
    direct_cold_us,
    /// The same when the worker was idle for less than a millisecond.
    direct_alone_us,
    /// The same when the worker was busy with other connections.
    direct_busy_us,
    /// The same when 64 messages of its connection are in flight.
    direct_burst_us,
    /// The part of a message that only the worker of its project does.
    router_us,
    /// The same when 64 messages of its connection are in flight.
    router_burst_us,
    /// What a message costs more with two workers than with one: one step to another worker.
    crossing_us,
    /// The same when 64 messages of its connection are in flight.
    crossing_burst_us,
    /// A delivery of a broadcast to 1,000.
    delivery_us,
    /// A login in memory.
    login_us,
    /// A connected session that does nothing, for each second.
    idle_us,
    /// Memory of a connected session that has sent and received messages.
    session_kib,
    /// Memory of a broker without sessions.
    base_kib,
    /// A direct message on Redis, at one replica that has slept for a millisecond or more.
    shared_cold_us,
    /// The same at one that was idle for less than a millisecond.
    shared_alone_us,
    /// The same at a busy one.
    shared_busy_us,
    /// What a message costs more if its recipient is at another replica.
    shared_cross_us,
    /// Redis for a direct message, when it has slept for a millisecond or more.
    store_cold_us,
    /// The same when it was idle for less than a millisecond.
    store_alone_us,
    /// The same when it was busy, so that messages share a call.
    store_busy_us,
    /// A delivery of a broadcast to 1,000 on Redis, at the replica.
    shared_delivery_us,
    /// The same, in Redis.
    store_delivery_us,
    /// A login on Redis, at the replica.
    shared_login_us,
    /// The same, in Redis.
    store_login_us,
    /// The same, at each other replica that has the project open.
    other_login_us,
    /// A connected session that does nothing, for each second, at its replica on Redis.
    shared_idle_us,
    /// The same, in Redis.
    store_idle_us,
    /// The same, in Redis for each other replica that has the project open.
    store_other_idle_us,
    /// The same, at each other replica.
    other_idle_us,
    /// Memory of a connected session that has sent and received messages, at its replica on Redis.
    shared_session_kib,
    /// Memory of a session at each other replica.
    other_session_kib,
    /// Memory of a session in Redis.
    store_session_kib,
    /// Bytes of the receipt of a direct message in Redis.
    store_receipt_bytes,
    /// Memory of an open project at a replica.
    project_kib,
    /// An open project without traffic, for each second, at each replica.
    project_idle_us,
    /// The same, in Redis for each replica.
    store_project_idle_us,
    /// Bytes on the network of the clients for a direct message with a frame of 400 bytes, its answer and its delivery.
    direct_bytes,
    /// Bytes on the network of the clients for a delivery of a broadcast of 400 bytes.
    delivery_bytes,
    /// Bytes between a replica and Redis for a direct message of 400 bytes.
    store_bytes,
}

impl Costs {
    /// Reads a file; without one, the costs that were measured for this build. Returns the machine that it names as well.
    pub fn read(path: Option<&Path>) -> Result<(Self, String)> {
        let text = path.map_or(Ok(MEASURED.to_owned()), fs::read_to_string)?;
        let file: File = serde_json::from_str(&text)
            .map_err(|error| LoadError::Arguments(format!("the file of costs cannot be read: {error}")))?;
        for (name, cost) in file.all() {
            if !(cost.value.is_finite() && cost.value >= 0.0) || cost.source.is_empty() {
                return Err(LoadError::Arguments(format!(
                    "the file of costs has no figure with a source for {name}"
                )));
            }
        }
        Ok((file.values(), file.machine))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_measured_cost_has_a_source() {
        let (costs, machine) = Costs::read(None).unwrap();
        assert!(costs.direct_busy_us > 0.0 && !machine.is_empty());
    }

    #[test]
    fn a_burst_is_cheaper_than_a_message_alone() {
        let (costs, _) = Costs::read(None).unwrap();
        assert!(costs.direct_burst_us < costs.direct_busy_us);
        assert!(costs.store_busy_us < costs.store_alone_us);
    }
}
