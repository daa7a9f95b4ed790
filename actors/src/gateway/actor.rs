//! The gateway of a project: the parent of its backends. It makes their routing table, and keeps them as the configuration file
//! and the store have them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Supervised, fut::wrap_future};
use tokio::sync::watch;

use super::{
    BackendState,
    added::{AddedBackends, BackendTables},
    backend::{ADDED_LISTS_BYTES_MAX, Backend, Ordered, Pending, Reconfigure, Remove},
    kept_lists::KeptLists,
    launch::Launcher,
    lists::ListKind,
    names::Naming,
    room::Room,
    routing_table::{Offer, RoutingTable},
    shared::{BackendOrder, BackendShared, GatewayShared, Offered},
};
use crate::{
    clock::now,
    model::{BackendConfig, BackendName, BackendsConfig, ProjectId},
    ops::OrderedOps,
    storage::{Store, Table},
    supervise::{self, ActorMetrics, ActorNode, Address, Envelope, RestartPolicy},
};

/// The shortest time between two announcements of changed lists.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);
/// Ambiguous names that one line of the log shows.
const LOGGED_NAMES_MAX: usize = 10;
/// How long a backend whose actor has panicked too often rests.
const PANICKED_RETRY: Duration = Duration::from_secs(300);
/// How long after a failure the added backends are read again.
const LOAD_RETRY: Duration = Duration::from_secs(1);

/// What the gateways of all projects share.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    pub launcher: Arc<dyn Launcher>,
    pub tables: Arc<dyn BackendTables>,
    /// The backends of all projects, as the configuration has them now.
    pub backends: watch::Receiver<Arc<BackendsConfig>>,
    pub naming: Naming,
    /// How long the first lists wait for backends that have not listed what they offer.
    pub list_wait: Duration,
    /// Notifies clients of changed lists.
    pub announces_lists: bool,
}

/// The gateway of one project.
pub struct Gateway {
    project: ProjectId,
    settings: GatewaySettings,
    restarts: RestartPolicy,
    shared: Arc<GatewayShared>,
    store: Arc<dyn Store>,
    added: AddedBackends,
    /// Reads of the added backends: the last one holds.
    loads: OrderedOps<Self>,
    is_load_due: bool,
    /// The last read has failed, as the log says.
    has_load_failed: bool,
    kept_lists: Arc<KeptLists>,
    /// What added backends may offer.
    added_lists: Arc<Room>,
    address: Address<Self>,
    children: BTreeMap<BackendName, Child>,
    /// When changed lists were announced last, on the monotonic clock.
    announced_ms: Option<u64>,
    /// The lists of all backends together, and of each alone, that have changed since.
    to_announce: (ChangedLists, BTreeMap<BackendName, ChangedLists>),
    is_announcement_due: bool,
}

/// Which lists have changed, in the order of [`ListKind::ALL`].
type ChangedLists = [bool; ListKind::ALL.len()];

struct Child {
    shared: Arc<BackendShared>,
    /// The configuration that it was sent last. Its view follows.
    config: Arc<BackendConfig>,
    address: Address<Backend>,
}

/// A gateway as its project sees it.
#[derive(Clone)]
pub struct GatewayHandle {
    pub(super) project: ProjectId,
    shared: Arc<GatewayShared>,
    pub(super) store: Arc<dyn Store>,
    pub(super) address: Address<Gateway>,
    pub(super) settings: GatewaySettings,
}

impl GatewayHandle {
    /// What readers see.
    pub fn shared(&self) -> &Arc<GatewayShared> {
        &self.shared
    }

    /// What the gateways of all projects share.
    pub fn settings(&self) -> &GatewaySettings {
        &self.settings
    }

    /// Whether the project has backends. Those of the file count before they are served.
    pub fn has_backends(&self) -> bool {
        let of_file = || {
            let all = self.settings.backends.borrow();
            all.get(&self.project).is_some_and(|backends| !backends.is_empty())
        };
        !self.shared.offered().backends.is_empty() || of_file()
    }

    /// The actors as data.
    pub fn observe(&self) -> ActorNode {
        let offered = self.shared.offered();
        let children = offered.backends.iter().map(|backend| backend.metrics_node()).collect();
        self.address.metrics().node(children)
    }

    /// Ends all backends: the project has ended.
    pub fn close(&self) {
        self.address.report(Close);
    }
}

