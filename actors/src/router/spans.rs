//! The spans of a message that is being accepted: `accept`, from its submission to the end of the append, and in it
//! `store`, the append.

use crate::{
    model::{BrokerError, Message, TraceContext},
    storage::{Appended, StoreError},
    trace::{ActiveSpan, Attribute, SpanKind},
};

/// The spans of one message. They end when this is dropped.
#[derive(Debug)]
pub struct AcceptSpans {
    // Dropped first: it ends before the span around it.
    store: Option<ActiveSpan>,
    accept: ActiveSpan,
}

impl AcceptSpans {
    /// Begins to accept a message for the request of this recorded span.
    pub fn begin(request: &TraceContext) -> Option<Box<Self>> {
        let accept = ActiveSpan::child("accept", SpanKind::Producer, request)?;
        Some(Box::new(Self { store: None, accept }))
    }

    /// The context of what the message causes.
    pub const fn context(&self) -> &TraceContext {
        self.accept.context()
    }

    /// Begins the append. A retry continues it.
    pub(super) fn begin_store(&mut self) {
        if self.store.is_none() {
            self.store = ActiveSpan::child("store", SpanKind::Client, self.accept.context());
        }
    }

    /// Notes which message it was and what the store answered.
    pub(super) fn finish(mut self, message: &Message, recipients: usize, result: &Result<Appended, StoreError>) {
        let Self { store, accept } = &mut self;
        accept.set("messaging.message.id", Attribute::Text(message.id.to_string()));
        accept.set(
            "messaging.message.envelope.size",
            Attribute::Number(message.encoded_len(1) as u64),
        );
        match message.recipient {
            Some(recipient) => accept.set("mcp_broker.session.id", Attribute::Text(recipient.to_string())),
            None => accept.set("mcp_broker.recipients", Attribute::Number(recipients as u64)),
        }
        match result {
            // A broadcast is accepted for the others.
            Ok(Appended::Accepted { refusal: Some(_), .. }) if message.recipient.is_some() => accept.fail("refused"),
            Ok(Appended::Accepted { .. } | Appended::Duplicate(_)) => {}
            Ok(Appended::KeyReserved | Appended::RosterOutdated) => accept.fail("refused"),
            Err(error) => {
                let code = BrokerError::from(error.clone()).code();
                if let Some(store) = store {
                    store.fail(code);
                }
                accept.fail(code);
            }
        }
    }
}
