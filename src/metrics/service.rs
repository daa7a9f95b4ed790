//! [`Metrics`]: gathers the figures of this replica for a scrape, for the statistics and for the series.

use std::{collections::HashMap, sync::Arc};

use actors::{
    broker::BrokerHandle,
    clock::{now, rfc3339_text},
    desk::Presence,
    locked::Locked,
    metrics::{
        self, ActorKind, Counter, CounterVec, HistogramSnapshot, Labelled, METRICS, MessageCounts, StoreOperation,
        TransportKind, WakeWay,
    },
    model::{DeadLetterReason, ProjectId, Urgency, WakeResult},
    project::{MailboxFigures, ProjectFigures, ProjectHandle},
    storage::{StorageHealth, Usage},
};
use rest::{
    series::Series,
    stats::{
        BackendStats, BrokerStats, ConnectionStats, DeskStats, InboxStats, Latency, ReplicaStats, SessionStats, Stats,
        StorageStats,
    },
};

use super::{
    backends::put_backends,
    catalog::{self, Metric},
    exposition::Format,
    family::{Families, Value},
    history::{History, Point},
    process::ProcessFigures,
    requests,
};

/// The label value of all projects that are not shown by name.
const OTHER_PROJECTS: &str = "_other";

const REASONS: [DeadLetterReason; 5] = [
    DeadLetterReason::Expired,
    DeadLetterReason::DeliveryLimit,
    DeadLetterReason::RecipientGone,
    DeadLetterReason::Rejected,
    DeadLetterReason::TransformFailed,
];

/// The live connections of a project by [`TransportKind::index`](Labelled::index).
type ConnectionsOf = dyn Fn(&ProjectId) -> [usize; TransportKind::LEN] + Send + Sync;

/// Figures that the transports have.
pub struct TransportFigures {
    /// Open HTTP sessions.
    pub http_sessions: Box<dyn Fn() -> usize + Send + Sync>,
    /// Live connections of a project by [`TransportKind::index`](Labelled::index).
    pub connections_of: Box<ConnectionsOf>,
}

/// The figures of this replica.
pub struct Metrics {
    broker: BrokerHandle,
    transports: TransportFigures,
    started_unix_ms: u64,
    /// The series of the last hour.
    history: Locked<History>,
    /// What the storage keeps of the projects that are shown by name, as of the last sample.
    usage: Locked<HashMap<ProjectId, (Usage, usize)>>,
}

/// The counts and figures of the projects that share a label value.
struct Labels {
    project: String,
    counts: MessageCounts,
    figures: ProjectFigures,
    usage: Option<(Usage, usize)>,
}

impl Metrics {
    /// The figures of a broker that starts now.
    pub fn new(broker: BrokerHandle, transports: TransportFigures) -> Arc<Self> {
        Arc::new(Self {
            broker,
            transports,
            started_unix_ms: now().unix_ms,
            history: Locked::default(),
            usage: Locked::default(),
        })
    }

    /// The body of `/metrics`.
    ///
    /// # Errors
    /// When the encoder fails, which plain values in memory never cause.
    pub fn expose(&self, format: Format) -> Result<Vec<u8>, std::fmt::Error> {
        format.encode(self.gather())
    }

    /// The statistics of this replica: of one project, or (None) of the whole broker.
    pub fn stats(&self, project: Option<&ProjectHandle>) -> Stats {
        if let Some(project) = project {
            let mut stats = self.stats_of(std::slice::from_ref(project));
            stats.messages = project.counts();
            return stats;
        }
        let mut stats = self.totals();
        stats.broker = Some(self.broker_stats(&self.broker.open_projects()));
        stats
    }

    /// The statistics of all projects together.
    pub fn totals(&self) -> Stats {
        let mut stats = self.stats_of(&self.broker.open_projects());
        stats.messages = metrics::all_projects().total;
        stats
    }

