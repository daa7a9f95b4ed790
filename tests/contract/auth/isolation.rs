//! Isolation: an object of another project, or of another key of the same project, is answered exactly as one that does
//! not exist.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{
    ADMIN_KEY, Agent, Broker, HttpAgent, Issuer, Request, Tenant, Wire, exchange, id_of_key, initialize_request,
};

const TASKS: &str = "io.modelcontextprotocol/tasks";
const VERSION: &str = "2025-11-25";

/// The objects of the client `victim`, which no outsider may find.
struct VictimObjects {
    agent: Agent,
    /// A message that the agent received and has not acknowledged.
    message: String,
    task: String,
    caller: HttpAgent,
    http_session: String,
}

fn create_victim_objects(tenant: &Tenant<'_>, key: &str) -> VictimObjects {
    let agent = tenant.agent_as(key, "victim");
    agent.sends("secret").to(&agent);
    let received = agent.reads(json!({"acknowledge": "manual"}));
    let schema = json!({"type": "object"});
    let protocol = json!({"name": "hidden", "version": "1.0.0", "schema": schema});
    agent.calls("register_protocol", protocol);
    let capabilities = json!({"extensions": {TASKS: {}}});
    let patient =
        HttpAgent::modern_with(tenant.broker.address, capabilities, &[("X-API-Key", key)]).registered("patient");
    let waiting = patient.call("receive_messages", json!({"wait_seconds": 60}));
    let task = waiting.sent().answer_to(&json!(1)).unwrap();
    let answer = initialize_request(tenant.broker.address, VERSION, json!({}))
        .with("X-API-Key", key)
        .answered();
    VictimObjects {
        message: received[0]["message_id"].as_str().unwrap().to_owned(),
        task: task["taskId"].as_str().unwrap().to_owned(),
        http_session: answer.header("Mcp-Session-Id").unwrap().to_owned(),
        caller: tenant.http_legacy_as(key).registered("resumable"),
        agent,
    }
}

/// An id of the same form that does not exist.
fn similar_id(id: &str) -> String {
    let last = if id.ends_with('0') { "1" } else { "0" };
    format!("{}{last}", &id[..id.len() - 1])
}

/// A client with another key, on each transport.
struct Outsider {
    wire: Agent,
    modern: Agent,
    stateless: HttpAgent,
}

impl Outsider {
    fn with(broker: &Broker, key: &str) -> Self {
        let headers = [("X-API-Key", key)];
        let capabilities = json!({"extensions": {TASKS: {}}});
        let name = |what: &str| format!("{what}-{}", id_of_key(key));
        Self {
            wire: Agent::legacy(Wire::open_with(broker.address, &headers), VERSION, &json!({}))
                .registered(&name("mallory")),
            modern: Agent::modern(Wire::open_with(broker.address, &headers), capabilities.clone())
                .registered(&name("modern")),
            stateless: HttpAgent::modern_with(broker.address, capabilities, &headers).registered(&name("stateless")),
        }
    }

    /// Asserts that a request on every transport has the same answer for both ids: to the byte, apart from the id itself
    /// and the time.
    fn expect_same_answer(&self, method: &str, ask: impl Fn(&str) -> Value, there: &str, nowhere: &str) {
        assert_eq!(
            there.len(),
            nowhere.len(),
            "ids of different lengths cannot be compared"
        );
        for agent in [&self.wire, &self.modern] {
            let [of_it, of_none] = [there, nowhere].map(|id| {
                let answer = agent.request(method, ask(id));
                format!("{answer:?}").replace(id, "ID")
            });
            assert_eq!(of_it, of_none, "{method} {} over WebSocket", ask("ID"));
        }
        let [of_it, of_none] = [there, nowhere].map(|id| {
            let answer = self.stateless.asks(method, ask(id)).answered();
            answer.without_date().replace(id, "ID")
        });
        assert_eq!(of_it, of_none, "{method} {} over HTTP", ask("ID"));
    }

