//! Clients that want to be told when resources of backends change.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan, is_subscribed, listens_to, tools_of},
    support::{Agent, Wire, eventually},
};

const UPDATED: &str = "notifications/resources/updated";
/// How long the broker waits for the acknowledgement of a modern backend.
const ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_secs(10);
const ERAS: [&str; 2] = ["legacy", "modern"];

/// A backend of each era, named after it. They run: what is subscribed to before that counts as changed at the start.
fn of_both_eras() -> Gateway {
    let plan = Plan::new();
    let gateway = ERAS
        .iter()
        .fold(plan, |plan, era| plan.backend(era, &["--era", era]))
        .start();
    for era in ERAS {
        is_asked_for(&gateway, era, &[]);
    }
    gateway
}

fn subscribe(client: &Agent, uri: &str) -> Result<Value, Value> {
    client.request("resources/subscribe", json!({"uri": uri}))
}

/// Opens a subscription of a modern client. Returns its id and the resources that are honored.
fn listen(client: &Agent, uris: &[&str]) -> (Value, Value) {
    listens_to(client, "resourceSubscriptions", uris)
}

/// Waits until a backend has been asked for these resources and no others.
fn is_asked_for(gateway: &Gateway, backend: &str, uris: &[&str]) {
    let member = if backend == "modern" { "listened" } else { "subscribed" };
    is_subscribed(gateway, backend, member, uris);
}

fn touch(gateway: &Gateway, backend: &str, uri: &str) {
    gateway.legacy().gets(&format!("{backend}__touch"), json!({"uri": uri}));
}

#[test]
fn clients_of_both_eras_are_told_by_backends_of_both() {
    let gateway = of_both_eras();
    for backend in ERAS {
        let uri = format!("{backend}+fake://one");
        let (old, new) = (gateway.legacy(), gateway.modern_socket());
        subscribe(&old, &uri).unwrap();
        let (id, honored) = listen(&new, &[&uri, "nowhere://x"]);
        assert_eq!(honored, json!([uri]));
        is_asked_for(&gateway, backend, &["fake://one"]);
        touch(&gateway, backend, "fake://one");
        assert_eq!(old.wire.next_notification(UPDATED), json!({"uri": uri}));
        let told = new.wire.next_notification(UPDATED);
        assert_eq!(
            (&told["uri"], &told["_meta"]["io.modelcontextprotocol/subscriptionId"]),
            (&json!(uri), &id)
        );
        old.request("resources/unsubscribe", json!({"uri": uri})).unwrap();
        touch(&gateway, backend, "fake://one");
        new.wire.next_notification(UPDATED);
        old.wire.syncs();
        assert_eq!(old.wire.notifications_so_far(UPDATED), 0);
        drop(new);
        is_asked_for(&gateway, backend, &[]);
    }
}

#[test]
fn a_backend_is_asked_once_for_a_resource_and_told_of_further_ones() {
    let gateway = of_both_eras();
    for backend in ERAS {
        let clients = [gateway.legacy(), gateway.legacy()];
        for client in &clients {
            subscribe(client, &format!("{backend}+fake://one")).unwrap();
        }
        is_asked_for(&gateway, backend, &["fake://one"]);
        subscribe(&clients[0], &format!("{backend}+fake://any")).unwrap();
        is_asked_for(&gateway, backend, &["fake://any", "fake://one"]);
        for uri in ["fake://any", "fake://one"] {
            touch(&gateway, backend, uri);
            let told = clients[0].wire.next_notification(UPDATED);
            assert_eq!(told, json!({"uri": format!("{backend}+{uri}")}));
        }
    }
}

