//! The broker of the demo with its agents, the narration, and the pace.

use std::{
    fmt::Display,
    io::Write,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::agent::{Agent, Way};
use crate::{access::BrokerAccess, embedded::EmbeddedBroker, mcp_client::CallError, table::escaped};

/// Longest wait for something that the broker does by itself.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Time for which one agent gives a sign of life before the next one does.
const STAY: Duration = Duration::from_millis(5);
/// The pause between two rounds of signs of life.
const ROUND_PAUSE: Duration = Duration::from_millis(50);

/// Why the story does not continue.
#[derive(Debug)]
pub enum Stop {
    /// The process was asked to stop, or its output is not read any longer.
    Ended,
    /// A step failed; one line.
    Failed(String),
}

impl From<CallError> for Stop {
    fn from(error: CallError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A step of the story.
pub type Step<T = ()> = Result<T, Stop>;

/// The broker with its agents.
pub struct Stage<'a> {
    broker: &'a EmbeddedBroker,
    access: BrokerAccess,
    agents: Vec<Agent>,
    started: Instant,
    /// How long the demo is to take.
    pub duration: Duration,
    /// The pause after each step of the story.
    pub pace: Duration,
}

impl<'a> Stage<'a> {
    /// A stage without agents.
    ///
    /// # Errors
    /// The address of the broker cannot be used.
    pub fn new(broker: &'a EmbeddedBroker, duration: Duration) -> Result<Self, String> {
        Ok(Self {
            broker,
            access: broker.access()?,
            agents: Vec::new(),
            started: Instant::now(),
            duration,
            pace: Duration::ZERO,
        })
    }

    /// Adds an agent. An agent of this name that is on the stage is replaced.
    ///
    /// # Errors
    /// `Failed` when the broker refuses it.
    pub fn join(&mut self, name: &'static str, way: Way, capabilities: &Value, role: &str) -> Step {
        let agent = Agent::join(&self.access, name, way, capabilities, role)?;
        self.agents.retain(|known| known.name != name);
        self.agents.push(agent);
        Ok(())
    }

    /// Ends the connection of an agent, as if its program had crashed. Its session stays.
    pub fn crash(&mut self, name: &str) {
        self.agents.retain(|agent| agent.name != name);
    }

    /// Calls a tool as an agent.
    ///
    /// # Errors
    /// `Failed` when the tool refuses.
    pub fn call(&mut self, name: &str, tool: &str, arguments: Value) -> Step<Value> {
        let failed = |error: CallError| Stop::Failed(format!("{name}: {tool}: {error}"));
        self.agent(name)?.call(tool, arguments).map_err(failed)
    }

    /// The address at which people answer.
    pub fn desk(&self) -> String {
        format!("http://{}/desk", self.broker.address)
    }

    /// Lets an agent fall silent, or speak again.
    ///
    /// # Errors
    /// `Failed` when no such agent is on the stage.
    pub fn set_silent(&mut self, name: &str, is_silent: bool) -> Step {
        self.agent(name)?.is_silent = is_silent;
        Ok(())
    }

    fn agent(&mut self, name: &str) -> Step<&mut Agent> {
        let agent = self.agents.iter_mut().find(|agent| agent.name == name);
        agent.ok_or_else(|| Stop::Failed(format!("no agent {name} is on the stage")))
    }

    /// Prints what happens, with the time since the beginning.
    ///
    /// # Errors
    /// `Ended` when the output is closed.
    pub fn say(&self, who: &str, what: impl Display) -> Step {
        let seconds = self.started.elapsed().as_secs();
        let line = format!(
            "{:02}:{:02}  {who:<20}  {}\n",
            seconds / 60,
            seconds % 60,
            escaped(&what.to_string())
        );
        let mut stdout = std::io::stdout().lock();
        stdout
            .write_all(line.as_bytes())
            .and_then(|()| stdout.flush())
            .map_err(|_| Stop::Ended)
    }

    /// Lets a time pass in which all agents that are not silent give signs of life.
    ///
    /// # Errors
    /// `Ended` when the process was asked to stop; `Failed` when a connection ends.
    pub fn pause(&mut self, time: Duration) -> Step {
        let until = Instant::now() + time;
        loop {
            for agent in &mut self.agents {
                agent.stay_for(STAY)?;
            }
            if self.broker.is_interrupted() {
                return Err(Stop::Ended);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(ROUND_PAUSE));
        }
    }

    /// Ends a step of the story: pauses as long as the pace says.
    ///
    /// # Errors
    /// Those of [`Self::pause`].
    pub fn beat(&mut self) -> Step {
        self.pause(self.pace)
    }

    /// The time until the demo is to end.
    pub fn time_left(&self) -> Duration {
        self.duration.saturating_sub(self.started.elapsed())
    }

    /// Waits until the directory lists a session in a state.
    ///
    /// # Errors
    /// `Failed` when that does not happen in time.
    pub fn wait_for_status(&mut self, witness: &str, name: &str, status: &str) -> Step {
        self.wait_for(&format!("{name} is {status}"), |stage| {
            let listed = stage.call(witness, "list_sessions", json!({"status": status, "limit": 100}))?;
            let sessions = listed["sessions"].as_array().into_iter().flatten();
            Ok(sessions
                .into_iter()
                .any(|session| session["name"] == name)
                .then_some(()))
        })
    }

    /// Waits until a dead letter with a reason is listed, and returns the id of its message.
    ///
    /// # Errors
    /// `Failed` when that does not happen in time.
    pub fn wait_for_dead_letter(&mut self, witness: &str, message_id: &str) -> Step<String> {
        self.wait_for("the message is a dead letter", |stage| {
            let listed = stage.call(witness, "list_dead_letters", json!({"limit": 100}))?;
            let mut letters = listed["dead_letters"].as_array().into_iter().flatten();
            let letter = letters.find(|letter| letter["message"]["message_id"] == message_id);
            Ok(letter.and_then(|letter| Some(letter["reason"].as_str()?.to_owned())))
        })
    }

    fn wait_for<T>(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> Step<Option<T>>) -> Step<T> {
        let until = Instant::now() + WAIT_MAX;
        while Instant::now() < until {
            if let Some(found) = look(self)? {
                return Ok(found);
            }
            self.pause(ROUND_PAUSE * 2)?;
        }
        Err(Stop::Failed(format!("waited for {} s: {what}", WAIT_MAX.as_secs())))
    }
}
