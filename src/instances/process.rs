//! The process of a backend: its keeper and its three streams.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    process::Stdio,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use actors::{
    clock::now,
    gateway::{BackendCounters, BackendLog, LinkEnded},
    model::{BackendAddress, BackendConfig, BackendName},
};
use rustix::{
    io::{FdFlags, fcntl_setfd},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal, kill_process_group},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::unix::pipe,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

use super::{keeper, watch::FilePatterns};
use common::{
    config::FilePattern,
    environment::{environment, expand, find_program},
    telemetry::STDERR_TARGET,
};

/// Bytes that a pipe holds: a large result takes fewer wake-ups.
const PIPE_BYTES: usize = 1024 * 1024;
/// Bytes of one line of stderr that are kept.
const STDERR_LINE_MAX: u64 = 16 * 1024;
/// Characters of the last line of stderr that the reason of an error repeats.
const LAST_LINE_CHARS_MAX: usize = 300;
/// The highest number of a signal.
const SIGNAL_MAX: i32 = 64;
/// How long a process may take to end once its streams are closed. The keeper is faster.
const END_TIME_MAX: Duration = Duration::from_secs(10);

/// A running process.
pub struct Process {
    child: Child,
    input: Input,
    output: ChildStdout,
    stderr: AbortOnDropHandle<()>,
    telling: AbortOnDropHandle<()>,
    log: Arc<BackendLog>,
    /// The number of its first line in the log.
    first_line: u64,
    counted: CountedProcess,
}

/// The input of a program. When it is dropped, the keeper ends the program.
pub struct Input {
    pub stdin: ChildStdin,
    /// The end of a pipe that the keeper watches.
    _watch: OwnedFd,
}

/// A process whose streams are used by others.
pub struct RunningProcess {
    child: Child,
    /// The process group of the keeper and its program.
    group: Option<u32>,
    stderr: AbortOnDropHandle<()>,
    _telling: AbortOnDropHandle<()>,
    log: Arc<BackendLog>,
    first_line: u64,
    _counted: CountedProcess,
}

/// Counts a process until it is dropped.
struct CountedProcess(Arc<BackendCounters>);

impl CountedProcess {
    fn new(counters: &Arc<BackendCounters>) -> Self {
        counters.processes.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counters))
    }
}

