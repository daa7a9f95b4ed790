//! A small broker for tests: the calls that the workloads make, and the defects that they must find.

use std::{
    collections::{HashMap, VecDeque},
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use serde_json::{Value, json};
use test_client::websocket::{CLOSE, FrameReader, LAST, TEXT, upgraded_head, write_frame};

/// The defect to produce, at the message with this number (counted over all recipients).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    None,
    Loses(u64),
    Swaps(u64),
    Repeats(u64),
    Corrupts(u64),
    Refuses(u64),
    /// Stops delivering and answering from this message on.
    Stalls(u64),
}

#[derive(Default)]
struct Session {
    live: Option<TcpStream>,
    features: Vec<String>,
    inbox: VecDeque<String>,
    window: usize,
    manual: bool,
    unacknowledged: usize,
}

impl Session {
    fn pump(&mut self) {
        while let Some(live) = &mut self.live
            && (!self.manual || self.unacknowledged < self.window)
            && let Some(text) = self.inbox.pop_front()
        {
            self.unacknowledged += 1;
            write_text(live, &text);
        }
    }
}

struct FakeBroker {
    defect: Defect,
    sessions: HashMap<String, Session>,
    accepted: u64,
    held: Option<String>,
}

/// Starts the broker on a free port and returns its address. It lives as long as the test process.
pub fn start(defect: Defect) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/ws", listener.local_addr().unwrap());
    let world = FakeBroker {
        defect,
        sessions: HashMap::new(),
        accepted: 0,
        held: None,
    };
    let world = Arc::new(Mutex::new(world));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let world = world.clone();
            thread::spawn(move || serve(stream.unwrap(), &world));
        }
    });
    url
}

fn serve(mut stream: TcpStream, world: &Mutex<FakeBroker>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let peer = stream.peer_addr().ok()?;
    let mut head = vec![];
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    stream.write_all(upgraded_head().as_bytes()).ok()?;
    let mut frames = FrameReader::new(stream.try_clone().ok()?);
    let mut client = Client {
        push: (0, false),
        name: String::new(),
    };
    while let Ok(Some(frame)) = frames.next_frame() {
        let payload = frame.unmasked();
        let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
        match frame.opcode {
            TEXT => client.text(&serde_json::from_slice(&payload).unwrap(), &mut stream, &mut world),
            CLOSE => {
                write(&mut stream, CLOSE, &payload);
                break;
            }
            _ => {}
        }
    }
    let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
    let session = world.sessions.get_mut(&client.name)?;
    // Keeps a connection that has taken the session over meanwhile.
    if session.live.as_ref()?.peer_addr().ok() == Some(peer) {
        session.live = None;
    }
    Some(())
}

struct Client {
    push: (usize, bool),
    name: String,
}

impl Client {
    fn text(&mut self, frame: &Value, stream: &mut TcpStream, world: &mut FakeBroker) {
        let params = &frame["params"];
        match frame["method"].as_str().unwrap() {
            "initialize" => {
                let push = &params["capabilities"]["experimental"]["dev.mcp-broker/push"];
                self.push = (push["window"].as_u64().unwrap_or(0) as usize, push["ack"] == "manual");
                write_text(
                    stream,
                    &json!({"jsonrpc": "2.0", "id": frame["id"], "result": {}}).to_string(),
                );
            }
            "notifications/dev.mcp-broker/ack" => {
                let session = world.sessions.get_mut(&self.name).unwrap();
                session.unacknowledged -= params["message_ids"].as_array().unwrap().len();
                session.pump();
            }
            "tools/call" => {
                let answer = self.tool(params["name"].as_str().unwrap(), &params["arguments"], stream, world);
                let Some((failed, content)) = answer else { return };
                let result = json!({"isError": failed, "structuredContent": content});
                write_text(
                    stream,
                    &json!({"jsonrpc": "2.0", "id": frame["id"], "result": result}).to_string(),
                );
                // Delivers the inbox after the answer, because the client expects the registration first.
                if let Some(session) = world.sessions.get_mut(&self.name) {
                    session.pump();
                }
            }
            _ => {}
        }
    }

    fn tool(&mut self, tool: &str, args: &Value, stream: &TcpStream, world: &mut FakeBroker) -> Option<(bool, Value)> {
        match tool {
            "register_protocol" => Some((true, json!({"code": "protocol_exists"}))),
            "register_session" => {
                args["name"].as_str().unwrap().clone_into(&mut self.name);
                let resumed = world.sessions.contains_key(&self.name);
                let session = world.sessions.entry(self.name.clone()).or_default();
                session.live = stream.try_clone().ok();
                session.unacknowledged = 0;
                (session.window, session.manual) = if self.push.0 == 0 { (0, true) } else { self.push };
                let features = args["capabilities"]["supported_features"].as_array().unwrap();
                session.features = features.iter().map(|f| f.as_str().unwrap().to_owned()).collect();
                Some((false, json!({"session_id": "s", "resumed": resumed})))
            }
            "send_message" => world.accept(&[args["recipient_id"].as_str().unwrap().to_owned()], &args["payload"]),
            "broadcast_message" => {
                let wanted = args["capability_filter"]["features"][0].as_str().unwrap();
                let has = |s: &Session| s.features.iter().any(|f| f == wanted);
                let to: Vec<String> = world
                    .sessions
                    .iter()
                    .filter(|(_, s)| has(s))
                    .map(|(n, _)| n.clone())
                    .collect();
                world.accept(&to, &args["payload"])
            }
            "negotiate_capabilities" => Some((false, json!({"compatible": true}))),
            other => panic!("the workloads do not call {other}"),
        }
    }
}

impl FakeBroker {
    fn accept(&mut self, to: &[String], payload: &Value) -> Option<(bool, Value)> {
        for name in to {
            self.accepted += 1;
            let mut payload = payload.clone();
            let mut copies = 1;
            match self.defect {
                Defect::Loses(n) if n == self.accepted => continue,
                Defect::Refuses(n) if n == self.accepted => return Some((true, json!({"code": "queue_full"}))),
                Defect::Corrupts(n) if n == self.accepted => payload["pad"] = "other".into(),
                Defect::Repeats(n) if n == self.accepted => copies = 2,
                Defect::Stalls(n) if n <= self.accepted => return None,
                _ => {}
            }
            let message = json!({"message_id": format!("m-{}", self.accepted), "payload": payload});
            let params = json!({"message": message});
            let text = json!({"jsonrpc": "2.0", "method": "notifications/dev.mcp-broker/message", "params": params});
            if self.defect == Defect::Swaps(self.accepted) {
                self.held = Some(text.to_string());
                continue;
            }
            let session = self.sessions.get_mut(name).unwrap();
            session.inbox.extend((0..copies).map(|_| text.to_string()));
            session.inbox.extend(self.held.take());
            session.pump();
        }
        Some((false, json!({"message_id": "m", "status": "queued"})))
    }
}

fn write_text(stream: &mut TcpStream, text: &str) {
    write(stream, TEXT, text.as_bytes());
}

fn write(stream: &mut TcpStream, opcode: u8, payload: &[u8]) {
    let mut frame = Vec::new();
    write_frame(&mut frame, LAST | opcode, payload, None);
    // The reader notices that the client has disconnected.
    drop(stream.write_all(&frame));
}
