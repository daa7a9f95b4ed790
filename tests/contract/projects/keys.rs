//! The keys of a project: created, listed, rotated, revoked and expired, by tools and by REST.

use serde_json::{Value, json};

use super::{is_accepted, tool_callers};
use crate::support::{ADMIN_KEY, Broker, Tenant, eventually, id_of_key, keys};

/// The listed record of the key with this id.
fn listed_key(team: &Tenant<'_>, id: &str) -> Value {
    let listed = team.rest("GET", "keys", &Value::Null).json();
    let mut keys = listed["keys"].as_array().unwrap().iter();
    let found = keys.find(|key| key["key_id"] == id);
    found.cloned().unwrap_or_else(|| panic!("{id}: {listed}"))
}

#[test]
fn every_transport_rotates_keys() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let spare = team.new_key(&json!({"label": "spare"}));
    let mut spare = id_of_key(&spare).to_owned();
    for way in tool_callers(&broker, &team.key) {
        let done = way("rotate_project_keys", json!({"key_id": spare}));
        assert_eq!(keys(&done), ["api_keys", "revoked"]);
        assert_eq!(done["revoked"][0]["key_id"], spare.as_str());
        assert_eq!(listed_key(&team, &spare)["status"], "revoked");
        done["api_keys"][0]["key_id"].as_str().unwrap().clone_into(&mut spare);
        let new = listed_key(&team, &spare);
        assert_eq!((&new["status"], &new["label"]), (&json!("active"), &json!("spare")));
    }
}

#[test]
fn a_key_is_shown_once_and_listed_with_its_label() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let response = team.rest(
        "POST",
        "keys",
        &json!({"label": "for the robots", "expires_in_seconds": 3600}),
    );
    assert_eq!(response.status, 201, "{response:?}");
    let made = response.json();
    assert_eq!(keys(&made), ["api_key", "key"]);
    let key = made["api_key"].as_str().unwrap();
    let id = made["key"]["key_id"].as_str().unwrap();
    assert_eq!((id_of_key(key), key.split('_').count()), (id, 3));
    assert!(key.starts_with("team_") && key.rsplit('_').next().unwrap().len() >= 32);
    let listed = listed_key(&team, id);
    assert_eq!(listed, made["key"]);
    assert_eq!(
        (&listed["label"], &listed["scope"], &listed["status"]),
        (&json!("for the robots"), &json!("member"), &json!("active"))
    );
    assert!(listed["expires_at"].as_str().unwrap() > listed["created_at"].as_str().unwrap());
    assert_eq!(listed["last_used_at"], Value::Null);
    let secret = key.rsplit('_').next().unwrap();
    for path in [
        "/api/v1/projects/team/keys",
        "/api/v1/projects/team",
        "/api/v1/projects",
    ] {
        let shown = broker.rest(&team.key, "GET", path, &Value::Null);
        assert!(!shown.body.contains(secret), "{shown:?}");
    }
    // The time of its last use is shown with a low resolution.
    team.client_as(key);
    let used = listed_key(&team, id)["last_used_at"].clone();
    let (used, made) = (
        used.as_str().unwrap().to_owned(),
        listed["created_at"].as_str().unwrap(),
    );
    assert_eq!(&used[..11], &made[..11], "{used}");
    for wanted in [
        json!({"label": ""}),
        json!({"label": "a\u{1b}b"}),
        json!({"scope": "operator"}),
        json!({"scope": ""}),
        json!({"expires_in_seconds": 0}),
        json!({"expires_in_seconds": 1_000_000_000_000_u64}),
        json!({"key_id": "mine"}),
    ] {
        assert_eq!(team.rest("POST", "keys", &wanted).status, 400, "{wanted}");
    }
}

#[test]
fn a_revoked_key_is_refused() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let key = team.new_key_with_scope("member");
    assert!(is_accepted(&broker, &key));
    let path = format!("keys/{}", id_of_key(&key));
    let first = team.rest("DELETE", &path, &Value::Null).json();
    assert_eq!(keys(&first), ["revoked"]);
    assert!(!is_accepted(&broker, &key) && is_accepted(&broker, &team.key));
    // A second revocation changes nothing, not even its time.
    assert_eq!(team.rest("DELETE", &path, &Value::Null).json(), first);
    let listed = listed_key(&team, id_of_key(&key));
    assert_eq!(
        (&listed["status"], &listed["expires_at"]),
        (&json!("revoked"), &first["revoked"][0]["at"])
    );
    for unknown in ["kunknown", "NO"] {
        assert_eq!(
            team.rest("DELETE", &format!("keys/{unknown}"), &Value::Null).status,
            404
        );
    }
}

