//! The opening of a connection, which comes before the client's requests: the handshake, the settings, the session. Pure.

use actors::model::SessionName;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use api::mcp::{tools::REGISTER_SESSION, version::MODERN};
use common::json::frame::{self, JsonText, NO_PARAMS};

/// Subscriptions that are renewed. A connection may subscribe to its own inbox, by few URIs, and to backends.
const SUBSCRIPTIONS_LEN_MAX: usize = 256;
/// The beginning of the ids of the front's own requests. No request of the client is under way on their connection.
const ID_PREFIX: &str = "front-";

/// What the client and the front have done so far, as far as a new connection has to repeat it.
#[derive(Debug, Default)]
pub struct Replay {
    /// The params of `initialize`.
    initialize: Option<String>,
    /// The revision that it agreed.
    version: Option<&'static str>,
    /// The client has sent `notifications/initialized`.
    is_initialized: bool,
    /// The params of the last `logging/setLevel`.
    log_level: Option<String>,
    /// The URIs of subscriptions.
    subscriptions: Vec<String>,
    session: Session,
    /// The agent has ended its session by a call.
    has_left: bool,
    /// An earlier connection had an opening.
    has_attached: bool,
}

/// The session that the connection acts as.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Session {
    /// No session was registered, or the agent has ended it.
    #[default]
    None,
    /// It was registered with these arguments.
    Registered {
        arguments: Map<String, Value>,
        name: Option<String>,
        by_front: bool,
    },
    /// Another connection acts as it now. Only a call of the agent takes it back.
    TakenOver,
}

/// What a request of the front is for.
#[derive(Clone, Debug, PartialEq)]
pub enum Purpose {
    /// A setting, whose failure changes nothing for the client.
    Setting(&'static str),
    /// `register_session` with these arguments.
    Register {
        arguments: Map<String, Value>,
        by_front: bool,
    },
    /// `tools/list`, to compare it with the own list.
    Lists,
}

/// The requests of the front on a new connection.
#[derive(Debug, Default)]
pub struct Opening {
    /// The frames, each with its line break.
    pub frames: Vec<u8>,
    /// What the requests are for. The number of a request is its place.
    pub purposes: Vec<Purpose>,
}

impl Opening {
    fn request(&mut self, purpose: Purpose, method: &str, params: &str) {
        let id = self.purposes.len();
        let params = params.replace(['\n', '\r'], " ");
        let id = format!("\"{ID_PREFIX}{id}\"");
        self.frames.extend(frame::request(id, method, params).into_line());
        self.purposes.push(purpose);
    }

    /// The purpose of the request with this id, as JSON.
    pub fn purpose(&self, id: &str) -> Option<&Purpose> {
        let number = id.strip_prefix('"')?.strip_suffix('"')?.strip_prefix(ID_PREFIX)?;
        self.purposes.get(number.parse::<usize>().ok()?)
    }
}

/// What a successful `register_session` answers.
#[derive(Debug, Deserialize)]
struct Registered {
    session_id: String,
    name: Option<String>,
}

impl Replay {
    /// Notes an `initialize` that was answered with this revision.
    pub fn note_initialize(&mut self, params: &str, version: &'static str) {
        self.initialize = Some(params.to_owned());
        self.version = Some(version);
    }

    /// The revision of MCP that `initialize` agreed.
    pub fn version(&self) -> Option<&'static str> {
        self.version
    }

    /// Whether the client has sent `initialize`.
    pub fn has_initialize(&self) -> bool {
        self.initialize.is_some()
    }

    /// Notes `notifications/initialized`.
    pub fn note_initialized(&mut self) {
        self.is_initialized = true;
    }

    /// Whether the client expects notifications of the legacy era.
    pub fn is_initialized(&self) -> bool {
        self.is_initialized
    }

    /// Notes the params of a `logging/setLevel`.
    pub fn note_log_level(&mut self, params: &str) {
        self.log_level = Some(params.to_owned());
    }

    /// Notes a subscription that was accepted.
    pub fn note_subscribed(&mut self, uri: String) {
        if !self.subscriptions.contains(&uri) && self.subscriptions.len() < SUBSCRIPTIONS_LEN_MAX {
            self.subscriptions.push(uri);
        }
    }

    /// Notes the end of a subscription.
    pub fn note_unsubscribed(&mut self, uri: &str) {
        self.subscriptions.retain(|other| other != uri);
    }

    /// Notes a registration and its answer.
    pub fn note_registered(&mut self, mut arguments: Map<String, Value>, result: &Value, by_front: bool) {
        let Ok(Registered { session_id, name }) = Registered::deserialize(result) else {
            return;
        };
        match &name {
            Some(name) => {
                arguments.remove("session_id");
                arguments.insert("name".to_owned(), json!(name));
            }
            // The session without a name is resumed if it still exists.
            None => drop(arguments.insert("session_id".to_owned(), json!(session_id))),
        }
        self.session = Session::Registered {
            arguments,
            name,
            by_front,
        };
    }

