//! Keys behind a URL. One thread fetches them, at an interval and on request.

use std::{
    net::IpAddr,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Condvar, PoisonError},
    thread,
    time::{Duration, Instant},
};

use actors::locked::Locked;
use common::http_client;
use tokio::{sync::watch, time::timeout};
use ureq::{Agent, http::Uri};

use super::{
    key_cache::KeyCache,
    settings::{JwtTimings, SET_LEN_MAX},
};

/// Fetches the keys of an issuer. Dropping it ends the thread.
pub struct Fetcher {
    schedule: Arc<FetchSchedule>,
}

/// Shared between the thread and those who wait for keys.
struct FetchSchedule {
    timings: JwtTimings,
    status: Locked<FetchStatus>,
    /// Wakes the thread: a fetch is requested, or the fetcher is dropped.
    fetch_requested: Condvar,
    /// Counts finished fetches; waiters watch it.
    fetches_done: watch::Sender<u64>,
}

struct FetchStatus {
    /// A fetch is running or requested.
    is_due: bool,
    /// When the last fetch started.
    started_at: Option<Instant>,
    is_stopped: bool,
}

impl Fetcher {
    /// Starts the thread and its first fetch.
    ///
    /// # Errors
    /// The reason when keys cannot be fetched from this URL.
    pub fn start(url: &str, timings: JwtTimings, key_cache: Arc<KeyCache>) -> Result<Self, String> {
        let agent = agent(url, timings.fetch_timeout)?;
        let status = FetchStatus {
            is_due: true,
            started_at: None,
            is_stopped: false,
        };
        let schedule = Arc::new(FetchSchedule {
            timings,
            status: Locked::new(status),
            fetch_requested: Condvar::new(),
            fetches_done: watch::Sender::new(0),
        });
        let work = {
            let (schedule, url) = (Arc::clone(&schedule), url.to_owned());
            move || run(&schedule, &key_cache, || fetch(&agent, &url))
        };
        thread::Builder::new()
            .name("issuer-keys".to_owned())
            .spawn(work)
            .map_err(|error| format!("the thread that fetches the keys cannot start: {error}"))?;
        Ok(Self { schedule })
    }

    /// Waits until a fetch is done or [`JwtTimings::wait_timeout`] is over. Returns at once when the last fetch is
    /// younger than [`JwtTimings::fetch_interval_min`]: any number of waiters cause one fetch per interval.
    pub async fn wait_for_fetch(&self) {
        let Some(mut fetched) = self.schedule.request_fetch() else {
            return;
        };
        let _ = timeout(self.schedule.timings.wait_timeout, fetched.changed()).await;
    }

    /// Allows the next fetch at once.
    #[cfg(test)]
    pub fn reset_last_fetch(&self) {
        self.schedule.status.lock().started_at = None;
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.schedule.status.lock().is_stopped = true;
        self.schedule.fetch_requested.notify_one();
    }
}

impl FetchSchedule {
    /// Requests a fetch. Returns the counter to watch, or `None` when the last fetch is too recent.
    fn request_fetch(&self) -> Option<watch::Receiver<u64>> {
        let mut status = self.status.lock();
        if !status.is_due {
            if status
                .started_at
                .is_some_and(|started| started.elapsed() < self.timings.fetch_interval_min)
            {
                return None;
            }
            status.is_due = true;
            self.fetch_requested.notify_one();
        }
        Some(self.fetches_done.subscribe())
    }

    /// Tells all waiters that a fetch is done.
    fn mark_done(&self) {
        let mut status = self.status.lock();
        status.is_due = false;
        self.fetches_done.send_modify(|count| *count += 1);
    }

    /// Waits up to `time` for a request and marks a fetch as started. False when the fetcher is dropped.
    fn wait_for_request(&self, time: Duration) -> bool {
        let nothing_to_do = |status: &mut FetchStatus| !status.is_due && !status.is_stopped;
        let (mut status, _) = self
            .fetch_requested
            .wait_timeout_while(self.status.lock(), time, nothing_to_do)
            .unwrap_or_else(PoisonError::into_inner);
        status.is_due = true;
        status.started_at = Some(Instant::now());
        !status.is_stopped
    }
}

/// Fetches until the fetcher is dropped. After a failure the next fetch starts after the shorter interval.
fn run(schedule: &FetchSchedule, key_cache: &KeyCache, fetch: impl Fn() -> Result<Vec<u8>, String>) {
    let mut has_failed = false;
    let mut time = Duration::ZERO;
    while schedule.wait_for_request(time) {
        // A panic must not end the thread: the keys would never be updated again.
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
            fetch().and_then(|text| key_cache.replace_keys(&text))
        }));
        let outcome = outcome.unwrap_or_else(|_| Err("the fetch panicked".to_owned()));
        schedule.mark_done();
        match &outcome {
            Ok(keys) if has_failed => tracing::info!(keys, "the issuer's keys can be fetched again"),
            Ok(keys) => tracing::debug!(keys, "the issuer's keys were fetched"),
            Err(error) if has_failed => {
                tracing::debug!(error, "the issuer's keys still cannot be fetched")
            }
            Err(error) => tracing::warn!(error, "the issuer's keys cannot be fetched"),
        }
        has_failed = outcome.is_err();
        time = if has_failed {
            schedule.timings.fetch_interval_min
        } else {
            schedule.timings.refresh_interval
        };
    }
}

/// A server that answers in the issuer's place could sign every token. So keys come over TLS or from this machine.
fn agent(url: &str, time: Duration) -> Result<Agent, String> {
    let uri: Uri = url.parse().map_err(|_| "the keys' URL is not a URL".to_owned())?;
    let host = uri.host().unwrap_or_default();
    let is_near = match uri.scheme_str() {
        Some("https") if !host.is_empty() => false,
        Some("http") if is_loopback(host) => true,
        _ => return Err("the keys' URL must be https, or http to a loopback host".to_owned()),
    };
    if uri
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
    {
        return Err("the keys' URL must not carry a user: the keys are public".to_owned());
    }
    let mut config = http_client::config()
        .https_only(!is_near)
        .timeout_global(Some(time))
        .max_idle_connections(0);
    if is_near {
        config = config.proxy(None);
    }
    Ok(config.build().into())
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or_else(
        |_| host.eq_ignore_ascii_case("localhost"),
        |address| address.is_loopback(),
    )
}

fn fetch(agent: &Agent, url: &str) -> Result<Vec<u8>, String> {
    let mut response = agent.get(url).call().map_err(|error| error.to_string())?;
    if response.status() != 200 {
        return Err(format!("the answer is {}", response.status().as_u16()));
    }
    let body = response.body_mut().with_config();
    // The library's limit is one byte more than it accepts.
    body.limit(SET_LEN_MAX + 1)
        .read_to_vec()
        .map_err(|error| error.to_string())
}
