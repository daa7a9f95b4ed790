//! `/metrics` as scrapers see it: what it counts, in which formats, for whom, and how large it can become.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
};

use serde_json::json;

use crate::support::{ADMIN_KEY, Broker, Request, Response, eventually, promtool::promtool};

const TOKEN: &str = "a-token-for-scrapers-alone";

/// A folder of this process for a token; removed on drop.
struct TokenFile(std::path::PathBuf);

impl TokenFile {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mcp-broker-{}-{name}", std::process::id()));
        fs::write(&path, format!("{TOKEN}\n")).unwrap();
        Self(path)
    }

    fn flag(&self) -> String {
        format!("--metrics-token-file={}", self.0.display())
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn scrape(broker: &Broker) -> String {
    let answer = broker.get("/metrics");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

/// The value of a series, as it is written.
fn value_of(text: &str, series: &str) -> Option<f64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

fn scrape_with(broker: &Broker, headers: &[(&str, &str)]) -> Response {
    let request = Request::get(broker.address).with_path("/metrics");
    let request = headers
        .iter()
        .fold(request, |request, (name, value)| request.with(name, *value));
    request.answered()
}

#[test]
fn messages_are_counted_where_they_come_past() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let before = scrape(&broker);
    assert_eq!(
        value_of(&before, "mcp_broker_messages_accepted_total{project=\"default\"}"),
        Some(0.0)
    );
    for text in ["one", "two", "three"] {
        alice.sends(text).to(&bob);
    }
    bob.reads(json!({"limit": 2, "acknowledge": "immediate"}));
    let text = eventually("two messages are acknowledged", || {
        let text = scrape(&broker);
        let acknowledged = value_of(&text, "mcp_broker_messages_acknowledged_total{project=\"default\"}");
        (acknowledged == Some(2.0)).then_some(text)
    });
    for (series, value) in [
        ("mcp_broker_messages_received_total{project=\"default\"}", 3.0),
        ("mcp_broker_messages_accepted_total{project=\"default\"}", 3.0),
        ("mcp_broker_messages_enqueued_total{project=\"default\"}", 3.0),
        ("mcp_broker_messages_delivered_total{project=\"default\"}", 2.0),
        ("mcp_broker_messages_refused_total{project=\"default\"}", 0.0),
        ("mcp_broker_accept_seconds_count", 3.0),
        ("mcp_broker_deliver_seconds_count", 2.0),
        ("mcp_broker_sessions{project=\"default\",state=\"active\"}", 2.0),
        ("mcp_broker_connections{transport=\"websocket\"}", 3.0),
        ("mcp_broker_ready", 1.0),
        ("mcp_broker_projects", 1.0),
    ] {
        let found = value_of(&text, series);
        // The client that registered the protocol may be connected or not.
        let is_as_expected = found == Some(value) || (series.contains("websocket") && found == Some(value - 1.0));
        assert!(is_as_expected, "{series}: {found:?}\n{text}");
    }
    assert!(value_of(&text, "mcp_broker_process_cpu_seconds_total").unwrap() > 0.0);
    assert!(value_of(&text, "mcp_broker_process_resident_memory_bytes").unwrap() > 1e6);
}

#[test]
fn dead_letters_are_counted_by_reason() {
    let broker = Broker::start_with(&["--delivery-limit=1", "--queue-capacity=2"]);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    alice.sends("one").to(&bob);
    alice.sends("two").to(&bob);
    alice.sends("three").fails_as("queue_full", &bob);
    bob.reads(json!({"limit": 1, "acknowledge": "manual"}));
    drop(bob);
    let series = "mcp_broker_messages_dead_lettered_total{project=\"default\",reason=\"delivery_limit\"}";
    let text = eventually("the message is a dead letter", || {
        let text = scrape(&broker);
        (value_of(&text, series) == Some(1.0)).then_some(text)
    });
    assert_eq!(
        value_of(&text, "mcp_broker_messages_refused_total{project=\"default\"}"),
        Some(1.0)
    );
}

#[test]
#[ignore = "needs promtool: scripts/test installs it"]
fn prometheus_accepts_the_text() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    alice.sends("hi").to(&bob);
    promtool(&["check", "metrics"], &scrape(&broker));
}

