//! Servers in processes of their own, and what `/proc` says about a process.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::wait::eventually;

/// A program of this workspace. Cargo puts it beside the running program, or above the folder of the running test.
pub fn program(name: &str) -> PathBuf {
    let here = env::current_exe().unwrap();
    let folder = here.ancestors().skip(1).find(|folder| !folder.ends_with("deps"));
    let path = folder.unwrap().join(name);
    assert!(
        path.exists(),
        "{} does not exist: run `cargo build --workspace` in this profile",
        path.display()
    );
    path
}

/// The broker, with an empty environment.
pub fn broker_program() -> Command {
    let mut program = Command::new(program("mcp-broker"));
    program.env_clear();
    program
}

/// A process that is killed when dropped.
pub struct Running(pub Child);

impl Running {
    /// Ends the process as the manager of a service does (SIGTERM), and waits until it has ended.
    pub fn terminate(&mut self) {
        kill(self.0.id().cast_signed(), Signal::TERM);
        eventually("the process ends", || self.0.try_wait().unwrap());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that has printed its address. Dropping it kills the process.
pub struct RunningServer {
    pub process: Running,
    pub address: SocketAddr,
    /// What it printed until it served requests.
    pub announced: String,
    log: Arc<Mutex<String>>,
    /// Ends with the output of the process.
    log_reader: JoinHandle<()>,
}

impl RunningServer {
    /// The broker with these flags on a free port.
    pub fn broker(flags: &[&str]) -> Self {
        Self::broker_at_port(0, flags)
    }

    /// The broker with these flags on the port of a broker that has ended.
    pub fn broker_at_port(port: u16, flags: &[&str]) -> Self {
        let port = format!("--port={port}");
        Self::serve(broker_program(), &[&[port.as_str()], flags].concat()).unwrap()
    }

    /// The broker of this program with these flags on a free port.
    pub fn broker_of(program: &Path, flags: &[&str]) -> io::Result<Self> {
        let mut program = Command::new(program);
        program.env_clear();
        Self::serve(program, flags)
    }

    /// The broker, started by a program that runs it with the arguments that it is given. Without `--port` among these
    /// flags it listens on a free one.
    pub fn serve(mut program: Command, flags: &[&str]) -> io::Result<Self> {
        let free = (!flags.iter().any(|flag| flag.starts_with("--port"))).then_some("--port=0");
        program.arg("serve").args(free).args(flags);
        Self::run(program)
    }

    /// A program that serves as the broker does.
    pub fn run(mut program: Command) -> io::Result<Self> {
        program
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut process = Running(program.spawn()?);
        let output = process.0.stderr.take();
        Self::listening(process, output, |line| {
            let (_, rest) = line.split_once("ws://")?;
            rest.split_once("/ws")?.0.parse().ok()
        })
    }

    /// A program whose first line on stdout is its address, or a URL with it.
    pub fn peer(program: &Path, flags: &[&str]) -> io::Result<Self> {
        let mut program = Command::new(program);
        program.args(flags).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Running(program.spawn()?);
        let output = process.0.stdout.take();
        Self::listening(process, output, |line| {
            let address = line.trim().trim_start_matches("http://");
            address.split('/').next()?.parse().ok()
        })
    }

    fn listening(
        process: Running,
        output: Option<impl Read + Send + 'static>,
        address: impl Fn(&str) -> Option<SocketAddr>,
    ) -> io::Result<Self> {
        let mut output = BufReader::new(output.ok_or(io::ErrorKind::BrokenPipe)?);
        let mut announced = String::new();
        let address = loop {
            let start = announced.len();
            if output.read_line(&mut announced)? == 0 {
                let reason = format!("the server ended before it listened: {announced}");
                return Err(io::Error::other(reason));
            }
            if let Some(address) = address(&announced[start..]) {
                break address;
            }
        };
        let log = Arc::new(Mutex::new(announced.clone()));
        // Reads to the end: a full pipe would block the server.
        let log_reader = thread::spawn({
            let log = Arc::clone(&log);
            move || {
                for line in output.split(b'\n').map_while(Result::ok) {
                    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                    log.push_str(&String::from_utf8_lossy(&line));
                    log.push('\n');
                }
            }
        });
        Ok(Self {
            process,
            address,
            announced,
            log,
            log_reader,
        })
    }

    pub fn id(&self) -> u32 {
        self.process.0.id()
    }

    /// What it has printed so far to the stream that has its address.
    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills the process (SIGKILL).
    pub fn kill(&mut self) {
        let _ = self.process.0.kill();
        let _ = self.process.0.wait();
    }

    /// Kills the process. Returns all that it has printed.
    pub fn stop(mut self) -> String {
        self.kill();
        self.wait_for_exit();
        self.log()
    }

    /// Waits until the process has ended and its log is whole.
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        let status = eventually("the process ends", || self.process.0.try_wait().unwrap());
        eventually("its log is read", || self.log_reader.is_finished().then_some(()));
        status
    }
}

/// The living processes that were started with this variable, as `NAME=value`.
pub fn with_variable(variable: &str) -> Vec<i32> {
    let has_it = |pid: &i32| {
        let variables = variables(*pid);
        let mut variables = variables.split(|byte| *byte == 0);
        variables.any(|found| found == variable.as_bytes()) && is_alive(*pid)
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(has_it).collect()
}

/// The variables of a process. For a moment while a process is executed, the kernel shows neither its variables nor its
/// arguments: waits for them.
fn variables(pid: i32) -> Vec<u8> {
    let of = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    eventually("the process is executed", || {
        let variables = of("environ");
        let is_executed = !variables.is_empty() || !of("cmdline").is_empty();
        // Threads of the kernel and zombies have no program.
        let has_program = || fs::read_link(format!("/proc/{pid}/exe")).is_ok();
        (is_executed || !has_program()).then_some(variables)
    })
}

/// Signals a process.
pub fn kill(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
}

/// Whether a process exists and has not ended.
pub fn is_alive(pid: i32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = state.rsplit(") ").next().unwrap_or_default();
    test_kill_process(Pid::from_raw(pid).unwrap()).is_ok() && !state.starts_with('Z') && !state.is_empty()
}

/// Processor time that a process has used so far, in user space and in the kernel, in steps of a clock tick (mostly 10 ms).
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // After the name, which may hold any character: the state and 10 more fields, then the two times.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: Option<u64> = fields.skip(11).take(2).map(|field| field.parse::<u64>().ok()).sum();
    let ticks = ticks.ok_or_else(|| io::Error::other(format!("not the state of a process: {stat}")))?;
    Ok(Duration::from_nanos(ticks * (1_000_000_000 / ticks_per_second())))
}

/// A figure of `/proc/PID/status` in KiB, such as `VmRSS`.
pub fn memory_kib(pid: u32, name: &str) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.ok_or_else(|| io::Error::other(format!("the status has no {name}")))
}

#[cfg(target_os = "linux")]
fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second()
}

#[cfg(not(target_os = "linux"))]
fn ticks_per_second() -> u64 {
    100
}
