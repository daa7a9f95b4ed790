//! Tests of when a question is sent, and of what a notification shows.

use std::sync::Arc;

use actors::model::{
    AddressedTo, Asker, Owner, ProjectId, Question, QuestionChoice, QuestionClaim, QuestionId, QuestionState, SessionId,
};

use super::*;
use crate::targets::sender::Sender;
use common::config::{DeskSecret, NtfyTopic};

const ASKED_MS: u64 = 1_000_000;

fn news(urgency: Urgency, present: usize) -> News {
    let option = |value: &str, label: &str| QuestionChoice {
        value: value.to_owned(),
        label: label.to_owned(),
        description: None,
    };
    let mut content = QuestionContent::text("Drop the old table?");
    content.items[0].options = vec![option("drop", "Drop it"), option("keep", "Keep it")];
    let question = Question {
        id: QuestionId::generate(),
        revision: 0,
        asker: Asker {
            session: SessionId::generate(),
            name: SessionName::parse("alice").ok(),
            owner: Owner::anonymous(),
        },
        summary: content.summary(),
        content_bytes: content.stored_len(),
        urgency,
        to: AddressedTo::Anyone,
        is_sensitive: false,
        expires_at_ms: None,
        on_expiry: None,
        idempotency_key: None,
        state: QuestionState::Waiting,
        seen_at_ms: None,
        is_expiring: false,
        sealed_answer: None,
        answer_deleted_ms: None,
        handover: None,
        notice: None,
    };
    News {
        project: ProjectId::parse("shop").unwrap(),
        id: "1-2-3".to_owned(),
        at_ms: ASKED_MS,
        change: QuestionChange::Asked,
        question: Arc::new(question),
        content: Arc::new(content),
        present,
    }
}

fn claimed(mut news: News) -> News {
    let question = Arc::make_mut(&mut news.question);
    question.state = QuestionState::Claimed(QuestionClaim {
        console: None,
        human: SessionName::parse("mara").unwrap(),
        until_ms: u64::MAX,
        typed_at_ms: ASKED_MS,
    });
    news
}

#[test]
fn a_question_is_told_when_no_person_is_present_and_an_urgent_one_after_a_while() {
    for urgency in Urgency::ALL {
        assert_eq!(decide(&news(urgency, 0), ASKED_MS), None, "{urgency:?}");
    }
    for urgency in [Urgency::Low, Urgency::Medium] {
        let decided = decide(&news(urgency, 1), ASKED_MS);
        assert_eq!(decided, Some(Sending::Done), "{urgency:?}");
    }
    let urgent = news(Urgency::High, 1);
    let later = ASKED_MS + 30_000;
    assert_eq!(decide(&urgent, later - 1), Some(Sending::NotBefore(later)));
    assert_eq!(decide(&urgent, later), None);
    assert_eq!(
        decide(&claimed(urgent), later),
        Some(Sending::Done),
        "a person has opened it"
    );
}

fn ntfy(shows_text: bool, desk: Option<&str>) -> Ntfy {
    use common::config::{OptionalTopic, OptionalWebUrl, Rule};
    let topic: NtfyTopic = OptionalTopic.parse("https://ntfy.sh/my-topic?auth=x").unwrap().unwrap();
    assert_eq!(topic.server.as_str(), "https://ntfy.sh/?auth=x");
    let secret = DeskSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let desk = desk.map(|desk| OptionalWebUrl.parse(desk).unwrap().unwrap());
    Ntfy::new(topic, desk, Some(LinkSigner::new(&secret)), shows_text, Sender::new())
}

#[test]
fn a_notification_shows_texts_and_buttons_only_where_it_may() {
    let mut news = news(Urgency::High, 0);
    let id = news.question.id;
    let shown = ntfy(true, Some("https://broker.example.com/")).message(&news);
    assert_eq!(shown["topic"], "my-topic");
    assert_eq!(shown["title"], "alice asks (high)");
    assert_eq!(shown["message"], "Drop the old table?");
    assert_eq!(shown["priority"], 4);
    assert_eq!(shown["click"], format!("https://broker.example.com/desk/q/{id}"));
    let buttons = shown["actions"].as_array().unwrap();
    assert_eq!(buttons.len(), 2);
    assert_eq!(buttons[0]["label"], "Drop it");
    assert_eq!(buttons[0]["body"], r#"{"selected":["drop"]}"#);
    let url = buttons[0]["url"].as_str().unwrap();
    assert!(
        url.starts_with(&format!("https://broker.example.com/a/shop.{id}.")),
        "{url}"
    );

    let hidden = ntfy(false, Some("https://broker.example.com")).message(&news);
    assert_eq!(
        (&hidden["message"], &hidden["actions"]),
        (&json!("open the desk"), &Value::Null)
    );
    assert_eq!(ntfy(true, None).message(&news)["click"], Value::Null);

    Arc::make_mut(&mut news.question).is_sensitive = true;
    let secret = ntfy(true, Some("https://broker.example.com")).message(&news);
    assert_eq!(
        (&secret["message"], &secret["actions"]),
        (&json!("open the desk"), &Value::Null)
    );
}
