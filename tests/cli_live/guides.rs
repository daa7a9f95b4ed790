//! `completions` and `man`, and the help of every command.

use std::{fs, process::Command};

use super::program::{Run, run};

const COMMANDS: [&str; 11] = [
    "console",
    "top",
    "sessions",
    "protocols",
    "messages",
    "dead-letters",
    "send",
    "inbox",
    "wait",
    "desk",
    "tail",
];

fn print(words: &[&str]) -> String {
    run(std::net::SocketAddr::from(([127, 0, 0, 1], 1)), words).succeeds()
}

#[test]
fn every_shell_has_completions_for_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = print(&["completions", shell]);
        for word in COMMANDS.iter().chain(&["redrive", "idempotency-key"]) {
            assert!(script.contains(word), "{shell} completes no {word}");
        }
    }
    // Bash itself reads its script, and completes with it.
    let script = print(&["completions", "bash"]);
    let asked = "COMP_WORDS=(mcp-broker dead-l); COMP_CWORD=1; _mcp__broker mcp-broker dead-l mcp-broker; echo \"${COMPREPLY[@]}\"";
    // The script is longer than an argument may be.
    let file = std::env::temp_dir().join(format!("mcp-broker-completions-{}", std::process::id()));
    fs::write(&file, format!("{script}\n{asked}")).unwrap();
    let completed = Run::of(Command::new("bash").arg(&file));
    fs::remove_file(&file).unwrap();
    assert_eq!(completed.succeeds(), "dead-letters\n");
    let line = run(std::net::SocketAddr::from(([127, 0, 0, 1], 1)), &["completions", "csh"]).fails_with(2);
    assert!(line.contains("bash") && line.contains("powershell"), "{line}");
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let folder = std::env::temp_dir().join(format!("mcp-broker-man-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    print(&["man", folder.to_str().unwrap()]);
    for command in COMMANDS
        .iter()
        .chain(&["serve", "project-create", "dead-letters-redrive", "completions"])
    {
        let page = fs::read_to_string(folder.join(format!("mcp-broker-{command}.1"))).unwrap();
        assert!(
            page.contains(".SH NAME") && page.contains(".SH OPTIONS"),
            "{command}: {page}"
        );
    }
    let page = fs::read_to_string(folder.join("mcp-broker.1")).unwrap();
    assert!(page.contains("mcp\\-broker\\-top(1)"), "{page}");
    fs::remove_dir_all(&folder).unwrap();
    let line = run(
        std::net::SocketAddr::from(([127, 0, 0, 1], 1)),
        &["man", folder.to_str().unwrap()],
    )
    .fails_with(1);
    assert!(line.contains("cannot be written"), "{line}");
}

#[test]
fn every_command_explains_itself() {
    for command in COMMANDS {
        let help = print(&[command, "--help"]);
        for word in ["Usage:", "--url", "--key-file", "Exit codes:"] {
            assert!(help.contains(word), "{command}: no {word} in {help}");
        }
        let longest = help.lines().map(|line| line.chars().count()).max().unwrap_or_default();
        assert!(longest <= 130, "{command}: a line of the help has {longest} characters");
    }
}
