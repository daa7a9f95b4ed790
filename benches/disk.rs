//! The disk storage compared with the memory storage: `cargo bench --bench disk`.
//!
//! Senders with a window of appends each fill the inboxes of several recipients; then the messages are leased and
//! acknowledged. Both halves print messages per second and processor time per message. The data is in the directory
//! for temporary files, or in a given one: `cargo bench --bench disk -- /path/on/the/disk`.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use actors::{
    clock::now,
    model::{Addressing, Headers, MessageIds, NewMessage, Owner, ProjectId, SessionId, SessionRecord, WakePreference},
    storage::{
        Acknowledge, Append, Audience, PutSession, Retention, Storage, Store, disk::DiskSettings, memory::MemoryStorage,
    },
};
use futures_util::{StreamExt, stream};
use storage::disk;

const SENDERS: usize = 50;
const WINDOW: usize = 64;
const RECIPIENTS: usize = 20;
const MESSAGES: usize = 200_000;
const PAYLOAD_BYTES: usize = 700;
const LEASE_LEN: usize = 100;

fn main() {
    let inside = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let inside = inside.map_or_else(std::env::temp_dir, PathBuf::from);
    println!(
        "{SENDERS} senders, window {WINDOW}, {PAYLOAD_BYTES} bytes; per second, CPU µs per message: accepted, drained"
    );
    for _ in 0..3 {
        measure("memory", &MemoryStorage::new(Retention::default()));
        let folder = inside.join(format!("mcp-broker-bench-{}", uuid::Uuid::new_v4().simple()));
        match disk::open(&folder, DiskSettings::default(), now()) {
            Ok(storage) => measure("disk", &storage),
            Err(error) => println!("{error}"),
        }
        if let Err(error) = std::fs::remove_dir_all(&folder) {
            println!("{} stays: {error}", folder.display());
        }
    }
}

fn measure(name: &str, storage: &dyn Storage) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else {
        return;
    };
    let project = ProjectId::default_project();
    let load = Load {
        store: storage.open(&project),
        project,
        sender: session(),
        recipients: (0..RECIPIENTS).map(|_| session()).collect(),
        ids: MessageIds::default(),
        payload: format!("\"{}\"", "x".repeat(PAYLOAD_BYTES)),
    };
    runtime.block_on(load.create_sessions());
    let (accepted, accepted_cpu) = timed(|| runtime.block_on(load.append_all()));
    let (drained, drained_cpu) = timed(|| runtime.block_on(load.drain_all()));
    println!("{name:<8} {accepted:>9.0} {accepted_cpu:>6.2} {drained:>9.0} {drained_cpu:>6.2}");
}

/// Messages per second, and microseconds of processor time per message.
fn timed(work: impl FnOnce() -> usize) -> (f64, f64) {
    let (cpu, begin) = (cpu_time(), Instant::now());
    let count = f64::from(u32::try_from(work()).unwrap_or(u32::MAX).max(1));
    let per_second = count / begin.elapsed().as_secs_f64();
    let cpu = cpu_time().saturating_sub(cpu);
    (per_second, cpu.as_secs_f64() * 1e6 / count)
}

/// The processor time of all threads of this process.
fn cpu_time() -> Duration {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        clock.tv_sec.try_into().unwrap_or(0),
        clock.tv_nsec.try_into().unwrap_or(0),
    )
}

fn session() -> SessionRecord {
    SessionRecord {
        id: SessionId::generate(),
        name: None,
        capabilities: Arc::default(),
        metadata: serde_json::Map::new(),
        aliases: Vec::new(),
        connected_at_ms: 1,
        owner: Owner::anonymous(),
        holder: actors::model::Holder::default(),
        wake: WakePreference::default(),
    }
}

struct Load {
    store: Arc<dyn Store>,
    project: ProjectId,
    sender: SessionRecord,
    recipients: Vec<SessionRecord>,
    ids: MessageIds,
    payload: String,
}

impl Load {
    async fn create_sessions(&self) {
        for record in &self.recipients {
            let _ = self.store.put_session(record.clone(), PutSession::default()).await;
        }
    }

    /// Appends all messages, with a window of appends for each sender. Returns the number of accepted ones.
    async fn append_all(&self) -> usize {
        let appends = stream::iter(0..MESSAGES).map(|at| {
            let (to, now) = (self.recipients[at % RECIPIENTS].id, now());
            let headers = Headers::default();
            let draft = NewMessage::new(
                &self.project,
                &self.sender,
                Addressing::Direct,
                ("bench", "1.0.0"),
                &self.payload,
                &headers,
            );
            let append = Append {
                message: draft.seal(self.ids.next(now), Some(to), now, false),
                audience: Audience::One(to),
                queue_capacity: MESSAGES,
                idempotency_key: None,
                roster_version: None,
            };
            self.store.append(vec![append], now)
        });
        let answers = appends.buffer_unordered(SENDERS * WINDOW);
        answers
            .filter(|answer| std::future::ready(answer.is_ok()))
            .count()
            .await
    }

    async fn drain_all(&self) -> usize {
        let each = self.recipients.iter().map(|record| self.drain_inbox(record.id));
        futures_util::future::join_all(each).await.iter().sum()
    }

    async fn drain_inbox(&self, session: SessionId) -> usize {
        let mut count = 0;
        loop {
            let leased = self.store.lease(session, None, LEASE_LEN, usize::MAX, now()).await;
            let deliveries = leased.map(|leased| leased.deliveries).unwrap_or_default();
            let ids: Vec<_> = deliveries.iter().map(|delivery| delivery.message.id).collect();
            if ids.is_empty() {
                return count;
            }
            count += ids.len();
            let _ = self.store.acknowledge(session, Acknowledge::Ids(ids), now()).await;
        }
    }
}
