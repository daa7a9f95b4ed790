//! The desk over memory: questions reach people, end once, and survive panics and restarts.

mod races;
mod replicas;
mod yaps;

use std::{sync::Arc, time::Duration};

use actors::{
    clock::now,
    desk::{DeskEvent, Human, NewQuestion, Reader},
    model::{
        ASKER_GONE, AddressedTo, Answer, BrokerError, Closing, Owner, ProjectId, Question, QuestionContent, QuestionId,
        QuestionState, SessionName, Urgency, Via,
    },
    session::{Member, ReceiveMode},
    storage::{Storage, memory::MemoryStorage},
};
use futures_util::FutureExt;
use serde_json::Value;

use crate::{
    counting_storage::CountingStorage,
    world::{ActorThread, World, run, settings, within_deadline},
};

pub fn human(name: &str) -> Human {
    Human {
        name: SessionName::parse(name).unwrap(),
        roles: Vec::new(),
        owner: Owner::anonymous(),
        is_name_fixed: false,
        is_agent: false,
        via: Via::Console,
    }
}

pub fn new_question(text: &str, to: &str) -> NewQuestion {
    NewQuestion {
        content: QuestionContent::text(text),
        to: AddressedTo::from(to.to_owned()),
        expires_in: Some(NewQuestion::EXPIRES_IN_DEFAULT),
        ..NewQuestion::default()
    }
}

impl World {
    pub async fn ask(&self, asker: &Arc<Member>, text: &str, to: &str) -> QuestionId {
        let asked = self.project.ask(asker, new_question(text, to)).await.unwrap();
        assert!(asked.is_new);
        asked.question.id
    }

    /// Waits until the record of a question fulfils a condition.
    pub async fn await_question(&self, id: QuestionId, what: &str, is_so: impl Fn(&Question) -> bool) -> Arc<Question> {
        within_deadline(what, async {
            let mut question = self.project.question_record(id, &Reader::Admin).await.unwrap();
            let mut watch = self.project.watch_question(&question);
            while !is_so(&question) {
                question = watch.changed().await.unwrap();
            }
            question
        })
        .await
    }

    /// Waits until a console of this person has the question.
    pub async fn await_offer(&self, id: QuestionId, to: &str) -> Arc<Question> {
        let is_at = |question: &Question| matches!(&question.state, QuestionState::Offered(offer) if offer.human.as_str() == to);
        self.await_question(id, "the offer", is_at).await
    }

    /// Takes what waits for a session: the payloads and headers of the messages.
    pub async fn take_messages(&self, member: &Member) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let received = self.receive(member, Duration::ZERO, ReceiveMode::Manual).await.unwrap();
            if received.deliveries.is_empty() {
                return all;
            }
            for delivery in &received.deliveries {
                let mut text = Vec::new();
                delivery.message.write(&mut text, delivery.count);
                all.push(serde_json::from_slice(&text).unwrap());
            }
            self.acknowledge(member, crate::world::ids(&received.deliveries)).await;
        }
    }
}

