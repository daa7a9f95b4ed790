//! The server of the metrics, where they have a port of their own, and the task that samples the series.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use actix_rt::task::JoinHandle;
use actix_web::{App, HttpServer, dev::ServerHandle, middleware::from_fn, web};
use actors::{clock::now, idle};

use crate::http::{self, HttpState, OwnPort};
use common::config::Config;
use common::listen;
use rest::series::STEP_SECONDS;

/// Connections of scrapers at once.
const CONNECTIONS_MAX: usize = 64;

/// A server that serves metrics and nothing else.
pub struct ScrapeServer {
    address: SocketAddr,
    handle: ServerHandle,
    task: JoinHandle<io::Result<()>>,
}

impl ScrapeServer {
    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops it once its requests are answered.
    pub async fn stop(self) {
        self.handle.stop(true).await;
        let _ = self.task.await;
    }
}

/// Starts the server, if the configuration has a port for it.
///
/// # Errors
/// The port is taken; the text names it.
pub fn start(config: &Config, state: &Arc<HttpState>) -> io::Result<Option<ScrapeServer>> {
    let Some(port) = config.metrics_port else {
        return Ok(None);
    };
    let listener = listen::bind(SocketAddr::new(config.host, port), "--metrics-port")?;
    let address = listener.local_addr()?;
    let state = Arc::clone(state);
    let server = HttpServer::new(move || {
        App::new()
            .app_data(web::Data::new(Arc::clone(&state)))
            .app_data(OwnPort)
            .wrap(from_fn(http::authenticate))
            .wrap(from_fn(http::admit))
            .configure(http::metrics_routes)
    });
    let server = server
        .workers(1)
        .max_connections(CONNECTIONS_MAX)
        .shutdown_timeout(config.shutdown_grace.as_secs().max(1))
        .disable_signals()
        .listen(listener)?
        .run();
    let handle = server.handle();
    let task = actix_rt::spawn(server);
    Ok(Some(ScrapeServer { address, handle, task }))
}

/// Samples the series at each multiple of their step, until the broker ends. The series have no points of the time in
/// which the broker was idle.
pub async fn sample(state: Arc<HttpState>) {
    const STEP_MS: u64 = STEP_SECONDS * 1000;
    loop {
        // A little after the step began: the clock may be a tick early.
        let left_ms = STEP_MS - now().unix_ms % STEP_MS + 20;
        tokio::time::sleep(Duration::from_millis(left_ms)).await;
        if let Some(ready) = state.ready.get() {
            ready.metrics.sample().await;
        }
        idle::while_idle(idle::IDLE_PAUSE_MAX).await;
    }
}
