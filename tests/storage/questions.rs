//! Questions and yaps between replicas, and on a full server.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use actors::{
    bridge::{BridgeEvent, BridgeStream, Frame, StoreEvent},
    clock::now,
    model::{
        AddressedTo, Answer, AnsweredBy, Asker, Closed, Closing, Owner, Question, QuestionContent, QuestionId,
        QuestionItem, QuestionState, SessionId, SessionName, Urgency, Via, Yap,
    },
    storage::{Asked, PrefetchLimit, PushStore, ReplicatedStorage, Storage, StoreError, Updated, YapHeld},
};
use futures_util::StreamExt;

use crate::storage::support::{Redis, ReplicaView, WAIT_TIMEOUT, block_on, connect, storage};

fn human(name: &str) -> SessionName {
    SessionName::parse(name).unwrap()
}

fn content(text: &str) -> Arc<QuestionContent> {
    let item = QuestionItem {
        id: String::new(),
        question: text.to_owned(),
        options: Vec::new(),
        multi_select: false,
        allow_other: true,
        required: false,
    };
    Arc::new(QuestionContent {
        items: vec![item],
        ..QuestionContent::default()
    })
}

fn question(session: SessionId, content: &QuestionContent, key: Option<String>) -> Arc<Question> {
    Arc::new(Question {
        id: QuestionId::generate(),
        revision: 0,
        asker: Asker {
            session,
            name: None,
            owner: Owner::anonymous(),
        },
        summary: "?".to_owned(),
        content_bytes: content.stored_len(),
        urgency: Urgency::Medium,
        to: AddressedTo::Anyone,
        is_sensitive: false,
        expires_at_ms: None,
        on_expiry: None,
        idempotency_key: key,
        state: QuestionState::Waiting,
        seen_at_ms: None,
        is_expiring: false,
        sealed_answer: None,
        answer_deleted_ms: None,
        handover: None,
        notice: None,
    })
}

fn closing() -> QuestionState {
    let by = AnsweredBy {
        human: human("mara"),
        via: Via::Web,
        is_agent: false,
    };
    let answer = Answer::default();
    QuestionState::Closed(Closed {
        at_ms: now().unix_ms,
        how: Closing::Answered { by, answer },
    })
}

/// The record `ahead` revisions later, closed or waiting.
fn changed(question: &Question, ahead: u64, closes: bool) -> Arc<Question> {
    Arc::new(Question {
        revision: question.revision + ahead,
        state: if closes { closing() } else { QuestionState::Waiting },
        ..question.clone()
    })
}

fn yap(sender: SessionId, message: &str, sent_at_ms: Option<u64>) -> Arc<Yap> {
    Arc::new(Yap {
        id: uuid::Uuid::now_v7(),
        sender,
        sender_name: None,
        message: message.to_owned(),
        mode: None,
        category: None,
        task_context: None,
        sent_at_ms,
        folded: 0,
    })
}

/// Reads the frames of the desk from its creation on.
struct DeskFrames(BridgeStream);

impl DeskFrames {
    async fn on(storage: &dyn Storage) -> Self {
        let mut heard = storage.bridge().unwrap().listen();
        assert_eq!(heard.next().await, Some(BridgeEvent::Connected));
        Self(heard)
    }

    async fn next(&mut self) -> StoreEvent {
        loop {
            let heard = tokio::time::timeout(WAIT_TIMEOUT, self.0.next()).await;
            let Some(BridgeEvent::Frame(text)) = heard.expect("a frame comes") else {
                panic!("no frame");
            };
            let event = Frame::parse(&text).unwrap().event;
            if matches!(event, StoreEvent::Question(_) | StoreEvent::Yaps(_)) {
                return event;
            }
        }
    }
}

