//! Follows the configuration file: its backends are changed while the broker runs. A file with anything wrong in it changes
//! nothing.

use std::{path::Path, sync::Arc};

use actors::model::BackendsConfig;
use tokio::sync::watch;

use crate::instances::{FilePatterns, Watch};

/// Follows a configuration file, whose backends `read` reads, until the returned value is dropped. `tell` gets what is
/// wrong with the file, or that it is right again.
pub fn follow(
    file: &Path,
    read: impl Fn() -> Result<Arc<BackendsConfig>, String> + 'static,
    backends: Arc<watch::Sender<Arc<BackendsConfig>>>,
    tell: impl Fn(Option<String>) + 'static,
) -> Watch {
    let changed = move || match read() {
        Ok(new) => {
            tell(None);
            let is_new = backends.send_if_modified(|known| {
                let differs = **known != *new;
                *known = new;
                differs
            });
            tracing::info!(changed = is_new, "the configuration file was read again");
        }
        Err(error) => {
            tracing::warn!(%error, "the configuration file is wrong and was ignored");
            tell(Some(error));
        }
    };
    Watch::start(FilePatterns::file(file), changed, |reason| {
        tracing::warn!(
            reason,
            "the configuration file cannot be watched: restart the broker after a change"
        );
    })
}
