//! What is kept so that streams of HTTP sessions can be resumed is bounded for a project: the oldest goes first.

use serde_json::{Value, json};

use crate::support::{Broker, Caller, Reply, Tenant};

const EVENTS_FIRST: &str = "text/event-stream, application/json";
/// Bytes of one answer: large enough to fill the bound soon, small enough to be kept.
const DESCRIPTION_LEN: usize = 90_000;
/// Answers that are kept of one session.
const STREAMS: usize = 16;

/// A protocol whose description makes answers long.
fn knows_a_long_schema(team: &Tenant<'_>) {
    let schema = json!({"type": "object", "description": "x".repeat(DESCRIPTION_LEN)});
    team.visitor().calls(
        "register_protocol",
        json!({"name": "long", "version": "1.0.0", "schema": schema}),
    );
}

/// Reads a long answer as a stream; the id of its first event.
fn reads_a_long_answer(caller: &Caller) -> String {
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

fn resumed(caller: &Caller, last: &str) -> Reply {
    caller.stream().with("Last-Event-ID", last).sent()
}

fn is_kept(caller: &Caller, first: &str) {
    let answer: Result<Value, Value> = resumed(caller, first).streams().answer_to(&json!(1));
    assert_eq!(answer.unwrap()["structuredContent"]["protocols"][0]["name"], "long");
}

fn is_gone(caller: &Caller, first: &str) {
    let response = resumed(caller, first).whole();
    assert_eq!(response.refusal(), (410, -32600), "{response:?}");
    assert!(response.body.contains("send the request again"), "{response:?}");
}

#[test]
fn the_oldest_logs_of_a_project_go_when_it_has_too_many_and_their_clients_are_told() {
    let broker = Broker::secured();
    let [team, other] = ["team", "other"].map(|id| broker.project(id, &json!({})));
    for project in [&team, &other] {
        knows_a_long_schema(project);
    }
    let neighbour = other.resumable_as(&other.key);
    let of_neighbour = reads_a_long_answer(&neighbour);
    let early = team.resumable_as(&team.key);
    let oldest = reads_a_long_answer(&early);
    is_kept(&early, &oldest);
    // Twice as much as a project may have, each session within its own bound.
    let mut callers: Vec<_> = (0..11)
        .map(|_| {
            let caller = team.resumable_as(&team.key);
            let names: Vec<_> = (0..STREAMS).map(|_| reads_a_long_answer(&caller)).collect();
            (caller, names)
        })
        .collect();
    is_gone(&early, &oldest);
    let (late, names) = callers.pop().unwrap();
    for name in &names {
        is_kept(&late, name);
    }
    is_kept(&neighbour, &of_neighbour);
    // The session is as good as before.
    let again = reads_a_long_answer(&early);
    is_kept(&early, &again);
}

#[test]
fn an_answer_that_later_ones_of_its_session_have_replaced_is_gone() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    knows_a_long_schema(&team);
    let caller = team.resumable_as(&team.key);
    let oldest = reads_a_long_answer(&caller);
    let next = reads_a_long_answer(&caller);
    for _ in 0..STREAMS - 1 {
        reads_a_long_answer(&caller);
    }
    is_gone(&caller, &oldest);
    is_kept(&caller, &next);
}
