//! What readers see of a project's backends without asking an actor.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::sync::watch;
use uuid::Uuid;

use super::{
    BackendState,
    asked_urls::AskedUrls,
    call::Link,
    checkout::Checkouts,
    handed_out::HandedOut,
    launch::ServerInfo,
    listing::Target,
    lists::{BackendLists, ListKind},
    log::BackendLog,
    open_calls::{BackendCounters, OpenCalls},
    parked::ParkedCalls,
    pool::{Affinity, PoolMode, PoolOrder},
    profile::Profile,
    routing_table::RoutingTable,
    subscribed::SubscribedOwners,
};
use crate::{
    clock::{Now, now},
    locked::RwLocked,
    model::{BackendConfig, BackendName, ProjectId, Sharing},
    supervise::{ActorMetrics, ActorNode},
};

/// The backends of one project.
pub struct GatewayShared {
    /// Replaced as a whole when the routing table changes.
    offered: RwLocked<Arc<Offered>>,
    /// How often the lists that clients see have changed.
    revisions: watch::Sender<AllRevisions>,
    /// All backends with their catalogs, at each change.
    changed: watch::Sender<u64>,
    /// When its project was opened, on the monotonic clock.
    opened_ms: u64,
    /// The addresses that results have handed out.
    pub handed_out: HandedOut,
}

/// The backends and their routing table, which belong together.
#[derive(Default)]
pub struct Offered {
    /// Sorted by name.
    pub backends: Vec<Arc<BackendShared>>,
    pub routes: RoutingTable,
    /// What was known of the backends when the routing table was made.
    pub(super) known: Vec<Known>,
    /// All backends of the project are among them. The added backends are missing until the store has been read.
    pub(super) is_complete: bool,
}

/// What is known of the lists of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Nothing,
    /// What the store has kept of an earlier instance.
    Kept,
    /// The lists of an instance of this broker.
    Announced,
}

/// How often each list has changed since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListRevisions {
    pub tools: u64,
    pub prompts: u64,
    pub resources: u64,
}

/// How often the lists of all backends together, and of each alone, have changed since the start.
#[derive(Clone, Debug, Default)]
pub struct AllRevisions {
    pub(super) together: ListRevisions,
    pub(super) alone: BTreeMap<BackendName, ListRevisions>,
}

impl AllRevisions {
    /// The revisions of the lists of all backends together, or of one alone.
    pub fn of(&self, only: Option<&BackendName>) -> ListRevisions {
        match only {
            None => self.together,
            Some(name) => self.alone.get(name).copied().unwrap_or_default(),
        }
    }
}

impl ListRevisions {
    /// Counts the changes of some lists, in the order of [`ListKind::ALL`].
    pub(super) fn add(&mut self, [tools, prompts, resources, templates]: [bool; ListKind::ALL.len()]) {
        self.tools += u64::from(tools);
        self.prompts += u64::from(prompts);
        self.resources += u64::from(resources || templates);
    }
}

impl GatewayShared {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            offered: RwLocked::default(),
            revisions: watch::Sender::default(),
            changed: watch::Sender::default(),
            opened_ms: now().mono_ms,
            handed_out: HandedOut::default(),
        })
    }

    /// The backends and their routing table now.
    pub fn offered(&self) -> Arc<Offered> {
        Arc::clone(&self.offered.read())
    }

    pub(super) fn publish(&self, offered: Offered) {
        *self.offered.write() = Arc::new(offered);
        self.changed.send_modify(|count| *count += 1);
    }

    pub(super) fn revise(&self, revise: impl FnOnce(&mut AllRevisions)) {
        self.revisions.send_modify(revise);
    }

    /// Announces changed tools to clients, whether the tools are others or not.
    pub fn announce_tools(&self) {
        self.revise(|revisions| revisions.together.add([true, false, false, false]));
    }

    /// Changes of the lists that clients see, at most one in a second.
    pub fn revisions(&self) -> watch::Receiver<AllRevisions> {
        self.revisions.subscribe()
    }

    /// Counts the changes of a routing table or a state.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Waits until `is_done` finds what it looks for. It looks again at each change of a routing table or a state.
    pub async fn wait_for<T>(&self, mut is_done: impl FnMut() -> Option<T>) -> Option<T> {
        let mut changed = self.changes();
        loop {
            changed.borrow_and_update();
            if let Some(found) = is_done() {
                return Some(found);
            }
            changed.changed().await.ok()?;
        }
    }

    /// How long a list has to wait for backends of which it is not known what they offer: none of them is waited for longer than
    /// `list_wait` after its first start, nor the added ones after the project was opened. `only` is the position of the
    /// backend that the list is of.
    pub fn wait_left(&self, only: Option<usize>, list_wait: Duration, now: Now) -> Duration {
        let offered = self.offered();
        let wanted = |at: usize| only.is_none_or(|only| only == at);
        let unknown = offered
            .backends
            .iter()
            .enumerate()
            .filter(|(at, backend)| wanted(*at) && !offered.is_known(*at) && !backend.view().has_failed());
        let unread = (!offered.is_complete && only.is_none()).then_some(self.opened_ms);
        let since = unknown.map(|(_, backend)| backend.first_start_ms).chain(unread);
        let left = since.map(|since_ms| {
            let age = Duration::from_millis(now.mono_ms.saturating_sub(since_ms));
            list_wait.saturating_sub(age)
        });
        left.max().unwrap_or_default()
    }
}

