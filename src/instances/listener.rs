//! Subscribes to changes of a backend: a modern one sends those of its lists and of subscribed resources and tasks, in one subscription; a
//! legacy one of each resource that callers have subscribed to.

use std::{collections::BTreeSet, rc::Rc, sync::Arc, time::Duration};

use actors::backoff::{Backoff, random};
use actors::clock::now;
use actors::{
    gateway::{BackendLog, Call, CallEnd, CallPurpose, FrameLink, Link, LinkRefusal, ServerInfo, Subscribed},
    model::BackendEra,
};
use serde_json::{Map, Value, json};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout},
};

use super::{lists::end_of, probe::modern_meta};
use api::mcp::tasks;
use common::json::frame::{self, JsonText};

/// How long a backend may take to answer one subscription.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The pauses before a subscription that has ended is asked for again. They are short again once a subscription has lasted
/// for the longest.
const BACKOFF: Backoff = Backoff {
    min: Duration::from_secs(1),
    max: Duration::from_secs(60),
};

/// What the messages of the backend tell the listener.
#[derive(Default)]
pub struct Heard {
    /// The subscription of a modern backend is open.
    pub acknowledged: Notify,
    /// A legacy server has forgotten its session, and with it all subscriptions.
    pub is_forgotten: Notify,
}

/// Subscribes to changes of one running instance.
pub struct Listener {
    pub link: Arc<FrameLink>,
    /// What its callers subscribe to.
    pub subscribed: Subscribed,
    /// The number of its process.
    pub process: u64,
    /// The subscription has its lists too.
    pub hears_of_lists: bool,
    pub log: Arc<BackendLog>,
    pub heard: Rc<Heard>,
}

impl Listener {
    /// Asks for what the backend can tell, until the link is closed.
    pub async fn run(self, server: &ServerInfo) {
        let capabilities: Value = serde_json::from_str(&server.capabilities).unwrap_or_default();
        let tells_of_resources = capabilities["resources"]["subscribe"] == true;
        // What callers have subscribed to may have changed since the instance before.
        self.subscribed.resources.note_all();
        match self.link.era() {
            BackendEra::Modern => self.listen(&capabilities, tells_of_resources).await,
            BackendEra::Legacy if tells_of_resources => self.subscribe().await,
            BackendEra::Legacy => {}
        }
    }

