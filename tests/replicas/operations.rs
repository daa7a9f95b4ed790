//! What operators read from any of several replicas is the whole broker's, and says when it is not.

use serde_json::{Value, json};

use super::{
    cluster::BrokerCluster,
    support::{Broker, Redis, Request, ResponseReader, eventually},
};

fn gets(replica: &Broker, path: &str) -> Value {
    let response = replica.get(path);
    assert_eq!(response.status, 200, "{path}: {response:?}");
    response.json()
}

fn children(tree: &Value) -> Vec<&Value> {
    tree["children"].as_array().unwrap().iter().collect()
}

#[test]
fn figures_are_those_of_all_replicas_and_a_killed_one_is_named() {
    let redis = Redis::start();
    let mut cluster = BrokerCluster::start(3, &redis);
    let agents: Vec<_> = cluster
        .replicas
        .iter()
        .enumerate()
        .map(|(at, it)| it.agent(&format!("agent{at}")))
        .collect();
    for (at, agent) in agents.iter().enumerate() {
        agent.sends(&format!("from {at}")).to("agent0");
    }
    for replica in &cluster.replicas {
        let stats = eventually("the figures are whole", || {
            let stats = gets(replica, "/api/v1/stats");
            (stats["sessions"]["active"] == 3 && stats["messages"]["accepted"] == 3).then_some(stats)
        });
        assert_eq!((&stats["replicas"], stats.get("partial")), (&json!(3), None), "{stats}");
        let replicas = stats["replica_list"].as_array().unwrap();
        let connected: Vec<_> = replicas.iter().map(|replica| &replica["sessions"]).collect();
        assert_eq!(connected, [1, 1, 1], "{stats}");
        let own_ids: Vec<_> = replicas.iter().filter(|replica| replica["is_self"] == true).collect();
        assert_eq!(own_ids.len(), 1, "{stats}");
        assert_eq!(own_ids[0]["id"], stats["replica"], "{stats}");
        assert_eq!(gets(replica, "/api/v1/me")["replica"], stats["replica"], "{stats}");
        let flow = eventually("the flow is whole", || {
            let flow = gets(replica, "/api/v1/flow");
            (flow["edges"].as_array().unwrap().len() == 3).then_some(flow)
        });
        assert_eq!(flow["complete"], true, "{flow}");
        let sorted = gets(replica, "/api/v1/sessions?sort=queue_size&order=desc");
        assert_eq!(
            (
                &sorted["sessions"][0]["name"],
                &sorted["sessions"][0]["queue_size"],
                &sorted["total"]
            ),
            (&json!("agent0"), &json!(3), &json!(3)),
            "{sorted}"
        );
        let own = gets(replica, "/api/v1/stats?replica=self");
        assert_eq!(
            (&own["replicas"], &own["messages"]["accepted"]),
            (&json!(1), &json!(1)),
            "{own}"
        );
        let tree = gets(replica, "/api/v1/tree");
        assert_eq!(
            (&tree["kind"], children(&tree).len()),
            (&json!("replicas"), 3),
            "{tree}"
        );
        assert_eq!(
            gets(replica, "/api/v1/sessions")["sessions"].as_array().unwrap().len(),
            3
        );
    }
    let before = gets(&cluster.replicas[0], "/api/v1/tree");
    drop(agents);
    cluster.replicas[2].kill();
    let tree = gets(&cluster.replicas[0], "/api/v1/tree");
    assert_eq!(children(&tree).len(), 2, "{tree}");
    let left: Vec<_> = children(&tree).iter().map(|replica| replica["name"].clone()).collect();
    let gone = children(&before)
        .into_iter()
        .find(|replica| !left.contains(&replica["name"]))
        .unwrap();
    assert_eq!(tree["partial"], json!([gone["name"]]), "{tree}");
    let stats = gets(&cluster.replicas[1], "/api/v1/stats");
    assert_eq!(
        (&stats["replicas"], &stats["partial"]),
        (&json!(2), &tree["partial"]),
        "{stats}"
    );
    assert_eq!(stats["warnings"][0]["code"], "replica_silent", "{stats}");
    eventually("/health has asked the other replicas again", || {
        let health = gets(&cluster.replicas[1], "/health");
        (health["warnings"] == stats["warnings"]).then_some(())
    });
}

