//! What a front sends to its broker, seen by a broker of the test that answers as it likes.

use std::{
    collections::VecDeque,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
};

use serde_json::{Value, json};

use super::{front::Front, home::Home, support::WAIT_TIMEOUT};

/// A socket where fronts look for the broker.
pub struct FakeBroker(UnixListener);

/// A connection of a front.
pub struct Connection {
    reader: BufReader<UnixStream>,
    /// Frames that were read before they were asked for.
    pub kept: VecDeque<Value>,
    pub hello: Value,
}

impl FakeBroker {
    pub fn of(user: &Home) -> Self {
        let folder = user.runtime();
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        Self(UnixListener::bind(folder.join("broker.sock")).unwrap())
    }

    /// Answers the hello of the next front, with the name that it gives.
    pub fn accepts(&self, name: Option<&str>) -> Connection {
        let (stream, _) = self.0.accept().unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(WAIT_TIMEOUT)).unwrap();
        let mut connection = Connection {
            reader: BufReader::new(stream),
            kept: VecDeque::new(),
            hello: Value::Null,
        };
        let hello = connection.reads();
        connection.writes(&json!({"jsonrpc": "2.0", "id": hello["id"], "result": {
            "protocol": 1, "protocols": [1, 1], "version": "0.1.0", "build": "00000000", "pid": 1,
            "started_at": "2026-11-23T00:00:00Z", "http": null, "connections": 1, "retiring": false, "upgrade": null,
            "lists": "0", "name": name,
        }}));
        connection.hello = hello;
        connection
    }
}

impl Connection {
    /// The next request. Notifications are kept: they may come with the opening or after it.
    pub fn reads(&mut self) -> Value {
        self.reads_until(|frame| frame.get("id").is_some())
    }

    /// The next notification of this kind. Other frames are kept.
    pub fn notification(&mut self, method: &str) -> Value {
        self.reads_until(|frame| frame["method"] == method)
    }

    fn reads_until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.kept.iter().position(&fits) {
            return self.kept.remove(at).unwrap();
        }
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line).unwrap();
            let frame: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?} is a frame"));
            if fits(&frame) {
                return frame;
            }
            self.kept.push_back(frame);
        }
    }

    pub fn writes(&mut self, frame: &Value) {
        let mut stream = self.reader.get_ref();
        stream.write_all(format!("{frame}\n").as_bytes()).unwrap();
    }

    /// Answers the requests that a front sends first on a new connection, and returns them.
    pub fn answers_opening(&mut self, requests: usize) -> Vec<Value> {
        let mut answer = || {
            let frame = self.reads();
            let object = json!({"session_id": "s1", "name": frame["params"]["arguments"]["name"]});
            let result = json!({"content": [], "structuredContent": object, "isError": false});
            self.writes(&json!({"jsonrpc": "2.0", "id": frame["id"], "result": result}));
            frame
        };
        (0..requests).map(|_| answer()).collect()
    }
}

fn attached(user: &Home, broker: &FakeBroker, args: &[&str]) -> (Front, Connection) {
    attached_to(user.front().args(&["--no-start"]).args(args).start(), "x", broker)
}

/// Initializes a front as this client, and takes its connection.
pub fn attached_to(mut front: Front, client: &str, broker: &FakeBroker) -> (Front, Connection) {
    front.initialize(client);
    let mut connection = broker.accepts(None);
    connection.answers_opening(1);
    (front, connection)
}