    /// Notes that the agent has ended its session by a call.
    pub fn note_left(&mut self) {
        self.session = Session::None;
        self.has_left = true;
    }

    /// Notes that another connection acts as the session.
    pub fn note_taken_over(&mut self) {
        self.session = Session::TakenOver;
    }

    /// Whether another connection acts as the session.
    pub fn is_taken_over(&self) -> bool {
        self.session == Session::TakenOver
    }

    /// Whether subscriptions have to be renewed once the agent has taken its session back.
    pub fn lacks_subscriptions(&self) -> bool {
        self.is_taken_over() && !self.subscriptions.is_empty()
    }

    /// The requests that renew the subscriptions, all with this id, each with its line break.
    pub fn renewed_subscriptions(&self, id: &str) -> Vec<u8> {
        let request = |uri| frame::request(id, "resources/subscribe", json!({"uri": uri})).into_line();
        self.subscriptions.iter().flat_map(request).collect()
    }

    /// The session that the connection acts as.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Whether the next connection will act as the same session.
    pub fn keeps_session(&self) -> bool {
        matches!(self.session, Session::Registered { name: Some(_), .. })
    }

    /// The name that the front has registered for the agent.
    pub fn name_by_front(&self) -> Option<&str> {
        match &self.session {
            Session::Registered {
                name, by_front: true, ..
            } => name.as_deref(),
            _ => None,
        }
    }

    /// Whether the front registers a name on the next connection: the agent has not done so.
    pub fn may_name(&self) -> bool {
        match &self.session {
            Session::None => !self.has_left,
            Session::Registered { by_front, .. } => *by_front,
            Session::TakenOver => false,
        }
    }

    /// The opening of a new connection. `name` is what the front registers, with this metadata; `asks_for_lists` says that
    /// the broker has not sent the digest of its lists.
    pub fn opening(&self, name: Option<&SessionName>, metadata: &Map<String, Value>, asks_for_lists: bool) -> Opening {
        let mut opening = Opening::default();
        if let Some(params) = &self.initialize {
            opening.request(Purpose::Setting("initialize"), "initialize", params);
            if self.is_initialized {
                let notification = frame::notification("notifications/initialized", NO_PARAMS);
                opening.frames.extend(notification.into_line());
            }
        }
        if let Some(params) = &self.log_level {
            opening.request(Purpose::Setting("logging/setLevel"), "logging/setLevel", params);
        }
        let registration = match (&self.session, name) {
            (
                Session::Registered {
                    arguments,
                    by_front: false,
                    ..
                },
                _,
            ) => Some((arguments.clone(), false)),
            (Session::TakenOver, _) => None,
            (_, Some(name)) => {
                let arguments = json!({"name": name, "metadata": metadata});
                arguments.as_object().map(|arguments| (arguments.clone(), true))
            }
            (
                Session::Registered {
                    arguments, by_front, ..
                },
                None,
            ) => Some((arguments.clone(), *by_front)),
            (Session::None, None) => None,
        };
        if let Some((arguments, by_front)) = registration {
            // A call of the modern era works before a handshake, and for a client that has none.
            let params = json!({"name": REGISTER_SESSION, "arguments": arguments, "_meta": modern_meta()}).to_string();
            opening.request(Purpose::Register { arguments, by_front }, "tools/call", &params);
        }
        // After the registration, and not without the session that was taken over: a subscription without a session would
        // make one without a name.
        let subscriptions = match &self.session {
            Session::TakenOver => &[],
            _ => self.subscriptions.as_slice(),
        };
        for uri in subscriptions {
            let params = json!({"uri": uri}).to_string();
            opening.request(Purpose::Setting("resources/subscribe"), "resources/subscribe", &params);
        }
        if asks_for_lists {
            let params = json!({"_meta": modern_meta()}).to_string();
            opening.request(Purpose::Lists, "tools/list", &params);
        }
        opening
    }

    /// Notes that an opening was answered. Returns the notifications that the client gets, because messages may have come
    /// while there was no connection.
    pub fn note_attached(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if std::mem::replace(&mut self.has_attached, true) {
            for uri in &self.subscriptions {
                let frame =
                    json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}});
                out.extend_from_slice(frame.to_string().as_bytes());
                out.push(b'\n');
            }
        }
        out
    }
}

