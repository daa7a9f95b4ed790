//! The help of the program: its commands in groups, by who uses them.

use std::fmt::Write as _;

use clap::Command;

/// The groups with their commands, in the order of the help.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Agents", &["setup", "connect", "hook", "config", "gateway"]),
    ("People", &["console", "desk", "send", "inbox", "wait"]),
    (
        "Look",
        &[
            "status",
            "top",
            "sessions",
            "messages",
            "dead-letters",
            "protocols",
            "tail",
            "logs",
        ],
    ),
    (
        "Operate",
        &[
            "serve",
            "start",
            "stop",
            "restart",
            "local",
            "project",
            "keygen",
            "context",
            "doctor",
            "healthcheck",
            "completions",
            "man",
        ],
    ),
    ("Develop", &["demo", "dev", "call", "repl"]),
];

/// The program with a help that shows these commands in their groups. Clap has one heading for all commands.
pub fn grouped(program: Command, commands: impl IntoIterator<Item = Command>) -> Command {
    let options = program.clone().help_template("{all-args}").render_help();
    let position = |command: &Command| {
        let mut names = GROUPS.iter().flat_map(|(_, names)| *names);
        names.position(|name| *name == command.get_name()).unwrap_or(usize::MAX)
    };
    // The manual and the documentation have this order too.
    let mut commands: Vec<_> = commands.into_iter().collect();
    commands.sort_by_key(position);
    let styles = program.get_styles().clone();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let program = program
        .subcommands(commands)
        .subcommand_required(true)
        .arg_required_else_help(true);
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let width = names.map(|name| name.len()).max().unwrap_or_default();
    let mut groups = String::new();
    for (heading, names) in GROUPS {
        // Writing to a String cannot fail.
        let _ = writeln!(groups, "{header}{heading}:{header:#}");
        for name in names {
            let about = program.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(
                groups,
                "  {literal}{name}{literal:#}{:1$}  {about}",
                "",
                width - name.len()
            );
        }
        groups.push('\n');
    }
    program.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{}{{after-help}}",
        options.ansi().to_string().trim_end()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shown_command_is_in_one_group() {
        let program = crate::command();
        let shown = program.get_subcommands().filter(|command| !command.is_hide_set());
        let mut shown: Vec<_> = shown.map(Command::get_name).collect();
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(shown, grouped);
    }
}
