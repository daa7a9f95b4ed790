//! Ends the broker of an instance: asks it, then signals the process that holds its life lock.

use std::{
    io,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal};

use super::{
    attach::{StartPolicy, attach},
    error::{AttachError, LocalError},
    greeting,
    hello::{COMMAND, Hello},
    life,
    lock::pause_until,
    paths::LocalPaths,
    peer::peer_of,
};

/// Longest wait for the answer of a broker that is asked to end.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for a process to end that was sent SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// How a broker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// No broker lived.
    WasDead,
    /// It ended when it was asked.
    Asked,
    /// It ended at SIGTERM.
    Terminated,
    /// It ended at SIGKILL.
    Killed,
}

/// Ends a broker: asks it over its socket, sends SIGTERM if it does not answer, and SIGKILL if it lives after `grace`.
/// Removes what it leaves. No process but the holder of the life lock gets a signal.
///
/// # Errors
/// The broker still lives. One line for the user says why.
pub fn stop(paths: &LocalPaths, grace: Duration) -> Result<Stopped, AttachError> {
    let unusable = |error: io::Error| LocalError(format!("{} cannot be used: {error}", paths.life_lock.display()));
    if !life::is_alive(paths).map_err(unusable)? {
        life::remove_remains(paths).map_err(unusable)?;
        return Ok(Stopped::WasDead);
    }
    let deadline = Instant::now() + grace;
    let is_asked = ask(paths, deadline.min(Instant::now() + ANSWER_TIMEOUT));
    let how = if is_asked {
        Stopped::Asked
    } else {
        signal(paths, Signal::TERM)?;
        Stopped::Terminated
    };
    let how = if wait_for_death(paths, deadline).map_err(unusable)? {
        how
    } else {
        signal(paths, Signal::KILL)?;
        if !wait_for_death(paths, Instant::now() + KILL_TIMEOUT).map_err(unusable)? {
            let text = format!("the broker still runs after SIGKILL (log: {})", paths.log.display());
            return Err(LocalError(text).into());
        }
        Stopped::Killed
    };
    life::remove_remains(paths).map_err(unusable)?;
    Ok(how)
}

/// Asks a broker to end. False when it does not answer.
fn ask(paths: &LocalPaths, deadline: Instant) -> bool {
    let hello = Hello::of_this_process(COMMAND);
    match attach(paths, &hello, StartPolicy::NoStart, deadline) {
        Ok(mut attached) => greeting::retire(&mut attached.stream, deadline).is_ok(),
        // The request to end is the same in all versions.
        Err(AttachError::NewerRuns { .. } | AttachError::OlderRuns { .. }) => {
            greeting::connect(&paths.socket, deadline)
                .ok()
                .flatten()
                .is_some_and(|mut stream| greeting::retire(&mut stream, deadline).is_ok())
        }
        Err(_) => false,
    }
}

/// Signals the holder of the life lock. Does nothing when no process holds it.
fn signal(paths: &LocalPaths, signal: Signal) -> Result<(), AttachError> {
    let unknown = || {
        let text = format!(
            "a process holds {}, and its id is not certain; end it yourself (log: {})",
            paths.life_lock.display(),
            paths.log.display()
        );
        AttachError::from(LocalError(text))
    };
    let holder = || life::holder(paths).map_err(|_| unknown());
    let Some(pid) = holder()? else {
        return if life::is_alive(paths).unwrap_or(true) {
            Err(unknown())
        } else {
            Ok(())
        };
    };
    let listener = greeting::connect(&paths.socket, Instant::now() + ANSWER_TIMEOUT)
        .ok()
        .flatten();
    let listener = listener.and_then(|stream| peer_of(&stream).ok().flatten());
    if listener.is_some_and(|peer| peer.pid != pid) {
        return Err(unknown());
    }
    let Some(process) = Pid::from_raw(pid) else {
        return Err(unknown());
    };
    let target = Target::open(process).map_err(|_| unknown())?;
    // The target was opened before this check: its id cannot have passed to another process.
    if holder()? != Some(pid) {
        return Ok(());
    }
    target.send(signal).map_err(|error| {
        AttachError::from(LocalError(format!(
            "the broker (pid {pid}) cannot be signalled: {error}"
        )))
    })
}

/// A handle of a process, which never means a later process with the same id.
#[cfg(target_os = "linux")]
struct Target(rustix::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Target {
    fn open(pid: Pid) -> rustix::io::Result<Self> {
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).map(Self)
    }

    fn send(&self, signal: Signal) -> rustix::io::Result<()> {
        match rustix::process::pidfd_send_signal(&self.0, signal) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            result => result,
        }
    }
}

/// A process by its id.
#[cfg(not(target_os = "linux"))]
struct Target(Pid);

#[cfg(not(target_os = "linux"))]
impl Target {
    fn open(pid: Pid) -> rustix::io::Result<Self> {
        Ok(Self(pid))
    }

    fn send(&self, signal: Signal) -> rustix::io::Result<()> {
        match rustix::process::kill_process(self.0, signal) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            result => result,
        }
    }
}

/// Waits until no process holds the life lock. False at the deadline.
fn wait_for_death(paths: &LocalPaths, deadline: Instant) -> io::Result<bool> {
    while life::is_alive(paths)? {
        if !pause_until(deadline) {
            return Ok(false);
        }
    }
    Ok(true)
}
