//! The forms of recent messages, so that each is transformed once for each version.

use std::{collections::VecDeque, sync::Arc};

use smallvec::SmallVec;

use super::Form;
use crate::{
    locked::Locked,
    model::{MessageId, id_map::IdMap},
    registry::LensPath,
};

/// Bytes of the forms of one shard: 32 MiB of the process.
const SHARD_BYTES_MAX: usize = 8 * 1024 * 1024;
const SHARDS: usize = 4;
/// Places in the order of a shard that may be those of forms that were forgotten.
const FORGOTTEN_MAX: usize = 64;

/// The forms of recent messages. The oldest are forgotten; they are made again when they are needed.
#[derive(Debug)]
pub struct Forms([Locked<Option<Shard>>; SHARDS]);

/// The forms of all projects of this process.
pub static FORMS: Forms = Forms([const { Locked::new(None) }; SHARDS]);

#[derive(Debug, Default)]
struct Shard {
    by_message: IdMap<MessageId, KeptForms>,
    /// The messages in the order in which their forms came, also those of forms that were forgotten.
    order: VecDeque<MessageId>,
    /// How many forms are kept, and their bytes.
    len: usize,
    bytes: usize,
}

#[derive(Debug)]
struct KeptForm {
    form: Arc<Form>,
    bytes: usize,
}

/// The forms of a message, oldest first: mostly one.
type KeptForms = SmallVec<[KeptForm; 1]>;

impl Forms {
    /// Keeps a form of this message, whose envelope has so many bytes.
    pub fn keep(&self, message: MessageId, envelope_len: usize, form: Arc<Form>) {
        let bytes = form.bytes_len(envelope_len);
        if bytes <= SHARD_BYTES_MAX {
            let mut shard = self.shard(message).lock();
            let shard = shard.get_or_insert_default();
            shard.keep(message, KeptForm { form, bytes });
        }
    }

    /// The form of this message that the path gives, as long as it has the same lenses.
    #[must_use]
    pub fn find(&self, message: MessageId, plan: &Arc<LensPath>, wants_complement: bool) -> Option<Arc<Form>> {
        let shard = self.shard(message).lock();
        let forms = shard.as_ref()?.by_message.get(&message)?;
        let found = forms.iter().find(|kept| kept.form.is_by(plan, wants_complement))?;
        Some(Arc::clone(&found.form))
    }

    /// Forgets the forms of a message of one recipient that is delivered: they are made again if it is delivered again.
    pub fn forget(&self, message: MessageId) {
        if let Some(shard) = self.shard(message).lock().as_mut() {
            shard.forget(message);
        }
    }

    fn shard(&self, message: MessageId) -> &Locked<Option<Shard>> {
        &self.0[message.as_uuid().as_u128() as usize % SHARDS]
    }
}

impl Shard {
    fn keep(&mut self, message: MessageId, kept: KeptForm) {
        self.len += 1;
        self.bytes += kept.bytes;
        self.by_message.entry(message).or_default().push(kept);
        self.order.push_back(message);
        while self.bytes > SHARD_BYTES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.drop_first(oldest);
        }
    }

    fn forget(&mut self, message: MessageId) {
        let forms = self.by_message.remove(&message);
        for KeptForm { bytes, .. } in forms.into_iter().flatten() {
            self.len -= 1;
            self.bytes -= bytes;
        }
        if self.order.len() > 2 * self.len + FORGOTTEN_MAX {
            self.order.retain(|message| self.by_message.contains_key(message));
        }
    }

    /// Drops the first form of a message, if it is kept.
    fn drop_first(&mut self, message: MessageId) {
        let Some(forms) = self.by_message.get_mut(&message) else {
            return;
        };
        let KeptForm { bytes, .. } = forms.remove(0);
        if forms.is_empty() {
            self.by_message.remove(&message);
        }
        self.len -= 1;
        self.bytes -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use lens::Plan;
    use semver::Version;

    use super::*;
    use crate::{clock::now, model::MessageIds};

    fn plan() -> Arc<LensPath> {
        let version = Version::new(1, 0, 0);
        let plan = Plan::find(&[], &version, std::slice::from_ref(&version)).unwrap();
        Arc::new(plan.into())
    }

    fn kept(plan: &Arc<LensPath>, payload_len: usize) -> KeptForm {
        let form = Form::fixture(plan, payload_len);
        KeptForm {
            bytes: form.bytes_len(0),
            form,
        }
    }

    fn has(shard: &Shard, message: MessageId) -> bool {
        shard.by_message.contains_key(&message)
    }

    #[test]
    fn a_message_that_is_forgotten_leaves_nothing() {
        let (ids, plan, mut shard) = (MessageIds::default(), plan(), Shard::default());
        let (message, other) = (ids.next(now()), ids.next(now()));
        for message in [message, message, other] {
            shard.keep(message, kept(&plan, 100));
        }
        shard.forget(message);
        shard.forget(message);
        assert!(!has(&shard, message) && has(&shard, other));
        assert_eq!((shard.len, shard.bytes), (1, kept(&plan, 100).bytes));
    }

    #[test]
    fn the_oldest_forms_make_room_for_the_newest() {
        let (ids, plan, mut shard) = (MessageIds::default(), plan(), Shard::default());
        let messages: Vec<_> = (0..10).map(|_| ids.next(now())).collect();
        for message in &messages {
            shard.keep(*message, kept(&plan, 1024 * 1024));
        }
        let left: Vec<_> = messages.iter().filter(|message| has(&shard, **message)).collect();
        assert!(shard.bytes <= SHARD_BYTES_MAX && shard.len == left.len());
        assert!(!left.is_empty() && left.len() < 5);
        assert_eq!(left, messages[10 - left.len()..].iter().collect::<Vec<_>>());
    }

    #[test]
    fn messages_that_were_forgotten_leave_no_places_behind_one_that_stays() {
        let (ids, plan, mut shard) = (MessageIds::default(), plan(), Shard::default());
        shard.keep(ids.next(now()), kept(&plan, 100));
        for _ in 0..10_000 {
            let message = ids.next(now());
            shard.keep(message, kept(&plan, 100));
            shard.forget(message);
        }
        assert_eq!(shard.len, 1);
        assert!(shard.order.len() <= 2 + FORGOTTEN_MAX, "{}", shard.order.len());
    }
}
