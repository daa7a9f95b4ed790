//! The client for administration and the broker together: each command once, from end to end.

use std::{
    io::Write,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;

#[path = "support/process.rs"]
mod process;

use process::Broker;

const ADMIN_KEY: &str = "admin_tests_0123456789abcdef0123456789abcdef0123456789abcdef";

/// A broker that asks for keys, and whoever administers it.
struct Office {
    broker: Broker,
    _key: KeyFile,
}

/// The admin key in a file that is gone with this.
struct KeyFile(PathBuf);

impl Office {
    fn open(name: &str) -> Self {
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
        let broker = Broker::start(&["--enable-auth", &flag]);
        let key = KeyFile(key_file);
        Self { broker, _key: key }
    }

    /// What the client prints for the operator.
    fn prints(&self, words: &[&str]) -> String {
        told(self.broker.address, ADMIN_KEY, words).unwrap()
    }

    /// The answer to the operator as JSON.
    fn answers(&self, words: &[&str]) -> Value {
        let text = self.prints(&[words, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    fn refuses(&self, key: &str, words: &[&str]) -> String {
        told(self.broker.address, key, words).unwrap_err()
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a command of `project`: what it prints, or what it says instead.
fn told(broker: SocketAddr, key: &str, words: &[&str]) -> Result<String, String> {
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

/// Words that must stand in a text, in this order.
fn shows(text: &str, words: &[&str]) {
    let mut rest = text;
    for word in words {
        let at = rest
            .find(word)
            .unwrap_or_else(|| panic!("no {word:?} in {rest:?} of {text}"));
        rest = &rest[at + word.len()..];
    }
}

/// The one key of a text that prints it.
fn printed_key(text: &str) -> &str {
    let mut words = text.split_whitespace();
    words
        .find(|word| word.split('_').count() == 3)
        .unwrap_or_else(|| panic!("no key in {text}"))
}

#[test]
fn a_project_is_administered_from_its_making_to_its_end() {
    let office = Office::open("whole-life");
    let printed = office.prints(&[
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
    shows(
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
    let by_its_own = |words: &[&str]| told(office.broker.address, key, words).unwrap();
    office.answers(&["create", "globex", "--name", "Globex", "--discoverable"]);

    shows(&office.prints(&["list"]), &["ID", "acme", "default", "globex"]);
    shows(&office.prints(&["list", "--tag", "paid"]), &["acme"]);
    // The others are seen as far as they want to be, which says nothing of their limits.
    let seen = by_its_own(&["list"]);
    shows(&seen, &["acme", "globex"]);
    assert!(!seen.contains("default"), "{seen}");
    shows(&by_its_own(&["show", "globex"]), &["globex", "Globex"]);
    shows(&by_its_own(&["show", "acme"]), &["acme", "Acme Corp", "50"]);

    let updated = office.prints(&[
        "update",
        "acme",
        "--max-sessions",
        "default",
        "--tag",
        "",
        "--discoverable",
        "true",
    ]);
    shows(
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
    let refused = office.refuses(key, &["update", "acme", "--rate-limit", "0"]);
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
    shows(&made, &["ci", "observer"]);
    shows(&told(office.broker.address, observer, &["list"]).unwrap(), &["acme"]);
    shows(&by_its_own(&["keys", "acme"]), &["KEY ID", "observer", "active"]);
    let observer_id = observer.split('_').nth(1).unwrap();
    let rotated = by_its_own(&["rotate", "acme", "--key-id", observer_id, "--grace", "10m"]);
    let newer = printed_key(&rotated);
    shows(&by_its_own(&["keys", "acme"]), &["retiring"]);
    by_its_own(&["keys", "acme", "--revoke", newer.split('_').nth(1).unwrap()]);
    let refused = office.refuses(newer, &["list"]);
    assert!(!refused.contains(newer), "{refused}");

    let granted = by_its_own(&["grant", "acme", "globex", "--protocol", "chat,news", "--rate", "60"]);
    shows(&granted, &["globex", "chat", "news", "60"]);
    shows(&office.prints(&["show", "acme"]), &["acme", "globex", "chat"]);
    let revoked = by_its_own(&["revoke", "acme", "globex"]);
    shows(&revoked, &["globex"]);
    assert_ne!(
        by_its_own(&["revoke", "acme", "globex"]),
        revoked,
        "the second time there is none"
    );

    shows(
        &by_its_own(&["audit", "acme"]),
        &["grant.revoke", "grant.create", "key.rotate", "key.create"],
    );
    shows(
        &office.prints(&["audit", "--limit", "1000"]),
        &["refused", "project.create"],
    );
    assert_eq!(
        office.answers(&["audit", "--limit", "1"])["entries"]
            .as_array()
            .unwrap()
            .len(),
        1
    );

    office.refuses(ADMIN_KEY, &["delete", "acme"]);
    shows(&office.prints(&["delete", "acme", "--yes"]), &["acme"]);
    office.refuses(key, &["list"]);
    assert!(!office.prints(&["list"]).contains("acme"));
    shows(&office.prints(&["list", "--include-inactive"]), &["acme"]);
    shows(&office.prints(&["show", "acme"]), &["acme", "active", "no"]);
}

#[test]
fn the_answers_for_scripts_are_those_of_the_broker() {
    let office = Office::open("scripts");
    let made = office.answers(&["create", "acme", "--name", "Acme"]);
    let key = made["api_keys"][0]["api_key"].as_str().unwrap();
    assert_eq!(office.answers(&["show", "acme"])["project"], made["project"]);
    assert_eq!(office.answers(&["list"])["projects"][0], made["project"]);
    assert_eq!(office.answers(&["keys", "acme"])["keys"][0]["scope"], "admin");
    let rotated = office.answers(&["rotate", "acme"]);
    assert_eq!(rotated["revoked"][0]["key_id"], made["api_keys"][0]["key_id"]);
    office.refuses(key, &["list"]);
    office.answers(&["delete", "acme", "--yes"]);
    // What goes wrong is one line that says what.
    for (words, says) in [
        (&["show", "acme2"][..], "no such project"),
        (&["create", "acme", "--name", "x"], "already"),
        (&["create", "system", "--name", "x"], "reserved"),
        (&["grant", "acme", "globex"], "no such project"),
    ] {
        let line = office.refuses(ADMIN_KEY, words);
        assert!(line.contains(says), "{line}");
    }
    let log = office.broker.stop();
    for secret in [key, ADMIN_KEY] {
        assert!(!log.contains(secret), "{log}");
    }
}
