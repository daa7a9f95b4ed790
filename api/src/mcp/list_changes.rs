//! Announces changes of the lists that clients may cache.

use std::{env, sync::LazyLock};

use tokio::sync::watch;

use super::subscriptions::SUBSCRIPTION_ID;
use common::json::frame::{self, JsonText};

/// Whether this process serves the fixtures of the conformance suite. The lists change while the broker runs then only.
pub fn serves_fixtures() -> bool {
    static SERVES: LazyLock<bool> =
        LazyLock::new(|| cfg!(feature = "conformance-fixtures") && env::var_os("CONFORMANCE_FIXTURES").is_some());
    *SERVES
}

/// A list that clients may cache until they are notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// The result of `tools/list`.
    Tools,
    /// The result of `prompts/list`.
    Prompts,
    /// The results of `resources/list` and `resources/templates/list`.
    Resources,
}

impl List {
    /// All lists.
    pub const ALL: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];

    /// The member of the filter of `subscriptions/listen` that asks for this list.
    pub fn filter(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Prompts => "promptsListChanged",
            Self::Resources => "resourcesListChanged",
        }
    }

    /// The method of the notification.
    pub fn notification(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources => "notifications/resources/list_changed",
        }
    }
}

/// Counts the changes of each list since the start of the process.
#[derive(Debug, Default)]
pub struct ListChanges {
    tools: watch::Sender<u64>,
    prompts: watch::Sender<u64>,
    resources: watch::Sender<u64>,
}

impl ListChanges {
    fn counter(&self, list: List) -> &watch::Sender<u64> {
        match list {
            List::Tools => &self.tools,
            List::Prompts => &self.prompts,
            List::Resources => &self.resources,
        }
    }

    /// Notifies all subscriptions that this list has changed.
    pub fn changed(&self, list: List) {
        self.counter(list).send_modify(|count| *count += 1);
    }

    /// Counts the later changes of a list.
    pub fn changes(&self, list: List) -> watch::Receiver<u64> {
        self.counter(list).subscribe()
    }
}

/// The notification that tells a subscription of a changed list. `subscription` is the id of its request, as JSON.
pub fn notification_for(list: List, subscription: &str) -> Vec<u8> {
    let params = format_args!("{{\"_meta\":{{{SUBSCRIPTION_ID}:{subscription}}}}}");
    frame::notification(list.notification(), params).into_bytes()
}