#[test]
fn an_answer_reaches_its_asker_and_a_second_one_is_kept_as_a_draft() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let mut console = world.project.attach_console(human("mara")).await.unwrap();
        let id = world.ask(&alice, "Drop the old table?", "desk").await;
        let offered = world.await_offer(id, "mara").await;
        assert_eq!(offered.console(), Some(console.id()));
        let (read, content) = world
            .project
            .question(id, &Reader::Human(&human("mara")))
            .await
            .unwrap();
        assert!(read.seen_at_ms.is_some());
        assert_eq!(content.items[0].question, "Drop the old table?");
        let claimed = world
            .project
            .claim_question(id, &human("mara"), Some(console.id()), None)
            .await
            .unwrap();
        let stale = world
            .project
            .answer_question(id, &human("mara"), Answer::text("no"), Some(claimed.revision - 1))
            .await;
        let revision = claimed.revision;
        assert_eq!(stale, Err(BrokerError::RevisionMismatch { revision }));
        let mut watch = world.project.watch_question(&claimed);
        let waits = within_deadline("the answer", watch.changed());
        let mara = human("mara");
        let answers = world
            .project
            .answer_question(id, &mara, Answer::text("yes"), Some(claimed.revision));
        let (seen, answered) = tokio::join!(waits, answers);
        assert_eq!(seen, answered);
        let answered = answered.unwrap();
        assert_eq!(answered.state_str(), "answered");

        let [notice] = &world.take_messages(&alice).await[..] else {
            panic!("one message tells the asker")
        };
        assert_eq!(
            (&notice["protocol_name"], &notice["sender_name"]),
            (&"human-answer".into(), &"mara".into())
        );
        assert_eq!(notice["headers"]["correlation_id"], id.to_string());
        assert_eq!(notice["payload"]["answer"]["text"], "yes");
        assert_eq!(notice["message_id"], answered.notice.unwrap().to_string());

        let late = world
            .project
            .answer_question(id, &human("lena"), Answer::text("wait"), None)
            .await;
        let Err(BrokerError::QuestionClosed { state, by, .. }) = late else {
            panic!("{late:?}")
        };
        assert_eq!((state, by.as_deref()), ("answered", Some("mara")));
        assert_eq!(world.project.draft(id, &human("lena")).await.unwrap(), "wait");
        assert_eq!(world.take_messages(&alice).await, [] as [Value; 0]);

        let mut states = Vec::new();
        while states.last() != Some(&"answered") {
            if let DeskEvent::Question(question) = within_deadline("the feed", console.events.next()).await.unwrap() {
                states.push(question.state_str());
            }
        }
        assert_eq!(
            states.len() as u64,
            answered.revision + 1,
            "each revision once, in its order"
        );
    });
}

#[test]
fn a_call_that_waits_for_a_question_reads_the_store_once() {
    run(|| async {
        let storage = Arc::<CountingStorage>::default();
        let counts = storage.counts();
        let world = World::on_storage(storage, settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let id = world.ask(&alice, "Merge it?", "mara").await;
        let asked = world.project.question_record(id, &Reader::Admin).await.unwrap();
        let mut watch = world.project.watch_question(&asked);
        let before = counts.question_reads();
        for tick in 0..5 {
            assert_eq!(watch.changed().now_or_never(), None, "{tick}");
        }
        assert_eq!(counts.question_reads(), before + 1);
        let mara = human("mara");
        let answers = world.project.answer_question(id, &mara, Answer::text("yes"), None);
        let answered = answers.await.unwrap();
        assert_eq!(within_deadline("the answer", watch.changed()).await.unwrap(), answered);
        // What is removed is not waited for.
        world.project.remove_question(id).await.unwrap();
        let removed = within_deadline("the removal", watch.changed()).await;
        assert_eq!(removed, Err(BrokerError::QuestionNotFound { id: *id.as_uuid() }));
    });
}

#[test]
fn only_those_who_may_answer_find_a_question() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let id = world.ask(&alice, "Merge it?", "mara").await;
        let unknown = || BrokerError::QuestionNotFound { id: *id.as_uuid() };
        let lena = human("lena");
        assert_eq!(
            world.project.question(id, &Reader::Human(&lena)).await.err(),
            Some(unknown())
        );
        let answer = world
            .project
            .answer_question(id, &lena, Answer::text("yes"), None)
            .await;
        assert_eq!(answer.err(), Some(unknown()));
        assert_eq!(
            world.project.claim_question(id, &lena, None, None).await.err(),
            Some(unknown())
        );
        let other = Owner::subject("other");
        assert_eq!(
            world.project.question(id, &Reader::Asker(&other)).await.err(),
            Some(unknown())
        );
        let oncall = Human {
            roles: vec!["mara".to_owned()],
            ..human("kim")
        };
        assert!(
            world.project.question(id, &Reader::Human(&oncall)).await.is_ok(),
            "a role"
        );
        let agents_name = world
            .project
            .answer_question(id, &human("alice"), Answer::text("yes"), None)
            .await;
        assert!(matches!(agents_name, Err(BrokerError::InvalidArgument { field, .. }) if field == "human"));
    });
}

#[test]
fn the_same_key_finds_the_same_question() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let (alice, bob) = (world.register("alice", None).await, world.register("bob", None).await);
        let new = NewQuestion {
            idempotency_key: Some("mig-42".to_owned()),
            ..new_question("Drop it?", "desk")
        };
        let first = world.project.ask(&alice, new.clone()).await.unwrap();
        let again = world.project.ask(&alice, new.clone()).await.unwrap();
        assert_eq!((again.is_new, again.question.id), (false, first.question.id));
        assert!(
            world.project.ask(&bob, new).await.unwrap().is_new,
            "keys belong to a session"
        );
    });
}

