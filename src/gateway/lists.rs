//! Reads what a backend offers, page by page, and reads again what the backend says has changed.

use std::{cell::Cell, collections::HashSet, rc::Rc, sync::Arc, time::Duration};

use actors::{
    gateway::{
        BackendLists, Call, CallEnd, CallEvent, CallPurpose, InstanceEvent, Item, Link, LinkRefusal, ListKind, Report,
        ServerInfo, add_page,
    },
    model::{BackendEra, BackendOrigin},
};
use serde_json::{Map, Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use super::probe::modern_meta;

/// How long one page may take.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause before a list is read once more, and the longest one before a list is tried again that could not be read.
const RELIST_PAUSE: Duration = Duration::from_millis(250);
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Pages of one list: a backend may give a cursor for ever.
const PAGES_MAX: usize = 200;
/// Items and bytes of one list.
const ITEMS_MAX: usize = 10_000;
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// The bytes if the backend was added: an administrator of one project has chosen it.
const ADDED_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The lists of one running instance.
pub struct ListReader {
    link: Arc<dyn Link>,
    /// The lists that the backend has.
    kinds: Vec<ListKind>,
    changes: Rc<ListChanges>,
    /// What an earlier instance offered.
    known: BackendLists,
    read_tools: Option<Rc<dyn ReadTools>>,
    /// Bytes of one list.
    bytes_max: usize,
}

/// Looks at each list of tools that was read, before anyone sees it.
pub trait ReadTools {
    /// Takes the tools. Those that it removes are not offered.
    fn look_at(&self, tools: &mut Vec<Item>);
}

/// The lists that have changed since they were read. However many changes come, each list is read at most once more.
#[derive(Default)]
pub struct ListChanges {
    changed: Cell<[bool; ListKind::ALL.len()]>,
    wake: Notify,
}

impl ListChanges {
    /// Notes what a notification says.
    pub fn note(&self, method: &str) {
        match method {
            "notifications/tools/list_changed" => self.add(&[ListKind::Tools]),
            "notifications/prompts/list_changed" => self.add(&[ListKind::Prompts]),
            "notifications/resources/list_changed" => self.add(&[ListKind::Resources, ListKind::Templates]),
            _ => {}
        }
    }

    /// Notes that these lists may have changed.
    pub fn add(&self, kinds: &[ListKind]) {
        let mut changed = self.changed.get();
        for (known, flag) in ListKind::ALL.iter().zip(&mut changed) {
            *flag |= kinds.contains(known);
        }
        self.changed.set(changed);
        self.wake.notify_one();
    }
}

impl ListReader {
    /// Reads the lists of a backend with these capabilities.
    pub fn new(
        link: Arc<dyn Link>,
        server: &ServerInfo,
        changes: Rc<ListChanges>,
        mut known: BackendLists,
        read_tools: Option<Rc<dyn ReadTools>>,
        origin: BackendOrigin,
    ) -> Self {
        let capabilities: Map<String, Value> = serde_json::from_str(&server.capabilities).unwrap_or_default();
        let has = |name: &str| capabilities.contains_key(name);
        let (kinds, missing): (Vec<_>, Vec<_>) = ListKind::ALL.into_iter().partition(|kind| match kind {
            ListKind::Tools => has("tools"),
            ListKind::Prompts => has("prompts"),
            ListKind::Resources | ListKind::Templates => has("resources"),
        });
        for kind in missing {
            known.of_mut(kind).clear();
        }
        Self {
            link,
            kinds,
            changes,
            known,
            read_tools,
            bytes_max: match origin {
                BackendOrigin::File => BYTES_MAX,
                BackendOrigin::Added => ADDED_BYTES_MAX,
            },
        }
    }

    /// Reads all lists and reports them, then again those that change, until the link is closed. A list that cannot be read
    /// stays as it was, and is tried again.
    pub async fn run(self, report: Report) {
        let mut lists = self.known.clone();
        let mut wanted = self.kinds.clone();
        let (mut is_first, mut were_complete, mut retry_pause) = (true, true, RETRY_PAUSE);
        loop {
            let begun = Instant::now();
            let before = lists.clone();
            let mut failed = Vec::new();
            for kind in std::mem::take(&mut wanted) {
                match self.read(kind).await {
                    Ok(items) => *lists.of_mut(kind) = items,
                    Err(None) => return,
                    // A server may declare resources and have no templates.
                    Err(Some(_)) if kind == ListKind::Templates => {}
                    Err(Some(reason)) => {
                        report(InstanceEvent::ListsFailed(format!("{}: {reason}", kind.method())));
                        failed.push(kind);
                    }
                }
            }
            let are_complete = failed.is_empty();
            if std::mem::take(&mut is_first) || lists != before || are_complete != were_complete {
                let lists = lists.clone();
                report(InstanceEvent::Lists { lists, are_complete });
            }
            were_complete = are_complete;
            drop(before);
            // A backend that changes its lists all the time costs a part of the worker at most.
            sleep(RELIST_PAUSE.max(begun.elapsed() * 4)).await;
            if failed.is_empty() {
                retry_pause = RETRY_PAUSE;
                self.changes.wake.notified().await;
            } else {
                let _ = timeout(retry_pause, self.changes.wake.notified()).await;
                retry_pause = (retry_pause * 2).min(RETRY_PAUSE_MAX);
            }
            let changed = self.changes.changed.take();
            let changed = |kind: &ListKind| {
                ListKind::ALL
                    .iter()
                    .zip(changed)
                    .any(|(known, flag)| flag && known == kind)
            };
            let is_wanted = |kind: &ListKind| changed(kind) || failed.contains(kind);
            wanted = self.kinds.iter().copied().filter(is_wanted).collect();
        }
    }

    /// All pages of a list.
    ///
    /// # Errors
    /// Why it cannot be read; `None` if the link is closed.
    async fn read(&self, kind: ListKind) -> Result<Vec<Item>, Option<String>> {
        let (mut items, mut cursor, mut bytes) = (Vec::<Item>::new(), None, 0);
        for _ in 0..PAGES_MAX {
            let page = self.page(kind, cursor.as_deref()).await?;
            bytes += page.len();
            let next = add_page(&mut items, kind, &page).map_err(|_| Some("the answer is no list".to_owned()))?;
            let bytes_max = self.bytes_max;
            if items.len() > ITEMS_MAX || bytes > bytes_max {
                return Err(Some(format!("it has more than {ITEMS_MAX} items or {bytes_max} bytes")));
            }
            match next {
                None => {
                    // A client could tell two items of one name not apart.
                    let mut seen = HashSet::new();
                    items.retain(|item| seen.insert(item.key.clone()));
                    if let Some(read_tools) = self.read_tools.as_ref().filter(|_| kind == ListKind::Tools) {
                        read_tools.look_at(&mut items);
                    }
                    return Ok(items);
                }
                Some(_) if next == cursor => return Err(Some("it gives the same cursor again and again".to_owned())),
                Some(_) => cursor = next,
            }
        }
        Err(Some(format!("it has more than {PAGES_MAX} pages")))
    }

    async fn page(&self, kind: ListKind, cursor: Option<&str>) -> Result<String, Option<String>> {
        let mut params = match self.link.era() {
            BackendEra::Legacy => json!({}),
            BackendEra::Modern => json!({"_meta": modern_meta()}),
        };
        if let Some(cursor) = cursor {
            params["cursor"] = json!(cursor);
        }
        let request = json!({"jsonrpc": "2.0", "method": kind.method(), "params": params});
        let asked = Arc::clone(&self.link).open(CallPurpose::Own, &mut |number, out| {
            let mut request = request.clone();
            request["id"] = json!(number.0);
            out.extend_from_slice(request.to_string().as_bytes());
        });
        let mut call = asked.map_err(|refusal| match refusal {
            LinkRefusal::Closed => None,
            LinkRefusal::Busy => Some("the backend does not read its input".to_owned()),
        })?;
        match timeout(PAGE_TIMEOUT, end_of(&mut call)).await {
            Ok(CallEnd::Result(result)) => {
                String::from_utf8(result.to_vec()).map_err(|_| Some("the answer is not UTF-8".to_owned()))
            }
            Ok(CallEnd::Error(error)) => Err(Some(String::from_utf8_lossy(&error).chars().take(200).collect())),
            Ok(CallEnd::TooLarge { limit }) => Err(Some(format!("the answer has more than {limit} bytes"))),
            Ok(CallEnd::HttpError { status, .. }) => Err(Some(format!("HTTP {status}"))),
            Ok(CallEnd::Died(ended)) if self.link.is_open() => Err(Some(ended.to_string())),
            Ok(CallEnd::NotSent) if self.link.is_open() => Err(Some("its server cannot be reached".to_owned())),
            Ok(CallEnd::Died(_) | CallEnd::NotSent) => Err(None),
            Err(_) => Err(Some(format!("no answer within {} s", PAGE_TIMEOUT.as_secs()))),
        }
    }
}

/// Waits for the end of a call of the broker itself.
pub async fn end_of(call: &mut Call) -> CallEnd {
    loop {
        if let CallEvent::Ended(end) = call.next().await {
            return end;
        }
    }
}