    fn stats_of(&self, projects: &[ProjectHandle]) -> Stats {
        let mut stats = Stats {
            replicas: 1,
            replica_list: vec![ReplicaStats {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                started_at: rfc3339_text(self.started_unix_ms),
                is_self: true,
                ..ReplicaStats::default()
            }],
            ..Stats::default()
        };
        for project in projects {
            self.add_project(&mut stats, project);
        }
        stats
    }

    /// The series of this replica: of one project, or (None) of the whole broker. A project that is not shown by name has
    /// none. `window_seconds` and `step_seconds` are rounded up to whole steps of the sampler.
    pub fn series(&self, project: Option<&ProjectId>, window_seconds: u64, step_seconds: u64) -> Series {
        self.history.lock().series(project, window_seconds, step_seconds)
    }

    /// Takes the sample of the series of this moment. Call once for each step.
    pub async fn sample(&self) {
        let (at, view) = (now().unix_ms / 1000, metrics::all_projects());
        let process = ProcessFigures::read();
        let mut points = Vec::with_capacity(view.labelled.len());
        let mut total = Point::of_counts(&view.total);
        for project in self.broker.open_projects() {
            let (figures, id) = (project.figures(), project.id());
            let connections = (self.transports.connections_of)(id).iter().sum();
            total.add_figures(&figures, connections);
            if let Some((_, counts)) = view.labelled.iter().find(|(labelled, _)| labelled == id) {
                let mut point = Point::of_counts(counts);
                point.add_figures(&figures, connections);
                points.push((id.clone(), point));
            }
        }
        total.add_process(&process.stats);
        self.history.lock().push(at, total, points);
        self.sample_usage(view.labelled.into_iter().map(|(id, _)| id)).await;
    }

    /// Asks the storage what it keeps of these projects. A storage that fails is not asked for the rest.
    async fn sample_usage(&self, projects: impl Iterator<Item = ProjectId>) {
        let mut usages = HashMap::new();
        for id in projects {
            let Ok(project) = self.broker.project(&id).await else {
                continue;
            };
            let Ok(usage) = project.usage().await else { return };
            usages.insert(id, usage);
        }
        *self.usage.lock() = usages;
    }

    fn usage_of(&self, id: &ProjectId) -> Option<(Usage, usize)> {
        self.usage.lock().get(id).copied()
    }

    fn add_project(&self, stats: &mut Stats, project: &ProjectHandle) {
        let figures = project.figures();
        stats.sessions.add(SessionStats {
            active: figures.active as u64,
            stale: figures.stale as u64,
            disconnected: figures.disconnected as u64,
        });
        stats.inboxes.add(InboxStats {
            waiting: figures.waiting as u64,
            longest: figures.longest as u64,
            over_warning: figures.over_warning as u64,
        });
        let connections = (self.transports.connections_of)(project.id());
        stats.connections.add(ConnectionStats {
            websocket: connections[TransportKind::Websocket.index()] as u64,
            http: (connections[TransportKind::Http.index()] + connections[TransportKind::Forwarded.index()]) as u64,
            local: (connections[TransportKind::Local.index()] + connections[TransportKind::Rubberduck.index()]) as u64,
        });
        stats.protocols += figures.protocols as u64;
        stats.desk.add(DeskStats {
            open: figures.questions.iter().sum::<usize>() as u64,
            urgent: figures.questions[Urgency::High as usize] as u64,
            unseen: figures.questions_unseen as u64,
        });
        stats.backends.add(BackendStats {
            all: figures.backends as u64,
            ready: figures.backends_ready as u64,
            failed: figures.backends_failed as u64,
        });
        for replica in &mut stats.replica_list {
            replica.sessions += figures.connected as u64;
        }
        if let Some((usage, dead_letters)) = self.usage_of(project.id()) {
            stats.storage.add(StorageStats {
                dead_letters: dead_letters as u64,
                dead_letter_bytes: usage.dead_letters as u64,
                message_bytes: usage.messages as u64,
                session_bytes: usage.sessions as u64,
            });
        }
    }