#[test]
fn a_session_is_disconnected_wherever_its_connection_is() {
    let redis = Redis::start();
    let cluster = BrokerCluster::start(2, &redis);
    let [here, there] = [&cluster.replicas[0], &cluster.replicas[1]];
    let bob = there.agent("bob");
    eventually("the other replica knows the session", || {
        (here.get("/api/v1/sessions/bob").status == 200).then_some(())
    });
    let delete = |path: &str| {
        Request::get(here.address)
            .with_method("DELETE")
            .with_path(path)
            .answered()
    };
    let ended = delete("/api/v1/sessions/bob");
    assert_eq!(
        (ended.status, &ended.json()["status"]),
        (200, &json!("disconnected")),
        "{ended:?}"
    );
    bob.wire.closes_with(4007);
    let again = there.agent("bob");
    assert_eq!(again.session, bob.session);
    let ended = delete("/api/v1/sessions/bob?forget=true");
    assert_eq!(
        (ended.status, &ended.json()["status"]),
        (200, &json!("ended")),
        "{ended:?}"
    );
    again.wire.closes_with(4004);
    eventually("no replica knows the session", || {
        (there.get("/api/v1/sessions/bob").status == 404).then_some(())
    });
}

/// The next message that was accepted, on a stream of events; with the id of the event.
fn next_accepted(stream: &mut ResponseReader) -> (String, String) {
    loop {
        let event = stream.next_event().expect("the stream goes on");
        if event.kind.as_deref() == Some("message") && event.json()["event"] == "accepted" {
            let message = event.json()["message"]["message_id"].as_str().unwrap().to_owned();
            return (message, event.id.unwrap());
        }
    }
}

#[test]
fn a_follower_may_return_to_another_replica() {
    let redis = Redis::start();
    let cluster = BrokerCluster::start(3, &redis);
    let follow = |at: usize, last: Option<&str>| {
        let request = Request::get(cluster.replicas[at].address).with_path("/api/v1/events?topics=message");
        let request = last
            .into_iter()
            .fold(request, |request, id| request.with("Last-Event-ID", id));
        let mut stream = request.sent().streams();
        stream.next_event().expect("the first frame");
        stream
    };
    let alice = cluster.replicas[1].agent("alice");
    let mut stream = follow(0, None);
    let one = alice.sends("one").to("alice").id;
    let (seen, id) = next_accepted(&mut stream);
    assert_eq!(seen, one);
    drop(stream);
    let two = alice.sends("two").to("alice").id;
    let mut stream = follow(2, Some(&id));
    assert_eq!(next_accepted(&mut stream).0, two);
    let three = alice.sends("three").to("alice").id;
    assert_eq!(next_accepted(&mut stream).0, three);
}

#[test]
fn a_cookie_of_one_replica_is_good_at_the_others_and_ends_at_all_of_them() {
    let redis = Redis::start();
    let flags = ["--storage=redis".to_owned(), format!("--redis-url={}", redis.url())];
    let replicas = [(); 3].map(|()| Broker::secured_with(&flags.each_ref().map(String::as_str)));
    let team = replicas[0].project("team", &json!({}));
    for replica in &replicas {
        replica.awaits_key_of(&team);
    }
    let body = json!({"key": team.key}).to_string();
    let answer = Request::post(replicas[0].address, body)
        .with_path("/api/v1/login")
        .answered();
    let cookie = answer
        .header("set-cookie")
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let token = answer.json()["csrf_token"].as_str().unwrap().to_owned();
    // One name in front of all replicas, as that of a load balancer.
    let asks = |_: &Broker, request: Request| {
        let request = request.with("Host", replicas[0].address.to_string());
        request
            .with("Cookie", &*cookie)
            .with("X-CSRF-Token", &*token)
            .answered()
    };
    for (at, replica) in replicas.iter().enumerate() {
        let stats = asks(replica, Request::get(replica.address).with_path("/api/v1/stats"));
        assert_eq!(
            stats.json()["replicas"],
            3,
            "the others accept the cookie too: {stats:?}"
        );
        let protocol = json!({"name": format!("of-{at}"), "version": "1.0.0", "schema": {}}).to_string();
        let made = asks(
            replica,
            Request::post(replica.address, protocol).with_path("/api/v1/protocols"),
        );
        assert_eq!(made.status, 201, "{made:?}");
    }
    team.revoke_key(&team.key);
    for replica in &replicas {
        eventually("the cookie has ended", || {
            let me = asks(replica, Request::get(replica.address).with_path("/api/v1/me"));
            (me.status == 401).then_some(())
        });
    }
}
