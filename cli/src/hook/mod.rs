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

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command};

use super::{error::CliError, output::print};
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

/// What a hook is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Wait for messages.
    Wait {
        /// Time between two looks whether the client lives.
        parent_check: Duration,
    },
    /// The turn ends.
    Stop,
    /// A session or a turn begins.
    Prompt,
    /// Any event that says what the agent does.
    Activity,
    /// The `notify` program of Codex.
    Notify,
}

/// A hook to run.
#[derive(Debug)]
pub struct Hook {
    task: Task,
    client: HookClient,
    instance: Instance,
    /// The JSON of the client, if it is an argument.
    argument: Option<String>,
}

/// The command with its help.
pub fn command() -> Command {
    let task = |name: &'static str, about: &'static str| {
        Command::new(name).about(about).args(args()).after_help(HOOK_EXIT_CODES)
    };
    let check = Arg::new("parent-check-ms")
        .long("parent-check-ms")
        .value_parser(clap::value_parser!(u64).range(1..))
        .default_value("30000")
        .hide(true);
    let json = Arg::new("json-argument")
        .value_name("JSON")
        .help("What Codex appends to the command; its last argument counts");
    Command::new(NAME)
        .about("Report an agent's messages to it, from the hooks of its client")
        .long_about(ABOUT)
        .subcommand_required(true)
        .subcommand(
            task("wait", "Wait until messages arrive; for an idle agent")
                .long_about(WAIT_ABOUT)
                .arg(check),
        )
        .subcommand(task("stop", "At the end of a turn: continue if messages are waiting"))
        .subcommand(task(
            "prompt",
            "At the start of a session or a turn: report the waiting messages",
        ))
        .subcommand(task(
            "activity",
            "Report whether a turn runs, after the name of the event",
        ))
        .subcommand(task("notify", "Report that a turn has ended: the notify program of Codex").arg(json))
        .after_help(HOOK_EXIT_CODES)
}

fn args() -> [Arg; 2] {
    [
        Arg::new("client")
            .long("client")
            .value_name("CLIENT")
            .default_value("claude")
            .value_parser(PossibleValuesParser::new(client::WORDS))
            .help("The client whose hook this is"),
        Arg::new("instance")
            .long("instance")
            .value_name("NAME")
            .default_value("default")
            .value_parser(Instance::parse)
            .help("The broker of the user that the agents use"),
    ]
}

/// Reads the arguments.
///
/// # Errors
/// [`CliError::Usage`] when the task is missing.
pub fn read(matches: &ArgMatches) -> Result<Hook, CliError> {
    let (name, below) = matches
        .subcommand()
        .ok_or_else(|| CliError::Usage("the task of the hook is missing: see mcp-broker hook --help".to_owned()))?;
    let task = match name {
        "wait" => Task::Wait {
            parent_check: Duration::from_millis(below.get_one("parent-check-ms").copied().unwrap_or(30_000)),
        },
        "stop" => Task::Stop,
        "prompt" => Task::Prompt,
        "activity" => Task::Activity,
        _ => Task::Notify,
    };
    let word = below.get_one::<String>("client").map_or("claude", String::as_str);
    Ok(Hook {
        task,
        client: HookClient::of_word(word).unwrap_or(HookClient::Claude),
        instance: below.get_one::<Instance>("instance").cloned().unwrap_or_default(),
        argument: (task == Task::Notify)
            .then(|| below.get_one::<String>("json-argument").cloned())
            .flatten(),
    })
}

/// Whether a command line is one of a hook: then its errors have the exit code [`FAILED`](common::exit::FAILED).
pub fn is_asked(args: &[std::ffi::OsString]) -> bool {
    args.get(1).is_some_and(|word| word == NAME)
}

impl Hook {
    /// Runs the hook and returns its exit code.
    ///
    /// # Errors
    /// [`CliError::Failed`] when the input is not that of a hook.
    pub fn run(&self) -> Result<ExitCode, CliError> {
        let deadline = Instant::now() + TIMEOUT;
        let source = match &self.argument {
            Some(text) => Source::Argument(text.clone()),
            None => Source::Stdin,
        };
        let event = input::read(&source, self.client, deadline).map_err(CliError::Failed)?;
        let Some(event) = event else {
            return Ok(ExitCode::SUCCESS);
        };
        let said = match self.task {
            Task::Wait { parent_check } => return Ok(wait::run(&self.instance, &event.conversation, parent_check)),
            Task::Stop => self.stop(&event, deadline),
            Task::Prompt => self.prompt(&event, deadline),
            Task::Activity | Task::Notify => {
                self.report(&event, deadline);
                None
            }
        };
        if let Some(said) = said {
            print(&format!("{said}\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    }

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

    fn report(&self, event: &Event, deadline: Instant) {
        let moment = match self.task {
            Task::Notify => event.is_turn_end.then_some(Moment::TurnEnd),
            _ => event.moment,
        };
        if let Some(activity) = moment.and_then(Moment::activity)
            && let Some(mut mailbox) = self.mailbox(event, deadline)
        {
            mailbox.report(activity, deadline);
        }
    }
}
