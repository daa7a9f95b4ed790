//! Redis comes back with an older data set: its state holds at every replica, even where a replica knew newer data.

use serde_json::{Value, json};

use super::{
    cluster::BrokerCluster,
    support::{ADMIN_KEY, Agent, Broker, HttpAgent, Proxy, Redis, TIMEOUTS_OFF, Tenant, eventually},
};

/// The close code of a connection whose session has to be registered again.
const CLOSE_STORE_WENT_BACK: u16 = 4006;
const REPLICAS: usize = 3;

/// Replicas with authentication, in which no timer fires.
fn secured(redis_url: &str) -> [Broker; REPLICAS] {
    let redis_url = format!("--redis-url={redis_url}");
    let flags = [&TIMEOUTS_OFF[..], &["--storage=redis", &redis_url]].concat();
    [(); REPLICAS].map(|()| Broker::secured_with(&flags))
}

fn accepts_key(broker: &Broker, key: &str) -> bool {
    match broker.upgrade(&[("X-API-Key", key)]).status {
        101 => true,
        401 => false,
        // The storage is unavailable, or the project is being reopened.
        503 => accepts_key(broker, key),
        other => panic!("an upgrade is answered with {other}"),
    }
}

/// Waits until each replica accepts or refuses this key.
fn await_key_everywhere(replicas: &[Broker], key: &str, wanted: bool) {
    for (at, replica) in replicas.iter().enumerate() {
        eventually(&format!("replica {at} lets the key in: {wanted}"), || {
            (accepts_key(replica, key) == wanted).then_some(())
        });
    }
}

fn agent_at(broker: &Broker, key: &str, name: &str) -> Agent {
    Agent::legacy(broker.wire_with(&[("X-API-Key", key)]), "2025-11-25", &json!({})).registered(name)
}

/// Calls until the result is not `unavailable`.
fn call_until_available(agent: &Agent, tool: &str, arguments: &Value) -> Value {
    eventually(&format!("{tool} is answered"), || {
        let call = agent.begins_call(tool, arguments);
        let result = agent.wire.answer_to(&call).unwrap();
        let object = &result["structuredContent"];
        (object["code"] != "unavailable").then(|| object.clone())
    })
}

fn protocol(name: &str) -> Value {
    json!({"name": name, "version": "1.0.0", "schema": {"type": "object"}})
}

fn send_with_protocol(agent: &Agent, protocol: &str) -> Value {
    let message =
        json!({"recipient_id": agent.name, "protocol_name": protocol, "protocol_version": "1.0.0", "payload": {}});
    call_until_available(agent, "send_message", &message)
}

/// Asserts that each replica reports a loss that was just detected.
fn assert_loss_reported(replicas: &[Broker]) {
    for replica in replicas {
        let health = eventually("/health reports the loss", || {
            let health = replica.get("/health").json();
            (health["status"] == "degraded").then_some(health)
        });
        let problem = health["storage_problem"].as_str().unwrap();
        assert!(problem.contains("older data"), "{problem}");
        assert_eq!(replica.get("/readyz").status, 200);
        eventually("the log reports the loss once", || {
            (replica.log().matches("Redis came back with older data").count() == 1).then_some(())
        });
    }
}

/// The number of audit entries of this project about a loss.
fn audited_losses(broker: &Broker, project: &str) -> usize {
    let path = format!("/api/v1/audit?project={project}&action=storage.went_back");
    let response = broker.rest(ADMIN_KEY, "GET", &path, &Value::Null);
    assert_eq!(response.status, 200, "{response:?}");
    response.json()["entries"].as_array().unwrap().len()
}

/// Keys, protocols, sessions and messages of a project from before and after the moment to which the data set goes
/// back.
struct RollbackScenario<'a> {
    team: Tenant<'a>,
    /// Created before the moment, revoked after it.
    revoked_later: String,
    /// Created after the moment.
    made_later: String,
    /// The key of a project created after the moment.
    late: String,
    /// Connections from before and after the moment.
    live: Vec<Agent>,
}

impl<'a> RollbackScenario<'a> {
    fn record(replicas: &'a [Broker], moment: impl FnOnce()) -> Self {
        let team = replicas[0].project("team", &json!({}));
        let revoked_later = team.new_key_with_scope("member");
        await_key_everywhere(replicas, &team.key, true);
        await_key_everywhere(replicas, &revoked_later, true);
        let alice = agent_at(&replicas[0], &team.key, "alice");
        let bob = agent_at(&replicas[1], &team.key, "bob");
        alice.sends("before").to("bob");
        moment();
        alice.sends("after").to("bob");
        let carol = agent_at(&replicas[2], &team.key, "carol");
        alice.calls("register_protocol", protocol("late"));
        for agent in [&alice, &bob, &carol] {
            send_with_protocol(agent, "late");
        }
        let made_later = team.new_key_with_scope("member");
        await_key_everywhere(replicas, &made_later, true);
        team.revoke_key(&revoked_later);
        await_key_everywhere(replicas, &revoked_later, false);
        let late = replicas[0].project("late", &json!({})).key;
        await_key_everywhere(replicas, &late, true);
        let live = vec![alice, bob, carol];
        Self {
            team,
            revoked_later,
            made_later,
            late,
            live,
        }
    }

