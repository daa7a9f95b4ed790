//! Tasks of backends (2026-07-28, the extension `io.modelcontextprotocol/tasks`): calls whose result is fetched later.

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan, is_subscribed, listens_to},
    scripted_server::{Answer, ScriptedServer, method_of, modern, result, work},
    support::{Agent, HttpAgent, Redis, Wire, eventually},
};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";
const CHANGED: &str = "notifications/tasks";
const FLAGS: [&str; 3] = ["--era", "modern", "--tasks"];

/// Two modern backends with tasks, and a legacy one.
fn with_tasks() -> Gateway {
    Plan::new()
        .backend("new", &FLAGS)
        .backend("other", &FLAGS)
        .backend("old", &["--era", "legacy"])
        .start()
}

fn takes_tasks() -> Value {
    json!({"elicitation": {}, "extensions": {EXTENSION: {}}})
}

fn socket(gateway: &Gateway) -> Agent {
    Agent::modern(gateway.wire(), takes_tasks())
}

fn socket_at(gateway: &Gateway, path: &str) -> Agent {
    Agent::modern(Wire::open_at(gateway.address, path), takes_tasks())
}

fn http(gateway: &Gateway) -> HttpAgent {
    HttpAgent::modern(gateway.address, takes_tasks())
}

/// A client that sends requests.
type Client<'a> = &'a dyn Fn(&str, Value) -> Result<Value, Value>;

/// Calls a tool that becomes a task. Returns the id of the task.
fn begins(client: Client<'_>, tool: &str, arguments: Value) -> String {
    let task = client("tools/call", json!({"name": tool, "arguments": arguments})).unwrap();
    assert_eq!(task["resultType"], "task", "{task}");
    assert_eq!(
        task["exact"],
        json!(10_000_000_000_000_000_001_u64),
        "all else is passed on"
    );
    let id = task["taskId"].as_str().unwrap().to_owned();
    assert!(!id.starts_with("task-"), "{id}: the id of the backend is signed");
    id
}

fn get(client: Client<'_>, id: &str) -> Result<Value, Value> {
    client("tasks/get", json!({"taskId": id}))
}

/// The error for an id that leads to no task.
fn unknown(client: Client<'_>) -> Value {
    let error = get(client, "no such id").unwrap_err();
    assert_eq!(error["code"], -32602, "{error}");
    error
}

#[test]
fn a_task_is_polled_answered_and_completed() {
    let gateway = with_tasks();
    let (socket, http) = (socket(&gateway), http(&gateway));
    let clients: [Client<'_>; 2] = [&|method, params| socket.request(method, params), &|method, params| {
        http.request(method, params)
    }];
    for client in clients {
        let id = begins(client, "new__task", json!({"asks": true}));
        for _ in 0..2 {
            let task = get(client, &id).unwrap();
            assert_eq!((&task["taskId"], &task["resultType"]), (&json!(id), &json!("complete")));
            assert_eq!(task["status"], "input_required");
            let question = &task["inputRequests"]["q"];
            assert_eq!(question["method"], "elicitation/create");
            assert_eq!(
                question["params"]["message"], "new: Which colour?",
                "people see who asks"
            );
        }
        let answers = json!({"q": {"action": "accept", "content": {"colour": "red"}}});
        let done = client("tasks/update", json!({"taskId": id, "inputResponses": answers})).unwrap();
        assert_eq!(done, json!({"resultType": "complete"}));
        let task = get(client, &id).unwrap();
        assert_eq!(task["status"], "completed");
        assert_eq!(task["result"]["structuredContent"]["responses"], answers);
    }
}

#[test]
fn a_task_is_cancelled() {
    let gateway = with_tasks();
    let agent = socket(&gateway);
    let client: Client<'_> = &|method, params| agent.request(method, params);
    let id = begins(client, "new__task", json!({}));
    assert_eq!(get(client, &id).unwrap()["status"], "working");
    assert_eq!(
        client("tasks/cancel", json!({"taskId": id})).unwrap()["resultType"],
        "complete"
    );
    assert_eq!(get(client, &id).unwrap()["status"], "cancelled");
}

