//! What a hook prints, in the form of each client. Pure.

use actors::model::MailSummary;
use serde_json::{Value, json};

use super::client::HookClient;
use common::user_broker::mail::{Mail, ReportedActivity};

/// What happened in a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A conversation begins or is resumed. No turn runs.
    SessionStart,
    /// A conversation begins in a client that keeps running: its front still has the one before.
    Cleared,
    /// A conversation was shortened within a turn.
    Compaction,
    /// A turn begins: the event `UserPromptSubmit`.
    UserPrompt,
    /// A turn begins: the event `BeforeAgent` of Gemini CLI.
    BeforeAgent,
    /// A turn begins, in a client without such a name for it.
    TurnStart,
    /// A turn has ended.
    TurnEnd,
}

impl Moment {
    /// What the agent does from this moment on.
    pub fn activity(self) -> Option<ReportedActivity> {
        match self {
            Self::SessionStart | Self::Cleared | Self::TurnEnd => Some(ReportedActivity::Idle),
            Self::UserPrompt | Self::BeforeAgent | Self::TurnStart => Some(ReportedActivity::Busy),
            Self::Compaction => None,
        }
    }

    /// The name of the event in the answer.
    fn event_name(self) -> &'static str {
        match self {
            Self::SessionStart | Self::Cleared | Self::Compaction => "SessionStart",
            Self::BeforeAgent => "BeforeAgent",
            Self::UserPrompt | Self::TurnStart | Self::TurnEnd => "UserPromptSubmit",
        }
    }
}

/// What makes a client continue its turn. `None` when no message waits.
pub fn go_on(client: HookClient, mail: &MailSummary) -> Option<Value> {
    let text = waiting(mail)?;
    Some(match client {
        HookClient::Cursor => json!({"followup_message": text}),
        _ => json!({"decision": "block", "reason": text}),
    })
}

/// What a client adds to the context of the agent. `None` when there is nothing to say.
pub fn context(client: HookClient, moment: Moment, conversation: &str, mail: &Mail) -> Option<Value> {
    let has_to_be_told = match moment {
        Moment::Cleared => true,
        Moment::SessionStart => !client.tells_its_conversation(),
        _ => false,
    };
    let text = match waiting(&mail.summary) {
        Some(text) => text,
        None if has_to_be_told && mail.session_id.is_none() => introduction(conversation),
        None => return None,
    };
    Some(match client {
        HookClient::Cursor => json!({"additional_context": text}),
        HookClient::Copilot => json!({"additionalContext": text}),
        HookClient::Claude | HookClient::Codex | HookClient::Gemini => json!({
            "hookSpecificOutput": {"hookEventName": moment.event_name(), "additionalContext": text},
        }),
    })
}

/// The line about the waiting messages.
pub fn waiting(mail: &MailSummary) -> Option<String> {
    (mail.unread > 0).then(|| mail.text())
}

/// How an agent binds its session to the conversation, where its client does not tell the front.
fn introduction(conversation: &str) -> String {
    let metadata = json!({"conversation": conversation});
    format!(
        "mcp-broker: to hear about messages in this conversation, call register_session with the metadata {metadata}."
    )
}

#[cfg(test)]
mod tests {
    use actors::model::Priority;

    use super::*;

    fn mail(unread: usize, session_id: Option<&str>) -> Mail {
        let mut summary = MailSummary::default();
        for _ in 0..unread {
            summary.add("bob", "chat", Priority::Normal);
        }
        Mail {
            session_id: session_id.map(str::to_owned),
            summary,
            wake_id: None,
            is_replaced: false,
        }
    }

    const TEXT: &str = "mcp-broker: 1 message waits, from bob, protocol chat. Call receive_messages.";

    #[test]
    fn each_client_goes_on_in_its_own_form() {
        let mail = mail(1, Some("s")).summary;
        for client in [
            HookClient::Claude,
            HookClient::Codex,
            HookClient::Gemini,
            HookClient::Copilot,
        ] {
            assert_eq!(go_on(client, &mail), Some(json!({"decision": "block", "reason": TEXT})));
        }
        assert_eq!(
            go_on(HookClient::Cursor, &mail),
            Some(json!({"followup_message": TEXT}))
        );
        assert_eq!(go_on(HookClient::Claude, &MailSummary::default()), None);
    }

    #[test]
    fn context_names_the_event_of_the_client() {
        let of = |client, moment| context(client, moment, "c", &mail(1, Some("s"))).unwrap();
        for (client, moment, event) in [
            (HookClient::Claude, Moment::SessionStart, "SessionStart"),
            (HookClient::Claude, Moment::Compaction, "SessionStart"),
            (HookClient::Codex, Moment::UserPrompt, "UserPromptSubmit"),
            (HookClient::Gemini, Moment::BeforeAgent, "BeforeAgent"),
        ] {
            let expected = json!({"hookSpecificOutput": {"hookEventName": event, "additionalContext": TEXT}});
            assert_eq!(of(client, moment), expected);
        }
        assert_eq!(
            of(HookClient::Cursor, Moment::SessionStart),
            json!({"additional_context": TEXT})
        );
        assert_eq!(
            of(HookClient::Copilot, Moment::TurnStart),
            json!({"additionalContext": TEXT})
        );
    }

    #[test]
    fn an_agent_whose_conversation_is_unknown_is_told_how_to_bind_it_once() {
        let told = |client, moment, session| context(client, moment, "c-1", &mail(0, session));
        let text = told(HookClient::Gemini, Moment::SessionStart, None).unwrap();
        let text = text["hookSpecificOutput"]["additionalContext"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            text.contains(r#"register_session with the metadata {"conversation":"c-1"}"#),
            "{text}"
        );
        assert_eq!(told(HookClient::Gemini, Moment::BeforeAgent, None), None);
        assert_eq!(told(HookClient::Gemini, Moment::SessionStart, Some("s")), None);
        // Their fronts tell the conversation.
        assert_eq!(told(HookClient::Claude, Moment::SessionStart, None), None);
        assert_eq!(told(HookClient::Codex, Moment::SessionStart, None), None);
        // They do so once, when the client starts.
        assert!(told(HookClient::Claude, Moment::Cleared, None).is_some());
        assert_eq!(told(HookClient::Claude, Moment::Cleared, Some("s")), None);
    }
}
