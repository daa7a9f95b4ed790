//! HTTP requests as spans, sampling, and what must not be in a span or a log.

use serde_json::{Value, json};

use super::{
    CALLER, CALLER_SPAN, CALLER_TRACE, calls_with_meta,
    collector::Collector,
    note,
    support::{Broker, TIMEOUTS_OFF, eventually},
    traced,
};

const OTHER: &str = "00-11111111111111111111111111111111-2222222222222222-01";

#[test]
fn a_request_over_http_is_the_parent_of_its_call_unless_meta_names_another_trace() {
    let collector = Collector::http();
    let broker = Broker::with_program(traced(&collector), &TIMEOUTS_OFF);
    let alice = broker.http_modern("alice");
    let with_header = alice.with("traceparent", CALLER).with("tracestate", "a=1");
    with_header.calls("heartbeat", json!({}));
    let [request, call] = collector.awaits(CALLER_TRACE, ["POST /mcp", "tools/call heartbeat"]);
    assert_eq!((request.parent.as_str(), &call.parent), (CALLER_SPAN, &request.id));
    assert_eq!(request.attribute("http.response.status_code"), Some("200"));
    assert_eq!((request.state.as_str(), call.state.as_str()), ("a=1", "a=1"));

    let legacy = broker.http_legacy("bob").with("traceparent", CALLER);
    let meta = json!({"traceparent": OTHER});
    let params = json!({"name": "list_sessions", "arguments": {}, "_meta": meta});
    legacy.request("tools/call", params).unwrap();
    legacy.calls("heartbeat", json!({}));
    let [call] = collector.awaits("11111111111111111111111111111111", ["tools/call list_sessions"]);
    assert_eq!(call.parent, "2222222222222222");
    eventually("the call of the HTTP session", || {
        let spans = collector.spans();
        let calls = spans
            .iter()
            .filter(|span| span.trace == CALLER_TRACE && span.name == "tools/call heartbeat");
        (calls.count() == 2).then_some(())
    });
}

#[test]
fn rest_requests_are_spans_by_route_and_probes_are_none() {
    let collector = Collector::http();
    let broker = Broker::secured_with_program(traced(&collector), &TIMEOUTS_OFF);
    assert_eq!(broker.get("/livez").status, 200);
    let headers = [("X-API-Key", crate::support::ADMIN_KEY), ("traceparent", CALLER)];
    broker.rest_with(&headers, "GET", "/api/v1/projects/no-such-one", &Value::Null);
    let [request] = collector.awaits(CALLER_TRACE, ["GET /api/v1/projects/{project_id}"]);
    assert_eq!(request.attribute("http.response.status_code"), Some("404"));
    assert!(collector.spans().iter().all(|span| !span.name.contains("livez")));
}

#[test]
fn the_sampler_decides_for_callers_without_a_trace() {
    for (sampler, argument, expected) in [
        ("parentbased_traceidratio", "0", false),
        ("parentbased_traceidratio", "1", true),
        ("parentbased_always_off", "", false),
        ("always_off", "", false),
    ] {
        let collector = Collector::http();
        let mut program = traced(&collector);
        program
            .env("OTEL_TRACES_SAMPLER", sampler)
            .env("OTEL_TRACES_SAMPLER_ARG", argument);
        let broker = Broker::with_program(program, &TIMEOUTS_OFF);
        let alice = broker.agent("alice");
        let bob = broker.push_agent("bob", &json!({"ack": "auto"}));
        calls_with_meta(&alice, "send_message", note("hi", "bob"), &json!({}));
        let pushed = bob.wire.next_notification("notifications/dev.mcp-broker/message");
        assert_eq!(
            pushed.get("_meta").is_some(),
            expected,
            "{sampler} {argument}: {pushed}"
        );
        if expected {
            eventually("the spans of the message", || {
                let spans = collector.spans();
                spans.iter().any(|span| span.name == "acknowledge").then_some(())
            });
            continue;
        }
        // What a caller records is recorded, except where nothing is.
        let recorded = sampler != "always_off";
        calls_with_meta(
            &alice,
            "send_message",
            note("hi", "bob"),
            &json!({"traceparent": CALLER}),
        );
        let pushed = bob.wire.next_notification("notifications/dev.mcp-broker/message");
        assert_eq!(pushed["_meta"]["traceparent"] == CALLER, !recorded);
        if recorded {
            collector.awaits(CALLER_TRACE, ["accept", "acknowledge"]);
            assert!(collector.spans().iter().all(|span| span.trace == CALLER_TRACE));
        }
        let unsampled = CALLER.replace("-01", "-00");
        calls_with_meta(
            &alice,
            "send_message",
            note("hi", "bob"),
            &json!({"traceparent": unsampled}),
        );
        let pushed = bob.wire.next_notification("notifications/dev.mcp-broker/message");
        assert_eq!(
            pushed["_meta"]["traceparent"], unsampled,
            "{sampler}: handed on as it is"
        );
    }
}