#[test]
fn a_client_of_one_backend_has_its_tasks_and_no_others() {
    let gateway = with_tasks();
    let (all, new, other, old) = (
        socket(&gateway),
        socket_at(&gateway, "/ws/new"),
        socket_at(&gateway, "/ws/other"),
        socket_at(&gateway, "/ws/old"),
    );
    let [all, new, other, old]: [Client<'_>; 4] = [
        &|method, params| all.request(method, params),
        &|method, params| new.request(method, params),
        &|method, params| other.request(method, params),
        &|method, params| old.request(method, params),
    ];
    let id = begins(new, "task", json!({"asks": true}));
    let task = get(new, &id).unwrap();
    assert_eq!(task["inputRequests"]["q"]["params"]["message"], "Which colour?");
    assert_eq!(get(all, &id).unwrap()["taskId"], json!(id));
    for elsewhere in [other, old] {
        assert_eq!(get(elsewhere, &id).unwrap_err(), unknown(elsewhere));
    }
    // A task of the broker is not one of a backend.
    all(
        "tools/call",
        json!({"name": "register_session", "arguments": {"name": "alice"}}),
    )
    .unwrap();
    let own = json!({"name": "receive_messages", "arguments": {"wait_seconds": 60}});
    let own = all("tools/call", own).unwrap()["taskId"].as_str().unwrap().to_owned();
    assert_eq!(get(all, &own).unwrap()["status"], "working");
    assert_eq!(get(new, &own).unwrap_err(), unknown(new));
    let declares = |client: Client<'_>| {
        let introduction = client("server/discover", json!({})).unwrap();
        introduction["capabilities"]["extensions"][EXTENSION].is_object()
    };
    assert_eq!([all, new, old].map(declares), [true, true, false]);
}

#[test]
fn the_id_of_a_task_is_good_for_its_caller_alone() {
    let gateway = Plan::new()
        .table("projects.team.backends.new", &FLAGS, "")
        .table("projects.rivals.backends.new", &FLAGS, "")
        .start_secured();
    let (team, rivals) = (
        gateway.project("team", &json!({})),
        gateway.project("rivals", &json!({})),
    );
    let as_key = |key: &str| HttpAgent::modern_with(gateway.address, takes_tasks(), &[("X-API-Key", key)]);
    let (mine, colleague) = (as_key(&team.key), as_key(&team.new_key_with_scope("member")));
    let (observer, rival) = (as_key(&team.new_key_with_scope("observer")), as_key(&rivals.key));
    let mine: Client<'_> = &|method, params| mine.request(method, params);
    let id = begins(mine, "new__task", json!({}));
    // The rival's backend has a task of the same id.
    begins(&|method, params| rival.request(method, params), "new__task", json!({}));
    for thief in [&colleague, &observer, &rival] {
        let thief: Client<'_> = &|method, params| thief.request(method, params);
        let not_found = unknown(thief);
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            let stolen = thief(method, json!({"taskId": id, "inputResponses": {}})).unwrap_err();
            assert_eq!(stolen, not_found, "{method}");
        }
    }
    for forged in [
        "task-1".to_owned(),
        id.replacen('A', "B", 1),
        format!("{id}x"),
        id[1..].to_owned(),
    ] {
        if forged != id {
            assert_eq!(get(mine, &forged).unwrap_err(), unknown(mine), "{forged}");
        }
    }
    assert_eq!(get(mine, &id).unwrap()["status"], "working");
}

#[test]
fn a_caller_that_does_not_declare_the_extension_gets_no_task() {
    let gateway = with_tasks();
    let (agent, legacy) = (gateway.modern_socket(), gateway.legacy());
    for client in [&agent, &legacy] {
        assert_eq!(client.gets("new__task", json!({})), json!({"done": true}));
        let error = client.fails_as("backend_protocol", "new__task", json!({"forced": true}));
        assert!(error["message"].as_str().unwrap().contains("is a task"), "{error}");
        let declared = client.gets("new__echo", json!({}));
        let declared = &declared["meta"]["io.modelcontextprotocol/clientCapabilities"];
        assert!(declared.get("extensions").is_none(), "{declared}");
    }
    let declared = socket(&gateway).gets("new__echo", json!({}));
    let declared = &declared["meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"];
    assert_eq!(
        *declared,
        json!({EXTENSION: {}}),
        "it is told of the caller of this call"
    );

    let id = begins(
        &|method, params| socket(&gateway).request(method, params),
        "new__task",
        json!({}),
    );
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let params = json!({"taskId": id, "inputResponses": {}});
        let error = agent.request(method, params.clone()).unwrap_err();
        assert_eq!(error["code"], -32021, "{error}");
        assert_eq!(legacy.error_of(method, params), -32601);
    }
}

