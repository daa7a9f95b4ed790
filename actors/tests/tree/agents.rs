//! Clients that send and receive without rest, and come back when they are thrown out.

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
    session::{AckMode, Connection, Member, Push, ReceiveMode, Written},
    storage::Acknowledge,
};

use crate::{
    ledger::Ledger,
    world::{Line, MANUAL, World, ids, soon},
};

/// How a recipient gets its messages.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    Push(Push),
    /// Long polls, each acknowledging the one before.
    Poll,
}

const AUTO: Push = Push {
    window: 64,
    ack: AckMode::Auto,
};

/// Recipients of every style and senders to all of them, with a ledger of what is owed.
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
            ("manual", Style::Push(MANUAL)),
            ("auto", Style::Push(AUTO)),
            ("poller", Style::Poll),
        ];
        let (mut recipients, mut receivers) = (Vec::new(), Vec::new());
        for (name, style) in styles {
            // Its name is taken before anybody sends to it.
            recipients.push(recipients_at.register(name, None).await);
            receivers.push(actix_rt::spawn(recipient(
                recipients_at.clone(),
                name,
                style,
                Arc::clone(&ledger),
            )));
        }
        world.project.catch_up().await.unwrap();
        let mut senders = Vec::new();
        for number in 0..3 {
            let sender = world.register(&format!("sender-{number}"), None).await;
            let names = styles.map(|(name, _)| name);
            let task = send_on(world.clone(), sender, names, Arc::clone(&ledger), Arc::clone(&stop));
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

    /// Ends the sending, and waits until everybody has what was promised.
    pub async fn settle(self) {
        self.stop.store(true, Ordering::SeqCst);
        for sender in self.senders {
            soon("the end of a sender", sender).await.unwrap();
        }
        self.ledger.is_settled().await;
        assert_eq!(self.ledger.open(), []);
        for receiver in self.receivers {
            receiver.abort();
        }
        assert!(self.ledger.accepted_len() > 0);
    }
}

/// Submits batches, direct ones and broadcasts, one after the other, and enters what was accepted.
async fn send_on(world: World, sender: Arc<Member>, names: [&str; 3], ledger: Arc<Ledger>, stop: Arc<AtomicBool>) {
    let recipient_ids = names.map(|name| world.project.resolve(name).unwrap().record.id);
    while !stop.load(Ordering::SeqCst) {
        let mut submissions = Vec::new();
        let mut meant: Vec<Vec<SessionId>> = Vec::new();
        for (name, id) in names.iter().zip(recipient_ids) {
            for _ in 0..3 {
                submissions.push(world.submission(&sender, name).unwrap());
                meant.push(vec![id]);
            }
        }
        submissions.push(world.broadcast(&sender).unwrap());
        meant.push(recipient_ids.to_vec());
        // Not accepted as a whole when the router panicked over it or is flooded: then nothing is owed.
        for (answer, meant) in world
            .submit(submissions)
            .await
            .unwrap_or_default()
            .into_iter()
            .zip(meant)
        {
            match answer {
                Ok(routed) => {
                    let refused = &routed.outcome.refused;
                    for id in meant.into_iter().filter(|id| !refused.contains(id)) {
                        ledger.accepted(id, routed.outcome.message);
                    }
                }
                Err(BrokerError::QueueFull { .. } | BrokerError::Unavailable { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        tokio::task::yield_now().await;
    }
}

/// A client that registers, takes what comes, acknowledges it, and registers again when it is closed.
async fn recipient(world: World, name: &str, style: Style, ledger: Arc<Ledger>) {
    loop {
        match style {
            Style::Push(push) => listen(&world, name, push, &ledger).await,
            Style::Poll => poll(&world, name, &ledger).await,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Until the connection is closed.
async fn listen(world: &World, name: &str, push: Push, ledger: &Ledger) {
    let line = Line::new();
    let Ok(registered) = world.try_register(name, Some(&line)).await else {
        return;
    };
    let member = registered.member;
    world.subscribe(&member, &line, Some(push));
    loop {
        line.until("work", |seen| !seen.pushed.is_empty() || !seen.closed.is_empty())
            .await;
        let messages = ids(&line.take_pushed());
        for &message in &messages {
            ledger.seen(member.record.id, message);
        }
        match push.ack {
            AckMode::Manual => world.project.acknowledge_unheard(&member, Acknowledge::Ids(messages)),
            AckMode::Auto => world.project.written(
                &member,
                Written {
                    connection: line.id(),
                    messages,
                },
            ),
        }
        if !line.closed().is_empty() {
            return;
        }
    }
}

/// Until an answer fails to come.
async fn poll(world: &World, name: &str, ledger: &Ledger) {
    let Ok(member) = world.project.resolve(name) else {
        return;
    };
    while let Ok(received) = world
        .receive(&member, Duration::from_secs(30), ReceiveMode::OnNext)
        .await
    {
        for message in ids(&received.deliveries) {
            ledger.seen(member.record.id, message);
        }
    }
}
