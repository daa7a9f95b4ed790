//! Bearer tokens of an external issuer beside API keys: which are accepted, with which scope, and for how long.

use std::{
    io::{Read, Write},
    net::TcpListener,
    path::PathBuf,
    time::SystemTime,
};

use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};

use crate::support::{ADMIN_KEY, Agent, Broker, HttpAgent, Issuer, Response, TIMEOUTS_OFF, eventually, unsigned};

const AUDIENCE: &str = "https://broker.example/mcp";
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// An issuer whose keys are in a file.
struct FileIssuer {
    issuer: Issuer,
    keys: PathBuf,
}

impl FileIssuer {
    fn open() -> Self {
        let issuer = Issuer::new("https://issuer.example", AUDIENCE);
        let keys = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("jwks-{}.json", issuer.key_id));
        issuer.publishes(&keys);
        Self { issuer, keys }
    }

    /// A broker that accepts its tokens, with a project `team`.
    fn broker(&self) -> Broker {
        let broker = broker(&self.issuer, self.keys.to_str().unwrap());
        broker.project("team", &json!({}));
        broker
    }
}

impl Drop for FileIssuer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.keys);
    }
}

fn broker(issuer: &Issuer, keys: &str) -> Broker {
    let flags = [
        format!("--jwt-issuer={}", issuer.name),
        format!("--jwt-audience={}", issuer.audience),
        format!("--jwt-jwks={keys}"),
    ];
    let flags: Vec<_> = flags.iter().map(String::as_str).chain(TIMEOUTS_OFF).collect();
    Broker::secured_with(&flags)
}

fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_secs()
}

/// Claims of a valid token: this subject, project `team`, this scope.
fn claims(issuer: &Issuer, subject: &str, scope: &str) -> Value {
    let mut claims = issuer.claims(subject, now_s());
    claims["project_id"] = json!("team");
    claims["scope"] = json!(format!("openid mcp-broker:{scope}"));
    claims
}

fn token(issuer: &Issuer, subject: &str, scope: &str) -> String {
    issuer.signs(&claims(issuer, subject, scope))
}

