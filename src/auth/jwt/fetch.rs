//! Keys behind a URL: one thread fetches them, now and then and when it is asked to.

use std::{
    net::IpAddr,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio::{sync::watch, time::timeout};
use ureq::{Agent, http::Uri};

use super::{JwtTimings, SET_LEN_MAX, key_cache::KeyCache};

/// The thread ends with this.
pub struct Fetcher {
    schedule: Arc<FetchSchedule>,
}

/// Where fetches are asked for.
struct FetchSchedule {
    timings: JwtTimings,
    status: Mutex<FetchStatus>,
    /// To the thread: somebody wants a fetch, or nobody will any more.
    fetch_requested: Condvar,
    /// To who waits: one more fetch is over.
    fetches_done: watch::Sender<u64>,
}

struct FetchStatus {
    /// A fetch runs, or was asked for.
    is_due: bool,
    /// When the last fetch began.
    started_at: Option<Instant>,
    is_stopped: bool,
}

impl Fetcher {
    /// Begins the first fetch and does not wait for it.
    ///
    /// # Errors
    /// When the URL is not one that keys are fetched from.
    pub fn start(url: &str, pace: JwtTimings, ring: Arc<KeyCache>) -> Result<Self, String> {
        let agent = agent(url, pace.fetch_timeout)?;
        let turn = FetchStatus {
            is_due: true,
            started_at: None,
            is_stopped: false,
        };
        let desk = Arc::new(FetchSchedule {
            timings: pace,
            status: Mutex::new(turn),
            fetch_requested: Condvar::new(),
            fetches_done: watch::Sender::new(0),
        });
        let work = {
            let (desk, url) = (Arc::clone(&desk), url.to_owned());
            move || run(&desk, &ring, || fetch(&agent, &url))
        };
        thread::Builder::new()
            .name("issuer-keys".to_owned())
            .spawn(work)
            .map_err(|error| format!("no thread can fetch the keys: {error}"))?;
        Ok(Self { schedule: desk })
    }

    /// Returns when a fetch is over, or has taken too long, or when none may begin yet: however many ask, they cause
    /// one fetch in each [`Pace::pause`].
    pub async fn wait_for_fetch(&self) {
        let Some(mut fetched) = self.schedule.request_fetch() else {
            return;
        };
        let _ = timeout(self.schedule.timings.wait_timeout, fetched.changed()).await;
    }

    #[cfg(test)]
    pub fn reset_last_fetch(&self) {
        self.schedule.status().started_at = None;
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.schedule.status().is_stopped = true;
        self.schedule.fetch_requested.notify_one();
    }
}

impl FetchSchedule {
    /// What tells of the end of the fetch that runs or will, if there is one.
    fn request_fetch(&self) -> Option<watch::Receiver<u64>> {
        let mut turn = self.status();
        if !turn.is_due {
            if turn
                .started_at
                .is_some_and(|begun| begun.elapsed() < self.timings.fetch_interval_min)
            {
                return None;
            }
            turn.is_due = true;
            self.fetch_requested.notify_one();
        }
        Some(self.fetches_done.subscribe())
    }

    /// Tells everybody that a fetch is over.
    fn mark_done(&self) {
        let mut turn = self.status();
        turn.is_due = false;
        self.fetches_done.send_modify(|count| *count += 1);
    }

    /// Waits for the next fetch. False: there is none.
    fn wait_for_request(&self, time: Duration) -> bool {
        let nothing_to_do = |turn: &mut FetchStatus| !turn.is_due && !turn.is_stopped;
        let (mut turn, _) = self
            .fetch_requested
            .wait_timeout_while(self.status(), time, nothing_to_do)
            .unwrap_or_else(PoisonError::into_inner);
        turn.is_due = true;
        turn.started_at = Some(Instant::now());
        !turn.is_stopped
    }

    fn status(&self) -> MutexGuard<'_, FetchStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fetches until nobody wants keys any more. After a fetch that failed the next one comes soon.
fn run(desk: &FetchSchedule, ring: &KeyCache, fetch: impl Fn() -> Result<Vec<u8>, String>) {
    let mut has_failed = false;
    let mut time = Duration::ZERO;
    while desk.wait_for_request(time) {
        // A thread that is gone would leave the keys as they are for ever, and nobody would know.
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| fetch().and_then(|text| ring.replace_keys(&text))));
        let outcome = outcome.unwrap_or_else(|_| Err("the fetch panicked".to_owned()));
        desk.mark_done();
        match &outcome {
            Ok(keys) if has_failed => tracing::info!(keys, "the keys of the issuer of tokens can be fetched again"),
            Ok(keys) => tracing::debug!(keys, "the keys of the issuer of tokens were fetched"),
            Err(error) if has_failed => {
                tracing::debug!(error, "the keys of the issuer of tokens still cannot be fetched")
            }
            Err(error) => tracing::warn!(error, "the keys of the issuer of tokens cannot be fetched"),
        }
        has_failed = outcome.is_err();
        time = if has_failed {
            desk.timings.fetch_interval_min
        } else {
            desk.timings.refresh_interval
        };
    }
}

/// Whoever can answer in the issuer's stead signs every token. So keys come over TLS, or from this machine, and no
/// redirect is followed to anywhere.
fn agent(url: &str, time: Duration) -> Result<Agent, String> {
    let uri: Uri = url.parse().map_err(|_| "the keys' URL is no URL".to_owned())?;
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
    let mut config = Agent::config_builder()
        .https_only(!is_near)
        .max_redirects(0)
        .http_status_as_error(false)
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
    // What the library calls a limit is one byte more than what may come.
    body.limit(SET_LEN_MAX + 1)
        .read_to_vec()
        .map_err(|error| error.to_string())
}
