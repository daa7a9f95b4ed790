//! The administration client and the broker together: each command once, end to end.

use std::{
    io::Write,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;

use test_client::process::RunningServer;

const ADMIN_KEY: &str = "admin_tests_0123456789abcdef0123456789abcdef0123456789abcdef";

/// A broker with authentication, and its admin key.
struct AdministeredBroker {
    broker: RunningServer,
    _key: KeyFile,
}

/// A file with the admin key, removed when dropped.
struct KeyFile(PathBuf);

impl AdministeredBroker {
    fn start(name: &str) -> Self {
        let key_file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.key", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&key_file);
        file.unwrap().write_all(ADMIN_KEY.as_bytes()).unwrap();
        let flag = format!("--admin-key-file={}", key_file.display());
        let broker = RunningServer::broker(&["--enable-auth", &flag]);
        let key = KeyFile(key_file);
        Self { broker, _key: key }
    }

    /// Runs a command as the operator and returns its output.
    fn run(&self, words: &[&str]) -> String {
        run_client(self.broker.address, ADMIN_KEY, words).unwrap()
    }

    /// Runs a command as the operator and returns its JSON answer.
    fn run_json(&self, words: &[&str]) -> Value {
        let text = self.run(&[words, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    fn run_refused(&self, key: &str, words: &[&str]) -> String {
        run_client(self.broker.address, key, words).unwrap_err()
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a command of `project` and returns its output or its error.
fn run_client(broker: SocketAddr, key: &str, words: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_mcp-broker"))
        .env_clear()
        .env("MCP_BROKER_URL", format!("http://{broker}"))
        .env("MCP_BROKER_API_KEY", key)
        .arg("project")
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    if output.status.success() {
        assert_eq!(stderr, "");
        Ok(stdout)
    } else {
        assert_eq!((stdout.as_str(), stderr.lines().count()), ("", 1), "{stderr}");
        Err(stderr)
    }
}

/// Asserts that the text contains these words in this order.
fn assert_contains_all(text: &str, words: &[&str]) {
    let mut rest = text;
    for word in words {
        let at = rest
            .find(word)
            .unwrap_or_else(|| panic!("no {word:?} in {rest:?} of {text}"));
        rest = &rest[at + word.len()..];
    }
}

/// The only key in a text.
fn printed_key(text: &str) -> &str {
    let mut words = text.split_whitespace();
    words
        .find(|word| word.split('_').count() == 3)
        .unwrap_or_else(|| panic!("no key in {text}"))
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story from beginning to end")]
fn a_project_is_administered_from_its_creation_to_its_deletion() {
    let administered = AdministeredBroker::start("whole-life");
    let printed = administered.run(&[
        "create",
        "acme",
        "--name",
        "Acme Corp",
        "--description",
        "makes things",
        "--tag",
        "east,paid",
        "--allow-cross-project",
        "--max-sessions",
        "50",
        "--rate-limit",
        "600",
    ]);
    assert_contains_all(
        &printed,
        &[
            "acme",
            "Acme Corp",
            "makes things",
            "east, paid",
            "50",
            "600",
            "KEY ID",
            "acme_",
        ],
    );
    let key = printed_key(&printed);
    let by_its_own = |words: &[&str]| run_client(administered.broker.address, key, words).unwrap();
    administered.run_json(&["create", "globex", "--name", "Globex", "--discoverable"]);

    assert_contains_all(&administered.run(&["list"]), &["ID", "acme", "default", "globex"]);
    assert_contains_all(&administered.run(&["list", "--tag", "paid"]), &["acme"]);
    // Other projects are listed with what they publish about themselves, without their limits.
    let seen = by_its_own(&["list"]);
    assert_contains_all(&seen, &["acme", "globex"]);
    assert!(!seen.contains("default"), "{seen}");
    assert_contains_all(&by_its_own(&["show", "globex"]), &["globex", "Globex"]);
    assert_contains_all(&by_its_own(&["show", "acme"]), &["acme", "Acme Corp", "50"]);

    let updated = administered.run(&[
        "update",
        "acme",
        "--max-sessions",
        "default",
        "--tag",
        "",
        "--discoverable",
        "true",
    ]);
    assert_contains_all(
        &updated,
        &[
            "Acme Corp",
            "makes things",
            "discoverable",
            "yes",
            "max sessions",
            "default",
        ],
    );
    assert!(!updated.contains("paid"), "{updated}");
    let refused = administered.run_refused(key, &["update", "acme", "--rate-limit", "0"]);
    assert!(refused.contains("admin key"), "{refused}");

    let made = by_its_own(&[
        "keys",
        "acme",
        "--create",
        "--label",
        "ci",
        "--scope",
        "observer",
        "--expires-in",
        "1h",
    ]);
    let observer = printed_key(&made);
    assert_contains_all(&made, &["ci", "observer"]);
    assert_contains_all(
        &run_client(administered.broker.address, observer, &["list"]).unwrap(),
        &["acme"],
    );
    assert_contains_all(&by_its_own(&["keys", "acme"]), &["KEY ID", "observer", "active"]);
    let observer_id = observer.split('_').nth(1).unwrap();
    let rotated = by_its_own(&["rotate", "acme", "--key-id", observer_id, "--grace", "10m"]);
    let newer = printed_key(&rotated);
    assert_contains_all(&by_its_own(&["keys", "acme"]), &["retiring"]);
    by_its_own(&["keys", "acme", "--revoke", newer.split('_').nth(1).unwrap()]);
    let refused = administered.run_refused(newer, &["list"]);
    assert!(!refused.contains(newer), "{refused}");

    let granted = by_its_own(&["grant", "acme", "globex", "--protocol", "chat,news", "--rate", "60"]);
    assert_contains_all(&granted, &["globex", "chat", "news", "60"]);
    assert_contains_all(&administered.run(&["show", "acme"]), &["acme", "globex", "chat"]);
    let revoked = by_its_own(&["revoke", "acme", "globex"]);
    assert_contains_all(&revoked, &["globex"]);
    assert_ne!(
        by_its_own(&["revoke", "acme", "globex"]),
        revoked,
        "the second delete finds no grant"
    );

    assert_contains_all(
        &by_its_own(&["audit", "acme"]),
        &["grant.revoke", "grant.create", "key.rotate", "key.create"],
    );
    assert_contains_all(
        &administered.run(&["audit", "--limit", "1000"]),
        &["refused", "project.create"],
    );
    assert_eq!(
        administered.run_json(&["audit", "--limit", "1"])["entries"]
            .as_array()
            .unwrap()
            .len(),
        1
    );

    administered.run_refused(ADMIN_KEY, &["delete", "acme"]);
    assert_contains_all(&administered.run(&["delete", "acme", "--yes"]), &["acme"]);
    administered.run_refused(key, &["list"]);
    assert!(!administered.run(&["list"]).contains("acme"));
    assert_contains_all(&administered.run(&["list", "--include-inactive"]), &["acme"]);
    assert_contains_all(&administered.run(&["show", "acme"]), &["acme", "active", "no"]);
}

#[test]
fn json_answers_are_those_of_the_broker() {
    let administered = AdministeredBroker::start("scripts");
    let made = administered.run_json(&["create", "acme", "--name", "Acme"]);
    let key = made["api_keys"][0]["api_key"].as_str().unwrap();
    assert_eq!(administered.run_json(&["show", "acme"])["project"], made["project"]);
    assert_eq!(administered.run_json(&["list"])["projects"][0], made["project"]);
    assert_eq!(administered.run_json(&["keys", "acme"])["keys"][0]["scope"], "admin");
    let rotated = administered.run_json(&["rotate", "acme"]);
    assert_eq!(rotated["revoked"][0]["key_id"], made["api_keys"][0]["key_id"]);
    administered.run_refused(key, &["list"]);
    administered.run_json(&["delete", "acme", "--yes"]);
    // An error is one line with its cause.
    for (words, says) in [
        (&["show", "acme2"][..], "no such project"),
        (&["create", "acme", "--name", "x"], "already"),
        (&["create", "system", "--name", "x"], "reserved"),
        (&["grant", "acme", "globex"], "no such project"),
    ] {
        let line = administered.run_refused(ADMIN_KEY, words);
        assert!(line.contains(says), "{line}");
    }
    let log = administered.broker.stop();
    for secret in [key, ADMIN_KEY] {
        assert!(!log.contains(secret), "{log}");
    }
}