/// A token that ends in about this many seconds. A clock difference of a minute is allowed for after its end.
fn brief_token(issuer: &Issuer, subject: &str, seconds: u64) -> String {
    let mut claims = claims(issuer, subject, "member");
    claims["exp"] = json!(now_s() - 60 + seconds);
    issuer.signs(&claims)
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn asks(broker: &Broker, token: &str, path: &str) -> Response {
    broker.rest_with(&[("Authorization", &bearer(token))], "GET", path, &Value::Null)
}

/// The identity that the broker reports for a token.
fn identity_of(broker: &Broker, token: &str) -> Value {
    let response = asks(broker, token, "/security/status");
    assert_eq!(response.status, 200, "{response:?}");
    response.json()["caller"].take()
}

fn visitor(broker: &Broker, token: &str) -> Agent {
    let headers = [("Authorization", bearer(token))];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    Agent::legacy(broker.wire_with(&headers), "2025-11-25", &json!({}))
}

fn stateless(broker: &Broker, token: &str) -> HttpAgent {
    HttpAgent::modern_with(broker.address, json!({}), &[("Authorization", &bearer(token))])
}

fn resumable(broker: &Broker, token: &str) -> HttpAgent {
    let headers = [("Authorization", bearer(token))];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    HttpAgent::legacy_with(broker.address, "2025-11-25", json!({}), &headers)
}

#[test]
fn a_token_has_the_access_of_its_scope() {
    let issuer_file = FileIssuer::open();
    let broker = issuer_file.broker();
    for scope in ["observer", "answer", "member", "admin"] {
        let token = token(&issuer_file.issuer, "ann", scope);
        let expected = json!({"name": "jwt:ann", "scope": scope, "project_id": "team"});
        assert_eq!(identity_of(&broker, &token), expected);
        let status = asks(&broker, &token, "/api/v1/projects/team/keys").status;
        assert_eq!(status, if scope == "admin" { 200 } else { 403 }, "{scope}");
        let visitor = visitor(&broker, &token);
        visitor.calls("list_sessions", json!({}));
        if ["observer", "answer"].contains(&scope) {
            visitor.is_refused_as("forbidden", "register_session", json!({"name": scope}));
        } else {
            visitor.calls("register_session", json!({"name": scope}));
        }
        // It is also accepted in the header for keys.
        let response = broker.rest(&token, "GET", "/security/status", &Value::Null);
        assert_eq!(response.json()["caller"], expected);
    }
    // The largest of several scopes counts, and none is the operator's.
    for (scopes, seen) in [
        (json!("mcp-broker:observer mcp-broker:admin"), "admin"),
        (json!(["mcp-broker:member", "mcp-broker:operator"]), "member"),
    ] {
        let mut claims = claims(&issuer_file.issuer, "ann", "");
        claims["scope"] = scopes;
        assert_eq!(identity_of(&broker, &issuer_file.issuer.signs(&claims))["scope"], seen);
    }
}

#[test]
fn an_invalid_token_is_told_only_where_to_get_a_valid_one() {
    let issuer_file = FileIssuer::open();
    let broker = issuer_file.broker();
    let issuer = &issuer_file.issuer;
    let with = |name: &str, value: Value| {
        let mut claims = claims(issuer, "ann", "member");
        claims[name] = value;
        issuer.signs(&claims)
    };
    let good = claims(issuer, "ann", "member");
    let none = format!("{}.", unsigned(&json!({"alg": "none", "typ": "at+jwt"}), &good));
    let forged = |secret: &[u8]| {
        let forger = issuer
            .clone()
            .with_key(Algorithm::HS256, EncodingKey::from_secret(secret));
        forger.signs(&good)
    };
    let stranger = issuer.rotated();
    let mut namesake = issuer.rotated();
    namesake.key_id.clone_from(&issuer.key_id);
    let mut refusals = std::collections::HashSet::new();
    for (what, token) in [
        ("another issuer", with("iss", json!("https://other.example"))),
        ("another audience", with("aud", json!("https://other.example/mcp"))),
        ("expired", with("exp", json!(now_s() - 120))),
        ("not yet good", with("nbf", json!(now_s() + 3600))),
        ("no end", with("exp", Value::Null)),
        ("no subject", with("sub", Value::Null)),
        ("a project that is not there", with("project_id", json!("nowhere"))),
        ("no signature", none),
        (
            "the public key as a secret",
            forged(issuer.jwk()["x"].as_str().unwrap().as_bytes()),
        ),
        ("the set as a secret", forged(issuer.jwks().as_bytes())),
        ("an unknown key", stranger.signs(&good)),
        ("another key under the name", namesake.signs(&good)),
        ("no token at all", "a.b.c".to_owned()),
    ] {
        let response = asks(&broker, &token, "/security/status");
        assert_eq!(response.status, 401, "{what}: {response:?}");
        let challenge = response.header("www-authenticate").unwrap().to_owned();
        refusals.insert((challenge, response.body));
        let upgrade = broker.upgrade(&[("Authorization", &bearer(&token))]);
        assert_eq!(upgrade.status, 401, "{what}");
    }
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    let (challenge, _) = refusals.iter().next().unwrap();
    let metadata = "resource_metadata=\"https://broker.example/.well-known/oauth-protected-resource/mcp\"";
    assert_eq!(
        challenge,
        &format!("Bearer realm=\"mcp-broker\", {metadata}, error=\"invalid_token\"")
    );
    // A request without credentials is not an error of the token.
    let response = broker.get("/security/status");
    assert_eq!(response.status, 401);
    assert_eq!(
        response.header("www-authenticate"),
        Some(format!("Bearer realm=\"mcp-broker\", {metadata}").as_str())
    );
    identity_of(&broker, &issuer.signs(&good));
}

#[test]
fn a_valid_token_without_scope_or_project_is_told_what_it_needs() {
    let issuer_file = FileIssuer::open();
    let broker = issuer_file.broker();
    for (name, value) in [
        ("scope", json!("openid admin member")),
        ("scope", Value::Null),
        ("project_id", Value::Null),
        ("project_id", json!("NOT AN ID")),
    ] {
        let mut claims = claims(&issuer_file.issuer, "ann", "admin");
        match &value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
        let response = asks(&broker, &issuer_file.issuer.signs(&claims), "/security/status");
        assert_eq!(
            (response.status, &response.json()["code"]),
            (403, &json!("forbidden")),
            "{name} {value}"
        );
        let challenge = response.header("www-authenticate").unwrap();
        assert!(challenge.contains("error=\"insufficient_scope\""), "{challenge}");
        assert!(challenge.contains("resource_metadata="), "{challenge}");
    }
    // The header cannot select another project than the token's.
    let token = token(&issuer_file.issuer, "ann", "admin");
    let headers = [
        ("Authorization", bearer(&token)),
        ("X-Project-ID", "default".to_owned()),
    ];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let response = broker.rest_with(&headers, "GET", "/security/status", &Value::Null);
    assert_eq!(
        (response.status, &response.json()["code"]),
        (403, &json!("project_mismatch"))
    );
}

#[test]
fn the_metadata_of_the_issuer_is_public() {
    let issuer_file = FileIssuer::open();
    let broker = issuer_file.broker();
    let expected = json!({
        "resource": AUDIENCE,
        "resource_name": "mcp-broker",
        "authorization_servers": ["https://issuer.example"],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["mcp-broker:observer", "mcp-broker:answer", "mcp-broker:member", "mcp-broker:admin"],
    });
    for path in [METADATA.to_owned(), format!("{METADATA}/mcp")] {
        let response = broker.get(&path);
        assert_eq!((response.status, response.json()), (200, expected.clone()), "{path}");
    }
    // The issuer has the endpoints of the authorization server; the broker has none.
    for path in ["/.well-known/oauth-authorization-server", "/token"] {
        assert_eq!(broker.get(path).status, 404, "{path}");
    }
    // A broker without an issuer has no metadata.
    let other = Broker::secured();
    assert_eq!(other.get(METADATA).status, 404);
    let challenge = other.get("/security/status");
    assert_eq!(
        challenge.header("www-authenticate"),
        Some("Bearer realm=\"mcp-broker\"")
    );
}

#[test]
fn a_new_key_of_the_issuer_is_loaded_without_a_restart() {
    let issuer_file = FileIssuer::open();
    let broker = issuer_file.broker();
    let next = issuer_file.issuer.rotated();
    let (old, new) = (
        token(&issuer_file.issuer, "ann", "member"),
        token(&next, "ann", "member"),
    );
    identity_of(&broker, &old);
    assert_eq!(asks(&broker, &new, "/security/status").status, 401);
    next.publishes(&issuer_file.keys);
    eventually("the new key is loaded", || {
        (asks(&broker, &new, "/security/status").status == 200).then_some(())
    });
    // Tokens of the old key are no longer valid.
    assert_eq!(asks(&broker, &old, "/security/status").status, 401);
}

#[test]
fn keys_are_fetched_from_a_url() {
    let issuer = Issuer::new("https://issuer.example", AUDIENCE).p256();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let keys = issuer.jwks();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let len = keys.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n{keys}"
            );
        }
    });
    let broker = broker(&issuer, &url);
    broker.project("team", &json!({}));
    assert_eq!(
        identity_of(&broker, &token(&issuer, "ann", "member"))["name"],
        "jwt:ann"
    );
}