    fn broker_stats(&self, projects: &[ProjectHandle]) -> BrokerStats {
        let mut store_operation = HistogramSnapshot::default();
        for operation in &METRICS.store_operations {
            store_operation.merge(&operation.snapshot());
        }
        let latency = |histogram: HistogramSnapshot| Latency::new(histogram.sum, histogram.classic);
        let mailboxes = self.mailboxes(projects.iter().map(ProjectHandle::figures));
        BrokerStats {
            projects: projects.len() as u64,
            uptime_seconds: now().unix_ms.saturating_sub(self.started_unix_ms) / 1000,
            accept: latency(METRICS.accept.snapshot()),
            deliver: latency(METRICS.deliver.snapshot()),
            store_operation: latency(store_operation),
            actor_restarts: METRICS.actor_restarts.sum(),
            mailbox_len: mailboxes.iter().map(|mailbox| mailbox.sum as u64).sum(),
            store_failures: METRICS.store_failures.sum(),
            rate_limited: METRICS.rate_limited.sum(),
            authentication_failures: METRICS.authentication_failures.sum(),
            process: ProcessFigures::read().stats,
        }
    }

    fn mailboxes(&self, figures: impl Iterator<Item = ProjectFigures>) -> [MailboxFigures; ActorKind::LEN] {
        let mut mailboxes = [MailboxFigures::default(); ActorKind::LEN];
        for figures in figures {
            for (all, of_project) in mailboxes.iter_mut().zip(figures.mailboxes) {
                all.sum += of_project.sum;
                all.max = all.max.max(of_project.max);
            }
        }
        let (root, listener) = self.broker.root_mailboxes();
        mailboxes[ActorKind::Broker.index()].add(root);
        mailboxes[ActorKind::Bridge.index()].add(listener.unwrap_or(0));
        mailboxes
    }

    fn gather(&self) -> Families {
        let mut families = Families::default();
        self.put_health(&mut families);
        let labels = self.labels();
        put_messages(&mut families, &labels);
        put_projects(&mut families, &labels);
        put_desk(&mut families, &labels);
        put_backends(&mut families, &self.broker.open_projects());
        self.put_connections(&mut families);
        self.put_actors(&mut families, labels);
        put_wakes(&mut families);
        self.put_storage(&mut families);
        self.put_process(&mut families);
        families
    }

    /// The projects that are shown by name, sorted, and then all others as one.
    fn labels(&self) -> Vec<Labels> {
        let view = metrics::all_projects();
        let mut figures: HashMap<_, _> = self
            .broker
            .open_projects()
            .iter()
            .map(|project| (project.id().clone(), project.figures()))
            .collect();
        let mut labels: Vec<_> = view
            .labelled
            .into_iter()
            .map(|(id, counts)| Labels {
                figures: figures.remove(&id).unwrap_or_default(),
                usage: self.usage_of(&id),
                project: id.as_str().to_owned(),
                counts,
            })
            .collect();
        if view.has_others {
            let mut others = ProjectFigures::default();
            for figures in figures.into_values() {
                add_figures(&mut others, &figures);
            }
            labels.push(Labels {
                project: OTHER_PROJECTS.to_owned(),
                counts: view.others,
                figures: others,
                usage: None,
            });
        }
        labels
    }

    fn put_health(&self, families: &mut Families) {
        let storage = self.broker.storage();
        let health = storage.health();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let labels = [version, storage.name().to_owned()];
        families.put_labelled(catalog::BUILD_INFO, [(labels, Value::Integer(1))]);
        families.put(catalog::READY, !matches!(health, StorageHealth::Unavailable(_)));
        families.put(catalog::HEALTHY, matches!(health, StorageHealth::Healthy));
        families.put(catalog::PROJECTS, self.broker.open_projects().len());
    }

