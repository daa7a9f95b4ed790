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
mod rubberduck;
mod scraping;
mod server;
mod services;
mod settings;
mod stdio;
mod tasks;
mod user_broker;

use std::{io, net::SocketAddr, process::ExitCode};

use actix_rt::System;
use cli::broker::{Broker, GatewayOfClient, Serving};
use common::{config::Config, listen};

use application::Application;

/// The broker of this executable.
#[derive(Debug)]
pub struct ThisBroker;

impl Broker for ThisBroker {
    fn serve(&self, serving: Serving) -> io::Result<ExitCode> {
        System::new().block_on(serve(serving))
    }

    fn serve_gateway(&self, config: &Config, gateway: GatewayOfClient) -> io::Result<ExitCode> {
        System::new().block_on(stdio::serve(config, gateway))
    }
}

async fn serve(serving: Serving) -> io::Result<ExitCode> {
    let mut config = serving.config;
    let address = SocketAddr::new(config.host, config.port);
    let mut application = match Application::build(&config, &serving.values).await {
        Err(error)
            if serving.may_take_free_port
                && error.kind() == io::ErrorKind::AddrInUse
                && listen::bind(address, "port").is_err() =>
        {
            config.port = 0;
            Application::build(&config, &serving.values).await?
        }
        built => built?,
    };
    if let Some(sources) = serving.sources {
        application.follow(sources);
    }
    if serving.is_announced {
        application.announce(&config);
    }
    (serving.ready)(application.address())?;
    application.run_until(serving.stop).await
}
