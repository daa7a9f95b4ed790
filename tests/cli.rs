//! The command line of the binary: what it prints and its exit codes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use common::config::SETTINGS;
use test_client::process::{Running, RunningServer};

/// The binary with an empty environment.
fn broker(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-broker"));
    command.env_clear().args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    broker(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The single line on stderr of a start that was refused with exit code 2.
fn startup_error(mut command: Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(output.stdout.is_empty(), "{}", stdout(&output));
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("error: ") && stderr.ends_with('\n'), "{stderr}");
    stderr.trim_end().to_owned()
}

/// Starts the broker and returns the address that it prints.
fn listening_address(command: Command) -> String {
    RunningServer::run(command).unwrap().address.to_string()
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn serve_starts_without_any_configuration() {
    assert!(listening_address(broker(&["serve", "--port", "0"])).starts_with("127.0.0.1:"));
}

/// The output on stderr and the exit code of a start that fails.
fn run_failing(args: &[&str]) -> (String, Option<i32>) {
    let output = run(args);
    (String::from_utf8(output.stderr).unwrap(), output.status.code())
}

/// So few connections that the limit of open files causes no warning.
const FEW_CONNECTIONS: &str = "--connections-max=100";

#[test]
fn a_port_in_use_is_one_plain_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (said, code) = run_failing(&[
        "serve",
        &format!("--port={port}"),
        "--log-format=pretty",
        FEW_CONNECTIONS,
    ]);
    let expected =
        format!("error: cannot listen on 127.0.0.1:{port}: another program listens there; choose another --port\n");
    assert_eq!((said.as_str(), code), (expected.as_str(), Some(1)));
}

#[test]
fn with_log_format_json_every_line_of_stderr_is_json() {
    let is_json = |said: &str| {
        assert!(!said.is_empty());
        for line in said.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
            assert!(line["message"].is_string() && line["level"].is_string(), "{line}");
        }
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("--port={}", taken.local_addr().unwrap().port());
    for args in [
        &["serve", &port, "--log-format=json"][..],
        &["serve", "--log-format=json", "--queue-capacity=none"],
        &["serve", "--log-format", "json", "--surprise"],
        &[
            "serve",
            "--log-format=json",
            "--storage=redis",
            "--redis-url=redis://127.0.0.1:1",
            "--port=0",
        ],
    ] {
        let (said, code) = run_failing(args);
        assert_ne!(code, Some(0), "{args:?}");
        is_json(&said);
    }
    let mut command = broker(&["serve", "--queue-capacity=none"]);
    command.env("MCP_BROKER_LOG_FORMAT", "json");
    is_json(&String::from_utf8(command.output().unwrap().stderr).unwrap());
    // A broker that runs and then gets SIGTERM.
    let mut command = broker(&["serve", "--port=0", "--log-format=json", "--log-level=debug"]);
    let mut running = Running(command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    let mut stderr = BufReader::new(running.0.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("is listening") {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
    }
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&running.0),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    Read::read_to_string(&mut stderr, &mut said).unwrap();
    is_json(&said);
}

#[test]
fn a_start_logs_where_it_listens_and_no_line_of_the_frameworks() {
    let mut command = broker(&["serve", "--port=0", "--log-format=pretty", FEW_CONNECTIONS]);
    let mut running = Running(command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    let mut stderr = BufReader::new(running.0.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    assert!(
        said.starts_with("mcp-broker ") && said.contains(" is listening: http://127.0.0.1:"),
        "{said}"
    );
    // What a person opens in a browser comes next.
    let mut pages = String::new();
    stderr.read_line(&mut pages).unwrap();
    let address = said.split_once("http://").unwrap().1.split_once("/mcp").unwrap().0;
    for page in ["dashboard", "desk"] {
        assert!(pages.contains(&format!("http://{address}/{page}")), "{pages}");
    }
    // The lines of the framework appear when the log level asks for them.
    drop(running);
    let mut command = broker(&[
        "serve",
        "--port=0",
        "--log-format=pretty",
        "--log-level=info,actix_server=info",
        FEW_CONNECTIONS,
    ]);
    let mut running = Running(command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    let mut stderr = BufReader::new(running.0.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    assert!(said.contains("actix_server"), "{said}");
}

#[test]
fn a_switch_is_given_alone_or_with_a_value() {
    for consent in [
        &["--allow-anonymous"][..],
        &["--allow-anonymous", "true"],
        &["--allow-anonymous=true"],
    ] {
        let mut command = broker(&["serve", "--port=0", "--host=0.0.0.0"]);
        command.args(consent);
        listening_address(command);
    }
    let line = startup_error(broker(&["serve", "--host=0.0.0.0", "--allow-anonymous=false"]));
    assert!(
        line.contains("host = \"0.0.0.0\" (--host) is not allowed; allowed: a loopback address"),
        "{line}"
    );
}

#[test]
fn the_warning_about_a_public_address_has_the_configured_log_format() {
    let first_line = |format: &str| {
        let mut command = broker(&[
            "serve",
            "--port=0",
            "--host=0.0.0.0",
            "--allow-anonymous",
            "--log-format",
            format,
        ]);
        let mut running = Running(command.stderr(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(running.0.stderr.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(
            line.contains("WARN") && line.contains("authentication is off"),
            "{line}"
        );
        line
    };
    assert!(first_line("auto").starts_with('{'), "stderr is no terminal here");
    assert!(first_line("json").starts_with('{'));
    assert!(!first_line("pretty").starts_with('{'));
}

#[test]
fn a_list_takes_commas_and_repeated_flags() {
    let flags = ["serve", "--cors-origins", "http://a,http://b", "--cors-origins", "oops"];
    let line = startup_error(broker(&flags));
    assert!(
        line.contains("cors_origins = \"http://a,http://b,oops\" (--cors-origins)"),
        "{line}"
    );
}

#[test]
fn flag_beats_environment_beats_file() {
    let path = file("layers.toml", "port = 70001\nqueue_capacity = 0");
    let path = path.to_str().unwrap();
    let line = startup_error(broker(&["serve", "--config", path]));
    assert!(
        line.contains("port = \"70001\"") && line.contains("layers.toml"),
        "{line}"
    );

    let with_env = |flags: &[&str]| {
        let mut command = broker(&["serve"]);
        command
            .args(flags)
            .env("MCP_BROKER_CONFIG", path)
            .env("MCP_BROKER_PORT", "70002");
        command
    };
    let line = startup_error(with_env(&[]));
    assert!(line.contains("port = \"70002\" (MCP_BROKER_PORT)"), "{line}");
    let line = startup_error(with_env(&["--port", "70003"]));
    assert!(line.contains("port = \"70003\" (--port)"), "{line}");
    let line = startup_error(with_env(&["--port", "0"]));
    assert!(line.contains("queue_capacity = \"0\""), "{line}");
    listening_address(with_env(&["--port", "0", "--queue-capacity", "10"]));
}

#[test]
fn files_in_toml_and_yaml_are_read() {
    for (name, text) in [
        ("good.toml", "port = 0\nstale_threshold = \"20s\""),
        ("good.yaml", "port: 0\nhost: '::1'"),
    ] {
        let path = file(name, text);
        let told = listening_address(broker(&["serve", "--config", path.to_str().unwrap()]));
        assert_eq!(told.starts_with("[::1]:"), name == "good.yaml", "{told}");
    }
}

#[test]
fn unknown_names_are_refused_in_flags_environment_and_file() {
    let line = startup_error(broker(&["serve", "--queue-capacty", "5"]));
    assert!(
        line.ends_with("\"--queue-capacty\" is not known here; did you mean --queue-capacity?"),
        "{line}"
    );

    let mut command = broker(&["serve"]);
    command.env("MCP_BROKER_PROT", "5");
    let line = startup_error(command);
    assert!(
        line.contains("MCP_BROKER_PROT") && line.contains("did you mean MCP_BROKER_PORT?"),
        "{line}"
    );

    let path = file("unknown.yaml", "prot: 5");
    let line = startup_error(broker(&["serve", "--config", path.to_str().unwrap()]));
    assert!(
        line.contains("prot = \"5\"") && line.contains("did you mean port?"),
        "{line}"
    );
}

#[test]
fn mistakes_on_the_command_line_are_reported_in_one_line() {
    for args in [
        &["serv"][..],
        &["serve", "extra"],
        &["serve", "--port"],
        &["serve", "--port", "--host"],
        &["serve", "--port", "1", "--port", "2"],
        &["serve", "--port", "-1"],
        &["serve", "-p", "1"],
        &["serve", "--config", "/nowhere/broker.toml"],
        &["--port", "1"],
        &["serve", "--storage", "postgres"],
        &["serve", "--enable-auth"],
    ] {
        startup_error(broker(args));
    }
}

#[test]
fn mistakes_on_the_command_line_are_reported_with_the_allowed_values() {
    for (args, words) in [
        (&["serv"][..], "command \"serv\" is not known; did you mean serve?"),
        (
            &["--port", "1"],
            "\"--port\" is not known here; it belongs after the command serve",
        ),
        (&["serve", "x"], " more, which mcp-broker serve --help lists"),
        (
            &["desk", "answer", "7", "-no"],
            "\"-n\" is not known here; put -- in front of a text that begins with -",
        ),
        (
            &["serve", "--port"],
            "'--port <N>' but none was supplied; allowed: a whole number from 0 to 65535",
        ),
        (
            &["serve", "--port", "-1"],
            "port = \"-1\" (--port) is not allowed; allowed: a whole number from 0 to 65535",
        ),
    ] {
        let line = startup_error(broker(args));
        assert!(line.contains(words), "{line}");
    }
}

/// A misspelling is answered by what was probably meant, not by a list of all that there is.
#[test]
fn a_misspelling_is_one_short_line_with_the_best_guess() {
    let file = file("misspelled.toml", "stroage = 'disk'");
    let file = file.to_str().unwrap();
    for (args, variable, guess) in [
        (&["sesions"][..], "", "did you mean sessions?"),
        (&["strat"], "", "did you mean start?"),
        (&["list"], "", "did you mean mcp-broker "),
        (&["redrive"], "", "did you mean mcp-broker dead-letters redrive?"),
        (&["project", "sessions"], "", "did you mean mcp-broker sessions?"),
        (&["nonsense-of-a-command"], "", " more, which mcp-broker --help lists"),
        (&["setup", "cladue"], "", "did you mean claude?"),
        (&["serve", "--prot", "1"], "", "did you mean --port?"),
        (
            &["serve", "--nonsense-of-a-flag"],
            "",
            " more, which mcp-broker serve --help lists",
        ),
        (
            &["serve", "--config", file],
            "",
            "is not a known setting; did you mean storage?",
        ),
        (&["serve"], "MCP_BROKER_STROAGE", "did you mean MCP_BROKER_STORAGE?"),
        (
            &["serve"],
            "MCP_BROKER_NONSENSE",
            " more, which mcp-broker serve --help lists",
        ),
        (&["start", "--port", "9000"], "", "it is a setting: set MCP_BROKER_PORT"),
        (
            &["local", "start", "--port", "9000"],
            "",
            "or put port into /nowhere/.config/mcp-broker/broker.toml",
        ),
        (
            &["send", "--from=a", "--protocol=p", "--version=1.0.0", "{}"],
            "",
            "--to <SESSION>|--broadcast",
        ),
        (&["dead-letters", "redrive"], "", "<MESSAGE_ID|--all>"),
        (
            &["serve", "--enable-auth"],
            "",
            "enable_auth = \"true\" (--enable-auth) needs admin_key",
        ),
    ] {
        let mut command = broker(args);
        command.env("HOME", "/nowhere");
        if !variable.is_empty() {
            command.env(variable, "x");
        }
        let line = startup_error(command);
        assert!(line.contains(guess), "{args:?} {variable}: {line}");
        assert!(line.len() <= 300, "{} bytes: {line}", line.len());
    }
}

#[test]
fn help_is_complete() {
    let help = stdout(&run(&["serve", "--help"]));
    let words: Vec<&str> = help.split(|c: char| c.is_whitespace() || "[]".contains(c)).collect();
    for setting in SETTINGS {
        assert!(
            words.contains(&format!("--{}", setting.flag()).as_str()),
            "{}",
            setting.key
        );
        assert!(words.contains(&setting.env().as_str()), "{}", setting.key);
        let default = if setting.default.is_empty() {
            "none"
        } else {
            setting.default
        };
        assert!(
            help.contains(&format!("[default: {default}] [env: {}]", setting.env())),
            "{}",
            setting.key
        );
        assert!(
            help.contains(&format!("[allowed: {}]", (setting.allowed)())),
            "{}",
            setting.key
        );
        assert!(setting.text().ends_with('.'), "{}", setting.key);
    }
    assert!(
        words.contains(&"--config") && words.contains(&"MCP_BROKER_CONFIG"),
        "{help}"
    );
    assert!(help.contains("Exit codes: "), "{help}");
    assert!(help.lines().all(|line| line.len() <= 120), "{help}");
}

/// The lines of a help that begin a section.
fn headings(help: &str) -> Vec<&str> {
    let is_heading = |line: &&str| !line.starts_with(' ') && line.ends_with(':');
    help.lines()
        .filter(is_heading)
        .map(|line| line.trim_end_matches(':'))
        .collect()
}

#[test]
fn settings_are_shown_in_sections_and_the_short_help_has_those_that_people_use() {
    let help = stdout(&run(&["serve", "--help"]));
    let mut sections: Vec<_> = SETTINGS.iter().map(|setting| setting.section).collect();
    sections.dedup();
    assert_eq!(headings(&help), [&["Options"][..], &sections].concat());

    let help = stdout(&run(&["serve", "-h"]));
    let flags: Vec<_> = help
        .lines()
        .filter(|line| line.trim_start().starts_with("--"))
        .collect();
    let shows = |flag: &str| {
        flags
            .iter()
            .any(|line| line.trim_start().split(' ').next() == Some(flag))
    };
    for flag in [
        "--config",
        "--host",
        "--port",
        "--storage",
        "--enable-auth",
        "--log-level",
    ] {
        assert!(shows(flag), "{flag}: {help}");
    }
    assert!(!shows("--jwt-issuer") && flags.len() == 13, "{help}");
    assert!(
        help.lines().count() <= 50 && help.lines().all(|line| line.len() <= 130),
        "{help}"
    );
    let last = help.trim_end().lines().last().unwrap();
    assert!(
        last.ends_with(&format!("mcp-broker serve --help shows all {}.", SETTINGS.len())),
        "{last}"
    );
}

#[test]
fn the_help_of_the_program_has_its_commands_in_groups() {
    for args in [&["--help"][..], &["-h"], &["help"]] {
        let help = stdout(&run(args));
        let groups = [
            "Agents", "People", "Look", "Operate", "Develop", "Options", "Broker", "Output",
        ];
        assert_eq!(headings(&help), groups, "{help}");
        let (agents, people) = (help.find("\n  connect ").unwrap(), help.find("\n  console ").unwrap());
        assert!(help.find("Agents:").unwrap() < agents && agents < people, "{help}");
        assert!(help.contains("Exit codes: ") && !help.contains('\u{1b}'), "{help}");
        assert!(help.lines().all(|line| line.len() <= 130), "{help}");
    }
}

#[test]
fn help_and_version_are_printed_on_stdout() {
    for args in [
        &["--help"][..],
        &["help"],
        &["help", "serve"],
        &["serve", "--help"],
        &["serve", "-h"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(0));
        assert!(
            stdout(&output).contains("Usage: mcp-broker") && output.stderr.is_empty(),
            "{output:?}"
        );
    }
    for args in [&["--version"][..], &["serve", "-V"]] {
        assert!(stdout(&run(args)).contains(env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn a_call_without_a_command_shows_the_help_and_fails() {
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("serve"));
}

/// Runs `healthcheck` with these variables and returns its exit code and what it prints on stderr.
fn health_check(args: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = broker(&["healthcheck"]);
    let output = command.args(args).envs(variables.iter().copied()).output().unwrap();
    assert!(output.stdout.is_empty(), "{}", stdout(&output));
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_health_check_of_a_ready_broker_succeeds_without_a_word() {
    let mut command = broker(&["serve", "--port", "0", "--log-format", "pretty"]);
    let mut running = Running(command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    let stderr = BufReader::new(running.0.stderr.take().unwrap());
    let mut lines = stderr.lines().map(Result::unwrap);
    let told = |line: String| line.split_once("http://127.0.0.1:").map(|(_, rest)| rest.to_owned());
    let address = lines.find_map(told).expect("the broker prints its address");
    let port: String = address.chars().take_while(char::is_ascii_digit).collect();
    let url = format!("http://127.0.0.1:{port}");
    for probe in ["readyz", "livez", "startupz"] {
        assert_eq!(
            health_check(&["--url", &url, "--probe", probe], &[]),
            (Some(0), String::new())
        );
    }
    assert_eq!(health_check(&[], &[("MCP_BROKER_URL", &url)]), (Some(0), String::new()));
    assert_eq!(
        health_check(&[], &[("MCP_BROKER_PORT", &port)]),
        (Some(0), String::new())
    );
}

#[test]
fn a_health_check_fails_if_the_probe_says_no_or_no_broker_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let unready = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut head = [0; 1024];
        let len = socket.read(&mut head).unwrap();
        socket
            .write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            .unwrap();
        String::from_utf8_lossy(&head[..len]).into_owned()
    });
    let (code, line) = health_check(
        &[],
        &[("MCP_BROKER_PORT", &port), ("MCP_BROKER_ADMIN_KEY", "admin_a_secret")],
    );
    assert_eq!(code, Some(1));
    assert!(line.contains("/readyz answered 503"), "{line}");
    let asked = unready.join().unwrap();
    assert!(
        asked.starts_with("GET /readyz ") && !asked.contains("secret"),
        "{asked}"
    );

    // The listener is gone: its port refuses connections.
    let (code, line) = health_check(&[], &[("MCP_BROKER_PORT", &port)]);
    assert_eq!(code, Some(1));
    assert!(line.contains("cannot reach http://127.0.0.1:"), "{line}");
    for (args, variables, words) in [
        (
            &["--url", "ftp://a"][..],
            ("X", ""),
            "url = \"ftp://a\" (--url) is not allowed",
        ),
        (
            &[],
            ("MCP_BROKER_PORT", "0"),
            "port = \"0\" (MCP_BROKER_PORT) names no port to ask",
        ),
    ] {
        let (code, line) = health_check(args, &[variables]);
        assert_eq!(code, Some(2));
        assert!(line.contains(words) && line.lines().count() == 1, "{line}");
    }
}
