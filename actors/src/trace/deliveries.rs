//! The traced messages that a session is given and has not acknowledged, so that their transformation and their
//! acknowledgement are steps of their delivery.

use std::{
    collections::HashMap,
    sync::{
        MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{ActiveSpan, Attribute, SpanKind, is_on};
use crate::{
    locked::Locked,
    model::{Message, MessageId, SessionId, TraceContext},
};

/// Messages of one session that are kept, about 150 bytes each. Beyond it the older ones are forgotten: their
/// acknowledgement has no span.
const KEPT_LEN_MAX: usize = 1024;

/// The traced messages of one session, from their delivery to their acknowledgement.
#[derive(Debug, Default)]
pub struct TracedDeliveries {
    /// The number of `kept`, which is read without the lock.
    len: AtomicUsize,
    kept: Locked<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The spans of the deliveries, and their numbers.
    by_message: HashMap<MessageId, (u64, TraceContext)>,
    deliveries: u64,
    /// Deliveries that have begun with a transformation, until the message is handed over.
    begun: HashMap<MessageId, ActiveSpan>,
}

impl TracedDeliveries {
    /// Begins the spans of these deliveries to a session. They end when the result is dropped.
    pub fn begin<'a>(
        &self,
        session: SessionId,
        deliveries: impl Iterator<Item = (&'a Message, u32)>,
    ) -> Vec<ActiveSpan> {
        if !is_on() {
            return Vec::new();
        }
        let mut spans = Vec::new();
        for (message, count) in deliveries {
            let begun = self.kept.lock().begun.remove(&message.id);
            let Some(mut span) = begun.or_else(|| ActiveSpan::deliver(message)) else {
                continue;
            };
            describe(&mut span, message.id, session);
            span.set("mcp_broker.delivery_count", Attribute::Number(count.into()));
            self.keep(message.id, span.context().clone());
            spans.push(span);
        }
        spans
    }

    /// Begins to put a message into another version of its protocol. The span of its delivery begins with it. `None` if it is
    /// not recorded.
    #[must_use]
    pub fn begin_transform(&self, message: &Message) -> Option<ActiveSpan> {
        if !is_on() {
            return None;
        }
        let mut kept = self.kept.lock();
        if !kept.begun.contains_key(&message.id) {
            let delivery = ActiveSpan::deliver(message)?;
            if kept.begun.len() >= KEPT_LEN_MAX {
                kept.begun.clear();
            }
            kept.begun.insert(message.id, delivery);
        }
        let delivery = kept.begun.get(&message.id)?;
        ActiveSpan::child("transform", SpanKind::Consumer, delivery.context())
    }

    /// Ends the delivery of a message that cannot be transformed.
    pub fn fail_transform(&self, message: MessageId, session: SessionId) {
        let begun = self.kept.lock().begun.remove(&message);
        if let Some(mut span) = begun {
            describe(&mut span, message, session);
            span.fail("transform_failed");
        }
    }

    fn keep(&self, message: MessageId, delivery: TraceContext) {
        let mut kept = self.kept.lock();
        kept.deliveries += 1;
        let number = kept.deliveries;
        kept.by_message.insert(message, (number, delivery));
        if kept.by_message.len() > KEPT_LEN_MAX {
            let oldest = number - KEPT_LEN_MAX as u64 / 2;
            kept.by_message.retain(|_, (number, _)| *number > oldest);
        }
        self.len.store(kept.by_message.len(), Ordering::Release);
    }

    /// Begins the spans of the acknowledgement of these messages. They end when the result is dropped.
    pub fn acknowledge(&self, messages: &[MessageId]) -> Vec<ActiveSpan> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut kept = self.kept.lock();
        let taken = messages
            .iter()
            .filter_map(|message| Some((*message, kept.by_message.remove(message)?.1)))
            .collect();
        self.begin_acknowledgements(kept, taken)
    }

    /// As [`Self::acknowledge`], for this message and all that were delivered before it.
    pub fn acknowledge_up_to(&self, message: MessageId) -> Vec<ActiveSpan> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut kept = self.kept.lock();
        let Some(last) = kept.by_message.get(&message).map(|(number, _)| *number) else {
            return Vec::new();
        };
        let taken = kept.by_message.extract_if(|_, (number, _)| *number <= last);
        let taken = taken.map(|(message, (_, delivery))| (message, delivery)).collect();
        self.begin_acknowledgements(kept, taken)
    }

    fn begin_acknowledgements(
        &self,
        kept: MutexGuard<'_, Kept>,
        taken: Vec<(MessageId, TraceContext)>,
    ) -> Vec<ActiveSpan> {
        self.len.store(kept.by_message.len(), Ordering::Release);
        drop(kept);
        let begin = |(message, delivery): (MessageId, TraceContext)| {
            let mut span = ActiveSpan::child("acknowledge", SpanKind::Consumer, &delivery)?;
            span.set("messaging.message.id", Attribute::Text(message.to_string()));
            Some(span)
        };
        taken.into_iter().filter_map(begin).collect()
    }

    fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }
}

/// Says which message is delivered to which session.
fn describe(span: &mut ActiveSpan, message: MessageId, session: SessionId) {
    span.set("messaging.message.id", Attribute::Text(message.to_string()));
    span.set("mcp_broker.session.id", Attribute::Text(session.to_string()));
}

/// A future whose end is the end of these spans; an error is noted in them.
pub fn ending_with<T: Send + 'static, E: 'static>(
    mut spans: Vec<ActiveSpan>,
    future: std::pin::Pin<Box<dyn Future<Output = Result<T, E>> + Send>>,
) -> std::pin::Pin<Box<dyn Future<Output = Result<T, E>> + Send>> {
    if spans.is_empty() {
        return future;
    }
    Box::pin(async move {
        let result = future.await;
        if result.is_err() {
            for span in &mut spans {
                span.fail("unavailable");
            }
        }
        result
    })
}
