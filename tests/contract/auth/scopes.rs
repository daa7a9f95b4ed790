//! Scopes: every tool and every route, called with every kind of credential.

use std::{cell::Cell, net::Ipv4Addr};

use serde_json::{Value, json};

mod tools;

use self::Level::{Admin, Answer, Member, Observer, Operator, Public};
use self::tools::TOOLS;
use super::handshake;
use crate::support::{
    ADMIN_KEY, Agent, Broker, HttpAgent, Request, Tenant, Wire, eventually, id_of_key, initialize_request,
};

/// The scope that a caller has, or that a tool or a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Public,
    Observer,
    Answer,
    Member,
    Admin,
    Operator,
}

pub(super) const NO_ERROR: &str = "";

/// A number that is new in this test.
fn next(last: &Cell<u32>) -> u32 {
    last.set(last.get() + 1);
    last.get()
}

/// A new source address for each invalid credential: an address may present only a few wrong keys.
pub(super) fn another_address(last: &Cell<u32>) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 0).to_bits() + next(last))
}

impl Tenant<'_> {
    /// A key that has been rotated and stays valid for this many seconds.
    fn key_in_grace(&self, seconds: u64) -> String {
        let key = self.new_key_with_scope("member");
        let rotation = json!({"key_id": id_of_key(&key), "grace_period_seconds": seconds});
        let rotated = self.rest("POST", "keys/rotate", &rotation);
        assert_eq!(rotated.status, 200, "{rotated:?}");
        key
    }

    fn revoked_key(&self) -> String {
        let key = self.new_key_with_scope("member");
        let revoked = self.rest("DELETE", &format!("keys/{}", id_of_key(&key)), &Value::Null);
        assert_eq!(revoked.status, 200, "{revoked:?}");
        key
    }

    /// Credentials that are accepted, and their scopes.
    pub(super) fn valid_credentials(&self) -> [(&'static str, Level, String); 6] {
        let person = json!({"scope": "answer", "human": "mara"});
        [
            ("an observer", Observer, self.new_key_with_scope("observer")),
            ("a person", Answer, self.new_key(&person)),
            ("a member", Member, self.new_key_with_scope("member")),
            ("a member in its grace", Member, self.key_in_grace(3600)),
            ("an admin", Admin, self.key.clone()),
            ("the operator", Operator, ADMIN_KEY.to_owned()),
        ]
    }

    /// Credentials that are refused.
    pub(super) fn invalid_credentials(&self) -> Vec<(&'static str, String)> {
        let (project, good) = (&self.id, self.new_key_with_scope("member"));
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
            ("no secret", format!("{project}_{}_", id_of_key(&good))),
            (
                "a wrong secret",
                format!("{project}_{}_{}", id_of_key(&good), "0".repeat(secret.len())),
            ),
            ("a part of the secret", good[..good.len() - 1].to_owned()),
            ("more than the secret", format!("{good}0")),
            ("the secret in upper case", good.replace(secret, &secret.to_uppercase())),
            ("a wrong key id", format!("{project}_nosuchkey_{secret}")),
            ("an unknown project", format!("nowhere_{}_{secret}", id_of_key(&good))),
            (
                "a project that is not its own",
                format!("other_{}_{secret}", id_of_key(&good)),
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
    Http(HttpAgent),
}

impl ToolTransport {
    /// The code of the error of a call, or an empty text.
    fn code(&mut self, tool: &str, arguments: Value) -> String {
        let result = match self {
            Self::WebSocket(agent) => {
                let id = agent.begins_call(tool, &arguments);
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
    let listed = broker.client().request("tools/list", json!({})).unwrap();
    let mut listed: Vec<_> = listed["tools"].as_array().unwrap().iter().collect();
    listed.sort_by_key(|tool| tool["name"].as_str());
    let mut known: Vec<_> = TOOLS.iter().map(|(tool, ..)| *tool).collect();
    known.sort_unstable();
    assert_eq!(listed.iter().map(|tool| &tool["name"]).collect::<Vec<_>>(), known);
    let number = Cell::new(0);
    let mut wrong = Vec::new();
    for (who, level, key) in team.valid_credentials() {
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
                ToolTransport::Http(HttpAgent::modern_with(address, json!({}), &headers)),
            ),
            (
                "HTTP with a session",
                ToolTransport::Http(HttpAgent::legacy_with(address, "2025-11-25", json!({}), &headers)),
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

/// A request, the scope it needs, and the status and code for a caller with that scope. Answers in JSON-RPC have no code.
pub(super) type Route = (Request, Level, u16, &'static str);

/// One request for each route.
pub(super) fn routes(broker: &Broker, number: &Cell<u32>) -> Vec<Route> {
    let mut routes = transport_routes(broker);
    routes.extend(rest_routes(broker, number));
    routes.extend(operation_routes(broker, number));
    routes
}

fn bare(broker: &Broker, method: &str, path: &str) -> Request {
    Request::get(broker.address).with_method(method).with_path(path)
}

/// Public paths and the entry points of MCP.
fn transport_routes(broker: &Broker) -> Vec<Route> {
    let bare = |method: &str, path: &str| bare(broker, method, path);
    let mcp = HttpAgent::modern(broker.address, json!({}));
    let with_session = |request: Request| request.with("Mcp-Session-Id", "0123456789abcdef0123456789abcdef");
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
        (
            initialize_request(broker.address, "2025-11-25", json!({})),
            Observer,
            200,
            NO_ERROR,
        ),
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
        (handshake(broker), Observer, 101, NO_ERROR),
        (bare("GET", "/ws"), Observer, 426, invalid),
        (bare("POST", "/ws"), Observer, 405, invalid),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn rest_routes(broker: &Broker, number: &Cell<u32>) -> Vec<Route> {
    let bare = |method: &str, path: &str| bare(broker, method, path);
    let rest = |method: &str, path: &str, body: Value| {
        Request::post(broker.address, body.to_string())
            .with_method(method)
            .with_path(&format!("/api/v1/{path}"))
    };
    let new = format!("new-{}", next(number));
    let invalid = "invalid_argument";
    vec![
        (bare("OPTIONS", "/security/status"), Public, 204, NO_ERROR),
        (bare("GET", "/security/status"), Observer, 200, NO_ERROR),
        (bare("GET", "/nowhere"), Observer, 404, invalid),
        (bare("GET", "/api/v1/nowhere"), Observer, 404, invalid),
        (
            rest("POST", "login", json!({"key": "nonsense"})),
            Public,
            401,
            "authentication_failed",
        ),
        (bare("POST", "/api/v1/logout"), Public, 204, NO_ERROR),
        (bare("GET", "/api/v1/me"), Observer, 200, NO_ERROR),
        (bare("GET", "/api/v1/tree"), Operator, 200, NO_ERROR),
        (bare("GET", "/api/v1/log-level"), Operator, 200, NO_ERROR),
        (
            rest("PUT", "log-level", json!({"filter": "info"})),
            Operator,
            200,
            NO_ERROR,
        ),
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
        (bare("GET", "/api/v1/backends"), Observer, 200, NO_ERROR),
        (
            rest("POST", "backends", json!({"name": "docs", "command": "sh"})),
            Admin,
            403,
            "command_not_allowed",
        ),
        (
            rest("PUT", "backends/docs", json!({"url": "http://localhost:9"})),
            Admin,
            404,
            "backend_not_found",
        ),
        (
            rest("PATCH", "backends/docs", json!({})),
            Admin,
            404,
            "backend_not_found",
        ),
        (bare("DELETE", "/api/v1/backends/docs"), Admin, 404, "backend_not_found"),
        (
            bare("POST", "/api/v1/backends/docs/enable"),
            Admin,
            404,
            "backend_not_found",
        ),
        (
            bare("POST", "/api/v1/backends/docs/disable"),
            Admin,
            404,
            "backend_not_found",
        ),
        (bare("GET", "/api/v1/gateway/calls"), Observer, 200, NO_ERROR),
        (
            bare("DELETE", "/api/v1/gateway/calls/no-such-call"),
            Admin,
            404,
            "call_not_found",
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

/// What operators read, and what programs send. An object that does not exist shows that the scope was checked first.
fn operation_routes(broker: &Broker, number: &Cell<u32>) -> Vec<Route> {
    let bare = |method: &str, path: &str| bare(broker, method, path);
    let post =
        |path: &str, body: Value| Request::post(broker.address, body.to_string()).with_path(&format!("/api/v1/{path}"));
    let none = "session_not_found";
    let message = json!({
        "from": format!("me-{}", next(number)), "recipient_id": "nobody", "protocol_name": "note", "protocol_version": "1.0.0",
        "payload": {"text": ""},
    });
    let protocol = json!({"name": "from-rest", "version": "1.0.0", "schema": 7});
    let from = format!("asker-{}", next(number));
    let unknown = "/api/v1/questions/0198f3a2-0000-7000-8000-000000000000";
    let (asked, yap) = (
        json!({"from": from, "question": "?"}),
        json!({"from": from, "message": "!"}),
    );
    vec![
        (bare("GET", "/api/v1/questions"), Answer, 200, NO_ERROR),
        (bare("GET", unknown), Answer, 404, "question_not_found"),
        (bare("DELETE", unknown), Admin, 404, "question_not_found"),
        (
            post(&format!("{}/cancel", &unknown[8..]), json!({})),
            Answer,
            404,
            "question_not_found",
        ),
        (post("questions", asked), Member, 201, NO_ERROR),
        (bare("GET", "/api/v1/yaps"), Observer, 200, NO_ERROR),
        (post("yaps", yap), Member, 201, NO_ERROR),
        (bare("GET", "/api/v1/desk"), Observer, 200, NO_ERROR),
        (bare("GET", "/sessions"), Observer, 200, NO_ERROR),
        (bare("GET", "/api/v1/sessions"), Observer, 200, NO_ERROR),
        (bare("GET", "/api/v1/sessions/nobody"), Observer, 404, none),
        (bare("DELETE", "/api/v1/sessions/nobody"), Member, 404, none),
        (bare("DELETE", "/api/v1/sessions/nobody?forget=true"), Member, 404, none),
        (bare("GET", "/api/v1/compatibility"), Observer, 200, NO_ERROR),
        (bare("GET", "/api/v1/stats"), Observer, 200, NO_ERROR),
        (bare("GET", "/api/v1/settings"), Operator, 200, NO_ERROR),
        (bare("GET", "/api/v1/flow"), Observer, 200, NO_ERROR),
        (bare("GET", "/api/v1/threads"), Observer, 200, NO_ERROR),
        (bare("GET", "/api/v1/stats?all_projects=true"), Operator, 200, NO_ERROR),
        (bare("GET", "/api/v1/messages"), Observer, 200, NO_ERROR),
        (bare("GET", "/api/v1/messages?include=payload"), Admin, 200, NO_ERROR),
        (
            bare("GET", "/api/v1/messages/nothing"),
            Observer,
            404,
            "invalid_argument",
        ),
        (bare("GET", "/protocols"), Observer, 200, NO_ERROR),
        (bare("GET", "/api/v1/protocols"), Observer, 200, NO_ERROR),
        (bare("GET", "/api/v1/protocols/note/1.0.0"), Observer, 200, NO_ERROR),
        (post("protocols", protocol), Member, 400, "invalid_schema"),
        (bare("GET", "/api/v1/dead-letters"), Observer, 200, NO_ERROR),
        (
            bare("GET", "/api/v1/dead-letters?include=payload"),
            Admin,
            200,
            NO_ERROR,
        ),
        (
            post("dead-letters/redrive", json!({"message_ids": []})),
            Member,
            200,
            NO_ERROR,
        ),
        (post("messages", message), Member, 404, none),
    ]
}

#[test]
fn every_route_needs_its_scope() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let other = broker.project("other", &json!({}));
    let (number, mut wrong) = (Cell::new(0), Vec::new());
    let mut ask = |who: &str, request: Request, expected: (u16, &str)| {
        let request = request.sent_from(another_address(&number));
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
    for (who, key) in team.invalid_credentials() {
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
    for (who, level, key) in team.valid_credentials() {
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
    for (who, level, key) in team
        .valid_credentials()
        .into_iter()
        .filter(|(_, level, _)| *level != Operator)
    {
        for (request, needed, ..) in routes(&broker, &number) {
            let Some(path) = request.path.strip_prefix("/api/v1/projects/team").map(str::to_owned) else {
                continue;
            };
            let request = request.with("X-API-Key", &key);
            for project in ["other", "nowhere", "default", "No Project"] {
                let path = format!("/api/v1/projects/{}{path}", project.replace(' ', "%20"));
                ask(who, request.clone().with_path(&path), (404, "project_not_found"));
            }
            assert!(level < Operator && needed > Public);
        }
    }
    // Last, because it deletes the project.
    for (who, level, key) in team.valid_credentials() {
        let delete = Request::get(broker.address)
            .with_method("DELETE")
            .with_path("/api/v1/projects/team");
        let expected = if level >= Operator {
            (204, NO_ERROR)
        } else {
            (403, "forbidden")
        };
        ask(who, delete.with("X-API-Key", key), expected);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