#[test]
fn tokens_of_one_subject_are_one_owner() {
    let issuer_file = FileIssuer::open();
    let broker = issuer_file.broker();
    let first = token(&issuer_file.issuer, "ann", "member");
    let second = {
        let mut claims = claims(&issuer_file.issuer, "ann", "member");
        claims["jti"] = json!("another");
        issuer_file.issuer.signs(&claims)
    };
    let stranger = token(&issuer_file.issuer, "bob", "admin");
    let alice = visitor(&broker, &first).registered("alice");
    let caller = stateless(&broker, &first).registered("caller");
    alice.sends("waits").to("alice");
    // Another subject has neither its name nor its session.
    visitor(&broker, &stranger).is_refused_as("forbidden", "register_session", json!({"name": "alice"}));
    let arguments = json!({"session_id": caller.session});
    stateless(&broker, &stranger).is_refused_as("session_not_found", "heartbeat", arguments.clone());
    stateless(&broker, &second).calls("heartbeat", arguments);
    let again = visitor(&broker, &second).registered("alice");
    assert_eq!(again.session, alice.session);
    alice.wire.closes_with(4001);
    again.sees(["waits"]);
}

#[test]
fn connections_end_with_their_token() {
    let issuer_file = FileIssuer::open();
    let broker = issuer_file.broker();
    let brief = brief_token(&issuer_file.issuer, "ann", 3);
    let lasting = token(&issuer_file.issuer, "ann", "member");
    let (going, kept) = (visitor(&broker, &brief), visitor(&broker, &lasting));
    let caller = stateless(&broker, &brief).registered("caller");
    let mut listening = caller.subscribes_as(&json!(1));
    going.wire.closes_with(4005);
    listening.awaits_end();
    assert_eq!(asks(&broker, &brief, "/security/status").status, 401);
    kept.calls("list_sessions", json!({}));
}

