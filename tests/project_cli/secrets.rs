//! Where the key comes from, and where it must not go.

use std::{io::ErrorKind, net::TcpListener};

use serde_json::json;

use super::fake_broker::{FakeBroker, KEY, client, file, run, run_to_end};

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
        (ran.expect_stdout(), asked.header("x-api-key").unwrap()),
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
        assert_eq!(asked.header("x-api-key").unwrap(), KEY, "{flags:?} {env:?}");
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