impl Offered {
    /// Whether all backends of the project are among these.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether it was known what the backend at this position offers when the routing table was made.
    pub fn is_known(&self, at: usize) -> bool {
        self.known.get(at) != Some(&Known::Nothing)
    }

    /// Whether an instance of the backend at this position had sent its lists when the routing table was made.
    pub fn has_announced(&self, at: usize) -> bool {
        self.known.get(at).is_none_or(|known| *known == Known::Announced)
    }

    /// The backend of this name.
    pub fn backend(&self, name: &str) -> Option<&Arc<BackendShared>> {
        let found = self
            .backends
            .binary_search_by(|backend| backend.name.as_str().cmp(name));
        self.backends.get(found.ok()?)
    }

    /// The backend of this name and its position, if clients are offered its tool of this original name. As long as it is not
    /// known what it offers, its configuration decides.
    pub fn backend_with_tool(&self, name: &str, tool: &str) -> Option<(usize, &Arc<BackendShared>)> {
        let at = self.backends.iter().position(|backend| backend.name.as_str() == name)?;
        let backend = &self.backends[at];
        let tools = &backend.view().config.tools;
        let own = tools.rename.get(tool).map_or(tool, String::as_str);
        let is_listed = || {
            let target = self.routes.listing(Some(at), ListKind::Tools).find(own);
            target.is_some_and(|target| &*target.original == tool)
        };
        let is_offered = tools.offers(tool) && (!self.is_known(at) || is_listed());
        is_offered.then_some((at, backend))
    }

    /// The backend that a target leads to.
    pub fn backend_of(&self, target: &Target) -> Option<&Arc<BackendShared>> {
        self.backends.get(target.backend)
    }
}

/// One backend.
pub struct BackendShared {
    pub project: ProjectId,
    pub name: BackendName,
    /// Its instances, which are lent to calls.
    pub checkouts: Arc<Checkouts>,
    /// The calls that are not over.
    pub calls: Arc<OpenCalls>,
    /// The calls that wait for input of their callers.
    pub parked: ParkedCalls,
    /// The resources and tasks that callers subscribe to.
    pub subscribed: SubscribedOwners,
    /// The URLs that callers were asked to open.
    pub urls: Arc<AskedUrls>,
    /// What its processes have written to stderr.
    pub log: Arc<BackendLog>,
    pub counters: Arc<BackendCounters>,
    /// When its actor was started first, on the monotonic clock.
    first_start_ms: u64,
    view: watch::Sender<Arc<BackendView>>,
    metrics: Arc<ActorMetrics>,
    tell: Arc<dyn Fn(BackendOrder) + Send + Sync>,
}

/// What an operator or a caller wants of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendCommand {
    /// It is needed: start it if it does not run.
    Want,
    /// Start it again, or now.
    Restart,
    /// End it until it is started by [`Self::Restart`].
    Stop,
}

/// The messages to the actor of a backend.
#[derive(Clone, Copy, Debug)]
pub(super) enum BackendOrder {
    Command(BackendCommand),
    /// The pool of its instances needs it.
    Pool(PoolOrder),
}

