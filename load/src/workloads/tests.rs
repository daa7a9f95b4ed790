//! Runs every workload against a small broker, correct and with defects.

use std::time::Duration;

use clap::Parser;
use serde_json::Value;

use super::*;
use crate::fake::{self, Defect};

fn bench(defect: Defect) -> RunContext {
    RunContext {
        targets: vec![Target::parse(&fake::start(defect), &[]).unwrap()],
        server: Servers::default(),
        store: Servers::default(),
        seconds: Duration::from_millis(150),
        warm_up: Duration::from_millis(20),
        size: 400,
        names: "test".into(),
        lenses: Lenses::None,
        stall: Duration::from_millis(400),
    }
}

#[derive(Parser)]
struct Line<O: clap::Args> {
    #[command(flatten)]
    options: O,
}

fn options<O: clap::Args>(line: &str) -> O {
    Line::parse_from(std::iter::once("load").chain(line.split_whitespace())).options
}

fn direct(defect: Defect, line: &str) -> Result<Report> {
    direct::run(&bench(defect), &options(line))
}

fn expect_sound(report: &Report) -> Value {
    assert_eq!(report.problems(), [""; 0]);
    let json = report.json();
    assert_eq!(json["lost"], 0, "{json}");
    json
}

#[test]
fn direct_measures_in_a_closed_loop() {
    for line in [
        "--pairs 1 --window 1",
        "--pairs 3 --window 8",
        "--pairs 2 --window 40 --ack manual --push-window 4",
    ] {
        let json = expect_sound(&direct(Defect::None, line).unwrap());
        assert!(json["messages"].as_u64().unwrap() > 0, "{json}");
        assert!(json["delivery_us"]["p50"].as_f64().unwrap() > 0.0, "{json}");
    }
}

#[test]
fn direct_keeps_the_rate_of_an_open_loop() {
    let json = expect_sound(&direct(Defect::None, "--pairs 2 --rate 400").unwrap());
    let messages = json["messages"].as_u64().unwrap();
    assert!((1..=90).contains(&messages), "150 ms at 400 per second: {json}");
}

#[test]
fn a_lost_message_is_reported() {
    let report = direct(Defect::Loses(5), "--pairs 1 --window 4").unwrap();
    assert_eq!(report.json()["lost"], 1);
    assert_eq!(report.problems(), ["direct: 1 lost", "direct: 1 out of order"]);
}

#[test]
fn a_changed_order_is_reported() {
    let report = direct(Defect::Swaps(5), "--pairs 1 --window 4").unwrap();
    assert_eq!(report.problems(), ["direct: 2 out of order"]);
}

#[test]
fn changed_content_is_reported() {
    let report = direct(Defect::Corrupts(5), "--pairs 1 --window 4").unwrap();
    assert!(
        report.problems().contains(&"direct: 1 corrupt".to_owned()),
        "{:?}",
        report.problems()
    );
}

#[test]
fn a_repeated_delivery_is_counted_and_is_no_fault() {
    assert_eq!(
        expect_sound(&direct(Defect::Repeats(5), "--pairs 1").unwrap())["repeated"],
        1
    );
}

#[test]
fn a_refusal_ends_the_run_with_the_text_of_the_server() {
    let error = direct(Defect::Refuses(5), "--pairs 1").err().unwrap();
    assert!(error.to_string().contains("queue_full"), "{error}");
}

#[test]
fn a_stalled_server_ends_the_run() {
    let mut bench = bench(Defect::Stalls(5));
    bench.seconds = Duration::from_mins(1);
    let error = direct::run(&bench, &options("--pairs 1 --window 2")).err().unwrap();
    assert!(matches!(error, LoadError::Stalled { .. }), "{error}");
}

#[test]
fn an_unreachable_server_is_an_error() {
    let mut bench = bench(Defect::None);
    bench.targets = vec![Target::parse("ws://127.0.0.1:1/ws", &[]).unwrap()];
    let error = direct::run(&bench, &options("")).err().unwrap();
    assert!(matches!(error, LoadError::Connect { .. }), "{error}");
}

#[test]
fn a_broadcast_reaches_every_subscriber() {
    for line in [
        "--subscribers 10",
        "--subscribers 5 --window 4 --ack manual --push-window 2",
    ] {
        let json = expect_sound(&broadcast::run(&bench(Defect::None), &options(line)).unwrap());
        let (messages, deliveries) = (json["messages"].as_u64().unwrap(), json["deliveries"].as_u64().unwrap());
        assert!(messages > 0 && deliveries >= messages, "{json}");
    }
}

#[test]
fn a_subscriber_without_a_broadcast_is_reported() {
    let report = broadcast::run(&bench(Defect::Loses(7)), &options("--subscribers 5")).unwrap();
    assert_eq!(report.problems(), ["broadcast: 1 lost"]);
}

#[test]
fn idle_connections_stay_open() {
    let json = idle::run(&bench(Defect::None), &options("--connections 70"))
        .unwrap()
        .json();
    assert_eq!(json["connections"], 70);
}

#[test]
fn offline_recipients_receive_everything_in_order() {
    for line in [
        "--recipients 5 --each 30 --senders 2 --window 7",
        "--recipients 2 --each 30 --senders 3 --ack manual --push-window 4",
    ] {
        let json = expect_sound(&offline::run(&bench(Defect::None), &options(line)).unwrap());
        assert_eq!(json["not_resumed"], 0);
    }
    let report = offline::run(
        &bench(Defect::Loses(3)),
        &options("--recipients 1 --each 10 --senders 1"),
    )
    .unwrap();
    assert_eq!(report.problems(), ["offline: 1 lost", "offline: 1 out of order"]);
}

#[test]
fn latency_reports_a_row_for_each_promise() {
    let json = expect_sound(&latency::run(&bench(Defect::None), &options("--count 10 --subscribers 5")).unwrap());
    let targets: Vec<f64> = json["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|r| r["p99_target_us"].as_f64())
        .collect();
    assert_eq!(targets, [100_000.0, 500_000.0, 50_000.0, 20_000.0, 30_000.0]);
    assert!(
        json["rows"]
            .as_array()
            .unwrap()
            .iter()
            .all(|row| row["samples"].as_u64() > Some(0)),
        "{json}"
    );
}

#[test]
fn growth_compares_its_steps() {
    let json = expect_sound(&growth::run(&bench(Defect::None), &options("--steps 1,20 --rounds 1")).unwrap());
    assert_eq!(json["rows"].as_array().unwrap().len(), 4);
    assert!(json["cost_ratio_sessions"].as_f64().unwrap() > 0.0);
    assert!(growth::run(&bench(Defect::None), &options("--steps 20,1")).is_err());
}

#[test]
fn every_client_is_back_after_a_storm() {
    let json = expect_sound(&storm::run(&bench(Defect::None), &options("--connections 40")).unwrap());
    assert_eq!((&json["messages"], &json["not_resumed"]), (&40.into(), &0.into()));
}
