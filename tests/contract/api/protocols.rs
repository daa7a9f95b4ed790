//! `/api/v1/protocols`.

use serde_json::{Value, json};

use super::{assert_refused, stranger};
use crate::support::Broker;

fn definition(name: &str, version: &str) -> Value {
    json!({
        "name": name, "version": version, "schema": {"type": "object", "required": ["at"]},
        "capabilities": ["broadcast"], "metadata": {"author": "a test", "tags": ["x", "y"]},
    })
}

#[test]
fn a_protocol_is_registered_once_and_shown_with_its_schema() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let made = team.api("POST", "protocols", &definition("clock", "1.0.0"));
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.header("location"), Some("/api/v1/protocols/clock/1.0.0"));
    assert_eq!(made.json()["existed"], false);
    assert_eq!(made.json()["registered_by"], Value::Null);
    let again = team.api("POST", "protocols", &definition("clock", "1.0.0"));
    assert_eq!((again.status, again.json()["existed"].clone()), (200, json!(true)));
    let mut other = definition("clock", "1.0.0");
    other["schema"] = json!({});
    assert_refused(&team.api("POST", "protocols", &other), 409, "protocol_exists");
    let shown = team.gets("protocols/clock/1.0.0");
    assert_eq!(shown["schema"], definition("", "")["schema"]);
    assert_eq!(shown["metadata"]["tags"], json!(["x", "y"]));
    let missing = team.api("GET", "protocols/clock/2.0.0", &Value::Null);
    assert_refused(&missing, 404, "protocol_not_found");
    assert_eq!(missing.json()["versions"], json!(["1.0.0"]), "{missing:?}");
}

