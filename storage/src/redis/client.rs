//! What all pipelines share: the connection to Redis, the function library, the breaker.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use actors::{
    locked::Locked,
    model::ReplicaId,
    storage::{Retention, StoreError},
};
use deadpool_redis::redis::{Cmd, Value, cmd};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
    task::JoinHandle,
    time::Instant,
};
use uuid::Uuid;

use super::{
    breaker::CircuitBreaker,
    connection::{Request, SharedConnection},
    error::Failure,
    events::buffer::SharedBytes,
    library::{Library, Preamble},
    operation::{Operation, pipeline_of, write_operations},
    settings::{REPLICA_TIMEOUT_HEARTBEATS, RedisSettings},
    timeline::{DataLosses, Witness},
};

/// The client of one Redis.
pub(super) struct RedisClient {
    pub thread: RedisThread,
    pub connection: SharedConnection,
    pub breaker: Arc<CircuitBreaker>,
    /// This process.
    pub replica: ReplicaId,
    /// All replicas together.
    pub broker_id: Uuid,
    /// The database and the broker: what the functions remember, they remember of one data set.
    pub data_set: String,
    /// Where this process serves HTTP, for the other replicas.
    pub address: Option<SocketAddr>,
    /// The channel of the event frames. That of a replica adds `:` and its id.
    pub channel: String,
    /// Longest time of an operation.
    pub deadline: Duration,
    /// How long a replica of the broker may be silent.
    pub silence: Duration,
    /// Redis replicas that must confirm what is accepted; 0: none.
    pub wait_for_replicas: u32,
    pub retention: Retention,
    /// How long a group lease waits for its members.
    pub group_lease_timeout: Duration,
    pub library: Library,
    pub losses: DataLosses,
    /// The bytes of the events of all projects that wait to be appended.
    pub event_bytes: SharedBytes,
    next_batch_number: AtomicU64,
    /// Set when too few Redis replicas confirmed the last accepted operations.
    last_replication_error: Locked<Option<String>>,
}

/// The reply of the function to a batch.
pub(super) struct BatchReply {
    pub reply: Value,
    /// Set when too few Redis replicas confirmed what the batch accepted: it counts as failed.
    pub replication_error: Option<String>,
}

impl RedisClient {
    /// A client whose id as a replica is new.
    pub fn new(
        thread: RedisThread,
        link: SharedConnection,
        database: i64,
        broker_id: Uuid,
        settings: &RedisSettings,
    ) -> Self {
        Self {
            thread,
            connection: link,
            breaker: Arc::default(),
            replica: ReplicaId::generate(),
            broker_id,
            data_set: format!("{database} {broker_id}"),
            address: settings.address,
            channel: format!("mcp-broker:{database}:bridge"),
            deadline: settings.deadline,
            silence: settings.heartbeat * REPLICA_TIMEOUT_HEARTBEATS,
            wait_for_replicas: settings.wait_for_replicas,
            retention: settings.retention,
            group_lease_timeout: settings.group_lease_timeout,
            library: Library::operations(),
            losses: DataLosses::default(),
            event_bytes: SharedBytes::default(),
            next_batch_number: AtomicU64::new(1),
            last_replication_error: Locked::default(),
        }
    }

    /// The number of the next batch. Numbers grow.
    pub fn next_batch(&self) -> u64 {
        self.next_batch_number.fetch_add(1, Ordering::Relaxed)
    }

    /// When an operation that begins now is given up.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// The breaker of a project. In a cluster each project has its own, since nodes fail one by one.
    pub fn project_breaker(&self) -> Arc<CircuitBreaker> {
        if self.connection.is_cluster() {
            return Arc::default();
        }
        Arc::clone(&self.breaker)
    }

