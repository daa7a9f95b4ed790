//! The desk and yaps as JSON: who is there, which questions wait, and the remarks of agents.

use std::collections::BTreeMap;

use actors::{
    clock::rfc3339_text,
    desk::{DeskSummary, Presence},
    model::ShownYap,
};
use serde_json::{Value, json};

/// The desk at a glance.
///
/// ```json
/// {"humans": [{"human": "mara", "presence": "present", "open": 2, "consoles": 1}],
///  "consoles": [{"console": "…", "human": "mara", "roles": [], "presence": "present", "open": 2, "paused": false}],
///  "waiting": 3, "offered": 1, "claimed": 1, "high": 1, "oldest_asked_at": "…"}
/// ```
pub fn desk_view(desk: &DeskSummary) -> Value {
    let mut humans: BTreeMap<&str, (Presence, usize, usize)> = BTreeMap::new();
    for console in &desk.consoles {
        let human = humans.entry(console.human.as_str()).or_insert((console.presence, 0, 0));
        *human = (human.0.min(console.presence), human.1 + console.open, human.2 + 1);
    }
    let humans = humans.into_iter().map(|(human, (presence, open, consoles))| {
        json!({"human": human, "presence": presence.as_str(), "open": open, "consoles": consoles})
    });
    let consoles = desk.consoles.iter().map(|console| {
        json!({
            "console": console.id.to_string(),
            "human": console.human,
            "roles": console.roles,
            "presence": console.presence.as_str(),
            "open": console.open,
            "paused": console.is_paused,
        })
    });
    json!({
        "humans": humans.collect::<Vec<_>>(),
        "consoles": consoles.collect::<Vec<_>>(),
        "waiting": desk.waiting,
        "offered": desk.offered,
        "claimed": desk.claimed,
        "high": desk.high,
        "oldest_asked_at": desk.oldest_asked_ms.map(rfc3339_text),
    })
}

/// A yap with its place in the order.
pub fn yap_view(shown: &ShownYap) -> Value {
    let yap = &shown.yap;
    json!({
        "seq": shown.seq,
        "yap_id": yap.id,
        "sender_id": yap.sender,
        "sender_name": yap.sender_name,
        "message": yap.message,
        "mode": yap.mode,
        "category": yap.category,
        "task_context": yap.task_context,
        "at": rfc3339_text(shown.at_ms),
        "late": shown.is_late,
        "folded": yap.folded,
    })
}

#[cfg(test)]
mod tests {
    use actors::{
        desk::ConsoleView,
        model::{ConsoleId, ReplicaId, SessionName},
    };

    use super::*;

    #[test]
    fn a_person_at_two_consoles_is_there_once_and_as_present_as_at_the_better_one() {
        let console = |number, human: &str, presence, open| ConsoleView {
            id: ConsoleId {
                replica: ReplicaId::parse("0198f3a2-0000-7000-8000-000000000001").unwrap(),
                number,
            },
            human: SessionName::parse(human).unwrap(),
            roles: Vec::new(),
            presence,
            is_paused: false,
            open,
        };
        let desk = DeskSummary {
            consoles: vec![
                console(1, "mara", Presence::Idle, 2),
                console(2, "lena", Presence::Away, 0),
                console(3, "mara", Presence::Present, 1),
            ],
            ..DeskSummary::default()
        };
        let view = desk_view(&desk);
        assert_eq!(
            view["humans"],
            json!([
                {"human": "lena", "presence": "away", "open": 0, "consoles": 1},
                {"human": "mara", "presence": "present", "open": 3, "consoles": 2},
            ])
        );
        assert_eq!(view["consoles"].as_array().unwrap().len(), 3);
        assert_eq!(view["oldest_asked_at"], Value::Null);
    }
}