#[test]
fn protocols_are_listed_with_the_filters_of_the_tool() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    for version in ["1.0.0", "1.1.0", "2.0.0"] {
        assert_eq!(team.api("POST", "protocols", &definition("clock", version)).status, 201);
    }
    let of_tool = team
        .client()
        .calls("discover_protocols", json!({"include_schema": true}));
    for path in ["/protocols", "/api/v1/protocols"] {
        let listed = broker.rest(&team.key, "GET", &format!("{path}?include_schema=true"), &Value::Null);
        assert_eq!(listed.json(), of_tool, "{listed:?}");
    }
    let versions = |query: &str| {
        let listed = team.gets(&format!("protocols?{query}"));
        let protocols = listed["protocols"].as_array().unwrap().iter();
        protocols
            .map(|protocol| protocol["version"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(versions("name=clock"), ["1.0.0", "1.1.0", "2.0.0"]);
    assert_eq!(versions("name=clock&version=%5E1"), ["1.0.0", "1.1.0"]);
    assert_eq!(versions("tags=x,y&capability=broadcast&limit=1"), ["1.0.0"]);
    assert_eq!(versions("tags=x,z"), [""; 0]);
    assert_eq!(team.pages("protocols", "protocols", 2).len(), 4, "with note");
}

#[test]
fn thousands_of_protocols_come_in_bounded_pages() {
    const LEN: usize = 2000;
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let client = team.client();
    let description = "x".repeat(1000);
    let versions: Vec<_> = (0..LEN).collect();
    // Each wait is for a hundred of them at most.
    for versions in versions.chunks(100) {
        let calls: Vec<_> = versions
            .iter()
            .map(|at| {
                let mut wanted = definition("many", &format!("1.{at}.0"));
                wanted["metadata"] = json!({"description": description});
                client.begins_call("register_protocol", &wanted)
            })
            .collect();
        for call in calls {
            client.finishes_call("register_protocol", &call);
        }
    }
    let page = broker.rest(&team.key, "GET", "/api/v1/protocols?name=many&limit=1000", &Value::Null);
    assert!(page.body.len() < 400 * 1024, "{} bytes", page.body.len());
    assert_eq!(team.pages("protocols?name=many", "protocols", 1000).len(), LEN);
}

#[test]
fn bad_definitions_and_queries_are_refused() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let with = |member: &str, value: Value| {
        let mut wanted = definition("clock", "1.0.0");
        wanted[member] = value;
        wanted
    };
    for (body, code) in [
        (with("name", json!("Clock")), "invalid_argument"),
        (with("name", json!("")), "invalid_argument"),
        (with("name", Value::Null), "invalid_argument"),
        (with("version", json!("1")), "invalid_argument"),
        (with("schema", Value::Null), "invalid_argument"),
        (with("schema", json!({"type": 7})), "invalid_schema"),
        (with("capabilities", json!(["telepathy"])), "invalid_argument"),
        (with("metadata", json!({"more": 1})), "invalid_argument"),
        (with("metadata", json!([])), "invalid_argument"),
        (with("more", json!(1)), "invalid_argument"),
        (json!([]), "invalid_argument"),
        (json!("x"), "invalid_argument"),
    ] {
        let refused = team.api("POST", "protocols", &body);
        assert_refused(&refused, 400, code);
    }
    let large = json!({"description": "x".repeat(600 * 1024)});
    assert_refused(
        &team.api("POST", "protocols", &with("schema", large)),
        400,
        "invalid_argument",
    );
    for path in [
        "protocols?version=new",
        "protocols?name=A",
        "protocols?capability=telepathy",
        "protocols?limit=0",
        "protocols?cursor=x",
        "protocols?page=2",
    ] {
        assert_refused(&team.api("GET", path, &Value::Null), 400, "invalid_argument");
    }
    for path in ["protocols/clock/x", "protocols/%20/%00", "protocols/note/1.0.1"] {
        assert_refused(&team.api("GET", path, &Value::Null), 404, "protocol_not_found");
    }
}

#[test]
fn another_project_sees_no_protocol_of_this_one() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    assert_eq!(
        team.api("POST", "protocols", &definition("secret", "1.0.0")).status,
        201
    );
    let other = stranger(&broker);
    let refused = team.api_as(&other, "GET", "protocols/secret/1.0.0", &Value::Null);
    assert_refused(&refused, 404, "protocol_not_found");
    assert_eq!(team.gets_as(&other, "protocols?name=secret")["protocols"], json!([]));
    assert_refused(
        &team.api_as(
            &team.new_key_with_scope("observer"),
            "POST",
            "protocols",
            &definition("mine", "1.0.0"),
        ),
        403,
        "forbidden",
    );
}

#[test]
fn protocols_projects_and_the_audit_are_searched() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    broker.project("umbrella", &json!({"discoverable": true}));
    let mut clock = definition("clock", "1.0.0");
    clock["metadata"] = json!({"author": "Ada", "description": "Tells the TIME", "tags": ["daily"]});
    assert_eq!(team.api("POST", "protocols", &clock).status, 201);
    let count = |key: &str, path: &str, list: &str| team.gets_as(key, path)[list].as_array().unwrap().len();
    for (q, found) in [
        ("LOC", 1),
        ("ada", 1),
        ("time", 1),
        ("dail", 1),
        ("o", 2),
        ("nothing", 0),
    ] {
        assert_eq!(count(&team.key, &format!("protocols?q={q}"), "protocols"), found, "{q}");
    }
    for (q, found) in [("TEA", 1), ("umb", 1), ("e", 2), ("nothing", 0)] {
        assert_eq!(count(&team.key, &format!("projects?q={q}"), "projects"), found, "{q}");
    }
    team.new_key_with_scope("observer");
    crate::support::eventually("the audit has the key", || {
        (count(&team.key, "audit?q=KEY.CRE", "entries") == 1).then_some(())
    });
    assert_eq!(count(&team.key, "audit?q=nothing", "entries"), 0);
    let long = "x".repeat(129);
    for path in ["protocols", "projects", "audit"] {
        for q in ["", &long] {
            let refused = team.api("GET", &format!("{path}?q={q}"), &Value::Null);
            assert_refused(&refused, 400, "invalid_argument");
        }
    }
}
