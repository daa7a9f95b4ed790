//! Random histories of questions and yaps: a store answers each operation as the memory store does.

use std::{sync::Arc, time::Duration};

use uuid::Uuid;

use super::{
    super::{Append, Asked, Before, Storage, Store, Table, Updated, memory::MemoryStorage},
    budgets::small_budgets,
    question_world::{closed_at, content, human, next, offered, question},
    world::{World, done, record},
};
use crate::{
    clock::now,
    model::{Headers, Question, QuestionState, SessionId, Yap},
};

/// The number of histories of one run, and of steps of each.
const HISTORIES: u64 = 40;
const STEPS: usize = 80;

/// Some histories reach this bound.
const ABSENT: Before = Before::Absent { len_max: 2 };

/// Numbers that look random and are the same for the same seed: splitmix64.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) as usize % bound
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// A history on a store and on the memory store.
pub struct DeskHistory {
    random: Random,
    memory: Arc<dyn Store>,
    pub world: World,
    /// Those that ask. The last one is no session of the project.
    askers: Vec<SessionId>,
    /// The records as both stores have answered them.
    known: Vec<Arc<Question>>,
    steps: u64,
}

impl DeskHistory {
    /// A history in a new project of this storage, which was opened with [`small_budgets`].
    pub async fn begin(storage: &dyn Storage, seed: u64) -> Self {
        let world = World::new(storage).await;
        let memory = MemoryStorage::new(small_budgets()).open(&world.project);
        let mut askers = vec![world.alice, world.bob, world.carol];
        for asker in &askers {
            done(memory.put_session(record(*asker), super::super::PutSession::default())).await;
        }
        askers.push(SessionId::generate());
        Self {
            random: Random(seed),
            memory,
            world,
            askers,
            known: Vec::new(),
            steps: 0,
        }
    }

    /// Carries out an operation on both stores. Panics unless the answers are the same.
    async fn same<T: PartialEq + std::fmt::Debug>(&self, operation: impl AsyncFn(&dyn Store) -> T) -> T {
        let expected = operation(&*self.memory).await;
        assert_eq!(operation(&*self.world.store).await, expected, "step {}", self.steps);
        expected
    }

    /// Carries out one operation.
    pub async fn step(&mut self) {
        self.steps += 1;
        match self.random.below(29) {
            0..6 => self.ask().await,
            6..14 => self.change().await,
            14..18 => self.draft().await,
            18 => {
                if let Some(question) = self.one_of_known() {
                    self.same(async |store| done(store.remove_question(question.id)).await)
                        .await;
                }
            }
            19..25 => self.yap().await,
            25..27 => self.record().await,
            _ => {
                self.same(async |store| done(store.release_yaps(Duration::ZERO, now())).await)
                    .await;
            }
        }
    }

    fn one_of_known(&mut self) -> Option<Arc<Question>> {
        let recent = self.known.len().min(20);
        let back = 1 + self.random.below(recent.max(1));
        self.known.len().checked_sub(back).map(|at| Arc::clone(&self.known[at]))
    }

    fn asker(&mut self) -> SessionId {
        self.askers[self.random.below(self.askers.len())]
    }

    async fn ask(&mut self) {
        let asker = self.asker();
        let bytes = if self.random.one_in(3) { 12_000 } else { 50 };
        let content = content(&"x".repeat(1 + self.random.below(bytes)));
        let key = self.random.one_in(3).then(|| format!("key {}", self.random.below(3)));
        let question = Arc::new(question(asker, &content, key.as_deref()));
        let asked = self
            .same(async |store| done(store.ask(Arc::clone(&question), Arc::clone(&content), now())).await)
            .await;
        if asked == Asked::New {
            self.known.push(question);
        }
    }

