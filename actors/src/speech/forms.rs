//! The forms of recent messages, so that each is transformed once for each version.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use lens::Plan;

use super::Form;
use crate::{locked::Locked, model::MessageId};

/// Bytes of the forms of one shard: 32 MiB of the process.
const SHARD_BYTES_MAX: usize = 8 * 1024 * 1024;
const SHARDS: usize = 4;

/// The forms of recent messages. The oldest are forgotten; they are made again when they are needed.
#[derive(Debug)]
pub struct Forms([Locked<Option<Shard>>; SHARDS]);

/// The forms of all projects of this process.
pub static FORMS: Forms = Forms([const { Locked::new(None) }; SHARDS]);

#[derive(Debug, Default)]
struct Shard {
    by_message: HashMap<MessageId, Vec<Arc<Form>>>,
    /// The messages in the order in which they came, each with the bytes of a form.
    order: VecDeque<(MessageId, usize)>,
    bytes: usize,
}

impl Forms {
    /// Keeps a form of this message, whose envelope has so many bytes.
    pub fn keep(&self, message: MessageId, envelope_len: usize, form: Arc<Form>) {
        let bytes = form.bytes_len(envelope_len);
        if bytes > SHARD_BYTES_MAX {
            return;
        }
        let mut shard = self.shard(message).lock();
        let shard = shard.get_or_insert_default();
        shard.by_message.entry(message).or_default().push(form);
        shard.order.push_back((message, bytes));
        shard.bytes += bytes;
        while shard.bytes > SHARD_BYTES_MAX
            && let Some((oldest, bytes)) = shard.order.pop_front()
        {
            shard.bytes -= bytes;
            if let Some(forms) = shard.by_message.get_mut(&oldest) {
                forms.remove(0);
                if forms.is_empty() {
                    shard.by_message.remove(&oldest);
                }
            }
        }
    }

    /// The form of this message that the path gives, as long as it has the same lenses.
    #[must_use]
    pub fn find(&self, message: MessageId, plan: &Arc<Plan>, wants_complement: bool) -> Option<Arc<Form>> {
        let shard = self.shard(message).lock();
        let forms = shard.as_ref()?.by_message.get(&message)?;
        let mut forms = forms.iter();
        forms.find(|form| form.is_by(plan, wants_complement)).cloned()
    }

    fn shard(&self, message: MessageId) -> &Locked<Option<Shard>> {
        &self.0[message.as_uuid().as_u128() as usize % SHARDS]
    }
}
