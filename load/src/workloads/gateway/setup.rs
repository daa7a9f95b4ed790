//! The backends of the measurements, the brokers before them, and the calls.

use std::{
    env,
    fmt::Write as _,
    fs,
    net::SocketAddr,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use memchr::memmem;
use serde_json::{Value, json};
use test_client::process::RunningServer;

use super::{Bench, http_way::PlainWay, lanes::Call};
use crate::{
    error::{LoadError, Result},
    messages::modern_meta,
    workloads::{
        own_broker::{CLIENT, OwnBroker, Program},
        way::Exchange,
    },
};

/// The longest time until all backends run.
const PATIENCE: Duration = Duration::from_secs(60);

/// This program as a backend.
fn echo_command() -> Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("echo");
    Ok(command)
}

/// An echo on stdio, without a gateway.
pub fn echo() -> Result<Program> {
    Program::start(&mut echo_command()?, CLIENT)
}

/// An echo over HTTP.
pub fn http_echo() -> Result<RunningServer> {
    let echo = ["echo", "--http", "127.0.0.1:0"];
    Ok(RunningServer::peer(&env::current_exe()?, &echo)?)
}

/// The tables of a configuration file.
#[derive(Default)]
pub struct Backends(String);

impl Backends {
    /// Adds an echo on stdio.
    pub fn echo(mut self, name: &str, tools: usize) -> Result<Self> {
        // A string of JSON is one of TOML.
        let program = json!(env::current_exe()?).to_string();
        // Writing to a string cannot fail.
        _ = writeln!(
            self.0,
            "[backends.{name}]\ncommand = {program}\nargs = [\"echo\", \"--tools\", \"{tools}\"]\ncall_timeout = \"10m\""
        );
        Ok(self)
    }

    /// Adds a server at a URL.
    pub fn at(mut self, name: &str, address: SocketAddr) -> Self {
        _ = writeln!(self.0, "[backends.{name}]\nurl = \"http://{address}/mcp\"");
        self
    }

    /// A gateway for one client before them, on stdin and stdout.
    pub fn behind_run(&self, bench: &Bench<'_>) -> Result<Program> {
        let file = env::temp_dir().join(format!("mb-run-{}.toml", std::process::id()));
        fs::write(&file, &self.0)?;
        let mut command = Command::new(&bench.options.binary);
        command.args(["gateway", "run", "--config"]).arg(&file);
        let program = Program::start(command.env_clear().stderr(Stdio::null()), CLIENT);
        // It was read before the first answer.
        fs::remove_file(&file)?;
        program
    }

    /// A broker before them, once they all run.
    pub fn behind(&self, bench: &Bench<'_>) -> Result<OwnBroker> {
        let broker = OwnBroker::start(&bench.options.binary, &self.0, &[])?;
        let expected = self.0.matches("[backends.").count();
        let until = Instant::now() + PATIENCE;
        let mut page = PlainWay::open(broker.address, "/api/v1/backends")?;
        loop {
            let backends: Value = serde_json::from_slice(page.get()?).unwrap_or_default();
            let all = backends["backends"].as_array().map_or(&[][..], Vec::as_slice);
            if all.iter().filter(|backend| backend["state"] == "ready").count() == expected {
                return Ok(broker);
            }
            if Instant::now() > until {
                return Err(LoadError::refused(
                    "the start of all backends",
                    backends.to_string().as_bytes(),
                ));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A call of a tool, which is sent again and again with other ids.
pub struct Template {
    text: String,
    /// Where the id stands.
    at: usize,
    out: Vec<u8>,
}

impl Template {
    /// A request with these params.
    pub fn new(method: &str, params: &Value) -> Self {
        let before = "{\"jsonrpc\":\"2.0\",\"id\":";
        Self {
            text: format!("{before},\"method\":\"{method}\",\"params\":{params}}}"),
            at: before.len(),
            out: Vec::new(),
        }
    }

    /// A call of a tool with these arguments, of a client of 2026-07-28 if it is modern.
    pub fn call(tool: &str, arguments: &Value, is_modern: bool) -> Self {
        let mut params = json!({"name": tool, "arguments": arguments});
        if is_modern {
            params["_meta"] = modern_meta();
        }
        Self::new("tools/call", &params)
    }

    /// Appends the request with this id.
    pub fn append(&self, id: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.text.as_bytes()[..self.at]);
        out.extend_from_slice(id.to_string().as_bytes());
        out.extend_from_slice(&self.text.as_bytes()[self.at..]);
    }

    /// Sends the request on a way and returns its answer.
    pub fn exchange<'a>(&mut self, id: u64, way: &'a mut dyn Exchange) -> Result<&'a [u8]> {
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        self.append(id, &mut out);
        let answer = way.exchange(id, &out);
        self.out = out;
        answer
    }
}

/// The payload of a call: text of this many bytes.
pub fn payload(len: usize) -> String {
    "abcdefghijklmnopqrstuvwxyz".chars().cycle().take(len).collect()
}

/// Calls of an echo with a payload, whose answer has to hold it.
pub fn echo_calls(mut way: impl Exchange + 'static, tool: &str, len: usize) -> Call<'static> {
    let text = payload(len);
    let mut request = Template::call(tool, &json!({"text": text}), false);
    Box::new(move |id| {
        let answer = request.exchange(id, &mut way)?;
        Ok(memmem::find(answer, text.as_bytes()).is_some())
    })
}
