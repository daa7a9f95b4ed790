//! Follows the configuration file: its backends are changed while the broker runs. A file with anything wrong in it changes
//! nothing.

use std::{path::PathBuf, sync::Arc, time::Duration};

use actix_rt::task::JoinHandle;
use actors::model::BackendsConfig;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout},
};

use crate::config::Sources;

/// How long the file must have been left alone before it is read: editors write in several steps.
const QUIET: Duration = Duration::from_millis(200);
/// The longest time from the first change until it is read.
const QUIET_MAX: Duration = Duration::from_millis(1_600);

/// Follows the file until it is dropped.
pub struct Following {
    _watcher: RecommendedWatcher,
    task: JoinHandle<()>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Follows a configuration file. `tell` is told what is wrong with it, or that it is right again. `None`, with a warning, if
/// its folder cannot be watched.
pub fn follow(
    file: PathBuf,
    sources: Sources,
    backends: Arc<watch::Sender<Arc<BackendsConfig>>>,
    tell: impl Fn(Option<String>) + 'static,
) -> Option<Following> {
    let changed = Arc::new(Notify::new());
    let notified = Arc::clone(&changed);
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // A lost event may have been a change. Reading the file is none.
        if event.map_or(true, |event| !event.kind.is_access()) {
            notified.notify_one();
        }
    });
    // Editors replace the file, so its folder is watched.
    let file = file.canonicalize().unwrap_or(file);
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.map_or_else(|| PathBuf::from("."), PathBuf::from);
    let watching = watcher.and_then(|mut watcher| {
        watcher.watch(&folder, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    match watching {
        Ok(watcher) => {
            let task = actix_rt::spawn(async move { run(&file, &sources, &backends, &changed, tell).await });
            Some(Following {
                _watcher: watcher,
                task,
            })
        }
        Err(error) => {
            tracing::warn!(%error, "the configuration file cannot be followed: its changes need a new start");
            None
        }
    }
}

async fn run(
    file: &std::path::Path,
    sources: &Sources,
    backends: &watch::Sender<Arc<BackendsConfig>>,
    changed: &Notify,
    tell: impl Fn(Option<String>),
) {
    let mut before = std::fs::read(file).ok();
    loop {
        changed.notified().await;
        let begun = Instant::now();
        while begun.elapsed() < QUIET_MAX && timeout(QUIET, changed.notified()).await.is_ok() {}
        let now = std::fs::read(file).ok();
        if now == before {
            continue;
        }
        before = now;
        match sources.load() {
            Ok((config, _)) => {
                tell(None);
                let is_new = backends.send_if_modified(|known| {
                    let differs = **known != *config.backends;
                    *known = Arc::clone(&config.backends);
                    differs
                });
                tracing::info!(changed = is_new, "the configuration file was read again");
            }
            Err(error) => {
                tracing::warn!(%error, "the configuration file is wrong and changes nothing");
                tell(Some(error.to_string()));
            }
        }
    }
}
