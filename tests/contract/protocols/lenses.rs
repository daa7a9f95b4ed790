//! Lenses between versions of a protocol: registered, refused, replaced, removed and shown.

use serde_json::{Value, json};

use crate::support::{ADMIN_KEY, Agent, Broker, Response, Tenant, eventually};

/// A version of `task`, whose member has this name. Undeclared members are refused, so that rules decide what fits.
fn task(version: &str, member: &str) -> Value {
    let schema = json!({
        "type": "object", "properties": {member: {"type": "string"}}, "required": [member], "additionalProperties": false,
    });
    json!({"name": "task", "version": version, "schema": schema})
}

/// As [`task`], with a lens from another version.
fn task_from(version: &str, member: &str, from: &str, lens: &Value) -> Value {
    let mut wanted = task(version, member);
    wanted["from"] = json!(from);
    wanted["lens"] = lens.clone();
    wanted
}

fn renames(old: &str, new: &str) -> Value {
    json!([{"op": "rename", "path": format!("/{old}"), "to": new}])
}

fn with(mut arguments: Value, member: &str, value: impl Into<Value>) -> Value {
    arguments[member] = value.into();
    arguments
}

fn exact() -> Value {
    json!({"class": "exact", "proof": "proved", "may_lose": [], "unproved": []})
}

/// The lenses of a version of `task`, with their operations.
fn lenses(agent: &Agent, version: &str) -> Value {
    let query = json!({"name": "task", "version": format!("={version}"), "include_schema": true});
    agent.calls("discover_protocols", query)["protocols"][0]["lenses"].clone()
}

impl Tenant<'_> {
    fn lens(&self, key: &str, method: &str, path: &str, body: &Value) -> Response {
        self.broker
            .rest(key, method, &format!("/api/v1/protocols/task/{path}"), body)
    }
}

#[test]
fn a_version_is_registered_with_a_lens_and_shows_it() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    alice.calls("register_protocol", task("1.0.0", "what"));
    let wanted = task_from("2.0.0", "title", "1.0.0+any", &renames("what", "title"));
    let dry = alice.calls("register_protocol", with(wanted.clone(), "dry_run", true));
    assert_eq!((&dry["dry_run"], &dry["existed"]), (&json!(true), &json!(false)));
    let missing = json!({"name": "task", "version": "^2"});
    assert_eq!(
        alice.calls("discover_protocols", missing.clone())["protocols"],
        json!([])
    );

    let made = alice.calls("register_protocol", wanted.clone());
    let lens = json!({
        "from": "1.0.0", "to": "2.0.0", "direction": "both", "forward": exact(), "backward": exact(), "revision": 1,
        "existed": false,
    });
    assert_eq!(
        (&made["lens"], &made["existed"], &made["dry_run"]),
        (&lens, &json!(false), &Value::Null)
    );
    assert_eq!(dry["lens"], lens);
    let again = alice.calls("register_protocol", wanted);
    assert_eq!(
        (&again["existed"], &again["lens"]["existed"]),
        (&json!(true), &json!(true))
    );

    let mut shown = lens;
    shown.as_object_mut().unwrap().remove("existed");
    assert_eq!(
        alice.calls("discover_protocols", missing)["protocols"][0]["lenses"],
        json!([shown])
    );
    shown["ops"] = renames("what", "title");
    assert_eq!(lenses(&alice, "2.0.0"), json!([shown]));
    assert_eq!(lenses(&alice, "1.0.0"), Value::Null);
    let resource = alice.request("resources/read", json!({"uri": "broker://protocols/task/2.0.0"}));
    let text = resource.unwrap()["contents"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["lenses"], json!([shown]));
}

