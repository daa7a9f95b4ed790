//! `mcp-broker connect`: the time from its start to the first answers, a call through it beside the same call over the
//! socket, the time until it wakes its agent, and what it and its broker cost while nothing happens (Linux).
//!
//! Everything runs in folders of its own with a broker of its own; the options for the address of a broker do not apply.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use test_client::folder::Home;

use super::{
    RunContext, micros_per,
    own_broker::{CLIENT, Program, SocketWay},
    way::Way,
};
use crate::{
    error::{LoadError, Result},
    process::ServerProcess,
    report::{Latencies, Report, float},
};

#[derive(clap::Args)]
pub struct Options {
    /// The binary of the broker
    #[arg(long, default_value = "mcp-broker")]
    binary: PathBuf,
    /// Starts of the front beside a broker that runs
    #[arg(long, default_value_t = 50, value_parser = crate::at_least_one)]
    starts: usize,
    /// Starts of the front that have to start the broker
    #[arg(long, default_value_t = 10, value_parser = crate::at_least_one)]
    broker_starts: usize,
    /// Messages that wake an idle agent
    #[arg(long, default_value_t = 100, value_parser = crate::at_least_one)]
    wakes: usize,
    /// Seconds without traffic
    #[arg(long, default_value = "60", value_parser = crate::some_seconds)]
    idle: Duration,
}

/// Time of one turn of calls on one way. The ways take turns, so that both see the same machine.
const TURN: Duration = Duration::from_millis(500);
/// How long the broker lets a message wait before it wakes an agent.
const GRACE: Duration = Duration::from_millis(300);
/// Messages of one sender: the broker bounds the wakes that it causes in an hour.
const WAKES_OF_SENDER: usize = 25;
/// The longest pause before the rest is measured: the work of a broker that has just started ends within it.
const SETTLING: Duration = Duration::from_secs(60);

/// A user with folders, and so a broker, of its own. Both end with it.
struct User<'a> {
    home: Home,
    binary: &'a Path,
}

impl<'a> User<'a> {
    fn new(binary: &'a Path) -> Result<Self> {
        let home = Home::new()?;
        Ok(Self { home, binary })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.binary);
        command.args(words).env_clear().envs(self.home.environment());
        command
    }

    fn front(&self) -> Result<Front> {
        Self::start(&mut self.command(&["connect"]), CLIENT)
    }

    /// A front of Claude Code, whose inbox is this socket.
    fn front_with_inbox(&self, inbox: &Path) -> Result<Front> {
        let mut command = self.command(&["connect"]);
        command.env("CLAUDECODE", "1").env("CLAUDE_CODE_SESSION_ID", "load");
        command.env("CLAUDE_CODE_MESSAGING_SOCKET", inbox);
        command.env("CLAUDE_CODE_MESSAGING_TOKEN", "load");
        Self::start(&mut command, "claude-code")
    }

    fn start(command: &mut Command, client: &str) -> Result<Front> {
        let begun = Instant::now();
        let program = Program::start(command, client)?;
        Ok(Front {
            program,
            begun,
            to_initialized: begun.elapsed(),
        })
    }

    /// A session on a connection to the socket.
    fn sender(&self, number: usize) -> Result<SocketWay> {
        let stream = UnixStream::connect(self.socket())?;
        let mut sender = Way::new(stream.try_clone()?, stream);
        sender.initialize(CLIENT)?;
        sender.call("register_session", &json!({"name": format!("sender-{number}")}))?;
        Ok(sender)
    }

    fn stop_broker(&self) {
        let _ = self.command(&["local", "stop"]).stdout(Stdio::null()).status();
    }

    fn socket(&self) -> PathBuf {
        self.home.join("run/mcp-broker/broker.sock")
    }

    fn broker_pid(&self) -> Result<u32> {
        let info = fs::read(self.home.join("run/mcp-broker/broker.json"))?;
        let info: Value = serde_json::from_slice(&info).unwrap_or_default();
        let pid = info["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        pid.ok_or_else(|| LoadError::refused("broker.json", info.to_string().as_bytes()))
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        self.stop_broker();
    }
}

/// A running front.
struct Front {
    program: Program,
    begun: Instant,
    /// From the start to the answer of `initialize`.
    to_initialized: Duration,
}

pub fn run(bench: &RunContext, options: &Options) -> Result<Report> {
    let user = User::new(&options.binary)?;
    let mut report = Report::new("front");
    // First: sessions whose front was killed keep timers of the broker going.
    report_rest(&user, options, &mut report)?;
    report_starts(&user, options, &mut report)?;
    report_calls(&user, bench, &mut report)?;
    report_wakes(&user, options, &mut report)?;
    Ok(report)
}

