//! Event frames and delivery batches over Redis pub/sub, on a connection of their own. Redis keeps nothing for a
//! subscriber that is away: this bridge reports when the connection was lost, and the replica resyncs.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use actors::{
    backoff::{Backoff, random},
    bridge::{Bridge, BridgeEvent, BridgeStream, DeliveryBatch},
    clock::fine_ns,
    metrics::METRICS,
    model::ReplicaId,
};
use bytes::Bytes;
use deadpool_redis::redis::{self, aio::PubSub};
use futures_util::StreamExt;
use tokio::{sync::mpsc, time::timeout};

/// Events that wait for the listener. Beyond that they wait in Redis, which closes the connection when they are too
/// many.
const INCOMING_LEN_MAX: usize = 4096;
/// How often the connection is tested. One that was cut without a word is found by that.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// The pause before another attempt to connect: after the first failure, and at most.
const RETRY_BACKOFF: Backoff = Backoff {
    min: Duration::from_millis(50),
    max: Duration::from_secs(2),
};

/// Opens a connection for pub/sub to the current server.
pub type ConnectPubSub = dyn Fn() -> Pin<Box<dyn Future<Output = redis::RedisResult<PubSub>> + Send>> + Send + Sync;

/// What the replicas of one Redis publish: events for all, delivery batches for one.
pub struct RedisBridge {
    replica: ReplicaId,
    channel: String,
    /// Longest time to connect, and to answer a ping.
    deadline: Duration,
    connect: Arc<ConnectPubSub>,
}

impl RedisBridge {
    /// A bridge that is not connected until it is listened to.
    pub fn new(replica: ReplicaId, channel: String, deadline: Duration, connect: Arc<ConnectPubSub>) -> Self {
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

    fn listen(&self) -> BridgeStream {
        let (sender, incoming) = mpsc::channel(INCOMING_LEN_MAX);
        let subscriber = Subscriber {
            channel: self.channel.clone(),
            delivery_channel: delivery_channel(&self.channel, self.replica),
            deadline: self.deadline,
            connect: Arc::clone(&self.connect),
            incoming: sender,
        };
        // The task ends when the stream is dropped.
        tokio::spawn(subscriber.run());
        futures_util::stream::unfold(incoming, async |mut incoming| Some((incoming.recv().await?, incoming))).boxed()
    }
}

/// The channel on which delivery batches for a replica are published.
fn delivery_channel(channel: &str, replica: ReplicaId) -> String {
    format!("{channel}:{replica}")
}

/// The task that keeps a subscription open.
struct Subscriber {
    channel: String,
    delivery_channel: String,
    deadline: Duration,
    connect: Arc<ConnectPubSub>,
    incoming: mpsc::Sender<BridgeEvent>,
}

/// The stream of the events was dropped.
struct ReceiverDropped;

impl Subscriber {
    async fn run(self) {
        let mut failures = 0;
        while !self.incoming.is_closed() {
            match timeout(self.deadline, self.subscribe()).await {
                Ok(Ok(connection)) => {
                    failures = 0;
                    if self.forward(connection).await.is_err() {
                        return;
                    }
                }
                Ok(Err(error)) => tracing::debug!(%error, "cannot subscribe to event frames; retrying"),
                Err(_) => tracing::debug!("Redis did not answer a subscription in time; retrying"),
            }
            failures += 1;
            tokio::time::sleep(RETRY_BACKOFF.wait(failures, random())).await;
        }
    }

    async fn subscribe(&self) -> redis::RedisResult<PubSub> {
        let mut connection = (self.connect)().await?;
        connection.subscribe(&[&self.channel, &self.delivery_channel]).await?;
        Ok(connection)
    }

    /// Forwards what is published, until the connection is lost.
    async fn forward(&self, connection: PubSub) -> Result<(), ReceiverDropped> {
        let (mut sink, mut frames) = connection.split();
        self.send(BridgeEvent::Connected).await?;
        // The messages of a delivery batch whose trailer has not come yet.
        let mut messages = Vec::new();
        let mut ping = tokio::time::interval(PING_INTERVAL);
        ping.reset();
        loop {
            tokio::select! {
                frame = frames.next() => match frame {
                    Some(frame) => {
                        let bytes = Bytes::copy_from_slice(frame.get_payload_bytes());
                        if frame.get_channel_name() != self.delivery_channel {
                            self.send(BridgeEvent::Frame(bytes)).await?;
                        } else if DeliveryBatch::is_trailer(&bytes) {
                            self.send(BridgeEvent::DeliveryBatch(std::mem::take(&mut messages), bytes)).await?;
                        } else {
                            messages.push(bytes);
                        }
                    }
                    None => break,
                },
                _ = ping.tick() => {
                    // The answer comes after everything that was published before it.
                    let begun_ns = fine_ns();
                    let answer = timeout(self.deadline, sink.ping::<redis::Value>()).await;
                    METRICS.bridge_lag_ns.set(fine_ns().saturating_sub(begun_ns).cast_signed());
                    if !matches!(answer, Ok(Ok(_))) {
                        break;
                    }
                }
            }
        }
        self.send(BridgeEvent::Disconnected).await
    }

    async fn send(&self, incoming: BridgeEvent) -> Result<(), ReceiverDropped> {
        self.incoming.send(incoming).await.map_err(|_| ReceiverDropped)
    }
}