#[test]
fn a_denied_tool_has_no_tasks() {
    let plan = |lines: &'static str| move |plan: Plan| plan.backend_with("new", &FLAGS, lines);
    let gateway = plan("")(Plan::new()).start();
    let agent = socket(&gateway);
    let client: Client<'_> = &|method, params| agent.request(method, params);
    let id = begins(client, "new__task", json!({}));
    gateway.is_configured(plan("tools.deny = [\"task\"]"));
    eventually("the task is unknown", || {
        let error = get(client, &id).err()?;
        (error == unknown(client)).then_some(())
    });
    gateway.is_configured(plan(""));
    eventually("the task is known again", || get(client, &id).ok());
}

#[test]
fn tasks_end_with_their_process() {
    let gateway = with_tasks();
    let agent = socket(&gateway);
    let client: Client<'_> = &|method, params| agent.request(method, params);
    let id = begins(client, "new__task", json!({}));
    agent.fails_as("backend_died", "new__kill", json!({}));
    assert_eq!(get(client, &id).unwrap_err(), unknown(client));
    // The next process counts its tasks from the beginning, and this one may be another caller's.
    let again = begins(client, "new__task", json!({}));
    assert_eq!(get(client, &again).unwrap()["status"], "working");
    assert_eq!(get(client, &id).unwrap_err(), unknown(client));
}

/// Opens a subscription to tasks. Returns its id and the ids that are honored.
fn listen(client: &Agent, ids: &[&str]) -> (Value, Value) {
    listens_to(client, "taskIds", ids)
}

/// Waits until a backend has been asked for these tasks and no others.
fn is_asked_for(gateway: &Gateway, ids: &[&str]) {
    is_subscribed(gateway, "new", "tasks", ids);
}

#[test]
fn a_subscriber_is_told_of_its_tasks_and_no_others() {
    let gateway = Plan::new()
        .table("projects.team.backends.new", &FLAGS, "")
        .start_secured();
    let team = gateway.project("team", &json!({}));
    let other_key = team.new_key_with_scope("member");
    let connect = |key: &str| Agent::modern(gateway.wire_with(&[("X-API-Key", key)]), takes_tasks());
    let (alice, bob) = (connect(&team.key), connect(&other_key));
    let [of_alice, of_bob] = [&alice, &bob].map(|agent| {
        let client: Client<'_> = &|method, params| agent.request(method, params);
        begins(client, "new__task", json!({"asks": true}))
    });
    let (listen_of_alice, honored) = listen(&alice, &[&of_alice, &of_bob, "no such id", "task-1"]);
    assert_eq!(honored, json!([of_alice]));
    let (second_of_alice, _) = listen(&alice, &[&of_alice]);
    let (listen_of_bob, honored) = listen(&bob, &[&of_bob]);
    assert_eq!(honored, json!([of_bob]));
    let watcher = team.client();
    eventually("the backend was asked", || {
        let subscribed = watcher.gets("new__subscribed", json!({}));
        (subscribed["tasks"].as_array()?.len() == 2).then_some(())
    });
    watcher.gets("new__finish", json!({"task": "task-1"}));
    let mut told = [
        alice.wire.next_notification(CHANGED),
        alice.wire.next_notification(CHANGED),
    ];
    told.sort_by_key(|told| told["_meta"].to_string());
    for (told, listen) in told.iter().zip([&listen_of_alice, &second_of_alice]) {
        assert_eq!(told["_meta"], json!({"io.modelcontextprotocol/subscriptionId": listen}));
        assert_eq!(
            (&told["taskId"], &told["status"]),
            (&json!(of_alice), &json!("completed"))
        );
        assert_eq!(told["result"]["structuredContent"], json!({"done": true}));
        assert_eq!(told["exact"], json!(10_000_000_000_000_000_001_u64));
    }
    watcher.gets("new__finish", json!({"task": "task-2"}));
    let told = bob.wire.next_notification(CHANGED);
    assert_eq!(told["_meta"]["io.modelcontextprotocol/subscriptionId"], listen_of_bob);
    assert_eq!(told["taskId"], json!(of_bob));
    assert_eq!(alice.wire.notifications_so_far(CHANGED), 0);
    alice.wire.cancels(&listen_of_alice);
    alice.wire.cancels(&second_of_alice);
    eventually("the backend is asked for the other task alone", || {
        (watcher.gets("new__subscribed", json!({}))["tasks"] == json!(["task-2"])).then_some(())
    });
}