#[test]
fn scrapers_that_prefer_protobuf_get_native_histograms() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    alice.sends("hi").to(&bob);
    let delimited = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    let accept = format!("{delimited};q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2");
    let mut socket = broker.socket();
    let head = format!(
        "GET /metrics HTTP/1.1\r\nHost: {}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n",
        broker.address
    );
    socket.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(head.contains("content-type: application/vnd.google.protobuf"), "{head}");
    // Each family is preceded by its length, and begins with its name (field 1).
    let (mut rest, mut families) = (&answer[end + 4..], Vec::new());
    while !rest.is_empty() {
        let family = take_delimited(&mut rest);
        let mut family = &family[1..];
        families.push(String::from_utf8(take_delimited(&mut family).to_vec()).unwrap());
    }
    for name in ["mcp_broker_messages_accepted_total", "mcp_broker_accept_seconds"] {
        assert!(families.iter().any(|family| family == name), "{families:?}");
    }
    let text = scrape_with(&broker, &[("Accept", "text/plain")]);
    assert!(
        text.header("content-type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
}

/// Takes a length (a varint) and as many bytes.
fn take_delimited<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let (mut len, mut shift) = (0, 0);
    loop {
        let byte = rest[0];
        *rest = &rest[1..];
        len |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    let (taken, left) = rest.split_at(len);
    *rest = left;
    taken
}

#[test]
fn metrics_are_for_the_operator_and_for_scrapers() {
    let file = TokenFile::new("metrics-token");
    let broker = Broker::secured_with(&[&file.flag()]);
    let team = broker.project("team", &json!({}));
    let status = |key: &str| scrape_with(&broker, &[("Authorization", &format!("Bearer {key}"))]).status;
    assert_eq!(broker.get("/metrics").status, 401);
    assert_eq!(status(ADMIN_KEY), 200);
    assert_eq!(status(TOKEN), 200);
    assert_eq!(status("a-token-for-scrapers-alonE"), 401);
    assert_eq!(status(&team.key), 403);
    // The token opens nothing else.
    let other = Request::get(broker.address).with_path("/api/v1/tree");
    assert_eq!(
        other.with("Authorization", format!("Bearer {TOKEN}")).answered().status,
        401
    );
    fs::write(&file.0, "another-token-for-scrapers\n").unwrap();
    assert_eq!((status(TOKEN), status("another-token-for-scrapers")), (401, 200));
}

#[test]
fn a_port_of_their_own_serves_metrics_and_nothing_else() {
    let broker = Broker::start_with(&["--metrics-port=0"]);
    let address = eventually("the log names the port", || {
        let log = broker.log();
        let line = log
            .lines()
            .find_map(|line| line.split_once("the metrics are at http://"))?
            .1;
        line.split_once("/metrics").map(|(address, _)| address.parse().unwrap())
    });
    // A scraper addresses a pod by its IP.
    let get = |path: &str| {
        Request::get(address)
            .with_path(path)
            .with("Host", "10.0.0.7:9000")
            .answered()
    };
    let answer = get("/metrics");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.contains("mcp_broker_build_info"));
    for path in ["/", "/health", "/mcp", "/api/v1/tree", "/openapi.json"] {
        assert_eq!(get(path).status, 404, "{path}");
    }
    assert_eq!(broker.get("/metrics").status, 404);
}

#[test]
fn a_bad_token_file_ends_the_start_with_a_reason() {
    let file = TokenFile::new("short-token");
    fs::write(&file.0, "short\n").unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_mcp-broker"))
        .args(["serve", "--port=0", &file.flag()])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("metrics") && text.contains("16 to 4096"), "{text}");
}

/// The series of a scrape without their values.
fn series_of(text: &str) -> BTreeMap<String, usize> {
    // The sampler adds these after up to ten seconds.
    const SAMPLED: [&str; 2] = ["mcp_broker_dead_letters", "mcp_broker_stored_bytes"];
    let mut families = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap().to_owned();
        if !SAMPLED.contains(&name.as_str()) {
            *families.entry(name).or_insert(0) += 1;
        }
    }
    families
}

#[test]
fn names_that_clients_choose_make_no_series() {
    let broker = Broker::start();
    let client = broker.client();
    let random = |at: u64| format!("n{:x}", at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let call = |at: u64| {
        let name = random(at);
        let _ = broker.get(&format!("/{name}/{name}?{name}"));
        let _ = Request::get(broker.address)
            .with_method(&name.to_uppercase())
            .with_path(&format!("/api/v1/{name}"))
            .with("X-Project-ID", &name)
            .answered();
        client.is_refused(
            "send_message",
            json!({
                "recipient_id": name, "protocol_name": name, "protocol_version": "1.0.0", "payload": {},
            }),
        );
        client.calls("register_session", json!({"name": name}));
    };
    (0..5).for_each(call);
    // A scrape is a request itself.
    scrape(&broker);
    let before = series_of(&scrape(&broker));
    (5..100).for_each(call);
    let text = scrape(&broker);
    assert_eq!(series_of(&text), before);
    assert!((0..100).all(|at| !text.contains(&random(at))));
}

#[test]
fn a_scrape_of_many_projects_is_short() {
    let broker = Broker::secured();
    let projects = 60;
    for at in 0..projects {
        let id = format!("a-project-with-a-name-of-common-length-{at}");
        let project = json!({"project_id": id, "name": id});
        let answer = broker.rest(ADMIN_KEY, "POST", "/api/v1/projects", &project);
        assert!([200, 201].contains(&answer.status), "{answer:?}");
    }
    let answer = scrape_with(&broker, &[("X-API-Key", ADMIN_KEY)]);
    let text = answer.body;
    let named = text
        .lines()
        .filter(|line| line.starts_with("mcp_broker_messages_accepted_total{"))
        .count();
    assert_eq!(named, 51, "50 projects by name and the others together");
    assert!(text.contains("mcp_broker_messages_accepted_total{project=\"_other\"}"));
    // A number of eight digits instead of one in each line.
    let longest = text.len() + 7 * text.lines().count();
    assert!(longest < 200_000, "{} bytes, with long numbers {longest}", text.len());
}
