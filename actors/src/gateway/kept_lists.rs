//! What the backends of one project offer, in the store of the project: after a start of the broker it is offered before a
//! backend runs.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::json;
use sha2::{Digest, Sha256};

use super::{
    launch::ServerInfo,
    lists::{BackendLists, Item, ListKind, read_page},
};
use crate::{
    json::{self, scan},
    locked::Locked,
    model::{BackendAddress, BackendConfig, BackendName, ProjectId},
    storage::{BACKEND_LISTS_BYTES_MAX, Before, Store, StoreError, Table},
};

/// The members of the kept text next to the lists.
const STARTED_FROM: &str = "started_from";
const SERVER: &str = "server";

/// The kept lists of the backends of a project.
pub(super) struct KeptLists {
    project: ProjectId,
    store: Arc<dyn Store>,
    /// The backends of the configuration. Nothing is kept of others.
    backends: Locked<BTreeSet<BackendName>>,
    /// One text of at most [`BACKEND_LISTS_BYTES_MAX`] is on its way to or from the store.
    turn: tokio::sync::Mutex<()>,
    /// The store has refused the last operation: that is logged once.
    has_failed: AtomicBool,
}

/// What an instance of a backend has sent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Announcement {
    /// A digest of what the instance was started from.
    started_from: String,
    pub server: Arc<ServerInfo>,
    pub lists: Arc<BackendLists>,
}

/// What the store has of one backend, and what is to be written to it.
pub(super) struct Keeping {
    pub store: Arc<KeptLists>,
    /// What the store has, if that is known.
    pub kept: Option<Announcement>,
    /// What is to be written next.
    pub next: Option<Announcement>,
    /// A write is under way. There is at most one.
    pub is_writing: bool,
}

impl Keeping {
    /// The state of a backend of which nothing is known.
    pub fn new(store: Arc<KeptLists>) -> Self {
        Self {
            store,
            kept: None,
            next: None,
            is_writing: false,
        }
    }
}

impl KeptLists {
    /// The kept lists of a project.
    pub fn new(project: ProjectId, store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            project,
            store,
            backends: Locked::default(),
            turn: tokio::sync::Mutex::default(),
            has_failed: AtomicBool::new(false),
        })
    }

    /// The lists of an instance that was started from the same table as this backend. None if nothing is kept of it, or if
    /// the store cannot be read.
    pub async fn load(&self, config: &BackendConfig) -> Option<Announcement> {
        let _turn = self.turn.lock().await;
        let text = self.store.get(Table::BackendLists, config.name.as_str().into()).await;
        let text = self.noted(&config.name, text)??;
        Announcement::parse(&text).filter(|announcement| announcement.started_from == started_from(&config.address))
    }

    /// Keeps the lists of an instance, or nothing if they are too long. Returns false if the store has refused it.
    pub async fn keep(&self, backend: &BackendName, announcement: &Announcement) -> bool {
        let _turn = self.turn.lock().await;
        if !self.backends.lock().contains(backend) {
            return true;
        }
        let text = announcement.to_text().map(Arc::from);
        if text.is_none() {
            tracing::warn!(
                project = %self.project,
                %backend,
                bytes_max = BACKEND_LISTS_BYTES_MAX,
                "the lists of a backend are too long to be kept: after a restart of the broker it is started to learn them"
            );
        }
        let key = backend.as_str().into();
        let kept = self.store.put_if(Table::BackendLists, key, Before::Any, text).await;
        let is_kept = self.noted(backend, kept).is_some();
        tracing::debug!(project = %self.project, %backend, is_kept, "the lists of a backend were given to the storage");
        is_kept
    }

    /// Keeps nothing from now on: the project has ended.
    pub fn close(&self) {
        self.backends.lock().clear();
    }

    /// Keeps lists of these backends alone from now on.
    pub fn allow(&self, backends: BTreeSet<BackendName>) {
        *self.backends.lock() = backends;
    }

    /// Forgets the lists of all other backends, and keeps nothing of them from now on.
    pub async fn retain(&self, backends: BTreeSet<BackendName>) {
        self.allow(backends.clone());
        let _turn = self.turn.lock().await;
        let is_kept = |key: &[u8]| backends.iter().any(|backend| backend.as_str().as_bytes() == key);
        if let Err(error) = self.store.retain(Table::BackendLists, is_kept).await {
            tracing::debug!(project = %self.project, %error, "the lists of removed backends cannot be forgotten yet");
        }
    }

    /// Logs the first of a row of errors.
    fn noted<T>(&self, backend: &BackendName, outcome: Result<T, StoreError>) -> Option<T> {
        let has_failed = self.has_failed.swap(outcome.is_err(), Ordering::Relaxed);
        if let Err(error) = &outcome
            && !has_failed
        {
            tracing::warn!(
                project = %self.project,
                %backend,
                %error,
                "the lists of backends are only in memory, because the storage refuses them"
            );
        }
        outcome.ok()
    }
}

impl Announcement {
    /// The lists of an instance that was started from this configuration.
    pub fn new(config: &BackendConfig, server: Arc<ServerInfo>, lists: Arc<BackendLists>) -> Self {
        Self {
            started_from: started_from(&config.address),
            server,
            lists,
        }
    }

