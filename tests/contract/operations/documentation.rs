//! The documentation as its readers use it: its commands and tables of calls, run against the real binary.
//!
//! A block of commands is run unless the line above it says `<!-- not played: REASON -->`. `<!-- played with: COMMAND
//! -->` starts a broker for the blocks that follow. A broker that a page starts listens on a free port, and the address in
//! the page is replaced accordingly.

use std::{
    collections::HashMap,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use test_client::{folder::Home, process::RunningServer};

use crate::support::{Agent, Broker, HttpAgent, Request};

/// The address of the broker in the pages.
const ADDRESS: &str = "127.0.0.1:8000";
const NOT_PLAYED: &str = "<!-- not played: ";
const PLAYED_WITH: &str = "<!-- played with: ";
/// The number of blocks of all pages that may be left out.
const NOT_PLAYED_LEN_MAX: usize = 12;
const PAGES: [&str; 10] = [
    "README.md",
    "docs/local.md",
    "docs/first-agent.md",
    "docs/reference.md",
    "docs/projects.md",
    "docs/cli.md",
    "docs/clients.md",
    "docs/waking.md",
    "docs/api.md",
    "docs/lenses.md",
];

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// A fenced block of a page.
struct Block {
    /// The comment above it, without its marks.
    comment: String,
    language: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    let mut before = "";
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let text: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push(Block {
                comment: before.to_owned(),
                language: language.to_owned(),
                text: text.join("\n"),
            });
        }
        before = line;
    }
    blocks
}

/// The calls of the table whose columns are who, tool and arguments.
fn calls(page: &str) -> Vec<(String, String, Value)> {
    let rows = page
        .lines()
        .skip_while(|line| *line != "| who | tool | arguments |")
        .skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<_> = row
            .trim_matches('|')
            .splitn(3, '|')
            .map(|cell| cell.trim().trim_matches('`'))
            .collect();
        let arguments = serde_json::from_str(cells[2]).unwrap_or_else(|error| panic!("{error}: {row}"));
        (cells[0].to_owned(), cells[1].to_owned(), arguments)
    })
    .collect()
}

/// Plays the table: every call succeeds, and every receiving call returns messages. Returns the last result.
fn play(mut call: impl FnMut(&str, &str, Value) -> Value) -> Value {
    let calls = calls(&page("README.md"));
    assert!(calls.len() > 5, "README.md shows no first conversation");
    let mut last = Value::Null;
    for (who, tool, arguments) in calls {
        last = call(&who, &tool, arguments);
        if tool == "receive_messages" {
            assert_ne!(last["messages"], json!([]), "{who} receives nothing");
        }
    }
    last
}

fn assert_final_answer(last: &Value) {
    let message = &last["messages"][0];
    assert_eq!(message["payload"], json!({"text": "I am bob"}), "{last}");
    assert_eq!(message["headers"]["correlation_id"], "q1", "{last}");
}

#[test]
fn the_first_conversation_works_on_connections() {
    for era in ["2024-11-05", "2025-11-25", "2026-07-28"] {
        let broker = Broker::start();
        let agent = || match era {
            "2026-07-28" => Agent::modern(broker.wire(), json!({})),
            version => Agent::legacy(broker.wire(), version, &json!({})),
        };
        let mut agents = HashMap::new();
        let last = play(|who, tool, arguments| {
            let agent = agents.entry(who.to_owned()).or_insert_with(agent);
            agent.calls(tool, arguments)
        });
        assert_final_answer(&last);
    }
}

#[test]
fn the_first_conversation_works_over_http() {
    for era in ["2025-03-26", "2025-11-25", "2026-07-28"] {
        let broker = Broker::start();
        let caller = || match era {
            "2026-07-28" => HttpAgent::modern(broker.address, json!({})),
            version => HttpAgent::legacy(broker.address, version, json!({})),
        };
        let mut callers: HashMap<String, HttpAgent> = HashMap::new();
        let last = play(|who, tool, arguments| {
            let caller = callers.entry(who.to_owned()).or_insert_with(caller);
            let answer = caller.calls(tool, arguments);
            if tool == "register_session" {
                // As the page says, the id is passed with every later call.
                caller.session = answer["session_id"].as_str().map(str::to_owned);
            }
            answer
        });
        assert_final_answer(&last);
    }
}

