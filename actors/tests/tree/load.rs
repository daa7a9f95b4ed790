//! Clients that send and receive without a pause, and that reconnect when they are disconnected.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use actix_rt::task::JoinHandle;
use actors::{
    model::{BrokerError, SessionId},
    session::{AckMode, Connection, Member, MessagesWritten, PushMode, ReceiveMode},
    storage::Acknowledge,
};

use crate::{
    ledger::Ledger,
    world::{MANUAL, RecordingConnection, World, ids, within_deadline},
};

/// How a recipient receives its messages.
#[derive(Clone, Copy, Debug)]
pub enum ReceiveStyle {
    Push(PushMode),
    /// Long polls. Each poll acknowledges the messages of the previous one.
    Poll,
}

const AUTO: PushMode = PushMode {
    window: 64,
    ack: AckMode::Auto,
};

/// Recipients of each style, senders to all of them, and a ledger of the accepted messages.
pub struct Load {
    pub world: World,
    pub ledger: Arc<Ledger>,
    pub recipients: Vec<Arc<Member>>,
    stop: Arc<AtomicBool>,
    senders: Vec<JoinHandle<()>>,
    receivers: Vec<JoinHandle<()>>,
}

impl Load {
    pub async fn start(world: &World) -> Self {
        Self::across(world, world).await
    }

    /// The senders on one replica, the recipients on the other.
    pub async fn across(world: &World, recipients_at: &World) -> Self {
        let ledger = Ledger::new();
        let stop = Arc::new(AtomicBool::new(false));
        let styles = [
            ("manual", ReceiveStyle::Push(MANUAL)),
            ("auto", ReceiveStyle::Push(AUTO)),
            ("poller", ReceiveStyle::Poll),
        ];
        let (mut recipients, mut receivers) = (Vec::new(), Vec::new());
        for (name, style) in styles {
            // Registers the name before a sender resolves it.
            recipients.push(recipients_at.register(name, None).await);
            receivers.push(actix_rt::spawn(recipient(
                recipients_at.clone(),
                name,
                style,
                Arc::clone(&ledger),
            )));
        }
        world.project.wait_until_current().await.unwrap();
        let mut senders = Vec::new();
        for number in 0..3 {
            let sender = world.register(&format!("sender-{number}"), None).await;
            let names = styles.map(|(name, _)| name);
            let task = send_until_stopped(world.clone(), sender, names, Arc::clone(&ledger), Arc::clone(&stop));
            senders.push(actix_rt::spawn(task));
        }
        Self {
            world: world.clone(),
            ledger,
            recipients,
            stop,
            senders,
            receivers,
        }
    }

    /// Stops the senders and waits until every recipient has seen every accepted message.
    pub async fn finish(self) {
        self.stop.store(true, Ordering::SeqCst);
        for sender in self.senders {
            within_deadline("the end of a sender", sender).await.unwrap();
        }
        self.ledger.await_all_seen().await;
        assert_eq!(self.ledger.missing(), []);
        for receiver in self.receivers {
            receiver.abort();
        }
        assert!(self.ledger.accepted_len() > 0);
    }
}

/// Submits batches of direct messages and broadcasts, and records the accepted ones.
async fn send_until_stopped(
    world: World,
    sender: Arc<Member>,
    names: [&str; 3],
    ledger: Arc<Ledger>,
    stop: Arc<AtomicBool>,
) {
    let recipient_ids = names.map(|name| world.project.resolve(name).known().unwrap().record.id);
    while !stop.load(Ordering::SeqCst) {
        let mut submissions = Vec::new();
        let mut meant: Vec<Vec<SessionId>> = Vec::new();
        for (name, id) in names.iter().zip(recipient_ids) {
            for _ in 0..3 {
                submissions.push(world.direct_submission(&sender, name).unwrap());
                meant.push(vec![id]);
            }
        }
        submissions.push(world.broadcast_submission(&sender).unwrap());
        meant.push(recipient_ids.to_vec());
        // The whole batch is refused when the router panicked while handling it or is flooded: nothing is recorded
        // then.
        for (answer, meant) in world
            .submit(submissions)
            .await
            .unwrap_or_default()
            .into_iter()
            .zip(meant)
        {
            match answer {
                Ok(routed) => {
                    let refused = &routed.result.refused;
                    for id in meant.into_iter().filter(|id| !refused.contains(id)) {
                        ledger.record_accepted(id, routed.result.message);
                    }
                }
                Err(BrokerError::QueueFull { .. } | BrokerError::Unavailable { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        tokio::task::yield_now().await;
    }
}

/// A client that registers, receives and acknowledges messages, and registers again after each disconnect.
async fn recipient(world: World, name: &str, style: ReceiveStyle, ledger: Arc<Ledger>) {
    loop {
        match style {
            ReceiveStyle::Push(push) => listen(&world, name, push, &ledger).await,
            ReceiveStyle::Poll => poll(&world, name, &ledger).await,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Receives pushed messages until the connection is closed.
async fn listen(world: &World, name: &str, push: PushMode, ledger: &Ledger) {
    let line = RecordingConnection::new();
    let Ok(registered) = world.try_register(name, Some(&line)).await else {
        return;
    };
    let member = registered.member;
    world.subscribe(&member, &line, Some(push));
    loop {
        line.await_recorded("work", |seen| !seen.pushed.is_empty() || !seen.closed.is_empty())
            .await;
        let messages = ids(&line.take_pushed());
        for &message in &messages {
            ledger.record_seen(member.record.id, message);
        }
        match push.ack {
            AckMode::Manual => world
                .project
                .acknowledge_without_reply(&member, Acknowledge::Ids(messages)),
            AckMode::Auto => world.project.messages_written(
                &member,
                MessagesWritten {
                    connection: line.id(),
                    messages,
                },
            ),
        }
        if !line.close_reasons().is_empty() {
            return;
        }
    }
}

/// Polls until a call fails.
async fn poll(world: &World, name: &str, ledger: &Ledger) {
    let Ok(member) = world.project.resolve(name).known() else {
        return;
    };
    while let Ok(received) = world
        .receive(&member, Duration::from_secs(30), ReceiveMode::OnNext)
        .await
    {
        for message in ids(&received.deliveries) {
            ledger.record_seen(member.record.id, message);
        }
    }
}