#[test]
fn a_backend_that_was_started_again_is_asked_again() {
    for era in ERAS {
        let gateway = Gateway::with_fake(&["--era", era]);
        let client = gateway.legacy();
        subscribe(&client, "fake+fake://one").unwrap();
        client.gets("fake__touch", json!({"uri": "fake://one"}));
        client.fails_as("backend_died", "fake__die", json!({}));
        // What happened in between is not known, so the client reads it again.
        client.wire.next_notification(UPDATED);
        eventually("the next one tells of changes", || {
            client.gets("fake__touch", json!({"uri": "fake://one"}));
            client.wire.syncs();
            (client.wire.notifications_so_far(UPDATED) > 0).then_some(())
        });
    }
}

#[test]
fn a_client_of_one_backend_uses_its_own_uris_also_over_http() {
    let server = Gateway::with_fake(&[]);
    let at = server.address;
    for era in ERAS {
        let gateway = Plan::new()
            .url("far", &format!("http://{at}/mcp/fake"), &format!("era = {era:?}"))
            .start();
        let client = Agent::legacy(Wire::open_at(gateway.address, "/ws/far"), "2025-11-25", &json!({}));
        client.request("tools/list", json!({})).unwrap();
        assert!(
            subscribe(&client, "broker://inbox").is_ok(),
            "it is a URI as any other there"
        );
        subscribe(&client, "fake://one").unwrap();
        eventually("the far backend tells of changes", || {
            client.gets("touch", json!({"uri": "fake://one"}));
            client.wire.syncs();
            (client.wire.notifications_so_far(UPDATED) > 0).then_some(())
        });
    }
}

/// The backend is asked for the other resource at once, and not after the time that it has for an acknowledgement.
#[test]
fn a_refused_subscription_does_not_hold_up_the_next_one() {
    let gateway = Plan::new()
        .backend("modern", &["--era", "modern", "--refused-listens", "1"])
        .start();
    let client = gateway.legacy();
    let listen_requests = || client.gets("modern__subscribed", json!({}))["listen_requests"].clone();
    eventually("the broker asks to be told of lists", || {
        (listen_requests() == 1).then_some(())
    });
    let asked = Instant::now();
    subscribe(&client, "modern+fake://one").unwrap();
    eventually("the broker asks again", || (listen_requests() == 2).then_some(()));
    assert!(asked.elapsed() < ACKNOWLEDGEMENT_TIMEOUT, "{:?}", asked.elapsed());
    is_asked_for(&gateway, "modern", &["fake://one"]);
    touch(&gateway, "modern", "fake://one");
    client.wire.next_notification(UPDATED);
}

#[test]
fn what_cannot_be_subscribed_to_is_refused() {
    let gateway = of_both_eras();
    let client = gateway.legacy();
    tools_of(&client, "legacy");
    assert_eq!(subscribe(&client, "nowhere://x").unwrap_err()["code"], -32002);
    for at in 0..256 {
        subscribe(&client, &format!("legacy+fake://{at}")).unwrap();
    }
    let error = subscribe(&client, "legacy+fake://more").unwrap_err();
    assert_eq!(error["code"], -32602);
    assert!(error["message"].as_str().unwrap().contains("at most 256"), "{error}");
    client
        .request("resources/unsubscribe", json!({"uri": "legacy+fake://7"}))
        .unwrap();
    subscribe(&client, "legacy+fake://more").unwrap();
}

#[test]
fn subscriptions_go_over_to_a_changed_program() {
    let plan = Plan::new();
    let file = plan.file("server.flags");
    fs::write(&file, "--tool first").unwrap();
    let lines = format!("watch = [{file:?}]");
    let gateway = plan.backend_with("fake", &["--flags-of", &file], &lines).start();
    let client = gateway.legacy();
    tools_of(&client, "fake");
    subscribe(&client, "fake+fake://one").unwrap();
    fs::write(&file, "--tool second").unwrap();
    eventually("the changed program is listed", || {
        tools_of(&client, "fake")
            .iter()
            .any(|tool| tool == "second")
            .then_some(())
    });
    eventually("it tells of changes", || {
        client.gets("fake__touch", json!({"uri": "fake://one"}));
        client.wire.syncs();
        (client.wire.notifications_so_far(UPDATED) > 0).then_some(())
    });
}
