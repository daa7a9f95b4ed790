//! `/api/v1/stats`.

use serde_json::{Value, json};

use super::{assert_refused, note, stranger};
use crate::support::{ADMIN_KEY, Broker, eventually};

#[test]
fn the_figures_of_a_project_are_its_own() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let bob = team.agent("bob");
    for at in 0..3 {
        team.posts(&team.key, &note("reporter", Some("bob"), &at.to_string()));
    }
    let stats = team.gets("stats");
    assert_eq!(stats["replicas"], 1, "{stats}");
    assert_eq!(stats["messages"]["accepted"], 3, "{stats}");
    // The name that only sent messages is no agent that is here.
    let sessions = &stats["sessions"];
    assert_eq!(
        (&sessions["active"], &sessions["disconnected"]),
        (&json!(1), &json!(0)),
        "{stats}"
    );
    assert_eq!(stats["protocols"], 1, "{stats}");
    assert_eq!(
        (stats.get("broker"), stats.get("series"), stats.get("partial")),
        (None, None, None)
    );
    assert_eq!(stats["health"]["status"], "healthy", "{stats}");
    let of_health = broker.get("/health").json();
    for member in ["storage_backend", "storage_durability"] {
        assert_eq!(stats["health"][member], of_health[member], "{stats}");
    }
    assert_eq!(stats["version"], env!("CARGO_PKG_VERSION"));
    let replicas = stats["replica_list"].as_array().unwrap();
    assert_eq!(replicas.len(), 1, "{stats}");
    assert_eq!(
        (&replicas[0]["sessions"], &replicas[0]["is_self"], &replicas[0]["id"]),
        (&json!(1), &json!(true), &stats["replica"]),
        "only one of the sessions is connected: {stats}"
    );
    assert!(replicas[0]["started_at"].is_string(), "{stats}");
    bob.sees(["0", "1", "2"]);
    bob.reads(json!({}));
    eventually("all are acknowledged", || {
        (team.gets("stats")["messages"]["acknowledged"] == 3).then_some(())
    });
    let other = stranger(&broker);
    assert_eq!(team.gets_as(&other, "stats")["messages"]["accepted"], 0);
    assert_refused(
        &team.api("GET", "stats?all_projects=true", &Value::Null),
        403,
        "forbidden",
    );
    let all = broker
        .rest(ADMIN_KEY, "GET", "/api/v1/stats?all_projects=true", &Value::Null)
        .json();
    assert_eq!(all["messages"]["accepted"], 3, "{all}");
    assert!(
        all["broker"]["process"]["resident_bytes"].as_u64().unwrap() > 0,
        "{all}"
    );
}

#[test]
fn series_are_added_on_request() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let stats = team.gets("stats?window=1h&step=10s");
    assert_eq!(stats["series"]["step_seconds"], 10, "{stats}");
    assert!(stats["series"]["points"].is_object(), "{stats}");
    for query in [
        "window=2h",
        "window=1d",
        "window=5s",
        "window=h",
        "step=10s",
        "window=10s&step=1m",
        "window=+1h",
        "replica=x",
        "all",
    ] {
        assert_refused(
            &team.api("GET", &format!("stats?{query}"), &Value::Null),
            400,
            "invalid_argument",
        );
    }
}