/// One front and its broker while nothing happens.
fn report_rest(user: &User<'_>, options: &Options, report: &mut Report) -> Result<()> {
    let mut front = user.front()?;
    front.program.way.call("heartbeat", &json!({}))?;
    let process = front.program.process()?;
    let broker = ServerProcess::new(Some(user.broker_pid()?))?;
    thread::sleep(SETTLING.min(options.idle));
    let (front_before, broker_before) = (process.wakeups()?, broker.wakeups()?);
    thread::sleep(options.idle);
    for (name, process, before) in [("front", process, front_before), ("broker", broker, broker_before)] {
        let wakeups = process.wakeups()?.saturating_sub(before);
        let wakeups = float(wakeups) / (options.idle.as_secs_f64() / 10.0);
        let mut row = vec![("process", name.into()), ("wakeups_per_10_s", wakeups.into())];
        if let Some(memory) = process.memory()? {
            row.extend([
                ("resident_kib", memory.resident.into()),
                ("anonymous_kib", memory.anonymous.into()),
                ("file_kib", memory.file.into()),
                ("private_kib", memory.private.into()),
                ("proportional_kib", memory.proportional.into()),
            ]);
        }
        report.row(row);
    }
    Ok(())
}

/// The time from the start of a front to its first answers, without a broker and beside one.
fn report_starts(user: &User<'_>, options: &Options, report: &mut Report) -> Result<()> {
    let (mut cold, mut to_new_broker) = (Latencies::default(), Latencies::default());
    for _ in 0..options.broker_starts {
        user.stop_broker();
        let mut front = user.front()?;
        front.program.way.call("heartbeat", &json!({}))?;
        record(&mut cold, front.to_initialized);
        record(&mut to_new_broker, front.begun.elapsed());
    }
    let (mut warm, mut to_running_broker) = (Latencies::default(), Latencies::default());
    for _ in 0..options.starts {
        let mut front = user.front()?;
        front.program.way.call("heartbeat", &json!({}))?;
        record(&mut warm, front.to_initialized);
        record(&mut to_running_broker, front.begun.elapsed());
    }
    report.add("initialize_without_broker_us", &cold);
    report.add("first_call_without_broker_us", &to_new_broker);
    report.add("initialize_us", &warm);
    report.add("first_call_us", &to_running_broker);
    Ok(())
}

/// A call through a front, and the same over the socket, in turn.
fn report_calls(user: &User<'_>, bench: &RunContext, report: &mut Report) -> Result<()> {
    let mut front = user.front()?;
    let stream = UnixStream::connect(user.socket())?;
    let mut socket = Way::new(stream.try_clone()?, stream);
    socket.initialize(CLIENT)?;
    let process = front.program.process()?;
    call_for(&mut front.program.way, bench.warm_up, &mut Latencies::default())?;
    call_for(&mut socket, bench.warm_up, &mut Latencies::default())?;
    let (mut through_front, mut over_socket) = (Latencies::default(), Latencies::default());
    let before = process.cpu()?.unwrap_or_default();
    let begun = Instant::now();
    while begun.elapsed() < 2 * bench.seconds {
        call_for(&mut front.program.way, TURN, &mut through_front)?;
        call_for(&mut socket, TURN, &mut over_socket)?;
    }
    let cpu = process.cpu()?.unwrap_or_default().saturating_sub(before);
    report.add("call_over_socket_us", &over_socket);
    report.add("call_through_front_us", &through_front);
    report.add("ratio_p50", through_front.micros(0.5) / over_socket.micros(0.5));
    report.add("front_cpu_us_per_call", micros_per(cpu, through_front.count()));
    Ok(())
}

/// From the answer to a call that sends a message to an idle agent until the inbox of its client has the wake, less the
/// grace.
fn report_wakes(user: &User<'_>, options: &Options, report: &mut Report) -> Result<()> {
    let path = user.home.join("inbox.sock");
    let inbox = UnixListener::bind(&path)?;
    let mut agent = user.front_with_inbox(&path)?;
    agent.program.way.call(
        "register_session",
        &json!({"name": "idle", "wake": {"min_interval_seconds": 0}}),
    )?;
    let mut sender = user.sender(0)?;
    let protocol = json!({"name": "load", "version": "1.0.0", "schema": {"type": "object"}});
    sender.call("register_protocol", &protocol)?;
    let broker = ServerProcess::new(Some(user.broker_pid()?))?;
    let before = broker.run_time()?;
    let mut after_grace = Latencies::default();
    for number in 0..options.wakes {
        if number % WAKES_OF_SENDER == 0 {
            sender = user.sender(number)?;
        }
        let message = json!({
            "recipient_id": "idle", "protocol_name": "load", "protocol_version": "1.0.0", "payload": {},
        });
        sender.call("send_message", &message)?;
        let begun = Instant::now();
        let (wake, _) = inbox.accept()?;
        let mut lines = BufReader::new(wake).lines();
        // The token comes first.
        lines.nth(1).transpose()?;
        record(&mut after_grace, begun.elapsed().saturating_sub(GRACE));
        agent
            .program
            .way
            .call("receive_messages", &json!({"acknowledge": "immediate"}))?;
    }
    let spent = broker.run_time()?.saturating_sub(before);
    report.add("wake_after_grace_us", &after_grace);
    // With the message that causes it, the call that reads it, and all else that the broker does in the time of the grace.
    report.add("broker_cpu_us_per_wake", micros_per(spent, after_grace.count()));
    Ok(())
}

fn record(latencies: &mut Latencies, time: Duration) {
    latencies.record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

/// Calls a small tool, one call at a time, for a time.
fn call_for<W: Write, R: Read>(way: &mut Way<W, R>, time: Duration, into: &mut Latencies) -> Result<()> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        let begun = Instant::now();
        way.call("heartbeat", &json!({}))?;
        into.record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(())
}
