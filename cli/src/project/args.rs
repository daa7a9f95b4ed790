//! The subcommands and flags of `project`, with their help.

use clap::builder::{PossibleValuesParser, ValueParser};
use clap::{Arg, Command};

use crate::access;
use crate::flags::{DURATION_SECONDS_MAX, duration, id, many, number, switch, text};
use crate::output::EXIT_CODES;
use common::config::{Integer, Rule};

/// The command with its subcommands.
pub fn command() -> Command {
    let commands = [
        create(),
        list(),
        show(),
        update(),
        delete(),
        keys(),
        rotate(),
        grant(),
        revoke(),
        audit(),
    ];
    Command::new("project")
        .about("Administer the projects of a broker: keys, limits, and grants to send to other projects")
        .long_about(ABOUT)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(access::with_broker_of_user(access::flags()))
        .subcommands(commands)
        .after_help(EXIT_CODES)
}

const ABOUT: &str = "\
Administer the projects of a broker: keys, limits, and grants to send to other projects.

The broker must be running. It asks for the admin key, or for a key of the project with the scope
admin. Set MCP_BROKER_API_KEY or use --key-file: other users of this machine see the flags of a process.";

fn create() -> Command {
    subcommand(
        "create",
        "Make a project and print its first keys, which are not shown again",
    )
    .arg(project())
    .arg(text("name", "NAME", "Name for people").required(true))
    .arg(description())
    .arg(tags("Word to find the project by; may be repeated"))
    .args(cross_project_flags().map(|arg| arg.num_args(0..=1).require_equals(true).default_missing_value("true")))
    .args(limits())
}

fn list() -> Command {
    subcommand("list", "List the projects that the key may see")
        .arg(switch("include-inactive", "Also list projects that are not active"))
        .arg(tags("Only projects that have this tag; may be repeated"))
        .arg(
            id_of("after", "ID")
                .long("after")
                .required(false)
                .help("Only projects whose ids come after this one"),
        )
}

fn show() -> Command {
    subcommand(
        "show",
        "Show a project: its limits, what it holds, and where it may send",
    )
    .arg(project())
}

fn update() -> Command {
    subcommand("update", "Change a project; settings without a flag stay unchanged")
        .arg(project())
        .arg(text("name", "NAME", "Name for people"))
        .arg(description())
        .arg(tags(
            "Word to find the project by; may be repeated.\nThese replace all existing words; '' removes them",
        ))
        .args(cross_project_flags())
        .args(limits())
}

fn delete() -> Command {
    subcommand(
        "delete",
        "Delete a project with its sessions, protocols, messages and keys",
    )
    .arg(project())
    .arg(switch(
        "yes",
        "Do not ask for confirmation; required without a terminal",
    ))
}

fn keys() -> Command {
    subcommand("keys", "List the keys of a project, make one, or revoke one")
        .arg(project())
        .arg(switch("create", "Make a key and print it; it is not shown again").conflicts_with("revoke"))
        .arg(text("label", "LABEL", "What the new key is for").requires("create"))
        .arg(scope().requires("create"))
        .arg(text("human", "NAME", "With --scope answer: the person who holds the new key").requires("create"))
        .arg(
            many(
                "role",
                "ROLE",
                "Role of that person, to which questions may be addressed; may be repeated",
            )
            .requires("human"),
        )
        .arg(
            text(
                "tools",
                "SET",
                "The tools that agents with the new key are listed: core, agent or full\n[default: as the broker's setting]",
            )
            .value_parser(PossibleValuesParser::new(["core", "agent", "full"]))
            .hide_possible_values(true)
            .requires("create"),
        )
        .arg(
            duration(
                "expires-in",
                1..=DURATION_SECONDS_MAX,
                "How long the new key is valid, such as 12h or 30d\n[default: no expiry]",
            )
            .requires("create"),
        )
        .arg(text("revoke", "KEY_ID", "Revoke this key: it is invalid from now on").value_parser(id))
}

fn rotate() -> Command {
    let grace = "How long the old keys stay valid, such as 30m or 1h\n[default: 0s, they become invalid at once]";
    subcommand(
        "rotate",
        "Replace the keys of a project with new ones, which are not shown again",
    )
    .arg(project())
    .arg(text(
        "key-id",
        "KEY_ID",
        "Replace this key only\n[default: all keys of the project]",
    ))
    .arg(duration("grace", 0..=DURATION_SECONDS_MAX, grace))
}

fn grant() -> Command {
    subcommand(
        "grant",
        "Let a project send to another; both must have --allow-cross-project",
    )
    .arg(project())
    .arg(target())
    .arg(many(
        "protocol",
        "PROTOCOL",
        "Only messages of this protocol; may be repeated\n[default: all]",
    ))
    .arg(number("rate", 0, "Messages per minute, 0 for no limit\n[default: 0]"))
}

fn revoke() -> Command {
    subcommand("revoke", "Revoke a grant").arg(project()).arg(target())
}

fn audit() -> Command {
    subcommand("audit", "Show administrative actions and refusals, the latest first")
        .arg(project().required(false).help("Only entries of this project"))
        .arg(number("limit", 1, "The most entries to show"))
}

fn subcommand(name: &'static str, about: &'static str) -> Command {
    Command::new(name).about(about).after_help(EXIT_CODES)
}

fn project() -> Arg {
    Arg::new("id")
        .value_name("ID")
        .required(true)
        .value_parser(id)
        .help("Id of the project")
}

fn target() -> Arg {
    id_of("target", "TARGET").help("Id of the project that may be sent to")
}

fn id_of(name: &'static str, value: &'static str) -> Arg {
    Arg::new(name).value_name(value).required(true).value_parser(id)
}

fn description() -> Arg {
    text("description", "TEXT", "What it is for")
}

fn tags(help: &'static str) -> Arg {
    many("tag", "TAG", help)
}

/// Flags that open a project to others.
fn cross_project_flags() -> [Arg; 2] {
    let arg = |name: &'static str, help: &'static str| {
        text(name, "BOOL", help)
            .value_parser(PossibleValuesParser::new(["true", "false"]))
            .hide_possible_values(true)
    };
    [
        arg(
            "allow-cross-project",
            "Whether this project may exchange messages with others, where a grant allows it\n[allowed: true, false]",
        ),
        arg(
            "discoverable",
            "Whether other projects see this one in lists\n[allowed: true, false]",
        ),
    ]
}

fn limits() -> [Arg; 4] {
    [
        limit("max-sessions", "Sessions at once"),
        limit("max-protocols", "Protocols that may be registered"),
        limit("queue-capacity", "Messages that may wait for one session"),
        number("rate-limit", 0, "Requests per minute, 0 for no limit"),
    ]
}

/// A flag with a number, or `default` for the setting of the broker.
fn limit(name: &'static str, meaning: &'static str) -> Arg {
    let help = format!("{meaning}\n[allowed: a number, or default for the broker's setting]");
    Arg::new(name)
        .long(name)
        .value_name("N")
        .help(help)
        .value_parser(ValueParser::new(|text: &str| {
            if text == "default" {
                return Ok(None);
            }
            let rule = Integer(1..=u32::MAX);
            rule.parse(text)
                .map(Some)
                .map_err(|_| format!("default, or {}", rule.allowed()))
        }))
}

fn scope() -> Arg {
    text(
        "scope",
        "SCOPE",
        "What the new key may do: admin, member, answer or observer\n[default: member]",
    )
    .value_parser(PossibleValuesParser::new(["admin", "member", "answer", "observer"]))
    .hide_possible_values(true)
}