    fn expect_same_result(&self, tool: &str, arguments: impl Fn(&str) -> Value, there: &str, nowhere: &str) {
        let ask = |id: &str| json!({"name": tool, "arguments": arguments(id)});
        self.expect_same_answer("tools/call", ask, there, nowhere);
        // Also for a session of the caller, where the session is not what is asked about.
        if arguments("").get("session_id").is_none() {
            let session = self.stateless.session.as_deref();
            let ask = |id: &str| {
                let mut arguments = arguments(id);
                arguments["session_id"] = json!(session);
                json!({"name": tool, "arguments": arguments})
            };
            let [of_it, of_none] = [there, nowhere].map(|id| {
                let answer = self.stateless.asks("tools/call", ask(id)).answered();
                answer.without_date().replace(id, "ID")
            });
            assert_eq!(of_it, of_none, "{tool} for a session over HTTP");
        }
    }

    /// Objects of one key are not visible to another key.
    fn expect_none_of(&self, theirs: &VictimObjects) {
        let session = theirs.agent.session.as_str();
        let unknown = similar_id(session);
        for tool in ["heartbeat", "receive_messages", "disconnect_session"] {
            self.expect_same_result(tool, |id| json!({"session_id": id}), session, &unknown);
        }
        let send = |id: &str| {
            json!({
                "session_id": id, "recipient_id": self.wire.name, "protocol_name": "note", "protocol_version": "1.0.0",
                "payload": {"text": "as another"},
            })
        };
        self.expect_same_result("send_message", send, session, &unknown);
        let acknowledge = |id: &str| json!({"session_id": id, "message_ids": [theirs.message]});
        self.expect_same_result("acknowledge_messages", acknowledge, session, &unknown);
        let acknowledge = |id: &str| json!({"message_ids": [id]});
        self.expect_same_result(
            "acknowledge_messages",
            acknowledge,
            &theirs.message,
            &similar_id(&theirs.message),
        );
        let inbox = |id: &str| json!({"uri": format!("broker://sessions/{id}/inbox")});
        for method in ["resources/read", "resources/subscribe", "resources/unsubscribe"] {
            self.expect_same_answer(method, inbox, session, &unknown);
        }
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            let task = |id: &str| json!({"taskId": id, "inputResponses": {}});
            self.expect_same_answer(method, task, &theirs.task, &similar_id(&theirs.task));
        }
        self.expect_empty_subscription(&format!("broker://sessions/{session}/inbox"), &theirs.task);
        self.expect_no_http_session(theirs);
        // Notifications, which have no answer, have no effect either.
        let frame = json!({
            "jsonrpc": "2.0", "method": "notifications/dev.mcp-broker/ack",
            "params": {"session_id": session, "message_ids": [theirs.message]},
        });
        self.stateless.post(&frame).answered();
        self.wire.wire.sends(&frame);
        self.wire.syncs();
        assert_eq!(theirs.agent.status_of(&theirs.message), "delivered");
        let statuses = theirs.agent.calls("heartbeat", json!({}));
        assert_eq!(statuses["status"], "active");
    }

    /// A subscription to objects of others is empty.
    fn expect_empty_subscription(&self, inbox: &str, task: &str) {
        let notifications = json!({"resourceSubscriptions": [inbox], "taskIds": [task]});
        let params = json!({"notifications": notifications});
        let mut stream = self
            .stateless
            .asks("subscriptions/listen", params.clone())
            .sent()
            .streams();
        let honored = stream.next_frame()["params"]["notifications"].take();
        assert_eq!(honored, json!({"taskIds": []}));
        let id = self
            .modern
            .wire
            .asks("subscriptions/listen", self.modern.params(params));
        let told = self
            .modern
            .wire
            .next_notification("notifications/subscriptions/acknowledged");
        assert_eq!(told["notifications"], json!({"taskIds": []}));
        self.modern.wire.cancels(&id);
    }

    fn expect_no_http_session(&self, theirs: &VictimObjects) {
        let key = |request: Request| {
            let (_, key) = self
                .stateless
                .stream_request()
                .headers
                .into_iter()
                .find(|(name, _)| name == "X-API-Key")
                .unwrap();
            request.with("X-API-Key", key)
        };
        let ping = Request::post(self.stateless.address, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        let notification = Request::post(
            self.stateless.address,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        );
        let again = initialize_request(self.stateless.address, VERSION, json!({}));
        let get = Request::get(self.stateless.address);
        let theirs = &theirs.http_session;
        for request in [
            ping.clone(),
            notification.clone(),
            again,
            get.clone(),
            get.clone().with("Last-Event-ID", "0-1"),
            get.clone().with("Last-Event-ID", "1-1"),
            get.with_method("DELETE"),
        ] {
            let [of_it, of_none] = [theirs.clone(), similar_id(theirs)].map(|id| {
                let answer = key(request.clone()).with("Mcp-Session-Id", &id).answered();
                assert_eq!(answer.status, 404, "{request:?} {answer:?}");
                answer.without_date().replace(&id, "ID")
            });
            assert_eq!(of_it, of_none, "{request:?}");
        }
        for request in [ping, notification] {
            let [of_it, of_none] = [theirs.clone(), similar_id(theirs)].map(|id| {
                let answer = key(request.clone())
                    .with_path(&format!("/mcp?session_id={id}"))
                    .answered();
                assert_eq!(answer.status, 404, "{answer:?}");
                answer.without_date()
            });
            assert_eq!(of_it, of_none, "{request:?}");
        }
    }
}