    /// Keeps one subscription open at a modern backend. When callers want other resources or tasks, the next one is open
    /// before the one before it ends, so that no change is missed.
    async fn listen(&self, capabilities: &Value, tells_of_resources: bool) {
        let lists = if self.hears_of_lists {
            announced_lists(capabilities)
        } else {
            Map::new()
        };
        let tells_of_tasks = tasks::is_declared(capabilities);
        let mut revisions = Revisions {
            of_resources: self.subscribed.resources.revisions(),
            of_tasks: self.subscribed.tasks.revisions(),
        };
        let (mut ends, mut before, mut with_tasks) = (0, None, tells_of_tasks);
        loop {
            revisions.mark_seen();
            let (mut filter, mut meta) = (lists.clone(), modern_meta());
            let uris = self.subscribed.resources.uris();
            if tells_of_resources && !uris.is_empty() {
                filter.insert("resourceSubscriptions".to_owned(), json!(uris));
            }
            let ids = self.subscribed.tasks.ids(self.process);
            let asks_for_tasks = with_tasks && !ids.is_empty();
            if asks_for_tasks {
                filter.insert("taskIds".to_owned(), json!(ids));
                meta["io.modelcontextprotocol/clientCapabilities"] = json!({"extensions": {tasks::EXTENSION: {}}});
            }
            if filter.is_empty() {
                before.take();
                if revisions.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let begun = Instant::now();
            let params = json!({"notifications": filter, "_meta": meta});
            let is_over = match self.open("subscriptions/listen", &params) {
                Ok(mut call) => {
                    let ended = tokio::select! {
                        end = end_of(&mut call) => Some(end),
                        _ = timeout(ANSWER_TIMEOUT, self.heard.acknowledged.notified()) => None,
                    };
                    let end = if let Some(end) = ended {
                        end
                    } else {
                        drop(before.take());
                        tokio::select! {
                            end = end_of(&mut call) => end,
                            _ = revisions.changed() => {
                                (before, with_tasks) = (Some(call), tells_of_tasks);
                                continue;
                            }
                        }
                    };
                    self.is_refused(&end)
                }
                Err(LinkRefusal::Closed) => return,
                Err(LinkRefusal::Busy) => false,
            };
            if is_over && asks_for_tasks {
                // It may refuse a task that it does not know: the lists and resources do not suffer from that.
                with_tasks = false;
                continue;
            }
            if is_over {
                // Perhaps it takes another one.
                if revisions.changed().await.is_err() {
                    return;
                }
                with_tasks = tells_of_tasks;
                continue;
            }
            ends = if begun.elapsed() >= BACKOFF.max { 1 } else { ends + 1 };
            sleep(BACKOFF.wait(ends, random())).await;
            self.subscribed.resources.note_all();
        }
    }

    /// Whether the backend refuses a subscription, instead of ending it for now.
    fn is_refused(&self, end: &CallEnd) -> bool {
        let reason = match end {
            CallEnd::Error(error) => String::from_utf8_lossy(error).chars().take(200).collect(),
            CallEnd::HttpError { status, reason, .. } if *status < 500 && *status != 429 => {
                format!("HTTP {status}: {reason}")
            }
            _ => return false,
        };
        self.tell(&format!("subscriptions/listen is refused: {reason}"));
        true
    }

    /// Subscribes at a legacy backend to what callers have subscribed to.
    async fn subscribe(&self) {
        let mut revisions = self.subscribed.resources.revisions();
        let mut subscribed = BTreeSet::new();
        loop {
            revisions.borrow_and_update();
            let wanted = self.subscribed.resources.uris();
            let changes = subscribed
                .difference(&wanted)
                .map(|uri| ("resources/unsubscribe", uri))
                .chain(wanted.difference(&subscribed).map(|uri| ("resources/subscribe", uri)));
            for (method, uri) in changes {
                if !self.request(method, uri).await {
                    return;
                }
            }
            subscribed = wanted;
            tokio::select! {
                changed = revisions.changed() => if changed.is_err() {
                    return;
                },
                () = self.heard.is_forgotten.notified() => {
                    subscribed.clear();
                    self.subscribed.resources.note_all();
                }
            }
        }
    }

    /// Sends a request about a resource. Returns false once the link is closed.
    async fn request(&self, method: &str, uri: &str) -> bool {
        let refused = match self.open(method, &json!({"uri": uri})) {
            Ok(mut call) => match timeout(ANSWER_TIMEOUT, end_of(&mut call)).await {
                Ok(CallEnd::Result(_)) => return true,
                Ok(CallEnd::Error(error)) => String::from_utf8_lossy(&error).chars().take(200).collect(),
                Ok(end) => format!("{end:?}").chars().take(200).collect(),
                Err(_) => "no answer".to_owned(),
            },
            Err(LinkRefusal::Closed) => return false,
            Err(LinkRefusal::Busy) => "it does not read its input".to_owned(),
        };
        self.tell(&format!("{method} {uri}: {refused}"));
        self.link.is_open()
    }

    fn open(&self, method: &str, params: &Value) -> Result<Call, LinkRefusal> {
        Arc::clone(&self.link).open(CallPurpose::Own, &mut |number, out| {
            frame::request(number.0, method, params).write_to(out);
        })
    }

    fn tell(&self, line: &str) {
        self.log.push(line, now().unix_ms);
    }
}

/// Changes of what callers subscribe to.
struct Revisions {
    of_resources: watch::Receiver<u64>,
    of_tasks: watch::Receiver<u64>,
}

impl Revisions {
    fn mark_seen(&mut self) {
        self.of_resources.mark_unchanged();
        self.of_tasks.mark_unchanged();
    }

    async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        tokio::select! {
            changed = self.of_resources.changed() => changed,
            changed = self.of_tasks.changed() => changed,
        }
    }
}

/// The lists that a backend declares as subscribable, as the filter of a subscription.
fn announced_lists(capabilities: &Value) -> Map<String, Value> {
    let filter = [
        ("tools", "toolsListChanged"),
        ("prompts", "promptsListChanged"),
        ("resources", "resourcesListChanged"),
    ];
    filter
        .into_iter()
        .filter(|(list, _)| capabilities[*list]["listChanged"] == true)
        .map(|(_, member)| (member.to_owned(), Value::Bool(true)))
        .collect()
}