#[test]
fn a_lens_is_added_to_a_version_that_exists_and_replaced() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    for version in ["1.0.0", "1.1.0"] {
        alice.calls("register_protocol", task(version, "what"));
    }
    alice.calls("register_protocol", task("2.0.0", "title"));
    let rename = renames("what", "title");
    for from in ["1.1.0", "1.0.0"] {
        let added = alice.calls("register_protocol", task_from("2.0.0", "title", from, &rename));
        assert_eq!(
            (&added["existed"], &added["lens"]["existed"]),
            (&json!(true), &json!(false))
        );
    }
    let forward = with(task_from("2.0.0", "title", "1.0.0", &rename), "direction", "forward");
    let error = alice.is_refused_as("protocol_exists", "register_protocol", forward.clone());
    assert_eq!(
        error["detail"],
        json!({"name": "task", "version": "2.0.0", "differs": ["lens"]})
    );
    let replaced = alice.calls("register_protocol", with(forward, "replace_lens", true));
    let lens = &replaced["lens"];
    assert_eq!((&lens["revision"], &lens["existed"]), (&json!(2), &json!(false)));
    assert_eq!(
        (&lens["direction"], &lens["backward"]),
        (&json!("forward"), &Value::Null)
    );
    let all = lenses(&alice, "2.0.0");
    let from: Vec<_> = all.as_array().unwrap().iter().map(|lens| &lens["from"]).collect();
    assert_eq!(from, ["1.0.0", "1.1.0"]);
}

#[test]
fn a_lens_that_does_not_hold_is_refused_with_the_reason() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    alice.calls("register_protocol", task("1.0.0", "what"));
    let register = |lens: Value| task_from("2.0.0", "title", "1.0.0", &lens);
    let refused =
        |arguments: Value| alice.is_refused_as("invalid_lens", "register_protocol", arguments)["detail"].clone();

    let unknown = refused(register(json!([{"op": "rename", "path": "/other", "to": "title"}])));
    assert_eq!(
        (&unknown["op"], &unknown["path"]),
        (&json!(0), &json!("/other")),
        "{unknown}"
    );
    let nothing = refused(register(json!([])));
    assert_eq!(nothing["direction"], "forward", "{nothing}");
    assert!(nothing["example"]["what"].is_string(), "{nothing}");
    let drop = json!([{"op": "drop", "path": "/what", "back": ""}, {"op": "add", "path": "/title", "value": ""}]);
    let loses = refused(register(drop.clone()));
    assert_eq!(
        (&loses["path"], &loses["direction"]),
        (&json!("/what"), &json!("forward")),
        "{loses}"
    );
    assert!(loses["reason"].as_str().unwrap().contains("allow_loss"), "{loses}");
    for wrong in [
        json!({}),
        json!([{"op": "eval"}]),
        json!(vec![renames("what", "title")[0].clone(); 65]),
    ] {
        assert!(refused(register(wrong))["reason"].is_string());
    }
    let found = alice.calls("discover_protocols", json!({"name": "task"}));
    assert_eq!(
        found["protocols"].as_array().unwrap().len(),
        1,
        "2.0.0 is not registered either"
    );

    let lossy = alice.calls("register_protocol", with(register(drop), "allow_loss", true));
    assert_eq!(lossy["lens"]["forward"]["class"], "lossy");
    assert_eq!(lossy["lens"]["forward"]["may_lose"], json!(["/what"]));
}

#[test]
fn the_arguments_of_a_lens_are_checked() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    alice.calls("register_protocol", task("1.0.0", "what"));
    let wanted = task_from("2.0.0", "title", "1.0.0", &renames("what", "title"));
    let without = |member: &str| {
        let mut wanted = wanted.clone();
        wanted.as_object_mut().unwrap().remove(member);
        wanted
    };
    for (arguments, argument) in [
        (with(wanted.clone(), "from", "2.0.0+a"), "from"),
        (with(wanted.clone(), "from", "2.1.0"), "from"),
        (with(wanted.clone(), "from", "one"), "from"),
        (without("from"), "from"),
        (without("lens"), "lens"),
        (with(wanted.clone(), "direction", "sideways"), "direction"),
        (with(wanted.clone(), "allow_loss", "yes"), "allow_loss"),
        (with(task("2.0.0", "title"), "allow_loss", true), "allow_loss"),
        (with(task("2.0.0", "title"), "direction", "both"), "direction"),
        (with(task("2.0.0", "title"), "replace_lens", false), "replace_lens"),
    ] {
        let error = alice.is_refused_as("invalid_argument", "register_protocol", arguments);
        assert_eq!(error["detail"]["argument"], argument, "{error}");
    }
    let unknown = with(wanted, "from", "1.9.0");
    let error = alice.is_refused_as("protocol_not_found", "register_protocol", unknown);
    assert_eq!(error["detail"]["versions"], json!(["1.0.0"]));
    let mut builtin = task_from("2.0.0", "title", "1.0.0", &json!([]));
    builtin["name"] = json!("text");
    alice.is_refused_as("forbidden", "register_protocol", builtin);
}

