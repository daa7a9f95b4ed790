//! Checks `/openapi.json` against the real binary: schemathesis generates valid and invalid requests from it, sends
//! them and checks every answer.
//!
//! `scripts/test` installs the tools.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

use crate::support::{ADMIN_KEY, Broker};

/// Operations that `schemathesis.toml` leaves out: a stream that does not end.
const LEFT_OUT: usize = 1;

#[test]
#[ignore = "needs schemathesis: scripts/test installs it"]
fn the_document_is_openapi_3_1() {
    let tools = tools();
    let broker = Broker::start();
    let text = broker.get("/openapi.json").body;
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let file = folder("document").join("openapi.json");
    fs::write(&file, text).unwrap();
    let output = Command::new(tools.join("openapi-spec-validator")).arg(&file).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
}

#[test]
#[ignore = "needs schemathesis: scripts/test installs it"]
fn the_document_holds_with_the_admin_key() {
    let broker = Broker::secured();
    broker.project("acme", &json!({}));
    broker.project("umbrella", &json!({"discoverable": true}));
    SchemathesisRun {
        name: "admin",
        key: Some(ADMIN_KEY),
        project: "default",
        max_examples: 30,
        left_out: None,
    }
    .assert_document_holds(&broker);
}

#[test]
#[ignore = "needs schemathesis: scripts/test installs it"]
fn the_document_holds_with_a_member_key() {
    let broker = Broker::secured();
    let key = broker.project("acme", &json!({})).new_key_with_scope("member");
    broker.project("umbrella", &json!({"discoverable": true}));
    SchemathesisRun {
        name: "member",
        key: Some(&key),
        project: "acme",
        max_examples: 15,
        left_out: None,
    }
    .assert_document_holds(&broker);
}

#[test]
#[ignore = "needs schemathesis: scripts/test installs it"]
fn the_document_holds_without_a_key() {
    SchemathesisRun {
        name: "nobody",
        key: None,
        project: "default",
        max_examples: 10,
        left_out: None,
    }
    .assert_document_holds(&Broker::secured());
}

#[test]
#[ignore = "needs schemathesis: scripts/test installs it"]
fn the_document_holds_for_a_broker_without_authentication() {
    SchemathesisRun {
        name: "everybody",
        key: None,
        project: "default",
        max_examples: 10,
        // Whether keys are required is a setting; the document describes a broker that requires them.
        left_out: Some("ignored_auth"),
    }
    .assert_document_holds(&Broker::start());
}

/// One run of schemathesis: the caller and the number of requests.
struct SchemathesisRun<'a> {
    name: &'a str,
    key: Option<&'a str>,
    /// The value of `X-Project-ID`.
    project: &'a str,
    /// Generated requests per operation, in addition to those that try every bound of its schemas.
    max_examples: usize,
    /// A check that is skipped.
    left_out: Option<&'a str>,
}

impl SchemathesisRun<'_> {
    fn assert_document_holds(&self, broker: &Broker) {
        let tools = tools();
        let (folder, text) = (folder(self.name), broker.get("/openapi.json").body);
        // Read from a file: schemathesis leaves out the path of a document that it has fetched.
        fs::write(folder.join("openapi.json"), &text).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        let operations = document["paths"].as_object().unwrap().values();
        let operations: usize = operations.map(|methods| methods.as_object().unwrap().len()).sum();
        let operations = operations - LEFT_OUT;
        let mut command = Command::new(tools.join("schemathesis"));
        command
            .env("PROJECT", self.project)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONUTF8", "1")
            .current_dir(folder)
            .arg("--config-file")
            .arg(here().join("schemathesis.toml"))
            .args(["run", "openapi.json", "--no-color"])
            .args(["--url", &format!("http://{}", broker.address)])
            .args(["--max-examples", &self.max_examples.to_string()]);
        // Bad requests are refused before a storage matters. On another one a few good requests to each operation show that.
        if env::var_os("TEST_STORAGE").is_some() {
            command.args(["--phases=examples,fuzzing,stateful", "--max-examples=5"]);
        }
        if let Some(check) = self.left_out {
            command.args(["--exclude-checks", check]);
        }
        if let Some(key) = self.key {
            command.args(["--header", &format!("X-API-Key: {key}")]);
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = output_text(&output);
        assert!(output.status.success(), "{said}");
        assert!(said.contains(&format!("Tested: {operations}\n")), "{said}");
    }
}

/// The folder of the programs.
fn tools() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/clients/openapi/bin");
    assert!(folder.is_dir(), "schemathesis is not installed: run scripts/test");
    folder
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openapi")
}

/// An empty folder for the output of a program.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openapi").join(name);
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn output_text(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .concat()
}
