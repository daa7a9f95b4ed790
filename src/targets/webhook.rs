//! A webhook: each change of a question as a signed `POST` (Standard Webhooks 1.0).

use actors::{
    clock::{now, rfc3339_text},
    model::QuestionChange,
    targets::{News, Sending, Target, TargetId},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::future::BoxFuture;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use super::sender::Sender;
use api::verbs::questions::record_view;
use common::{
    config::{DeskSecret, WebUrl},
    json::write_json,
};

/// A URL that gets every change of a question.
#[derive(Debug)]
pub struct Webhook {
    url: WebUrl,
    name: String,
    secret: DeskSecret,
    sender: Sender,
}

impl Webhook {
    /// The webhook at this URL.
    pub fn new(url: WebUrl, secret: DeskSecret, sender: Sender) -> Self {
        Self {
            name: format!("webhook at {}", url.authority()),
            url,
            secret,
            sender,
        }
    }
}

impl Target for Webhook {
    fn id(&self) -> TargetId {
        TargetId::of_address(self.url.as_str())
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn wants(&self, change: QuestionChange) -> bool {
        use QuestionChange::{Answered, Asked, Cancelled, Claimed, Declined, Expired, Expiring};
        matches!(
            change,
            Asked | Claimed | Answered | Declined | Expiring | Expired | Cancelled
        )
    }

    fn send(&self, news: News) -> BoxFuture<'static, Sending> {
        let mut body = Vec::with_capacity(4 * 1024);
        write_json(&mut body, &body_of(&news));
        let timestamp = (now().unix_ms / 1_000).to_string();
        let signature = signature(&self.secret, &news.id, &timestamp, &body);
        let headers = vec![
            ("webhook-id", news.id),
            ("webhook-timestamp", timestamp),
            ("webhook-signature", signature),
        ];
        let (sender, url) = (self.sender.clone(), self.url.clone());
        Box::pin(async move { sender.post(url, headers, body).await })
    }
}

/// The event as JSON: its type, its id, when it happened, and the question as it is now.
fn body_of(news: &News) -> Value {
    let mut data = json!(record_view(&news.question, Some(&news.content), false));
    data["project_id"] = json!(news.project);
    // What changes without a change of the question is not in the event.
    if let Some(data) = data.as_object_mut() {
        data.remove("position");
    }
    if let Some(asker) = data["asker"].as_object_mut() {
        asker.retain(|member, _| member == "session_id" || member == "name");
    }
    json!({
        "type": format!("question.{}", news.change.as_str()),
        "id": news.id,
        "at": rfc3339_text(news.at_ms),
        "data": data,
    })
}

/// The signature of Standard Webhooks: HMAC-SHA256 of id, timestamp and body.
fn signature(secret: &DeskSecret, id: &str, timestamp: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap_or_else(|never| unreachable!("{never}"));
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's reference libraries.
    #[test]
    fn a_signature_is_that_of_standard_webhooks() {
        let secret = DeskSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = signature(
            &secret,
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