/// Reads the added backends from the store.
pub(super) struct LoadAdded {
    pub pending: Pending,
}

/// What a backend offers, or its state, may have changed. A caller may wait until that is published.
struct BackendChanged(Pending);

/// The actor of a backend has panicked too often.
struct BackendDown(BackendName);

/// The project has ended.
struct Close;

impl Gateway {
    /// Starts the gateway of a project, which keeps what its backends offer in the store. `on_give_up` runs if it panics
    /// too often.
    pub fn start(
        project: &ProjectId,
        settings: GatewaySettings,
        store: Arc<dyn Store>,
        restarts: RestartPolicy,
        on_give_up: impl FnOnce() + 'static,
    ) -> GatewayHandle {
        let shared = GatewayShared::new();
        let metrics = ActorMetrics::new("gateway", project.as_str());
        let address = supervise::start(metrics, restarts, on_give_up, |address| Self {
            project: project.clone(),
            settings: settings.clone(),
            restarts,
            shared: Arc::clone(&shared),
            store: Arc::clone(&store),
            added: AddedBackends::default(),
            loads: OrderedOps::default(),
            is_load_due: false,
            has_load_failed: false,
            kept_lists: KeptLists::new(project.clone(), Arc::clone(&store)),
            added_lists: Room::new(ADDED_LISTS_BYTES_MAX),
            address,
            children: BTreeMap::new(),
            announced_ms: None,
            to_announce: Default::default(),
            is_announcement_due: false,
        });
        GatewayHandle {
            project: project.clone(),
            shared,
            store,
            address,
            settings,
        }
    }

    /// Reads the added backends, and serves them.
    fn load_added(&mut self, pending: Pending, ctx: &mut Context<Self>) {
        let op = self.store.list(Table::AddedBackends, Vec::new());
        OrderedOps::then(|gateway: &mut Self| &mut gateway.loads, op, self, ctx, {
            move |gateway, stored, ctx| match stored {
                Ok(stored) => {
                    gateway.has_load_failed = false;
                    gateway.added.set(stored, &*gateway.settings.tables);
                    gateway.reconcile(&pending, ctx);
                }
                Err(error) => {
                    if !std::mem::replace(&mut gateway.has_load_failed, true) {
                        tracing::warn!(
                            project = %gateway.project,
                            %error,
                            "added backends cannot be read; retrying each second"
                        );
                    }
                    if !std::mem::replace(&mut gateway.is_load_due, true) {
                        ctx.run_later(LOAD_RETRY, |gateway, ctx| {
                            gateway.is_load_due = false;
                            gateway.load_added(None, ctx);
                        });
                    }
                }
            }
        });
    }

    /// Brings the backends in line with the configuration file and the store.
    fn reconcile(&mut self, pending: &Pending, ctx: &mut Context<Self>) {
        let all = Arc::clone(&self.settings.backends.borrow_and_update());
        let of_file = all.get(&self.project).map(Vec::as_slice).unwrap_or_default();
        let wanted = self.added.beside(of_file, &self.project);
        let is_wanted = |name: &BackendName| wanted.iter().any(|config| config.name == *name);
        self.children.retain(|name, child| {
            let stays = is_wanted(name);
            if !stays {
                child.address.report(Remove);
            }
            stays
        });
        let names = wanted.iter().map(|config| config.name.clone()).collect();
        if self.added.are_known() {
            let kept_lists = Arc::clone(&self.kept_lists);
            ctx.spawn(wrap_future(async move { kept_lists.retain(names).await }));
        } else {
            self.kept_lists.allow(names);
        }
        for config in wanted {
            match self.children.get_mut(&config.name) {
                Some(child) if child.config == config && child.shared.view().config == config => {}
                Some(child) => {
                    child.config = Arc::clone(&config);
                    child.address.report(Reconfigure(config, pending.clone()));
                }
                None => self.add(config),
            }
        }
        self.publish(ctx);
    }

