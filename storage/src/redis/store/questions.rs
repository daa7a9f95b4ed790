//! Questions to people, the drafts of their answers, and yaps (`scripts/questions.lua`, `scripts/yaps.lua`).

use std::{sync::Arc, time::Duration};

use actors::{
    bridge::StoreEvent,
    clock::Now,
    model::{ProjectEvent, Question, QuestionChange, QuestionContent, QuestionId, SessionName, ShownYap, Yap},
    storage::{
        Append, Asked, DraftPut, Op, QuestionStore, QuestionsFull, ReleasedYaps, SESSION_BYTES_DIVISOR, StoreError,
        Updated, YapHeld, asked_bytes_max, events::fields_of,
    },
};
use deadpool_redis::redis::Value;

use super::{
    super::{
        append, library,
        operation::Operation,
        reply::{Reply, parse_json, unreadable},
    },
    RedisStore,
};

/// Before a shown yap: its time as a floating-point number, and 1 when it is late.
const SHOWN_HEAD_BYTES: usize = 9;

impl QuestionStore for RedisStore {
    fn ask(&self, question: Arc<Question>, content: Arc<QuestionContent>, _: Now) -> Op<Asked> {
        let operation = Operation::accepting("ask")
            .question(question.id)
            .session_text(question.asker.session)
            .text(question.idempotency_key.as_deref().unwrap_or_default())
            .json(&*question)
            .json(&*content)
            .text(self.frame(&StoreEvent::Question(question.id)))
            .text(fields_of(&ProjectEvent::of_question(
                &question,
                QuestionChange::Asked,
                None,
            )))
            .recording_events();
        self.run(operation, |pipeline, mut reply| match reply.int()? {
            0 => Ok(Asked::New),
            1 => Ok(Asked::Existing(record(&mut reply)?)),
            2 => Ok(Asked::Full(QuestionsFull::Session)),
            3 => Ok(Asked::Full(QuestionsFull::Project)),
            4 => Ok(Asked::Full(QuestionsFull::Bytes(asked_bytes_max(
                pipeline.client.retention.questions_bytes_max,
            )))),
            5 => Ok(Asked::Full(QuestionsFull::SessionBytes(
                pipeline.client.retention.questions_bytes_max / SESSION_BYTES_DIVISOR,
            ))),
            _ => Err(unreadable("the reply to a question")),
        })
    }

    fn update_question(
        &self,
        question: Arc<Question>,
        event: Option<ProjectEvent>,
        notice: Option<Append>,
        now: Now,
    ) -> Op<Updated> {
        let closed = question.closed();
        let operation = Operation::accepting("update_question")
            .question(question.id)
            .number(question.revision)
            .json(&*question)
            .flag(closed.is_none())
            .number(closed.map_or(0, |closed| closed.at_ms))
            .text(self.frame(&StoreEvent::Question(question.id)))
            .text(event.as_ref().map(fields_of).unwrap_or_default())
            .flag(notice.is_some())
            .recording_events();
        let batch = Vec::from_iter(notice);
        let items = append::group_into_items(&batch);
        let operation = if batch.is_empty() {
            operation
        } else {
            // Now: the asker may get the notice before the reply is here.
            let messages = batch.iter().map(|append| &append.message);
            self.pipeline.local_messages.insert(messages);
            operation.followed_by(append::operation(&batch, &items, now))
        };
        let unsettled = self.pipeline.track_recorded_operation();
        self.run(operation, move |pipeline, mut reply| {
            let updated = match reply.int()? {
                0 => Updated::Stored(match reply.next() {
                    None => None,
                    Some(appended) => {
                        let retention = &pipeline.client.retention;
                        let answers = append::read_answers(&batch, &items, retention, &mut Reply::new(appended)?)?;
                        pipeline.record_accepted(&batch, &answers, now);
                        answers.into_iter().next()
                    }
                }),
                1 => Updated::Changed(record(&mut reply)?),
                2 => Updated::Unknown,
                _ => return Err(unreadable("the reply to a change of a question")),
            };
            drop(unsettled);
            Ok(updated)
        })
    }

    fn questions(&self, ids: Vec<QuestionId>) -> Op<Vec<Option<Arc<Question>>>> {
        let ids = ids.iter().flat_map(|id| *id.as_uuid().as_bytes());
        let operation = Operation::new("questions").text(ids.collect::<Vec<_>>());
        self.run(operation, |_, mut reply| {
            let mut records = Vec::new();
            while !reply.is_empty() {
                let record = reply.optional_bytes()?;
                records.push(record.map(|record| parse_json(&record)).transpose()?);
            }
            Ok(records)
        })
    }

