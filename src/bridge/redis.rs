//! Frames over Redis pub/sub, on a connection of their own: what Redis loses there is what a replica that was away has
//! to look up, and it is told so.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use actors::{
    bridge::{Bridge, Heard, Incoming, Parcel},
    model::ReplicaId,
};
use bytes::Bytes;
use deadpool_redis::redis::{self, aio::PubSub};
use futures_util::StreamExt;
use tokio::{sync::mpsc, time::timeout};

/// Frames that wait for the broker. When there are more, Redis keeps them, and ends the connection when it has kept too
/// many.
const HEARD_LEN_MAX: usize = 4096;
/// How often it is asked whether the connection still stands: one that is cut in silence says nothing by itself.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// How long after a failure a connection is tried again, at first and at most.
const RETRY_AFTER: Duration = Duration::from_millis(50);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(2);

/// Opens a connection that can subscribe, to wherever the server is by now.
pub type Connect = dyn Fn() -> Pin<Box<dyn Future<Output = redis::RedisResult<PubSub>> + Send>> + Send + Sync;

/// What the replicas publish on one channel.
pub struct RedisBridge {
    replica: ReplicaId,
    channel: String,
    /// Longest wait for a connection, and for an answer on it.
    deadline: Duration,
    connect: Arc<Connect>,
}

impl RedisBridge {
    pub fn new(replica: ReplicaId, channel: String, deadline: Duration, connect: Arc<Connect>) -> Self {
        Self {
            replica,
            channel,
            deadline,
            connect,
        }
    }
}

impl Bridge for RedisBridge {
    fn replica(&self) -> ReplicaId {
        self.replica
    }

    fn listen(&self) -> Heard {
        let (sender, heard) = mpsc::channel(HEARD_LEN_MAX);
        let ear = Ear {
            channel: self.channel.clone(),
            parcels: parcels_channel(&self.channel, self.replica),
            deadline: self.deadline,
            connect: Arc::clone(&self.connect),
            heard: sender,
        };
        // It ends when nobody holds the stream any more.
        tokio::spawn(ear.listen());
        futures_util::stream::unfold(heard, async |mut heard| Some((heard.recv().await?, heard))).boxed()
    }
}

/// Where what is handed over to a replica is published.
fn parcels_channel(channel: &str, replica: ReplicaId) -> String {
    format!("{channel}:{replica}")
}

struct Ear {
    channel: String,
    parcels: String,
    deadline: Duration,
    connect: Arc<Connect>,
    heard: mpsc::Sender<Incoming>,
}

/// Nobody listens any more.
struct Unheard;

impl Ear {
    async fn listen(self) {
        let mut retry_after = RETRY_AFTER;
        while !self.heard.is_closed() {
            match timeout(self.deadline, self.subscribe()).await {
                Ok(Ok(connection)) => {
                    retry_after = RETRY_AFTER;
                    if self.pass_on(connection).await.is_err() {
                        return;
                    }
                }
                Ok(Err(error)) => tracing::debug!(%error, "frames cannot be subscribed to: tried again"),
                Err(_) => tracing::debug!("Redis does not answer a subscription in time: tried again"),
            }
            tokio::time::sleep(retry_after).await;
            retry_after = (retry_after * 2).min(RETRY_AFTER_MAX);
        }
    }

    async fn subscribe(&self) -> redis::RedisResult<PubSub> {
        let mut connection = (self.connect)().await?;
        connection.subscribe(&[&self.channel, &self.parcels]).await?;
        Ok(connection)
    }

    /// Until the connection is lost.
    async fn pass_on(&self, connection: PubSub) -> Result<(), Unheard> {
        let (mut sink, mut frames) = connection.split();
        self.tell(Incoming::Connected).await?;
        // Of a parcel whose last part has not come yet.
        let mut messages = Vec::new();
        let mut ping = tokio::time::interval(PING_INTERVAL);
        ping.reset();
        loop {
            tokio::select! {
                frame = frames.next() => match frame {
                    Some(frame) => {
                        let bytes = Bytes::copy_from_slice(frame.get_payload_bytes());
                        if frame.get_channel_name() != self.parcels {
                            self.tell(Incoming::Frame(bytes)).await?;
                        } else if Parcel::is_last(&bytes) {
                            self.tell(Incoming::Parcel(std::mem::take(&mut messages), bytes)).await?;
                        } else {
                            messages.push(bytes);
                        }
                    }
                    None => break,
                },
                _ = ping.tick() => {
                    let stands = timeout(self.deadline, sink.ping::<redis::Value>()).await;
                    if !matches!(stands, Ok(Ok(_))) {
                        break;
                    }
                }
            }
        }
        self.tell(Incoming::Lost).await
    }

    async fn tell(&self, incoming: Incoming) -> Result<(), Unheard> {
        self.heard.send(incoming).await.map_err(|_| Unheard)
    }
}
