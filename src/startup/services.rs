//! What all transports use of a broker: authentication, administration and MCP.

use std::{io, sync::Arc};

use actors::{broker::BrokerHandle, storage::ReplicaDirectory};

use super::settings;
use api::{
    auth::{Audit, AuthPolicy, Authenticator},
    budget::ByteBudget,
    mcp::Service,
    verbs::administration::Administration,
};
use common::config::Config;

/// The parts around a broker.
pub struct Services {
    pub auth: Arc<Authenticator>,
    pub admin: Arc<Administration>,
    pub service: Arc<Service>,
}

impl Services {
    /// The parts around this broker.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn of(
        broker: &BrokerHandle,
        config: &Config,
        policy: AuthPolicy,
        replicas: Option<&Arc<dyn ReplicaDirectory>>,
        outbound: &Arc<ByteBudget>,
    ) -> io::Result<Self> {
        let audit = Audit::new(broker.clone());
        let auth = Authenticator::new(broker.clone(), policy, Arc::clone(&audit));
        let admin = Arc::new(Administration::new(broker.clone(), audit, config.enable_multi_project));
        let mut service = Service::new(
            config.max_payload_bytes(),
            config.heartbeat_interval,
            Arc::clone(&admin),
            replicas.map(|replicas| replicas.own_id()),
            Arc::clone(outbound),
            settings::clarify_by(config),
            settings::call_drain(config),
        )?;
        service.tools = config.tools;
        Ok(Self {
            auth: Arc::new(auth),
            admin,
            service: Arc::new(service),
        })
    }
}
