//! The desk of several replicas: a console goes on for one whose replica dies, and Redis keeps questions and answers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    cluster::BrokerCluster,
    support::{Broker, Redis, Request, ResponseReader, eventually},
};

/// The stream that is the console of a person.
fn console(broker: &Broker, human: &str) -> ResponseReader {
    let path = format!("/api/v1/events?topics=questions,desk&console={human}");
    let request = Request::get(broker.address).with_path(&path).with("X-Human", human);
    let mut stream = request.sent();
    assert_eq!(stream.status(), 200, "{stream:?}");
    while stream.next_event().expect("the stream begins").kind.as_deref() != Some("desk") {}
    stream
}

fn rest(broker: &Broker, human: &str, method: &str, path: &str, body: &Value) -> Value {
    // After a restart of Redis the first calls may find their connections broken.
    eventually(&format!("{method} {path} is answered"), || {
        let response = broker.rest_with(&[("X-Human", human)], method, &format!("/api/v1/{path}"), body);
        assert!([200, 503].contains(&response.status), "{method} {path}: {response:?}");
        (response.status == 200).then(|| response.json())
    })
}

/// Asks without waiting; returns the id.
fn asks(broker: &Broker, name: &str, key: &str) -> String {
    let arguments = json!({"question": "Which one?", "wait_seconds": 0, "idempotency_key": key});
    let asked = broker.agent(name).calls("clarify", arguments);
    asked["question_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_console_at_another_replica_has_the_question_of_a_dead_one() {
    let redis = Redis::start();
    let mut cluster = BrokerCluster::start(3, &redis);
    let people = ["mara", "lena"];
    let mut consoles: Vec<_> = people
        .iter()
        .zip(&cluster.replicas)
        .map(|(human, replica)| console(replica, human))
        .collect();
    let id = asks(&cluster.replicas[2], "alice", "key");
    let path = format!("questions/{id}");
    let first = eventually("the question is offered", || {
        let shown = rest(&cluster.replicas[2], "mara", "GET", &path, &Value::Null);
        let human = shown["offered_to"]["human"].as_str()?.to_owned();
        people.iter().position(|name| **name == human)
    });
    cluster.kill(first);
    let other = people[1 - first];
    loop {
        let event = consoles[1 - first].next_event().expect("the other console goes on");
        if event.kind.as_deref() == Some("question") && event.json()["offered_to"]["human"] == other {
            break;
        }
    }
    let answered = rest(
        &cluster.replicas[1 - first],
        other,
        "POST",
        &format!("{path}/answer"),
        &json!({"text": "this"}),
    );
    assert_eq!(answered["answered_by"]["human"], other);
}

#[test]
fn a_restart_of_redis_loses_no_question_and_no_answer() {
    const QUESTIONS: usize = 20;
    let mut redis = Redis::durable();
    let cluster = BrokerCluster::start(2, &redis);
    let at = |number: usize| &cluster.replicas[number % 2];
    let name = |number: usize| format!("agent-{number}");
    let ids: Vec<_> = (0..QUESTIONS)
        .map(|number| asks(at(number), &name(number), "key"))
        .collect();
    for (number, id) in ids.iter().enumerate().skip(QUESTIONS / 2) {
        let answer = json!({"text": number.to_string()});
        rest(
            at(number + 1),
            "mara",
            "POST",
            &format!("questions/{id}/answer"),
            &answer,
        );
    }
    redis.restart();
    cluster.await_readiness(true);
    for replica in &cluster.replicas {
        let listed = rest(
            replica,
            "mara",
            "GET",
            "questions?state=pending&limit=100",
            &Value::Null,
        );
        let listed = listed["questions"].as_array().unwrap().iter();
        let open: BTreeSet<_> = listed
            .map(|question| question["question_id"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(open, ids[..QUESTIONS / 2].iter().cloned().collect());
    }
    for (number, id) in ids.iter().enumerate() {
        // The same key finds the same question, and brings the answer if there is one.
        let agent = at(number).agent(&name(number));
        let arguments = json!({"question": "Which one?", "wait_seconds": 0, "idempotency_key": "key"});
        let result = agent.calls("clarify", arguments);
        assert_eq!(result["question_id"], id.as_str());
        if number < QUESTIONS / 2 {
            assert_eq!(result["state"], "pending");
        } else {
            assert_eq!(result["answer"]["text"], number.to_string());
        }
    }
}