/// A backend as readers see it.
#[derive(Clone, Debug)]
pub struct BackendView {
    pub config: Arc<BackendConfig>,
    pub state: BackendState,
    /// Why it is in this state.
    pub reason: Option<String>,
    /// Since when, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// When it is tried again, on the monotonic clock.
    pub retry_at_ms: Option<u64>,
    /// The link of the main instance, if it runs.
    pub link: Option<Arc<dyn Link>>,
    /// How its instances are lent to calls.
    pub pool_mode: PoolMode,
    pub pid: Option<u32>,
    /// What it has said of itself, now or the last time.
    pub server: Option<Arc<ServerInfo>>,
    /// What it offers, now or the last time; None as long as that is not known.
    pub lists: Option<Arc<BackendLists>>,
    /// What it lists or should list and clients are not offered, and why.
    pub list_problems: Arc<[String]>,
    /// An instance of this broker has sent the lists. Otherwise they are those that the store has kept.
    pub has_announced: bool,
}

impl BackendView {
    /// What is known of its lists.
    pub(super) fn known(&self) -> Known {
        match self.lists {
            None => Known::Nothing,
            Some(_) if self.has_announced => Known::Announced,
            Some(_) => Known::Kept,
        }
    }

    /// The affinity of a call of this method, which says what instance the call needs. `profile` is what its caller can be asked
    /// for, and `owner` names the owner of an instance of the caller. Only tools, prompts and resources ask.
    pub fn affinity(&self, method: &str, profile: Profile, owner: impl FnOnce(Sharing) -> Arc<str>) -> Affinity {
        let may_ask = matches!(method, "tools/call" | "prompts/get" | "resources/read");
        self.pool_mode.affinity(profile, may_ask, owner)
    }

    /// The owner of the instance that reports changes to a caller; `None` for the main instance.
    pub fn owner(&self, owner: impl FnOnce(Sharing) -> Arc<str>) -> Option<Arc<str>> {
        let sharing = match self.link {
            Some(_) => self.pool_mode.sharing,
            // It will be started as its table says.
            None => self.config.sharing,
        };
        (sharing != Sharing::Project).then(|| owner(sharing))
    }

    /// Whether it does not run and will not tell soon what it offers.
    pub fn has_failed(&self) -> bool {
        matches!(
            self.state,
            BackendState::Failed | BackendState::Disabled | BackendState::Backoff
        )
    }
}

impl BackendShared {
    pub(super) fn new(
        project: ProjectId,
        view: BackendView,
        metrics: Arc<ActorMetrics>,
        tell: impl Fn(BackendOrder) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let tell: Arc<dyn Fn(BackendOrder) + Send + Sync> = Arc::new(tell);
        let order_of_pool = Arc::clone(&tell);
        Arc::new(Self {
            project,
            name: view.config.name.clone(),
            checkouts: Checkouts::new(view.config.concurrency, move |order| {
                order_of_pool(BackendOrder::Pool(order));
            }),
            calls: Arc::default(),
            parked: ParkedCalls::default(),
            subscribed: SubscribedOwners::default(),
            urls: Arc::default(),
            log: Arc::default(),
            counters: Arc::default(),
            first_start_ms: now().mono_ms,
            view: watch::Sender::new(Arc::new(view)),
            metrics,
            tell,
        })
    }

    /// The backend as it is now.
    pub fn view(&self) -> Arc<BackendView> {
        Arc::clone(&self.view.borrow())
    }

    /// The present view, and the later ones as they come.
    pub fn views(&self) -> watch::Receiver<Arc<BackendView>> {
        self.view.subscribe()
    }

    /// Its actor as data.
    pub(super) fn metrics_node(&self) -> ActorNode {
        self.metrics.node(Vec::new())
    }

    /// Calls that wait for their turn.
    pub fn waiting_len(&self) -> usize {
        self.checkouts.waiting_len()
    }

    /// Asks the backend's actor for something. It answers by a change of the view.
    pub fn command(&self, command: BackendCommand) {
        (self.tell)(BackendOrder::Command(command));
    }

    /// Ends a call in the name of an operator. False if there is no such call, or its caller gets another answer already.
    pub fn end_call(&self, id: Uuid) -> bool {
        let Some(call) = self.calls.find(id) else {
            return false;
        };
        let is_ended = call.end();
        if is_ended {
            // A parked one has no task that could drop it.
            drop(self.parked.take_entry(&call));
        }
        is_ended
    }

    pub(super) fn change_view(&self, change: impl FnOnce(&mut BackendView)) {
        self.view.send_modify(|view| change(Arc::make_mut(view)));
    }
}
