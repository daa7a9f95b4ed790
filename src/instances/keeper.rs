//! The keeper: a process between the broker and the program of a backend, which sees to it that the program and all its
//! descendants end with the broker.
//!
//! It is the broker's own executable, started as `mcp-broker __keep watch=FD broker=PID [LIMITS] -- PROGRAM ARGS`. It hands
//! its stdin, stdout and stderr to the program and reads nothing. It learns that the broker has gone, even by SIGKILL,
//! because the kernel then closes the writing end of the pipe FD, which the program does not have: of its own stdin it may
//! hold the writing end itself. Linux also sends a signal when the parent has gone. Then the keeper ends the program: end of
//! file, SIGTERM to the process group, SIGKILL.
//!
//! It is the leader of a process group of its own, and adopts the descendants that detach themselves from it. No other
//! process of its user reads its memory or opens its files.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, BorrowedFd},
        unix::{
            net::UnixStream,
            process::{CommandExt, ExitStatusExt},
        },
    },
    process::{Command, ExitCode, ExitStatus, exit},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use actors::model::ProcessLimits;
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{
        Pid, Resource, Rlimit, Signal, WaitOptions, getpgrp, getppid, kill_process, kill_process_group, setrlimit, wait,
    },
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2},
    low_level,
};

/// The hidden command.
pub const COMMAND: &str = "__keep";
/// The name that `ps` and `top` show.
const SHOWN_NAME: &str = "mcp-keeper";
/// How long a program may take to end after the end of its input, and again after SIGTERM.
pub const GRACE: Duration = Duration::from_secs(2);
/// How long descendants that outlive their program may take to end after SIGTERM.
const DESCENDANTS_GRACE: Duration = Duration::from_millis(200);
/// The longest time for the end of what was killed.
const KILL_TIME_MAX: Duration = Duration::from_secs(5);
/// The pause between two looks at the descendants.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// The exit code if the program cannot be run, as of a shell.
const CANNOT_RUN: u8 = 126;
/// A program that was ended by a signal is reported with this added to the number of the signal, as by a shell.
pub const SIGNALLED: i32 = 128;

/// The arguments of a keeper for a program with these limits; the program and its arguments follow. `watched` is the reading
/// end of the pipe whose writing end the broker holds.
fn arguments(limits: &ProcessLimits, watched: BorrowedFd<'_>) -> Vec<OsString> {
    let broker = std::process::id();
    let mut arguments = vec![
        COMMAND.into(),
        format!("watch={}", watched.as_raw_fd()).into(),
        format!("broker={broker}").into(),
    ];
    for (name, limit) in named(limits) {
        if let Some(limit) = limit {
            arguments.push(format!("{name}={limit}").into());
        }
    }
    arguments.push("--".into());
    arguments
}