#[test]
fn a_key_is_rotated_at_once_or_with_a_grace_period() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let old = team.new_key(&json!({"scope": "observer", "label": "eyes"}));
    let new = team.rotate_key(&old, 3600);
    assert!(is_accepted(&broker, &old) && is_accepted(&broker, &new));
    let (was, is) = (listed_key(&team, id_of_key(&old)), listed_key(&team, id_of_key(&new)));
    assert_eq!((&was["status"], &is["status"]), (&json!("retiring"), &json!("active")));
    assert!(was["expires_at"].is_string() && is["expires_at"].is_null());
    assert_eq!((&is["scope"], &is["label"]), (&json!("observer"), &json!("eyes")));
    // A key that is being rotated cannot be rotated again.
    let again = json!({"key_id": id_of_key(&old)});
    assert_eq!(team.rest("POST", "keys/rotate", &again).status, 400);
    // A revocation ends the grace period.
    team.revoke_key(&old);
    assert!(!is_accepted(&broker, &old) && is_accepted(&broker, &new));
    let newest = team.rotate_key(&new, 0);
    assert!(!is_accepted(&broker, &new) && is_accepted(&broker, &newest));
    // All of them, including the key that is used for it.
    let all = team.rest("POST", "keys/rotate", &json!({})).json();
    assert_eq!(all["api_keys"].as_array().unwrap().len(), 2, "{all}");
    assert!(!is_accepted(&broker, &team.key) && !is_accepted(&broker, &newest));
    for new in all["api_keys"].as_array().unwrap() {
        assert!(is_accepted(&broker, new["api_key"].as_str().unwrap()));
    }
    let too_long = json!({"grace_period_seconds": 365 * 24 * 3600});
    let response = broker.rest(ADMIN_KEY, "POST", "/api/v1/projects/team/keys/rotate", &too_long);
    assert_eq!(response.status, 400);
}

#[test]
fn a_grace_period_does_not_outlast_the_key() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let key = team.new_key(&json!({"expires_in_seconds": 100}));
    let before = listed_key(&team, id_of_key(&key))["expires_at"].clone();
    let rotate = json!({"key_id": id_of_key(&key), "grace_period_seconds": 1000});
    let done = team.rest("POST", "keys/rotate", &rotate).json();
    assert_eq!(done["revoked"], json!([{"key_id": id_of_key(&key), "at": before}]));
    assert_eq!(listed_key(&team, id_of_key(&key))["expires_at"], before);
    // The new key gets the lifetime that the old one had.
    let new = listed_key(&team, done["api_keys"][0]["key_id"].as_str().unwrap());
    assert!(new["expires_at"].as_str() >= before.as_str(), "{new}");
}

#[test]
fn grace_periods_and_lifetimes_end() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let brief = team.new_key(&json!({"expires_in_seconds": 1}));
    let old = team.new_key_with_scope("member");
    team.rotate_key(&old, 1);
    for (key, status) in [(brief, "expired"), (old, "revoked")] {
        eventually("the key is refused", || (!is_accepted(&broker, &key)).then_some(()));
        assert_eq!(listed_key(&team, id_of_key(&key))["status"], status);
    }
}

#[test]
fn two_brokers_create_different_keys() {
    let (one, two) = (Broker::secured(), Broker::secured());
    let (here, there) = (one.project("team", &json!({})), two.project("team", &json!({})));
    assert_ne!(here.key, there.key);
    assert!(!is_accepted(&one, &there.key) && !is_accepted(&two, &here.key));
}

#[test]
fn a_rotated_key_keeps_the_sessions_of_the_old_one() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let (old, other) = (team.new_key_with_scope("member"), team.new_key_with_scope("member"));
    let (alice, bob) = (team.agent("alice"), team.agent_as(&old, "bob"));
    let caller = team.http_modern_as(&old).registered("carol");
    alice.sends("waits").to(&bob);
    alice.sends("too").to("carol");
    let new = team.rotate_key(&old, 0);
    // Meanwhile no other key can take the name.
    for key in [&other, &team.key] {
        team.client_as(key)
            .is_refused_as("forbidden", "register_session", json!({"name": "bob"}));
    }
    let again = team.agent_as(&new, "bob");
    assert_eq!(again.session, bob.session);
    again.sees(["waits"]);
    let session = caller.session.unwrap();
    let arguments = json!({"session_id": session});
    let read = team.http_modern_as(&new).calls("receive_messages", arguments.clone());
    assert_eq!(read["messages"][0]["payload"]["text"], "too");
    team.http_modern_as(&other)
        .is_refused_as("session_not_found", "receive_messages", arguments);
}