#[test]
fn objects_of_another_project_do_not_exist() {
    let broker = Broker::secured();
    let (here, there) = (broker.project("here", &json!({})), broker.project("there", &json!({})));
    let theirs = create_victim_objects(&there, &there.key);
    let us = Outsider::with(&broker, &here.key);
    us.expect_none_of(&theirs);
    let session = theirs.agent.session.as_str();
    let (unknown, message) = (similar_id(session), theirs.message.as_str());
    let no_message = similar_id(message);
    let send = |to: &str| {
        json!({
            "recipient_id": to, "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": "hi"},
        })
    };
    let negotiate = |id: &str| json!({"target_session_id": id});
    let compare = |id: &str| json!({"session_ids": [id]});
    let redrive_to = |id: &str| json!({"message_ids": [], "recipient_id": id});
    for (there, nowhere) in [(session, unknown.as_str()), ("victim", "nobody")] {
        us.expect_same_result("send_message", send, there, nowhere);
        us.expect_same_result("negotiate_capabilities", negotiate, there, nowhere);
        us.expect_same_result("compatibility_matrix", compare, there, nowhere);
        us.expect_same_result("redrive_dead_letters", redrive_to, there, nowhere);
    }
    us.expect_same_result(
        "get_message_status",
        |id| json!({"message_id": id}),
        message,
        &no_message,
    );
    us.expect_same_result(
        "redrive_dead_letters",
        |id| json!({"message_ids": [id]}),
        message,
        &no_message,
    );
    let name = us.wire.name.as_str();
    let with_protocol = |protocol: &str| {
        json!({
            "recipient_id": name, "protocol_name": protocol, "protocol_version": "1.0.0", "payload": {"text": "hi"},
        })
    };
    let broadcast = |name: &str| json!({"protocol_name": name, "protocol_version": "1.0.0", "payload": {}});
    us.expect_same_result("discover_protocols", |name| json!({"name": name}), "hidden", "absent");
    us.expect_same_result("send_message", with_protocol, "hidden", "absent");
    us.expect_same_result("broadcast_message", broadcast, "hidden", "absent");
    let protocol = |name: &str| json!({"uri": format!("broker://protocols/{name}/1.0.0")});
    us.expect_same_answer("resources/read", protocol, "hidden", "absent");
    us.expect_same_answer("resources/subscribe", protocol, "hidden", "absent");
    for (tool, argument) in [
        ("get_project_info", "project_id"),
        ("rotate_project_keys", "project_id"),
    ] {
        us.expect_same_result(tool, |id| json!({argument: id}), "there", "ghost");
    }
    us.expect_same_result(
        "revoke_project_access",
        |id| json!({"target_project_id": id}),
        "there",
        "ghost",
    );
    let complete = |text: &str| {
        json!({
            "ref": {"type": "ref/resource", "uri": "broker://sessions/{session_id}/inbox"},
            "argument": {"name": "session_id", "value": text},
        })
    };
    us.expect_same_answer("completion/complete", complete, session, &unknown);
    let listed = us.wire.calls("list_sessions", json!({"status": "all"})).to_string();
    assert!(!listed.contains(session) && !listed.contains("victim"), "{listed}");
    let shown = us
        .wire
        .request("resources/read", json!({"uri": "broker://sessions"}))
        .unwrap()
        .to_string();
    assert!(!shown.contains(session), "{shown}");
}

