//! Each command: its request and its output.

use serde_json::{Value, json};

use super::fake_broker::{FakeBroker, KEY, NEW_KEY, acme, key, permission, run};

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
    assert_eq!(asked.line(), "POST /api/v1/projects");
    assert_eq!(asked.header("x-api-key").unwrap(), KEY);
    assert_eq!(asked.header("content-type").unwrap(), "application/json");
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
    assert_eq!(asked.line(), "GET /api/v1/projects");
    assert_eq!(asked.body, b"");
    assert_eq!(
        ran.expect_stdout(),
        "ID           NAME       ACTIVE  CROSS-PROJECT  DISCOVERABLE  TAGS        CREATED\n\
         acme         Acme Corp  yes     yes            no            east, paid  2026-11-20T08:00:00Z\n\
         a-longer-id  Acme Corp  yes     yes            no            -           2026-11-20T08:00:00Z\n"
    );
    let flags = ["project", "list", "--include-inactive", "--tag", "a b", "--tag", "c"];
    let (ran, asked) = FakeBroker::answering_json(&json!({"projects": []})).run_client(&flags);
    assert_eq!(asked.line(), "GET /api/v1/projects?include_inactive=true&tags=a%20b,c");
    assert_eq!(ran.expect_stdout(), "no projects\n");
}

#[test]
fn show_prints_what_the_key_may_see() {
    let counts = json!({"sessions": 3, "active_sessions": 1, "protocols": 2, "dead_letters": 0, "keys": 4});
    let answer = json!({"project": acme(), "counts": counts, "permissions": [permission()]});
    let (ran, asked) = FakeBroker::answering_json(&answer).run_client(&["project", "show", "acme"]);
    assert_eq!(asked.line(), "GET /api/v1/projects/acme");
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
    assert_eq!(asked.line(), "PATCH /api/v1/projects/acme");
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
    assert_eq!(asked.line(), "DELETE /api/v1/projects/acme");
    assert_eq!(
        (&asked.body[..], ran.expect_stdout()),
        (&b""[..], "deleted the project acme\n")
    );
    let (ran, _) = broker().run_client(&["project", "delete", "acme", "--yes", "--json"]);
    assert_eq!(ran.expect_stdout(), "{\"deleted\":true}\n");
}

#[test]
fn keys_are_listed_created_and_revoked() {
    let (ran, asked) =
        FakeBroker::answering_json(&json!({"keys": [key("k1")]})).run_client(&["project", "keys", "acme"]);
    assert_eq!(asked.line(), "GET /api/v1/projects/acme/keys");
    assert_eq!(
        ran.expect_stdout(),
        "KEY ID  LABEL  SCOPE   PERSON  STATUS  CREATED               EXPIRES  LAST USED\n\
         k1      ci     member  -       active  2026-11-20T08:00:00Z  never    never\n"
    );
    let answer = json!({"key": key("k2"), "api_key": NEW_KEY}).to_string();
    let flags = ["--create", "--label", "ci", "--scope", "member", "--expires-in", "30d"];
    let (ran, asked) = FakeBroker::answering_with("201 Created", "", &answer)
        .run_client(&[&["project", "keys", "acme"], &flags[..]].concat());
    assert_eq!(asked.line(), "POST /api/v1/projects/acme/keys");
    assert_eq!(
        asked.json(),
        json!({"label": "ci", "scope": "member", "expires_in_seconds": 2_592_000})
    );
    let text = ran.expect_stdout();
    assert!(
        text.contains(&format!("api key  {NEW_KEY}\n")) && text.contains("it is not shown again"),
        "{text}"
    );
    let mut answering = key("k3");
    answering["scope"] = json!("answer");
    answering["human"] = json!("mara");
    answering["roles"] = json!(["dba", "oncall"]);
    let answer = json!({"key": answering, "api_key": NEW_KEY}).to_string();
    let flags = [
        "--create", "--scope", "answer", "--human", "mara", "--role", "oncall", "--role", "dba",
    ];
    let (ran, asked) = FakeBroker::answering_with("201 Created", "", &answer)
        .run_client(&[&["project", "keys", "acme"], &flags[..]].concat());
    assert_eq!(
        asked.json(),
        json!({"scope": "answer", "human": "mara", "roles": ["oncall", "dba"]})
    );
    let text = ran.expect_stdout();
    assert!(text.contains("person   mara (dba, oncall)\n"), "{text}");
    let answer = json!({"revoked": [{"key_id": "k1", "at": "2026-11-20T10:00:00Z"}]});
    let (ran, asked) = FakeBroker::answering_json(&answer).run_client(&["project", "keys", "acme", "--revoke", "k1"]);
    assert_eq!(asked.line(), "DELETE /api/v1/projects/acme/keys/k1");
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
    assert_eq!(asked.line(), "POST /api/v1/projects/acme/keys/rotate");
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
    assert_eq!(asked.line(), "PUT /api/v1/projects/acme/grants/globex");
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
        assert_eq!(asked.line(), "DELETE /api/v1/projects/acme/grants/globex");
        assert_eq!(ran.expect_stdout(), said);
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
    assert_eq!(asked.line(), "GET /api/v1/audit?project=acme&limit=1");
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
    assert_eq!(asked.line(), "PUT /api/v1/projects/a%2F..%2Fb/grants/%C3%BC%3Fx%23y");
    run(&["project", "show", ".."]).expect_error(2);
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
