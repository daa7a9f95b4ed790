//! A project's share of the time of a worker: what the callers of another project send delays it by one request, not by one
//! of each caller.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use serde_json::{Value, json};

use super::worst_calls::{LARGE, list, message};
use crate::support::{Agent, Broker};

/// Callers that send the most expensive messages that a worker checks.
const CALLERS: usize = 8;
/// Requests that each of them has sent and that are not answered.
const OPEN_REQUESTS: usize = 2;
/// Requests of the other project.
const REQUESTS: usize = 20;
/// Requests of the callers that may be served beside each of these. Without shares there are as many as callers.
const SERVED_BESIDE_MAX: usize = 4;

fn call(id: usize, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"send_message","arguments":{arguments}}}}}"#
    )
}

/// Sends calls and counts their answers until it is to stop.
fn flood(caller: &Agent, served: &AtomicUsize, stops: &AtomicBool) {
    // Refused after it has been checked, so that nothing is stored.
    let arguments = message("note", &format!(r#"{{"text":1,"more":{}}}"#, list("[]", 240_000)));
    (0..OPEN_REQUESTS).for_each(|id| caller.wire.sends_text(&call(id, &arguments)));
    let mut id = 0;
    while !stops.load(Ordering::Relaxed) {
        let refused = caller.wire.answer_to(&json!(id)).unwrap();
        assert_eq!(refused["structuredContent"]["code"], "payload_invalid", "{refused}");
        served.fetch_add(1, Ordering::Relaxed);
        caller.wire.sends_text(&call(id + OPEN_REQUESTS, &arguments));
        id += 1;
    }
}

#[test]
fn a_project_waits_for_one_request_of_another_and_not_for_one_of_each_of_its_callers() {
    let broker = Broker::secured_with(&["--workers=1"]);
    let (many, one) = (broker.project("many", &json!({})), broker.project("one", &json!({})));
    let callers: Vec<_> = (0..CALLERS).map(|at| many.agent(&format!("caller-{at}"))).collect();
    many.agent("bob");
    let alice = one.agent("alice");
    let (served, stops) = (&AtomicUsize::new(0), &AtomicBool::new(false));
    thread::scope(|scope| {
        for caller in callers {
            scope.spawn(move || flood(&caller, served, stops));
        }
        while served.load(Ordering::Relaxed) < 2 * CALLERS {
            thread::yield_now();
        }
        for (surface, asks) in [
            (
                "a WebSocket",
                &(|| drop(alice.calls("heartbeat", json!({})))) as &dyn Fn(),
            ),
            ("REST", &|| {
                let answer = broker.rest(&one.key, "GET", "/api/v1/stats", &Value::Null);
                assert_eq!(answer.status, 200, "{answer:?}");
            }),
        ] {
            let before = served.load(Ordering::Relaxed);
            (0..REQUESTS).for_each(|_| asks());
            let beside = served.load(Ordering::Relaxed) - before;
            assert!(
                beside <= REQUESTS * SERVED_BESIDE_MAX,
                "{beside} requests of {CALLERS} callers were served beside {REQUESTS} of another project by {surface}"
            );
        }
        stops.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_large_message_is_checked_beside_the_worker_and_keeps_its_place() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let large = format!(r#"{{"text":"large","more":"{}"}}"#, "\\n".repeat(LARGE / 4));
    let payloads = [r#"{"text":"before"}"#, &large, r#"{"text":"after"}"#, r#"{"text":1}"#];
    for (id, payload) in payloads.iter().enumerate() {
        alice.wire.sends_text(&call(id, &message("note", payload)));
    }
    let large_invalid = format!(r#"{{"text":1,"more":"{}"}}"#, "x".repeat(LARGE));
    alice
        .wire
        .sends_text(&call(payloads.len(), &message("note", &large_invalid)));
    let answers: Vec<Value> = (0..=payloads.len())
        .map(|id| alice.wire.answer_to(&json!(id)).unwrap())
        .collect();
    for (at, answer) in answers.iter().enumerate() {
        let is_error = answer["isError"].as_bool().unwrap_or_default();
        assert_eq!(is_error, at >= 3, "{at}: {}", answer["structuredContent"]);
    }
    bob.sees(["before", "large", "after"]);
}