#[test]
fn the_commands_of_readme_work_as_they_are_written() {
    Reader::run_page("README.md");
}

#[test]
fn the_commands_of_the_first_five_minutes_work_as_they_are_written() {
    Reader::run_page("docs/first-agent.md");
}

#[test]
fn the_commands_of_the_reference_work_as_they_are_written() {
    let printed = Reader::run_page("docs/reference.md");
    // Over HTTP, a refused call is not a failure of the command.
    assert!(
        printed.contains("session_id") && !printed.contains("isError\":true"),
        "{printed}"
    );
}

#[test]
fn the_commands_about_projects_work_as_they_are_written() {
    Reader::run_page("docs/projects.md");
}

#[test]
fn the_commands_of_the_rest_api_work_as_they_are_written() {
    let printed = Reader::run_page("docs/api.md");
    assert!(printed.contains("\"redriven\":1"), "{printed}");
}

#[test]
fn the_commands_of_the_command_line_work_as_they_are_written() {
    Reader::run_page("docs/cli.md");
}

#[test]
fn the_commands_of_an_upgrade_work_as_they_are_written() {
    let printed = Reader::run_page("docs/lenses.md");
    for expected in [
        "has the name summary",
        "MAY LOSE",
        "/internal_note",
        "by_lens",
        "transformed from 2.0.0 to 1.0.0, lost /priority",
        r#""transformed":{"from":"2.0.0","to":"1.0.0","loss":["/priority"]"#,
        "no longer spoken",
    ] {
        assert!(printed.contains(expected), "no {expected}: {printed}");
    }
}

#[test]
fn the_commands_about_clients_work_as_they_are_written() {
    Reader::run_page("docs/clients.md");
}

#[test]
fn the_commands_about_one_machine_work_as_they_are_written() {
    let printed = Reader::run_page("docs/local.md");
    assert!(printed.contains("\"name\":\"alice\""), "{printed}");
}

#[test]
fn few_blocks_are_left_out_and_each_says_why() {
    let mut left_out = 0;
    for name in PAGES {
        for block in blocks(&page(name)) {
            let Some(reason) = block.comment.strip_prefix(NOT_PLAYED) else {
                continue;
            };
            assert!(reason.trim_end_matches(" -->").len() > 5, "{name}: {}", block.comment);
            left_out += 1;
        }
    }
    assert!(left_out <= NOT_PLAYED_LEN_MAX, "{left_out} blocks are not played");
}

#[test]
fn every_address_in_the_pages_answers() {
    let broker = Broker::start();
    let mut found = 0;
    for name in PAGES {
        let page = page(name);
        for block in blocks(&page).iter().filter(|block| block.language == "json") {
            serde_json::from_str::<Value>(&block.text)
                .unwrap_or_else(|error| panic!("{name}: {error}: {}", block.text));
        }
        for scheme in ["http://", "ws://"] {
            let address = format!("{scheme}{ADDRESS}");
            for rest in page.split(&address).skip(1) {
                let path: String = rest
                    .chars()
                    .take_while(|c| c.is_ascii_alphanumeric() || *c == '/')
                    .collect();
                assert_answers(&broker, scheme, &path);
                found += 1;
            }
        }
    }
    assert!(found > 10, "the pages say nowhere where the broker is");
}

fn assert_answers(broker: &Broker, scheme: &str, path: &str) {
    let status = match (scheme, path) {
        ("ws://", "/ws") => broker.upgrade(&[]).status,
        ("http://", "/mcp") => {
            let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a test","version":"1"}}}"#;
            Request::post(broker.address, hello).answered().status
        }
        // The address of the API, to which the command line adds a path.
        ("http://", "") => broker.get("/health").status,
        _ => broker.get(path).status,
    };
    assert!(matches!(status, 101 | 200), "{scheme}{ADDRESS}{path} answers {status}");
}

