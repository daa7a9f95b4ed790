//! What a client tells a hook: JSON on stdin, or the last argument.

use std::{
    io::Read,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use actors::model::is_conversation;
use serde_json::Value;

use super::{answer::Moment, client::HookClient};

/// The longest input, in bytes.
const INPUT_LEN_MAX: u64 = 1 << 20;
/// What Codex calls the end of a turn.
const TURN_COMPLETE: &str = "agent-turn-complete";

/// Where the input comes from.
#[derive(Debug, Clone)]
pub enum Source {
    Stdin,
    Argument(String),
}

/// What a hook uses of its input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub conversation: String,
    /// What happened; `None` where the client does not say, or where no hook of ours belongs to it.
    pub moment: Option<Moment>,
    /// A hook has continued this turn before.
    pub has_continued: bool,
    /// The user or an error has ended the turn.
    pub is_interrupted: bool,
    /// The input is that of Codex's `notify` for the end of a turn.
    pub is_turn_end: bool,
}

/// Reads the input. `None` when it names no conversation, or does not come before the deadline.
///
/// # Errors
/// It is too long or no JSON object, in one sentence.
pub fn read(source: &Source, client: HookClient, deadline: Instant) -> Result<Option<Event>, String> {
    match source {
        Source::Argument(text) => parse(text.as_bytes(), client),
        Source::Stdin => match read_stdin(deadline)? {
            Some(bytes) => parse(&bytes, client),
            None => Ok(None),
        },
    }
}

/// Reads stdin on another thread, which the end of the process ends.
fn read_stdin(deadline: Instant) -> Result<Option<Vec<u8>>, String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = std::io::stdin().lock().take(INPUT_LEN_MAX + 1).read_to_end(&mut bytes);
        // The receiver is gone after the deadline.
        let _ = sender.send(read.map(|_| bytes));
    });
    match receiver.recv_timeout(time_left(deadline)) {
        Ok(Ok(bytes)) => Ok(Some(bytes)),
        Ok(Err(error)) => Err(format!("stdin cannot be read: {error}")),
        Err(_) => Ok(None),
    }
}

/// The time until a deadline.
pub fn time_left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Reads an input.
fn parse(bytes: &[u8], client: HookClient) -> Result<Option<Event>, String> {
    if bytes.len() as u64 > INPUT_LEN_MAX {
        return Err(format!("the input is longer than {INPUT_LEN_MAX} bytes"));
    }
    let input: Value = serde_json::from_slice(bytes)
        .ok()
        .filter(Value::is_object)
        .ok_or("the input is not a JSON object: a hook gets it from its client on stdin")?;
    let text = |name: &str| input.get(name).and_then(Value::as_str);
    let named = client.conversation_members().iter().find_map(|name| text(name));
    let Some(conversation) = named.filter(|id| is_conversation(id)) else {
        return Ok(None);
    };
    let ended = text("status").or(text("stopReason"));
    Ok(Some(Event {
        conversation: conversation.to_owned(),
        moment: moment(&input),
        has_continued: input.get("stop_hook_active") == Some(&Value::Bool(true)),
        is_interrupted: ended.is_some_and(|ended| !["completed", "end_turn"].contains(&ended)),
        is_turn_end: text("type") == Some(TURN_COMPLETE),
    }))
}

