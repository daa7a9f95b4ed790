//! Starts a broker in the background and waits for its readiness line.

use std::{
    ffi::OsStr,
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Instant,
};

use actors::faults;
use actors::locked::Locked;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{
    build::executable,
    error::{AttachError, LocalError},
    lock::pause_until,
    paths::LocalPaths,
    ready::Readiness,
};
use crate::config::{CLIENT_ENVS, ENV_PREFIX};

/// The first descriptor after stdin, stdout and stderr.
const FIRST_INHERITED: i32 = 3;
/// The longest readiness line, in bytes.
const LINE_LEN_MAX: usize = 16 << 10;

/// The variables that a broker inherits, besides its own settings. It outlives the session that started it, and must not
/// keep the keys and tokens of that session.
const INHERITED: [&str; 6] = ["HOME", "LANG", "PATH", "TMPDIR", "TZ", "USER"];
const INHERITED_PREFIXES: [&str; 2] = ["LC_", "XDG_"];

/// The brokers that this process has started. The next start collects the exit codes of those that have ended.
static STARTED: Locked<Vec<Child>> = Locked::new(Vec::new());

/// Starts the broker of an instance and waits until it serves. The caller holds the start lock.
///
/// # Errors
/// The line of the broker that says why it does not serve, or the deadline.
pub fn start(paths: &LocalPaths, deadline: Instant) -> Result<(), AttachError> {
    let failed = |error: String| AttachError::StartFailed {
        error,
        log: paths.log.clone(),
    };
    let log = open_log(&paths.log)?;
    let program = executable().map_err(|error| failed(format!("the name of this program is unknown: {error}")))?;
    let mut command = Command::new(&program);
    command
        .args(["local", "serve", "--instance", paths.instance.as_str()])
        .current_dir("/")
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| is_inherited(name)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log);
    // The broker must not inherit the locks and pipes of the session that starts it: it would hold them as long as it lives.
    close_fds::set_fds_cloexec_threadsafe(FIRST_INHERITED, &[]);
    let child = command.spawn();
    let mut child = child.map_err(|error| failed(format!("{} cannot be run: {error}", program.display())))?;
    let stdout = child.stdout.take();
    let line = stdout.map_or_else(|| Ok(String::new()), |stdout| read_line(stdout, deadline));
    if !matches!(
        line.as_deref().map(serde_json::from_str),
        Ok(Ok(Readiness::Ready { .. }))
    ) {
        // The broker ends by itself. The caller reports the failure once the process and its files are gone.
        while matches!(child.try_wait(), Ok(None)) && pause_until(deadline) {}
    }
    keep_until_its_end(child);
    let line = line.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => AttachError::TimedOut {
            what: "the broker was started and did not become ready in time".to_owned(),
            log: paths.log.clone(),
        },
        _ => failed(format!("its readiness cannot be read: {error}")),
    })?;
    match serde_json::from_str(&line) {
        Ok(Readiness::Ready { .. }) => Ok(()),
        Ok(Readiness::Failed { error }) => Err(failed(error)),
        Err(_) => Err(failed("it exited before it was ready".to_owned())),
    }
}

/// Keeps a child, whose exit code is collected later, and collects those of children that have ended.
fn keep_until_its_end(child: Child) {
    let mut started = STARTED.lock();
    started.push(child);
    started.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

/// Opens the log for appending, and makes its folder.
fn open_log(path: &Path) -> Result<File, LocalError> {
    let folder = path.parent().unwrap_or(path);
    let opened = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let opened = opened.and_then(|()| OpenOptions::new().create(true).append(true).mode(0o600).open(path));
    opened.map_err(|error| LocalError(format!("the log {} cannot be written: {error}", path.display())))
}

fn is_inherited(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    if CLIENT_ENVS.contains(&name) {
        return false;
    }
    let prefixes = INHERITED_PREFIXES.iter().chain([&ENV_PREFIX]);
    INHERITED.contains(&name)
        || prefixes.into_iter().any(|prefix| name.starts_with(prefix))
        || faults::is_inherited(name)
}

/// Reads a line, or its beginning if the writer closes the pipe before the end of the line.
fn read_line(mut from: ChildStdout, deadline: Instant) -> io::Result<String> {
    let mut line = Vec::new();
    let mut part = [0; 1024];
    while !line.ends_with(b"\n") && line.len() < LINE_LEN_MAX {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match from.read(&mut part)? {
            0 => break,
            len => line.extend_from_slice(&part[..len]),
        }
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_inherits_no_secret_of_the_session_that_starts_it() {
        for name in ["HOME", "PATH", "LC_ALL", "XDG_STATE_HOME", "MCP_BROKER_STORAGE", "TZ"] {
            assert!(is_inherited(name.as_ref()), "{name}");
        }
        for name in [
            "CLAUDE_CODE_MESSAGING_TOKEN",
            "ANTHROPIC_API_KEY",
            "MCP_BROKER_API_KEY",
            "MCP_BROKER_URL",
            "MCP_BROKER_NAME",
            "MCP_BROKER_WAKE",
            "MCP_BROKER_CODEX",
            "MCP_BROKER_CONTEXT",
            "AWS_SECRET_ACCESS_KEY",
            "LD_PRELOAD",
            "HOMEBREW_GITHUB_API_TOKEN",
        ] {
            assert!(!is_inherited(name.as_ref()), "{name}");
        }
    }
}
