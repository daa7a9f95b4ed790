//! `/api/v1/settings`.

use serde_json::{Value, json};

use super::assert_refused;
use crate::support::{ADMIN_KEY, Broker, keys};

#[test]
fn an_operator_sees_the_settings_and_where_they_came_from() {
    let broker = Broker::secured_with(&["--queue-capacity=77"]);
    let team = broker.project("team", &json!({}));
    assert_refused(&team.api("GET", "settings", &Value::Null), 403, "forbidden");
    let answer = broker.rest(ADMIN_KEY, "GET", "/api/v1/settings", &Value::Null);
    assert!(!answer.body.contains(ADMIN_KEY), "no secret is shown");
    let settings = answer.json();
    let settings = settings["settings"].as_array().unwrap();
    let setting = |name: &str| {
        let mut named = settings.iter().filter(|setting| setting["name"] == name);
        named.next().unwrap_or_else(|| panic!("no {name}: {settings:?}"))
    };
    assert_eq!(
        *setting("queue_capacity"),
        json!({
            "name": "queue_capacity", "value": "77", "default": "1000", "source": "flag", "location": "--queue-capacity",
            "secret": false,
        })
    );
    assert_eq!(setting("delivery_limit")["source"], "default");
    let key = setting("admin_key");
    assert_eq!(
        (&key["value"], &key["secret"], &key["default"]),
        (&json!("***"), &json!(true), &Value::Null)
    );
    assert_eq!(setting("metrics_port")["value"], Value::Null);
    for setting in settings {
        let expected = ["default", "location", "name", "secret", "source", "value"];
        assert_eq!(keys(setting), expected, "{setting}");
    }
}