    /// Carries out operations of one project, in their order, as one transaction. A server without memory for all of
    /// them carries out those that need none.
    ///
    /// # Errors
    /// Why the function was not called, or its reply did not come.
    pub async fn run_batch<'a>(
        &self,
        preamble: &Preamble,
        batch: u64,
        seen: &Witness,
        operations: impl Iterator<Item = &'a Operation> + Clone,
        deadline: Instant,
    ) -> Result<BatchReply, Failure> {
        let accepts = operations.clone().any(|operation| operation.accepts);
        let wait = (accepts && self.wait_for_replicas > 0).then(|| self.wait_command(deadline));
        let waits = wait.is_some();
        let call = |accepts| {
            let mut call = self.library.call(&preamble.key, accepts);
            preamble.write(&mut call, &self.channel, self.replica, batch, &self.retention, seen);
            write_operations(operations.clone(), &mut call);
            call
        };
        let mut answer = self
            .call_library(call(accepts), wait.clone(), &preamble.key, deadline)
            .await;
        if accepts && matches!(answer, Err(Failure::OutOfMemory(_))) {
            // Operations that need no memory are carried out.
            answer = self.call_library(call(false), wait, &preamble.key, deadline).await;
        }
        let mut values = answer?;
        let confirmed = if waits { values.pop() } else { None };
        let unsafe_because = confirmed.as_ref().and_then(|count| self.check_replication(count));
        if waits {
            self.last_replication_error.lock().clone_from(&unsafe_because);
        }
        let reply = values.pop().unwrap_or(Value::Nil);
        Ok(BatchReply {
            reply,
            replication_error: unsafe_because,
        })
    }

    /// Calls a function, with another command after it. Loads the library first where the server does not know it.
    async fn call_library(
        &self,
        call: Cmd,
        after: Option<Cmd>,
        key: &str,
        deadline: Instant,
    ) -> Result<Vec<Value>, Failure> {
        let mut request = Request {
            commands: pipeline_of([Some(call), after]),
            key: key.to_owned(),
        };
        let mut answer = self.connection.send(&request, deadline).await;
        if matches!(answer, Err(Failure::LibraryMissing)) {
            let mut commands = pipeline_of([Some(self.library.load())]);
            for command in request.commands.cmd_iter() {
                commands.add_command(command.clone());
            }
            request.commands = commands;
            answer = self.connection.send(&request, deadline).await;
            if let Ok(values) = &mut answer {
                values.remove(0);
            }
        }
        answer
    }

    /// Set while too few Redis replicas confirm what is accepted.
    pub fn replication_error(&self) -> Option<String> {
        self.last_replication_error.lock().clone()
    }

    /// Sends commands that belong to no project.
    ///
    /// # Errors
    /// `Full` when the server has no memory, `Unreachable` for any other failure and while the breaker is open.
    pub async fn send(&self, request: &Request) -> Result<Vec<Value>, StoreError> {
        self.breaker.admit()?;
        let answer = self.connection.send(request, self.deadline()).await;
        self.breaker.record(&answer);
        Ok(answer?)
    }

    /// Sends one command that belongs to no project.
    ///
    /// # Errors
    /// Those of [`Self::send`].
    pub async fn send_one(&self, command: Cmd, key: &str) -> Result<Value, StoreError> {
        let mut values = self.send(&Request::of(command, key)).await?;
        Ok(values.pop().unwrap_or(Value::Nil))
    }

    /// Runs a future on the thread of the connections.
    ///
    /// # Errors
    /// Those of the future; `Unreachable` when the thread has ended.
    pub async fn run_on_thread<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.thread.spawn(future).await.unwrap_or_else(|_| Err(store_closed()))
    }

    /// `WAIT`, within three quarters of the time that is left: its answer has to come back in time too.
    fn wait_command(&self, deadline: Instant) -> Cmd {
        let left = deadline.saturating_duration_since(Instant::now());
        let ms = (left.as_millis() * 3 / 4).max(1);
        cmd("WAIT").arg(self.wait_for_replicas).arg(ms as u64).to_owned()
    }

    /// Why what was accepted does not count, by the reply to `WAIT`.
    fn check_replication(&self, confirmed: &Value) -> Option<String> {
        let wanted = self.wait_for_replicas;
        match confirmed {
            Value::Int(count) if *count >= i64::from(wanted) => None,
            Value::Int(count) => Some(format!("{count} of {wanted} Redis replicas have it")),
            _ => Some("Redis does not say which replicas have it".to_owned()),
        }
    }
}

/// The error of an operation whose store was closed.
pub(super) fn store_closed() -> StoreError {
    StoreError::Unreachable("the store is closed".to_owned())
}

/// A thread with a runtime, on which everything that talks to Redis runs: a busy worker does not delay the answers of
/// others, and a connection does not end with the worker that opened it. The thread and its tasks end when this is
/// dropped.
#[derive(Debug)]
pub(super) struct RedisThread {
    handle: Handle,
    _until_dropped: oneshot::Sender<()>,
}

impl RedisThread {
    /// # Errors
    /// When no thread can be started.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (until_dropped, dropped) = oneshot::channel();
        thread::Builder::new().name("redis".to_owned()).spawn(move || {
            runtime.block_on(async move {
                let _ = dropped.await;
            });
            // Does not wait for a name lookup that is running.
            runtime.shutdown_background();
        })?;
        Ok(Self {
            handle,
            _until_dropped: until_dropped,
        })
    }

    /// Runs a future on the thread.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.handle.spawn(future)
    }
}
