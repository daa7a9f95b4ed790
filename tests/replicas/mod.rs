//! Several broker replicas that share one Redis, with faults of each of them.

mod balancer;
mod clocks;
mod cluster;
mod counts;
mod cross_project;
mod desk;
mod event_log;
mod fleet;
mod frozen;
mod http_sessions;
mod in_flight;
mod kills;
mod ledger;
mod lenses;
mod operations;
mod push;
mod redis_faults;
mod redis_rollback;
mod reports;
mod roaming_client;
mod rolling_update;
mod script;
mod sessions;
mod starts;
mod storms;
mod webhooks;

use crate::support::{self, cluster_script};
