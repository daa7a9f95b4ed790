//! Scopes: every tool and every route with every kind of credential, and the effect of `X-Project-ID`.

use std::{cell::Cell, net::Ipv4Addr};

use serde_json::{Value, json};

use self::Level::{Admin, Member, Observer, Operator, Public};
use crate::support::{ADMIN_KEY, Agent, Broker, Caller, Request, Tenant, Wire, eventually, hello};

/// The scope that a caller has, or that a tool or a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Public,
    Observer,
    Member,
    Admin,
    Operator,
}

const NO_ERROR: &str = "";

/// A tool, the scope it needs, its arguments, and the code of its error for a caller with that scope. `$N` is a new
/// number in each call, `$MESSAGE` the id of a message that was sent.
const TOOLS: [(&str, Level, &str, &str); 21] = [
    ("register_session", Member, "{}", NO_ERROR),
    ("heartbeat", Member, "{}", NO_ERROR),
    ("list_sessions", Observer, "{}", NO_ERROR),
    (
        "register_protocol",
        Member,
        r#"{"name": "p$N", "version": "1.0.0", "schema": {}}"#,
        NO_ERROR,
    ),
    ("discover_protocols", Observer, "{}", NO_ERROR),
    (
        "negotiate_capabilities",
        Member,
        r#"{"target_session_id": "peer"}"#,
        NO_ERROR,
    ),
    (
        "compatibility_matrix",
        Observer,
        r#"{"session_ids": ["peer"]}"#,
        NO_ERROR,
    ),
    (
        "send_message",
        Member,
        r#"{"recipient_id": "peer", "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": ""}}"#,
        NO_ERROR,
    ),
    (
        "broadcast_message",
        Member,
        r#"{"protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": ""}}"#,
        NO_ERROR,
    ),
    ("receive_messages", Member, "{}", NO_ERROR),
    ("acknowledge_messages", Member, r#"{"message_ids": []}"#, NO_ERROR),
    (
        "get_message_status",
        Observer,
        r#"{"message_id": "$MESSAGE"}"#,
        NO_ERROR,
    ),
    ("list_dead_letters", Observer, "{}", NO_ERROR),
    ("redrive_dead_letters", Member, r#"{"message_ids": []}"#, NO_ERROR),
    (
        "create_project",
        Operator,
        r#"{"project_id": "made-$N", "name": "made"}"#,
        NO_ERROR,
    ),
    ("list_projects", Observer, "{}", NO_ERROR),
    ("get_project_info", Observer, "{}", NO_ERROR),
    (
        "grant_project_access",
        Admin,
        r#"{"target_project_id": "other"}"#,
        NO_ERROR,
    ),
    (
        "revoke_project_access",
        Admin,
        r#"{"target_project_id": "other"}"#,
        NO_ERROR,
    ),
    (
        "rotate_project_keys",
        Admin,
        r#"{"key_id": "nosuchkey"}"#,
        "invalid_argument",
    ),
    ("disconnect_session", Member, "{}", NO_ERROR),
];

/// A number that is new in this test.
fn next(last: &Cell<u32>) -> u32 {
    last.set(last.get() + 1);
    last.get()
}

/// A new source address for each invalid credential: an address may present only a few wrong keys.
fn another_address(last: &Cell<u32>) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 0).to_bits() + next(last))
}

fn id_part(key: &str) -> &str {
    key.split('_').nth(1).unwrap()
}

