//! Reads what a backend offers, page by page, and reads again what the backend says has changed.

use std::{cell::Cell, collections::HashSet, fmt, pin::pin, rc::Rc, sync::Arc, time::Duration};

use actors::{
    backoff::{Backoff, random},
    gateway::{
        BackendLists, Call, CallEnd, CallEvent, CallPurpose, InstanceEvent, Item, Link, LinkRefusal, ListKind,
        ListPart, ReadLists, Report, ServerInfo, read_page,
    },
    json,
    model::{BackendEra, BackendOrigin},
};
use serde_json::{Map, Value, json};
use tokio::{
    sync::Notify,
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};

use super::probe::modern_meta;
use api::mcp::rpc::METHOD_NOT_FOUND;
use common::json::frame::{self, JsonText};

/// How long one page may take.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause before a list is read once more, and those before a list is tried again that could not be read.
const RELIST_PAUSE: Duration = Duration::from_millis(250);
const RETRY_BACKOFF: Backoff = Backoff {
    min: Duration::from_secs(1),
    max: Duration::from_secs(60),
};
/// How long the lists that follow the tools may take until what was read so far is offered without them.
const INTERIM_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of a page that a worker reads itself: about a millisecond.
const PAGE_LEN_INLINE: usize = 64 * 1024;
/// Pages of one list: a backend may give a cursor for ever.
const PAGES_MAX: usize = 200;
/// Items and bytes of one list.
const ITEMS_MAX: usize = 10_000;
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// The bytes if the backend was added: an administrator of one project has chosen it.
const ADDED_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Characters of an error that are shown.
const ERROR_LEN_MAX: usize = 200;
/// Things that are not offered, which operators are shown of one backend.
const PROBLEMS_MAX: usize = 20;

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

    /// Reads all lists and reports them, then again those that change, until the link is closed. Of a list that cannot be read
    /// what is known stays, and it is tried again.
    pub async fn run(self, report: Report) {
        let mut read = Read {
            lists: self.known.clone(),
            ..Read::default()
        };
        let mut wanted = self.kinds.clone();
        let (mut reported, mut failures) = (None, 0);
        loop {
            let begun = Instant::now();
            let mut failed = Vec::new();
            for kind in std::mem::take(&mut wanted) {
                let mut reading = pin!(self.read(kind, read.lists.of(kind).to_vec()));
                let outcome = if let Ok(outcome) = timeout(INTERIM_PAUSE, &mut reading).await {
                    outcome
                } else {
                    if reported.is_none() && kind != ListKind::Tools {
                        report(read.event(false));
                    }
                    reading.await
                };
                match outcome {
                    Ok(list) => {
                        if !list.is_whole {
                            failed.push(kind);
                        }
                        *read.lists.of_mut(kind) = list.items;
                        read.problems[kind.index()] = list.problems;
                    }
                    Err(Unread::Closed) => return,
                    // A server may declare resources and have no templates, or declare what it does not have at all.
                    Err(Unread::NotOffered) => {
                        read.lists.of_mut(kind).clear();
                        read.problems[kind.index()].clear();
                    }
                    Err(Unread::Failed(_)) if kind == ListKind::Templates => {}
                    Err(Unread::Failed(reason)) => {
                        read.problems[kind.index()] = vec![format!("{}: {reason}", kind.method())];
                        failed.push(kind);
                    }
                }
            }
            let now = (read.clone(), failed.is_empty());
            if reported.as_ref() != Some(&now) {
                report(read.event(now.1));
                reported = Some(now);
            }
            // A backend that changes its lists all the time costs a part of the worker at most.
            sleep(RELIST_PAUSE.max(begun.elapsed() * 4)).await;
            if failed.is_empty() {
                failures = 0;
                self.changes.wake.notified().await;
            } else {
                failures += 1;
                let _ = timeout(RETRY_BACKOFF.wait(failures, random()), self.changes.wake.notified()).await;
            }
            let changed = self.changes.changed.take();
            let is_wanted = |kind: &ListKind| changed[kind.index()] || failed.contains(kind);
            wanted = self.kinds.iter().copied().filter(is_wanted).collect();
        }
    }

    /// All pages of a list, as far as they can be read. `known` is what was offered before.
    async fn read(&self, kind: ListKind, known: Vec<Item>) -> Result<ReadList, Unread> {
        let mut list = ReadList {
            is_whole: true,
            ..ReadList::default()
        };
        let (mut cursor, mut asked, mut bytes) = (None::<String>, HashSet::new(), 0);
        for number in 1.. {
            if number > PAGES_MAX {
                list.lacks(kind, &format!("what follows its first {PAGES_MAX} pages"));
                break;
            }
            let page = match self.page(kind, cursor.as_deref()).await {
                Ok(page) => page,
                Err(Unread::Closed) => return Err(Unread::Closed),
                Err(unread) if number == 1 => return Err(unread),
                Err(unread) => {
                    list.lacks(kind, &format!("page {number} and what follows: {unread}"));
                    // It was there before, and may be there still.
                    list.items.extend(known);
                    list.is_whole = false;
                    break;
                }
            };
            list.problems.extend(page.left_out);
            for item in page.items {
                bytes += item.text.len();
                if list.items.len() == ITEMS_MAX || bytes > self.bytes_max {
                    list.lacks(
                        kind,
                        &format!("what is over {ITEMS_MAX} items or {} bytes", self.bytes_max),
                    );
                    break;
                }
                list.items.push(item);
            }
            if bytes > self.bytes_max || list.items.len() == ITEMS_MAX {
                break;
            }
            let Some(next) = page.next else { break };
            if !asked.insert(next.clone()) {
                // Some servers end their lists with an empty cursor, which is a cursor like any other.
                if !asked.contains("") {
                    list.lacks(kind, "what may follow a cursor that it gives again");
                }
                break;
            }
            cursor = Some(next);
        }
        list.finish();
        if let Some(read_tools) = self.read_tools.as_ref().filter(|_| kind == ListKind::Tools) {
            read_tools.look_at(&mut list.items);
        }
        Ok(list)
    }

    async fn page(&self, kind: ListKind, cursor: Option<&str>) -> Result<ListPart, Unread> {
        let mut params = match self.link.era() {
            BackendEra::Legacy => json!({}),
            BackendEra::Modern => json!({"_meta": modern_meta()}),
        };
        if let Some(cursor) = cursor {
            params["cursor"] = json!(cursor);
        }
        let asked = Arc::clone(&self.link).open(CallPurpose::Own, &mut |number, out| {
            frame::request(number.0, kind.method(), &params).write_to(out);
        });
        let failed = |reason: String| Err(Unread::Failed(reason));
        let mut call = match asked {
            Ok(call) => call,
            Err(LinkRefusal::Closed) => return Err(Unread::Closed),
            Err(LinkRefusal::Busy) => return failed("the backend does not read its input".to_owned()),
        };
        match timeout(PAGE_TIMEOUT, end_of(&mut call)).await {
            Ok(CallEnd::Result(result)) => match String::from_utf8(result.to_vec()) {
                Ok(page) => read_in_time(kind, page).await,
                Err(_) => failed("the answer is not UTF-8".to_owned()),
            },
            Ok(CallEnd::Error(error)) => Err(refused(&error)),
            Ok(CallEnd::TooLarge { limit }) => failed(format!("the answer has more than {limit} bytes")),
            Ok(CallEnd::Broken { reason }) => failed(reason),
            Ok(CallEnd::NoRoom) => failed("too many answers wait for their clients".to_owned()),
            Ok(CallEnd::HttpError { status, .. }) => failed(format!("HTTP {status}")),
            Ok(CallEnd::Died(ended)) if self.link.is_open() => failed(ended.to_string()),
            Ok(CallEnd::NotSent) if self.link.is_open() => failed("its server cannot be reached".to_owned()),
            Ok(CallEnd::Died(_) | CallEnd::NotSent) => Err(Unread::Closed),
            Err(_) => failed(format!("no answer within {} s", PAGE_TIMEOUT.as_secs())),
        }
    }
}

