//! What is refused to those who add backends: commands, secrets of the broker, what is too large, and callers without the
//! scope.

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan},
    scripted_server::{Answer, ScriptedServer},
    support::{ADMIN_KEY, broker_program, eventually},
};

fn problem(gateway: &Gateway, table: &Value) -> (u16, String) {
    gateway.asks_backends("POST", "", table).problem()
}

#[test]
fn a_table_that_is_wrong_or_not_allowed_is_refused_with_its_reason() {
    let gateway = Gateway::with_fake(&[]);
    for (table, code, reason) in [
        (json!({"url": "http://a"}), "400 invalid_argument", "name: required"),
        (
            json!({"name": "A", "url": "http://a"}),
            "400 invalid_argument",
            "1 to 32",
        ),
        (
            json!({"name": "mcp", "url": "http://a"}),
            "400 invalid_argument",
            "reserved",
        ),
        (json!({"name": "x"}), "400 invalid_argument", "a command or a url"),
        (
            json!({"name": "x", "url": 1}),
            "400 invalid_argument",
            "url: must be a string",
        ),
        (
            json!({"name": "x", "url": "http://a", "foo": 1}),
            "400 invalid_argument",
            "`foo` is not known",
        ),
        (
            json!({"name": "x", "url": "http://a/${HOME}"}),
            "400 invalid_argument",
            "environment",
        ),
        (
            json!({"name": "x", "url": "http://a", "headers": {"K": "${SECRET_OF_THE_BROKER}"}}),
            "400 invalid_argument",
            "headers.K",
        ),
        (
            json!({"name": "x", "url": "http://a", "headers": {"K": "a\r\nInjected: b"}}),
            "400 invalid_argument",
            "no header may have",
        ),
        (
            json!({"name": "x", "command": "sh"}),
            "403 command_not_allowed",
            "gateway_commands",
        ),
        (
            json!({"name": "fake", "url": "http://a"}),
            "409 backend_exists",
            "exists already",
        ),
    ] {
        let refused = gateway.asks_backends("POST", "", &table);
        let (status, found) = refused.problem();
        assert_eq!(format!("{status} {found}"), code, "{table}: {refused:?}");
        assert!(refused.body.contains(reason), "{table}: {refused:?}");
    }
    assert_eq!(
        gateway.get("/api/v1/backends").json()["backends"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    for (method, path) in [
        ("PUT", "/none"),
        ("PATCH", "/none"),
        ("DELETE", "/none"),
        ("POST", "/NONE/enable"),
    ] {
        let body = if path == "/none" && method != "DELETE" {
            json!({"url": "http://a"})
        } else {
            Value::Null
        };
        let refused = gateway.asks_backends(method, path, &body).problem();
        assert_eq!(refused, (404, "backend_not_found".to_owned()), "{method} {path}");
    }
}

#[test]
fn a_change_cannot_make_an_added_url_a_command() {
    let gateway = Plan::new().start();
    gateway.adds("docs", json!({"url": "http://localhost:9/mcp", "disabled": true}));
    let command = json!({"url": null, "command": "sh"});
    let refused = gateway.asks_backends("PATCH", "/docs", &command).problem();
    assert_eq!(refused, (403, "command_not_allowed".to_owned()));
    let refused = gateway
        .asks_backends("PUT", "/docs", &json!({"command": "sh"}))
        .problem();
    assert_eq!(refused, (403, "command_not_allowed".to_owned()));
    let secret = json!({"headers": {"K": "${SECRET_OF_THE_BROKER}"}});
    let refused = gateway.asks_backends("PATCH", "/docs", &secret).problem();
    assert_eq!(refused, (400, "invalid_argument".to_owned()));
    let shown = gateway.get("/api/v1/backends/docs").json();
    assert_eq!(shown["address"], "http://localhost:9/mcp");
}

#[test]
fn added_backends_are_bounded_in_bytes_and_number() {
    let gateway = Plan::new().start();
    let table = |name: &str, len: usize| json!({"name": name, "url": "http://localhost:9", "disabled": true, "headers": {"K": "x".repeat(len)}});
    // The members of the table beside the value.
    let rest = json!({"url": "http://localhost:9", "disabled": true, "headers": {"K": ""}})
        .to_string()
        .len();
    let largest = 16 * 1024 - rest;
    assert_eq!(
        problem(&gateway, &table("large", largest + 1)),
        (413, "payload_too_large".to_owned())
    );
    gateway.adds("large", table("large", largest));
    let longer = json!({"headers": {"L": ""}});
    let refused = gateway.asks_backends("PATCH", "/large", &longer).problem();
    assert_eq!(refused, (413, "payload_too_large".to_owned()));
    for number in 1..200 {
        gateway.adds(&format!("b{number}"), table("", 0));
    }
    let refused = gateway.asks_backends("POST", "", &table("more", 0));
    assert_eq!(refused.problem(), (403, "forbidden".to_owned()));
    assert!(refused.body.contains("200 added backends"), "{refused:?}");
}

#[test]
fn only_administrators_change_backends_of_their_own_project_and_it_is_audited() {
    let gateway = Plan::new().start_secured();
    let (team, other) = (
        gateway.project("team", &json!({})),
        gateway.project("other", &json!({})),
    );
    let docs = json!({"name": "docs", "url": "http://localhost:9/mcp", "disabled": true});
    let ask = |key: &str, method: &str, path: &str, body: &Value| {
        gateway.rest(key, method, &format!("/api/v1/backends{path}"), body)
    };
    for scope in ["observer", "member"] {
        let key = team.new_key_with_scope(scope);
        for (method, path, body) in [
            ("POST", "", &docs),
            ("PUT", "/docs", &json!({"url": "http://localhost:9"})),
            ("PATCH", "/docs", &json!({})),
            ("DELETE", "/docs", &Value::Null),
            ("POST", "/docs/enable", &Value::Null),
            ("POST", "/docs/disable", &Value::Null),
        ] {
            let refused = ask(&key, method, path, body).problem();
            assert_eq!(refused, (403, "forbidden".to_owned()), "{scope} {method} {path}");
        }
    }
    assert_eq!(ask(&team.key, "POST", "", &docs).status, 201);
    assert_eq!(ask(&other.key, "GET", "/docs", &Value::Null).status, 404);
    assert_eq!(ask(&other.key, "DELETE", "/docs", &Value::Null).status, 404);
    assert_eq!(ask(&team.key, "POST", "/docs/enable", &Value::Null).status, 200);
    assert_eq!(ask(&team.key, "PATCH", "/docs", &json!({"disabled": true})).status, 200);
    assert_eq!(ask(&team.key, "DELETE", "/docs", &Value::Null).status, 204);
    let audit = gateway
        .rest(ADMIN_KEY, "GET", "/api/v1/audit?project=team", &Value::Null)
        .json();
    let done: Vec<_> = audit["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["outcome"] == "done" && entry["target"] == "docs")
        .map(|entry| entry["action"].as_str().unwrap())
        .collect();
    assert_eq!(
        done,
        ["backend.remove", "backend.change", "backend.enable", "backend.add"],
        "{audit}"
    );
}

#[test]
fn a_stored_command_is_not_run_once_administrators_may_add_none() {
    let plan = Plan::new().flag("--storage=disk");
    let data = format!("--data-dir={}", plan.file("data"));
    let mut gateway = plan.flag(&data).flag("--gateway-commands=admin").start();
    gateway.adds("fake", gateway.fake_table(&[]));
    gateway.legacy().gets("fake__echo", json!({}));
    gateway.has_flag("--gateway-commands=configured");
    gateway.restarts(|_| ());
    assert_eq!(gateway.get("/api/v1/backends").json(), json!({"backends": []}));
    eventually("the log says why", || {
        let log = gateway.log();
        let mut lines = log.lines();
        lines
            .any(|line| line.contains("an added backend is not served") && line.contains("gateway_commands"))
            .then_some(())
    });
    assert_eq!(gateway.programs(), Vec::<u32>::new());
    let command = gateway.fake_table(&[]);
    assert_eq!(gateway.asks_backends("PUT", "/fake", &command).problem().0, 403);
    assert_eq!(gateway.asks_backends("DELETE", "/fake", &Value::Null).status, 204);
}

#[test]
fn without_commands_a_file_that_has_one_is_refused() {
    let plan = Plan::new().backend("fake", &[]);
    let (file, _) = plan.written();
    let output = broker_program()
        .args(["serve", "--port=0", "--gateway-commands=none", "--config", &file])
        .output()
        .unwrap();
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(
        line.contains("backends.fake") && line.contains("command: gateway_commands is none"),
        "{line}"
    );

    let plan = Plan::new().url("docs", "http://localhost:9", "disabled = true");
    let gateway = plan.flag("--gateway-commands=none").start();
    gateway.is_configured(|plan| plan.backend("fake", &[]));
    eventually("the file is refused", || {
        let health = gateway.get("/health").json();
        health["config_error"]
            .as_str()?
            .contains("gateway_commands is none")
            .then_some(())
    });
    let shown = gateway.get("/api/v1/backends").json();
    assert_eq!(shown["backends"][0]["name"], "docs", "the old file stays in force");
}

#[test]
fn an_added_url_shows_nobody_what_is_there() {
    const SECRET: &str = "the-secret-of-an-internal-page";
    let gateway = Plan::new().start();
    let answers = [
        Answer::status("500 Internal Server Error", SECRET),
        Answer::status("403 Forbidden", SECRET),
        Answer::status("200 OK", SECRET),
        Answer::Http(
            "200 OK",
            vec!["Content-Type: application/json".to_owned()],
            format!("{{\"secret\": \"{SECRET}\"}}"),
        ),
        Answer::Http(
            "400 Bad Request",
            vec!["Content-Type: application/json".to_owned()],
            format!("{{\"error\": {{\"code\": 1, \"message\": \"{SECRET}\"}}}}"),
        ),
        Answer::Http(
            "302 Found",
            vec![format!("Location: http://127.0.0.1:1/{SECRET}")],
            String::new(),
        ),
        Answer::EventsThenEnd(vec![format!("data: {SECRET}\n\n")]),
    ];
    for (at, answer) in answers.into_iter().enumerate() {
        let server = ScriptedServer::start(move |_, _| answer.clone());
        let name = format!("page-{at}");
        gateway.adds(&name, json!({"url": server.url(), "headers": {"X-Chosen": "1"}}));
        let shown = eventually("the backend was asked", || {
            let shown = gateway.asks_backends("GET", &format!("/{name}"), &Value::Null).json();
            shown["reason"].is_string().then_some(shown)
        });
        assert!(!shown.to_string().contains(SECRET), "{shown}");
        let log = gateway
            .asks_backends("GET", &format!("/{name}/log"), &Value::Null)
            .json();
        assert!(!log.to_string().contains(SECRET), "{log}");
        let answer = gateway.legacy().result_of(&format!("{name}__x"), json!({}));
        assert!(!format!("{answer:?}").contains(SECRET), "{answer:?}");
    }
}

#[test]
fn an_added_url_does_not_lead_to_a_link_local_address() {
    let gateway = Plan::new().start();
    for url in [
        "http://169.254.169.254/latest/meta-data/",
        "http://[fe80::1]/mcp",
        "http://[::ffff:169.254.169.254]/mcp",
        "ws://169.254.1.1/ws",
    ] {
        let (status, code) = problem(&gateway, &json!({"name": "x", "url": url}));
        assert_eq!((status, code.as_str()), (400, "invalid_argument"), "{url}");
    }
    // A name may lead there, and the resolver of the system reads a number as an address.
    gateway.adds("number", json!({"url": "http://2852039166/mcp"}));
    eventually("it is refused", || {
        let shown = gateway.asks_backends("GET", "/number", &Value::Null).json();
        shown["reason"].as_str()?.contains("link-local").then_some(())
    });
}