    /// Asserts that every replica has the state of Redis.
    fn assert_rolled_back(self, replicas: &[Broker]) {
        for agent in &self.live {
            agent.wire.closes_with(CLOSE_STORE_WENT_BACK);
        }
        for lost in [&self.made_later, &self.late] {
            await_key_everywhere(replicas, lost, false);
        }
        await_key_everywhere(replicas, &self.revoked_later, true);
        await_key_everywhere(replicas, &self.team.key, true);
        assert_loss_reported(replicas);
        eventually("the audit has the loss", || {
            (audited_losses(&replicas[2], "team") > 0).then_some(())
        });
        assert_eq!(audited_losses(&replicas[0], "team"), 1);
        let agents: Vec<_> = ["alice", "bob", "carol"]
            .into_iter()
            .zip(replicas)
            .map(|(name, replica)| agent_at(replica, &self.team.key, name))
            .collect();
        // The message from before waits again, and the later session is new.
        agents[1].sees(["before"]);
        agents[1].sees_nothing();
        for agent in &agents {
            assert_eq!(
                send_with_protocol(agent, "late")["code"],
                "protocol_not_found",
                "{}",
                agent.name
            );
        }
        agents[2].calls("register_protocol", protocol("late"));
        for agent in &agents {
            assert_eq!(
                send_with_protocol(agent, "late")["status"].as_str(),
                Some("queued"),
                "{}",
                agent.name
            );
        }
        for (from, to) in [(0, 2), (2, 1), (1, 0)] {
            agents[from].sends("again").to(&agents[to]);
        }
        // A key can be revoked at any replica, although replicas knew later revisions.
        let path = format!("keys/{}", crate::support::id_of_key(&self.revoked_later));
        let path = format!("/api/v1/projects/team/{path}");
        let revoked = replicas[1].rest(&self.team.key, "DELETE", &path, &Value::Null);
        assert_eq!(revoked.status, 200, "{revoked:?}");
        await_key_everywhere(replicas, &self.revoked_later, false);
        // A project that is created again has nothing of the lost one.
        let recreated = replicas[2].project("late", &json!({})).key;
        await_key_everywhere(replicas, &recreated, true);
        await_key_everywhere(replicas, &self.late, false);
    }
}

#[test]
fn the_state_of_redis_holds_after_a_restart_from_an_older_snapshot() {
    let mut redis = Redis::start();
    let replicas = secured(&redis.url());
    let story = RollbackScenario::record(&replicas, || {
        redis.command(&["SAVE"]);
    });
    redis.kill();
    redis.restart();
    story.assert_rolled_back(&replicas);
}

#[test]
fn the_state_of_redis_holds_after_a_failover_to_a_lagging_redis_replica() {
    let mut first = Redis::start();
    let second = first.redis_replica();
    let proxy = Proxy::to(first.address);
    let replicas = secured(&format!("redis://{}", proxy.address));
    let story = RollbackScenario::record(&replicas, || {
        // The Redis replica has what was written so far and is then cut off.
        first.command(&["WAIT", "1", "10000"]);
        second.command(&["REPLICAOF", "NO", "ONE"]);
    });
    proxy.redirect_to(second.address);
    first.kill();
    story.assert_rolled_back(&replicas);
}

