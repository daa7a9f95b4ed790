//! `gateway start`, `gateway restart`, `gateway stop`, `gateway enable` and `gateway disable`.

use clap::{ArgMatches, Command};
use serde::de::IgnoredAny;
use ureq::http::Method;

use super::backend::{self, backend_name};
use crate::{
    client::ApiRequest,
    error::CliError,
    operate::{
        job::{Context, Job},
        lists,
    },
};

/// The names of the commands.
pub const START: &str = "start";
pub const RESTART: &str = "restart";
pub const STOP: &str = "stop";
pub const ENABLE: &str = "enable";
pub const DISABLE: &str = "disable";

/// `start` with its help.
pub fn start() -> Command {
    Command::new(START)
        .about("Start a backend that does not run, without waiting for its next attempt")
        .arg(backend_name())
}

/// `restart` with its help.
pub fn restart() -> Command {
    Command::new(RESTART)
        .about("Stop the process of a backend and start it again; its open calls fail")
        .arg(backend_name())
}

/// `stop` with its help.
pub fn stop() -> Command {
    Command::new(STOP)
        .about("Stop the process of a backend, and hide its tools until it is started")
        .arg(backend_name())
}

/// `enable` with its help.
pub fn enable() -> Command {
    Command::new(ENABLE)
        .about("Switch an added backend on; the storage keeps this")
        .arg(backend_name())
}

/// `disable` with its help.
pub fn disable() -> Command {
    Command::new(DISABLE)
        .about("Switch an added backend off; the storage keeps this")
        .arg(backend_name())
}

#[derive(Debug)]
struct Order {
    path: String,
    /// What the broker does from now on, with the name of the backend.
    said: String,
}

/// Reads the arguments.
pub fn read(order: &str, matches: &ArgMatches) -> Box<dyn Job> {
    let name = matches.get_one::<String>("backend").cloned().unwrap_or_default();
    let does = match order {
        START => "is being started",
        RESTART => "is being restarted",
        STOP => "is being stopped, and stays stopped until gateway start",
        ENABLE => "is switched on",
        _ => "is switched off",
    };
    Box::new(Order {
        path: format!("{}/{order}", backend::path_of(&name)),
        said: format!("{name} {does}; gateway list shows its state\n"),
    })
}

impl Job for Order {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let body = context.client.send(&ApiRequest::new(Method::POST, self.path.clone()))?;
        lists::show_one(context, &body, |_: &IgnoredAny| self.said.clone())
    }
}
