//! Messages between projects: who may send, the order of the refusals and what they reveal, and what arrives.

mod delivery;
mod rates;
mod refusals;
mod repeats;
mod status;

use std::sync::Arc;

use actors::{
    model::{BrokerError, ConfigChanges, DeadLetterReason, DeliveryStatus, MessageId, ProjectChanges, ProjectConfig},
    project::{PreparedSend, SendRequest},
    router::{RouteAnswer, Routed},
    session::{EndSession, Member, UnboundedReads},
    storage::{DeadLetterQuery, Delivery},
};
use serde_json::Value;

use crate::world::{ActorThread, World, envelope, grant_of, project_id, settings, within_deadline};

fn cross_project_config() -> ProjectConfig {
    ProjectConfig {
        allow_cross_project: true,
        ..ProjectConfig::default()
    }
}

/// Sets whether a project sends to and receives from other projects.
async fn allow_cross_project(world: &World, is_open: bool) {
    let changes = ProjectChanges {
        config: ConfigChanges {
            allow_cross_project: Some(is_open),
            ..ConfigChanges::default()
        },
        ..ProjectChanges::default()
    };
    world.broker.change_project(world.project.id(), changes).await.unwrap();
}

/// Grants `from` to send these protocols to `to`, at most `per_minute` messages per minute.
async fn grant_sending(from: &World, to: &str, protocols: &[&str], per_minute: u32) {
    let grant = grant_of(protocols, per_minute);
    from.broker
        .grant(from.project.id(), project_id(to), grant)
        .await
        .unwrap();
}

/// Alice in one project, and another project to which she may send everything.
async fn two_projects(here: World) -> (World, Arc<Member>, World) {
    allow_cross_project(&here, true).await;
    let there = here.other_project("there", cross_project_config()).await;
    grant_sending(&here, "there", &[], 0).await;
    let alice = here.register("alice", None).await;
    (here, alice, there)
}

pub async fn two_projects_in_memory() -> (World, Arc<Member>, World) {
    two_projects(World::new(settings(), ActorThread::Test).await).await
}

fn envelope_with<'a>(protocol_name: &'a str, payload: &'a str) -> SendRequest<'a> {
    SendRequest {
        protocol_name,
        payload,
        ..envelope(false)
    }
}

fn refusal(world: &World, sender: &Arc<Member>, to: &str) -> BrokerError {
    refused(world, sender, to, &envelope(false))
}

fn refused(world: &World, sender: &Arc<Member>, to: &str, envelope: &SendRequest<'_>) -> BrokerError {
    let sent = world.project.prepare_direct(sender, to, envelope).known();
    sent.map(drop).expect_err("a refusal")
}

/// Submits a message to the router of its recipient's project.
async fn submit(world: &World, dispatch: PreparedSend) -> RouteAnswer {
    match dispatch {
        PreparedSend::Local(submission) => {
            let answers = world.project.submit(vec![submission]).unwrap();
            within_deadline("the answer", answers).await.unwrap().remove(0)
        }
        PreparedSend::CrossProject(crossing) => {
            within_deadline("the answer", world.project.send_cross_project(*crossing)).await
        }
    }
}

pub async fn try_send(world: &World, sender: &Arc<Member>, to: &str, envelope: &SendRequest<'_>) -> RouteAnswer {
    submit(world, world.project.prepare_direct(sender, to, envelope).known()?).await
}

/// Sends a message that must be accepted.
async fn send(world: &World, sender: &Arc<Member>, to: &str) -> Routed {
    try_send(world, sender, to, &envelope(true)).await.unwrap()
}

async fn statuses(world: &World, message: MessageId) -> Option<Vec<DeliveryStatus>> {
    let known = world.project.message_status(message).await.unwrap();
    known.map(|known| known.iter().map(|recipient| recipient.status).collect())
}

async fn dead_letters(world: &World) -> Vec<MessageId> {
    let query = DeadLetterQuery {
        limit: 100,
        ..DeadLetterQuery::default()
    };
    let page = world.project.dead_letters(query, &UnboundedReads).await.unwrap();
    assert!(!page.more);
    page.items.iter().map(|letter| letter.message.id).collect()
}

async fn end_session(world: &World, member: &Member) {
    let reason = DeadLetterReason::RecipientGone;
    member.address.tell(EndSession { reason }).unwrap();
    within_deadline("its end", async {
        while world.project.session(member.record.id).is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn delivered_json(delivery: &Delivery) -> Value {
    let mut text = Vec::new();
    delivery.message.write(&mut text, delivery.count);
    serde_json::from_slice(&text).unwrap()
}