#[test]
fn rest_answers_the_same_for_another_project_and_for_none() {
    let broker = Broker::secured();
    let (here, _there) = (broker.project("here", &json!({})), broker.project("attic", &json!({})));
    let keys: Vec<_> = ["observer", "member", "admin"]
        .map(|scope| here.new_key_with_scope(scope))
        .into();
    let change = json!({"name": "ours"});
    for (method, path, body) in [
        ("GET", "projects/$", Value::Null),
        ("PATCH", "projects/$", change),
        ("DELETE", "projects/$", Value::Null),
        ("GET", "projects/$/keys", Value::Null),
        ("POST", "projects/$/keys", json!({})),
        ("DELETE", "projects/$/keys/nosuchkey", Value::Null),
        ("POST", "projects/$/keys/rotate", json!({})),
        ("GET", "projects/$/grants", Value::Null),
        ("PUT", "projects/$/grants/here", json!({})),
        ("PUT", "projects/$/grants/$", json!({})),
        ("DELETE", "projects/$/grants/here", Value::Null),
        ("GET", "audit?project=$", Value::Null),
        ("GET", "projects/here/grants/$", Value::Null),
        ("DELETE", "projects/here/grants/$", Value::Null),
        ("DELETE", "projects/here/keys/$", Value::Null),
    ] {
        for key in &keys {
            let [of_it, of_none] = ["attic", "ghost"].map(|id| {
                let path = format!("/api/v1/{}", path.replace('$', id));
                let answer = broker.rest(key, method, &path, &body);
                assert!(
                    answer.status >= 400 || path.contains("/here/"),
                    "{method} {path} {answer:?}"
                );
                answer.without_date().replace(id, "ID")
            });
            assert_eq!(of_it, of_none, "{method} {path}");
        }
    }
    // A permission can be granted for any id, whether the project exists or not.
    let [of_it, of_none] = ["attic", "ghost"].map(|id| {
        let mut answer = here.rest("PUT", &format!("grants/{id}"), &json!({})).json();
        answer["permission"]["granted_at"].take();
        answer.to_string().replace(id, "ID")
    });
    assert_eq!(of_it, of_none);
    let named = |id: &str| {
        let answer = broker.rest_with(
            &[("X-API-Key", &keys[2]), ("X-Project-ID", id)],
            "GET",
            "/security/status",
            &Value::Null,
        );
        (answer.status, answer.without_date())
    };
    assert_eq!(named("attic"), named("ghost"));
    assert_eq!(named("attic").0, 403);
}

#[test]
fn an_address_in_another_project_does_not_reveal_its_sessions() {
    let broker = Broker::secured();
    let open = json!({"allow_cross_project": true});
    let (shut, wide) = (broker.project("shut", &json!({})), broker.project("wide", &open));
    let _members = [shut.agent("victim"), wide.agent("victim")];
    let send = |to: &str| {
        json!({
            "recipient_id": to, "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": "hi"},
        })
    };
    for (here, config) in [("closed", json!({})), ("opened", open)] {
        let us = Outsider::with(&broker, &broker.project(here, &config).key);
        for (there, nowhere) in [
            // Whether a session exists,
            ("victim@shut", "nobody@shut"),
            ("victim@wide", "nobody@wide"),
            // and whether a closed project exists.
            ("victim@shut", "victim@none"),
            ("victim@shut", "nobody@none"),
        ] {
            us.expect_same_result("send_message", send, there, nowhere);
        }
    }
}