#[test]
fn a_question_of_a_broker_that_dies_is_cancelled_and_its_late_answer_dropped() {
    let user = Home::new();
    let broker = FakeBroker::of(&user);
    let (mut front, mut connection) = attached(&user, &broker, &[]);
    connection.writes(&json!({"jsonrpc": "2.0", "id": 5, "method": "elicitation/create", "params": {}}));
    front.awaits("the question", |frame| frame["method"] == "elicitation/create");
    drop(connection);
    let cancelled = front.notification("notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], 5);
    front.sends(&json!({"jsonrpc": "2.0", "id": 5, "result": {}}));
    let id = front.asks_tool("heartbeat", &json!({}));
    let mut connection = broker.accepts(None);
    connection.answers_opening(1);
    assert_eq!(connection.reads()["id"], id);
}

#[test]
fn a_repeated_message_has_the_key_of_the_first_and_is_sent_to_a_named_session_only() {
    let user = Home::new();
    let broker = FakeBroker::of(&user);
    let (mut front, mut connection) = attached(&user, &broker, &[]);
    let send = json!({"recipient_id": "bob", "protocol_name": "p", "protocol_version": "1.0.0", "payload": {}});
    // Without a name, a later connection would have another session.
    let unnamed = front.asks_tool("send_message", &send);
    assert!(connection.reads()["params"]["arguments"]["headers"]["idempotency_key"].is_string());
    drop(connection);
    let refused = front.answer(unnamed);
    assert_eq!(refused["result"]["structuredContent"]["code"], "unavailable");
    let mut connection = broker.accepts(None);
    connection.answers_opening(1);
    let registered = front.asks_tool("register_session", &json!({"name": "alice"}));
    connection.answers_opening(1);
    front.answer(registered);
    let named = front.asks_tool("send_message", &send);
    let first = connection.reads();
    drop(connection);
    let mut connection = broker.accepts(None);
    let opening = connection.answers_opening(2);
    assert_eq!(opening[1]["params"]["arguments"]["name"], "alice", "{opening:?}");
    assert_eq!(connection.reads(), first);
    connection.writes(&json!({"jsonrpc": "2.0", "id": named, "result": {}}));
    front.answer(named);
}

#[test]
fn a_request_that_ends_every_broker_is_refused_at_last() {
    let user = Home::new();
    let broker = FakeBroker::of(&user);
    let (mut front, mut connection) = attached(&user, &broker, &[]);
    let id = front.asks("resources/read", &json!({"uri": "broker://sessions"}));
    let mut times = 0;
    loop {
        assert_eq!(connection.reads()["id"], id);
        times += 1;
        drop(connection);
        if times == 8 {
            break;
        }
        connection = broker.accepts(None);
        connection.answers_opening(1);
    }
    assert_eq!(front.answer(id)["error"]["data"]["code"], "unavailable");
}

#[test]
fn answers_are_read_while_the_requests_that_waited_are_sent() {
    let user = Home::new();
    let broker = FakeBroker::of(&user);
    let mut front = user.front().args(&["--no-start"]).start();
    front.initialize("x");
    // Neither direction fits into the buffers of a socket.
    let large = json!({"text": "x".repeat(1 << 20)});
    let ids: Vec<u64> = (0..4).map(|_| front.asks_tool("heartbeat", &large)).collect();
    let mut connection = broker.accepts(None);
    connection.answers_opening(1);
    for id in &ids {
        assert_eq!(connection.reads()["id"], *id);
        connection.writes(&json!({"jsonrpc": "2.0", "id": id, "result": large}));
    }
    for id in ids {
        front.answer(id);
    }
}

#[test]
fn a_front_without_a_client_does_not_wait_for_a_broker_that_reads_nothing() {
    let user = Home::new();
    let broker = FakeBroker::of(&user);
    let (mut front, _connection) = attached(&user, &broker, &[]);
    front.asks_tool("heartbeat", &json!({"text": "x".repeat(4 << 20)}));
    front.closes();
    assert!(front.ends().0.success());
}

#[test]
fn the_hello_tells_who_the_agent_is() {
    let user = Home::new();
    let broker = FakeBroker::of(&user);
    let project = user.project("shop");
    let front = user
        .front()
        .args(&["--no-start", "--auto-name"])
        .of_claude_code(&project, "c-1");
    let mut front = front.start();
    let client = json!({"name": "claude-code", "version": "1"});
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let initialize = front.asks("initialize", &hello);
    let mut connection = broker.accepts(Some("shop-2"));
    // The handshake has waited for the name.
    let instructions = front.answer(initialize)["result"]["instructions"].take();
    assert!(
        instructions.as_str().unwrap().starts_with("You are \"shop-2\""),
        "{instructions}"
    );
    let agent = &connection.hello["params"]["agent"];
    assert_eq!(
        *agent,
        json!({"product": "claude-code", "product_version": "1", "conversation": "c-1", "directory": "shop", "auto_name": "shop"})
    );
    let opening = connection.answers_opening(2);
    let arguments = &opening[1]["params"]["arguments"];
    assert_eq!(arguments["name"], "shop-2");
    assert_eq!(
        arguments["metadata"],
        json!({"product": "claude-code", "conversation": "c-1", "directory": "shop", "automatic_name": true})
    );
    drop(connection);
    let connection = broker.accepts(None);
    assert_eq!(
        connection.hello["params"]["agent"]["auto_name"], "shop-2",
        "the name that it has"
    );
}