impl Tenant<'_> {
    /// A key that has been rotated and stays valid for this many seconds.
    fn key_in_grace(&self, seconds: u64) -> String {
        let key = self.key_of("member");
        let rotation = json!({"key_id": id_part(&key), "grace_period_seconds": seconds});
        let rotated = self.rest("POST", "keys/rotate", &rotation);
        assert_eq!(rotated.status, 200, "{rotated:?}");
        key
    }

    fn revoked_key(&self) -> String {
        let key = self.key_of("member");
        let revoked = self.rest("DELETE", &format!("keys/{}", id_part(&key)), &Value::Null);
        assert_eq!(revoked.status, 200, "{revoked:?}");
        key
    }

    /// Callers that are let in, and their scopes.
    fn insiders(&self) -> [(&'static str, Level, String); 5] {
        [
            ("an observer", Observer, self.key_of("observer")),
            ("a member", Member, self.key_of("member")),
            ("a member in its grace", Member, self.key_in_grace(3600)),
            ("an admin", Admin, self.key.clone()),
            ("the operator", Operator, ADMIN_KEY.to_owned()),
        ]
    }

    /// Credentials that are refused.
    fn outsiders(&self) -> Vec<(&'static str, String)> {
        let (project, good) = (&self.id, self.key_of("member"));
        let secret = good.rsplit('_').next().unwrap();
        let expired = self.new_key(&json!({"expires_in_seconds": 1}));
        let after_grace = self.key_in_grace(1);
        for key in [&expired, &after_grace] {
            eventually("the key has ended", || {
                let answer = self.broker.rest(key, "GET", "/security/status", &Value::Null);
                (answer.status == 401).then_some(())
            });
        }
        vec![
            ("malformed", "nonsense".to_owned()),
            ("empty parts", "__".to_owned()),
            ("no secret", format!("{project}_{}_", id_part(&good))),
            (
                "a wrong secret",
                format!("{project}_{}_{}", id_part(&good), "0".repeat(secret.len())),
            ),
            ("a part of the secret", good[..good.len() - 1].to_owned()),
            ("more than the secret", format!("{good}0")),
            ("the secret in upper case", good.replace(secret, &secret.to_uppercase())),
            ("a wrong key id", format!("{project}_nosuchkey_{secret}")),
            ("an unknown project", format!("nowhere_{}_{secret}", id_part(&good))),
            (
                "a project that is not its own",
                format!("other_{}_{secret}", id_part(&good)),
            ),
            ("the secret alone", secret.to_owned()),
            ("a part of the admin key", ADMIN_KEY[..ADMIN_KEY.len() - 1].to_owned()),
            ("revoked", self.revoked_key()),
            ("expired", expired),
            ("after its grace", after_grace),
        ]
    }
}

/// A transport on which tools are called.
enum ToolTransport {
    WebSocket(Agent),
    Http(Caller),
}

impl ToolTransport {
    /// The code of the error of a call, or an empty text.
    fn code(&mut self, tool: &str, arguments: Value) -> String {
        let result = match self {
            Self::WebSocket(agent) => {
                let id = agent.begins(tool, &arguments);
                agent.wire.answer_to(&id)
            }
            Self::Http(caller) => caller.call(tool, arguments).sent().answer_to(&json!(1)),
        };
        let result = result.unwrap();
        let object = &result["structuredContent"];
        if let (Self::Http(caller), Some(session)) = (self, object["session_id"].as_str()) {
            caller.session = Some(session.to_owned());
        }
        let code = if result["isError"] == true {
            &object["code"]
        } else {
            return NO_ERROR.to_owned();
        };
        code.as_str().unwrap().to_owned()
    }
}

