//! Health, probes and the actor tree, as operators and monitors see them.

use serde_json::{Value, json};

use crate::support::{Broker, exchange, keys};

#[test]
fn health_reports_the_state_of_the_broker() {
    let broker = Broker::start();
    let health = |broker: &Broker| {
        let response = broker.get("/health");
        assert_eq!(response.status, 200);
        assert!(response.header("content-type").unwrap().starts_with("application/json"));
        response.json()
    };
    let first = health(&broker);
    for key in [
        "status",
        "version",
        "storage_backend",
        "active_sessions",
        "authentication_enabled",
    ] {
        assert!(first.get(key).is_some(), "{key}: {first}");
    }
    assert_eq!(first["status"], "healthy");
    assert_eq!(first["version"], env!("CARGO_PKG_VERSION"));
    let storage = std::env::var("TEST_STORAGE").unwrap_or_else(|_| "memory".to_owned());
    assert_eq!(first["storage_backend"], storage.as_str());
    assert!(!first["storage_durability"].as_str().unwrap().is_empty());
    assert_eq!(first["active_sessions"], 0);
    assert_eq!(first["authentication_enabled"], false);
    let agents = broker.agents("agent", 3);
    assert_eq!(health(&broker)["active_sessions"], 3);
    agents[0].calls("disconnect_session", json!({}));
    assert_eq!(health(&broker)["active_sessions"], 2);
}

#[test]
fn the_probes_answer_any_host() {
    let broker = Broker::start();
    for path in ["/livez", "/readyz", "/startupz"] {
        assert_eq!(broker.get(path).status, 200, "{path}");
        let status = |head: &str| {
            let request = format!("GET {path} {head}\r\nConnection: close\r\n\r\n");
            exchange(&broker.socket(), request.as_bytes()).status
        };
        // A kubelet uses the address of the pod; a load balancer may send no host at all.
        assert_eq!(status("HTTP/1.1\r\nHost: 10.0.0.7:8000"), 200, "{path}");
        assert_eq!(status("HTTP/1.0"), 200, "{path}");
        let foreign = "HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example";
        assert_eq!(status(foreign), 403, "{path}");
    }
    let welcome = broker.get("/");
    assert_eq!(welcome.status, 200);
    assert_eq!(welcome.json()["name"], "mcp-broker");
    for page in ["dashboard", "desk", "docs"] {
        let path = welcome.json()[page].as_str().unwrap().to_owned();
        assert_eq!(broker.get(&path).status, 200, "{page} at {path}");
    }
}

#[test]
fn the_tree_shows_every_actor() {
    let broker = Broker::start();
    let agents = broker.agents("agent", 2);
    let tree = broker.get("/api/v1/tree?replica=self").json();
    let mut kinds = Vec::new();
    let mut names = Vec::new();
    visit(&tree, &mut |node| {
        assert_eq!(
            keys(node),
            ["children", "kind", "mailbox_len", "name", "restarts", "state"]
        );
        assert_eq!(node["state"], "running", "{node}");
        assert_eq!(node["restarts"], 0, "{node}");
        assert!(node["mailbox_len"].is_u64());
        kinds.push(node["kind"].as_str().unwrap().to_owned());
        names.push(node["name"].as_str().unwrap().to_owned());
    });
    // Only a shared storage has a bridge to other replicas.
    kinds.retain(|kind| kind != "bridge");
    assert_eq!(
        kinds,
        [
            "broker", "project", "registry", "router", "desk", "gateway", "session", "session"
        ]
    );
    for agent in &agents {
        assert!(names.contains(&agent.session));
    }
}

fn visit(node: &Value, see: &mut impl FnMut(&Value)) {
    see(node);
    for child in node["children"].as_array().unwrap() {
        visit(child, see);
    }
}

#[test]
fn an_unknown_path_is_a_problem_with_a_code() {
    let broker = Broker::start();
    let response = broker.get("/no/such/path");
    assert_eq!(response.status, 404);
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    assert_eq!(response.json()["status"], 404);
    assert!(response.json()["code"].is_string());
    // A browser at the WebSocket address is told what it is.
    let response = broker.get("/ws");
    assert_eq!(response.status, 426);
    assert_eq!(response.header("upgrade"), Some("websocket"));
}