fn named(limits: &ProcessLimits) -> [(&'static str, Option<u64>); 4] {
    [
        ("memory", limits.memory_bytes),
        ("processes", limits.processes),
        ("open-files", limits.open_files),
        ("cpu-seconds", limits.cpu_seconds),
    ]
}

/// Runs as a keeper if the arguments of the process ask for it. Called before any thread or runtime exists.
pub fn run_if_asked(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != COMMAND {
        return None;
    }
    let limits: Vec<OsString> = arguments.by_ref().take_while(|argument| argument != "--").collect();
    let Some(program) = arguments.next() else {
        return Some(ExitCode::from(CANNOT_RUN));
    };
    Some(keep(program, arguments.collect(), &limits))
}

/// Sets a limit of this process, which the program inherits. Memory counts as the kernel counts data: programs with a
/// garbage collector reserve far more addresses than they use.
fn limit_process(name: &str, limit: Option<u64>) {
    let resource = match name {
        "memory" => Resource::Data,
        "processes" => Resource::Nproc,
        "open-files" => Resource::Nofile,
        "cpu-seconds" => Resource::Cpu,
        _ => return,
    };
    if let Some(limit) = limit {
        let limit = Rlimit {
            current: Some(limit),
            maximum: Some(limit),
        };
        if setrlimit(resource, limit).is_err() {
            eprintln!("mcp-broker: the limit {name} cannot be set");
        }
    }
}

fn keep(program: OsString, arguments: Vec<OsString>, limits: &[OsString]) -> ExitCode {
    // It is started as /proc/self/exe, and would be shown as `exe`. A system without this file shows the name of the program.
    let _ = fs::write("/proc/self/comm", SHOWN_NAME);
    // A signal to the group must reach the program and not end its keeper. A handler, unlike an ignored signal, is not
    // inherited.
    let signalled = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        let _ = signal_hook::flag::register(signal, Arc::clone(&signalled));
    }
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{
            DumpableBehavior, getpid, set_child_subreaper, set_dumpable_behavior, set_parent_process_death_signal,
        };
        let _ = set_child_subreaper(Some(getpid()));
        let _ = rustix::thread::set_no_new_privs(true);
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let _ = set_parent_process_death_signal(Some(Signal::USR2));
    }
    let number = |wanted: &str| {
        let mut named = limits.iter().filter_map(|text| text.to_str()?.split_once('='));
        named.find(|(name, _)| *name == wanted)?.1.parse::<i32>().ok()
    };
    let watched = match Watched::open(number("watch"), number("broker")) {
        Ok(watched) => watched,
        Err(error) => {
            eprintln!("mcp-broker: the keeper cannot watch the broker: {error}");
            return ExitCode::from(CANNOT_RUN);
        }
    };
    let has_ended = Arc::new(AtomicBool::new(false));
    let (tell, child) = mpsc::channel();
    let ended = Arc::clone(&has_ended);
    // Before the limits, which may leave no room for a thread.
    let watching = thread::Builder::new().spawn(move || {
        if let Ok(child) = child.recv() {
            watched.wait_for_end();
            end_program(child, &ended);
        }
    });
    if let Err(error) = watching {
        eprintln!("mcp-broker: the keeper cannot start its thread: {error}");
        return ExitCode::from(CANNOT_RUN);
    }
    for limit in limits {
        if let Some((name, limit)) = limit.to_str().and_then(|text| text.split_once('=')) {
            limit_process(name, limit.parse().ok());
        }
    }
    // Files that the broker has inherited itself are not for the program.
    close_fds::set_fds_cloexec_threadsafe(3, &[]);
    let child = match Command::new(&program).args(arguments).spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("mcp-broker: {} cannot be run: {error}", program.display());
            return ExitCode::from(CANNOT_RUN);
        }
    };
    let Some(child) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return ExitCode::from(CANNOT_RUN);
    };
    give_up_output();
    tell_pid(number("watch"), child);
    let _ = tell.send(child);
    let status = wait_for(child);
    has_ended.store(true, Ordering::SeqCst);
    end_descendants();
    exit(match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, signal) => SIGNALLED + signal.unwrap_or_default(),
    })
}

/// Closes the keeper's own ends of stdout and stderr, so that their readers see the end of the program.
fn give_up_output() {
    if let Ok(null) = fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Waits for the end of the program, and of adopted descendants meanwhile.
fn wait_for(child: Pid) -> ExitStatus {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => return ExitStatus::from_raw(status.as_raw()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return ExitStatus::from_raw(0),
        }
    }
}

/// What shows that the broker has gone.
struct Watched {
    /// The reading end of a pipe whose writing end the broker holds.
    pipe: File,
    /// Gets a byte when the parent may have gone.
    signalled: UnixStream,
    broker: Option<i32>,
}

impl Watched {
    fn open(pipe: Option<i32>, broker: Option<i32>) -> io::Result<Self> {
        let pipe = pipe.ok_or_else(|| io::Error::other("it was not started by a broker"))?;
        let (signalled, signals) = UnixStream::pair()?;
        signalled.set_nonblocking(true)?;
        low_level::pipe::register(SIGUSR2, signals)?;
        Ok(Self {
            pipe: File::open(file_of(pipe))?,
            signalled,
            broker,
        })
    }