    fn put_connections(&self, families: &mut Families) {
        let live = TransportKind::ALL.iter().map(|kind| {
            let len = METRICS.connections[kind.index()].get().max(0).cast_unsigned();
            ([kind.as_str().to_owned()], Value::Integer(len))
        });
        families.put_labelled(catalog::CONNECTIONS, live);
        put_counters(families, catalog::CONNECTIONS_OPENED, &METRICS.connections_opened);
        put_counters(families, catalog::CONNECTIONS_REFUSED, &METRICS.connections_refused);
        families.put(catalog::HTTP_SESSIONS, (self.transports.http_sessions)());
        requests::put_requests(families);
        put_counters(families, catalog::RATE_LIMITED, &METRICS.rate_limited);
        put_counters(
            families,
            catalog::AUTHENTICATION_FAILURES,
            &METRICS.authentication_failures,
        );
    }

    fn put_actors(&self, families: &mut Families, labels: Vec<Labels>) {
        let mailboxes = self.mailboxes(labels.into_iter().map(|labels| labels.figures));
        let of_kinds = |figure: fn(&MailboxFigures) -> usize| {
            let kinds = ActorKind::ALL.iter().zip(mailboxes);
            kinds.map(move |(kind, mailbox)| ([kind.as_str().to_owned()], figure(&mailbox).into()))
        };
        families.put_labelled(catalog::ACTOR_MAILBOX, of_kinds(|mailbox| mailbox.sum));
        families.put_labelled(catalog::ACTOR_MAILBOX_MAX, of_kinds(|mailbox| mailbox.max));
        put_counters(families, catalog::ACTOR_RESTARTS, &METRICS.actor_restarts);
        put_counters(families, catalog::ACTORS_GIVEN_UP, &METRICS.actors_given_up);
    }

    fn put_storage(&self, families: &mut Families) {
        let operations = StoreOperation::ALL.iter().map(|operation| {
            let histogram = METRICS.store_operations[operation.index()].snapshot();
            ([operation.as_str().to_owned()], Value::from(histogram))
        });
        families.put_labelled(catalog::STORE_OPERATION_SECONDS, operations);
        put_counters(families, catalog::STORE_FAILURES, &METRICS.store_failures);
        let storage = self.broker.storage();
        let put = |families: &mut Families, metric, counter: &Counter| families.put(metric, counter.get());
        if storage.name() == "disk" {
            families.put(catalog::DISK_COMMIT_SECONDS, METRICS.disk_commits.snapshot());
            put(families, catalog::DISK_RECORDS, &METRICS.disk_records);
            put(families, catalog::DISK_FAILURES, &METRICS.disk_failures);
        }
        let Some(server) = storage.figures().server else { return };
        families.put(catalog::REDIS_BATCH_SECONDS, METRICS.redis_batches.snapshot());
        put(families, catalog::REDIS_OPERATIONS, &METRICS.redis_operations);
        put(families, catalog::REDIS_FAILURES, &METRICS.redis_failures);
        families.put(catalog::REDIS_CONNECTED, server.is_connected);
        put(families, catalog::REDIS_CONNECTS, &METRICS.redis_connects);
        families.put(catalog::BREAKERS_OPEN, server.open_breakers);
        put(families, catalog::BREAKER_OPENINGS, &METRICS.breaker_openings);
        put(families, catalog::LOST_EVENTS, &METRICS.lost_events);
        families.put(catalog::PIPELINE_OPERATIONS, server.queued);
        families.put(catalog::PIPELINE_OPERATIONS_MAX, server.queued_max);
        families.put(catalog::PIPELINE_BYTES, server.queued_bytes);
        #[allow(clippy::cast_precision_loss, reason = "a lag fits into 52 bits")]
        families.put(catalog::BRIDGE_LAG, METRICS.bridge_lag_ns.get() as f64 * 1e-9);
        put(families, catalog::BRIDGE_FRAMES, &METRICS.bridge_frames);
        put(families, catalog::BRIDGE_GAPS, &METRICS.bridge_gaps);
        put(families, catalog::BRIDGE_DROPPED, &METRICS.bridge_frames_dropped);
        put(families, catalog::BRIDGE_DISCONNECTS, &METRICS.bridge_disconnects);
        put(families, catalog::RESYNCS, &METRICS.resyncs);
        put(families, catalog::RESYNC_FAILURES, &METRICS.resyncs_failed);
    }

