//! A broker inside the process of a command, on a thread of its own. It keeps nothing: everything is in memory.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::access::{BrokerAccess, BrokerUrl};
use crate::broker::{Broker, Serving};
use common::config::{self, Flag};
use common::stop_signal::stop_signal;

/// Longest time of a start.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The settings that differ from the defaults, besides those of the caller.
const SETTINGS: [(&str, &str); 4] = [
    ("storage", "memory"),
    ("workers", "1"),
    ("shutdown_grace", "2s"),
    ("connections_max", "1000"),
];

/// A running broker. Dropping it stops it.
pub struct EmbeddedBroker {
    /// Where it listens.
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    is_interrupted: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl EmbeddedBroker {
    /// Starts a broker with the defaults and these settings. With `observes_signals`, SIGTERM and SIGINT stop the broker from then
    /// on, and not the process.
    ///
    /// # Errors
    /// One line for the user: the port is taken, or the process may start no thread.
    pub fn start(
        broker: &'static dyn Broker,
        flags: &[(&'static str, &str)],
        observes_signals: bool,
    ) -> Result<Self, String> {
        let flags = SETTINGS.iter().chain(flags).map(|&(key, value)| (key, value.into()));
        let loaded = config::load_with_values(None, flags.collect::<Vec<Flag>>(), []);
        let (config, values) = loaded.map_err(|error| error.to_string())?;
        let (stop, stopped) = oneshot::channel();
        let (started, address) = mpsc::channel();
        let is_interrupted = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name("broker".to_owned()).spawn({
            let is_interrupted = Arc::clone(&is_interrupted);
            move || {
                let stop = async move {
                    if observes_signals {
                        wait_for_stop(stopped, &is_interrupted).await
                    } else {
                        let _ = stopped.await;
                        Ok(())
                    }
                };
                let ready = started.clone();
                let serving = Serving {
                    ready: Box::new(move |address| {
                        let _ = ready.send(Ok(address));
                        Ok(())
                    }),
                    stop: Box::pin(stop),
                    ..Serving::new(config, values)
                };
                if let Err(error) = broker.serve(serving) {
                    // Nothing receives it once the broker has served.
                    let _ = started.send(Err(error.to_string()));
                }
            }
        });
        let thread = thread.map_err(|error| format!("no thread can be started: {error}"))?;
        let address = address.recv_timeout(START_TIMEOUT);
        let address = address.map_err(|_| "the broker inside this command did not start in time".to_owned())??;
        Ok(Self {
            address,
            stop: Some(stop),
            is_interrupted,
            thread: Some(thread),
        })
    }

    /// How it is called.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn access(&self) -> Result<BrokerAccess, String> {
        let url = BrokerUrl::parse(&format!("http://{}", self.address), "default")?;
        Ok(BrokerAccess::without_key(url))
    }

    /// Whether the process was asked to stop.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Ordering::Acquire)
    }
}

impl Drop for EmbeddedBroker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns when `stopped` is dropped or the process is asked to stop.
async fn wait_for_stop(stopped: oneshot::Receiver<()>, is_interrupted: &AtomicBool) -> io::Result<()> {
    tokio::select! {
        _ = stopped => {}
        signal = stop_signal() => {
            signal?;
            is_interrupted.store(true, Ordering::Release);
        }
    }
    Ok(())
}
