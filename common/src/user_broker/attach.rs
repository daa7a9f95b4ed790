//! Finds the broker of an instance, or starts it: connect, lock, connect again, start.
//!
//! A process that waited for the lock finds a broker when it gets it. The name of a socket is removed under the lock only, and
//! only while no process holds the life lock.

use std::{fs, io, os::unix::net::UnixStream, path::Path, time::Instant};

use super::{
    error::{AttachError, LocalError},
    greeting::{self, Greeted},
    hello::{AUTHENTICATION_FAILED, Hello, HelloResult},
    lock::{FileLock, LockError, pause_until},
    paths::LocalPaths,
    spawn, version, vetting,
};

/// A connection to a broker that has answered a hello.
#[derive(Debug)]
pub struct Attached {
    pub stream: UnixStream,
    pub hello: HelloResult,
}

/// Whether a client starts a broker where none runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartPolicy {
    Start,
    NoStart,
}

/// Connects to the broker of an instance, which is started if the policy allows it. Waits for a broker that ends, and for
/// the start of another process.
///
/// # Errors
/// Why there is no broker at the deadline.
pub fn attach(
    paths: &LocalPaths,
    hello: &Hello,
    policy: StartPolicy,
    deadline: Instant,
) -> Result<Attached, AttachError> {
    let failed = |error| failed(paths, error);
    loop {
        match greeting::greet(&paths.socket, hello, deadline).map_err(failed)? {
            Greeted::Served(stream, hello) => return Ok(Attached { stream, hello }),
            Greeted::Foreign(uid) => {
                return Err(AttachError::Foreign {
                    socket: paths.socket.clone(),
                    uid,
                });
            }
            Greeted::Absent if policy == StartPolicy::NoStart => {
                return Err(AttachError::NotRunning {
                    socket: paths.socket.clone(),
                    start: paths.instance.command_line("start"),
                });
            }
            Greeted::Absent => start_unless_running(paths, deadline)?,
            Greeted::Refused { code, message } => {
                return Err(match &hello.api_key {
                    _ if code != AUTHENTICATION_FAILED => AttachError::Refused(message),
                    Some(_) => AttachError::KeyRefused(message),
                    None => AttachError::KeyMissing,
                });
            }
            Greeted::Retiring(mut stream) => {
                greeting::wait_for_close(&mut stream, deadline);
            }
            Greeted::OtherProtocol(mut stream, refused) => {
                let (running, own) = (refused.version, hello.version.clone());
                if refused.protocols[0] > hello.protocol || !version::is_newer(&own, &running) {
                    return Err(AttachError::NewerRuns { running, own });
                }
                if policy == StartPolicy::NoStart {
                    let restart = paths.instance.command_line("restart");
                    return Err(AttachError::OlderRuns { running, own, restart });
                }
                greeting::retire(&mut stream, deadline).map_err(failed)?;
                greeting::wait_for_close(&mut stream, deadline);
            }
            Greeted::Lost => {
                if !pause_until(deadline) {
                    return Err(no_answer(paths));
                }
            }
        }
    }
}

fn start_unless_running(paths: &LocalPaths, deadline: Instant) -> Result<(), AttachError> {
    let _start = match FileLock::take(&paths.start_lock, deadline) {
        Ok(lock) => lock,
        Err(LockError::Held) => {
            let what = "another process began to start the broker and did not finish in time; try again";
            return Err(timed_out(paths, what.to_owned()));
        }
        // The folder was removed: by a clean-up of brokers that do not run, or by one of old temporary files.
        Err(LockError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(vetting::make_private(&paths.folder)?);
        }
        Err(LockError::Io(error)) => return Err(unusable(&paths.start_lock, &error)),
    };
    loop {
        if greeting::connect(&paths.socket, deadline)
            .map_err(|error| failed(paths, error))?
            .is_some()
        {
            return Ok(());
        }
        match FileLock::try_take(&paths.life_lock) {
            Ok(_) => break,
            Err(LockError::Held) if pause_until(deadline) => {}
            Err(LockError::Held) => return Err(no_answer(paths)),
            Err(LockError::Io(error)) => return Err(unusable(&paths.life_lock, &error)),
        }
    }
    match fs::remove_file(&paths.socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unusable(&paths.socket, &error)),
        _ => {}
    }
    spawn::start(paths, deadline)
}

fn failed(paths: &LocalPaths, error: io::Error) -> AttachError {
    match error.kind() {
        io::ErrorKind::TimedOut => no_answer(paths),
        _ => AttachError::Io {
            socket: paths.socket.clone(),
            error,
        },
    }
}

/// A process holds the life lock, or listens, and answers nothing.
fn no_answer(paths: &LocalPaths) -> AttachError {
    let stop = paths.instance.command_line("stop");
    timed_out(paths, format!("the broker did not answer in time; {stop} stops it"))
}

fn timed_out(paths: &LocalPaths, what: String) -> AttachError {
    AttachError::TimedOut {
        what,
        log: paths.log.clone(),
    }
}

fn unusable(path: &Path, error: &io::Error) -> AttachError {
    AttachError::Files(LocalError(format!("{} cannot be used: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, time::Duration};

    use super::*;
    use crate::user_broker::Instance;

    #[test]
    fn a_broker_that_lives_without_a_socket_is_named_with_the_command_that_ends_it() {
        let folder = std::env::temp_dir().join(format!("mb-{}", uuid::Uuid::now_v7().simple()));
        let inside = |name: &str| -> PathBuf { folder.join(name) };
        let paths = LocalPaths {
            instance: Instance::default(),
            folder: folder.clone(),
            socket: inside("broker.sock"),
            start_lock: inside("start.lock"),
            life_lock: inside("life.lock"),
            info: inside("broker.json"),
            data: inside("data"),
            log: inside("broker.log"),
            fifo_in: inside("broker.fifo-in"),
            fifo_out: inside("broker.fifo-out"),
        };
        vetting::make_private(&folder).unwrap();
        let life = FileLock::try_take(&paths.life_lock).unwrap();
        let deadline = Instant::now() + Duration::from_millis(100);
        let error = attach(&paths, &Hello::of_this_process("start"), StartPolicy::Start, deadline).unwrap_err();
        assert!(error.to_string().contains("mcp-broker stop stops it"), "{error}");
        drop(life);
        fs::remove_dir_all(&folder).unwrap();
    }
}
