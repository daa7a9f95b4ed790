//! Work for many sessions is done in steps: what else waits on the same worker has its turn in between.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use actors::{
    model::ProjectConfig,
    project::{ProjectHandle, ThreadCursor},
};

use crate::world::{ActorThread, World, run, settings, within_deadline};

/// Runs a task beside another one of the same worker. Returns how many turns the other had.
async fn turns_beside<T: 'static>(work: impl Future<Output = T> + 'static) -> (usize, T) {
    let is_done = Arc::new(AtomicBool::new(false));
    let working = actix_rt::spawn({
        let is_done = Arc::clone(&is_done);
        async move {
            let result = work.await;
            is_done.store(true, Ordering::SeqCst);
            result
        }
    });
    let other = actix_rt::spawn(async move {
        let mut turns = 0;
        while !is_done.load(Ordering::SeqCst) {
            turns += 1;
            tokio::task::yield_now().await;
        }
        turns
    });
    let done = within_deadline("the end of the work", working).await.unwrap();
    (other.await.unwrap(), done)
}

/// A world in which a project has many sessions, and one that sends.
async fn crowd(len: usize) -> World {
    let world = World::new(settings(), ActorThread::Test).await;
    let there = world.other_project("there", ProjectConfig::default()).await;
    for at in 0..len {
        there.register(&format!("agent-{at}"), None).await;
    }
    there
}

async fn until_empty(project: ProjectHandle) {
    while !project.directory().all().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_project_with_many_sessions_is_deleted_in_steps() {
    const SESSIONS: usize = 3_000;
    run(|| async {
        let world = crowd(SESSIONS).await;
        let (broker, project) = (world.broker.clone(), world.project.clone());
        let (turns, ()) = turns_beside(async move {
            broker.delete_project(project.id()).await.unwrap();
            until_empty(project).await;
        })
        .await;
        assert!(turns > SESSIONS / 100, "others had {turns} turns");
    });
}

#[test]
fn broadcasts_to_many_are_counted_in_steps() {
    const SESSIONS: usize = 1_000;
    const BROADCASTS: usize = 60;
    run(|| async {
        let world = crowd(SESSIONS).await;
        let sender = world.register("sender", None).await;
        for _ in 0..BROADCASTS {
            let broadcast = world.broadcast_submission(&sender).unwrap();
            world.submit(vec![broadcast]).await.unwrap();
        }
        let project = world.project.clone();
        let (turns, flow) = turns_beside(async move { project.flow(0, u64::MAX, 10, None).await.unwrap() }).await;
        assert!(turns > BROADCASTS * SESSIONS / 20_000, "others had {turns} turns");
        assert_eq!((flow.edges.len(), flow.folded_edges), (10, SESSIONS - 10));
        assert_eq!(flow.edges[0].messages as usize, BROADCASTS);
        assert_eq!(flow.folded_messages as usize, BROADCASTS * (SESSIONS - 10));
        let project = world.project.clone();
        let (turns, page) =
            turns_beside(async move { project.threads(None, ThreadCursor::NEWEST, 10, None).await.unwrap() }).await;
        assert!(turns > BROADCASTS * SESSIONS / 20_000, "others had {turns} turns");
        assert!(page.threads.is_empty());
    });
}
