//! The lines of the rubberduck programs: reads theirs and writes ours. It does no I/O and reads no clock.
//!
//! ```text
//! {"id":uuid,"type":"register|clarification|yap|response|heartbeat|sync|error","clientId":text,
//!  "clientType":"mcp-server|cli","timestamp":milliseconds,"data":{…}}
//! ```

use actors::model::{ShownYap, Urgency};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, value::RawValue};
use uuid::Uuid;

use super::visible::visible;

/// Bytes of one line of a client, without its end.
pub const LINE_LEN_MAX: usize = 1024 * 1024;
/// Characters of an id that a client chooses.
const ID_CHARACTERS_MAX: usize = 128;
/// The client id of what the broker says itself.
pub const BROKER: &str = "broker";
/// The answer of the original broker to a line that it cannot read.
const INVALID: &str = "Invalid message format";

/// What a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum ClientType {
    /// The MCP server of an agent: asks and yaps.
    #[serde(rename = "mcp-server")]
    McpServer,
    /// A console: shows and answers.
    #[serde(rename = "cli")]
    Cli,
}

/// Who sends a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientKey {
    pub id: String,
    pub client_type: ClientType,
}

/// A line of a client.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming {
    pub client: ClientKey,
    pub body: Body,
}

/// What a client says.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    Register,
    Heartbeat,
    Clarification(Clarification),
    Response(Response),
    Yap(IncomingYap),
}

/// A question of an agent.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Clarification {
    #[serde(deserialize_with = "id")]
    pub id: String,
    pub question: String,
    #[serde(default)]
    pub context: Option<String>,
    #[serde(default)]
    pub urgency: Option<Urgency>,
}

/// The answer of a person.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Response {
    #[serde(rename = "requestId", deserialize_with = "id")]
    pub request_id: String,
    pub response: String,
}

/// A remark of an agent.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct IncomingYap {
    pub message: String,
    #[serde(default)]
    pub mode: Option<String>,
    #[serde(default)]
    pub category: Option<String>,
    #[serde(default)]
    pub task_context: Option<String>,
    /// When the agent wrote it, in milliseconds since the Unix epoch.
    #[serde(default, rename = "timestamp", deserialize_with = "milliseconds")]
    pub sent_at_ms: Option<u64>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "clientId", deserialize_with = "id")]
    client_id: String,
    #[serde(rename = "clientType")]
    client_type: ClientType,
    #[serde(default, borrow)]
    data: Option<&'a RawValue>,
}

/// Reads a line.
///
/// # Errors
/// The text for the `error` line of the answer. The connection stays open.
pub fn parse(line: &str) -> Result<Incoming, &'static str> {
    let envelope: Envelope<'_> = serde_json::from_str(line).map_err(|_| INVALID)?;
    let data = envelope.data.map_or("null", RawValue::get);
    let body = match envelope.kind.as_str() {
        "register" => Body::Register,
        "heartbeat" => Body::Heartbeat,
        "clarification" => Body::Clarification(serde_json::from_str(data).map_err(|_| INVALID)?),
        "response" => Body::Response(serde_json::from_str(data).map_err(|_| INVALID)?),
        "yap" => Body::Yap(serde_json::from_str(data).map_err(|_| INVALID)?),
        _ => return Err(INVALID),
    };
    Ok(Incoming {
        client: ClientKey {
            id: envelope.client_id,
            client_type: envelope.client_type,
        },
        body,
    })
}

/// An id: 1 to [`ID_CHARACTERS_MAX`] characters, none of them a control character.
fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_allowed = (1..=ID_CHARACTERS_MAX).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    if is_allowed {
        Ok(text)
    } else {
        Err(serde::de::Error::custom("not an id"))
    }
}

/// A time as JavaScript writes it. A value that is none counts as missing.
fn milliseconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Value::deserialize(deserializer)?.as_u64())
}

/// The id and the time of a line of the broker.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    pub id: Uuid,
    /// Milliseconds since the Unix epoch.
    pub now_ms: u64,
}

#[derive(Serialize)]
struct OutgoingEnvelope<'a, D> {
    id: Uuid,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(rename = "clientId")]
    client_id: &'a str,
    #[serde(rename = "clientType")]
    client_type: &'static str,
    timestamp: u64,
    data: D,
}

fn line<D: Serialize>(stamp: Stamp, kind: &'static str, from: (&str, &'static str), data: D) -> Vec<u8> {
    let envelope = OutgoingEnvelope {
        id: stamp.id,
        kind,
        client_id: from.0,
        client_type: from.1,
        timestamp: stamp.now_ms,
        data,
    };
    // Writing plain values to memory cannot fail.
    let mut line = serde_json::to_vec(&envelope).unwrap_or_default();
    line.push(b'\n');
    line
}

