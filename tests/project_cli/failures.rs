//! Refusals and broken connections: one line that says what to do.

use std::net::{SocketAddr, TcpListener};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use super::fake_broker::{FakeBroker, KEY, NEW_KEY, client, read, run, run_to_end};

#[test]
fn a_refusal_is_printed_in_one_line_with_the_next_step() {
    for (status, code, line) in [
        (
            "404 Not Found",
            "project_not_found",
            "project_not_found: so it is; mcp-broker project list --include-inactive lists the projects",
        ),
        (
            "409 Conflict",
            "project_exists",
            "project_exists: so it is; choose another id, or change that project",
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
fn a_refusal_for_want_of_rights_is_as_the_broker_words_it() {
    let reason = "this requires a key of scope member";
    let (ran, _) = FakeBroker::answering_problem("403 Forbidden", "forbidden", reason).run_client(&["project", "list"]);
    assert_eq!(ran.expect_error(1), format!("forbidden: {reason}"));
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
    assert!(asked.header("x-api-key").is_none(), "{asked:?}");
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
    assert_eq!(served.join().unwrap().line(), "POST /api/v1/projects/acme/keys/rotate");
    assert!(
        line.expect_error(1)
            .starts_with(&format!("{url} closed the connection before it answered; ")),
        "{line:?}"
    );
}