/// A reader at a terminal, with the program on the path.
struct Reader {
    name: &'static str,
    home: Home,
    environment: HashMap<String, String>,
    broker: Option<RunningServer>,
    printed: String,
}

impl Reader {
    /// Runs the commands of a page in order. Returns everything that they printed.
    fn run_page(name: &'static str) -> String {
        let home = Home::new().unwrap();
        let programs = Path::new(env!("CARGO_BIN_EXE_mcp-broker")).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        let environment = [
            ("PATH", path),
            // The brokers of several readers run at the same time.
            ("MCP_BROKER_PORT", "0".to_owned()),
        ];
        let of_home = home
            .environment()
            .map(|(name, path)| (name, path.display().to_string()));
        let environment = environment.into_iter().chain(of_home);
        let environment = environment.map(|(name, value)| (name.to_owned(), value)).collect();
        let mut reader = Self {
            name,
            home,
            environment,
            broker: None,
            printed: String::new(),
        };
        let mut played = 0;
        for block in blocks(&page(name)) {
            if let Some(command) = block.comment.strip_prefix(PLAYED_WITH) {
                reader.start_broker(command.trim_end_matches(" -->"));
            }
            if block.language.is_empty() && !block.comment.starts_with(NOT_PLAYED) {
                reader.run_block(&block.text);
                played += 1;
            }
        }
        assert!(played > 0, "{name} shows no commands");
        std::mem::take(&mut reader.printed)
    }

    /// Runs the lines of a block, one command of the program after the other: a later one may use what an earlier one printed.
    /// A broker keeps running beside the commands that follow it.
    fn run_block(&mut self, text: &str) {
        let mut script = String::new();
        for line in text.lines() {
            if line.starts_with("mcp-broker ") {
                self.run_script(&std::mem::take(&mut script));
            }
            if line.starts_with("mcp-broker serve") {
                self.start_broker(line);
            } else {
                script.extend([line, "\n"]);
            }
        }
        self.run_script(&script);
    }

    fn start_broker(&mut self, command: &str) {
        // The older broker, which would use the same port, is stopped first.
        self.broker = None;
        let broker = RunningServer::run(self.shell(&format!("exec {command} --port=0 --log-format=json"))).unwrap();
        self.environment
            .insert("MCP_BROKER_URL".to_owned(), format!("http://{}", broker.address));
        self.broker = Some(broker);
    }

    fn run_script(&mut self, script: &str) {
        if script.trim().is_empty() {
            return;
        }
        let kept = self.home.join("environment");
        let script = format!(
            "set -euo pipefail\n{}\nenv -0 >'{}'",
            self.with_values(script),
            kept.display()
        );
        let output = self.shell(&script).output().unwrap();
        let printed = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (printed(&output.stdout), printed(&output.stderr));
        assert!(output.status.success(), "{}: {script}\n{stdout}{stderr}", self.name);
        self.printed.push_str(&stdout);
        let kept = fs::read(kept).unwrap();
        let kept = kept
            .split(|byte| *byte == 0)
            .filter_map(|line| std::str::from_utf8(line).ok()?.split_once('='));
        self.environment = kept.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    }

    /// Replaces the words in capitals and the address, as a reader would.
    fn with_values(&self, script: &str) -> String {
        let address = self.broker.as_ref().map(|broker| broker.address.to_string());
        let admin_key = self.environment.get("MCP_BROKER_ADMIN_KEY").map_or("", String::as_str);
        let mut keys = self
            .printed
            .split_whitespace()
            .filter(|word| word.split('_').count() == 3);
        let key_id = keys
            .next_back()
            .and_then(|key| key.split('_').nth(1))
            .unwrap_or_default();
        script
            .replace(ADDRESS, address.as_deref().unwrap_or(ADDRESS))
            .replace("THE-KEY-OF-THE-FIRST-TERMINAL", admin_key)
            .replace("KEY_ID", key_id)
    }

    fn shell(&self, script: &str) -> Command {
        let mut shell = Command::new("bash");
        shell
            .args(["-c", script])
            .env_clear()
            .envs(&self.environment)
            .current_dir(&*self.home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        shell
    }
}
