//! `protocols diff`, `lens`, `try` and `usage`.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::program::{broker_with, objects, post, run, run_with_input, tool};

/// A file of a test, which is removed at its end.
struct File(PathBuf);

impl File {
    fn with(content: &Value) -> Self {
        let path = std::env::temp_dir().join(format!("lens-{}.json", uuid::Uuid::new_v4()));
        std::fs::write(&path, content.to_string()).unwrap();
        Self(path)
    }

    fn option(&self, name: &str) -> String {
        format!("--{name}={}", self.0.display())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The second version of `note`: the text has another name.
fn second() -> Value {
    json!({"type": "object", "properties": {"body": {"type": "string"}}, "required": ["body"]})
}

fn rename() -> Value {
    json!([{"op": "rename", "path": "/text", "to": "body"}])
}

#[test]
fn two_versions_are_compared_with_a_suggested_lens() {
    let broker = broker_with(&[]);
    let diff = |words: &[&str]| run(broker.address, &[&["protocols", "diff", "note"], words].concat());
    let schema = File::with(&second());
    let apart = diff(&["1.0.0", "2.0.0", &schema.option("schema")]);
    assert!(apart.stdout.contains("/text  has the name body"), "{apart:?}");
    assert!(
        apart.stdout.contains(r#"{"op":"rename","path":"/text","to":"body"}"#),
        "{apart:?}"
    );
    assert_eq!(
        apart.fails_with(3),
        "payloads of note 1.0.0 do not fit 2.0.0 as they are"
    );
    let shown = diff(&["1.0.0", "2.0.0", &schema.option("schema"), "--json"]);
    let expected = json!({
        "compatible": false, "by_lens": null, "changes": [{"path": "/text", "change": "has the name body"}],
        "suggested_lens": rename(),
    });
    assert_eq!(objects(&shown.stdout), [expected]);
    let wider = json!({"name": "note", "version": "1.1.0", "schema": {"type": "object"}});
    post(broker.address, "/api/v1/protocols", &wider);
    diff(&["1.0.0", "1.1.0"]).succeeds();
    let line = diff(&["1.0.0", "3.0.0"]).fails_with(1);
    assert!(
        line.starts_with("note 3.0.0 is not registered; mcp-broker protocols note lists"),
        "{line}"
    );
}

#[test]
fn a_protocol_may_have_the_name_of_a_command() {
    let broker = broker_with(&[]);
    for name in ["diff", "lens", "usage"] {
        let protocol = json!({"name": name, "version": "1.0.0", "schema": {"type": "object"}});
        post(broker.address, "/api/v1/protocols", &protocol);
        let listed = objects(&run(broker.address, &["protocols", "--json", "--", name]).succeeds());
        assert_eq!((listed.len(), &listed[0]["name"]), (1, &json!(name)));
    }
}

#[test]
fn usage_counts_sessions_and_messages_of_each_version() {
    let broker = broker_with(&[]);
    post(
        broker.address,
        "/api/v1/protocols",
        &json!({"name": "note", "version": "2.0.0", "schema": second()}),
    );
    for (name, versions) in [("old", json!(["1.0.0"])), ("new", json!(["1.0.0", "2.0.0"]))] {
        let declared = json!({"name": name, "capabilities": {"supported_protocols": {"note": versions}}});
        tool(broker.address, "register_session", &declared);
    }
    let words = [
        "send",
        "--from=old",
        "--to=new",
        "--protocol=note",
        "--version=1.0.0",
        r#"{"text": "hi"}"#,
    ];
    run(broker.address, &words).succeeds();
    run(broker.address, &["inbox", "new", "--take", "--force"]).succeeds();
    let usage = |words: &[&str]| run(broker.address, &[&["protocols", "usage", "note"], words].concat());
    let shown = objects(&usage(&["--json"]).succeeds()).remove(0);
    assert_eq!((&shown["name"], &shown["complete"]), (&json!("note"), &json!(true)));
    let figures = |version: &Value| {
        json!([
            version["version"],
            version["sessions"]["only"],
            version["sent"],
            version["delivered"]["as_sent"],
            version["retirable"]
        ])
    };
    let versions: Vec<_> = shown["versions"].as_array().unwrap().iter().map(figures).collect();
    assert_eq!(
        versions,
        [json!(["1.0.0", 1, 1, 1, false]), json!(["2.0.0", 1, 0, 0, false])]
    );
    let spoken = &shown["versions"][0]["sessions"];
    assert_eq!(
        spoken["active"].as_u64().unwrap() + spoken["kept"].as_u64().unwrap(),
        2,
        "{shown}"
    );
    post(
        broker.address,
        "/api/v1/protocols",
        &json!({"name": "note", "version": "3.0.0", "schema": second()}),
    );
    assert!(usage(&[]).succeeds().contains("  not spoken"));
    let line = usage(&["--window=5s"]).fails_with(1);
    assert!(
        line.starts_with("invalid_argument: window: a time from 10s to 30d"),
        "{line}"
    );
    let line = run(broker.address, &["protocols", "usage", "nothing"]).fails_with(1);
    assert!(line.starts_with("protocol_not_found: "), "{line}");
}

#[test]
fn a_payload_is_tried_in_another_version() {
    let broker = broker_with(&[]);
    let same = ["protocols", "try", "note", "1.0.0", "1.0.0", "-"];
    let shown = run_with_input(broker.address, &same, r#"{"text": "hi"}"#).succeeds();
    assert!(shown.contains("class") && shown.contains(r#""text": "hi""#), "{shown}");
    post(
        broker.address,
        "/api/v1/protocols",
        &json!({"name": "note", "version": "2.0.0", "schema": second()}),
    );
    let other = ["protocols", "try", "note", "1.0.0", "2.0.0", r#"{"text": "hi"}"#];
    let line = run(broker.address, &other).fails_with(1);
    assert!(
        line.starts_with("incompatible_protocol: no lenses lead from note 1.0.0 to 2.0.0"),
        "{line}"
    );
}

#[test]
fn a_lens_is_tried_registered_replaced_and_removed() {
    let broker = broker_with(&[]);
    let (schema, lens) = (File::with(&second()), File::with(&rename()));
    let (schema, lens) = (schema.option("schema"), lens.option("lens"));
    let of_lens = |verb: &str, words: &[&str]| {
        let words = [&["protocols", "lens", verb, "note", "1.0.0", "2.0.0"], words].concat();
        run(broker.address, &words)
    };
    let tried = of_lens("check", &[&schema, &lens]).succeeds();
    assert!(
        tried.starts_with("note 1.0.0 to 2.0.0: the lens holds; nothing is registered\n"),
        "{tried}"
    );
    assert!(tried.contains("exact") && tried.contains("proved"), "{tried}");
    assert_eq!(
        objects(&run(broker.address, &["protocols", "note", "--json"]).succeeds()).len(),
        1
    );
    let put = of_lens("put", &[&schema, &lens]).succeeds();
    assert!(
        put.starts_with("note 1.0.0 to 2.0.0: the lens is registered\n"),
        "{put}"
    );
    let again = of_lens("put", &[&lens]).succeeds();
    assert!(
        again.starts_with("note 1.0.0 to 2.0.0: the lens was registered before\n"),
        "{again}"
    );
    of_lens("check", &[&lens]).succeeds();
    let shown = of_lens("show", &[]).succeeds();
    assert!(
        shown.contains("revision 1, direction both") && shown.contains(r#""op":"rename""#),
        "{shown}"
    );
    assert_eq!(objects(&of_lens("show", &["--json"]).succeeds())[0]["ops"], rename());

    let there = [
        "protocols",
        "try",
        "note",
        "1.0.0",
        "2.0.0",
        "--json",
        r#"{"text": "hi"}"#,
    ];
    let there = objects(&run(broker.address, &there).succeeds()).remove(0);
    assert_eq!(
        (&there["payload"], &there["class"]),
        (&json!({"body": "hi"}), &json!("exact"))
    );
    let diff = run(
        broker.address,
        &["protocols", "diff", "note", "1.0.0", "2.0.0", "--json"],
    );
    let exact = json!({"class": "exact", "steps": 1, "may_lose": []});
    assert_eq!(
        objects(&diff.stdout)[0]["by_lens"],
        json!({"forward": exact, "backward": exact})
    );
    assert_eq!(diff.code, Some(3));

    let line = of_lens("put", &[&lens, "--direction=forward"]).fails_with(1);
    assert!(line.starts_with("protocol_exists: "), "{line}");
    let replaced = of_lens("put", &[&lens, "--direction=forward", "--replace"]).succeeds();
    assert!(replaced.contains("is registered as revision 2"), "{replaced}");
    let line = of_lens(
        "check",
        &[&File::with(&json!([{"op": "drop", "path": "/no"}])).option("lens")],
    )
    .fails_with(1);
    assert!(line.starts_with("invalid_lens: "), "{line}");
    of_lens("remove", &[]).succeeds();
    let line = of_lens("show", &[]).stderr;
    assert!(
        line.contains("no lens; mcp-broker protocols lens put registers one"),
        "{line}"
    );
}