#[test]
fn keys_payloads_and_markup_are_in_no_span_log_or_error() {
    const CANARY: &str = "<script>canary-4711</script>";
    let collector = Collector::http();
    let mut program = traced(&collector);
    program.env("OTEL_EXPORTER_OTLP_HEADERS", "x-collector-key=secret-of-the-collector");
    let flags = [&TIMEOUTS_OFF[..], &["--log-format=json", "--log-level=trace"]].concat();
    let broker = Broker::secured_with_program(program, &flags);
    let tenant = broker.project("team", &json!({}));
    let key = tenant.new_key_with_scope("member");
    let alice = tenant.agent_as(&key, "alice");
    let bob = tenant.push_agent_as(&key, "bob", &json!({"ack": "auto"}));
    let meta = json!({"traceparent": CALLER});
    calls_with_meta(&alice, "send_message", note(CANARY, "bob"), &meta);
    bob.next_push();
    let unknown = json!({"name": CANARY, "arguments": {CANARY: CANARY}, "_meta": meta});
    alice.wire.error_of("tools/call", unknown);
    alice.wire.error_of(CANARY, json!({"_meta": meta}));
    let path = "/api/v1/projects/%3Cscript%3Ecanary-4711%3C%2Fscript%3E?key=canary-4711";
    broker.rest_with(
        &[("X-API-Key", &key), ("traceparent", CALLER)],
        "GET",
        path,
        &Value::Null,
    );
    broker.rest_with(
        &[("X-API-Key", "canary-4711"), ("traceparent", CALLER)],
        "GET",
        path,
        &Value::Null,
    );
    let names = ["accept", "acknowledge", "tools/call", "another method"];
    let [.., unknown_tool, unknown_method] = collector.awaits(CALLER_TRACE, names);
    assert!(unknown_tool.is_failed && unknown_method.is_failed);
    eventually("the requests over HTTP", || {
        let spans = collector.spans();
        let requests = spans
            .iter()
            .filter(|span| span.name == "GET /api/v1/projects/{project_id}");
        (requests.count() == 2).then_some(())
    });
    let secret = key.rsplit('_').next().unwrap();
    assert_eq!(
        collector.header("x-collector-key").as_deref(),
        Some("secret-of-the-collector")
    );
    for text in [
        "canary-4711",
        secret,
        crate::support::ADMIN_KEY,
        "secret-of-the-collector",
    ] {
        assert!(!collector.has_seen(text), "{text} is in a span");
        let log = broker.log();
        let line = log.lines().find(|line| line.contains(text));
        // The path of a request is in the log at level debug.
        let is_path = |line: &&str| line.contains("%3Cscript%3Ecanary-4711") && text == "canary-4711";
        assert_eq!(line.filter(|line| !is_path(line)), None, "{text} is in the log");
    }
}

#[test]
fn a_line_of_the_log_names_its_trace() {
    let collector = Collector::http();
    let flags = [&TIMEOUTS_OFF[..], &["--log-format=json"]].concat();
    let broker = Broker::with_program(traced(&collector), &flags);
    let client = broker.client();
    calls_with_meta(
        &client,
        "register_session",
        json!({"name": "zoe"}),
        &json!({"traceparent": CALLER}),
    );
    let line = eventually("the line of the registration", || {
        let log = broker.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines
            .into_iter()
            .find(|line| line["message"] == "an agent joined" && line["name"] == "zoe")
    });
    let [call] = collector.awaits(CALLER_TRACE, ["tools/call register_session"]);
    assert_eq!(
        (&line["trace_id"], &line["span_id"]),
        (&json!(CALLER_TRACE), &json!(call.id))
    );
}
