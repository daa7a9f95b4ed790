//! `mcp-broker hook`: what the hooks of an MCP client run, so that an agent reads its mail.
//!
//! A hook must not disturb the client. Without a broker, or with one that does not answer in time, it says nothing and
//! succeeds. It never ends with [`USAGE`](common::exit::USAGE) because of its command line or its input: clients take that code as a
//! refusal of the turn. It starts no broker.

mod answer;
mod client;
mod files;
mod input;
mod last_request;
mod mailbox;
mod wait;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::{Args, Subcommand, value_parser};

use super::{
    call::{Call, Run},
    error::CliError,
    output::print,
};
use answer::Moment;
pub use client::HookClient;
use common::user_broker::{Instance, LocalPaths, mail::ReportedActivity};
use input::{Event, Source};
use last_request::LastRequest;
use mailbox::{Mailbox, TIMEOUT};

/// The name of the command.
pub const NAME: &str = "hook";

/// The exit codes of hooks.
const HOOK_EXIT_CODES: &str = "\
Exit codes: 0 done, or nothing to report; 1 wrong command line or input; 2 (only wait) stderr has a line about waiting messages.";

const ABOUT: &str = "\
Report an agent's messages to it, from the hooks of its client. mcp-broker setup CLIENT --hooks installs them.

A hook reads the JSON of the client from stdin, finds the session of the conversation at the broker of the user, and
prints a line for the agent: how many messages are waiting and from whom, never their content. Without a broker
it prints nothing.";

const WAIT_ABOUT: &str = "\
Wait in the background until messages arrive, and then exit with code 2 and one line on stderr.

For a hook of Claude Code with asyncRewake: it begins a turn in an idle conversation. A second one of the same
conversation exits at once, and each exits with its client.";

/// Report an agent's messages to it, from the hooks of its client.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = HOOK_EXIT_CODES, arg_required_else_help = false)]
pub struct Hook {
    #[command(subcommand)]
    task: Task,
}

/// What a hook is for.
#[derive(Debug, Subcommand)]
enum Task {
    /// Wait until messages arrive; for an idle agent.
    #[command(long_about = WAIT_ABOUT, after_help = HOOK_EXIT_CODES)]
    Wait {
        #[command(flatten)]
        of: Agent,
        // Time between two looks whether the client lives.
        #[arg(long, default_value = "30000", hide = true, value_parser = value_parser!(u64).range(1..))]
        parent_check_ms: u64,
    },
    /// At the end of a turn: continue if messages are waiting.
    #[command(after_help = HOOK_EXIT_CODES)]
    Stop(Agent),
    /// At the start of a session or a turn: report the waiting messages.
    #[command(after_help = HOOK_EXIT_CODES)]
    Prompt(Agent),
    /// Report whether a turn runs, after the name of the event.
    #[command(after_help = HOOK_EXIT_CODES)]
    Activity(Agent),
    /// Report that a turn has ended: the notify program of Codex.
    #[command(after_help = HOOK_EXIT_CODES)]
    Notify {
        #[command(flatten)]
        of: Agent,
        /// What Codex appends to the command; its last argument counts.
        #[arg(id = "json-argument", value_name = "JSON")]
        argument: Option<String>,
    },
}

// Whose hook it is. A doc comment would be the help of the task.
#[derive(Debug, Args)]
struct Agent {
    /// The client whose hook this is.
    #[arg(long, value_name = "CLIENT", default_value = "claude")]
    client: HookClient,
    /// The broker of the user that the agents use.
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = Instance::parse)]
    instance: Instance,
}

/// Whether a command line is one of a hook: then its errors have the exit code [`FAILED`](common::exit::FAILED).
pub fn is_asked(args: &[std::ffi::OsString]) -> bool {
    args.get(1).is_some_and(|word| word == NAME)
}

impl Run for Hook {
    fn run(self, _: &Call<'_>) -> Result<ExitCode, CliError> {
        let deadline = Instant::now() + TIMEOUT;
        let (agent, source) = match &self.task {
            Task::Wait { of, .. } | Task::Stop(of) | Task::Prompt(of) | Task::Activity(of) => (of, Source::Stdin),
            Task::Notify { of, argument } => (of, argument.clone().map_or(Source::Stdin, Source::Argument)),
        };
        let event = input::read(&source, agent.client, deadline).map_err(CliError::Failed)?;
        let Some(event) = event else {
            return Ok(ExitCode::SUCCESS);
        };
        let said = match self.task {
            Task::Wait { of, parent_check_ms } => {
                let parent_check = Duration::from_millis(parent_check_ms);
                return Ok(wait::run(&of.instance, &event.conversation, parent_check));
            }
            Task::Stop(of) => of.stop(&event, deadline),
            Task::Prompt(of) => of.prompt(&event, deadline),
            Task::Activity(of) => {
                of.report(&event, event.moment, deadline);
                None
            }
            Task::Notify { of, .. } => {
                of.report(&event, event.is_turn_end.then_some(Moment::TurnEnd), deadline);
                None
            }
        };
        if let Some(said) = said {
            print(&format!("{said}\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Agent {
    fn mailbox(&self, event: &Event, deadline: Instant) -> Option<Mailbox> {
        let paths = LocalPaths::look_up(&self.instance).ok()?;
        Mailbox::open(&paths, &event.conversation, deadline)
    }

    /// The turn ends. The agent is idle before its mail is looked at: a message that comes after the look finds an idle
    /// agent, which the broker wakes.
    fn stop(&self, event: &Event, deadline: Instant) -> Option<serde_json::Value> {
        let mut mailbox = self.mailbox(event, deadline)?;
        mailbox.report(ReportedActivity::Idle, deadline)?;
        if event.has_continued || event.is_interrupted {
            return None;
        }
        let mail = mailbox.unread(deadline)?;
        let last_request = self
            .client
            .lacks_guard()
            .then(|| LastRequest::of(&self.instance, &event.conversation))
            .flatten();
        if last_request
            .as_ref()
            .is_some_and(|last_request| !last_request.is_news(&mail.summary))
        {
            return None;
        }
        let said = answer::go_on(self.client, &mail.summary)?;
        // An agent that is not held back by a guard is asked once about the same messages.
        if let Some(last_request) = last_request
            && !last_request.note()
        {
            return None;
        }
        mailbox.report(ReportedActivity::Busy, deadline);
        Some(said)
    }

    fn prompt(&self, event: &Event, deadline: Instant) -> Option<serde_json::Value> {
        let mut mailbox = self.mailbox(event, deadline)?;
        let moment = event.moment.unwrap_or(Moment::TurnStart);
        if let Some(activity) = moment.activity() {
            mailbox.report(activity, deadline)?;
        }
        let mail = mailbox.unread(deadline)?;
        answer::context(self.client, moment, &event.conversation, &mail)
    }

    /// Reports what the agent does from a moment on.
    fn report(&self, event: &Event, moment: Option<Moment>, deadline: Instant) {
        if let Some(activity) = moment.and_then(Moment::activity)
            && let Some(mut mailbox) = self.mailbox(event, deadline)
        {
            mailbox.report(activity, deadline);
        }
    }
}
