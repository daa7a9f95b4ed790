//! ntfy: a question on the phone of a person when no person is at the desk.

use std::time::Duration;

use actors::{
    clock::{millis, now},
    model::{QuestionChange, QuestionContent, QuestionItem, SessionName, Urgency},
    targets::{News, Sending, Target, TargetId},
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{AnswerLink, LinkSigner, sender::Sender};
use common::{
    config::{NtfyTopic, WebUrl},
    json::write_json,
};

/// An urgent question is sent after this time although a person is at the desk, if no person has opened it.
const URGENT_AFTER: Duration = Duration::from_secs(30);
/// Characters of a message: ntfy turns a message of more than 4,096 bytes into an attachment.
const MESSAGE_CHARACTERS_MAX: usize = 1_000;
/// Buttons of a notification that ntfy shows.
const ACTIONS_MAX: usize = 3;

/// A topic of ntfy.
#[derive(Debug)]
pub struct Ntfy {
    topic: NtfyTopic,
    /// Where people reach the desk.
    desk: Option<WebUrl>,
    /// Makes the links behind the buttons.
    signer: Option<LinkSigner>,
    shows_text: bool,
    sender: Sender,
}

impl Ntfy {
    /// The topic, with what its notifications may show and link to.
    pub const fn new(
        topic: NtfyTopic,
        desk: Option<WebUrl>,
        signer: Option<LinkSigner>,
        shows_text: bool,
        sender: Sender,
    ) -> Self {
        Self {
            topic,
            desk,
            signer,
            shows_text,
            sender,
        }
    }

    fn message(&self, news: &News) -> Value {
        let question = &*news.question;
        let asker = question.asker.name.as_ref().map_or("an agent", SessionName::as_str);
        let shows_text = self.shows_text && !question.is_sensitive;
        let mut message = json!({
            "topic": self.topic.topic,
            "title": format!("{asker} asks ({})", question.urgency.as_str()),
            "message": if shows_text { text_of(&news.content) } else { "open the desk".to_owned() },
            "priority": priority(question.urgency),
            "tags": ["question"],
        });
        let Some(desk) = &self.desk else {
            return message;
        };
        let desk = desk.as_str().trim_end_matches('/');
        message["click"] = json!(format!("{desk}/desk/q/{}", question.id));
        if let (true, Some(signer)) = (shows_text, &self.signer) {
            let link = AnswerLink::new(signer, &news.project, question.id);
            message["actions"] = actions(&format!("{desk}{}", link.path()), &news.content);
        }
        message
    }
}

impl Target for Ntfy {
    fn id(&self) -> TargetId {
        TargetId::of_address(self.topic.url.as_str())
    }

    fn name(&self) -> &'static str {
        "ntfy"
    }

    fn wants(&self, change: QuestionChange) -> bool {
        change == QuestionChange::Asked
    }

    fn send(&self, news: News) -> BoxFuture<'static, Sending> {
        if let Some(decided) = decide(&news, now().unix_ms) {
            return Box::pin(std::future::ready(decided));
        }
        let mut body = Vec::with_capacity(2 * 1024);
        write_json(&mut body, &self.message(&news));
        let (sender, url) = (self.sender.clone(), self.topic.server.clone());
        Box::pin(async move { sender.post(url, Vec::new(), body).await })
    }
}

/// What is decided without a request; None: the question is sent now.
fn decide(news: &News, now_ms: u64) -> Option<Sending> {
    let question = &*news.question;
    if !question.is_open() || question.claim().is_some() {
        return Some(Sending::Done);
    }
    if news.present == 0 {
        return None;
    }
    let urgent_at_ms = news.at_ms.saturating_add(millis(URGENT_AFTER));
    match question.urgency {
        Urgency::High if now_ms < urgent_at_ms => Some(Sending::NotBefore(urgent_at_ms)),
        Urgency::High => None,
        Urgency::Low | Urgency::Medium => Some(Sending::Done),
    }
}

const fn priority(urgency: Urgency) -> u8 {
    match urgency {
        Urgency::Low => 2,
        Urgency::Medium => 3,
        Urgency::High => 4,
    }
}

fn text_of(content: &QuestionContent) -> String {
    let texts: Vec<_> = content.items.iter().map(|item| item.question.as_str()).collect();
    texts.join("\n").chars().take(MESSAGE_CHARACTERS_MAX).collect()
}

/// A button for each option, where a tap can say everything.
fn actions(link: &str, content: &QuestionContent) -> Value {
    let options = match content.items.as_slice() {
        [QuestionItem { options, .. }] if !content.is_form && options.len() <= ACTIONS_MAX => options.as_slice(),
        _ => &[],
    };
    let button = |value: &str, label: &str| {
        json!({
            "action": "http", "label": label, "method": "POST", "url": link, "clear": true,
            "headers": {"Content-Type": "application/json"},
            "body": json!({"selected": [value]}).to_string(),
        })
    };
    options
        .iter()
        .map(|option| button(&option.value, &option.label))
        .collect()
}

#[cfg(test)]
mod tests;