    fn put_process(&self, families: &mut Families) {
        let process = ProcessFigures::read();
        families.put(catalog::PROCESS_CPU, process.stats.cpu_seconds);
        for (metric, value) in [
            (catalog::PROCESS_RESIDENT, process.stats.resident_bytes),
            (catalog::PROCESS_RESIDENT_PEAK, process.peak_bytes),
            (catalog::PROCESS_ANONYMOUS, process.anonymous_bytes),
            (catalog::PROCESS_OPEN_FDS, process.stats.open_files),
            (catalog::PROCESS_MAX_FDS, process.files_max),
            (catalog::PROCESS_THREADS, process.stats.threads),
        ] {
            if value > 0 {
                families.put(metric, value);
            }
        }
        #[allow(clippy::cast_precision_loss, reason = "milliseconds since 1970 fit into 52 bits")]
        families.put(catalog::PROCESS_START, self.started_unix_ms as f64 / 1000.0);
        families.put(catalog::SPANS_DROPPED, METRICS.dropped_spans.get());
    }
}

fn put_wakes(families: &mut Families) {
    let wakes = WakeWay::ALL.iter().flat_map(|way| {
        let results = &METRICS.wakes[way.index()];
        WakeResult::ALL.iter().map(|result| {
            let labels = [way.as_str().to_owned(), result.as_str().to_owned()];
            (labels, results.of(*result).get().into())
        })
    });
    families.put_labelled(catalog::WAKES, wakes);
    put_counters(families, catalog::WAKES_HELD, &METRICS.wakes_held);
    put_counters(families, catalog::DELIVERY_REPORTS, &METRICS.delivery_reports);
    put_counters(families, catalog::TRANSFORMS, &METRICS.transforms);
    families.put(catalog::TRANSFORM_SECONDS, METRICS.transform.snapshot());
    families.put(catalog::WAKE_TO_READ, METRICS.wake_to_read.snapshot());
}

fn put_desk(families: &mut Families, labels: &[Labels]) {
    let questions = labels.iter().flat_map(|labels| {
        let open = Urgency::ALL.iter().zip(labels.figures.questions);
        open.map(|(urgency, open)| ([labels.project.clone(), urgency.as_str().to_owned()], open.into()))
    });
    families.put_labelled(catalog::QUESTIONS_OPEN, questions);
    families.put(catalog::QUESTION_WAIT, METRICS.question_wait.snapshot());
    families.put(catalog::QUESTION_ANSWER, METRICS.question_answer.snapshot());
    put_counters(families, catalog::QUESTIONS_CLOSED, &METRICS.questions_closed);
    families.put(catalog::WEBHOOK_FAILURES, METRICS.webhook_failures.get());
    let humans = labels.iter().flat_map(|labels| {
        let here = Presence::ALL.iter().zip(labels.figures.humans);
        here.map(|(presence, here)| ([labels.project.clone(), presence.as_str().to_owned()], here.into()))
    });
    families.put_labelled(catalog::DESK_HUMANS, humans);
    families.put(catalog::YAPS, METRICS.yaps.get());
}

fn put_counters<L: Labelled, const N: usize>(families: &mut Families, metric: Metric, counters: &CounterVec<L, N>) {
    let samples = L::ALL
        .iter()
        .map(|value| ([value.as_str().to_owned()], counters.of(*value).get().into()));
    families.put_labelled(metric, samples);
}

/// Reads a counter of a project.
type Count = fn(&MessageCounts) -> u64;

/// Reads a figure of a project.
type Figure = fn(&ProjectFigures) -> usize;