#[test]
fn the_lenses_into_a_version_are_bounded() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    for minor in 0..9 {
        alice.calls("register_protocol", task(&format!("1.{minor}.0"), "what"));
    }
    let from = |minor: usize| task_from("2.0.0", "title", &format!("1.{minor}.0"), &renames("what", "title"));
    for minor in 0..8 {
        alice.calls("register_protocol", from(minor));
    }
    alice.is_refused_as("forbidden", "register_protocol", from(8));
    let replaced = with(with(from(7), "direction", "backward"), "replace_lens", true);
    assert_eq!(alice.calls("register_protocol", replaced)["lens"]["revision"], 2);
}

#[test]
fn lenses_are_put_and_removed_by_rest() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let client = team.client();
    client.calls("register_protocol", task("1.0.0", "what"));
    client.calls("register_protocol", task("2.0.0", "title"));
    let put = |body: &Value| team.lens(&team.key, "PUT", "2.0.0/lenses/1.0.0", body);
    let rename = json!({"lens": renames("what", "title")});
    let made = put(&rename);
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(
        (&made.json()["forward"], &made.json()["existed"]),
        (&exact(), &json!(false))
    );
    assert_eq!(
        (put(&rename).status, put(&rename).json()["existed"].clone()),
        (200, json!(true))
    );
    let forward = with(rename.clone(), "direction", "forward");
    assert_eq!(put(&forward).problem(), (409, "protocol_exists".to_owned()));
    let replaced = put(&with(forward, "replace_lens", true));
    assert_eq!((replaced.status, replaced.json()["revision"].clone()), (200, json!(2)));
    assert_eq!(put(&json!({"lens": []})).problem(), (409, "protocol_exists".to_owned()));
    let invalid = put(&json!({"lens": [], "replace_lens": true}));
    assert_eq!(invalid.problem(), (400, "invalid_lens".to_owned()));
    assert!(invalid.json()["example"].is_object(), "{invalid:?}");
    assert_eq!(put(&json!({})).problem(), (400, "invalid_argument".to_owned()));
    let shown = team.lens(&team.key, "GET", "2.0.0", &Value::Null).json();
    assert_eq!(shown["lenses"][0]["ops"], renames("what", "title"));

    let remove = |path: &str| team.lens(&team.key, "DELETE", path, &Value::Null);
    assert_eq!(remove("2.0.0/lenses/1.0.0").status, 204);
    assert_eq!(
        remove("2.0.0/lenses/1.0.0").problem(),
        (404, "protocol_not_found".to_owned())
    );
    assert_eq!(
        remove("3.0.0/lenses/1.0.0").problem(),
        (404, "protocol_not_found".to_owned())
    );
    assert_eq!(
        remove("2.0.0/lenses/one").problem(),
        (400, "invalid_argument".to_owned())
    );
    assert_eq!(lenses(&client, "2.0.0"), Value::Null);
}

#[test]
fn a_lens_belongs_to_the_key_that_registered_its_higher_version() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let [owner, other] = [(); 2].map(|()| team.new_key_with_scope("member"));
    let post = |key: &str, body: &Value| broker.rest(key, "POST", "/api/v1/protocols", body);
    assert_eq!(post(&other, &task("1.0.0", "what")).status, 201);
    let wanted = task_from("2.0.0", "title", "1.0.0", &renames("what", "title"));
    assert_eq!(
        post(&owner, &wanted).status,
        201,
        "any member registers a new version with a lens"
    );
    assert_eq!(post(&other, &wanted).status, 200, "the identical one changes nothing");
    let forward = json!({"lens": renames("what", "title"), "direction": "forward", "replace_lens": true});
    let put = |key: &str| team.lens(key, "PUT", "2.0.0/lenses/1.0.0", &forward);
    let remove = |key: &str| team.lens(key, "DELETE", "2.0.0/lenses/1.0.0", &Value::Null);
    for refused in [put(&other), remove(&other)] {
        assert_eq!(refused.problem(), (403, "forbidden".to_owned()));
    }
    let newer = team.rotate_key(&owner, 0);
    assert_eq!(put(&newer).json()["revision"], 2);
    assert_eq!(remove(&team.key).status, 204, "an administrator");
    assert_eq!(put(&newer).status, 201);

    let done = |action: &str| {
        let query = format!("/api/v1/audit?action={action}");
        eventually(&format!("{action} is in the audit"), || {
            let page = broker.rest(ADMIN_KEY, "GET", &query, &Value::Null).json();
            let entries = page["entries"].as_array().unwrap();
            let of = |outcome: &str| entries.iter().filter(|entry| entry["outcome"] == outcome).count();
            (entries.iter().all(|entry| entry["target"] == "task 1.0.0 2.0.0") && (of("done"), of("refused")) == (1, 1))
                .then_some(())
        });
    };
    done("lens.replace");
    done("lens.remove");
}

