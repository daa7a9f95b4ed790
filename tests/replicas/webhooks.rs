//! Webhooks of several replicas: one of them sends, and another goes on if it dies.

use std::{collections::BTreeSet, time::Duration};

use serde_json::json;

use super::{
    cluster::BrokerCluster,
    support::{Redis, Target, secret_file},
};

/// Longer than a replica waits before it sends in place of a dead one.
const TAKEOVER: Duration = Duration::from_secs(60);

#[test]
fn each_event_is_sent_once_and_also_if_a_replica_dies() {
    let (redis, target, secret) = (Redis::start(), Target::start(&[]), secret_file());
    let flags = [target.flag("/hook"), secret.flag()];
    let flags = flags.each_ref().map(String::as_str);
    let mut cluster = BrokerCluster::start_with(2, &redis.url(), &flags);
    let mut asked = BTreeSet::new();
    let mut ask = |cluster: &BrokerCluster, at: usize, name: &str| {
        let agent = cluster.replicas[at].agent(name);
        let result = agent.calls("clarify", json!({"question": "?", "wait_seconds": 0}));
        let id = result["question_id"].as_str().unwrap().to_owned();
        assert!(asked.insert(id.clone()));
        id
    };
    for round in 0..20 {
        ask(&cluster, round % 2, &format!("agent-{round}"));
    }
    let mut told = BTreeSet::new();
    for _ in 0..20 {
        let event = target.next().json();
        let id = event["data"]["question_id"].as_str().unwrap().to_owned();
        assert!(told.insert(id), "sent twice: {event}");
    }
    assert!(target.has_nothing());
    // One of the two has the claim: the other has to take over in one of the rounds.
    for at in 0..2 {
        cluster.kill(at);
        let news = ask(&cluster, 1 - at, &format!("survivor-{at}"));
        loop {
            let event = target.next_within(TAKEOVER).json();
            let id = event["data"]["question_id"].as_str().unwrap();
            if id == news {
                break;
            }
            // The dead replica had sent it, and could no longer say so.
            assert!(told.contains(id), "{event}");
        }
        told.insert(news);
    }
    assert_eq!(told, asked);
}
