//! Events as frames of a stream (HTML, section 9.2, server-sent events).

use actix_web::web::Bytes;
use actors::{
    clock::rfc3339_text,
    model::{ProjectEvent, ProjectId},
    storage::{EventPosition, LoggedEvent},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::topics::Topic;
use common::json::write_json;

/// Milliseconds after which a client that lost the stream connects again.
const RETRY_MS: u64 = 1000;
/// A comment, which keeps proxies and clients from giving up.
pub const HEARTBEAT: Bytes = Bytes::from_static(b":\n\n");

/// The first frame: when to connect again, and the position from which the stream continues, so that a client that gets
/// no event has an id to return with.
pub fn first(position: Option<EventPosition>) -> Bytes {
    let id = position.map_or_else(String::new, |position| format!("id: {position}\n"));
    format!("retry: {RETRY_MS}\n{id}\n").into()
}

/// Says that events are missing: how many, if that is known. It has no id: a client that connects again gets those that
/// are still kept.
pub fn gap(dropped: Option<u64>) -> Bytes {
    format!("event: gap\ndata: {}\n\n", json!({"dropped": dropped})).into()
}

/// Writes an event with this data.
pub fn write(out: &mut Vec<u8>, event: &str, id: Option<&str>, data: &impl Serialize) {
    begin(out, event, id);
    write_json(out, data);
    out.extend_from_slice(b"\n\n");
}

/// Writes an event up to its data.
fn begin(out: &mut Vec<u8>, event: &str, id: Option<&str>) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(event.as_bytes());
    if let Some(id) = id {
        out.extend_from_slice(b"\nid: ");
        out.extend_from_slice(id.as_bytes());
    }
    out.extend_from_slice(b"\ndata: ");
}

/// An event of a project. Payloads are left out.
pub fn event(project: &ProjectId, logged: &LoggedEvent) -> Bytes {
    let topic = Topic::of(logged.event.kind());
    let mut out = Vec::with_capacity(384);
    begin(&mut out, topic.as_str(), Some(&logged.position.to_string()));
    let at = rfc3339_text(logged.at_ms);
    if let ProjectEvent::Accepted(accepted) = &logged.event {
        out.extend_from_slice(b"{\"event\":\"accepted\",\"at\":");
        write_json(&mut out, &at);
        out.extend_from_slice(b",\"recipients\":");
        write_json(&mut out, &accepted.recipients.len());
        out.extend_from_slice(b",\"message\":");
        accepted.write_envelope(project, None, &mut out);
        out.push(b'}');
    } else {
        write_json(&mut out, &data(&logged.event, &at));
    }
    out.extend_from_slice(b"\n\n");
    out.into()
}

fn data(event: &ProjectEvent, at: &str) -> Value {
    let kind = event.kind().as_str();
    match event {
        ProjectEvent::Accepted(accepted) => json!({"event": kind, "at": at, "message_id": accepted.message}),
        ProjectEvent::Delivered {
            message,
            session,
            delivery,
        } => json!({"event": kind, "at": at, "message_id": message, "session_id": session, "delivery": delivery}),
        ProjectEvent::Transformed {
            message,
            session,
            delivery,
            transformed,
        } => json!({
            "event": kind, "at": at, "message_id": message, "session_id": session, "delivery": delivery,
            "from": transformed.from, "to": transformed.to,
            // The places themselves may name members of the payload.
            "lost": transformed.loss.len(), "made_up": transformed.defaulted.as_ref().map_or(0, Vec::len),
        }),
        ProjectEvent::Acknowledged { message, session } | ProjectEvent::Released { message, session } => {
            json!({"event": kind, "at": at, "message_id": message, "session_id": session})
        }
        ProjectEvent::DeadLettered {
            message,
            session,
            reason,
            deliveries,
        } => json!({
            "event": kind, "at": at, "message_id": message, "session_id": session, "reason": reason,
            "deliveries": deliveries,
        }),
        ProjectEvent::Redriven { message, session, from } => {
            json!({"event": kind, "at": at, "message_id": message, "session_id": session, "from": from})
        }
        ProjectEvent::Session { session, name, change } => {
            json!({"event": change.as_str(), "at": at, "session_id": session, "name": name})
        }
        ProjectEvent::Protocol { name, version, by } => {
            json!({"event": "registered", "at": at, "name": name, "version": version, "registered_by": by})
        }
        ProjectEvent::Lens {
            name,
            version,
            from,
            change,
        } => json!({"event": change.as_str(), "at": at, "name": name, "version": version, "from": from}),
        ProjectEvent::Actor { actor, change } => {
            json!({"event": change.as_str(), "at": at, "actor": actor.as_str()})
        }
        ProjectEvent::Audit { entry, action, outcome } => {
            json!({"event": outcome.as_str(), "at": at, "id": entry, "action": action})
        }
        ProjectEvent::Lost { events } => json!({"dropped": events}),
        ProjectEvent::Question {
            question,
            asker,
            change,
            human,
        } => json!({
            "event": change.as_str(), "at": at, "question_id": question, "session_id": asker, "human": human,
        }),
    }
}

#[cfg(test)]
mod tests {
    use actors::model::{ActorChange, ActorKind, MessageId, SessionId};

    use super::*;

    fn text(event: ProjectEvent) -> String {
        let position = EventPosition {
            incarnation: 0xa,
            block: 2,
            index: 3,
        };
        let logged = LoggedEvent {
            position,
            at_ms: 0,
            event,
        };
        String::from_utf8(super::event(&ProjectId::default_project(), &logged).to_vec()).unwrap()
    }

    #[test]
    fn an_event_is_one_frame_with_its_position_as_id() {
        let actor = ActorKind::Router;
        let change = ActorChange::Restarted;
        assert_eq!(
            text(ProjectEvent::Actor { actor, change }),
            "event: actor\nid: a-2-3\ndata: {\"actor\":\"router\",\"at\":\"1970-01-01T00:00:00.000Z\",\
             \"event\":\"restarted\"}\n\n"
        );
        let id = "0190a5d2-c000-7000-8000-00000000002a";
        let acknowledged = ProjectEvent::Acknowledged {
            message: MessageId::parse(id).unwrap(),
            session: SessionId::parse(id).unwrap(),
        };
        let frame = text(acknowledged);
        assert!(frame.starts_with("event: message\nid: a-2-3\ndata: {"), "{frame}");
        assert_eq!(frame.matches('\n').count(), 4, "{frame}");
    }

    #[test]
    fn events_that_the_log_has_lost_are_a_gap_with_an_id() {
        assert_eq!(
            text(ProjectEvent::Lost { events: 7 }),
            "event: gap\nid: a-2-3\ndata: {\"dropped\":7}\n\n"
        );
    }

    #[test]
    fn a_gap_has_no_id() {
        assert_eq!(gap(Some(7)), "event: gap\ndata: {\"dropped\":7}\n\n");
        assert_eq!(gap(None), "event: gap\ndata: {\"dropped\":null}\n\n");
    }
}