    fn question_content(&self, id: QuestionId) -> Op<Option<Arc<QuestionContent>>> {
        let operation = Operation::new("question_content").question(id);
        self.run(operation, |_, mut reply| reply.record())
    }

    fn open_questions(&self) -> Op<Vec<Arc<Question>>> {
        self.run(Operation::new("open_questions"), |_, mut reply| reply.records())
    }

    fn question_page(&self, before: Option<QuestionId>, limit: usize) -> Op<Vec<Arc<Question>>> {
        let before = before.map_or_else(Vec::new, |id| id.as_uuid().as_bytes().to_vec());
        let operation = Operation::new("question_page").text(before).bound(limit);
        self.run(operation, |_, mut reply| reply.records())
    }

    fn remove_question(&self, id: QuestionId) -> Op<bool> {
        let operation = Operation::new("remove_question")
            .question(id)
            .text(self.frame(&StoreEvent::Question(id)));
        self.run(operation, |_, mut reply| Ok(reply.int()? == 1))
    }

    fn put_draft(&self, id: QuestionId, human: SessionName, text: String) -> Op<DraftPut> {
        let operation = Operation::accepting("put_draft")
            .question(id)
            .text(human.as_str())
            .text(text);
        self.run(operation, |_, mut reply| match reply.int()? {
            0 => Ok(DraftPut::Stored),
            1 => Ok(DraftPut::Unknown),
            2 => Ok(DraftPut::Full),
            _ => Err(unreadable("the reply to a draft")),
        })
    }

    fn draft(&self, id: QuestionId, human: SessionName) -> Op<String> {
        let operation = Operation::new("draft").question(id).text(human.as_str());
        self.run(operation, |_, mut reply| {
            let text = if reply.is_empty() { Vec::new() } else { reply.bytes()? };
            String::from_utf8(text).map_err(|_| unreadable("a draft"))
        })
    }

    fn hold_yap(&self, yap: Arc<Yap>, _: Now) -> Op<YapHeld> {
        let sent_at = yap.sent_at_ms.map_or_else(String::new, |at_ms| at_ms.to_string());
        let operation = Operation::accepting("hold_yap")
            .text(yap.sender.as_uuid().as_bytes().as_slice())
            .text(sent_at)
            .json(&*yap);
        self.run(operation, |_, mut reply| match reply.int()? {
            0 => Ok(YapHeld::Held),
            1 => Ok(YapHeld::Late),
            2 => Ok(YapHeld::Full),
            _ => Err(unreadable("the reply to a yap")),
        })
    }

    fn release_yaps(&self, delay: Duration, _: Now) -> Op<ReleasedYaps> {
        let frame = self.frame(&StoreEvent::Yaps(u64::MAX));
        let (head, tail) = library::around(&frame, &u64::MAX.to_string());
        let operation = Operation::new("release_yaps").duration(delay).text(head).text(tail);
        self.run(operation, |_, mut reply| {
            let next_in_ms = u64::try_from(reply.int()?).ok();
            Ok(ReleasedYaps {
                released: shown_yaps(&mut reply)?,
                next_in: next_in_ms.map(Duration::from_millis),
            })
        })
    }

    fn yaps(&self, after: Option<u64>, limit: usize) -> Op<Vec<Arc<ShownYap>>> {
        let after = after.map_or_else(String::new, |after| after.min(1 << 53).to_string());
        let operation = Operation::new("yaps").text(after).bound(limit);
        self.run(operation, |_, mut reply| shown_yaps(&mut reply))
    }
}

/// The next part of a reply, which is the record of a question.
fn record(reply: &mut Reply) -> Result<Arc<Question>, StoreError> {
    reply.record()?.ok_or_else(|| unreadable("the record of a question"))
}

/// Reads the number of the first yap, then the yaps.
fn shown_yaps(reply: &mut Reply) -> Result<Vec<Arc<ShownYap>>, StoreError> {
    let first = reply.int()?;
    let mut shown = Vec::new();
    let damaged = || unreadable("a yap");
    for seq in u64::try_from(first).map_err(|_| damaged())?.. {
        let Some(Value::BulkString(bytes)) = reply.next() else {
            break;
        };
        let (head, yap) = bytes.split_at_checked(SHOWN_HEAD_BYTES).ok_or_else(damaged)?;
        let (at_ms, late) = head.split_first_chunk().ok_or_else(damaged)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole milliseconds below 2^53"
        )]
        let at_ms = f64::from_be_bytes(*at_ms) as u64;
        shown.push(Arc::new(ShownYap {
            seq,
            at_ms,
            is_late: late == [1],
            yap: parse_json(yap)?,
        }));
    }
    Ok(shown)
}
