//! The administration client against a fake broker: the requests that it sends, what it prints, and what it keeps
//! secret. The fake broker gives the answers that the specification of the API defines.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread::JoinHandle,
    time::Duration,
};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

/// The key of every test. The output of no run may contain it.
const KEY: &str = "admin_k1abcdef_000102030405060708090a0b0c0d0e0f1011121314151617";

const NEW_KEY: &str = "acme_k2_ffeeddccbbaa99887766554433221100";

/// The request that the fake broker received.
#[derive(Debug, Default)]
struct RecordedRequest {
    line: String,
    headers: BTreeMap<String, String>,
    body: String,
}

impl RecordedRequest {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

/// A broker that answers one request.
struct FakeBroker {
    address: SocketAddr,
    served: JoinHandle<RecordedRequest>,
}

impl FakeBroker {
    fn answering_with(status: &str, headers: &str, body: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let asked = read(&stream);
            // A client that has closed the connection has read enough.
            let _ = stream.write_all(answer.as_bytes());
            asked
        });
        Self { address, served }
    }

    fn answering_json(body: &Value) -> Self {
        Self::answering_with("200 OK", "Content-Type: application/json\r\n", &body.to_string())
    }

    fn answering_problem(status: &str, code: &str, detail: &str) -> Self {
        let number: u16 = status[..3].parse().unwrap();
        let problem =
            json!({"type": "about:blank", "title": &status[4..], "status": number, "code": code, "detail": detail});
        Self::answering_with(
            status,
            "Content-Type: application/problem+json\r\n",
            &problem.to_string(),
        )
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Runs the client against this broker with the key in the environment.
    fn run_client(self, words: &[&str]) -> (ClientRun, RecordedRequest) {
        let mut command = client(words);
        command.env("MCP_BROKER_API_KEY", KEY);
        self.run_command(command)
    }

    fn run_command(self, mut command: Command) -> (ClientRun, RecordedRequest) {
        let ran = run_to_end(command.env("MCP_BROKER_URL", self.url()));
        // A client that never connects leaves the thread waiting: this connection ends it, with an empty request.
        drop(TcpStream::connect(self.address));
        (ran, self.served.join().unwrap())
    }
}

/// Reads one request as far as it arrives.
fn read(stream: &TcpStream) -> RecordedRequest {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut reader = BufReader::new(stream);
    let mut asked = RecordedRequest::default();
    reader.read_line(&mut asked.line).unwrap();
    asked.line.truncate(asked.line.trim_end().len());
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap() > 2 {
        let (name, value) = line.split_once(':').unwrap();
        asked.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        line.clear();
    }
    let len = asked
        .headers
        .get("content-length")
        .map_or(0, |len| len.parse().unwrap());
    let mut body = vec![0; len];
    reader.read_exact(&mut body).unwrap();
    asked.body = String::from_utf8(body).unwrap();
    asked
}

/// The exit code and the output of a run.
#[derive(Debug)]
struct ClientRun {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl ClientRun {
    /// The output on stdout of a run that succeeded.
    fn expect_stdout(&self) -> &str {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        &self.stdout
    }