#[test]
fn lenses_are_counted() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let client = team.client();
    client.calls("register_protocol", task("1.0.0", "what"));
    client.calls(
        "register_protocol",
        task_from("2.0.0", "title", "1.0.0", &renames("what", "title")),
    );
    let metrics = || broker.rest(ADMIN_KEY, "GET", "/metrics", &Value::Null).body;
    let counted = |count: &str| metrics().contains(&format!("mcp_broker_lenses{{project=\"team\"}} {count}"));
    assert!(counted("1"), "{}", metrics());
    let forward = json!({"lens": renames("what", "title"), "direction": "forward", "replace_lens": true});
    team.lens(&team.key, "PUT", "2.0.0/lenses/1.0.0", &forward);
    assert!(counted("1"), "{}", metrics());
    team.lens(&team.key, "DELETE", "2.0.0/lenses/1.0.0", &Value::Null);
    assert!(counted("0"), "{}", metrics());
}

#[test]
fn a_lens_is_tried_on_kept_messages_where_rules_do_not_decide() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let wanted = |version: &str, unless: Value| {
        let schema = json!({"type": "object", "properties": {"at": {"type": "string"}}, "not": unless});
        json!({"name": "clock", "version": version, "schema": schema})
    };
    alice.calls("register_protocol", wanted("1.0.0", json!({"required": ["gone"]})));
    let rare = json!({"properties": {"at": {"const": "a quarter past seven"}}, "required": ["at"]});
    let mut next = wanted("2.0.0", rare);
    next["from"] = json!("1.0.0");
    next["lens"] = json!([]);
    next["direction"] = json!("forward");
    let dry = with(next.clone(), "dry_run", true);
    let sampled = alice.calls("register_protocol", dry)["lens"]["forward"].clone();
    assert_eq!(sampled["proof"], "sampled", "{sampled}");
    assert!(sampled["unproved"][0]["reason"].is_string(), "{sampled}");
    let sent = alice
        .sends("")
        .with_argument("protocol_name", "clock")
        .with_argument("protocol_version", "1.0.0")
        .with_argument("payload", json!({"at": "a quarter past seven"}))
        .to(&bob);
    let detail = alice.is_refused_as("invalid_lens", "register_protocol", next.clone())["detail"].clone();
    assert_eq!(detail["example"], json!({"message_id": sent.id}), "{detail}");

    // The newest 256 are tried.
    let sends = || {
        alice
            .sends("")
            .with_argument("protocol_name", "clock")
            .with_argument("protocol_version", "1.0.0")
            .with_argument("payload", json!({"at": "noon"}))
            .to(&bob)
    };
    (1..256).for_each(|_| drop(sends()));
    let dry = with(next, "dry_run", true);
    let tries = || {
        let call = json!({"name": "register_protocol", "arguments": dry});
        alice.request("tools/call", call).unwrap()["structuredContent"].take()
    };
    // A check ends after 100 ms, and may have tried fewer then.
    eventually("the last of 256 messages is tried", || {
        (tries()["detail"]["example"]["message_id"] == json!(sent.id)).then_some(())
    });
    sends();
    let accepted = eventually("the log has one more", || {
        Some(tries()["lens"]["forward"].take()).filter(|way| !way.is_null())
    });
    assert_eq!(accepted["proof"], "sampled", "{accepted}");
}
