//! The broker as the command line sees it: something that the executable runs in this process.
//!
//! The executable implements [`Broker`] and hands it to [`crate::run`], so that this crate is built without any server.

use std::{fmt::Debug, io, net::SocketAddr, os::fd::OwnedFd, path::PathBuf, process::ExitCode, sync::Arc};

use actors::{gateway::GatewayShared, model::BackendsConfig};
use common::{
    config::{Config, SettingValue, Sources},
    stop_signal::stop_signal,
};
use futures_util::future::LocalBoxFuture;

/// Runs a broker, or a gateway without one, in this process.
pub trait Broker: Debug + Sync {
    /// Serves until it is asked to stop, and returns the exit code of the process.
    ///
    /// # Errors
    /// The broker cannot start, or [`Serving::ready`] has failed.
    fn serve(&self, serving: Serving) -> io::Result<ExitCode>;

    /// Serves the backends of a configuration to one client until it ends or the process is asked to stop. Open calls then
    /// have `shutdown_grace`. Settings of servers and storages have no effect.
    ///
    /// # Errors
    /// The parts cannot be started, or signals cannot be received.
    fn serve_gateway(&self, config: &Config, gateway: GatewayOfClient) -> io::Result<ExitCode>;
}

/// What a broker serves with.
pub struct Serving {
    pub config: Config,
    /// The settings as operators see them.
    pub values: Vec<SettingValue>,
    /// Where the configuration was read: the backends follow its file. `None`: they stay as they are.
    pub sources: Option<Sources>,
    /// Takes a free port if another program has the one of the configuration.
    pub may_take_free_port: bool,
    /// Prints on stderr where the broker listens.
    pub is_announced: bool,
    /// Called once the broker serves, with its address.
    pub ready: Box<dyn FnOnce(SocketAddr) -> io::Result<()>>,
    /// Its end stops the broker.
    pub stop: LocalBoxFuture<'static, io::Result<()>>,
}

impl Serving {
    /// A broker that follows no file, prints nothing, and serves until SIGTERM or SIGINT.
    pub fn new(config: Config, values: Vec<SettingValue>) -> Self {
        Self {
            config,
            values,
            sources: None,
            may_take_free_port: false,
            is_announced: false,
            ready: Box::new(|_| Ok(())),
            stop: Box::pin(stop_signal()),
        }
    }
}

/// A gateway for one client.
pub struct GatewayOfClient {
    pub client: StandardStreams,
    pub followed: Option<FollowedBackends>,
    /// The name of the server as the client sees it.
    pub name: Option<String>,
    /// The client is notified of changed lists.
    pub announces_lists: bool,
    pub observer: Option<Observer>,
}

/// Copies of stdin and stdout.
pub struct StandardStreams {
    pub input: OwnedFd,
    pub output: OwnedFd,
}

/// A file with backends, and how it is read again when it has changed.
pub struct FollowedBackends {
    pub file: PathBuf,
    pub read: Box<dyn Fn() -> Result<Arc<BackendsConfig>, String>>,
}

/// Follows what happens to the backends, as long as they are served.
pub type Observer = Box<dyn FnOnce(Arc<GatewayShared>) -> LocalBoxFuture<'static, ()>>;
