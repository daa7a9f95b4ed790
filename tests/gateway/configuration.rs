//! The configuration file changes while the broker runs.

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan, tools_of},
    operators::cli,
    support::eventually,
};

fn health(gateway: &Gateway) -> Value {
    gateway.get("/health").json()
}

#[test]
fn backends_are_added_changed_and_removed() {
    let gateway = Plan::new().lines("# no backends yet").start();
    let client = gateway.legacy();
    assert_eq!(client.code_of("fake__echo", json!({})), -32602);
    gateway.is_configured(|plan| plan.backend("fake", &[]).backend("other", &[]));
    client.wire.next_notification("notifications/tools/list_changed");
    eventually("both are listed", || {
        (!tools_of(&client, "fake").is_empty() && !tools_of(&client, "other").is_empty()).then_some(())
    });
    let other = client.gets("other__pid", json!({}))["pid"].clone();

    gateway.is_configured(|plan| plan.backend("fake", &["--tool", "fresh"]).backend("other", &[]));
    eventually("the changed backend has a new tool", || {
        tools_of(&client, "fake").contains(&"fresh".to_owned()).then_some(())
    });
    assert_eq!(
        client.gets("other__pid", json!({}))["pid"],
        other,
        "the other one was not touched"
    );

    gateway.is_configured(|plan| plan.backend("other", &[]));
    eventually("the removed backend is not listed", || {
        tools_of(&client, "fake").is_empty().then_some(())
    });
    assert_eq!(client.code_of("fake__echo", json!({})), -32602);
    eventually("its process has ended", || {
        (gateway.programs().len() == 1).then_some(())
    });
    assert_eq!(client.gets("other__pid", json!({}))["pid"], other);
}

#[test]
fn the_file_of_a_config_map_is_followed() {
    let gateway = Plan::new().lines("# no backends yet").mounted().start();
    let client = gateway.legacy();
    for tool in ["first", "second"] {
        gateway.is_configured(|plan| plan.backend("fake", &["--tool", tool]));
        eventually(tool, || {
            tools_of(&client, "fake").contains(&tool.to_owned()).then_some(())
        });
    }
}

#[test]
fn open_calls_end_before_a_changed_or_removed_backend_does() {
    let gateway = Plan::new().backend("changed", &[]).backend("removed", &[]).start();
    let client = gateway.legacy();
    client.gets("changed__echo", json!({}));
    client.gets("removed__echo", json!({}));
    let open = ["changed", "removed"].map(|name| client.begins_call(&format!("{name}__sleep"), &json!({"ms": 1_500})));
    client.wire.syncs();
    gateway.is_configured(|plan| plan.backend("changed", &["--tool", "fresh"]));
    eventually("the change is in force", || {
        tools_of(&client, "removed").is_empty().then_some(())
    });
    let next = client.begins_call("changed__echo", &json!({"after": true}));
    for call in open {
        let result = client.wire.answer_to(&call).unwrap();
        assert_eq!(result["structuredContent"], json!({"done": true}), "{result}");
    }
    let result = client.wire.answer_to(&next).unwrap();
    assert_eq!(
        result["structuredContent"]["arguments"],
        json!({"after": true}),
        "{result}"
    );
}

#[test]
fn a_wrong_file_changes_nothing_and_is_named() {
    let gateway = Gateway::with_fake(&[]);
    let client = gateway.legacy();
    let pid = client.gets("fake__pid", json!({}))["pid"].clone();
    assert!(health(&gateway).get("config_error").is_none());
    for (lines, named) in [
        ("[backends.fake]\ncomand = \"x\"", "backends.fake"),
        ("[backends.fake", "line 1"),
        ("queue_capacity = \"many\"", "queue_capacity"),
    ] {
        gateway.is_configured(|plan| plan.lines(lines));
        eventually(named, || {
            let problem = health(&gateway)["config_error"].as_str()?.to_owned();
            problem.contains(named).then_some(())
        });
        assert_eq!(client.gets("fake__pid", json!({}))["pid"], pid);
        assert_eq!(gateway.get("/readyz").status, 200);
        let listed = cli(&gateway, &["list"]);
        assert!(listed.status.success());
        let said = String::from_utf8(listed.stderr).unwrap();
        assert!(
            said.contains("keeps the backends that it read before") && said.contains(named),
            "{said}"
        );
    }
    gateway.is_configured(|plan| plan.backend("fake", &[]).backend("second", &[]));
    eventually("the file is right again", || {
        health(&gateway).get("config_error").is_none().then_some(())
    });
    eventually("its new backend is there", || {
        (!tools_of(&client, "second").is_empty()).then_some(())
    });
    assert_eq!(
        client.gets("fake__pid", json!({}))["pid"],
        pid,
        "an unchanged backend goes on"
    );
}