#[test]
fn objects_of_another_key_of_the_project_do_not_exist() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let theirs = create_victim_objects(&team, &team.new_key_with_scope("member"));
    for key in [team.new_key_with_scope("member"), team.key.clone()] {
        let us = Outsider::with(&broker, &key);
        us.expect_none_of(&theirs);
        // Its name is an address only: a client that registers it with another key gets no message of it.
        let stranger = team.client_as(&key);
        stranger.is_refused("register_session", json!({"name": "victim"}));
        stranger.wire.disconnects();
    }
    assert!(theirs.caller.calls("heartbeat", json!({}))["status"] == "active");
    // The admin key does not open sessions of others either.
    let operator = Wire::open_with(broker.address, &[("X-API-Key", ADMIN_KEY), ("X-Project-ID", "team")]);
    let operator = Agent::legacy(operator, VERSION, &json!({}));
    operator.is_refused_as(
        "session_not_found",
        "heartbeat",
        json!({"session_id": theirs.agent.session}),
    );
}

#[test]
fn http_sessions_of_one_project_do_not_evict_those_of_another() {
    const PLACES: usize = 60;
    let broker = Broker::secured_with(&[&format!("--connections-max={PLACES}"), "--log-level=error"]);
    let (quiet, busy) = (broker.project("quiet", &json!({})), broker.project("busy", &json!({})));
    let ours = quiet.http_legacy_as(&quiet.key);
    let first = busy.http_legacy_as(&busy.key);
    // One connection for all, because the test is about many sessions. With several keys.
    let socket = broker.socket();
    for key in [busy.key.clone(), busy.new_key_with_scope("member")] {
        let hello = initialize_request(broker.address, VERSION, json!({}))
            .with("X-API-Key", key)
            .bytes();
        for _ in 0..PLACES {
            assert_eq!(exchange(&socket, &hello).status, 200);
        }
    }
    assert_eq!(
        first.asks("ping", json!({})).answered().status,
        404,
        "its own oldest session makes room"
    );
    assert_eq!(ours.asks("ping", json!({})).answered().status, 200);
}

#[test]
fn an_observer_gets_no_session_in_any_way() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let key = team.new_key_with_scope("observer");
    let admin = team.agent("admin");
    let sessions = || {
        let listed = admin.calls("list_sessions", json!({"status": "all"}));
        listed["sessions"].as_array().unwrap().len()
    };
    let inbox = json!({"uri": "broker://inbox"});
    let push = json!({"experimental": {"dev.mcp-broker/push": {}}});
    let legacy = Agent::legacy(team.wire_as(&key), VERSION, &push);
    let refusal = legacy.request("resources/subscribe", inbox.clone()).unwrap_err();
    assert_eq!(
        (&refusal["code"], &refusal["data"]["code"]),
        (&json!(-32000), &json!("forbidden"))
    );
    let listen = json!({"notifications": {"resourceSubscriptions": ["broker://inbox"]}});
    let modern = Agent::modern(team.wire_as(&key), json!({"extensions": {"dev.mcp-broker/push": {}}}));
    let refusal = modern.request("subscriptions/listen", listen).unwrap_err();
    assert_eq!(refusal["data"]["code"], "forbidden");
    let resumable = team.http_legacy_as(&key);
    let refusal = resumable.request("resources/subscribe", inbox).unwrap_err();
    assert_eq!(refusal["data"]["code"], "forbidden");
    // The scope is checked for each call of a batch.
    let batching = Agent::legacy(team.wire_as(&key), "2025-03-26", &json!({}));
    batching.wire.sends(&json!([
        {"jsonrpc": "2.0", "id": "one", "method": "tools/call", "params": {"name": "heartbeat", "arguments": {}}},
        {"jsonrpc": "2.0", "id": "two", "method": "tools/call", "params": {"name": "list_sessions", "arguments": {}}},
    ]));
    let answers = batching.wire.awaits_frame("the answers", Value::is_array);
    assert_eq!(
        answers[0]["result"]["structuredContent"]["code"], "forbidden",
        "{answers}"
    );
    assert_eq!(answers[1]["result"]["isError"], false, "{answers}");
    let old = HttpAgent::legacy_with(broker.address, "2025-03-26", json!({}), &[("X-API-Key", key.as_str())]);
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "receive_messages", "arguments": {}}},
    ]);
    let answer = old.post(&batch).with("Accept", "application/json").answered().body;
    assert!(answer.contains("forbidden"), "{answer}");
    assert_eq!(sessions(), 1, "only the admin has a session");
    let broadcast = admin.sends("to all").to_everyone();
    assert_eq!(broadcast["recipients"], 0, "{broadcast}");
    legacy.wire.syncs();
    assert_eq!(
        legacy.wire.notifications_so_far("notifications/dev.mcp-broker/message"),
        0
    );
}