impl Drop for CountedProcess {
    fn drop(&mut self) {
        self.0.processes.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Process {
    /// Starts the program that a configuration names. `tell` is called with the id of its process.
    ///
    /// # Errors
    /// Why it cannot be started, for the operator.
    pub fn start(
        config: &BackendConfig,
        log: &Arc<BackendLog>,
        counters: &Arc<BackendCounters>,
        tell: impl FnOnce(u32) + 'static,
    ) -> Result<Self, String> {
        let BackendAddress::Command {
            command,
            args,
            env,
            pass_env,
            cwd,
        } = &config.address
        else {
            return Err("a backend with a URL is not a program".to_owned());
        };
        let env = environment(pass_env, env, std::env::vars_os())?;
        let read = |name: &str| std::env::var(name).ok();
        let cwd = cwd.as_deref().map(|cwd| folder(cwd, &read)).transpose()?;
        let program = find_program(command, env.get("PATH").map(String::as_str), cwd.as_deref())?;
        let args: Vec<String> = args
            .iter()
            .map(|argument| expand(argument, &read).map_err(|reason| format!("args: {reason}")))
            .collect::<Result<_, _>>()?;
        let failed = |error: io::Error| format!("its process cannot be started: {error}");
        let (watched, watch) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        // Other processes that start in this moment may inherit it, too: it is a reading end, and keepers close it.
        fcntl_setfd(&watched, FdFlags::empty()).map_err(|error| failed(error.into()))?;
        let mut keeper = keeper::command(&config.limits, watched.as_fd());
        keeper.arg(program).args(args).env_clear().envs(env);
        if let Some(cwd) = cwd {
            keeper.current_dir(cwd);
        }
        let first_line = log.next_number();
        let mut child = Command::from(keeper)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let _ = fcntl_setfd(&watched, FdFlags::CLOEXEC);
        let (Some(input), Some(output), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("its process has no streams".to_owned());
        };
        // The limit of the user may be reached; the pipes then stay small.
        let _ = rustix::pipe::fcntl_setpipe_size(&input, PIPE_BYTES);
        let _ = rustix::pipe::fcntl_setpipe_size(&output, PIPE_BYTES);
        Ok(Self {
            child,
            input: Input {
                stdin: input,
                _watch: watch,
            },
            output,
            telling: AbortOnDropHandle::new(actix_rt::spawn(read_pid(watched, tell))),
            stderr: AbortOnDropHandle::new(actix_rt::spawn(keep_log(config.name.clone(), stderr, Arc::clone(log)))),
            log: Arc::clone(log),
            first_line,
            counted: CountedProcess::new(counters),
        })
    }

    /// Takes its streams out.
    pub fn into_parts(self) -> (RunningProcess, Input, ChildStdout) {
        let running = RunningProcess {
            group: self.child.id(),
            child: self.child,
            stderr: self.stderr,
            _telling: self.telling,
            log: self.log,
            first_line: self.first_line,
            _counted: self.counted,
        };
        (running, self.input, self.output)
    }
}

impl RunningProcess {
    /// Waits for its end.
    pub async fn wait(&mut self) -> io::Result<std::process::ExitStatus> {
        self.child.wait().await
    }

    /// How it ended, as far as that is known after at most this time. Its streams must be closed.
    pub async fn ended_within(&mut self, at_most: Duration) -> LinkEnded {
        let status = match timeout(at_most, self.child.wait()).await {
            Ok(Ok(status)) => {
                // The last lines may still be in the pipe.
                let _ = timeout(Duration::from_millis(100), &mut self.stderr).await;
                status_text(status)
            }
            Ok(Err(error)) => format!("its end is unknown: {error}"),
            Err(_) => "it closed its output".to_owned(),
        };
        LinkEnded {
            status,
            last_line: self.log.last_since(self.first_line).map(|line| shown(&line)),
        }
    }

    /// Waits until the process is gone, and kills what is left of its group.
    pub async fn reap(mut self) {
        let _ = timeout(END_TIME_MAX, self.child.wait()).await;
        // The keeper may hang, or have been killed itself.
        kill_group(self.group);
        let _ = self.child.wait().await;
    }
}

fn kill_group(group: Option<u32>) {
    let group = group.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// A line for the reason of an error: short, and without control characters.
fn shown(line: &str) -> String {
    let plain = line.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(LAST_LINE_CHARS_MAX).collect()
}

/// How a process ended, in words. A keeper reports a signal of its program as a shell does.
fn status_text(status: std::process::ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) if (keeper::SIGNALLED + 1..=keeper::SIGNALLED + SIGNAL_MAX).contains(&code) => {
            format!("killed by signal {}", code - keeper::SIGNALLED)
        }
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("its keeper was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// The working directory, with references and `~` replaced.
fn folder(text: &str, read: &dyn Fn(&str) -> Option<String>) -> Result<PathBuf, String> {
    let path = path(text, read).map_err(|reason| format!("cwd: {reason}"))?;
    if path.is_dir() {
        Ok(path)
    } else {
        Err(format!("cwd: {} is not a folder", path.display()))
    }
}

/// A path, with references and `~` replaced.
fn path(text: &str, read: &dyn Fn(&str) -> Option<String>) -> Result<PathBuf, String> {
    let text = expand(text, read)?;
    match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            let home = read("HOME").ok_or("the broker has no HOME for ~")?;
            Ok(PathBuf::from(format!("{home}{rest}")))
        }
        _ => Ok(PathBuf::from(text)),
    }
}

/// The files from which a program is made, as its configuration names them: relative to its working directory.
///
/// # Errors
/// Why they are not known.
pub fn watched_files(config: &BackendConfig) -> Result<FilePatterns, String> {
    let read = |name: &str| std::env::var(name).ok();
    let cwd = match &config.address {
        BackendAddress::Command { cwd: Some(cwd), .. } => path(cwd, &read)?,
        _ => PathBuf::from("."),
    };
    let patterns = config.watch.iter().map(|text| {
        let pattern = FilePattern::parse(text)?;
        Ok((cwd.join(path(&pattern.base, &read)?), pattern.below))
    });
    let patterns = FilePatterns::new(patterns.collect::<Result<Vec<_>, String>>()?);
    Ok(patterns.with_writes(config.watches_writes))
}

/// Reads the id of the program, which the keeper writes once it has started it.
async fn read_pid(watched: OwnedFd, tell: impl FnOnce(u32)) {
    let Ok(watched) = pipe::Receiver::from_owned_fd(watched) else {
        return;
    };
    let mut line = String::new();
    // The id of a process is short.
    let mut watched = BufReader::new(watched.take(16));
    if watched.read_line(&mut line).await.is_ok()
        && let Ok(pid) = line.trim().parse()
    {
        tell(pid);
    }
}

/// Reads stderr to its end, so that the program never waits for a reader, and keeps the last lines.
async fn keep_log(backend: BackendName, stderr: ChildStderr, log: Arc<BackendLog>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut stderr).take(STDERR_LINE_MAX).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(len) if len > 0) {
            return;
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\r', '\n']);
        tracing::debug!(target: STDERR_TARGET, %backend, "{text}");
        log.push(text, now().unix_ms);
    }
}