#[test]
fn each_change_of_a_question_and_each_release_of_yaps_is_published_once() {
    let redis = Redis::start();
    block_on(async {
        let (here, there) = (connect(redis.url()).await.unwrap(), storage(redis.url()).await);
        let mut frames = DeskFrames::on(&*there).await;
        let view = ReplicaView::of(&here, "acme");
        let (store, alice, text) = (&view.store, view.join().await, content("?"));
        let first = question(alice, &text, Some("key".to_owned()));
        let ask =
            async |question: &Arc<Question>| store.ask(Arc::clone(question), Arc::clone(&text), now()).await.unwrap();
        assert_eq!(ask(&first).await, Asked::New);
        assert_eq!(frames.next().await, StoreEvent::Question(first.id));
        let again = question(alice, &text, Some("key".to_owned()));
        assert_eq!(ask(&again).await, Asked::Existing(Arc::clone(&first)));
        let update = async |record| store.update_question(record, None, None, now()).await.unwrap();
        assert!(matches!(update(changed(&first, 2, false)).await, Updated::Changed(_)));
        store.put_draft(first.id, human("mara"), "x".to_owned()).await.unwrap();
        assert_eq!(update(changed(&first, 1, true)).await, Updated::Stored(None));
        assert_eq!(frames.next().await, StoreEvent::Question(first.id));
        assert!(store.remove_question(first.id).await.unwrap());
        assert_eq!(frames.next().await, StoreEvent::Question(first.id));
        assert!(!store.remove_question(first.id).await.unwrap());

        let release = async || store.release_yaps(Duration::ZERO, now()).await.unwrap().released.len();
        for _ in 0..3 {
            store.hold_yap(yap(alice, "x", None), now()).await.unwrap();
        }
        assert_eq!((release().await, release().await), (3, 0));
        assert_eq!(frames.next().await, StoreEvent::Yaps(3));
        store.hold_yap(yap(alice, "x", None), now()).await.unwrap();
        assert_eq!(release().await, 1);
        assert_eq!(frames.next().await, StoreEvent::Yaps(4), "none for a refused change");
    });
}

#[test]
fn a_notice_is_pushed_to_the_replica_that_holds_the_asker() {
    let redis = Redis::start();
    block_on(async {
        let (here, there) = (connect(redis.url()).await.unwrap(), connect(redis.url()).await.unwrap());
        let mut bridge = there.bridge().listen();
        assert_eq!(bridge.next().await, Some(BridgeEvent::Connected));
        let (asking, answering) = (ReplicaView::of(&there, "acme"), ReplicaView::of(&here, "acme"));
        let alice = asking.join().await;
        let claim = asking.claim(alice).await;
        let limit = PrefetchLimit {
            messages: 10,
            bytes: 10_000,
            auto_ack: false,
        };
        let push: &dyn PushStore = asking.store.push().unwrap();
        push.start_push(alice, claim, limit, 0).await.unwrap();
        let text = content("?");
        let asked = question(alice, &text, None);
        asking.store.ask(Arc::clone(&asked), text, now()).await.unwrap();
        let notice = answering.direct(alice);
        let id = notice.message.id;
        let answered = answering
            .store
            .update_question(changed(&asked, 1, true), None, Some(notice), now());
        assert!(matches!(answered.await.unwrap(), Updated::Stored(Some(_))));
        let pushed = loop {
            let heard = tokio::time::timeout(WAIT_TIMEOUT, bridge.next()).await;
            if let Some(BridgeEvent::DeliveryBatch(messages, last)) = heard.expect("a batch comes") {
                break actors::bridge::DeliveryBatch::parse(messages, &last).unwrap();
            }
        };
        let pushed = push.decode_batch(&pushed).unwrap();
        assert_eq!(pushed[0].deliveries[0].message.id, id);
        assert_eq!(asking.acknowledge(alice, &[id]).await.unwrap().acknowledged, 1);
    });
}

#[test]
fn of_closings_at_two_replicas_one_is_stored_and_told() {
    let redis = Redis::start();
    block_on(async {
        let (here, there) = (connect(redis.url()).await.unwrap(), connect(redis.url()).await.unwrap());
        let (here, there) = (ReplicaView::of(&here, "acme"), ReplicaView::of(&there, "acme"));
        let alice = here.join().await;
        let text = content("?");
        for race in 0..1_000 {
            let asked = question(alice, &text, None);
            here.store
                .ask(Arc::clone(&asked), Arc::clone(&text), now())
                .await
                .unwrap();
            let close = |view: &ReplicaView| {
                view.store
                    .update_question(changed(&asked, 1, true), None, Some(view.direct(alice)), now())
            };
            let (left, right) = futures_util::future::join(close(&here), close(&there)).await;
            let stored = [left.unwrap(), right.unwrap()]
                .iter()
                .filter(|updated| matches!(updated, Updated::Stored(Some(_))))
                .count();
            assert_eq!((stored, here.lease_ids(alice).await.len()), (1, 1), "race {race}");
            here.claim(alice).await;
            let ids: Vec<_> = here.lease_ids(alice).await.into_iter().map(|(id, _)| id).collect();
            here.acknowledge(alice, &ids).await.unwrap();
        }
    });
}

