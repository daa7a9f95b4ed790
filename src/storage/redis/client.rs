//! What all lanes share: the way to Redis, and what is known of how well it goes.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use actors::{
    model::ReplicaId,
    storage::{Retention, StoreError},
};
use deadpool_redis::redis::{Cmd, Value, cmd};
use tokio::time::Instant;

use super::{
    breaker::CircuitBreaker,
    connection::{Request, SharedConnection},
    error::Failure,
    library::{Library, Preamble},
    operation::{Operation, pipeline_of, write_operations},
    settings::RedisSettings,
    thread::RedisThread,
    timeline::{DataLosses, Witness},
};

pub(super) struct RedisClient {
    pub thread: RedisThread,
    pub connection: SharedConnection,
    pub breaker: Arc<CircuitBreaker>,
    pub replica: ReplicaId,
    /// Where this process serves HTTP, as the other replicas reach it.
    pub address: Option<SocketAddr>,
    /// Where frames are published.
    pub channel: String,
    pub deadline: Duration,
    pub wait_for_replicas: u32,
    pub retention: Retention,
    pub group_lease_timeout: Duration,
    pub library: Library,
    pub losses: DataLosses,
    next_batch_number: AtomicU64,
    /// Why what was accepted last does not count.
    last_replication_error: Mutex<Option<String>>,
}

/// What the script replied to a batch.
pub(super) struct BatchReply {
    pub reply: Value,
    /// Why what it accepted does not count.
    pub replication_error: Option<String>,
}

impl RedisClient {
    pub fn new(thread: RedisThread, link: SharedConnection, channel: String, settings: &RedisSettings) -> Self {
        Self {
            thread,
            connection: link,
            breaker: Arc::default(),
            replica: ReplicaId::generate(),
            address: settings.address,
            channel,
            deadline: settings.deadline,
            wait_for_replicas: settings.wait_for_replicas,
            retention: settings.retention,
            group_lease_timeout: settings.group_lease_timeout,
            library: Library::operations(),
            losses: DataLosses::default(),
            next_batch_number: AtomicU64::new(1),
            last_replication_error: Mutex::default(),
        }
    }

    /// Numbers grow; of two batches of one lane the later has the higher one.
    pub fn next_batch(&self) -> u64 {
        self.next_batch_number.fetch_add(1, Ordering::Relaxed)
    }

    pub fn deadline(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// What decides whether operations on one more project are tried: nodes of a cluster fail one by one.
    pub fn project_breaker(&self) -> Arc<CircuitBreaker> {
        if self.connection.is_cluster() {
            return Arc::default();
        }
        Arc::clone(&self.breaker)
    }

    /// Carries out operations of one project, in their order, as one transaction.
    pub async fn run_batch<'a>(
        &self,
        preamble: &Preamble,
        batch: u64,
        seen: &Witness,
        operations: impl Iterator<Item = &'a Operation> + Clone,
        until: Instant,
    ) -> Result<BatchReply, Failure> {
        let accepts = operations.clone().any(|operation| operation.accepts);
        let wait = (accepts && self.wait_for_replicas > 0).then(|| self.wait_command(until));
        let waits = wait.is_some();
        let call = |accepts| {
            let mut call = self.library.call(&preamble.key, accepts);
            preamble.write(&mut call, &self.channel, self.replica, batch, &self.retention, seen);
            write_operations(operations.clone(), &mut call);
            call
        };
        let mut answer = self
            .call_library(call(accepts), wait.clone(), &preamble.key, until)
            .await;
        if accepts && matches!(answer, Err(Failure::OutOfMemory(_))) {
            // What needs no room goes on.
            answer = self.call_library(call(false), wait, &preamble.key, until).await;
        }
        let mut values = answer?;
        let heard_by = if waits { values.pop() } else { None };
        let unsafe_because = heard_by.as_ref().and_then(|heard_by| self.check_replication(heard_by));
        if waits {
            self.lock_replication_error().clone_from(&unsafe_because);
        }
        let reply = values.pop().unwrap_or(Value::Nil);
        Ok(BatchReply {
            reply,
            replication_error: unsafe_because,
        })
    }

    /// Calls a function that the server may have to be told first, and what else is to go with it.
    async fn call_library(
        &self,
        call: Cmd,
        after: Option<Cmd>,
        key: &str,
        until: Instant,
    ) -> Result<Vec<Value>, Failure> {
        let mut request = Request {
            commands: pipeline_of([Some(call), after]),
            key: key.to_owned(),
        };
        let mut answer = self.connection.send(&request, until).await;
        if matches!(answer, Err(Failure::LibraryMissing)) {
            let mut commands = pipeline_of([Some(self.library.load())]);
            for command in request.commands.cmd_iter() {
                commands.add_command(command.clone());
            }
            request.commands = commands;
            answer = self.connection.send(&request, until).await;
            if let Ok(values) = &mut answer {
                values.remove(0);
            }
        }
        answer
    }

    /// Why what was accepted last does not count, if it does not.
    pub fn replication_error(&self) -> Option<String> {
        self.lock_replication_error().clone()
    }

    fn lock_replication_error(&self) -> MutexGuard<'_, Option<String>> {
        self.last_replication_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What belongs to no project, as an operation of its own.
    pub async fn send(&self, request: &Request) -> Result<Vec<Value>, StoreError> {
        self.breaker.admit()?;
        let answer = self.connection.send(request, self.deadline()).await;
        self.breaker.record(&answer);
        Ok(answer?)
    }

    /// One command, as an operation of its own.
    pub async fn send_one(&self, command: Cmd, key: &str) -> Result<Value, StoreError> {
        let mut values = self.send(&Request::of(command, key)).await?;
        Ok(values.pop().unwrap_or(Value::Nil))
    }

    /// Runs a future where the connections are.
    pub async fn run_on_thread<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.thread.spawn(future).await.unwrap_or_else(|_| Err(store_closed()))
    }

    fn wait_command(&self, until: Instant) -> Cmd {
        let left = until.saturating_duration_since(Instant::now());
        // The answer has to come back in time too.
        let ms = (left.as_millis() * 3 / 4).max(1);
        cmd("WAIT").arg(self.wait_for_replicas).arg(ms as u64).to_owned()
    }

    fn check_replication(&self, heard_by: &Value) -> Option<String> {
        let wanted = self.wait_for_replicas;
        match heard_by {
            Value::Int(count) if *count >= i64::from(wanted) => None,
            Value::Int(count) => Some(format!("{count} of {wanted} Redis replicas have it")),
            _ => Some("Redis does not say which replicas have it".to_owned()),
        }
    }
}

pub(super) fn store_closed() -> StoreError {
    StoreError::Unreachable("the store is closed".to_owned())
}