#[test]
fn questions_are_told_with_the_name_of_the_backend() {
    let gateway = with_tasks();
    let (all, alone) = (socket(&gateway), socket_at(&gateway, "/ws/new"));
    let id = begins(
        &|method, params| all.request(method, params),
        "new__task",
        json!({"asks": true}),
    );
    for (client, message) in [(&all, "new: Which colour?"), (&alone, "Which colour?")] {
        let (subscription, _) = listen(client, &[&id]);
        is_asked_for(&gateway, &["task-1"]);
        gateway.legacy().gets("new__tell", json!({"task": "task-1"}));
        let told = client.wire.next_notification(CHANGED);
        assert_eq!(told["inputRequests"]["q"]["params"]["message"], message);
        client.wire.cancels(&subscription);
        is_asked_for(&gateway, &[]);
    }
}

#[test]
fn a_server_over_http_gets_its_own_id_in_body_and_header() {
    let server = ScriptedServer::start(|request, _| match method_of(request).as_str() {
        "server/discover" => {
            let introduction = json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}, "extensions": {EXTENSION: {}}},
                "serverInfo": {"name": "scripted", "version": "1"}, "ttlMs": 0, "cacheScope": "private",
            });
            Answer::json(&result(request, &introduction))
        }
        "tools/call" => {
            let task = json!({"resultType": "task", "taskId": "ö 1", "exact": 10_000_000_000_000_000_001_u64});
            Answer::json(&result(request, &task))
        }
        "tasks/get" => {
            let id = &request.json()["params"]["taskId"];
            Answer::json(&result(request, &json!({"resultType": "complete", "taskId": id})))
        }
        "tasks/cancel" => Answer::json(&result(
            request,
            &json!({"resultType": "complete", "taskId": "another"}),
        )),
        _ => modern(request, &work()),
    });
    let gateway = Plan::new().url("far", &server.url(), "").start();
    let client = http(&gateway);
    let sends: Client<'_> = &|method, params| client.request(method, params);
    let id = begins(sends, "far__work", json!({}));
    assert_eq!(get(sends, &id).unwrap()["taskId"], json!(id));
    assert_eq!(
        server.header_of("tasks/get", "mcp-name").as_deref(),
        Some("=?base64?w7YgMQ==?=")
    );
    // What a client says must agree, too.
    let asked = client.asks("tasks/get", json!({"taskId": id}));
    assert_eq!(asked.with("Mcp-Name", "another").refused(), (400, -32020));
    let error = sends("tasks/cancel", json!({"taskId": id})).unwrap_err();
    assert_eq!(error["data"]["code"], "backend_protocol", "{error}");
}

#[test]
fn a_task_is_served_by_the_replica_that_has_it() {
    let redis = Redis::start();
    let replica = || {
        let plan = Plan::new().backend("new", &FLAGS).flag("--storage=redis");
        plan.flag(&format!("--redis-url={}", redis.url())).start()
    };
    let (here, there) = (replica(), replica());
    let (at_home, elsewhere) = (http(&here), http(&there));
    let id = begins(
        &|method, params| at_home.request(method, params),
        "new__task",
        json!({}),
    );
    let task = get(&|method, params| elsewhere.request(method, params), &id).unwrap();
    assert_eq!(task["status"], "working", "over HTTP the request is forwarded");
    let socket = socket(&there);
    let error = get(&|method, params| socket.request(method, params), &id).unwrap_err();
    assert_eq!(error["data"]["reason"], "call_elsewhere", "{error}");
    assert!(id.starts_with(error["data"]["replica"].as_str().unwrap()), "{error}");
}
