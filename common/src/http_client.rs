//! What all clients have in common that send requests to other hosts and block their threads.

use ureq::{Agent, config::ConfigBuilder, typestate::AgentScope};

/// A client that takes every status as an answer. It follows no redirect: what it sends, such as a key, is for one host.
pub fn config() -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .max_redirects(0)
        .http_status_as_error(false)
        .user_agent(concat!("mcp-broker/", env!("CARGO_PKG_VERSION")))
}