#[test]
fn every_tool_needs_its_scope() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({"max_protocols": 1000}));
    broker.project("other", &json!({}));
    let peer = team.agent("peer");
    let message = peer.sends("hello").to(&peer).id;
    let listed = broker.visitor().request("tools/list", json!({})).unwrap();
    let mut listed: Vec<_> = listed["tools"].as_array().unwrap().iter().collect();
    listed.sort_by_key(|tool| tool["name"].as_str());
    let mut known: Vec<_> = TOOLS.iter().map(|(tool, ..)| *tool).collect();
    known.sort_unstable();
    assert_eq!(listed.iter().map(|tool| &tool["name"]).collect::<Vec<_>>(), known);
    let number = Cell::new(0);
    let mut wrong = Vec::new();
    for (who, level, key) in team.insiders() {
        let headers = [("X-API-Key", key.as_str()), ("X-Project-ID", "team")];
        let address = broker.address;
        let ways = [
            (
                "WebSocket",
                ToolTransport::WebSocket(Agent::legacy(
                    Wire::open_with(address, &headers),
                    "2025-11-25",
                    &json!({}),
                )),
            ),
            (
                "HTTP",
                ToolTransport::Http(Caller::modern_with(address, json!({}), &headers)),
            ),
            (
                "HTTP with a session",
                ToolTransport::Http(Caller::legacy_with(address, "2025-11-25", json!({}), &headers)),
            ),
        ];
        for (name, mut way) in ways {
            for (tool, needed, arguments, expected) in TOOLS {
                let arguments = arguments
                    .replace("$N", &next(&number).to_string())
                    .replace("$MESSAGE", &message);
                let code = way.code(tool, serde_json::from_str(&arguments).unwrap());
                let expected = if level >= needed { expected } else { "forbidden" };
                if code != expected {
                    wrong.push(format!("{tool} of {who} over {name}: {code:?} and not {expected:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Every route: the scope it needs, and the status and code for a caller with that scope. Answers in JSON-RPC have no code here.
fn routes(broker: &Broker, number: &Cell<u32>) -> Vec<(Request, Level, u16, &'static str)> {
    let bare = |method: &str, path: &str| Request::get(broker.address).by(method).at(path);
    let rest = |method: &str, path: &str, body: Value| {
        Request::post(broker.address, body.to_string())
            .by(method)
            .at(&format!("/api/v1/{path}"))
    };
    let mcp = Caller::modern(broker.address, json!({}));
    let with_session = |request: Request| request.with("Mcp-Session-Id", "0123456789abcdef0123456789abcdef");
    let handshake = bare("GET", "/ws")
        .with("Connection", "Upgrade")
        .with("Upgrade", "websocket")
        .with("Sec-WebSocket-Version", "13")
        .with("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    let new = format!("new-{}", next(number));
    let invalid = "invalid_argument";
    vec![
        (bare("GET", "/"), Public, 200, NO_ERROR),
        (bare("GET", "/health"), Public, 200, NO_ERROR),
        (bare("GET", "/livez"), Public, 200, NO_ERROR),
        (bare("GET", "/readyz"), Public, 200, NO_ERROR),
        (bare("GET", "/startupz"), Public, 200, NO_ERROR),
        (bare("GET", "/openapi.json"), Public, 200, NO_ERROR),
        (
            bare("GET", "/.well-known/oauth-protected-resource"),
            Public,
            404,
            invalid,
        ),
        (bare("OPTIONS", "/api/v1/projects"), Public, 204, NO_ERROR),
        (bare("OPTIONS", "/mcp"), Public, 405, NO_ERROR),
        (mcp.asks("tools/list", json!({})), Observer, 200, NO_ERROR),
        (hello(broker.address, "2025-11-25", json!({})), Observer, 200, NO_ERROR),
        (
            with_session(Request::post(
                broker.address,
                r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            )),
            Observer,
            404,
            NO_ERROR,
        ),
        (with_session(bare("GET", "/mcp")), Observer, 404, NO_ERROR),
        (with_session(bare("DELETE", "/mcp")), Observer, 404, NO_ERROR),
        (bare("PUT", "/mcp"), Observer, 405, NO_ERROR),
        (handshake, Observer, 101, NO_ERROR),
        (bare("GET", "/ws"), Observer, 426, invalid),
        (bare("POST", "/ws"), Observer, 405, invalid),
        (bare("OPTIONS", "/security/status"), Public, 204, NO_ERROR),
        (bare("GET", "/security/status"), Observer, 200, NO_ERROR),
        (bare("GET", "/nowhere"), Observer, 404, invalid),
        (bare("GET", "/api/v1/nowhere"), Observer, 404, invalid),
        (bare("GET", "/api/v1/tree"), Operator, 200, NO_ERROR),
        (bare("GET", "/api/v1/audit"), Admin, 200, NO_ERROR),
        (bare("GET", "/api/v1/audit?project=team"), Admin, 200, NO_ERROR),
        (bare("GET", "/api/v1/projects"), Observer, 200, NO_ERROR),
        (
            rest("POST", "projects", json!({"project_id": new, "name": "new"})),
            Operator,
            201,
            NO_ERROR,
        ),
        (bare("PUT", "/api/v1/projects"), Observer, 405, invalid),
        (bare("GET", "/api/v1/projects/team"), Observer, 200, NO_ERROR),
        (
            rest("PATCH", "projects/team", json!({"name": "The team", "tags": ["a"]})),
            Admin,
            200,
            NO_ERROR,
        ),
        (
            rest("PATCH", "projects/team", json!({"config": {"discoverable": false}})),
            Admin,
            200,
            NO_ERROR,
        ),
        (
            rest("PATCH", "projects/team", json!({"config": {"rate_limit": 0}})),
            Operator,
            200,
            NO_ERROR,
        ),
        (
            rest("PATCH", "projects/team", json!({"config": {"max_sessions": null}})),
            Operator,
            200,
            NO_ERROR,
        ),
        (
            rest("PATCH", "projects/team", json!({"config": {"max_protocols": 1000}})),
            Operator,
            200,
            NO_ERROR,
        ),
        (
            rest("PATCH", "projects/team", json!({"config": {"queue_capacity": 1000}})),
            Operator,
            200,
            NO_ERROR,
        ),
        (bare("GET", "/api/v1/projects/team/keys"), Admin, 200, NO_ERROR),
        (
            rest("POST", "projects/team/keys", json!({"scope": "observer"})),
            Admin,
            201,
            NO_ERROR,
        ),
        (
            bare("DELETE", "/api/v1/projects/team/keys/nosuchkey"),
            Admin,
            404,
            invalid,
        ),
        (
            rest("POST", "projects/team/keys/rotate", json!({"key_id": "nosuchkey"})),
            Admin,
            400,
            invalid,
        ),
        (bare("GET", "/api/v1/projects/team/grants"), Observer, 200, NO_ERROR),
        (
            rest("PUT", "projects/team/grants/other", json!({})),
            Admin,
            200,
            NO_ERROR,
        ),
        (
            bare("DELETE", "/api/v1/projects/team/grants/other"),
            Admin,
            200,
            NO_ERROR,
        ),
    ]
}

#[test]
fn every_route_needs_its_scope() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let other = broker.project("other", &json!({}));
    let (number, mut wrong) = (Cell::new(0), Vec::new());
    let mut ask = |who: &str, request: Request, expected: (u16, &str)| {
        let request = request.from(another_address(&number));
        let (status, code) = request.answered().problem();
        if (status, code.as_str()) != expected {
            let Request { method, path, .. } = request;
            wrong.push(format!(
                "{method} {path} of {who}: {status} {code:?} and not {expected:?}"
            ));
        }
    };
    let refused = (401, "authentication_failed");
    let mismatch = (403, "project_mismatch");
    let mut outsiders = vec![("no credentials", vec![], refused)];
    for (who, key) in team.outsiders() {
        outsiders.push((who, vec![("X-API-Key", key.clone())], refused));
        outsiders.push((who, vec![("Authorization", format!("Bearer {key}"))], refused));
        outsiders.push((
            who,
            vec![("X-API-Key", key), ("X-Project-ID", "team".to_owned())],
            refused,
        ));
    }
    let neighbor = vec![("X-API-Key", other.key.clone()), ("X-Project-ID", "team".to_owned())];
    outsiders.push(("a neighbor", neighbor, mismatch));
    for (who, headers, refusal) in outsiders {
        for (request, needed, status, code) in routes(&broker, &number) {
            let request = headers
                .iter()
                .fold(request, |request, (name, value)| request.with(name, value));
            ask(who, request, if needed == Public { (status, code) } else { refusal });
        }
    }
    for (who, level, key) in team.insiders() {
        for (request, needed, status, code) in routes(&broker, &number) {
            let request = request.with("X-API-Key", &key).with("X-Project-ID", "team");
            ask(
                who,
                request,
                if level >= needed {
                    (status, code)
                } else {
                    (403, "forbidden")
                },
            );
        }
    }
    // Routes of another project have the same answer as those of a project that does not exist.
    for (who, level, key) in team.insiders().into_iter().filter(|(_, level, _)| *level != Operator) {
        for (request, needed, ..) in routes(&broker, &number) {
            let Some(path) = request.path.strip_prefix("/api/v1/projects/team").map(str::to_owned) else {
                continue;
            };
            let request = request.with("X-API-Key", &key);
            for project in ["other", "nowhere", "default", "No Project"] {
                let path = format!("/api/v1/projects/{}{path}", project.replace(' ', "%20"));
                ask(who, request.clone().at(&path), (404, "project_not_found"));
            }
            assert!(level < Operator && needed > Public);
        }
    }
    // Last, because it deletes the project.
    for (who, level, key) in team.insiders() {
        let delete = Request::get(broker.address).by("DELETE").at("/api/v1/projects/team");
        let expected = if level >= Operator {
            (204, NO_ERROR)
        } else {
            (403, "forbidden")
        };
        ask(who, delete.with("X-API-Key", key), expected);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The project in which a caller acts, or its refusal.
type ActingProject = Result<&'static str, (u16, &'static str)>;

#[test]
fn the_key_decides_the_project_and_the_header_cannot_change_it() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    broker.project("other", &json!({}));
    let number = Cell::new(0);
    let named: [(&[&str], ActingProject, ActingProject); 11] = [
        // The header's values, the result for a key of the project, and the result for the operator.
        (&[], Ok("team"), Ok("default")),
        (&[""], Ok("team"), Ok("default")),
        (&["team"], Ok("team"), Ok("team")),
        (&["default"], Err((403, "project_mismatch")), Ok("default")),
        (&["other"], Err((403, "project_mismatch")), Ok("other")),
        (
            &["nowhere"],
            Err((403, "project_mismatch")),
            Err((404, "project_not_found")),
        ),
        (
            &["Team"],
            Err((403, "project_mismatch")),
            Err((404, "project_not_found")),
        ),
        (
            &["team,other"],
            Err((403, "project_mismatch")),
            Err((404, "project_not_found")),
        ),
        (
            &["../team"],
            Err((403, "project_mismatch")),
            Err((404, "project_not_found")),
        ),
        (
            &["team", "team"],
            Err((400, "invalid_argument")),
            Err((400, "invalid_argument")),
        ),
        (
            &["team", "other"],
            Err((400, "invalid_argument")),
            Err((400, "invalid_argument")),
        ),
    ];
    let status = Request::get(broker.address).at("/security/status");
    let with = |request: Request, key: &str, projects: &[&str]| {
        let request = request.with("X-API-Key", key);
        projects
            .iter()
            .fold(request, |request, project| request.and("X-Project-ID", *project))
    };
    for (projects, of_key, of_operator) in named {
        for (who, level, key) in team.insiders() {
            let expected = if level == Operator { of_operator } else { of_key };
            let answer = with(status.clone(), &key, projects).answered();
            match expected {
                Ok(project) => assert_eq!(answer.json()["caller"]["project_id"], project, "{who} {projects:?}"),
                Err((status, code)) => {
                    assert_eq!(answer.problem(), (status, code.to_owned()), "{who} {projects:?}");
                }
            }
            for (request, _, status, _) in routes(&broker, &number) {
                let is_way_in = request.path == "/mcp" && status == 200 || status == 101;
                if is_way_in {
                    let answer = with(request, &key, projects).answered();
                    let expected = expected.map_or_else(|(status, _)| status, |_| status);
                    assert_eq!(answer.status, expected, "{who} {projects:?} {answer:?}");
                }
            }
        }
        // A caller that is not authenticated does not learn which projects exist.
        for (who, key) in [("a guess", "team_nosuchkey_0"), ("nonsense", "nonsense")] {
            let answer = with(status.clone(), key, projects)
                .from(another_address(&number))
                .answered();
            assert_eq!(
                answer.problem(),
                (401, "authentication_failed".to_owned()),
                "{who} {projects:?}"
            );
        }
    }
}

#[test]
fn without_authentication_callers_without_credentials_are_operators() {
    let broker = Broker::start();
    let team = json!({"project_id": "team", "name": "team"});
    let made = broker.rest_with(&[], "POST", "/api/v1/projects", &team);
    assert_eq!(made.status, 201, "{made:?}");
    let key = made.json()["api_keys"][0]["api_key"].as_str().unwrap().to_owned();
    let caller = |headers: &[(&str, &str)]| broker.rest_with(headers, "GET", "/security/status", &Value::Null);
    let seen = |headers: &[(&str, &str)]| {
        let caller = caller(headers).json()["caller"].take();
        let [scope, project] = ["scope", "project_id"].map(|name| caller[name].as_str().unwrap().to_owned());
        (scope, project)
    };
    let is = |scope: &str, project: &str| (scope.to_owned(), project.to_owned());
    assert_eq!(seen(&[]), is("operator", "default"));
    assert_eq!(seen(&[("X-Project-ID", "team")]), is("operator", "team"));
    assert_eq!(
        seen(&[("X-API-Key", &key)]),
        is("admin", "team"),
        "a key decides the identity"
    );
    // Credentials for a proxy in front of the broker are ignored.
    for other in ["Basic dXNlcjpwYXNz", "Bearer of-somebody-else", "Negotiate abc"] {
        assert_eq!(seen(&[("Authorization", other)]), is("operator", "default"), "{other}");
    }
    let nowhere = caller(&[("X-Project-ID", "nowhere")]).problem();
    assert_eq!(nowhere, (404, "project_not_found".to_owned()));
    let mismatch = caller(&[("X-API-Key", &key), ("X-Project-ID", "default")]).problem();
    assert_eq!(mismatch, (403, "project_mismatch".to_owned()));
    let guess = format!("{key}0");
    for headers in [
        ("X-API-Key", guess.clone()),
        ("Authorization", format!("Bearer {guess}")),
    ] {
        let wrong = caller(&[(headers.0, &headers.1)]).problem();
        assert_eq!(wrong, (401, "authentication_failed".to_owned()), "{headers:?}");
    }
    let handshake = broker.upgrade(&[("X-API-Key", &guess)]);
    assert_eq!(handshake.status, 401, "{handshake:?}");
    // Sessions that were registered with a key belong to it, with or without authentication.
    let alice = Agent::legacy(broker.wire_with(&[("X-API-Key", &key)]), "2025-11-25", &json!({})).registered("alice");
    let guest = Agent::legacy(broker.wire_with(&[("X-Project-ID", "team")]), "2025-11-25", &json!({}));
    guest.is_refused_as("session_not_found", "heartbeat", json!({"session_id": alice.session}));
    assert_eq!(guest.presence_of("alice").as_deref(), Some("active"));
}

#[test]
fn a_broker_with_an_admin_key_asks_for_it_on_administration() {
    let broker = Broker::administered();
    let number = Cell::new(0);
    let made = broker.project("team", &json!({"max_protocols": 1000}));
    let _ = broker.project("other", &json!({}));
    for (request, needed, status, code) in routes(&broker, &number) {
        let answer = request.with("X-Project-ID", &made.id).answered();
        let expected = if needed <= Member {
            (status, code)
        } else {
            (403, "forbidden")
        };
        assert_eq!(answer.problem(), (expected.0, expected.1.to_owned()), "{answer:?}");
    }
    let visitor = Agent::legacy(Wire::open(broker.address), "2025-11-25", &json!({})).registered("visitor");
    visitor.sends("to myself").to(&visitor);
    visitor.is_refused_as("forbidden", "rotate_project_keys", json!({}));
    visitor.is_refused_as("forbidden", "create_project", json!({"project_id": "x", "name": "x"}));
    assert_eq!(broker.rest(ADMIN_KEY, "GET", "/api/v1/tree", &Value::Null).status, 200);
}

#[test]
fn a_single_project_broker_has_no_other_project() {
    let broker = Broker::with(&["--enable-multi-project=false"]);
    let agent = broker.agent("alice");
    let listed = agent.request("tools/list", json!({})).unwrap();
    let is_listed = |name: &str| {
        listed["tools"]
            .as_array()
            .unwrap()
            .iter()
            .any(|tool| tool["name"] == name)
    };
    for tool in [
        "create_project",
        "list_projects",
        "grant_project_access",
        "revoke_project_access",
    ] {
        assert!(!is_listed(tool), "{tool}");
        assert_eq!(
            agent.error_of("tools/call", json!({"name": tool, "arguments": {}})),
            -32602,
            "{tool}"
        );
    }
    assert!(is_listed("get_project_info") && is_listed("rotate_project_keys"));
    assert_eq!(
        agent.calls("get_project_info", json!({}))["project"]["project_id"],
        "default"
    );
    let asked = |project: &str, method: &str, path: &str, body: Value| {
        broker
            .rest_with(&[("X-Project-ID", project)], method, path, &body)
            .problem()
    };
    let new = json!({"project_id": "team", "name": "team"});
    assert_eq!(
        asked("default", "POST", "/api/v1/projects", new),
        (403, "forbidden".to_owned())
    );
    let elsewhere = asked("team", "GET", "/security/status", Value::Null);
    assert_eq!(elsewhere, (404, "project_not_found".to_owned()));
    assert_eq!(asked("default", "GET", "/security/status", Value::Null).0, 200);
}
