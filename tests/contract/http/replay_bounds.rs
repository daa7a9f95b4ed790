//! The events kept for resuming HTTP streams are bounded per project and per session: the oldest are dropped first.

use serde_json::{Value, json};

use super::EVENTS_FIRST;
use crate::support::{Broker, HttpAgent, ResponseReader, Tenant};

/// Bytes of one answer: large enough to fill the bound soon, small enough to be kept.
const DESCRIPTION_LEN: usize = 90_000;

/// Number of answers that are kept for one session.
const STREAMS: usize = 16;

/// Registers a protocol whose description makes answers long.
fn register_long_protocol(team: &Tenant<'_>) {
    let schema = json!({"type": "object", "description": "x".repeat(DESCRIPTION_LEN)});
    team.client().calls(
        "register_protocol",
        json!({"name": "long", "version": "1.0.0", "schema": schema}),
    );
}

/// Reads a long answer as a stream. Returns the id of its first event.
fn read_long_answer(caller: &HttpAgent) -> String {
    let arguments = json!({"name": "long", "include_schema": true});
    let mut reply = caller
        .call("discover_protocols", arguments)
        .with("Accept", EVENTS_FIRST)
        .sent()
        .streams();
    let first = reply.next_event().unwrap().id.unwrap();
    reply.answer_to(&json!(1)).unwrap();
    first
}

fn resume(caller: &HttpAgent, last: &str) -> ResponseReader {
    caller.stream_request().with("Last-Event-ID", last).sent()
}

fn assert_kept(caller: &HttpAgent, first: &str) {
    let answer: Result<Value, Value> = resume(caller, first).streams().answer_to(&json!(1));
    assert_eq!(answer.unwrap()["structuredContent"]["protocols"][0]["name"], "long");
}

fn assert_gone(caller: &HttpAgent, first: &str) {
    let response = resume(caller, first).into_response();
    assert_eq!(response.refusal(), (410, -32600), "{response:?}");
    assert!(response.body.contains("send the request again"), "{response:?}");
}

#[test]
fn the_oldest_answers_of_a_project_are_dropped_and_their_clients_told() {
    let broker = Broker::secured();
    let [team, other] = ["team", "other"].map(|id| broker.project(id, &json!({})));
    for project in [&team, &other] {
        register_long_protocol(project);
    }
    let neighbour = other.http_legacy_as(&other.key);
    let of_neighbour = read_long_answer(&neighbour);
    let early = team.http_legacy_as(&team.key);
    let oldest = read_long_answer(&early);
    assert_kept(&early, &oldest);
    // Twice as much as a project may keep, each session within its own bound.
    let mut callers: Vec<_> = (0..11)
        .map(|_| {
            let caller = team.http_legacy_as(&team.key);
            let names: Vec<_> = (0..STREAMS).map(|_| read_long_answer(&caller)).collect();
            (caller, names)
        })
        .collect();
    assert_gone(&early, &oldest);
    let (late, names) = callers.pop().unwrap();
    for name in &names {
        assert_kept(&late, name);
    }
    assert_kept(&neighbour, &of_neighbour);
    // The session stays usable.
    let again = read_long_answer(&early);
    assert_kept(&early, &again);
}

#[test]
fn an_answer_replaced_by_later_ones_of_its_session_is_gone() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    register_long_protocol(&team);
    let caller = team.http_legacy_as(&team.key);
    let oldest = read_long_answer(&caller);
    let next = read_long_answer(&caller);
    for _ in 0..STREAMS - 1 {
        read_long_answer(&caller);
    }
    assert_gone(&caller, &oldest);
    assert_kept(&caller, &next);
}
