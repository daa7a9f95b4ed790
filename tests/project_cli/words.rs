//! Flags, hints and help.

use serde_json::json;

use super::fake_broker::{FakeBroker, KEY, client, run, run_to_end};

#[test]
fn the_flags_of_the_client_may_precede_the_command() {
    let broker = FakeBroker::answering_json(&json!({"projects": []}));
    let url = broker.url();
    let mut command = client(&["--url", &url, "--key", KEY, "--json", "project", "list"]);
    // A flag beats the environment, before and after the command.
    command.env("MCP_BROKER_API_KEY", "acme_k2_0123456789abcdef");
    let served = broker.served;
    let ran = run_to_end(&mut command);
    let asked = served.join().unwrap();
    assert_eq!(ran.expect_stdout(), "{\"projects\":[]}\n");
    assert_eq!(asked.line(), "GET /api/v1/projects");
    assert_eq!(asked.header("x-api-key").unwrap(), KEY);
    // The flag nearer to the command wins.
    let broker = FakeBroker::answering_json(&json!({"projects": []}));
    let url = broker.url();
    let (_, asked) = broker.run_client(&[
        "--url=http://127.0.0.1:1",
        "--key=near",
        "project",
        "list",
        "--url",
        &url,
        "--key",
        KEY,
    ]);
    assert_eq!(asked.header("x-api-key").unwrap(), KEY);
    for command in ["serve", "keygen"] {
        let line = run(&["--url", "http://127.0.0.1:1", command]);
        assert_eq!(
            line.expect_error(2),
            format!("--url is not known before {command}; it belongs to commands that ask a broker, such as project")
        );
    }
}

#[test]
fn the_path_of_the_base_url_is_kept() {
    let broker = FakeBroker::answering_json(&json!({"projects": []}));
    let url = format!("{}/broker/", broker.url());
    let (_, asked) = broker.run_client(&["project", "list", "--url", &url]);
    assert_eq!(asked.line(), "GET /broker/api/v1/projects");
}

#[test]
fn unknown_words_are_refused_with_a_hint() {
    for (words, line) in [
        (
            &["proyect"][..],
            "command \"proyect\" is not known; did you mean project?",
        ),
        (&["project", "lst"], "command \"lst\" is not known; did you mean list?"),
        (
            &["project", "list", "--include-inactiv"],
            "\"--include-inactiv\" is not known here; did you mean --include-inactive?",
        ),
        (
            &["project", "list", "--grace", "1h"],
            "\"--grace\" is not known here; it belongs after the command project rotate",
        ),
        (
            &["--url", "x"],
            "'mcp-broker' requires a subcommand but one was not provided",
        ),
        (
            &["project", "list", "extra"],
            "\"extra\" is not known here; allowed: --",
        ),
        (
            &["keygen", "--jsn"],
            "\"--jsn\" is not known here; did you mean --json after the command ",
        ),
        (&["keygen", "extra"], "\"extra\" is not known here; allowed: nothing"),
        (
            &["project", "keys", "a", "--label", "x"],
            "the following required arguments were not provided: --create",
        ),
        (
            &["project", "create", "a"],
            "the following required arguments were not provided: --name <NAME>",
        ),
        (
            &["project", "show"],
            "the following required arguments were not provided: <ID>",
        ),
        (
            &["project", "keys", "a", "--create", "--revoke", "k"],
            "the argument '--create' cannot be used with ",
        ),
        (
            &["project", "--json"],
            "'mcp-broker project' requires a subcommand but one was not provided",
        ),
    ] {
        let ran = run(words);
        assert!(ran.expect_error(2).starts_with(line), "{ran:?}");
    }
}

#[test]
fn help_is_complete() {
    let help = run(&["--help"]);
    for word in ["serve", "project", "keygen"] {
        assert!(help.expect_stdout().contains(&format!("\n  {word} ")), "{help:?}");
    }
    let project = [
        "create", "list", "show", "update", "delete", "keys", "rotate", "grant", "revoke", "audit",
    ];
    for word in project {
        let help = run(&["project", word, "--help"]);
        for part in [
            "--url <URL>",
            "[env: MCP_BROKER_URL]",
            "--key-file <FILE>",
            "--insecure",
            "--json",
            "Exit codes: ",
        ] {
            assert!(help.expect_stdout().contains(part), "{part}: {help:?}");
        }
        assert!(
            help.stdout
                .contains("[env: MCP_BROKER_API_KEY, else MCP_BROKER_ADMIN_KEY]"),
            "{help:?}"
        );
        assert!(
            help.stdout
                .contains("other users of this machine see the flags of a process"),
            "{help:?}"
        );
    }
    for words in [
        &["project"][..],
        &["keygen"],
        &["project", "create"],
        &["project", "update"],
        &["project", "keys"],
    ] {
        let help = run(&[words, &["--help"]].concat());
        assert!(
            help.expect_stdout().lines().all(|line| line.len() <= 120),
            "{}",
            help.stdout
        );
    }
    assert_eq!(run(&["project"]).code, Some(2));
}

#[test]
fn serve_ignores_the_variables_of_the_client() {
    let mut command = client(&["serve", "--port", "nonsense"]);
    let ran = run_to_end(command.env("MCP_BROKER_URL", "http://x").env("MCP_BROKER_API_KEY", KEY));
    assert!(
        ran.expect_error(2).starts_with("port = \"nonsense\" (--port)"),
        "{ran:?}"
    );
}
