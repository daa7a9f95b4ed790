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
    breaker::Breaker,
    error::Failure,
    link::{Link, Request},
    operation::{Operation, together, write},
    script::{Library, Preamble},
    settings::RedisSettings,
    thread::Thread,
    timeline::{Losses, Witness},
};

pub(super) struct Client {
    pub thread: Thread,
    pub link: Link,
    pub breaker: Arc<Breaker>,
    pub replica: ReplicaId,
    /// Where this process serves HTTP, as the other replicas reach it.
    pub address: Option<SocketAddr>,
    /// Where frames are published.
    pub channel: String,
    pub deadline: Duration,
    pub wait_for_replicas: u32,
    pub retention: Retention,
    pub posts_within: Duration,
    pub library: Library,
    pub losses: Losses,
    batches: AtomicU64,
    /// Why what was accepted last does not count.
    too_few: Mutex<Option<String>>,
}

/// What the script replied to a batch.
pub(super) struct Carried {
    pub reply: Value,
    /// Why what it accepted does not count.
    pub unsafe_because: Option<String>,
}

impl Client {
    pub fn new(thread: Thread, link: Link, channel: String, settings: &RedisSettings) -> Self {
        Self {
            thread,
            link,
            breaker: Arc::default(),
            replica: ReplicaId::generate(),
            address: settings.address,
            channel,
            deadline: settings.deadline,
            wait_for_replicas: settings.wait_for_replicas,
            retention: settings.retention,
            posts_within: settings.posts_within,
            library: Library::operations(),
            losses: Losses::default(),
            batches: AtomicU64::new(1),
            too_few: Mutex::default(),
        }
    }

    /// Numbers grow; of two batches of one lane the later has the higher one.
    pub fn next_batch(&self) -> u64 {
        self.batches.fetch_add(1, Ordering::Relaxed)
    }

    pub fn deadline(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// What decides whether operations on one more project are tried: nodes of a cluster fail one by one.
    pub fn breaker_of_a_project(&self) -> Arc<Breaker> {
        if self.link.is_cluster() {
            return Arc::default();
        }
        Arc::clone(&self.breaker)
    }

    /// Carries out operations of one project, in their order, as one transaction.
    pub async fn carry_out<'a>(
        &self,
        preamble: &Preamble,
        batch: u64,
        seen: &Witness,
        operations: impl Iterator<Item = &'a Operation> + Clone,
        until: Instant,
    ) -> Result<Carried, Failure> {
        let accepts = operations.clone().any(|operation| operation.accepts);
        let wait = (accepts && self.wait_for_replicas > 0).then(|| self.wait(until));
        let waits = wait.is_some();
        let call = |accepts| {
            let mut call = self.library.call(&preamble.key, accepts);
            preamble.write(&mut call, &self.channel, self.replica, batch, &self.retention, seen);
            write(operations.clone(), &mut call);
            call
        };
        let mut answer = self.run(call(accepts), wait.clone(), &preamble.key, until).await;
        if accepts && matches!(answer, Err(Failure::Full(_))) {
            // What needs no room goes on.
            answer = self.run(call(false), wait, &preamble.key, until).await;
        }
        let mut values = answer?;
        let heard_by = if waits { values.pop() } else { None };
        let unsafe_because = heard_by.as_ref().and_then(|heard_by| self.too_few(heard_by));
        if waits {
            self.last_too_few().clone_from(&unsafe_because);
        }
        let reply = values.pop().unwrap_or(Value::Nil);
        Ok(Carried { reply, unsafe_because })
    }

    /// Calls a function that the server may have to be told first, and what else is to go with it.
    async fn run(&self, call: Cmd, after: Option<Cmd>, key: &str, until: Instant) -> Result<Vec<Value>, Failure> {
        let mut request = Request {
            commands: together([Some(call), after]),
            key: key.to_owned(),
        };
        let mut answer = self.link.ask(&request, until).await;
        if matches!(answer, Err(Failure::NoFunction)) {
            let mut commands = together([Some(self.library.load())]);
            for command in request.commands.cmd_iter() {
                commands.add_command(command.clone());
            }
            request.commands = commands;
            answer = self.link.ask(&request, until).await;
            if let Ok(values) = &mut answer {
                values.remove(0);
            }
        }
        answer
    }

    /// Why what was accepted last does not count, if it does not.
    pub fn too_few_replicas(&self) -> Option<String> {
        self.last_too_few().clone()
    }

    fn last_too_few(&self) -> MutexGuard<'_, Option<String>> {
        self.too_few.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What belongs to no project, as an operation of its own.
    pub async fn ask(&self, request: &Request) -> Result<Vec<Value>, StoreError> {
        self.breaker.admit()?;
        let answer = self.link.ask(request, self.deadline()).await;
        self.breaker.take_note(&answer);
        Ok(answer?)
    }

    /// One command, as an operation of its own.
    pub async fn ask_one(&self, command: Cmd, key: &str) -> Result<Value, StoreError> {
        let mut values = self.ask(&Request::of(command, key)).await?;
        Ok(values.pop().unwrap_or(Value::Nil))
    }

    /// Runs a future where the connections are.
    pub async fn here<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.thread.spawn(future).await.unwrap_or_else(|_| Err(ended()))
    }

    fn wait(&self, until: Instant) -> Cmd {
        let left = until.saturating_duration_since(Instant::now());
        // The answer has to come back in time too.
        let ms = (left.as_millis() * 3 / 4).max(1);
        cmd("WAIT").arg(self.wait_for_replicas).arg(ms as u64).to_owned()
    }

    fn too_few(&self, heard_by: &Value) -> Option<String> {
        let wanted = self.wait_for_replicas;
        match heard_by {
            Value::Int(count) if *count >= i64::from(wanted) => None,
            Value::Int(count) => Some(format!("{count} of {wanted} Redis replicas have it")),
            _ => Some("Redis does not say which replicas have it".to_owned()),
        }
    }
}

pub(super) fn ended() -> StoreError {
    StoreError::Unreachable("the store is closed".to_owned())
}
