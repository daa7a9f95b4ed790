//! Follows the configuration file: its backends are changed while the broker runs. A file with anything wrong in it changes
//! nothing.

use std::{path::Path, sync::Arc};

use actors::model::BackendsConfig;
use tokio::sync::watch;

use crate::{
    config::Sources,
    gateway::{FilePatterns, Watch},
};

/// Follows a configuration file until the returned value is dropped. `tell` is told what is wrong with it, or that it is
/// right again.
pub fn follow(
    file: &Path,
    sources: Sources,
    backends: Arc<watch::Sender<Arc<BackendsConfig>>>,
    tell: impl Fn(Option<String>) + 'static,
) -> Watch {
    let read = move || match sources.load() {
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
    };
    Watch::start(FilePatterns::file(file), read, |reason| {
        tracing::warn!(
            reason,
            "the configuration file cannot be followed: its changes need a new start"
        );
    })
}