    /// The single line on stderr of a run that ended with this code.
    fn expect_error(&self, code: i32) -> &str {
        assert_eq!((self.code, self.stdout.as_str()), (Some(code), ""), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        let line = self.stderr.strip_suffix('\n').unwrap();
        assert!(!line.contains(char::is_control), "{line:?}");
        line.strip_prefix("error: ").unwrap_or_else(|| panic!("{self:?}"))
    }
}

/// The client with an empty environment.
fn client(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-broker"));
    command.env_clear().args(words).stdin(Stdio::null());
    command
}

fn run_to_end(command: &mut Command) -> ClientRun {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let ran = ClientRun {
        code: status.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    };
    assert!(
        !ran.stdout.contains(KEY) && !ran.stderr.contains(KEY),
        "the key was printed: {ran:?}"
    );
    ran
}

fn run(words: &[&str]) -> ClientRun {
    run_to_end(&mut client(words))
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn acme() -> Value {
    json!({"project_id": "acme", "name": "Acme Corp", "description": null, "tags": ["east", "paid"], "active": true,
        "created_at": "2026-11-20T08:00:00Z", "config": {"allow_cross_project": true, "discoverable": false,
        "max_sessions": 50, "max_protocols": null, "queue_capacity": null, "rate_limit": 600}})
}

fn key(key_id: &str) -> Value {
    json!({"key_id": key_id, "label": "ci", "scope": "member", "status": "active", "created_at": "2026-11-20T08:00:00Z",
        "expires_at": null, "last_used_at": null})
}

fn permission() -> Value {
    json!({"target_project_id": "globex", "allowed_protocols": ["chat"], "message_rate_limit": 60,
        "granted_at": "2026-11-20T09:00:00Z"})
}

#[test]
fn create_sends_the_project_and_prints_its_keys_once() {
    let answer = json!({"project": acme(), "api_keys": [{"key_id": "k2", "api_key": NEW_KEY}]});
    let broker = FakeBroker::answering_with("201 Created", "", &answer.to_string());
    let words = [
        "project",
        "create",
        "acme",
        "--name",
        "Acme Corp",
        "--tag",
        "east",
        "--tag",
        "paid",
    ];
    let flags = ["--allow-cross-project", "--max-sessions", "50", "--rate-limit", "600"];
    let (ran, asked) = broker.run_client(&[&words[..], &flags].concat());
    assert_eq!(asked.line, "POST /api/v1/projects HTTP/1.1");
    assert_eq!(asked.headers["x-api-key"], KEY);
    assert_eq!(asked.headers["content-type"], "application/json");
    assert_eq!(
        asked.json(),
        json!({"project_id": "acme", "name": "Acme Corp", "tags": ["east", "paid"],
            "config": {"allow_cross_project": true, "max_sessions": 50, "rate_limit": 600}})
    );
    let text = ran.expect_stdout();
    assert!(
        text.starts_with("id              acme\nname            Acme Corp\ndescription     -\n"),
        "{text}"
    );
    assert!(
        text.contains(&format!("\nKEY ID  API KEY\nk2      {NEW_KEY}\n")),
        "{text}"
    );
    assert!(
        text.ends_with("\nKeep this key now: it is not shown again.\n"),
        "{text}"
    );
}

#[test]
fn list_is_a_table_whose_columns_are_aligned() {
    let mut other = acme();
    other["project_id"] = "a-longer-id".into();
    other["tags"] = json!([]);
    let (ran, asked) =
        FakeBroker::answering_json(&json!({"projects": [acme(), other]})).run_client(&["project", "list"]);
    assert_eq!(asked.line, "GET /api/v1/projects HTTP/1.1");
    assert_eq!(asked.body, "");
    assert_eq!(
        ran.expect_stdout(),
        "ID           NAME       ACTIVE  CROSS-PROJECT  DISCOVERABLE  TAGS        CREATED\n\
         acme         Acme Corp  yes     yes            no            east, paid  2026-11-20T08:00:00Z\n\
         a-longer-id  Acme Corp  yes     yes            no            -           2026-11-20T08:00:00Z\n"
    );
    let flags = ["project", "list", "--include-inactive", "--tag", "a b", "--tag", "c"];
    let (ran, asked) = FakeBroker::answering_json(&json!({"projects": []})).run_client(&flags);
    assert_eq!(
        asked.line,
        "GET /api/v1/projects?include_inactive=true&tags=a%20b,c HTTP/1.1"
    );
    assert_eq!(ran.expect_stdout(), "no projects\n");
}

#[test]
fn show_prints_what_the_key_may_see() {
    let counts = json!({"sessions": 3, "active_sessions": 1, "protocols": 2, "dead_letters": 0, "keys": 4});
    let answer = json!({"project": acme(), "counts": counts, "permissions": [permission()]});
    let (ran, asked) = FakeBroker::answering_json(&answer).run_client(&["project", "show", "acme"]);
    assert_eq!(asked.line, "GET /api/v1/projects/acme HTTP/1.1");
    let text = ran.expect_stdout();
    assert!(
        text.contains("rate limit      600 per minute\n\nsessions      3 (1 active)\n"),
        "{text}"
    );
    assert!(
        text.ends_with("globex       chat       60 per minute  2026-11-20T09:00:00Z\n"),
        "{text}"
    );
    let (ran, _) = FakeBroker::answering_json(&json!({"project": acme()})).run_client(&["project", "show", "acme"]);
    assert!(
        ran.expect_stdout().ends_with("rate limit      600 per minute\n"),
        "{ran:?}"
    );
}

#[test]
fn update_sends_only_what_was_named() {
    let words = [
        "project",
        "update",
        "acme",
        "--allow-cross-project",
        "false",
        "--queue-capacity",
        "default",
    ];
    let (ran, asked) = FakeBroker::answering_json(&json!({"project": acme()})).run_client(&words);
    assert_eq!(asked.line, "PATCH /api/v1/projects/acme HTTP/1.1");
    assert_eq!(
        asked.json(),
        json!({"config": {"allow_cross_project": false, "queue_capacity": null}})
    );
    assert!(ran.expect_stdout().starts_with("id              acme\n"), "{ran:?}");
}

#[test]
fn delete_needs_a_confirmation() {
    let line = run(&["project", "delete", "acme"]);
    assert!(
        line.expect_error(2)
            .contains("There is no terminal to ask on; --yes skips the question"),
        "{line:?}"
    );
    let broker = || FakeBroker::answering_with("204 No Content", "", "");
    let (ran, asked) = broker().run_client(&["project", "delete", "acme", "--yes"]);
    assert_eq!(asked.line, "DELETE /api/v1/projects/acme HTTP/1.1");
    assert_eq!(
        (asked.body.as_str(), ran.expect_stdout()),
        ("", "deleted the project acme\n")
    );
    let (ran, _) = broker().run_client(&["project", "delete", "acme", "--yes", "--json"]);
    assert_eq!(ran.expect_stdout(), "{\"deleted\":true}\n");
}

#[test]
fn keys_are_listed_created_and_revoked() {
    let (ran, asked) =
        FakeBroker::answering_json(&json!({"keys": [key("k1")]})).run_client(&["project", "keys", "acme"]);
    assert_eq!(asked.line, "GET /api/v1/projects/acme/keys HTTP/1.1");
    assert_eq!(
        ran.expect_stdout(),
        "KEY ID  LABEL  SCOPE   STATUS  CREATED               EXPIRES  LAST USED\n\
         k1      ci     member  active  2026-11-20T08:00:00Z  never    never\n"
    );
    let answer = json!({"key": key("k2"), "api_key": NEW_KEY}).to_string();
    let flags = ["--create", "--label", "ci", "--scope", "member", "--expires-in", "30d"];
    let (ran, asked) = FakeBroker::answering_with("201 Created", "", &answer)
        .run_client(&[&["project", "keys", "acme"], &flags[..]].concat());
    assert_eq!(asked.line, "POST /api/v1/projects/acme/keys HTTP/1.1");
    assert_eq!(
        asked.json(),
        json!({"label": "ci", "scope": "member", "expires_in_seconds": 2_592_000})
    );
    let text = ran.expect_stdout();
    assert!(
        text.contains(&format!("api key  {NEW_KEY}\n")) && text.contains("it is not shown again"),
        "{text}"
    );
    let answer = json!({"revoked": [{"key_id": "k1", "at": "2026-11-20T10:00:00Z"}]});
    let (ran, asked) = FakeBroker::answering_json(&answer).run_client(&["project", "keys", "acme", "--revoke", "k1"]);
    assert_eq!(asked.line, "DELETE /api/v1/projects/acme/keys/k1 HTTP/1.1");
    assert_eq!(ran.expect_stdout(), "REVOKED  AT\nk1       2026-11-20T10:00:00Z\n");
}

#[test]
fn rotate_prints_the_new_keys_and_the_expiry_of_the_old_ones() {
    let new = [
        json!({"key_id": "k2", "api_key": NEW_KEY}),
        json!({"key_id": "k3", "api_key": "acme_k3_x"}),
    ];
    let answer = json!({"api_keys": new, "revoked": [{"key_id": "k1", "at": "2026-11-20T11:00:00Z"}]});
    let words = ["project", "rotate", "acme", "--key-id", "k1", "--grace", "1h"];
    let (ran, asked) = FakeBroker::answering_json(&answer).run_client(&words);
    assert_eq!(asked.line, "POST /api/v1/projects/acme/keys/rotate HTTP/1.1");
    assert_eq!(asked.json(), json!({"key_id": "k1", "grace_period_seconds": 3600}));
    let text = ran.expect_stdout();
    assert!(
        text.contains("Keep these keys now: they are not shown again.\n"),
        "{text}"
    );
    assert!(
        text.ends_with("\nOLD KEY  GOOD UNTIL\nk1       2026-11-20T11:00:00Z\n"),
        "{text}"
    );
}

#[test]
fn grants_are_created_and_withdrawn() {
    let words = [
        "project",
        "grant",
        "acme",
        "globex",
        "--protocol",
        "chat",
        "--rate",
        "60",
    ];
    let (ran, asked) = FakeBroker::answering_json(&json!({"permission": permission()})).run_client(&words);
    assert_eq!(asked.line, "PUT /api/v1/projects/acme/grants/globex HTTP/1.1");
    assert_eq!(
        asked.json(),
        json!({"allowed_protocols": ["chat"], "message_rate_limit": 60})
    );
    assert!(
        ran.expect_stdout()
            .starts_with("acme may send to globex\n\nMAY SEND TO  PROTOCOLS"),
        "{ran:?}"
    );
    for (revoked, said) in [
        (true, "acme may no longer send to globex\n"),
        (false, "acme had no grant to send to globex\n"),
    ] {
        let broker = FakeBroker::answering_json(&json!({"revoked": revoked}));
        let (ran, asked) = broker.run_client(&["project", "revoke", "acme", "globex"]);
        assert_eq!(asked.line, "DELETE /api/v1/projects/acme/grants/globex HTTP/1.1");
        assert_eq!(ran.expect_stdout(), said);
    }
}

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
    assert_eq!(asked.line, "GET /api/v1/projects HTTP/1.1");
    assert_eq!(asked.headers["x-api-key"], KEY);
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
    assert_eq!(asked.headers["x-api-key"], KEY);
    for command in ["serve", "keygen"] {
        let line = run(&["--url", "http://127.0.0.1:1", command]);
        assert_eq!(
            line.expect_error(2),
            format!("--url is not known before {command}; it belongs to commands that ask a broker, such as project")
        );
    }
}

#[test]
fn a_grant_is_printed_with_what_it_lacks() {
    let warning = "this project sends nothing to others yet: set its allow_cross_project";
    let broker = FakeBroker::answering_json(&json!({"permission": permission(), "warnings": [warning]}));
    let (ran, _) = broker.run_client(&["project", "grant", "acme", "globex"]);
    assert!(
        ran.expect_stdout().ends_with(&format!("\nwarning: {warning}\n")),
        "{ran:?}"
    );
}

#[test]
fn audit_prints_actors_and_actions() {
    let entry = json!({"id": "e1", "at": "2026-11-20T08:00:00Z", "actor": "admin", "address": "127.0.0.1",
        "project": "acme", "action": "key.create", "target": null, "outcome": "refused", "code": "forbidden"});
    let answer = json!({"entries": [entry], "next_cursor": "c1"});
    let (ran, asked) = FakeBroker::answering_json(&answer).run_client(&["project", "audit", "acme", "--limit", "1"]);
    assert_eq!(asked.line, "GET /api/v1/audit?project=acme&limit=1 HTTP/1.1");
    assert_eq!(
        ran.expect_stdout(),
        "AT                    ACTOR  FROM       ACTION      PROJECT  TARGET  OUTCOME\n\
         2026-11-20T08:00:00Z  admin  127.0.0.1  key.create  acme     -       refused (forbidden)\n\n\
         There are older entries: --limit shows more.\n"
    );
}

#[test]
fn ids_are_encoded_as_one_path_segment() {
    let (_, asked) = FakeBroker::answering_json(&json!({})).run_client(&["project", "grant", "a/../b", "ü?x#y"]);
    assert_eq!(
        asked.line,
        "PUT /api/v1/projects/a%2F..%2Fb/grants/%C3%BC%3Fx%23y HTTP/1.1"
    );
    run(&["project", "show", ".."]).expect_error(2);
}

#[test]
fn the_path_of_the_base_url_is_kept() {
    let broker = FakeBroker::answering_json(&json!({"projects": []}));
    let url = format!("{}/broker/", broker.url());
    let (_, asked) = broker.run_client(&["project", "list", "--url", &url]);
    assert_eq!(asked.line, "GET /broker/api/v1/projects HTTP/1.1");
}

#[test]
fn json_output_is_the_answer_of_the_broker() {
    let said = r#"{"projects": [], "later": {"z": 1, "a": 12345678901234567890.10}}"#;
    let (ran, _) = FakeBroker::answering_with("200 OK", "", said).run_client(&["project", "--json", "list"]);
    assert_eq!(ran.expect_stdout(), format!("{said}\n"));
    let answer = json!({"key": key("k2"), "api_key": NEW_KEY});
    let (ran, _) = FakeBroker::answering_json(&answer).run_client(&["project", "keys", "acme", "--create", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(ran.expect_stdout()).unwrap(), answer);
}

#[test]
fn a_name_cannot_control_the_terminal() {
    let mut project = acme();
    project["name"] = "\u{1b}[2J\u{9b}1m\u{202e}evil\r\nid  root".into();
    let answer = json!({"projects": [project]});
    let (ran, _) = FakeBroker::answering_json(&answer).run_client(&["project", "list"]);
    assert_eq!(ran.expect_stdout().lines().count(), 2);
    assert!(
        ran.stdout.contains("\\u{1b}[2J\\u{9b}1m\\u{202e}evil\\r\\nid  root"),
        "{ran:?}"
    );
    let (ran, _) = FakeBroker::answering_json(&answer).run_client(&["project", "list", "--json"]);
    assert!(
        !ran.expect_stdout()
            .trim_end()
            .contains(|c: char| c.is_control() || c == '\u{202e}'),
        "{ran:?}"
    );
    assert_eq!(serde_json::from_str::<Value>(&ran.stdout).unwrap(), answer);
    let (ran, _) = FakeBroker::answering_problem("400 Bad Request", "invalid_argument", "a\nb \u{1b}[31m\u{202e}")
        .run_client(&["project", "show", "acme"]);
    assert_eq!(ran.expect_error(1), "invalid_argument: a b \\u{1b}[31m\\u{202e}");
}

#[test]
fn a_refusal_is_printed_in_one_line_with_the_next_step() {
    for (status, code, line) in [
        (
            "404 Not Found",
            "project_not_found",
            "project_not_found: so it is; see mcp-broker project list --include-inactive",
        ),
        (
            "409 Conflict",
            "project_exists",
            "project_exists: so it is; choose another id, or change that project",
        ),
        (
            "403 Forbidden",
            "forbidden",
            "forbidden: so it is; this requires the admin key, or a key of the project",
        ),
        (
            "401 Unauthorized",
            "authentication_failed",
            "authentication_failed: so it is; the key from MCP_BROKER_API_KEY is not known there",
        ),
        ("400 Bad Request", "invalid_argument", "invalid_argument: so it is"),
        (
            "503 Service Unavailable",
            "unavailable",
            "unavailable: so it is; try again later",
        ),
        ("418 Something New", "unheard_of", "unheard_of: so it is"),
    ] {
        for flags in [&[][..], &["--json"]] {
            let words = [&["project", "show", "acme"], flags].concat();
            let (ran, _) = FakeBroker::answering_problem(status, code, "so it is").run_client(&words);
            assert!(ran.expect_error(1).starts_with(line), "{ran:?}");
        }
    }
}

#[test]
fn a_rate_limited_client_prints_how_long_to_wait() {
    let problem = |more: Value| {
        let mut problem = json!({"title": "Too Many Requests", "status": 429, "code": "rate_limited"});
        problem
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        problem.to_string()
    };
    for (headers, body) in [
        ("", problem(json!({"retry_after_ms": 2100}))),
        ("Retry-After: 3\r\n", problem(json!({}))),
    ] {
        let (ran, _) =
            FakeBroker::answering_with("429 Too Many Requests", headers, &body).run_client(&["project", "list"]);
        assert_eq!(ran.expect_error(1), "rate_limited: Too Many Requests; try again in 3 s");
    }
}

#[test]
fn a_request_without_a_key_is_sent_and_its_refusal_says_how_to_give_one() {
    let broker = FakeBroker::answering_problem("401 Unauthorized", "authentication_failed", "no key");
    let (ran, asked) = broker.run_command(client(&["project", "list"]));
    assert!(!asked.headers.contains_key("x-api-key"), "{asked:?}");
    assert_eq!(
        ran.expect_error(1),
        "authentication_failed: no key; no key was given: set MCP_BROKER_API_KEY or use --key-file"
    );
}

#[test]
fn an_answer_of_another_server_is_not_taken_for_a_broker() {
    for (status, body) in [
        ("200 OK", "<html>hello</html>"),
        ("200 OK", "{}"),
        ("404 Not Found", "<html>nothing here</html>"),
        ("502 Bad Gateway", ""),
    ] {
        let (ran, _) = FakeBroker::answering_with(status, "", body).run_client(&["project", "list"]);
        let line = ran.expect_error(1);
        assert!(
            line.contains("is it a broker of this version? see --url") && !line.contains("html"),
            "{line}"
        );
    }
}

#[test]
fn a_key_in_an_answer_of_another_version_is_printed() {
    let answer = json!({"key": {"id": "k2"}, "api_key": NEW_KEY}).to_string();
    let (ran, _) =
        FakeBroker::answering_with("201 Created", "", &answer).run_client(&["project", "keys", "acme", "--create"]);
    assert_eq!((ran.code, ran.stdout), (Some(1), format!("{answer}\n")));
    assert!(ran.stderr.contains("its answer has an unknown form"), "{}", ran.stderr);
}

#[test]
fn a_refused_connection_is_reported_as_no_running_broker() {
    // Bound and not listening: the port is in use, and connections to it are refused.
    let taken = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    taken.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let url = format!("http://{}", taken.local_addr().unwrap().as_socket().unwrap());
    let ran = run_to_end(client(&["project", "list", "--url", &url]).env("MCP_BROKER_API_KEY", KEY));
    let line = ran.expect_error(1);
    assert!(line.starts_with(&format!("cannot reach {url}: ")), "{line}");
    assert!(line.ends_with("; is it running? see --url"), "{line}");
}

#[test]
fn a_lost_answer_is_reported_as_possibly_done() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || read(&listener.accept().unwrap().0));
    let line = run(&["project", "rotate", "acme", "--url", &url]);
    assert_eq!(
        served.join().unwrap().line,
        "POST /api/v1/projects/acme/keys/rotate HTTP/1.1"
    );
    assert!(
        line.expect_error(1)
            .starts_with(&format!("{url} closed the connection before it answered; ")),
        "{line:?}"
    );
}

#[test]
fn the_key_is_not_sent_to_a_redirect() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    for status in [
        "301 Moved Permanently",
        "302 Found",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
    ] {
        let location = format!("Location: http://{}/\r\n", elsewhere.local_addr().unwrap());
        let (ran, _) = FakeBroker::answering_with(status, &location, "").run_client(&["project", "list"]);
        assert!(
            ran.expect_error(1)
                .contains("redirects are not followed, to protect the key"),
            "{ran:?}"
        );
        assert_eq!(elsewhere.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn the_key_is_not_sent_to_a_proxy_of_the_environment() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let mut command = client(&["project", "list"]);
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env(name, format!("http://{}", proxy.local_addr().unwrap()));
    }
    command.env("MCP_BROKER_API_KEY", KEY);
    let (ran, asked) = FakeBroker::answering_json(&json!({"projects": []})).run_command(command);
    assert_eq!(
        (ran.expect_stdout(), asked.headers["x-api-key"].as_str()),
        ("no projects\n", KEY)
    );
    assert_eq!(proxy.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn the_key_is_read_from_flag_file_or_environment() {
    let path = file("key-file", &format!("{KEY}\n"));
    let path = path.to_str().unwrap();
    for (flags, env) in [
        (&[][..], &[("MCP_BROKER_API_KEY", KEY)][..]),
        (&[], &[("MCP_BROKER_ADMIN_KEY", KEY)]),
        (&[], &[("MCP_BROKER_API_KEY", KEY), ("MCP_BROKER_ADMIN_KEY", "other")]),
        (&["--key", KEY], &[("MCP_BROKER_API_KEY", "other")]),
        (&["--key-file", path], &[("MCP_BROKER_API_KEY", "other")]),
    ] {
        let mut command = client(&["project", "list"]);
        command.args(flags).envs(env.iter().copied());
        let (_, asked) = FakeBroker::answering_json(&json!({"projects": []})).run_command(command);
        assert_eq!(asked.headers["x-api-key"], KEY, "{flags:?} {env:?}");
    }
}

#[test]
fn an_invalid_key_is_refused_without_printing_it() {
    let empty = file("empty-key-file", "\n");
    let two = file("two-keys-file", &format!("{KEY}\n{KEY}\n"));
    for (flags, line) in [
        (["--key", ""], "key = (hidden) (--key) is not allowed; allowed: one key"),
        (
            ["--key-file", empty.to_str().unwrap()],
            "key_file = (hidden) (--key-file) is not allowed",
        ),
        (
            ["--key-file", two.to_str().unwrap()],
            "key_file = (hidden) (--key-file) is not allowed",
        ),
        (
            ["--key-file", "/nowhere/key"],
            "key_file = \"/nowhere/key\" (--key-file) cannot be used: ",
        ),
    ] {
        let ran = run(&[&["project", "list"], &flags[..]].concat());
        assert!(ran.expect_error(2).starts_with(line), "{ran:?}");
    }
}

#[test]
fn a_mistake_does_not_print_the_key() {
    let equals = |flag: &str| format!("{flag}={KEY}");
    for words in [
        &["project", "list", KEY][..],
        &["project", KEY],
        &[KEY],
        &["project", "list", "--kye", KEY],
        &["project", "list", &equals("--kye")],
        &["project", "list", &equals("--json")],
        &["project", "list", "--key", KEY, "--key", KEY],
        &["project", "list", "--key", KEY, "--key-file", "x"],
        &["project", "list", "--key", KEY, "--url", "nonsense"],
        &["project", "list", "--url", KEY],
        &["project", "list", "--url", &format!("http://{KEY}@127.0.0.1:1")],
        &["project", "audit", "--limit", KEY],
        &["project", "keys", "a", "--create", "--scope", KEY],
        &["serve", "--key", KEY],
        &["keygen", KEY],
    ] {
        run(words).expect_error(2);
    }
    let broker = FakeBroker::answering_problem("400 Bad Request", "invalid_argument", &format!("what is {KEY}?"));
    let (ran, _) = broker.run_client(&["project", "list"]);
    assert_eq!(ran.expect_error(1), "invalid_argument: what is (hidden)?");
    // A key of another form is recognized because it is the one that was sent.
    let mut command = client(&["project", "list"]);
    command.env("MCP_BROKER_API_KEY", "plain-token");
    let (ran, _) = FakeBroker::answering_problem("400 Bad Request", "invalid_argument", "what is plain-token?")
        .run_command(command);
    assert_eq!(ran.expect_error(1), "invalid_argument: what is (hidden)?");
}

#[test]
fn a_key_is_not_sent_over_plain_http_to_another_machine() {
    for url in [
        "http://broker.invalid",
        "http://192.0.2.1:8000",
        "http://localhost.invalid:8000",
    ] {
        let mut command = client(&["project", "list", "--url", url]);
        let ran = run_to_end(command.env("MCP_BROKER_API_KEY", KEY));
        let line = ran.expect_error(2);
        assert!(
            line.starts_with(&format!("url = {url:?} (--url) is not allowed with a key: "))
                && line.ends_with("allowed: https://, a loopback address, or --insecure to send it anyway"),
            "{line}"
        );
    }
}

#[test]
fn unknown_words_are_refused_with_a_hint() {
    for (words, line) in [
        (
            &["proyect"][..],
            "command \"proyect\" is not known; allowed: serve, help, project, keygen; did you mean project?",
        ),
        (
            &["project", "lst"],
            "command \"lst\" is not known; allowed: help, create, list, show, update, delete, keys, rotate, grant, \
             revoke, audit; did you mean list?",
        ),
        (
            &["project", "list", "--include-inactiv"],
            "\"--include-inactiv\" is not known here; did you mean --include-inactive?; allowed: --include-inactive, ",
        ),
        (
            &["project", "list", "--grace", "1h"],
            "\"--grace\" is not known here; it belongs after the command project rotate; allowed: --include-inactive, ",
        ),
        (
            &["--url", "x"],
            "'mcp-broker' requires a subcommand but one was not provided",
        ),
        (
            &["project", "list", "extra"],
            "\"extra\" is not known here; allowed: --include-inactive, ",
        ),
        (
            &["keygen", "--jsn"],
            "\"--jsn\" is not known here; did you mean --json after the command project?; allowed: ",
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
fn keygen_prints_a_fresh_key_and_nothing_else() {
    let keygen = || run(&["keygen"]).expect_stdout().to_owned();
    let (key, other) = (keygen(), keygen());
    assert_ne!(key, other);
    for key in [key, other] {
        let parts: Vec<&str> = key.strip_suffix('\n').unwrap().split('_').collect();
        let [name, key_id, secret] = parts[..] else {
            panic!("{key}")
        };
        assert_eq!((name, key_id.len(), secret.len()), ("admin", 8, 48), "{key}");
        assert!(
            key_id
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()),
            "{key}"
        );
        assert!(
            secret.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
            "{key}"
        );
    }
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
