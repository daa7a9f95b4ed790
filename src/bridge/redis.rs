//! Frames over Redis pub/sub, on a connection of their own: what Redis loses there is what a replica that was away has
//! to look up, and it is told so.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use actors::{
    bridge::{Bridge, BridgeEvent, BridgeStream, DeliveryBatch},
    model::ReplicaId,
};
use bytes::Bytes;
use deadpool_redis::redis::{self, aio::PubSub};
use futures_util::StreamExt;
use tokio::{sync::mpsc, time::timeout};

/// Frames that wait for the broker. When there are more, Redis keeps them, and ends the connection when it has kept too
/// many.
const INCOMING_LEN_MAX: usize = 4096;
/// How often it is asked whether the connection still stands: one that is cut in silence says nothing by itself.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// How long after a failure a connection is tried again, at first and at most.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(50);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(2);

/// Opens a connection that can subscribe, to wherever the server is by now.
pub type ConnectPubSub = dyn Fn() -> Pin<Box<dyn Future<Output = redis::RedisResult<PubSub>> + Send>> + Send + Sync;

/// What the replicas publish on one channel.
pub struct RedisBridge {
    replica: ReplicaId,
    channel: String,
    /// Longest wait for a connection, and for an answer on it.
    deadline: Duration,
    connect: Arc<ConnectPubSub>,
}

impl RedisBridge {
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
        let (sender, heard) = mpsc::channel(INCOMING_LEN_MAX);
        let ear = Subscriber {
            channel: self.channel.clone(),
            delivery_channel: delivery_channel(&self.channel, self.replica),
            deadline: self.deadline,
            connect: Arc::clone(&self.connect),
            incoming: sender,
        };
        // It ends when nobody holds the stream any more.
        tokio::spawn(ear.run());
        futures_util::stream::unfold(heard, async |mut heard| Some((heard.recv().await?, heard))).boxed()
    }
}

/// Where what is handed over to a replica is published.
fn delivery_channel(channel: &str, replica: ReplicaId) -> String {
    format!("{channel}:{replica}")
}

struct Subscriber {
    channel: String,
    delivery_channel: String,
    deadline: Duration,
    connect: Arc<ConnectPubSub>,
    incoming: mpsc::Sender<BridgeEvent>,
}

/// Nobody listens any more.
struct ReceiverDropped;

impl Subscriber {
    async fn run(self) {
        let mut retry_after = RETRY_DELAY_MIN;
        while !self.incoming.is_closed() {
            match timeout(self.deadline, self.subscribe()).await {
                Ok(Ok(connection)) => {
                    retry_after = RETRY_DELAY_MIN;
                    if self.forward(connection).await.is_err() {
                        return;
                    }
                }
                Ok(Err(error)) => tracing::debug!(%error, "frames cannot be subscribed to: tried again"),
                Err(_) => tracing::debug!("Redis does not answer a subscription in time: tried again"),
            }
            tokio::time::sleep(retry_after).await;
            retry_after = (retry_after * 2).min(RETRY_DELAY_MAX);
        }
    }

    async fn subscribe(&self) -> redis::RedisResult<PubSub> {
        let mut connection = (self.connect)().await?;
        connection.subscribe(&[&self.channel, &self.delivery_channel]).await?;
        Ok(connection)
    }

    /// Until the connection is lost.
    async fn forward(&self, connection: PubSub) -> Result<(), ReceiverDropped> {
        let (mut sink, mut frames) = connection.split();
        self.send(BridgeEvent::Connected).await?;
        // Of a parcel whose last part has not come yet.
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
                    let stands = timeout(self.deadline, sink.ping::<redis::Value>()).await;
                    if !matches!(stands, Ok(Ok(_))) {
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