#[test]
fn a_token_with_a_smaller_scope_does_not_use_the_session_of_an_earlier_one() {
    let issuer = Issuer::new("https://issuer.example", "mcp-broker");
    let keys = Path::new(env!("CARGO_TARGET_TMPDIR")).join("walls.jwks");
    issuer.publishes(&keys);
    let file = format!("--jwt-jwks={}", keys.display());
    let broker = Broker::secured_with(&[
        "--jwt-issuer=https://issuer.example",
        "--jwt-audience=mcp-broker",
        &file,
    ]);
    let team = broker.project("team", &json!({}));
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let bearer = |scope: &str, life: u64| {
        let mut claims = issuer.claims("alice", now);
        claims["project_id"] = json!("team");
        claims["scope"] = json!(format!("mcp-broker:{scope}"));
        claims["exp"] = json!(now + life);
        format!("Bearer {}", issuer.signs(&claims))
    };
    let (admin, refreshed, observer) = (bearer("admin", 3600), bearer("admin", 3601), bearer("observer", 3600));
    let session = HttpAgent::legacy_with(broker.address, VERSION, json!({}), &[("Authorization", &admin)]);
    let session = session.registered("alice");
    let rotate = session.call("rotate_project_keys", json!({"key_id": "nosuchkey"}));
    let answer = rotate.clone().with("Authorization", &refreshed).answered();
    assert_eq!(
        answer.json()["result"]["structuredContent"]["code"],
        "invalid_argument",
        "a token is refreshed"
    );
    let answer = rotate.with("Authorization", &observer).answered();
    assert_eq!(answer.refusal(), (404, -32600), "a smaller scope needs another session");
    // An observer does not take its messages either.
    team.agent("bob").sends("hi").to("alice");
    let capabilities = json!({"extensions": {"dev.mcp-broker/push": {"ack": "auto"}}});
    let looking = HttpAgent::modern_with(broker.address, capabilities, &[("Authorization", &observer)]);
    let alice = session.calls("register_session", json!({"name": "alice"}))["session_id"].clone();
    let inbox = format!("broker://sessions/{}/inbox", alice.as_str().unwrap());
    let listen = json!({"notifications": {"resourceSubscriptions": [inbox]}});
    let refusal = looking.request("subscriptions/listen", listen).unwrap_err();
    assert_eq!(refusal["data"]["code"], "forbidden", "{refusal}");
    let read = session.reads(json!({"acknowledge": "manual"}));
    let ack = json!({"session_id": alice, "message_ids": [read[0]["message_id"]]});
    looking.notifies("notifications/dev.mcp-broker/ack", ack);
    let status = session.calls("get_message_status", json!({"message_id": read[0]["message_id"]}));
    assert_eq!(status["recipients"][0]["status"], "delivered");
}