#[test]
fn a_full_server_accepts_no_question_and_still_removes_and_shows() {
    let redis = Redis::start();
    block_on(async {
        let storage = storage(redis.url()).await;
        let view = ReplicaView::of(&*storage, "acme");
        let (store, alice, text) = (&view.store, view.join().await, content("?"));
        let asked = question(alice, &text, None);
        let ask = |question: &Arc<Question>| store.ask(Arc::clone(question), Arc::clone(&text), now());
        ask(&asked).await.unwrap();
        store.hold_yap(yap(alice, "x", None), now()).await.unwrap();
        redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let is_full = |error: StoreError| matches!(error, StoreError::Full(_));
        assert!(is_full(ask(&question(alice, &text, None)).await.unwrap_err()));
        let answered = store.update_question(changed(&asked, 1, true), None, Some(view.direct(alice)), now());
        assert!(is_full(answered.await.unwrap_err()), "it stays open");
        assert!(is_full(
            store
                .put_draft(asked.id, human("mara"), "x".to_owned())
                .await
                .unwrap_err()
        ));
        assert!(is_full(store.hold_yap(yap(alice, "y", None), now()).await.unwrap_err()));
        assert_eq!(store.open_questions().await.unwrap(), [Arc::clone(&asked)]);
        assert_eq!(
            store.release_yaps(Duration::ZERO, now()).await.unwrap().released.len(),
            1
        );
        assert!(store.remove_question(asked.id).await.unwrap());
        redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_eq!(
            store.hold_yap(yap(alice, "y", None), now()).await.unwrap(),
            YapHeld::Held
        );
    });
}

#[test]
fn no_key_of_a_question_or_a_yap_outlives_it() {
    let redis = Redis::start();
    block_on(async {
        let storage = storage(redis.url()).await;
        let view = ReplicaView::of(&*storage, "acme");
        let (store, alice, text) = (&view.store, view.join().await, content("?"));
        let keys = || -> BTreeSet<String> {
            let keys = redis.command(&["KEYS", "{acme}:*"]);
            keys.lines().map(str::to_owned).collect()
        };
        // Removing nothing publishes nothing, and creates no key.
        let before = keys();
        let asked = question(alice, &text, Some("key".to_owned()));
        store.ask(Arc::clone(&asked), Arc::clone(&text), now()).await.unwrap();
        store.put_draft(asked.id, human("mara"), "x".to_owned()).await.unwrap();
        store.put_draft(asked.id, human("lena"), "x".to_owned()).await.unwrap();
        store
            .update_question(changed(&asked, 1, true), None, None, now())
            .await
            .unwrap();
        assert!(keys().len() > before.len() + 5);
        assert!(store.remove_question(asked.id).await.unwrap());
        let left: Vec<_> = keys().difference(&before).cloned().collect();
        let allowed = ["{acme}:questions:bytes", "{acme}:frame_seq", "{acme}:write_seq"];
        // What happened stays in the event log.
        let is_allowed = |key: &String| allowed.contains(&key.as_str()) || key.starts_with("{acme}:events");
        assert!(left.iter().all(is_allowed), "{left:?}");
        store.hold_yap(yap(alice, "x", None), now()).await.unwrap();
        store.release_yaps(Duration::ZERO, now()).await.unwrap();
        storage.clear_project(view.project.clone()).await.unwrap();
        let left: Vec<_> = keys()
            .into_iter()
            .filter(|key| key.contains("yaps") || key.contains("questions"))
            .collect();
        assert_eq!(left, Vec::<String>::new());
    });
}