    fn add(&mut self, config: Arc<BackendConfig>) {
        let name = config.name.clone();
        let label = format!("{}/{name}", self.project);
        let metrics = ActorMetrics::new("backend", label);
        let parent = self.address.clone();
        let on_give_up = {
            let (parent, name) = (parent.clone(), name.clone());
            move || parent.report(BackendDown(name))
        };
        let (project, launcher) = (self.project.clone(), Arc::clone(&self.settings.launcher));
        let keeping = (Arc::clone(&self.kept_lists), self.added_lists.holder());
        let mut made = None;
        let address = supervise::start(Arc::clone(&metrics), self.restarts, on_give_up, |address| {
            let orders = address.clone();
            let view = Backend::first_view(Arc::clone(&config));
            let shared = BackendShared::new(project, view, Arc::clone(&metrics), move |order| match order {
                BackendOrder::Command(_) => drop(orders.tell(Ordered(order))),
                // There are as many as instances, and none may be lost.
                BackendOrder::Pool(_) => orders.report(Ordered(order)),
            });
            made = Some(Arc::clone(&shared));
            let changed = Box::new(move |pending| parent.report(BackendChanged(pending)));
            Backend::new(shared, launcher, keeping, address, metrics, changed)
        });
        if let Some(shared) = made {
            self.children.insert(
                name,
                Child {
                    shared,
                    config,
                    address,
                },
            );
        }
    }

    /// Makes the routing table of what the backends offer now.
    fn publish(&mut self, ctx: &mut Context<Self>) {
        let (mut backends, mut offers, mut known) = (Vec::new(), Vec::new(), Vec::new());
        for child in self.children.values() {
            let view = child.shared.view();
            let is_listed = view.state != BackendState::Disabled;
            let lists = view.lists.clone().filter(|_| is_listed).unwrap_or_default();
            backends.push(Arc::clone(&child.shared));
            known.push(view.known());
            offers.push(Offer {
                config: Arc::clone(&view.config),
                lists,
            });
        }
        let routes = RoutingTable::new(&offers, &self.settings.naming);
        let before = self.shared.offered();
        self.note_changes(&before, &backends, &routes);
        self.log_ambiguous(&before.routes, &routes);
        self.shared.publish(Offered {
            backends,
            routes,
            known,
            is_complete: self.added.are_known(),
        });
        self.announce_later(ctx);
    }

    /// Notes which lists are others than before: of all backends together, and of each alone.
    fn note_changes(&mut self, before: &Offered, backends: &[Arc<BackendShared>], routes: &RoutingTable) {
        let (together, alone) = &mut self.to_announce;
        let changed = |(was, is): (Option<usize>, Option<usize>)| {
            ListKind::ALL.map(|kind| before.routes.listing(was, kind).text() != routes.listing(is, kind).text())
        };
        note(together, changed((None, None)));
        let names = before.backends.iter().chain(backends).map(|backend| &backend.name);
        // One that is not among them offers nothing.
        let position = |of: &[Arc<BackendShared>], name: &BackendName| {
            let at = of.iter().position(|backend| backend.name == *name);
            Some(at.unwrap_or(usize::MAX))
        };
        for name in names.collect::<BTreeSet<_>>() {
            let changed = changed((position(&before.backends, name), position(backends, name)));
            if changed.contains(&true) {
                note(alone.entry(name.clone()).or_default(), changed);
            }
        }
    }

    /// Logs which names keep their prefix, although names have none, if these are others than before.
    fn log_ambiguous(&self, before: &RoutingTable, now: &RoutingTable) {
        for kind in [ListKind::Tools, ListKind::Prompts] {
            let (list, names) = (kind.member(), now.listing(None, kind).ambiguous());
            if names.is_empty() || names == before.listing(None, kind).ambiguous() {
                continue;
            }
            let first: Vec<&str> = names.iter().take(LOGGED_NAMES_MAX).map(|name| &**name).collect();
            tracing::warn!(
                project = %self.project,
                ambiguous = names.len(),
                names = first.join(" "),
                "{list} keep the names of their backends, because others have the same name"
            );
        }
    }

    /// Announces changed lists now, or once [`ANNOUNCE_INTERVAL`] has passed since the last time.
    fn announce_later(&mut self, ctx: &mut Context<Self>) {
        let (together, alone) = &self.to_announce;
        if self.is_announcement_due || (!together.contains(&true) && alone.is_empty()) {
            return;
        }
        let interval = u64::try_from(ANNOUNCE_INTERVAL.as_millis()).unwrap_or(u64::MAX);
        let due_ms = self.announced_ms.map_or(0, |at| at + interval);
        match due_ms.saturating_sub(now().mono_ms) {
            0 => self.announce(),
            pause_ms => {
                self.is_announcement_due = true;
                ctx.run_later(Duration::from_millis(pause_ms), |gateway, _| {
                    gateway.is_announcement_due = false;
                    gateway.announce();
                });
            }
        }
    }