#[test]
fn a_console_that_leaves_gives_its_question_to_another() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let mara = world.project.attach_console(human("mara")).await.unwrap();
        let id = world.ask(&alice, "Which one?", "desk").await;
        world.await_offer(id, "mara").await;
        let lena = world.project.attach_console(human("lena")).await.unwrap();
        drop(mara);
        world.await_offer(id, "lena").await;
        lena.set_away(true);
        world
            .await_question(id, "it waits", |question| question.state == QuestionState::Waiting)
            .await;
        assert_eq!(world.project.queue_position(id), Some(1));
        lena.set_away(false);
        world.await_offer(id, "lena").await;
        let desk = world.project.desk().await.unwrap();
        assert_eq!((desk.consoles.len(), desk.offered, desk.consoles[0].open), (1, 1, 1));
    });
}

#[test]
fn a_handover_goes_to_the_named_person() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let _mara = world.project.attach_console(human("mara")).await.unwrap();
        let id = world.ask(&alice, "Which one?", "desk").await;
        world.await_offer(id, "mara").await;
        let _lena = world.project.attach_console(human("lena")).await.unwrap();
        let to = AddressedTo::Named("lena".to_owned());
        let note = Some("yours".to_owned());
        world
            .project
            .hand_over_question(id, &human("mara"), to, note)
            .await
            .unwrap();
        let offered = world.await_offer(id, "lena").await;
        assert_eq!(offered.handover.as_ref().unwrap().note.as_deref(), Some("yours"));
        let again = world.project.claim_question(id, &human("mara"), None, None).await;
        assert!(matches!(again, Err(BrokerError::Forbidden { .. })), "{again:?}");
    });
}

#[test]
fn the_end_of_its_asker_cancels_a_question() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let id = world.ask(&alice, "Which one?", "desk").await;
        world.project.forget_session(alice.record.id).await.unwrap();
        let ended = world
            .await_question(id, "its end", |question| !question.is_open())
            .await;
        let Closing::Cancelled { by, reason } = &ended.closed().unwrap().how else {
            panic!("{ended:?}")
        };
        assert_eq!((by, reason.as_deref()), (&None, Some(ASKER_GONE)));
    });
}

#[test]
fn a_closed_question_stays_as_it_is_when_it_is_cancelled() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let asker = Reader::Asker(&alice.record.owner);
        let id = world.ask(&alice, "Which one?", "desk").await;
        let answered = world
            .project
            .answer_question(id, &human("mara"), Answer::text("this"), None)
            .await;
        let cancelled = world.project.cancel_question(id, &asker, None).await;
        assert_eq!(cancelled, answered);
        let own = world.ask(&alice, "Which one?", "desk").await;
        world.take_messages(&alice).await;
        let cancelled = world.project.cancel_question(own, &asker, None).await.unwrap();
        assert_eq!((cancelled.state_str(), cancelled.notice), ("cancelled", None));
        assert_eq!(world.take_messages(&alice).await.len(), 0, "the asker knows it");
        let mara = human("mara");
        let person = world.project.cancel_question(own, &Reader::Human(&mara), None).await;
        assert!(matches!(person, Err(BrokerError::Forbidden { .. })), "{person:?}");
    });
}