/// What happened, after the name of the event. Copilot names none: the prompt of a user begins a turn, and a session has a
/// source.
fn moment(input: &Value) -> Option<Moment> {
    let text = |name: &str| input.get(name).and_then(Value::as_str);
    let Some(event) = text("hook_event_name") else {
        return match (text("prompt"), text("source"), text("stopReason")) {
            (_, Some(_), _) => Some(Moment::SessionStart),
            (Some(_), ..) => Some(Moment::TurnStart),
            (.., Some(_)) => Some(Moment::TurnEnd),
            _ => None,
        };
    };
    Some(match event {
        // The compaction of a conversation is a part of a turn.
        "SessionStart" if text("source") == Some("compact") => Moment::Compaction,
        "SessionStart" if text("source") == Some("clear") => Moment::Cleared,
        "SessionStart" | "sessionStart" => Moment::SessionStart,
        "UserPromptSubmit" => Moment::UserPrompt,
        "BeforeAgent" => Moment::BeforeAgent,
        "userPromptSubmitted" | "beforeSubmitPrompt" => Moment::TurnStart,
        "Stop" | "StopFailure" | "AfterAgent" | "agentStop" | "stop" | "SessionEnd" | "sessionEnd" => Moment::TurnEnd,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(client: HookClient, input: &Value) -> Option<Event> {
        parse(input.to_string().as_bytes(), client).unwrap()
    }

    #[test]
    fn every_client_names_its_conversation() {
        for (client, input) in [
            (
                HookClient::Claude,
                json!({"session_id": "c", "hook_event_name": "Stop"}),
            ),
            (
                HookClient::Codex,
                json!({"session_id": "c", "turn_id": "t", "hook_event_name": "Stop"}),
            ),
            (
                HookClient::Codex,
                json!({"type": TURN_COMPLETE, "thread-id": "c", "turn-id": "t"}),
            ),
            (
                HookClient::Gemini,
                json!({"session_id": "c", "hook_event_name": "AfterAgent"}),
            ),
            (HookClient::Copilot, json!({"sessionId": "c", "stopReason": "end_turn"})),
            (
                HookClient::Cursor,
                json!({"conversation_id": "c", "hook_event_name": "stop", "status": "completed"}),
            ),
        ] {
            let event = event(client, &input).unwrap();
            assert_eq!(event.conversation, "c", "{client:?}");
            assert!(event.moment == Some(Moment::TurnEnd) || event.is_turn_end, "{client:?}");
            assert!(!event.has_continued && !event.is_interrupted, "{client:?}");
        }
    }

    #[test]
    fn a_name_that_no_broker_knows_is_none() {
        for id in [json!(null), json!(7), json!(""), json!("a\nb"), json!("x".repeat(129))] {
            assert_eq!(event(HookClient::Claude, &json!({"session_id": id})), None);
        }
    }

    #[test]
    fn guards_and_interruptions_are_seen() {
        let guarded = json!({"session_id": "c", "hook_event_name": "Stop", "stop_hook_active": true});
        assert!(event(HookClient::Claude, &guarded).unwrap().has_continued);
        let aborted = json!({"conversation_id": "c", "hook_event_name": "stop", "status": "aborted"});
        assert!(event(HookClient::Cursor, &aborted).unwrap().is_interrupted);
    }

    #[test]
    fn the_begin_of_a_session_is_not_that_of_a_turn() {
        let of = |input: Value| event(HookClient::Copilot, &input).unwrap().moment;
        assert_eq!(
            of(json!({"sessionId": "c", "source": "new", "initialPrompt": "x"})),
            Some(Moment::SessionStart)
        );
        assert_eq!(of(json!({"sessionId": "c", "prompt": "x"})), Some(Moment::TurnStart));
        let start = |source: &str| of(json!({"sessionId": "c", "hook_event_name": "SessionStart", "source": source}));
        assert_eq!(start("startup"), Some(Moment::SessionStart));
        assert_eq!(start("clear"), Some(Moment::Cleared));
        assert_eq!(start("compact"), Some(Moment::Compaction));
    }

    #[test]
    fn what_is_no_input_is_an_error() {
        for bytes in [&b""[..], b"[]", b"\"x\"", b"{\"session_id\": \"c\"", &[0xff]] {
            assert!(
                parse(bytes, HookClient::Claude)
                    .unwrap_err()
                    .contains("not a JSON object")
            );
        }
        let long = vec![b' '; usize::try_from(INPUT_LEN_MAX).unwrap() + 1];
        assert!(parse(&long, HookClient::Claude).unwrap_err().contains("longer than"));
    }
}