    /// Waits until the broker has closed its end of the pipe, or has ended.
    fn wait_for_end(&self) {
        loop {
            // The signal is also sent for the end of the thread that has started the keeper, and by others.
            let parent = getppid().map(|parent| parent.as_raw_nonzero().get());
            if cfg!(target_os = "linux") && self.broker.is_some() && parent != self.broker {
                return;
            }
            let mut polled = [
                PollFd::new(&self.pipe, PollFlags::empty()),
                PollFd::new(&self.signalled, PollFlags::IN),
            ];
            let is_closed = |polled: &[PollFd<'_>]| polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
            match poll(&mut polled, None) {
                Ok(_) if is_closed(&polled) => return,
                Ok(_) => while matches!((&self.signalled).read(&mut [0; 64]), Ok(len) if len > 0) {},
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => thread::sleep(LOOK_INTERVAL),
            }
        }
    }
}

/// The name of an open file of this process.
fn file_of(descriptor: i32) -> String {
    let folder = if cfg!(target_os = "linux") {
        "/proc/self/fd"
    } else {
        "/dev/fd"
    };
    format!("{folder}/{descriptor}")
}

/// Writes the id of the program into the pipe, of which the broker reads the other end. Only Linux lets the keeper do that.
fn tell_pid(pipe: Option<i32>, program: Pid) {
    let open = |pipe| fs::OpenOptions::new().write(true).open(file_of(pipe)).ok();
    if let Some(mut pipe) = pipe.and_then(open) {
        let _ = writeln!(pipe, "{program}");
    }
}

/// Ends the program step by step.
fn end_program(child: Pid, has_ended: &AtomicBool) {
    if wait_until(has_ended, GRACE) {
        return;
    }
    let _ = kill_process_group(getpgrp(), Signal::TERM);
    if wait_until(has_ended, GRACE) {
        return;
    }
    let _ = kill_process(child, Signal::KILL);
}

fn wait_until(has_ended: &AtomicBool, at_most: Duration) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < at_most {
        if has_ended.load(Ordering::SeqCst) {
            return true;
        }
        thread::sleep(LOOK_INTERVAL);
    }
    false
}

/// Ends the descendants that have outlived their program: they became children of the keeper.
fn end_descendants() {
    if children("self").is_empty() {
        return;
    }
    let _ = kill_process_group(getpgrp(), Signal::TERM);
    let begun = Instant::now();
    while begun.elapsed() < KILL_TIME_MAX {
        // Those of other groups and sessions, too.
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        if children("self").is_empty() {
            return;
        }
        if begun.elapsed() >= DESCENDANTS_GRACE {
            kill_descendants();
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Stops all descendants, so that none of them starts another one meanwhile, and kills them then.
fn kill_descendants() {
    let mut stopped = BTreeSet::new();
    loop {
        let mut found = descendants();
        found.retain(|pid| stopped.insert(pid.as_raw_nonzero()));
        if found.is_empty() {
            break;
        }
        for pid in found {
            let _ = kill_process(pid, Signal::STOP);
        }
    }
    for pid in stopped.into_iter().filter_map(|pid| Pid::from_raw(pid.get())) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The children of this process, adopted ones included, and their descendants.
fn descendants() -> Vec<Pid> {
    let mut found = children("self");
    let mut at = 0;
    while let Some(pid) = found.get(at) {
        let further = children(&pid.to_string());
        found.extend(further);
        at += 1;
    }
    found
}

/// The children of a process.
fn children(of: &str) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{of}/task")) else {
        return Vec::new();
    };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|pids| {
            let pids = pids.split_whitespace().map(str::to_owned);
            pids.collect::<Vec<_>>()
        })
        .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect()
}

/// The command that starts the keeper of a program, without its standard streams and its environment. It must inherit
/// `watched`, the reading end of the pipe whose writing end the broker holds.
pub fn command(limits: &ProcessLimits, watched: BorrowedFd<'_>) -> Command {
    // The name leads to this executable even when another version has been installed in its place.
    let own = if cfg!(target_os = "linux") {
        "/proc/self/exe".into()
    } else {
        std::env::current_exe().unwrap_or_else(|_| "mcp-broker".into())
    };
    let mut command = Command::new(own);
    command
        .arg0("mcp-broker")
        .args(arguments(limits, watched))
        .process_group(0);
    command
}
