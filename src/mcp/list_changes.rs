//! Announces changes of the lists that clients may cache: tools and prompts.

use std::future::Future;

use tokio::sync::watch;

/// Whether the lists change while the broker runs: only the fixtures announce changes.
pub const LISTS_CHANGE: bool = cfg!(feature = "conformance-fixtures");

/// A list that clients may cache until they are notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// The result of `tools/list`.
    Tools,
    /// The result of `prompts/list`.
    Prompts,
}

impl List {
    /// All lists.
    pub const ALL: [Self; 2] = [Self::Tools, Self::Prompts];

    /// The member of the filter of `subscriptions/listen` that asks for this list.
    pub fn filter(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Prompts => "promptsListChanged",
        }
    }

    fn notification(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
        }
    }
}

/// Counts the changes of each list since the start of the process.
#[derive(Debug, Default)]
pub struct ListChanges {
    tools: watch::Sender<u64>,
    prompts: watch::Sender<u64>,
}

impl ListChanges {
    fn counter(&self, list: List) -> &watch::Sender<u64> {
        match list {
            List::Tools => &self.tools,
            List::Prompts => &self.prompts,
        }
    }

    /// Notifies all subscriptions that this list has changed.
    pub fn changed(&self, list: List) {
        self.counter(list).send_modify(|count| *count += 1);
    }

    /// Sends a notification to a subscription at every later change, until the future is dropped. `subscription` is the
    /// id of its request, as JSON.
    pub fn notify<S: Fn(&[u8])>(&self, list: List, subscription: &str, send: S) -> impl Future<Output = ()> + use<S> {
        let mut changes = self.counter(list).subscribe();
        let frame = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"{}\",\"params\":{{\"_meta\":\
             {{\"io.modelcontextprotocol/subscriptionId\":{subscription}}}}}}}",
            list.notification()
        );
        async move {
            while changes.changed().await.is_ok() {
                send(frame.as_bytes());
            }
        }
    }
}
