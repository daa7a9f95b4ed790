//! The desk of several replicas over one store.

use std::time::{Duration, Instant};

use actors::{desk::DeskEvent, model::Answer};

use super::human;
use crate::{
    replicas::ReplicaPair,
    world::{run, settings, within_deadline},
};

#[test]
fn a_question_of_one_replica_is_answered_at_another() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        let alice = here.register("alice", None).await;
        let mut console = there.project.attach_console(human("mara")).await.unwrap();
        let id = here.ask(&alice, "Which one?", "desk").await;
        let offered = here.await_offer(id, "mara").await;
        assert_eq!(offered.console(), Some(console.id()));
        within_deadline("the feed", async {
            loop {
                if let DeskEvent::Question(question) = console.events.next().await.unwrap()
                    && question.console() == Some(console.id())
                {
                    break;
                }
            }
        })
        .await;
        let desk = here.project.desk().await.unwrap();
        assert_eq!((desk.consoles.len(), desk.consoles[0].open), (1, 1));
        let mut watch = here.project.watch_question(&offered);
        let waits = within_deadline("the answer", watch.changed());
        let mara = human("mara");
        let answers = there.project.answer_question(id, &mara, Answer::text("this"), None);
        let (seen, answered) = tokio::join!(waits, answers);
        assert_eq!(seen.unwrap().revision, answered.unwrap().revision);
        assert_eq!(here.take_messages(&alice).await.len(), 1);
    });
}

#[test]
fn a_console_elsewhere_has_the_question_of_a_dead_replica_within_two_seconds() {
    run(|| async {
        let pair = ReplicaPair::new(settings()).await;
        let alice = pair.there.register("alice", None).await;
        let _mara = pair.here.project.attach_console(human("mara")).await.unwrap();
        let id = pair.there.ask(&alice, "Which one?", "desk").await;
        pair.there.await_offer(id, "mara").await;
        let _lena = pair.there.project.attach_console(human("lena")).await.unwrap();
        pair.cut_here();
        let cut = Instant::now();
        pair.there.await_offer(id, "lena").await;
        let passed = cut.elapsed();
        println!("lena has the question after {passed:?}");
        assert!(passed < Duration::from_millis(2_300), "{passed:?}");
    });
}

#[test]
fn questions_are_spread_over_the_consoles_of_all_replicas() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        let alice = here.register("alice", None).await;
        let _consoles = [
            here.project.attach_console(human("mara")).await.unwrap(),
            there.project.attach_console(human("lena")).await.unwrap(),
            there.project.attach_console(human("kim")).await.unwrap(),
        ];
        within_deadline("all know all", async {
            while here.project.desk().await.unwrap().consoles.len() < 3 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        let mut ids = Vec::new();
        for _ in 0..35 {
            ids.push(here.ask(&alice, "Which one?", "desk").await);
        }
        let is_spread = |desk: &actors::desk::DeskSummary| {
            desk.consoles.iter().map(|console| console.open).eq([10; 3]) && desk.waiting == 5
        };
        for replica in [&here, &there] {
            within_deadline("each has ten, and five wait", async {
                while !is_spread(&replica.project.desk().await.unwrap()) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
            .await;
            assert_eq!(replica.project.desk().await.unwrap().offered, 30);
        }
    });
}

#[test]
fn a_resync_finds_what_frames_have_not_told() {
    run(|| async {
        let pair = ReplicaPair::new(settings()).await;
        let alice = pair.here.register("alice", None).await;
        let _mara = pair.there.project.attach_console(human("mara")).await.unwrap();
        pair.there.project.wait_until_current().await.unwrap();
        pair.lose_frames_there(1);
        let id = pair.here.ask(&alice, "Which one?", "desk").await;
        pair.lose_frames_there(0);
        // A later frame shows the gap.
        pair.here.register("bob", None).await;
        pair.here.await_offer(id, "mara").await;
    });
}
