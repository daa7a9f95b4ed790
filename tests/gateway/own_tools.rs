//! What agents see of the backends themselves: the broker's own tools and resources, and who is told of changed states.

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan, tool_names, tools_of},
    support::{ADMIN_KEY, Agent, Wire, eventually, keys},
};

const UPDATED: &str = "notifications/resources/updated";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// What a resource shows.
fn read(client: &Agent, uri: &str) -> Value {
    let result = client.request("resources/read", json!({"uri": uri})).unwrap();
    serde_json::from_str(result["contents"][0]["text"].as_str().unwrap()).unwrap()
}

/// The URIs of the resources of backends, and of their templates.
fn listed_resources(client: &Agent) -> Vec<String> {
    let lists = [("resources", "uri"), ("resourceTemplates", "uriTemplate")];
    let of = |(list, key): (&str, &str)| -> Vec<String> {
        let method = if list == "resources" {
            "resources/list"
        } else {
            "resources/templates/list"
        };
        let listed = client.request(method, json!({})).unwrap();
        let items = listed[list].as_array().unwrap().iter();
        items.map(|item| item[key].as_str().unwrap().to_owned()).collect()
    };
    let all = lists.into_iter().flat_map(of);
    all.filter(|uri| uri.starts_with("broker://backends")).collect()
}

/// An operator commands a backend.
fn commands(gateway: &Gateway, path: &str) {
    let path = format!("/api/v1/backends/{path}");
    assert_eq!(gateway.rest_with(&[], "POST", &path, &Value::Null).status, 200);
}

/// Waits until a client has been told that a resource has changed.
fn is_told(client: &Agent, params: &Value) {
    client.wire.awaits_frame("a notification", |frame| {
        frame["method"] == UPDATED && frame["params"] == *params
    });
}

fn is_in_state(gateway: &Gateway, state: &str) {
    eventually(state, || {
        let shown = gateway.get("/api/v1/backends/fake").json();
        (shown["state"] == state).then_some(())
    });
}

#[test]
fn an_agent_learns_which_backends_run_and_why_others_do_not() {
    let gateway = Plan::new()
        .backend("fake", &["--era", "modern"])
        .lines("[backends.nope]\ncommand = \"no-such-program\"\nargs = [\"--token=very-secret\"]")
        .start();
    let client = gateway.legacy();
    client.gets("fake__echo", json!({}));
    let answer = client.calls("list_backends", json!({}));
    let [fake, nope] = answer["backends"].as_array().unwrap().as_slice() else {
        panic!("{answer}");
    };
    assert_eq!(
        keys(fake),
        ["calls", "era", "failures", "name", "server", "since", "state", "tools"]
    );
    assert_eq!(
        (&fake["name"], &fake["state"], &fake["era"], &fake["calls"]),
        (&json!("fake"), &json!("ready"), &json!("modern"), &json!(1))
    );
    assert_eq!(nope["state"], "failed");
    assert!(nope["reason"].as_str().unwrap().contains("no-such-program"), "{nope}");
    assert!(nope["retry_after_ms"].is_u64(), "{nope}");
    assert!(!answer.to_string().contains("very-secret"), "{answer}");
    let one = client.calls("list_backends", json!({"name": "fake"}));
    assert_eq!(one["backends"].as_array().unwrap().len(), 1);
    assert_eq!(one["backends"][0]["name"], "fake");
    for tool in ["list_backends", "restart_backend"] {
        client.is_refused_as("backend_not_found", tool, json!({"name": "none"}));
    }
}

#[test]
fn only_administrators_restart_backends_by_a_tool_and_it_is_audited() {
    let gateway = Plan::new()
        .table("projects.team.backends.fake", &[], "")
        .start_secured();
    let team = gateway.project("team", &json!({}));
    let [observer, member, admin] =
        ["observer", "member", "admin"].map(|scope| team.client_as(&team.new_key_with_scope(scope)));
    for (client, sees) in [
        (&observer, [true, false]),
        (&member, [true, false]),
        (&admin, [true, true]),
    ] {
        let names = tool_names(client);
        let seen = ["list_backends", "restart_backend"].map(|tool| names.iter().any(|name| name == tool));
        assert_eq!(seen, sees, "{names:?}");
    }
    let first = member.gets("fake__pid", json!({}))["pid"].clone();
    member.is_refused_as("forbidden", "restart_backend", json!({"name": "fake"}));
    assert_eq!(
        observer.calls("list_backends", json!({}))["backends"][0]["starts"],
        Value::Null
    );
    let answer = admin.calls("restart_backend", json!({"name": "fake"}));
    assert_eq!(answer["name"], "fake");
    eventually("it has a new process", || {
        let result = member.result_of("fake__pid", json!({})).unwrap();
        let pid = result["structuredContent"]["pid"].clone();
        (pid.is_u64() && pid != first).then_some(())
    });
    let audit = gateway
        .rest(ADMIN_KEY, "GET", "/api/v1/audit?project=team", &Value::Null)
        .json();
    let entries = audit["entries"].as_array().unwrap().iter();
    let outcomes: Vec<_> = entries
        .filter(|entry| entry["action"] == "backend.restart")
        .map(|entry| (entry["outcome"].as_str().unwrap(), entry["target"].as_str().unwrap()))
        .collect();
    assert_eq!(outcomes, [("done", "fake"), ("refused", "fake")], "{audit}");
}