/// The sender of what the broker says.
const FROM_BROKER: (&str, &str) = (BROKER, "mcp-server");

/// The answer to `register`.
pub fn sync(stamp: Stamp) -> Vec<u8> {
    #[derive(Serialize)]
    struct Data {
        status: &'static str,
    }
    line(stamp, "sync", FROM_BROKER, Data { status: "registered" })
}

/// What went wrong.
pub fn error(stamp: Stamp, text: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct Data<'a> {
        error: &'a str,
    }
    line(stamp, "error", FROM_BROKER, Data { error: &visible(text) })
}

/// A question for a console.
#[derive(Clone, Debug)]
pub struct Shown<'a> {
    /// What the answer repeats.
    pub request_id: &'a str,
    pub question: &'a str,
    pub context: Option<&'a str>,
    pub urgency: Urgency,
    pub asked_at_ms: u64,
    /// The name of the agent.
    pub asker: &'a str,
}

/// Shows a question at a console. A console ignores the status and asks its person, so a question that is not open is never
/// shown.
pub fn clarification(stamp: Stamp, shown: &Shown<'_>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Data<'a> {
        id: &'a str,
        question: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        context: Option<String>,
        urgency: Urgency,
        timestamp: u64,
        status: &'static str,
        #[serde(rename = "sourceClientId")]
        source: String,
    }
    let data = Data {
        id: shown.request_id,
        question: visible(shown.question),
        context: shown.context.map(visible),
        urgency: shown.urgency,
        timestamp: shown.asked_at_ms,
        status: "pending",
        source: visible(shown.asker),
    };
    line(stamp, "clarification", FROM_BROKER, data)
}

#[derive(Serialize)]
struct YapData<'a> {
    id: Uuid,
    message: String,
    mode: &'a str,
    category: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_context: Option<String>,
    timestamp: u64,
    #[serde(rename = "sourceClientId")]
    source: String,
}

const MODE: &str = "concise";
const CATEGORY: &str = "neutral";
/// The categories that the programs know.
pub const CATEGORIES: &[&str] = &["funny", "roasty", "happy", CATEGORY, "excited"];

/// Shows a yap at a console.
pub fn yap(stamp: Stamp, shown: &ShownYap) -> Vec<u8> {
    let yap = &shown.yap;
    let sender = yap.sender.to_string();
    let message = match yap.folded {
        0 => visible(&yap.message),
        more => format!("{} (and {more} more)", visible(&yap.message)),
    };
    let data = YapData {
        id: yap.id,
        message,
        mode: yap.mode.as_deref().unwrap_or(MODE),
        category: yap
            .category
            .as_deref()
            .filter(|word| CATEGORIES.contains(word))
            .unwrap_or(CATEGORY),
        task_context: yap.task_context.as_deref().map(visible),
        timestamp: shown.at_ms,
        source: visible(yap.sender_name.as_ref().map_or(&sender, |name| name.as_str())),
    };
    line(stamp, "yap", FROM_BROKER, data)
}

/// Tells the person at a console something. Their program logs an `error` and shows a yap.
pub fn notice(stamp: Stamp, text: &str) -> Vec<u8> {
    let data = YapData {
        id: stamp.id,
        message: visible(text),
        mode: MODE,
        category: CATEGORY,
        task_context: None,
        timestamp: stamp.now_ms,
        source: BROKER.to_owned(),
    };
    line(stamp, "yap", FROM_BROKER, data)
}

/// Hands an answer to the asker. `console` is the client id of the rubberduck console, or the name of the person.
pub fn response(stamp: Stamp, request_id: &str, answer: &str, console: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct Data<'a> {
        #[serde(rename = "requestId")]
        request_id: &'a str,
        response: &'a str,
        #[serde(rename = "cliId")]
        console: &'a str,
    }
    let data = Data {
        request_id,
        response: answer,
        console,
    };
    line(stamp, "response", (console, "cli"), data)
}

/// Tells the asker that there will be no answer.
pub fn no_response(stamp: Stamp, request_id: &str, why: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct Data<'a> {
        #[serde(rename = "requestId")]
        request_id: &'a str,
        response: (),
        error: &'a str,
    }
    let data = Data {
        request_id,
        response: (),
        error: why,
    };
    line(stamp, "response", FROM_BROKER, data)
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