#[test]
fn a_panic_of_the_desk_loses_no_question() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let mara = world.project.attach_console(human("mara")).await.unwrap();
        let id = world.ask(&alice, "Which one?", "desk").await;
        world.await_offer(id, "mara").await;
        let lena = world.project.attach_console(human("lena")).await.unwrap();
        for round in 1..=3 {
            world.project.desk_address().tell(actors::supervise::Panic).unwrap();
            // Consoles belong to connections: one that leaves now is missed by the desk that starts again.
            within_deadline("the restart", async {
                while world.node("desk", "default").restarts < round {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
        drop(mara);
        world.await_offer(id, "lena").await;
        assert_eq!(world.restarts(), [("desk", "default".to_owned(), 3)]);
        let later = world.ask(&alice, "And now?", "desk").await;
        world.await_offer(later, "lena").await;
        drop(lena);
    });
}

#[test]
fn open_questions_survive_a_restart_of_the_broker() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::default());
    let start = || {
        let storage = Arc::clone(&storage);
        async move { World::on_storage(storage, settings(), ActorThread::Test).await }
    };
    let (sent, claimed) = std::sync::mpsc::channel();
    let first = start();
    run(move || async move {
        let world = first.await;
        let alice = world.register("alice", None).await;
        let mara = world.project.attach_console(human("mara")).await.unwrap();
        let id = world.ask(&alice, "Which one?", "desk").await;
        world.await_offer(id, "mara").await;
        world
            .project
            .claim_question(id, &human("mara"), Some(mara.id()), None)
            .await
            .unwrap();
        let offered = world.ask(&alice, "And this?", "desk").await;
        world.await_offer(offered, "mara").await;
        sent.send((id, offered)).unwrap();
    });
    let (id, offered) = claimed.recv().unwrap();
    // Its end comes while no broker runs.
    let store = storage.open(&ProjectId::default_project());
    let second = start();
    run(move || async move {
        let open = store.open_questions().await.unwrap();
        let mut expiring = Question::clone(&open[0]);
        expiring.id = QuestionId::generate();
        expiring.revision = 0;
        expiring.state = QuestionState::Waiting;
        expiring.urgency = Urgency::High;
        expiring.expires_at_ms = Some(now().unix_ms - 1);
        let expired = expiring.id;
        store
            .ask(Arc::new(expiring), Arc::new(QuestionContent::text("Now?")), now())
            .await
            .unwrap();
        let world = second.await;
        let alice = world.register("alice", None).await;
        let ended = world
            .await_question(expired, "its end", |question| !question.is_open())
            .await;
        assert_eq!((ended.state_str(), ended.closed().unwrap().by()), ("expired", None));
        let told = world.take_messages(&alice).await;
        assert_eq!((told.len(), &told[0]["sender_name"]), (1, &"mcp-broker".into()));
        world
            .await_question(offered, "it waits", |question| question.state == QuestionState::Waiting)
            .await;
        let mara = world.project.attach_console(human("mara")).await.unwrap();
        world.await_offer(offered, "mara").await;
        let moved = world
            .await_question(id, "the claim", |question| question.console() == Some(mara.id()))
            .await;
        assert_eq!(moved.claim().unwrap().human.as_str(), "mara");
    });
}

#[test]
fn lists_are_in_the_order_of_the_queue_and_the_newest_first() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let mut ids = Vec::new();
        for urgency in [Urgency::Low, Urgency::High, Urgency::Low, Urgency::High] {
            let new = NewQuestion {
                urgency,
                ..new_question("Which one?", "desk")
            };
            ids.push(world.project.ask(&alice, new).await.unwrap().question.id);
        }
        let list = |state, limit, after| {
            let filter = actors::desk::QuestionFilter {
                state,
                ..actors::desk::QuestionFilter::default()
            };
            let project = world.project.clone();
            async move {
                project
                    .list_questions(&Reader::Admin, &filter, limit, after)
                    .await
                    .unwrap()
            }
        };
        let pending = actors::desk::StateFilter::Pending;
        let page = list(pending, 3, None).await;
        let shown: Vec<_> = page.questions.iter().map(|question| question.id).collect();
        assert_eq!(shown, [ids[1], ids[3], ids[0]]);
        let rest = list(pending, 3, page.next).await;
        assert_eq!(
            (rest.questions.len(), rest.questions[0].id, rest.next),
            (1, ids[2], None)
        );
        world
            .project
            .answer_question(ids[0], &human("mara"), Answer::text("x"), None)
            .await
            .unwrap();
        world
            .project
            .answer_question(ids[3], &human("mara"), Answer::text("x"), None)
            .await
            .unwrap();
        let answered = list(actors::desk::StateFilter::Answered, 1, None).await;
        assert_eq!(answered.questions[0].id, ids[3]);
        let older = list(actors::desk::StateFilter::Answered, 1, answered.next).await;
        assert_eq!(older.questions[0].id, ids[0]);
        assert_eq!(list(actors::desk::StateFilter::All, 10, None).await.questions.len(), 4);
        let unread = world.project.open_questions_of(&alice).await.unwrap();
        assert_eq!(unread.len(), 4);
        world.take_messages(&alice).await;
        let open: Vec<_> = world.project.open_questions_of(&alice).await.unwrap();
        assert_eq!(
            open.iter().map(|question| question.id).collect::<Vec<_>>(),
            [ids[1], ids[2]]
        );
    });
}