#[test]
fn tools_and_resources_of_backends_are_listed_where_a_project_has_some() {
    let gateway = Plan::new().lines("# no backends yet").start();
    let client = gateway.legacy();
    let has_tool = |client: &Agent| tool_names(client).contains(&"list_backends".to_owned());
    assert!(!has_tool(&client));
    assert_eq!(listed_resources(&client), [] as [&str; 0]);
    assert_eq!(client.code_of("list_backends", json!({})), -32602);
    assert_eq!(
        client.error_of("resources/read", json!({"uri": "broker://backends"})),
        -32002
    );
    gateway.is_configured(|plan| plan.backend("fake", &[]));
    client.wire.next_notification("notifications/tools/list_changed");
    eventually("the tools of the backend are listed", || {
        (!tools_of(&client, "fake").is_empty()).then_some(())
    });
    assert!(has_tool(&client));
    let uris = [
        "broker://backends",
        "broker://backends/{name}",
        "broker://backends/{name}/log",
    ];
    assert_eq!(listed_resources(&client), uris);
    let only_own = Agent::legacy(Wire::open_at(gateway.address, "/ws/broker"), "2025-11-25", &json!({}));
    assert!(has_tool(&only_own));
    assert_eq!(listed_resources(&only_own), uris);
    let only_fake = Agent::legacy(Wire::open_at(gateway.address, "/ws/fake"), "2025-11-25", &json!({}));
    assert!(!has_tool(&only_fake));
}

#[test]
fn resources_show_backends_as_rest_does_and_the_log_to_administrators_alone() {
    let gateway = Plan::new()
        .table("projects.team.backends.fake", &["--garbage-at-start", "2"], "")
        .start_secured();
    let team = gateway.project("team", &json!({}));
    let [member, admin] = ["member", "admin"].map(|scope| team.client_as(&team.new_key_with_scope(scope)));
    member.gets("fake__echo", json!({}));
    let shown = read(&member, "broker://backends/fake");
    assert_eq!((&shown["state"], &shown["calls"]), (&json!("ready"), &json!(1)));
    assert_eq!(read(&member, "broker://backends")["backends"], json!([shown]));
    assert!(!shown["address"].as_str().unwrap().contains("garbage"), "{shown}");
    let with_arguments = read(&admin, "broker://backends/fake");
    assert!(
        with_arguments["address"]
            .as_str()
            .unwrap()
            .contains("--garbage-at-start")
    );
    let log = json!({"uri": "broker://backends/fake/log"});
    let refused = member.request("resources/read", log).unwrap_err();
    assert_eq!(refused["data"]["code"], "forbidden", "{refused}");
    let lines = read(&admin, "broker://backends/fake/log");
    assert!(lines["lines"].to_string().contains("starting up, step 1"), "{lines}");
    for uri in [
        "broker://backends/",
        "broker://backends/none",
        "broker://backends/none/log",
        "broker://backends/fake/tools",
        "broker://backends?cursor=a",
    ] {
        assert_eq!(admin.error_of("resources/read", json!({"uri": uri})), -32002, "{uri}");
    }
    let reference = json!({"type": "ref/resource", "uri": "broker://backends/{name}"});
    let params = json!({"ref": reference, "argument": {"name": "name", "value": "F"}});
    let completed = member.request("completion/complete", params).unwrap();
    assert_eq!(completed["completion"]["values"], json!(["fake"]));
}

#[test]
fn a_legacy_subscriber_is_told_of_changed_states() {
    let gateway = Plan::new().backend("fake", &[]).backend("other", &[]).start();
    let client = gateway.legacy();
    for name in ["fake", "other"] {
        client.gets(&format!("{name}__echo"), json!({}));
    }
    let [all, fake, other, log] =
        ["", "/fake", "/other", "/fake/log"].map(|rest| json!({"uri": format!("broker://backends{rest}")}));
    for uri in [&all, &fake, &other] {
        assert_eq!(client.request("resources/subscribe", uri.clone()), Ok(json!({})));
    }
    assert_eq!(client.error_of("resources/subscribe", log), -32602);
    let unknown = json!({"uri": "broker://backends/none"});
    assert_eq!(client.error_of("resources/subscribe", unknown), -32002);
    assert_eq!(client.wire.notifications_so_far(UPDATED), 0);

    commands(&gateway, "fake/stop");
    is_told(&client, &all);
    is_told(&client, &fake);
    is_in_state(&gateway, "disabled");

    for uri in [&all, &fake] {
        assert_eq!(client.request("resources/unsubscribe", uri.clone()), Ok(json!({})));
    }
    // The stop has a second state.
    for _ in 0..client.wire.notifications_so_far(UPDATED) {
        assert_ne!(client.wire.next_notification(UPDATED), other);
    }
    commands(&gateway, "other/stop");
    assert_eq!(client.wire.next_notification(UPDATED), other);
}

#[test]
fn a_listen_is_told_of_changed_states() {
    let gateway = Gateway::with_fake(&[]);
    let client = gateway.modern_socket();
    client.gets("fake__echo", json!({}));
    let uris = [
        "broker://backends/fake",
        "broker://backends/none",
        "broker://backends/fake/log",
    ];
    let params = client.params(json!({"notifications": {"resourceSubscriptions": uris}}));
    client.wire.asks_as(&json!("w"), "subscriptions/listen", params);
    let acknowledged = client
        .wire
        .next_notification("notifications/subscriptions/acknowledged");
    assert_eq!(
        acknowledged["notifications"],
        json!({"resourceSubscriptions": ["broker://backends/fake"]})
    );
    commands(&gateway, "fake/restart");
    is_told(
        &client,
        &json!({"_meta": {SUBSCRIPTION: "w"}, "uri": "broker://backends/fake"}),
    );
    is_in_state(&gateway, "ready");
    assert_eq!(read(&client, "broker://backends/fake")["starts"], 2);
}
