//! The table of all metrics. `/metrics`, docs/metrics.md and the checks of alerts and dashboard come from it.

use std::fmt::Write as _;

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows. Its name ends in `_total`.
    Counter,
    Gauge,
    /// Durations in seconds: classic buckets in text, and native ones where the scraper asks for protobuf.
    Histogram,
}

impl Kind {
    /// The name in the exposition formats.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    pub unit: &'static str,
    /// One sentence, in the text of the exposition too.
    pub help: &'static str,
}

/// Declares constants and the table of them.
macro_rules! metrics {
    ($($constant:ident = $kind:ident $name:literal [$($label:literal),*] $unit:literal, $help:literal;)+) => {
        $(
            pub(super) const $constant: Metric = Metric {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                unit: $unit,
                help: $help,
            };
        )+

        /// All metrics.
        pub const CATALOG: &[Metric] = &[$($constant),+];
    };
}

metrics! {
    BUILD_INFO = Gauge "mcp_broker_build_info" ["version", "storage"] "1",
        "Always 1; the labels say which version runs on which storage.";
    READY = Gauge "mcp_broker_ready" [] "1 or 0",
        "Whether the storage accepts work: 1 if it is healthy or degraded.";
    HEALTHY = Gauge "mcp_broker_healthy" [] "1 or 0",
        "Whether the storage works without restrictions.";
    PROJECTS = Gauge "mcp_broker_projects" [] "projects",
        "Open projects.";

    MESSAGES_RECEIVED = Counter "mcp_broker_messages_received_total" ["project"] "messages",
        "Messages that senders gave to the broker, well formed and valid.";
    MESSAGES_ACCEPTED = Counter "mcp_broker_messages_accepted_total" ["project"] "messages",
        "Messages that were accepted for one recipient or more.";
    MESSAGES_REFUSED = Counter "mcp_broker_messages_refused_total" ["project"] "messages",
        "Messages that were not accepted, for example because an inbox is full.";
    MESSAGES_REPEATED = Counter "mcp_broker_messages_repeated_total" ["project"] "messages",
        "Messages that repeated an earlier one by their idempotency key.";
    MESSAGES_ENQUEUED = Counter "mcp_broker_messages_enqueued_total" ["project"] "copies",
        "Copies of accepted messages, one for each recipient.";
    MESSAGES_DELIVERED = Counter "mcp_broker_messages_delivered_total" ["project"] "deliveries",
        "Deliveries to connections and to calls that receive messages, repeated ones included.";
    MESSAGES_ACKNOWLEDGED = Counter "mcp_broker_messages_acknowledged_total" ["project"] "copies",
        "Copies that their recipient acknowledged.";
    MESSAGES_DEAD_LETTERED = Counter "mcp_broker_messages_dead_lettered_total" ["project", "reason"] "copies",
        "Copies that became dead letters.";
    MESSAGES_REDRIVEN = Counter "mcp_broker_messages_redriven_total" ["project"] "copies",
        "Dead letters that were put back into an inbox.";
    ACCEPT_SECONDS = Histogram "mcp_broker_accept_seconds" [] "seconds",
        "From the submission of a message until the storage has answered.";
    DELIVER_SECONDS = Histogram "mcp_broker_deliver_seconds" [] "seconds",
        "From the acceptance of a message until its first delivery; exact to 10 ms where another replica accepted it.";

    SESSIONS = Gauge "mcp_broker_sessions" ["project", "state"] "sessions",
        "Sessions by state. Every replica of a shared storage has all of them: take the maximum over replicas.";
    INBOX_MESSAGES = Gauge "mcp_broker_inbox_messages" ["project"] "messages",
        "Messages that wait in all inboxes, as this replica last saw them: take the maximum over replicas.";
    INBOX_MESSAGES_MAX = Gauge "mcp_broker_inbox_messages_max" ["project"] "messages",
        "Messages that wait in the fullest inbox.";
    INBOXES_OVER_WARNING = Gauge "mcp_broker_inboxes_over_warning" ["project"] "inboxes",
        "Inboxes with at least the share queue_warning of their capacity.";
    PROTOCOLS = Gauge "mcp_broker_protocols" ["project"] "protocols",
        "Registered protocols.";
    LENSES = Gauge "mcp_broker_lenses" ["project"] "lenses",
        "Registered lenses between versions of protocols.";
    DEAD_LETTERS = Gauge "mcp_broker_dead_letters" ["project"] "messages",
        "Dead letters that are kept, as of the last ten seconds.";
    STORED_BYTES = Gauge "mcp_broker_stored_bytes" ["project", "kind"] "bytes",
        "What the storage keeps of a project, as of the last ten seconds.";

    CONNECTIONS = Gauge "mcp_broker_connections" ["transport"] "connections",
        "Live connections.";
    CONNECTIONS_OPENED = Counter "mcp_broker_connections_opened_total" ["transport"] "connections",
        "Connections that were opened.";
    CONNECTIONS_REFUSED = Counter "mcp_broker_connections_refused_total" ["transport"] "connections",
        "Connections that were refused because a limit was reached.";
    HTTP_SESSIONS = Gauge "mcp_broker_http_sessions" [] "sessions",
        "Open HTTP sessions of MCP (2025-11-25 and earlier).";
    HTTP_REQUESTS = Counter "mcp_broker_http_requests_total" ["route", "method", "status"] "requests",
        "Answered HTTP requests by the pattern of their route, never by their path.";
    RATE_LIMITED = Counter "mcp_broker_rate_limited_total" ["limit"] "requests",
        "Requests that a rate limit refused, by whose limit it was.";
    AUTHENTICATION_FAILURES = Counter "mcp_broker_authentication_failures_total" ["reason"] "requests",
        "Callers that were not authenticated.";

    ACTOR_MAILBOX = Gauge "mcp_broker_actor_mailbox_commands" ["kind"] "commands",
        "Commands in the mailboxes of all actors of a kind.";
    ACTOR_MAILBOX_MAX = Gauge "mcp_broker_actor_mailbox_commands_max" ["kind"] "commands",
        "Commands in the fullest mailbox of a kind.";
    ACTOR_RESTARTS = Counter "mcp_broker_actor_restarts_total" ["kind"] "restarts",
        "Restarts of actors after a panic.";
    ACTORS_GIVEN_UP = Counter "mcp_broker_actors_given_up_total" ["kind"] "actors",
        "Actors that panicked too often and were replaced by their parent.";

    STORE_OPERATION_SECONDS = Histogram "mcp_broker_store_operation_seconds" ["operation"] "seconds",
        "Operations of the storage as actors see them; with storage memory only append is measured.";
    STORE_FAILURES = Counter "mcp_broker_store_failures_total" ["operation"] "operations",
        "Operations of the storage that failed.";
    DISK_COMMIT_SECONDS = Histogram "mcp_broker_disk_commit_seconds" [] "seconds",
        "Writing and syncing one group of records (storage disk).";
    DISK_RECORDS = Counter "mcp_broker_disk_records_total" [] "records",
        "Records that were written to the disk.";
    DISK_FAILURES = Counter "mcp_broker_disk_commit_failures_total" [] "groups",
        "Groups of records that could not be written to the disk.";
    REDIS_BATCH_SECONDS = Histogram "mcp_broker_redis_batch_seconds" [] "seconds",
        "One batch of operations, from sending it to Redis until its reply (storage redis).";
    REDIS_OPERATIONS = Counter "mcp_broker_redis_operations_total" [] "operations",
        "Operations that were sent to Redis in batches.";
    REDIS_FAILURES = Counter "mcp_broker_redis_batch_failures_total" [] "batches",
        "Batches that Redis did not answer or refused.";
    REDIS_CONNECTED = Gauge "mcp_broker_redis_connected" [] "1 or 0",
        "Whether the connection to Redis that all operations share is open.";
    REDIS_CONNECTS = Counter "mcp_broker_redis_connects_total" [] "connections",
        "Connections to Redis that were opened; more than one means that earlier ones were lost.";
    BREAKERS_OPEN = Gauge "mcp_broker_redis_breakers_open" [] "breakers",
        "Circuit breakers that refuse operations now.";
    BREAKER_OPENINGS = Counter "mcp_broker_redis_breaker_openings_total" [] "openings",
        "How often a circuit breaker opened.";
    LOST_EVENTS = Counter "mcp_broker_event_log_lost_total" [] "events",
        "Events that were not written to the event log, because Redis was away for too long (storage redis). No message is lost with them.";
    PIPELINE_OPERATIONS = Gauge "mcp_broker_redis_pipeline_operations" [] "operations",
        "Operations that wait for Redis in the pipelines of all projects.";
    PIPELINE_OPERATIONS_MAX = Gauge "mcp_broker_redis_pipeline_operations_max" [] "operations",
        "Operations that wait in the fullest pipeline; at 20,000 further ones are refused.";
    PIPELINE_BYTES = Gauge "mcp_broker_redis_pipeline_bytes" [] "bytes",
        "Bytes of the operations that wait for Redis.";

    BRIDGE_LAG = Gauge "mcp_broker_bridge_lag_seconds" [] "seconds",
        "The last round trip of a ping behind the frames of other replicas, measured every two seconds.";
    BRIDGE_FRAMES = Counter "mcp_broker_bridge_frames_total" [] "frames",
        "Event frames and delivery batches that the bridge brought.";
    BRIDGE_GAPS = Counter "mcp_broker_bridge_gaps_total" [] "gaps",
        "Gaps in the sequence of frames; each starts a resync.";
    BRIDGE_DROPPED = Counter "mcp_broker_bridge_frames_dropped_total" [] "frames",
        "Frames that were dropped because the mailbox of a project was full.";
    BRIDGE_DISCONNECTS = Counter "mcp_broker_bridge_disconnects_total" [] "connections",
        "Lost connections of the bridge.";
    RESYNCS = Counter "mcp_broker_resyncs_total" [] "resyncs",
        "How often a project was read again from the storage.";
    RESYNC_FAILURES = Counter "mcp_broker_resync_failures_total" [] "resyncs",
        "Resyncs that failed and are repeated.";

    PROCESS_CPU = Counter "mcp_broker_process_cpu_seconds_total" [] "seconds",
        "Processor time of the process.";
    PROCESS_RESIDENT = Gauge "mcp_broker_process_resident_memory_bytes" [] "bytes",
        "Resident memory of the process.";
    PROCESS_RESIDENT_PEAK = Gauge "mcp_broker_process_resident_memory_peak_bytes" [] "bytes",
        "The largest resident memory of the process so far.";
    PROCESS_ANONYMOUS = Gauge "mcp_broker_process_anonymous_memory_bytes" [] "bytes",
        "Resident memory without files: what the allocator holds.";
    PROCESS_OPEN_FDS = Gauge "mcp_broker_process_open_fds" [] "file descriptors",
        "Open file descriptors.";
    PROCESS_MAX_FDS = Gauge "mcp_broker_process_max_fds" [] "file descriptors",
        "The limit of open file descriptors.";
    PROCESS_THREADS = Gauge "mcp_broker_process_threads" [] "threads",
        "Threads of the process.";
    PROCESS_START = Gauge "mcp_broker_process_start_time_seconds" [] "seconds",
        "The start of the process, in seconds since the Unix epoch.";
    WAKES = Counter "mcp_broker_wakes_total" ["rung", "result"] "wakes",
        "Wakes that were sent to the client of an agent. `rung`: inbox, channel, queue, tmux, hook, other. `result`: written, refused, absent, failed.";
    WAKES_HELD = Counter "mcp_broker_wakes_held_total" ["reason"] "decisions",
        "How often messages that wait were held back. `reason`: hop_limit, sender_rate, quiet, preference.";
    WAKE_TO_READ = Histogram "mcp_broker_wake_to_read_seconds" [] "seconds",
        "From a wake until its agent reads its inbox.";
    QUESTIONS_OPEN = Gauge "mcp_broker_questions_open" ["project", "urgency"] "questions",
        "Open questions to people. `urgency`: low, medium, high. Every replica has all of them: take the maximum over replicas.";
    QUESTION_WAIT = Histogram "mcp_broker_question_wait_seconds" [] "seconds",
        "From a question until a person first sees it.";
    QUESTION_ANSWER = Histogram "mcp_broker_question_answer_seconds" [] "seconds",
        "From a question until its answer.";
    QUESTIONS_CLOSED = Counter "mcp_broker_questions_closed_total" ["state"] "questions",
        "Questions that have ended. `state`: answered, declined, expired, cancelled.";
    WEBHOOK_FAILURES = Counter "mcp_broker_webhook_failures_total" [] "attempts",
        "Failed attempts to send a question to a webhook or ntfy; each is repeated.";
    DESK_HUMANS = Gauge "mcp_broker_desk_humans" ["project", "presence"] "people",
        "People with a console at this replica. `presence`: present, idle, away.";
    YAPS = Counter "mcp_broker_yaps_total" [] "yaps",
        "Yaps that this replica has shown to its consoles.";
    DELIVERY_REPORTS = Counter "mcp_broker_delivery_reports_total" ["result"] "messages",
        "Reports to the senders of messages that were given up, or whose recipient is blocked. `result`: sent, refused.";
    TRANSFORMS = Counter "mcp_broker_transforms_total" ["result"] "payloads",
        "Payloads that lenses have put into another version of their protocol, or could not, each once for a version. `result`: exact, defaulted (values were made up), lossy, failed.";
    TRANSFORM_SECONDS = Histogram "mcp_broker_transform_seconds" [] "seconds",
        "How long such a transformation takes, with the check of its result.";
    BACKENDS = Gauge "mcp_broker_backends" ["project", "backend", "state"] "1",
        "Always 1; the label says the state of a backend of the gateway at this replica.";
    GATEWAY_TOOLS = Gauge "mcp_broker_gateway_tools" ["project"] "tools",
        "Tools of all backends that a project offers.";
    BACKEND_CALLS = Counter "mcp_broker_backend_calls_total" ["project", "backend", "outcome"] "calls",
        "Calls to backends that have ended. `outcome`: ok (a result), tool_error (a result that says that the tool failed), error (an error of the backend, or an answer that cannot be passed on), timeout, cancelled (its caller has gone or wants no answer, an operator has ended it, or the broker stops), died, refused (not sent).";
    BACKEND_CALL_SECONDS = Histogram "mcp_broker_backend_call_seconds" ["project", "backend"] "seconds",
        "From the arrival of a call until its end, waiting included.";
    BACKEND_CALLS_OPEN = Gauge "mcp_broker_backend_calls_open" ["project", "backend"] "calls",
        "Calls to backends that are open, waiting ones included and parked ones not.";
    BACKEND_CALLS_WAITING = Gauge "mcp_broker_backend_calls_waiting" ["project", "backend"] "calls",
        "Calls that wait for their turn.";
    BACKEND_CALLS_PARKED = Gauge "mcp_broker_backend_calls_parked" ["project", "backend"] "calls",
        "Calls that wait for input of their caller, which has to call again.";
    BACKEND_PROCESSES = Gauge "mcp_broker_backend_processes" ["project", "backend"] "processes",
        "Processes of programs, without their keepers and descendants; two while a new one replaces the old one, and more if not all callers share one.";
    BACKEND_STARTS = Counter "mcp_broker_backend_starts_total" ["project", "backend", "reason"] "starts",
        "Starts of backends: of a process or a connection. `reason`: wanted (by a call, with the broker, or to learn what it offers), crash (it has exited, or could not be started), change (of its files), config, operator, asking (an instance in addition to the main one, for callers that can be asked, or for a key or session), cancelled (a cancelled call did not end).";
    BACKEND_BYTES = Counter "mcp_broker_backend_bytes_total" ["project", "backend", "direction"] "bytes",
        "Bytes of messages. `direction`: sent to the backend, or received.";
    BACKEND_LIST_CHANGES = Counter "mcp_broker_backend_list_changes_total" ["project", "backend"] "changes",
        "How often a backend changed what it offers.";
    BACKEND_DROPPED = Counter "mcp_broker_backend_dropped_total" ["project", "backend", "reason"] "messages",
        "Messages of backends that reached no caller, such as late answers.";
    SPANS_DROPPED = Counter "mcp_broker_trace_spans_dropped_total" [] "spans",
        "Spans that were recorded and that no collector took: the queue was full, or the collector refused them or did not answer.";
}

/// The Markdown table of docs/metrics.md.
pub fn metrics_markdown() -> String {
    let mut table = "| name | type | labels | unit | meaning |\n|---|---|---|---|---|\n".to_owned();
    for metric in CATALOG {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, labels) = (metric.name, metric.kind.as_str(), labels.join(", "));
        let _ = writeln!(
            table,
            "| `{name}` | {kind} | {labels} | {} | {} |",
            metric.unit, metric.help
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        let mut names = BTreeSet::new();
        for metric in CATALOG {
            let Metric { name, kind, help, .. } = metric;
            assert!(names.insert(name), "{name} occurs once");
            assert!(name.starts_with("mcp_broker_"), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            assert!(*kind != Kind::Histogram || name.ends_with("_seconds"), "{name}");
            assert!(help.ends_with('.') && !help.contains(['\n', '\\', '"']), "{name}");
        }
    }
}
