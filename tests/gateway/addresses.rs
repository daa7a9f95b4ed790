//! Addresses that backends hand out are read on the connection that handed them out.

use serde_json::{Value, json};

use super::{
    harness::{Calls, Plan, tools_of},
    support::{Agent, HttpAgent, Wire},
};

/// A tool whose user interface is a resource that no list has.
const WIDGET: &str = r#"{"name": "widget", "inputSchema": {"type": "object"},
    "_meta": {"ui": {"resourceUri": "ui://widget"}, "example.com/see": ["fake://unlisted", "https://example.com/"]}}"#;

/// A plan with backends that offer the same, and say who they are.
fn plan_of(names: &[&str]) -> Plan {
    names.iter().fold(Plan::new(), |plan, name| {
        plan.backend(name, &["--name", &format!(" by {name}"), "--item", "tools", WIDGET])
    })
}

/// What a client gets, as any client asks.
trait Reader: Calls {
    fn asks_for(&self, method: &str, params: Value) -> Result<Value, Value>;

    fn content_at(&self, uri: &Value) -> String {
        let read = self.asks_for("resources/read", json!({"uri": uri})).unwrap();
        read["contents"][0]["text"].as_str().unwrap().to_owned()
    }
}

impl Reader for Agent {
    fn asks_for(&self, method: &str, params: Value) -> Result<Value, Value> {
        self.request(method, params)
    }
}

impl Reader for HttpAgent {
    fn asks_for(&self, method: &str, params: Value) -> Result<Value, Value> {
        self.request(method, params)
    }
}

/// Reads everything that each of these backends hands out.
fn reads_all(client: &impl Reader, backends: &[&str]) {
    for backend in backends {
        let by = format!(" by {backend}");
        let result = client.result_of(&format!("{backend}__hand_out"), json!({})).unwrap();
        let handed_out = [
            &result["content"][0]["uri"],
            &result["content"][1]["resource"]["uri"],
            &result["_meta"]["example.com/see"],
        ];
        for uri in handed_out {
            assert_eq!(
                client.content_at(uri),
                format!("content of {}{by}", uri.as_str().unwrap())
            );
        }
        let listed = json!(format!("{backend}+fake://one"));
        let read = client.asks_for("resources/read", json!({"uri": listed})).unwrap();
        let uri = &read["contents"][0]["uri"];
        assert_eq!(client.content_at(uri), format!("content of fake://one{by}"));
        let tools = client.asks_for("tools/list", json!({})).unwrap();
        let tools = tools["tools"].as_array().unwrap();
        let meta = &tools
            .iter()
            .find(|tool| tool["name"] == format!("{backend}__widget"))
            .unwrap()["_meta"];
        assert_eq!(meta["ui"]["resourceUri"], format!("ui://{backend}/widget"));
        assert_eq!(
            client.content_at(&meta["example.com/see"][0]),
            format!("content of fake://unlisted{by}")
        );
        assert_eq!(meta["example.com/see"][1], "https://example.com/", "a page of the web");
    }
}

#[test]
fn what_results_and_lists_hand_out_is_read_with_one_backend_or_five() {
    for backends in [&["a"][..], &["a", "b", "c", "d", "1e"]] {
        let gateway = plan_of(backends).start();
        let legacy = gateway.legacy();
        tools_of(&legacy, "a");
        reads_all(&legacy, backends);
        reads_all(&gateway.modern_socket(), backends);
        reads_all(&gateway.modern_http(), backends);
    }
}

#[test]
fn an_address_is_known_to_the_caller_that_got_it_alone() {
    let gateway = plan_of(&["a", "b"]).start();
    let (first, second) = (gateway.legacy(), gateway.legacy());
    let result = first.result_of("a__hand_out", json!({})).unwrap();
    let uri = result["content"][0]["uri"].clone();
    assert!(second.request("resources/read", json!({"uri": uri})).is_err());
    second.result_of("b__hand_out", json!({})).unwrap();
    assert!(first.content_at(&uri).ends_with(" by a"));
    assert!(second.content_at(&uri).ends_with(" by b"));
    // It is subscribed to by the same address.
    first.request("resources/subscribe", json!({"uri": uri})).unwrap();
}

#[test]
fn a_backend_cannot_take_the_addresses_of_another_one() {
    let gateway = plan_of(&["a", "b"]).start();
    let client = gateway.legacy();
    tools_of(&client, "a");
    for uri in ["a+fake://one", "a+fake://unlisted", "ui://a/widget"] {
        client.result_of("b__hand_out", json!({"uri": uri})).unwrap();
        let read = client.request("resources/read", json!({"uri": uri}));
        assert!(!read.is_ok_and(|read| read.to_string().contains(" by b")), "{uri}");
    }
    let alone = Agent::legacy(Wire::open_at(gateway.address, "/ws/b"), "2025-11-25", &json!({}));
    let result = alone.result_of("hand_out", json!({})).unwrap();
    assert!(
        alone.content_at(&result["content"][0]["uri"]).ends_with(" by b"),
        "a door leads to its backend"
    );
}
