//! Questions to people, the drafts of their answers, and yaps: not kept on Redis yet.

use std::{future::ready, sync::Arc, time::Duration};

use actors::{
    clock::Now,
    model::{Question, QuestionContent, QuestionId, SessionName, ShownYap, Yap},
    storage::{Append, Asked, ConsoleRecord, DraftPut, Op, QuestionStore, ReleasedYaps, StoreError, Updated, YapHeld},
};

use super::RedisStore;

fn missing<T: Send + 'static>() -> Op<T> {
    let error = StoreError::Unreachable("questions are not kept on Redis yet".to_owned());
    Box::pin(ready(Err(error)))
}

impl QuestionStore for RedisStore {
    fn ask(&self, _: Arc<Question>, _: Arc<QuestionContent>, _: Now) -> Op<Asked> {
        missing()
    }

    fn update_question(&self, _: Arc<Question>, _: Option<Append>, _: Now) -> Op<Updated> {
        missing()
    }

    fn questions(&self, _: Vec<QuestionId>) -> Op<Vec<Option<Arc<Question>>>> {
        missing()
    }

    fn question_content(&self, _: QuestionId) -> Op<Option<Arc<QuestionContent>>> {
        missing()
    }

    fn open_questions(&self) -> Op<Vec<Arc<Question>>> {
        missing()
    }

    fn question_page(&self, _: Option<QuestionId>, _: usize) -> Op<Vec<Arc<Question>>> {
        missing()
    }

    fn remove_question(&self, _: QuestionId) -> Op<bool> {
        missing()
    }

    fn put_draft(&self, _: QuestionId, _: SessionName, _: String) -> Op<DraftPut> {
        missing()
    }

    fn draft(&self, _: QuestionId, _: SessionName) -> Op<String> {
        missing()
    }

    fn hold_yap(&self, _: Arc<Yap>, _: Now) -> Op<YapHeld> {
        missing()
    }

    fn release_yaps(&self, _: Duration, _: Now) -> Op<ReleasedYaps> {
        missing()
    }

    fn yaps(&self, _: Option<u64>, _: usize) -> Op<Vec<Arc<ShownYap>>> {
        missing()
    }

    fn exchange_consoles(&self, _: Vec<ConsoleRecord>, _: Duration) -> Op<Vec<ConsoleRecord>> {
        missing()
    }
}
