//! Secrets and control characters: neither reaches a log, an answer, a help text or an error.

use std::process::Command;

use serde_json::{Value, json};

use super::{entry_points, identity_request, send_raw};
use crate::support::{ADMIN_KEY, Agent, Broker, Wire, id_of_key};

#[test]
fn control_characters_reach_no_log() {
    for format in ["--log-format=pretty", "--log-format=json"] {
        let broker = Broker::secured_with(&["--log-level=trace", format]);
        let team = broker.project("team", &json!({}));
        let agent = team.agent("alice");
        for hostile in ["\u{1b}[2J", "\r\nfake: line", "\u{9b}2J", "\u{202e}abc", "\u{85}next"] {
            for (tool, arguments) in [
                ("rotate_project_keys", json!({"key_id": hostile})),
                ("grant_project_access", json!({"target_project_id": hostile})),
                ("get_project_info", json!({"project_id": hostile})),
            ] {
                agent.is_refused(tool, arguments);
            }
            let name = json!({"name": "register_session", "arguments": {"name": hostile}});
            agent.request("tools/call", name).unwrap();
            for body in [
                json!({"name": hostile}),
                json!({"tags": [hostile]}),
                json!({"description": hostile}),
            ] {
                team.rest("PATCH", "", &body);
            }
            team.rest("POST", "keys", &json!({"label": hostile}));
            let encoded = hostile
                .bytes()
                .fold(String::new(), |text, byte| format!("{text}%{byte:02x}"));
            team.rest("DELETE", &format!("keys/{encoded}"), &Value::Null);
            team.rest("DELETE", &format!("grants/{encoded}"), &Value::Null);
            broker.rest(
                ADMIN_KEY,
                "GET",
                &format!("/api/v1/audit?action={encoded}"),
                &Value::Null,
            );
            for name in ["X-Project-ID", "X-API-Key", "Authorization", "Host", "User-Agent"] {
                let bytes = identity_request(&broker)
                    .with("Connection", "close")
                    .with(name, hostile)
                    .bytes();
                send_raw(&broker, &bytes);
            }
        }
        let log = broker.log();
        let is_fine = |c: char| c == '\n' || !(c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
        assert!(log.chars().all(is_fine), "{log:?}");
        assert!(!log.lines().any(|line| line.starts_with("fake")), "{log}");
    }
}

/// Secrets that must not appear in any output.
#[derive(Default)]
struct Canaries {
    secrets: Vec<String>,
}

impl Canaries {
    fn add(&mut self, key: &str) -> String {
        // The secret part: the project and the id of a key may be shown.
        self.secrets.push(key.rsplit('_').next().unwrap().to_owned());
        key.to_owned()
    }

    fn assert_absent_from(&self, place: &str, text: &str) {
        for secret in &self.secrets {
            let found = text.contains(secret.as_str());
            assert!(!found, "{secret} in {place}: {text}");
        }
    }
}

#[test]
fn a_secret_is_shown_only_when_it_is_made() {
    for format in ["--log-format=json", "--log-format=pretty"] {
        let mut broker = Broker::secured_with(&["--log-level=trace", format]);
        let mut canaries = Canaries::default();
        canaries.add(ADMIN_KEY);
        let mut said = Vec::new();
        {
            let team = broker.project("team", &json!({"allow_cross_project": true}));
            let admin = canaries.add(&team.key);
            let member = canaries.add(&team.new_key_with_scope("member"));
            let observer = canaries.add(&team.new_key_with_scope("observer"));
            let rotated = team.rest(
                "POST",
                "keys/rotate",
                &json!({"key_id": id_of_key(&member), "grace_period_seconds": 60}),
            );
            let rotated = canaries.add(rotated.json()["api_keys"][0]["api_key"].as_str().unwrap());
            let agent = team.agent_as(&rotated, "alice");
            let visitor = Agent::legacy(
                Wire::open_with(broker.address, &[("Authorization", &format!("Bearer {admin}"))]),
                "2025-11-25",
                &json!({}),
            );
            let by_tool = visitor.calls("rotate_project_keys", json!({"key_id": id_of_key(&observer)}));
            canaries.add(by_tool["api_keys"][0]["api_key"].as_str().unwrap());
            let made = Agent::legacy(broker.wire(), "2025-11-25", &json!({}))
                .calls("create_project", json!({"project_id": "other", "name": "other"}));
            canaries.add(made["api_keys"][0]["api_key"].as_str().unwrap());
            // Texts that are sent and stored.
            let payload = canaries.add("canaryinapayload");
            agent.sends(&payload).with("ttl_seconds", 1).to("alice");
            agent.sends(&payload).to_everyone();
            agent.is_refused(
                "send_message",
                agent
                    .sends(&payload)
                    .with_argument("payload", json!({"text": 1, "password": payload}))
                    .arguments_to("alice"),
            );
            agent.reads(json!({}));
            said.extend(answers_to_invalid_credentials(
                &broker,
                &mut canaries,
                id_of_key(&admin),
            ));
            let basic =
                identity_request(&broker).with("Authorization", format!("Basic {}", canaries.add("Y2FuYXJ5OmJhc2lj")));
            said.push(basic.answered().body);
            for (method, path) in [
                ("GET", "/health"),
                ("GET", "/openapi.json"),
                ("GET", "/security/status"),
                ("GET", "/api/v1/audit?limit=1000"),
                ("GET", "/api/v1/tree"),
                ("GET", "/api/v1/projects?include_inactive=true"),
                ("GET", "/api/v1/projects/team"),
                ("GET", "/api/v1/projects/team/keys"),
                ("POST", "/api/v1/projects/team/keys"),
                ("DELETE", "/api/v1/projects/team/keys/nosuchkey"),
                ("DELETE", "/api/v1/projects/other"),
            ] {
                said.push(broker.rest(ADMIN_KEY, method, path, &Value::Null).body);
            }
            said.push(visitor.calls("get_project_info", json!({})).to_string());
            said.push(visitor.calls("list_projects", json!({})).to_string());
        }
        broker.terminate();
        assert!(broker.wait_for_exit().success());
        assert!(broker.log().contains("key.rotate"), "{}", broker.log());
        canaries.assert_absent_from("an answer", &said.join("\n"));
        canaries.assert_absent_from("the log", &broker.log());
    }
}

/// The answers of every entry point to invalid credentials, which are added to the canaries.
fn answers_to_invalid_credentials(broker: &Broker, canaries: &mut Canaries, key_id: &str) -> Vec<String> {
    let wrong = [
        canaries.add(&format!("team_{key_id}_canaryofawrongsecret")),
        canaries.add("nowhere_k1_canaryofnoproject"),
        canaries.add("canaryofnoform"),
        canaries.add("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.Y2FuYXJ5c2lnbmF0dXJl"),
        canaries.add("Canary-In-Upper-Case"),
        "x".repeat(17_000),
    ];
    let mut said = Vec::new();
    for key in &wrong {
        for request in entry_points(broker) {
            let bearer = format!("Bearer {key}");
            let keyed = request.clone().with("X-API-Key", ADMIN_KEY);
            let asked = [
                request.clone().with("X-API-Key", key),
                request.clone().with("Authorization", &bearer),
                keyed.clone().with("Authorization", bearer),
                keyed.clone().with_another("X-API-Key", key),
                keyed.with_path(&format!("{}?api_key={key}", request.path)),
            ];
            said.extend(asked.map(|request| request.answered().body));
        }
    }
    said
}

#[test]
fn no_help_text_and_no_error_shows_a_secret() {
    const CANARY: &str = "canary_of_the_environment_0123456789";
    let run = |arguments: &[&str], environment: &[(&str, &str)]| {
        let output = Command::new(env!("CARGO_BIN_EXE_mcp-broker"))
            .env_clear()
            .envs(environment.iter().copied())
            .args(arguments)
            .output()
            .unwrap();
        let texts = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        let text = texts.concat();
        assert!(!text.contains("canary"), "{arguments:?}: {text}");
        text
    };
    let environment = [
        ("MCP_BROKER_ADMIN_KEY", CANARY),
        ("MCP_BROKER_API_KEY", CANARY),
        ("MCP_BROKER_URL", "http://127.0.0.1:1"),
    ];
    let helps: [&[&str]; 15] = [
        &[],
        &["serve"],
        &["keygen"],
        &["project"],
        &["project", "create"],
        &["project", "list"],
        &["project", "show"],
        &["project", "update"],
        &["project", "delete"],
        &["project", "keys"],
        &["project", "keys", "create"],
        &["project", "rotate"],
        &["project", "grant"],
        &["project", "revoke"],
        &["project", "audit"],
    ];
    for command in helps {
        for flag in ["--help", "-h"] {
            let text = run(&[command, &[flag]].concat(), &environment);
            assert!(text.contains("Usage:"), "{command:?}: {text}");
        }
    }
    // The broker cannot be reached, and the error does not show the key.
    run(&["project", "list"], &environment);
    run(&["project", "list", "--key", CANARY], &environment[2..]);
    run(&["serve", "--port=nowhere"], &environment);
    run(&["serve", "--admin-key", "canary short"], &[]);
    run(&["serve", "--admin-key=canary"], &[]);
    run(&["serve"], &[("MCP_BROKER_ADMIN_KEY", "canary short")]);
    run(&["serve", "--enable-auth=perhaps"], &environment);
    run(&["serve", "--host=0.0.0.0"], &environment);
    run(&["serve", "--admin-kye", CANARY], &[]);
}