/// The `_meta` of a request that needs no handshake.
pub fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn methods(opening: &Opening) -> Vec<String> {
        let frames = str::from_utf8(&opening.frames).unwrap().lines();
        let frames = frames.map(|line| serde_json::from_str::<Value>(line).unwrap());
        frames
            .map(|frame| frame["method"].as_str().unwrap().to_owned())
            .collect()
    }

    fn opening(replay: &Replay, name: Option<&str>) -> Opening {
        let name = name.map(|name| SessionName::parse(name).unwrap());
        replay.opening(name.as_ref(), &Map::new(), false)
    }

    fn registered(name: Option<&str>) -> Value {
        json!({"session_id": "s1", "name": name})
    }

    #[test]
    fn a_new_connection_is_told_everything_in_this_order() {
        let mut replay = Replay::default();
        assert!(opening(&replay, None).purposes.is_empty());
        replay.note_subscribed("broker://inbox".to_owned());
        replay.note_log_level("{\"level\":\n\"info\"}");
        replay.note_registered(Map::new(), &registered(Some("alice")), false);
        replay.note_initialize("{}", "2025-11-25");
        replay.note_initialized();
        let told = opening(&replay, None);
        assert_eq!(
            methods(&told),
            [
                "initialize",
                "notifications/initialized",
                "logging/setLevel",
                "tools/call",
                "resources/subscribe"
            ]
        );
        assert_eq!(told.purpose("\"front-0\""), Some(&Purpose::Setting("initialize")));
        assert_eq!(told.purpose("\"front-4\""), None);
        assert_eq!(told.purpose("0"), None);
        assert!(replay.note_attached().is_empty());
        assert!(
            String::from_utf8(replay.note_attached())
                .unwrap()
                .contains("broker://inbox")
        );
    }

    #[test]
    fn the_name_of_the_agent_wins_over_that_of_the_front() {
        let mut replay = Replay::default();
        let name_in = |opening: &Opening| match opening.purposes.first() {
            Some(Purpose::Register { arguments, .. }) => arguments["name"].as_str().map(str::to_owned),
            _ => None,
        };
        assert!(replay.may_name());
        assert_eq!(name_in(&opening(&replay, Some("shop"))).as_deref(), Some("shop"));
        replay.note_registered(Map::new(), &registered(Some("shop")), true);
        assert!(replay.may_name() && replay.name_by_front() == Some("shop"));
        assert_eq!(name_in(&opening(&replay, Some("shop-2"))).as_deref(), Some("shop-2"));
        assert_eq!(name_in(&opening(&replay, None)).as_deref(), Some("shop"));
        replay.note_registered(Map::new(), &registered(Some("alice")), false);
        assert!(!replay.may_name() && replay.name_by_front().is_none());
        assert_eq!(name_in(&opening(&replay, Some("shop"))).as_deref(), Some("alice"));
    }

    #[test]
    fn a_session_that_was_taken_over_is_not_taken_back_by_the_front() {
        let mut replay = Replay::default();
        replay.note_registered(Map::new(), &registered(Some("alice")), false);
        assert!(replay.keeps_session());
        replay.note_taken_over();
        assert!(opening(&replay, Some("shop")).purposes.is_empty());
        assert!(!replay.keeps_session() && !replay.may_name());
    }

    #[test]
    fn a_session_without_a_name_is_resumed_by_its_id() {
        let mut replay = Replay::default();
        replay.note_registered(Map::new(), &registered(None), false);
        let told = opening(&replay, None);
        assert!(matches!(&told.purposes[0], Purpose::Register { arguments, .. } if arguments["session_id"] == "s1"));
        assert!(!replay.keeps_session());
    }

    proptest! {
        /// In every order of events, frames are lines, each request has a purpose, `initialize` is first, and a
        /// session is registered before it subscribes.
        #[test]
        fn the_order_of_an_opening_does_not_depend_on_the_order_of_events(
            events in proptest::collection::vec(0usize..9, 0..12),
            name in any::<bool>(),
        ) {
            let mut replay = Replay::default();
            for event in events {
                match event {
                    0 => replay.note_initialize("{\"protocolVersion\":\"x\"}", "2025-11-25"),
                    1 => replay.note_initialized(),
                    2 => replay.note_log_level("{}"),
                    3 => replay.note_subscribed("a".to_owned()),
                    4 => replay.note_unsubscribed("a"),
                    5 => replay.note_registered(Map::new(), &registered(Some("x")), false),
                    6 => replay.note_registered(Map::new(), &registered(None), true),
                    7 => replay.note_left(),
                    _ => replay.note_taken_over(),
                }
            }
            let told = opening(&replay, name.then_some("n"));
            let order = ["initialize", "notifications/initialized", "logging/setLevel", "tools/call", "resources/subscribe"];
            let methods = methods(&told);
            let places: Vec<_> = methods.iter().map(|method| order.iter().position(|other| other == method)).collect();
            prop_assert!(places.is_sorted_by(|one, two| one < two) && places.iter().all(Option::is_some));
            let requests = methods.iter().filter(|method| !method.starts_with("notifications/")).count();
            prop_assert_eq!(requests, told.purposes.len());
        }
    }
}
