//! What is logged, which an operator may change while the process runs.

use std::sync::OnceLock;

use actors::clock;
use actors::locked::Locked;
use tracing_subscriber::{
    EnvFilter, Registry,
    reload::{self, Handle},
};

use crate::config::check_log_filter;

/// The framework and the database of the disk storage log what they do at start and stop; only their warnings are of use
/// to operators.
const LIBRARY_LEVELS: &str = "actix_server=warn,fjall=warn,lsm_tree=warn";
/// Bytes of a filter: each event of a new kind is compared with all of its directives.
pub const FILTER_LEN_MAX: usize = 1024;
/// Longest time for which a filter may be set.
pub const FOR_SECONDS_MAX: u64 = 24 * 3600;

static FILTER: OnceLock<RunningFilter> = OnceLock::new();

struct RunningFilter {
    handle: Handle<EnvFilter, Registry>,
    state: Locked<LogFilterState>,
}

/// What is logged at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilterState {
    /// The filter in force.
    pub filter: String,
    /// The filter of the configuration.
    pub configured: String,
    /// When the configured filter is in force again, in milliseconds since the Unix epoch; `None` if the filter stays.
    pub until_ms: Option<u64>,
    /// How often the filter was changed.
    pub changes: u64,
}

/// Makes the filter of the log.
pub fn install(configured: &str) -> reload::Layer<EnvFilter, Registry> {
    let (layer, handle) = reload::Layer::new(parse(configured));
    let state = LogFilterState {
        filter: configured.to_owned(),
        configured: configured.to_owned(),
        until_ms: None,
        changes: 0,
    };
    let state = Locked::new(state);
    let _ = FILTER.set(RunningFilter { handle, state });
    layer
}

/// The rule of the setting has parsed the same text, so `info` is a fallback without use. Directives of the setting come
/// last and win over the levels of libraries.
fn parse(filter: &str) -> EnvFilter {
    EnvFilter::try_new(format!("{LIBRARY_LEVELS},{filter}")).unwrap_or_else(|_| EnvFilter::new("info"))
}

/// What is logged at present. `None` if the process does not log.
pub fn filter_state() -> Option<LogFilterState> {
    Some(FILTER.get()?.state.lock().clone())
}

/// Changes the filter, for this many milliseconds if `for_ms` is given. Returns the new state.
///
/// # Errors
/// What a filter may be, if this is none.
pub fn change_filter(filter: &str, for_ms: Option<u64>) -> Result<LogFilterState, String> {
    if filter.len() > FILTER_LEN_MAX {
        return Err(format!("at most {FILTER_LEN_MAX} bytes"));
    }
    check_log_filter(filter)?;
    // Directives for spans are compared with the values of each span.
    if filter.contains('[') {
        return Err("levels by module; spans cannot be selected".to_owned());
    }
    let running = FILTER.get().ok_or("this process does not log")?;
    let until_ms = for_ms.map(|for_ms| clock::now().unix_ms.saturating_add(for_ms));
    Ok(running.set(filter.to_owned(), until_ms))
}

/// Returns to the configured filter, unless the filter was changed since `changes`.
pub fn revert_filter(changes: u64) {
    if let Some(running) = FILTER.get() {
        let state = running.state.lock().clone();
        if state.changes == changes {
            running.set(state.configured, None);
        }
    }
}

impl RunningFilter {
    fn set(&self, filter: String, until_ms: Option<u64>) -> LogFilterState {
        let mut state = self.state.lock();
        // It fails only where the subscriber is gone, at the end of the process.
        let _ = self.handle.reload(parse(&filter));
        state.filter = filter;
        state.until_ms = until_ms;
        state.changes += 1;
        state.clone()
    }
}
