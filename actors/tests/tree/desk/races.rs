//! Answers, a refusal, a cancellation and the end of the time of one question at the same moment.

use std::{collections::BTreeMap, sync::Arc};

use actors::{
    clock::now,
    desk::Reader,
    model::{
        AddressedTo, Answer, Asker, BrokerError, ProjectId, Question, QuestionContent, QuestionId, QuestionState,
        Urgency,
    },
    session::Member,
    storage::Storage,
};
use futures_util::future::join_all;

use super::human;
use crate::{
    slow_storage::SlowStorage,
    world::{ActorThread, World, run, settings},
};

const RACES: usize = 1_000;
/// Questions that are raced for at once; a session may have 100 open ones.
const AT_ONCE: usize = 50;

/// A question whose time ends now.
fn ending(asker: &Member) -> Question {
    Question {
        id: QuestionId::generate(),
        revision: 0,
        asker: Asker {
            session: asker.record.id,
            name: asker.record.name.clone(),
            owner: asker.record.owner.clone(),
        },
        summary: "Which one?".to_owned(),
        content_bytes: 10,
        urgency: Urgency::Medium,
        to: AddressedTo::Anyone,
        is_sensitive: false,
        expires_at_ms: Some(now().unix_ms),
        on_expiry: None,
        idempotency_key: None,
        state: QuestionState::Waiting,
        seen_at_ms: None,
        is_expiring: false,
        sealed_answer: None,
        answer_deleted_ms: None,
        handover: None,
        notice: None,
    }
}

type Ended = Result<Arc<Question>, BrokerError>;

/// One of four callers ends the question, after some reads: so each of them is the first sometimes.
async fn end(world: &World, alice: &Member, id: QuestionId, caller: usize, reads: usize) -> Ended {
    for _ in 0..reads {
        world.project.question_record(id, &Reader::Admin).await.unwrap();
    }
    let project = &world.project;
    match caller {
        0 => {
            project
                .answer_question(id, &human("mara"), Answer::text("this"), None)
                .await
        }
        1 => {
            project
                .answer_question(id, &human("lena"), Answer::text("that"), None)
                .await
        }
        2 => project.decline_question(id, &human("kim"), None, None).await,
        _ => {
            project
                .cancel_question(id, &Reader::Asker(&alice.record.owner), None)
                .await
        }
    }
}

/// Checks what the callers were told. Returns the state.
fn check(ended: &Question, told: &[Ended]) -> &'static str {
    let closed = ended.closed().unwrap();
    let mut won = usize::from(closed.how.as_str() == "expired");
    for (caller, told) in told.iter().enumerate() {
        let own = ["mara", "lena", "kim", "alice"][caller];
        match told {
            Ok(question) => {
                assert_eq!(**question, *ended, "{own} was told another end");
                won += usize::from(closed.by() == Some(own));
            }
            Err(BrokerError::QuestionClosed { state, by, at_ms }) => {
                let expected = (closed.how.as_str(), closed.by(), closed.at_ms);
                assert_eq!((*state, by.as_deref(), *at_ms), expected, "{own} was told another end");
            }
            Err(error) => panic!("{own}: {error:?}"),
        }
    }
    assert_eq!(won, 1, "{ended:?} {told:?}");
    closed.how.as_str()
}

#[test]
fn of_a_thousand_races_each_has_one_winner_and_all_are_told_the_same() {
    run(|| async {
        let storage = Arc::<SlowStorage>::default();
        let store = storage.open(&ProjectId::default_project());
        let world = World::on_storage(storage as _, settings(), ActorThread::Own).await;
        let alice = world.register("alice", None).await;
        let (mut ends, mut told) = (BTreeMap::<_, usize>::new(), BTreeMap::<_, usize>::new());
        for batch in 0..RACES / AT_ONCE {
            let questions: Vec<_> = (0..AT_ONCE).map(|_| ending(&alice)).collect();
            for question in &questions {
                let content = Arc::new(QuestionContent::text("Which one?"));
                store.ask(Arc::new(question.clone()), content, now()).await.unwrap();
            }
            let race = |(number, question): (usize, &Question)| {
                let (world, alice, id) = (&world, &alice, question.id);
                let reads = move |caller: usize| (number + batch + 2 * caller) % 5;
                async move { join_all((0..4).map(|caller| end(world, alice, id, caller, reads(caller)))).await }
            };
            let races = join_all(questions.iter().enumerate().map(race));
            if batch % 2 == 0 {
                // The desk learns of the questions at once; else when a caller has changed one of them.
                world.project.look_at_desk();
            }
            let results = races.await;
            for (question, results) in questions.iter().zip(results) {
                let ended = world
                    .await_question(question.id, "an end", |question| !question.is_open())
                    .await;
                *ends.entry(check(&ended, &results)).or_default() += 1;
            }
            for message in world.take_messages(&alice).await {
                let state = message["payload"]["state"].as_str().unwrap().to_owned();
                *told.entry(state).or_default() += 1;
            }
        }
        println!("{ends:?}");
        assert_eq!(ends.values().sum::<usize>(), RACES);
        for end in ["answered", "declined", "expired", "cancelled"] {
            assert!(ends.contains_key(end), "{end} has never won: {ends:?}");
        }
        // The asker is told of each end but its own.
        for end in ["answered", "declined", "expired"] {
            assert_eq!(told.get(end), ends.get(end), "{end}");
        }
        assert_eq!(told.get("cancelled"), None);
    });
}