    fn announce(&mut self) {
        let (together, alone) = std::mem::take(&mut self.to_announce);
        if !self.settings.announces_lists {
            return;
        }
        self.announced_ms = Some(now().mono_ms);
        let children = &self.children;
        self.shared.revise(|revisions| {
            revisions.together.add(together);
            for (name, changed) in alone {
                revisions.alone.entry(name).or_default().add(changed);
            }
            // Of those that have gone, what has changed is announced once.
            revisions.alone.retain(|name, _| children.contains_key(name));
        });
    }

    /// Follows the configuration until the process ends.
    fn follow_configuration(&mut self, ctx: &mut Context<Self>) {
        let mut backends = self.settings.backends.clone();
        let changed = async move { backends.changed().await.is_ok() };
        ctx.spawn(wrap_future(changed).map(|has_changed, gateway: &mut Self, ctx| {
            if has_changed {
                gateway.reconcile(&None, ctx);
                gateway.follow_configuration(ctx);
            }
        }));
    }
}

fn note(known: &mut ChangedLists, changed: ChangedLists) {
    for (known, changed) in known.iter_mut().zip(changed) {
        *known |= changed;
    }
}

impl Actor for Gateway {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.reconcile(&None, ctx);
        self.load_added(None, ctx);
        self.follow_configuration(ctx);
    }
}

impl Supervised for Gateway {
    /// The backends and their addresses stay valid.
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.is_announcement_due = false;
        self.loads = OrderedOps::default();
        self.is_load_due = false;
    }
}

impl Handler<Envelope<LoadAdded>> for Gateway {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<LoadAdded>, ctx: &mut Context<Self>) {
        self.load_added(message.pending, ctx);
    }
}

impl Handler<Envelope<BackendChanged>> for Gateway {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<BackendChanged>, ctx: &mut Context<Self>) {
        let BackendChanged(pending) = message;
        self.publish(ctx);
        drop(pending);
    }
}

impl Handler<Envelope<BackendDown>> for Gateway {
    type Result = ();

    /// The backend has failed, and its project continues. It gets an actor again after a rest.
    fn handle(&mut self, Envelope { message, .. }: Envelope<BackendDown>, ctx: &mut Context<Self>) {
        let BackendDown(name) = message;
        tracing::error!(project = %self.project, backend = %name, "the actor of a backend failed too often; it is not restarted");
        if let Some(child) = self.children.get(&name) {
            child.shared.change_view(|view| {
                view.state = BackendState::Failed;
                view.reason = Some("its actor failed too often".to_owned());
                (view.link, view.pid) = (None, None);
                let rest_ms = u64::try_from(PANICKED_RETRY.as_millis()).unwrap_or(u64::MAX);
                view.retry_at_ms = Some(now().mono_ms.saturating_add(rest_ms));
            });
        }
        self.publish(ctx);
        ctx.run_later(PANICKED_RETRY, move |gateway, ctx| {
            gateway.children.remove(&name);
            gateway.reconcile(&None, ctx);
        });
    }
}

impl Handler<Envelope<Close>> for Gateway {
    type Result = ();

    fn handle(&mut self, _: Envelope<Close>, ctx: &mut Context<Self>) {
        self.kept_lists.close();
        for child in std::mem::take(&mut self.children).into_values() {
            child.address.report(Remove);
        }
        self.publish(ctx);
        self.address.metrics().mark_finished();
        ctx.stop();
    }
}

#[cfg(feature = "faults")]
impl GatewayHandle {
    /// Makes the actor of the gateway, or that of a backend, panic. For tests only.
    pub fn panic(&self, backend: Option<&str>) {
        self.address.report(PanicIn(backend.map(str::to_owned)));
    }
}

/// Makes this actor, or that of a backend, panic. For tests only.
#[cfg(feature = "faults")]
struct PanicIn(Option<String>);

#[cfg(feature = "faults")]
impl Handler<Envelope<PanicIn>> for Gateway {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<PanicIn>, _: &mut Context<Self>) {
        match message.0 {
            None => panic!("a fault was injected"),
            Some(name) => {
                if let Some(child) = self.children.get(name.as_str()) {
                    child.address.report(supervise::Panic);
                }
            }
        }
    }
}
