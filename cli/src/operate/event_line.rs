//! Events as lines for people.

use serde_json::Value;

use super::names::Names;
use crate::short::time_of_day;
use crate::table::shortened;

/// The most characters of one word of a line.
const WORD_CHARS_MAX: usize = 80;

/// An event as time, topic, event and details. It teaches `names` the names that it brings.
pub fn line(topic: &str, data: &Value, names: &mut Names, is_utc: bool) -> String {
    let text = |member: &str| data[member].as_str().unwrap_or_default();
    // The day is left out: events are read as they happen.
    let time = time_of_day(text("at"), is_utc);
    if let (Some(session), Some(name)) = (data["session_id"].as_str(), data["name"].as_str()) {
        names.learn(session.to_owned(), name.to_owned());
    }
    let session = names.of(text("session_id")).to_owned();
    let details = match topic {
        "gap" => match data["dropped"].as_u64() {
            Some(dropped) => format!("{dropped} events are missing"),
            None => "events are missing".to_owned(),
        },
        "message" if data["message"].is_object() => accepted(&data["message"], names),
        "message" | "dead_letter" => [
            session.as_str(),
            &attempt(data),
            text("reason"),
            &versions(data),
            text("message_id"),
        ]
        .into_iter()
        .filter(|part| !part.is_empty())
        .map(word)
        .collect::<Vec<_>>()
        .join(" "),
        "session" => word(&session),
        "protocol" => format!("{} {}", word(text("name")), word(text("version"))),
        "actor" => word(text("actor")),
        "audit" => word(text("action")),
        _ => shortened(&data.to_string(), 4 * WORD_CHARS_MAX),
    };
    format!(
        "{:<12}  {:<11}  {:<13}  {details}",
        word(&time),
        word(topic),
        word(text("event"))
    )
    .trim_end()
    .to_owned()
}

fn accepted(message: &Value, names: &Names) -> String {
    let text = |member: &str| message[member].as_str().unwrap_or_default();
    let from = message["sender_name"]
        .as_str()
        .unwrap_or_else(|| names.of(text("sender_id")));
    let to = message["recipient_id"].as_str().map_or("all", |id| names.of(id));
    format!(
        "{} -> {} {} {} {}",
        word(from),
        word(to),
        word(text("protocol_name")),
        word(text("protocol_version")),
        word(text("message_id"))
    )
}

fn attempt(data: &Value) -> String {
    let number = data["delivery"].as_u64().or(data["deliveries"].as_u64());
    number
        .filter(|number| *number > 1)
        .map_or_else(String::new, |number| format!("x{number}"))
}

/// What lenses did for a delivery.
fn versions(data: &Value) -> String {
    match (data["from"].as_str(), data["to"].as_str()) {
        (Some(from), Some(to)) => format!("{from} -> {to}"),
        _ => String::new(),
    }
}

fn word(text: &str) -> String {
    shortened(text, WORD_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_lines_with_names() {
        let mut names = Names::default();
        let at = "2026-11-23T05:00:29.123Z";
        let joined = json!({"event": "registered", "at": at, "session_id": "s1", "name": "bob\u{1b}"});
        assert_eq!(
            line("session", &joined, &mut names, true),
            "05:00:29.123  session      registered     bob\\u{1b}"
        );
        let envelope = json!({"sender_name": "alice", "sender_id": "s0", "recipient_id": "s1", "protocol_name": "note",
            "protocol_version": "1.0.0", "message_id": "m1"});
        let accepted = json!({"event": "accepted", "at": at, "message": envelope});
        assert_eq!(
            line("message", &accepted, &mut names, true),
            "05:00:29.123  message      accepted       alice -> bob\\u{1b} note 1.0.0 m1"
        );
        let delivered = json!({"event": "delivered", "at": at, "session_id": "s1", "message_id": "m1", "delivery": 2});
        assert_eq!(
            line("message", &delivered, &mut names, true),
            "05:00:29.123  message      delivered      bob\\u{1b} x2 m1"
        );
        let transformed = json!({"event": "transformed", "at": at, "session_id": "s1", "message_id": "m1", "delivery": 1,
            "from": "2.0.0", "to": "1.0.0", "lost": 1, "made_up": 0});
        assert_eq!(
            line("message", &transformed, &mut names, true),
            "05:00:29.123  message      transformed    bob\\u{1b} 2.0.0 -> 1.0.0 m1"
        );
        assert_eq!(
            line("gap", &json!({"dropped": 7}), &mut names, true),
            "              gap                         7 events are missing"
        );
        let long = json!({"event": "x".repeat(70_000), "at": at});
        assert!(line("session", &long, &mut names, true).chars().count() < 200);
    }
}