fn put_messages(families: &mut Families, labels: &[Labels]) {
    let counters: [(Metric, Count); 8] = [
        (catalog::MESSAGES_RECEIVED, |counts| counts.received),
        (catalog::MESSAGES_ACCEPTED, |counts| counts.accepted),
        (catalog::MESSAGES_REFUSED, |counts| counts.refused),
        (catalog::MESSAGES_REPEATED, |counts| counts.repeated),
        (catalog::MESSAGES_ENQUEUED, |counts| counts.enqueued),
        (catalog::MESSAGES_DELIVERED, |counts| counts.delivered),
        (catalog::MESSAGES_ACKNOWLEDGED, |counts| counts.acknowledged),
        (catalog::MESSAGES_REDRIVEN, |counts| counts.redriven),
    ];
    for (metric, count) in counters {
        let samples = labels
            .iter()
            .map(|labels| ([labels.project.clone()], count(&labels.counts).into()));
        families.put_labelled(metric, samples);
    }
    let dead_lettered = labels.iter().flat_map(|labels| {
        REASONS.map(|reason| {
            let count = labels.counts.dead_lettered.of(reason);
            ([labels.project.clone(), reason.as_str().to_owned()], count.into())
        })
    });
    families.put_labelled(catalog::MESSAGES_DEAD_LETTERED, dead_lettered);
    families.put(catalog::ACCEPT_SECONDS, METRICS.accept.snapshot());
    families.put(catalog::DELIVER_SECONDS, METRICS.deliver.snapshot());
}

fn put_projects(families: &mut Families, labels: &[Labels]) {
    let sessions = labels.iter().flat_map(|labels| {
        let ProjectFigures {
            active,
            stale,
            disconnected,
            ..
        } = labels.figures;
        [("active", active), ("stale", stale), ("disconnected", disconnected)]
            .map(|(state, len)| ([labels.project.clone(), state.to_owned()], len.into()))
    });
    families.put_labelled(catalog::SESSIONS, sessions);
    let gauges: [(Metric, Figure); 5] = [
        (catalog::INBOX_MESSAGES, |figures| figures.waiting),
        (catalog::INBOX_MESSAGES_MAX, |figures| figures.longest),
        (catalog::INBOXES_OVER_WARNING, |figures| figures.over_warning),
        (catalog::PROTOCOLS, |figures| figures.protocols),
        (catalog::LENSES, |figures| figures.lenses),
    ];
    for (metric, figure) in gauges {
        let samples = labels
            .iter()
            .map(|labels| ([labels.project.clone()], figure(&labels.figures).into()));
        families.put_labelled(metric, samples);
    }
    let known = labels
        .iter()
        .filter_map(|labels| Some((labels.project.clone(), labels.usage?)));
    let known: Vec<_> = known.collect();
    let dead_letters = known
        .iter()
        .map(|(project, (_, dead_letters))| ([project.clone()], (*dead_letters).into()));
    families.put_labelled(catalog::DEAD_LETTERS, dead_letters);
    let bytes = known.iter().flat_map(|(project, (usage, _))| {
        [
            ("messages", usage.messages),
            ("dead_letters", usage.dead_letters),
            ("sessions", usage.sessions),
            ("idempotency_keys", usage.idempotency_keys),
            ("questions", usage.questions),
        ]
        .map(|(kind, bytes)| ([project.clone(), kind.to_owned()], bytes.into()))
    });
    families.put_labelled(catalog::STORED_BYTES, bytes);
}

fn add_figures(sum: &mut ProjectFigures, more: &ProjectFigures) {
    sum.active += more.active;
    sum.stale += more.stale;
    sum.disconnected += more.disconnected;
    sum.waiting += more.waiting;
    sum.longest = sum.longest.max(more.longest);
    sum.over_warning += more.over_warning;
    sum.protocols += more.protocols;
    sum.lenses += more.lenses;
    sum.questions_unseen += more.questions_unseen;
    sum.backends += more.backends;
    sum.backends_ready += more.backends_ready;
    sum.backends_failed += more.backends_failed;
    for (all, of_project) in sum.questions.iter_mut().zip(more.questions) {
        *all += of_project;
    }
    for (all, of_project) in sum.humans.iter_mut().zip(more.humans) {
        *all += of_project;
    }
    for (all, of_project) in sum.mailboxes.iter_mut().zip(more.mailboxes) {
        all.sum += of_project.sum;
        all.max = all.max.max(of_project.max);
    }
}
