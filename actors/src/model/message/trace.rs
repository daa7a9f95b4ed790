//! The trace at the end of an encoded envelope.

use super::Message;
use crate::model::TraceContext;

impl Message {
    /// The JSON object `_meta` of the envelope: the trace that the message belongs to.
    pub fn meta(&self) -> Option<&[u8]> {
        TraceContext::meta_at_end(&self.body)
    }

    /// The trace that the message belongs to.
    pub fn trace(&self) -> Option<TraceContext> {
        TraceContext::at_end(&self.body)
    }
}