#[test]
fn clients_register_again_immediately_after_redis_was_flushed() {
    let redis = Redis::start();
    let cluster = BrokerCluster::start_with(REPLICAS, &redis.url(), &TIMEOUTS_OFF);
    let replicas = &cluster.replicas;
    for round in 0..2 {
        let live = replicas[0].agent("alice");
        let pushed = replicas[1].push_agent("bob", &json!({"ack": "manual"}));
        let resumable = replicas[2].http_legacy("carol");
        let stateless = replicas[0].http_modern("dave");
        live.sends("lost").to("bob");
        pushed.is_pushed(["lost"]);
        let data = || ["{system}:schema:version", "{system}:broker:id"].map(|key| redis.command(&["GET", key]));
        let before = data();
        redis.command(&["FLUSHALL"]);
        for agent in [&live, &pushed] {
            agent.wire.closes_with(CLOSE_STORE_WENT_BACK);
        }
        eventually("the schema version and the id of the broker are stored again", || {
            (data() == before).then_some(())
        });
        eventually("the HTTP session has ended", || {
            let response = resumable.call("heartbeat", json!({})).answered();
            (response.status == 404).then_some(())
        });
        eventually("the stateless session has ended", || {
            let call = stateless.call("heartbeat", json!({}));
            let result = call.sent().answer_to(&json!(1)).unwrap();
            let error = &result["structuredContent"];
            if error["code"] != "session_not_found" {
                assert_eq!(error["code"], "unavailable", "{result}");
                return None;
            }
            Some(())
        });
        Broker::register_note_protocol(&replicas[round].client());
        let live = replicas[2].agent("alice");
        let pushed = replicas[0].push_agent("bob", &json!({"ack": "manual"}));
        live.sends("kept").to("bob");
        pushed.acknowledges(&pushed.is_pushed(["kept"]));
        pushed.syncs();
        let stateless = HttpAgent::modern(replicas[1].address, json!({})).registered("dave");
        live.sends("kept").to("dave");
        assert_eq!(stateless.reads(json!({"wait_seconds": 20})).len(), 1, "round {round}");
    }
}

#[test]
fn a_replica_that_was_cut_off_detects_a_loss_although_others_wrote_more_than_was_lost() {
    let mut redis = Redis::start();
    let proxy = Proxy::to(redis.address);
    let mut replicas = secured(&redis.url());
    replicas[0] = secured_behind(&proxy);
    let team = replicas[1].project("team", &json!({}));
    await_key_everywhere(&replicas, &team.key, true);
    let key = team.key.clone();
    redis.command(&["SAVE"]);
    let lost = team.new_key_with_scope("member");
    await_key_everywhere(&replicas, &lost, true);
    proxy.cut();
    for replica in &mut replicas[1..] {
        replica.kill();
    }
    redis.kill();
    redis.restart();
    // The replicas that write now have not seen what is lost.
    let redis_url = redis.url();
    let [newer, ..] = secured(&redis_url);
    let alice = agent_at(&newer, &key, "alice");
    for number in 0..50 {
        alice.sends(&format!("{number}")).to("alice");
    }
    assert!(!accepts_key(&newer, &lost));
    proxy.restore();
    await_key_everywhere(&replicas[..1], &lost, false);
    assert!(accepts_key(&replicas[0], &key));
}

fn secured_behind(proxy: &Proxy) -> Broker {
    let redis_url = format!("--redis-url=redis://{}", proxy.address);
    Broker::secured_with(&[&TIMEOUTS_OFF[..], &["--storage=redis", &redis_url]].concat())
}

/// The epoch of the default project in Redis.
fn epoch(redis: &Redis) -> String {
    let tokens = redis.command(&["GET", "{default}:epoch"]);
    let (epoch, _) = tokens.split_once(' ').expect("an epoch and a timeline");
    epoch.to_owned()
}

#[test]
fn a_restart_without_lost_data_is_not_reported_as_a_loss() {
    let mut redis = Redis::durable();
    let proxy = Proxy::to(redis.address);
    let flags = [&TIMEOUTS_OFF[..], &["--storage-deadline=500ms"]].concat();
    let cluster = BrokerCluster::start_with(2, &format!("redis://{}", proxy.address), &flags);
    let alice = cluster.replicas[0].agent("alice");
    let bob = cluster.replicas[1].push_agent("bob", &json!({"ack": "manual"}));
    let before = epoch(&redis);
    let goes_on = |what: &str| {
        cluster.await_readiness(true);
        eventually(what, || {
            let call = alice.begins_call("send_message", &alice.sends(what).arguments_to("bob"));
            let result = alice.wire.answer_to(&call).unwrap();
            (result["isError"] == false).then_some(())
        });
        // Messages that were delivered before may be delivered again.
        while {
            let pushed = bob.next_push();
            let is_new = pushed["payload"]["text"] == what;
            bob.acknowledges(&[pushed]);
            !is_new
        } {}
    };
    goes_on("as ever");
    for _ in 0..2 {
        redis.kill();
        redis.restart();
        goes_on("a restart that loses nothing");
    }
    proxy.cut();
    cluster.await_readiness(false);
    proxy.restore();
    goes_on("a connection that was cut");
    proxy.delay(std::time::Duration::from_millis(700));
    cluster.await_readiness(false);
    proxy.restore();
    goes_on("a slow Redis");
    redis.command(&["FUNCTION", "FLUSH"]);
    redis.command(&["SCRIPT", "FLUSH"]);
    goes_on("functions that are gone");
    assert_eq!(epoch(&redis), before);
    for replica in &cluster.replicas {
        assert_eq!(replica.get("/health").json()["status"], "healthy");
        assert!(!replica.log().contains("older data"), "{}", replica.log());
    }
    assert!(alice.wire.is_open() && bob.wire.is_open());
}
