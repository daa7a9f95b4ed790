//! Changes of the lists that clients may keep: tools and prompts.

use std::future::Future;

use tokio::sync::watch;

/// A list that clients may keep, and be told when they should not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    Tools,
    Prompts,
}

impl List {
    pub const ALL: [Self; 2] = [Self::Tools, Self::Prompts];

    /// The member of the filter of `subscriptions/listen` that asks for it.
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

/// How often each list has changed since the start.
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

    pub fn changed(&self, list: List) {
        self.counter(list).send_modify(|count| *count += 1);
    }

    /// Tells a subscription of every change from now on, until the future is dropped.
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
