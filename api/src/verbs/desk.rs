//! The desk and yaps as JSON: who is there, which questions wait, and the remarks of agents.

use std::collections::BTreeMap;

use actors::{
    clock::rfc3339_text,
    desk::{DeskSummary, Presence},
    model::ShownYap,
};
use rest::desk::{Console, Desk, HumanAtDesk, Yap};

/// The desk at a glance.
pub fn desk_view(desk: &DeskSummary) -> Desk {
    let mut humans: BTreeMap<&str, (Presence, usize, usize)> = BTreeMap::new();
    for console in &desk.consoles {
        let human = humans.entry(console.human.as_str()).or_insert((console.presence, 0, 0));
        *human = (human.0.min(console.presence), human.1 + console.open, human.2 + 1);
    }
    let humans = humans
        .into_iter()
        .map(|(human, (presence, open, consoles))| HumanAtDesk {
            human: human.to_owned(),
            presence: presence.as_str().to_owned(),
            open,
            consoles,
        });
    let consoles = desk.consoles.iter().map(|console| Console {
        console: console.id.to_string(),
        human: console.human.to_string(),
        roles: console.roles.clone(),
        presence: console.presence.as_str().to_owned(),
        open: console.open,
        paused: console.is_paused,
    });
    Desk {
        humans: humans.collect(),
        consoles: consoles.collect(),
        waiting: desk.waiting,
        offered: desk.offered,
        claimed: desk.claimed,
        high: desk.high,
        oldest_asked_at: desk.oldest_asked_ms.map(rfc3339_text),
        ..Desk::default()
    }
}

/// A yap with its place in the order.
pub fn yap_view(shown: &ShownYap) -> Yap {
    let yap = &shown.yap;
    Yap {
        seq: shown.seq,
        yap_id: yap.id.to_string(),
        sender_id: yap.sender.to_string(),
        sender_name: yap.sender_name.as_ref().map(ToString::to_string),
        message: yap.message.clone(),
        mode: yap.mode.clone(),
        category: yap.category.clone(),
        task_context: yap.task_context.clone(),
        at: rfc3339_text(shown.at_ms),
        late: shown.is_late,
        folded: yap.folded,
    }
}

#[cfg(test)]
mod tests {
    use actors::{
        desk::ConsoleView,
        model::{ConsoleId, ReplicaId, SessionName},
    };

    use serde_json::{Value, json};

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
        let view = json!(desk_view(&desk));
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