#[test]
fn an_http_session_outlives_its_token_if_a_new_one_comes_in_time() {
    let issuer_file = FileIssuer::open();
    let broker = issuer_file.broker();
    let brief = brief_token(&issuer_file.issuer, "ann", 3);
    let first = resumable(&broker, &brief).registered("alice");
    let mut stream = first.opens_stream();
    let lasting = token(&issuer_file.issuer, "ann", "member");
    let second = first.with("Authorization", &bearer(&lasting));
    second.calls("heartbeat", json!({}));
    stream.awaits_end();
    assert_eq!(first.call("heartbeat", json!({})).answered().status, 401);
    second.calls("heartbeat", json!({}));
    second
        .request("resources/subscribe", json!({"uri": "broker://inbox"}))
        .unwrap();
    let mut stream = second.opens_stream();
    second.calls("send_message", note("hi", "alice"));
    stream.next_notification("notifications/resources/updated");
    // Another subject does not find the session.
    let stranger = first.with("Authorization", &bearer(&token(&issuer_file.issuer, "bob", "admin")));
    assert_eq!(stranger.call("heartbeat", json!({})).answered().status, 404);
}

fn note(text: &str, recipient: &str) -> Value {
    json!({
        "recipient_id": recipient, "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": text},
    })
}

#[test]
fn an_http_session_is_not_found_with_a_token_of_a_smaller_scope() {
    // A session that was opened with a larger scope is not found.
    let issuer_file = FileIssuer::open();
    let broker = issuer_file.broker();
    let admin = resumable(&broker, &token(&issuer_file.issuer, "ann", "admin"));
    let rotate = json!({"key_id": "knobody"});
    admin.is_refused_as("invalid_argument", "rotate_project_keys", rotate.clone());
    for scope in ["member", "observer"] {
        let lesser = admin.with("Authorization", &bearer(&token(&issuer_file.issuer, "ann", scope)));
        let response = lesser.call("rotate_project_keys", rotate.clone()).answered();
        assert_eq!(response.status, 404, "{scope}: {response:?}");
    }
    admin.is_refused_as("invalid_argument", "rotate_project_keys", rotate);
}

#[test]
fn keys_stay_valid_beside_tokens() {
    let issuer_file = FileIssuer::open();
    let broker = issuer_file.broker();
    let made = broker.rest(ADMIN_KEY, "POST", "/api/v1/projects/team/keys", &json!({}));
    let key = made.json()["api_key"].as_str().unwrap().to_owned();
    let with_key = |headers: &[(&str, &str)]| Agent::legacy(broker.wire_with(headers), "2025-11-25", &json!({}));
    let alice = with_key(&[("X-API-Key", &key)]).registered("alice");
    let ann = visitor(&broker, &token(&issuer_file.issuer, "ann", "member")).registered("ann");
    ann.sends("hi").to(&alice);
    alice.sees(["hi"]);
    // A key can be sent as a bearer token.
    with_key(&[("Authorization", &bearer(&key))]).calls("list_sessions", json!({}));
    let both = [
        ("X-API-Key", key.as_str()),
        ("Authorization", &bearer(&token(&issuer_file.issuer, "ann", "admin"))),
    ];
    let response = broker.rest_with(&both, "GET", "/security/status", &Value::Null);
    assert_eq!(response.status, 400, "{response:?}");
}

#[test]
fn an_unusable_key_set_is_reported_at_the_start() {
    let issuer_file = FileIssuer::open();
    std::fs::write(&issuer_file.keys, "{\"keys\": []}").unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_mcp-broker"))
        .env_clear()
        .args([
            "serve",
            "--port=0",
            "--enable-auth",
            "--jwt-issuer=i",
            "--jwt-audience=a",
            "--jwt-jwks",
        ])
        .arg(&issuer_file.keys)
        .output()
        .unwrap();
    assert_ne!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("jwt_jwks") || said.contains("no usable key"), "{said}");
}