/// Reads a page: a long one off the workers.
async fn read_in_time(kind: ListKind, page: String) -> Result<ListPart, Unread> {
    let read = if page.len() <= PAGE_LEN_INLINE {
        read_page(kind, &page).ok()
    } else {
        spawn_blocking(move || read_page(kind, &page).ok()).await.ok().flatten()
    };
    read.ok_or_else(|| Unread::Failed("the answer is no list".to_owned()))
}

/// What an error object says of a list.
fn refused(error: &[u8]) -> Unread {
    let error = String::from_utf8_lossy(error);
    let code = json::member(&error, "code").and_then(|code| code.parse().ok());
    if code == Some(METHOD_NOT_FOUND) {
        return Unread::NotOffered;
    }
    Unread::Failed(error.chars().take(ERROR_LEN_MAX).collect())
}

/// What was read so far.
#[derive(Clone, Default, PartialEq)]
struct Read {
    lists: BackendLists,
    /// What is not offered of each list, and why.
    problems: [Vec<String>; ListKind::ALL.len()],
}

impl Read {
    fn event(&self, are_complete: bool) -> InstanceEvent {
        let all: Vec<&String> = self.problems.iter().flatten().collect();
        let mut problems: Vec<String> = all
            .iter()
            .take(PROBLEMS_MAX)
            .map(|problem| (*problem).clone())
            .collect();
        if all.len() > PROBLEMS_MAX {
            problems.push(format!("and {} more", all.len() - PROBLEMS_MAX));
        }
        InstanceEvent::Lists(ReadLists {
            lists: self.lists.clone(),
            are_complete,
            problems,
        })
    }
}

/// A list that was read.
#[derive(Default)]
struct ReadList {
    items: Vec<Item>,
    problems: Vec<String>,
    /// Reading it again would bring nothing else.
    is_whole: bool,
}

impl ReadList {
    fn lacks(&mut self, kind: ListKind, what: &str) {
        self.problems.push(format!("{}: {what}", kind.method()));
    }

    /// Drops what no client could use: two items of one name cannot be distinguished.
    fn finish(&mut self) {
        let mut seen = HashSet::new();
        self.items.retain(|item| seen.insert(item.key.clone()));
        self.items.truncate(ITEMS_MAX);
        self.problems.truncate(ITEMS_MAX);
    }
}

/// Why a list, or one page of it, cannot be read.
enum Unread {
    /// The link is closed.
    Closed,
    /// The backend has no such list.
    NotOffered,
    /// It failed so.
    Failed(String),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the backend has ended",
            Self::NotOffered => "the backend has no such list",
            Self::Failed(reason) => reason,
        })
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
