//! The targets outside the broker that receive questions: webhooks and ntfy.
//!
//! The desk of a project decides what is sent when (`actors::desk::Target`) and tries again what failed; here is what the
//! targets get. Requests go to the addresses of the configuration alone, and follow no redirect.

mod link;
mod ntfy;
mod sender;
mod webhook;

use std::sync::Arc;

use actors::targets::Target;

pub use link::{AnswerLink, LinkSigner};

use common::config::{Config, DeskSecret};
use ntfy::Ntfy;
use sender::Sender;
use webhook::Webhook;

/// The targets of the configuration.
pub fn targets(config: &Config, secret: Option<&DeskSecret>) -> Arc<[Arc<dyn Target>]> {
    let mut targets: Vec<Arc<dyn Target>> = Vec::new();
    if let Some(secret) = secret {
        for url in &config.desk_webhooks {
            targets.push(Arc::new(Webhook::new(url.clone(), secret.clone(), Sender::new())));
        }
    }
    if let Some(topic) = &config.desk_ntfy {
        let desk = config.desk_public_url.clone();
        let signer = secret.map(LinkSigner::new);
        targets.push(Arc::new(Ntfy::new(
            topic.clone(),
            desk,
            signer,
            config.desk_notify_text,
            Sender::new(),
        )));
    }
    targets.into()
}
