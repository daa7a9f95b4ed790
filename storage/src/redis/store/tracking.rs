//! What can be asked about messages after they were sent: receipts, texts, idempotency keys, and the event log.

use std::sync::Arc;

use actors::{
    clock::Now,
    model::{Message, MessageId, ProjectEvent, ProjectId, RecipientStatus, SessionId, Transformed},
    storage::{EventPage, EventQuery, EventStore, KeyReservation, Op, SendResult, StoreError, TrackingStore},
};

use super::{
    super::{
        append, decode,
        operation::Operation,
        pipeline::Pipeline,
        reply::{Reply, unreadable},
        send_result,
    },
    RedisStore,
};

impl TrackingStore for RedisStore {
    fn update_send_result(&self, sender: SessionId, key: String, result: SendResult) -> Op<()> {
        let operation = Operation::new("update_send_result")
            .text(append::idempotency_field(sender, &key))
            .text(send_result::encode(&result));
        self.run(operation, |_, _| Ok(()))
    }

    fn reserve_key(&self, sender: SessionId, key: String, target: ProjectId, _: Now) -> Op<KeyReservation> {
        let operation = Operation::accepting("reserve_key")
            .text(append::idempotency_field(sender, &key))
            .text(target.as_str());
        self.run(operation, |_, mut reply| send_result::parse_reserved(&reply.bytes()?))
    }

    fn complete_reservation(&self, sender: SessionId, key: String, result: SendResult) -> Op<()> {
        let operation = Operation::new("complete_reservation")
            .text(append::idempotency_field(sender, &key))
            .text(send_result::encode(&result));
        self.run(operation, |_, _| Ok(()))
    }

    fn cancel_reservation(&self, sender: SessionId, key: String) -> Op<()> {
        let operation = Operation::new("cancel_reservation").text(append::idempotency_field(sender, &key));
        self.run(operation, |_, _| Ok(()))
    }

    fn message_statuses(&self, messages: Vec<MessageId>, _: Now) -> Op<Vec<Option<Vec<RecipientStatus>>>> {
        self.ask_in_parts("message_statuses", messages, |_, _, mut replies| {
            let mut all = Vec::new();
            while let Some(reply) = replies.next() {
                let statuses = decode::statuses(&mut Reply::new(reply)?)?;
                all.push((!statuses.is_empty()).then_some(statuses));
            }
            Ok(all)
        })
    }

    fn note_transformed(&self, session: SessionId, messages: Vec<(MessageId, Arc<Transformed>)>) -> Op<()> {
        let mut operation = Operation::new("note_transformed").session(session);
        for (message, transformed) in messages {
            operation = operation.message(message).text(transformed.text());
        }
        self.run(operation, |_, _| Ok(()))
    }

    fn messages(&self, messages: Vec<MessageId>) -> Op<Vec<Option<Arc<Message>>>> {
        self.ask_in_parts("messages", messages, |_, ids, mut reply| {
            decode::messages(ids, &mut reply)
        })
    }

    fn put_cross_project_target(&self, message: MessageId, target: ProjectId) -> Op<()> {
        let operation = Operation::accepting("put_cross_project_target")
            .message(message)
            .text(target.as_str());
        self.run(operation, |_, _| Ok(()))
    }

    fn cross_project_target(&self, message: MessageId) -> Op<Option<ProjectId>> {
        let operation = Operation::new("cross_project_target").message(message);
        self.run(operation, |_, mut reply| Ok(reply.projects()?.pop()))
    }

    fn cross_project_targets(&self) -> Op<Vec<ProjectId>> {
        self.run(Operation::new("cross_project_targets"), |_, mut reply| reply.projects())
    }
}

impl EventStore for RedisStore {
    fn record(&self, event: ProjectEvent, now: Now) {
        self.pipeline.record_event(&event, now);
    }

    fn events(&self, query: EventQuery) -> Op<EventPage> {
        let (pipeline, epoch) = (Arc::clone(&self.pipeline), self.epoch);
        Box::pin(async move { pipeline.read_events(query, epoch).await })
    }
}

impl RedisStore {
    /// Asks about messages until each has an answer: one operation answers for as many as are little work.
    fn ask_in_parts<T: Send + 'static>(
        &self,
        operation: &'static str,
        messages: Vec<MessageId>,
        read: impl Fn(&Pipeline, &[MessageId], Reply) -> Result<Vec<T>, StoreError> + Send + 'static,
    ) -> Op<Vec<T>> {
        let (pipeline, epoch) = (Arc::clone(&self.pipeline), self.epoch);
        Box::pin(async move {
            let mut answers = Vec::with_capacity(messages.len());
            while answers.len() < messages.len() {
                let rest = &messages[answers.len()..];
                let operation = Operation::new(operation).messages(rest);
                let reply = Arc::clone(&pipeline).submit(operation, epoch).await?;
                let part = read(&pipeline, rest, reply)?;
                if part.is_empty() {
                    return Err(unreadable("the reply about messages"));
                }
                answers.extend(part);
            }
            Ok(answers)
        })
    }
}
