//! Assembles the broker: the only place where all rooms meet.
//!
//! `application` builds the parts and runs them; `settings` turns the configuration into the settings of each part;
//! `services` are the parts that all transports use, `server` is the HTTP server, `stdio` a gateway without one, `local` the local transports, `rubberduck` the port of the rubberduck programs, `idle` the
//! end without clients; `configuration` follows the configuration file; `tasks` are the background tasks, one of which is the `credential_watcher`.

mod application;
mod configuration;
mod credential_watcher;
mod file_limit;
mod idle;
mod lazy_service;
mod local;
mod rubberduck;
mod scraping;
mod server;
mod services;
mod settings;
mod stdio;
mod tasks;

use std::process::ExitCode;

use actix_rt::System;

pub use application::{Application, stop_signal};
pub use file_limit::files_wanted;
pub use server::bind;
pub use stdio::{FollowedBackends, GatewayOfClient, Observer, StandardStreams, serve_gateway};

use crate::{
    config::{Config, SettingValue, Sources},
    exit, telemetry,
};

/// Runs a broker until it is told to stop, and returns the exit code of the process. Operators see `values`.
pub fn serve(config: &Config, sources: Sources, values: Vec<SettingValue>) -> ExitCode {
    let run = async {
        let application = Application::build_following(config, sources).await?;
        application.show_settings(values);
        application.announce(config);
        application.run_until_stopped().await
    };
    System::new().block_on(run).unwrap_or_else(|error| {
        telemetry::print_status(config, "ERROR", &error.to_string());
        ExitCode::from(exit::FAILED)
    })
}
