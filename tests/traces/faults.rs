//! Collectors that are down, hang or are named wrongly: the broker works on, counts what is lost, and stops in time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    CALLER, CALLER_TRACE, calls_with_meta,
    collector::Collector,
    note,
    support::{Broker, TIMEOUTS_OFF, broker_program, eventually},
    traced,
};

fn lines(broker: &Broker, message: &str) -> Vec<Value> {
    let log = broker.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter(|line| line["message"].as_str().is_some_and(|text| text.starts_with(message)))
        .collect()
}

#[test]
fn a_collector_that_is_down_or_hangs_costs_spans_and_nothing_else() {
    for collector in [
        Collector::absent(false),
        Collector::absent(true),
        Collector::hanging(false),
        Collector::hanging(true),
    ] {
        let mut program = traced(&collector);
        program
            .env("OTEL_EXPORTER_OTLP_TIMEOUT", "500")
            .env("OTEL_BSP_MAX_QUEUE_SIZE", "64")
            .env("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16");
        let flags = [&TIMEOUTS_OFF[..], &["--log-format=json", "--shutdown-grace=20s"]].concat();
        let mut broker = Broker::with_program(program, &flags);
        let alice = broker.agent("alice");
        let bob = broker.push_agent("bob", &json!({"ack": "auto"}));
        for _ in 0..100 {
            calls_with_meta(
                &alice,
                "send_message",
                note("hi", "bob"),
                &json!({"traceparent": CALLER}),
            );
            bob.is_pushed(["hi"]);
        }
        eventually("the log says that spans are dropped", || {
            lines(&broker, "spans were dropped").pop()
        });
        drop((alice, bob));
        let stopping = Instant::now();
        broker.terminate();
        assert!(broker.wait_for_exit().success());
        assert!(
            stopping.elapsed() < Duration::from_secs(20),
            "the end takes no longer than the grace"
        );
        let lost = lines(&broker, "spans were lost").pop().unwrap();
        assert!(lost["dropped"].as_u64().unwrap() > 100, "{lost}");
        assert!(
            lines(&broker, "spans were dropped").len() <= 2,
            "it is said once a minute"
        );
    }
}

#[test]
fn queued_spans_are_sent_before_the_process_ends() {
    let collector = Collector::grpc();
    let mut program = traced(&collector);
    program.env("OTEL_BSP_SCHEDULE_DELAY", "3600000");
    let mut broker = Broker::with_program(program, &TIMEOUTS_OFF);
    let alice = broker.agent("alice");
    calls_with_meta(&alice, "heartbeat", json!({}), &json!({"traceparent": CALLER}));
    assert!(collector.spans().is_empty());
    drop(alice);
    broker.terminate();
    assert!(broker.wait_for_exit().success());
    collector.awaits(CALLER_TRACE, ["tools/call heartbeat"]);
}

#[test]
fn wrong_variables_are_named_and_never_keep_the_broker_from_starting() {
    let collector = Collector::http();
    let mut program = traced(&collector);
    program
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "smoke signals")
        .env("OTEL_TRACES_SAMPLER", "sometimes")
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "soon");
    let flags = [&TIMEOUTS_OFF[..], &["--log-format=json"]].concat();
    let broker = Broker::with_program(program, &flags);
    let named: Vec<_> = lines(&broker, "the value of this variable")
        .iter()
        .map(|line| line["variable"].as_str().unwrap().to_owned())
        .collect();
    let expected = [
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "OTEL_EXPORTER_OTLP_TIMEOUT",
        "OTEL_TRACES_SAMPLER",
    ];
    assert_eq!(named, expected);

    let mut program = broker_program();
    program
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:hunter2@[wrong")
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let broker = Broker::with_program(program, &flags);
    let reason = lines(&broker, "traces stay off").pop().unwrap();
    assert!(
        reason["reason"]
            .as_str()
            .unwrap()
            .contains("OTEL_EXPORTER_OTLP_ENDPOINT"),
        "{reason}"
    );
    assert!(!broker.log().contains("hunter2"));

    let mut program = traced(&collector);
    program.env("OTEL_SDK_DISABLED", "true");
    let broker = Broker::with_program(program, &flags);
    calls_with_meta(
        &broker.agent("alice"),
        "heartbeat",
        json!({}),
        &json!({"traceparent": CALLER}),
    );
    assert_eq!(lines(&broker, "traces are on"), [Value::Null; 0]);
}
