//! Resources: the lists, their contents, and unknown URIs.

use serde_json::{Value, json};

use crate::support::{Agent, Broker, keys};

fn read(agent: &Agent, uri: &str) -> Value {
    let result = agent.request("resources/read", json!({"uri": uri})).unwrap();
    let contents = result["contents"].as_array().unwrap();
    assert_eq!(contents.len(), 1);
    assert_eq!(keys(&contents[0]), ["mimeType", "text", "uri"]);
    assert_eq!(contents[0]["uri"], uri);
    assert_eq!(contents[0]["mimeType"], "application/json");
    serde_json::from_str(contents[0]["text"].as_str().unwrap()).unwrap()
}

#[test]
fn the_lists_name_the_resources_of_the_contract() {
    let broker = Broker::start();
    for agent in [broker.agent("alice"), broker.modern("bob")] {
        let listed = agent.request("resources/list", json!({})).unwrap();
        let of = |list: &Value, key: &str| -> Vec<String> {
            let entries = list.as_array().unwrap().iter();
            entries.map(|entry| entry[key].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(
            of(&listed["resources"], "uri"),
            ["broker://sessions", "broker://protocols", "broker://inbox"]
        );
        let listed = agent.request("resources/templates/list", json!({})).unwrap();
        assert_eq!(
            of(&listed["resourceTemplates"], "uriTemplate"),
            [
                "broker://sessions/{session_id}/inbox",
                "broker://protocols/{name}/{version}"
            ]
        );
        assert_eq!(agent.error_of("resources/list", json!({"cursor": "x"})), -32602);
    }
}

#[test]
fn each_resource_can_be_read() {
    let broker = Broker::start();
    for agent in [broker.agent("alice"), broker.modern("bob")] {
        agent.sends("hi").to(&agent);
        assert_eq!(read(&agent, "broker://inbox")["waiting"], 1);
        let inbox = read(&agent, &format!("broker://sessions/{}/inbox", agent.session));
        assert_eq!(inbox, read(&agent, "broker://inbox"));
        assert_eq!(inbox["session_id"], agent.session.as_str());
        let sessions = read(&agent, "broker://sessions");
        assert!(
            sessions["sessions"]
                .as_array()
                .unwrap()
                .iter()
                .any(|session| session["name"] == agent.name.as_str())
        );
        let protocols = read(&agent, "broker://protocols");
        assert_eq!(protocols["protocols"][0]["name"], "note");
        let note = read(&agent, "broker://protocols/note/1.0.0");
        assert_eq!(note["version"], "1.0.0");
        assert_eq!(note["schema"]["type"], "object");
        // Reading the resource does not deliver the message.
        agent.sees(["hi"]);
    }
}

#[test]
fn an_unknown_resource_has_the_error_code_of_the_era() {
    let broker = Broker::start();
    for (agent, code) in [(broker.agent("alice"), -32002), (broker.modern("bob"), -32602)] {
        for uri in [
            "broker://nothing",
            "broker://protocols/note",
            "broker://protocols/note/9.9.9",
            "broker://protocols/note/1.0.0/",
            "broker://sessions/01890000-0000-7000-8000-000000000000/inbox",
            "broker://sessions/alice/inbox",
            "broker://inbox/",
            "BROKER://inbox",
            "file:///etc/passwd",
            "http://127.0.0.1/",
            "",
        ] {
            let error = agent.request("resources/read", json!({"uri": uri})).unwrap_err();
            assert_eq!(error["code"], code, "{uri}");
            assert_eq!(error["data"], json!({"uri": uri}));
        }
        for params in [json!({}), json!({"uri": 5})] {
            assert_eq!(agent.error_of("resources/read", params), -32602);
        }
    }
}