    /// As a JSON object: the lists have the members that they have in MCP. None if it is too long.
    fn to_text(&self) -> Option<String> {
        let server = serde_json::to_string(&*self.server).ok()?;
        let items = ListKind::ALL.into_iter().flat_map(|kind| self.lists.of(kind));
        let bytes: usize = items.map(|item| item.text.len() + 1).sum();
        if server.len() + bytes > BACKEND_LISTS_BYTES_MAX {
            return None;
        }
        let started_from = json::string(&self.started_from);
        let lists = ListKind::ALL.map(|kind| {
            let texts: Vec<&str> = self.lists.of(kind).iter().map(|item: &Item| &*item.text).collect();
            format!("[{}]", texts.join(","))
        });
        let mut text = Vec::with_capacity(server.len() + bytes + 200);
        let own = [(STARTED_FROM, started_from.as_str()), (SERVER, server.as_str())];
        let lists = ListKind::ALL.into_iter().zip(&lists);
        json::write_object(
            &mut text,
            own.into_iter()
                .chain(lists.map(|(kind, list)| (kind.member(), list.as_str()))),
        );
        String::from_utf8(text)
            .ok()
            .filter(|text| text.len() <= BACKEND_LISTS_BYTES_MAX)
    }

    /// Reads a text of [`Self::to_text`]. None for any other.
    fn parse(text: &str) -> Option<Self> {
        let server = serde_json::from_str(json::member(text, SERVER)?).ok()?;
        let mut lists = BackendLists::default();
        for kind in ListKind::ALL {
            *lists.of_mut(kind) = read_page(kind, text).ok()?.items;
        }
        Some(Self {
            started_from: scan::string(json::member(text, STARTED_FROM)?)?.into_owned(),
            server: Arc::new(server),
            lists: Arc::new(lists),
        })
    }
}

/// A digest of the program or the server. It leaves out variables and headers, whose values may be secrets.
fn started_from(address: &BackendAddress) -> String {
    let text = match address {
        BackendAddress::Command { command, args, cwd, .. } => json!([command, args, cwd]).to_string(),
        BackendAddress::Url { url, .. } => json!(url).to_string(),
    };
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::storage::{Retention, Storage, memory::MemoryStorage};

    fn config(command: &str, token: &str) -> BackendConfig {
        let address = BackendAddress::Command {
            command: command.to_owned(),
            args: vec!["-y".to_owned()],
            env: BTreeMap::from([("TOKEN".to_owned(), token.to_owned())]),
            pass_env: Vec::new(),
            cwd: None,
        };
        BackendConfig::new(BackendName::parse("docs").unwrap(), address)
    }

    fn announcement(config: &BackendConfig, tool: &str) -> Announcement {
        let item = |key: &str, name: &str| Item {
            key: key.to_owned(),
            text: format!(
                r#"{{"{name}":{},{},"x":10000000000000000001}}"#,
                json::string(key),
                match name {
                    "name" => r#""inputSchema":{"type":"object"}"#,
                    _ => r#""name":"n""#,
                }
            )
            .into(),
        };
        let lists = BackendLists {
            tools: vec![item(tool, "name"), item("\u{e4} \"quoted\"", "name")],
            prompts: Vec::new(),
            resources: vec![item("file:///a", "uri")],
            templates: vec![item("file:///{a}", "uriTemplate")],
        };
        let server = ServerInfo {
            name: "docs".to_owned(),
            instructions: Some("Read first.\n".to_owned()),
            capabilities: r#"{"tools":{}}"#.to_owned(),
            ..ServerInfo::default()
        };
        Announcement::new(config, Arc::new(server), Arc::new(lists))
    }

    async fn kept() -> (Arc<KeptLists>, Arc<dyn Store>) {
        let store = MemoryStorage::new(Retention::default()).open(&ProjectId::default_project());
        let kept = KeptLists::new(ProjectId::default_project(), Arc::clone(&store));
        kept.retain(BTreeSet::from([BackendName::parse("docs").unwrap()])).await;
        (kept, store)
    }

    #[test]
    fn what_is_kept_is_read_back_as_it_was_told() {
        let announcement = announcement(&config("npx", ""), "search");
        assert_eq!(
            Announcement::parse(&announcement.to_text().unwrap()),
            Some(announcement)
        );
        for wrong in ["", "{}", "[]", r#"{"started_from":"x","server":{},"tools":[]}"#] {
            assert_eq!(Announcement::parse(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn lists_are_those_of_the_same_program_whatever_its_secrets_are() {
        let (kept, store) = kept().await;
        let config_of = config("npx", "one");
        let announcement = announcement(&config_of, "search");
        assert_eq!(kept.load(&config_of).await, None);
        assert!(kept.keep(&config_of.name, &announcement).await);
        assert_eq!(kept.load(&config("npx", "two")).await, Some(announcement));
        assert_eq!(kept.load(&config("uvx", "one")).await, None);
        let text = store.get(Table::BackendLists, "docs".into()).await.unwrap().unwrap();
        assert!(!text.contains("one") && !text.contains("npx"), "{text}");
    }

    #[tokio::test]
    async fn lists_that_are_too_long_take_the_place_of_those_before_them() {
        let (kept, _) = kept().await;
        let config = config("npx", "");
        assert!(kept.keep(&config.name, &announcement(&config, "search")).await);
        let longest = announcement(&config, &"x".repeat(BACKEND_LISTS_BYTES_MAX));
        assert!(kept.keep(&config.name, &longest).await);
        assert_eq!(kept.load(&config).await, None);
    }

    #[tokio::test]
    async fn nothing_is_kept_of_a_backend_that_was_removed() {
        let (kept, store) = kept().await;
        let config = config("npx", "");
        kept.keep(&config.name, &announcement(&config, "search")).await;
        kept.retain(BTreeSet::new()).await;
        assert_eq!(store.get(Table::BackendLists, "docs".into()).await.unwrap(), None);
        kept.keep(&config.name, &announcement(&config, "search")).await;
        assert_eq!(store.get(Table::BackendLists, "docs".into()).await.unwrap(), None);
    }
}