    async fn change(&mut self) {
        let Some(question) = self.one_of_known() else { return };
        let changed = match self.random.below(4) {
            0 => next(&question, QuestionState::Waiting),
            1 => offered(&question),
            // Of those that end later some have ended earlier, by the clock of another replica; no two at once.
            _ => closed_at(&question, now().unix_ms - self.steps * 7_919 % 10_007, "mara"),
        };
        let skipped = if self.random.one_in(5) {
            self.random.below(4) as u64
        } else {
            1
        };
        let changed = Arc::new(Question {
            revision: question.revision + skipped,
            ..Question::clone(&changed)
        });
        let to = self.asker();
        let notice = self.random.one_in(2).then(|| Append {
            queue_capacity: 3,
            ..self.world.direct(to, &Headers::default())
        });
        let updated = self
            .same(async |store| done(store.update_question(Arc::clone(&changed), None, notice.clone(), now())).await)
            .await;
        if let (Updated::Stored(_), Some(known)) = (updated, self.known.iter_mut().find(|known| known.id == changed.id))
        {
            *known = changed;
        }
    }

    async fn record(&mut self) {
        let table = Table::ALL[self.random.below(Table::ALL.len())];
        let key = vec![b'a' + self.random.below(3) as u8];
        let known = self.same(async |store| done(store.get(table, key.clone())).await).await;
        let before = match self.random.below(4) {
            0 => Before::Any,
            1 => ABSENT,
            _ => known.map_or(ABSENT, Before::Text),
        };
        let text = (!self.random.one_in(4)).then(|| Arc::from(self.steps.to_string()));
        self.same(async |store| done(store.put_if(table, key.clone(), before.clone(), text.clone())).await)
            .await;
    }

    async fn draft(&mut self) {
        let Some(question) = self.one_of_known() else { return };
        let name = human(&format!("human {}", self.random.below(5)));
        let bytes = if self.random.one_in(4) {
            0
        } else {
            self.random.below(9_000)
        };
        let text = "x".repeat(bytes);
        self.same(async |store| done(store.put_draft(question.id, name.clone(), text.clone())).await)
            .await;
    }

    async fn yap(&mut self) {
        let yap = Arc::new(Yap {
            id: Uuid::now_v7(),
            sender: self.asker(),
            sender_name: None,
            message: self.steps.to_string(),
            mode: None,
            category: None,
            task_context: None,
            // Within the time that counts, so that the clock of the store does not matter.
            sent_at_ms: Some(now().unix_ms - self.random.below(3_000) as u64),
            folded: 0,
        });
        self.same(async |store| done(store.hold_yap(Arc::clone(&yap), now())).await)
            .await;
    }

    /// Compares everything that can be read.
    pub async fn compare(&self) {
        self.same(async |store| done(store.open_questions()).await).await;
        self.same(async |store| done(store.question_page(None, 1_000)).await)
            .await;
        self.same(async |store| done(store.usage()).await.questions).await;
        self.same(async |store| done(store.yaps(None, 1_000)).await).await;
        for table in Table::ALL {
            self.same(async |store| done(store.list(table, Vec::new())).await).await;
        }
        let ids: Vec<_> = self.known.iter().map(|question| question.id).collect();
        self.same(async |store| done(store.questions(ids.clone())).await).await;
        for id in ids {
            self.same(async |store| done(store.question_content(id)).await).await;
            for name in 0..5 {
                let name = human(&format!("human {name}"));
                self.same(async |store| done(store.draft(id, name.clone())).await).await;
            }
        }
        for asker in &self.askers {
            self.same(async |store| done(store.depth(*asker)).await).await;
        }
    }
}

pub async fn questions_and_yaps_are_kept_as_in_memory(storage: Arc<dyn Storage>) {
    let first = now().unix_ms;
    for seed in first..first + HISTORIES {
        eprintln!("  history {seed}");
        let mut history = DeskHistory::begin(&*storage, seed).await;
        for _ in 0..STEPS {
            history.step().await;
        }
        history.compare().await;
    }
}
