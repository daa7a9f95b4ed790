//! Raises the limit of open files of the process.

use common::config::Config;

/// Raises the soft limit of open files to what `connections_max` needs: every connection is an open file, and shells
/// often set a limit of 1024. Logs a warning when the hard limit is lower.
pub fn raise_file_limit(config: &Config) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let connections_max = config.connections_max as u64;
    let wanted = config.files_wanted();
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return;
    }
    let raised = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let limit = Rlimit {
        current: Some(raised),
        maximum,
    };
    if setrlimit(Resource::Nofile, limit).is_err() || raised < wanted {
        tracing::warn!(
            connections_max,
            limit = raised,
            "the limit of open files is lower than connections_max"
        );
    }
}
