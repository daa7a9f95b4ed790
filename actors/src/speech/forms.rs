//! The forms of recent messages, so that each is transformed once for each version.

use std::{collections::VecDeque, sync::Arc};

use lens::Plan;

use super::Form;
use crate::{
    locked::Locked,
    model::{MessageId, id_map::IdMap},
};

/// Bytes of the forms of one shard: 32 MiB of the process.
const SHARD_BYTES_MAX: usize = 8 * 1024 * 1024;
const SHARDS: usize = 4;
/// Places in the order of a shard that may be those of forms that are taken.
const TAKEN_MAX: usize = 64;

/// The forms of recent messages. The oldest are forgotten; they are made again when they are needed.
#[derive(Debug)]
pub struct Forms([Locked<Option<Shard>>; SHARDS]);

/// The forms of all projects of this process.
pub static FORMS: Forms = Forms([const { Locked::new(None) }; SHARDS]);

#[derive(Debug, Default)]
struct Shard {
    by_message: IdMap<MessageId, Vec<KeptForm>>,
    /// The messages in the order in which their forms came, and those of forms that were taken.
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
    pub fn find(&self, message: MessageId, plan: &Arc<Plan>, wants_complement: bool) -> Option<Arc<Form>> {
        let shard = self.shard(message).lock();
        let forms = shard.as_ref()?.by_message.get(&message)?;
        let found = forms.iter().find(|kept| kept.form.is_by(plan, wants_complement))?;
        Some(Arc::clone(&found.form))
    }

    /// The same, for a message of one recipient: it is made again if the message is delivered again.
    #[must_use]
    pub fn take(&self, message: MessageId, plan: &Arc<Plan>, wants_complement: bool) -> Option<Arc<Form>> {
        let mut shard = self.shard(message).lock();
        shard.as_mut()?.take(message, plan, wants_complement)
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
            self.remove(oldest, 0);
        }
    }

    fn take(&mut self, message: MessageId, plan: &Arc<Plan>, wants_complement: bool) -> Option<Arc<Form>> {
        let forms = self.by_message.get(&message)?;
        let at = forms.iter().position(|kept| kept.form.is_by(plan, wants_complement))?;
        let taken = self.remove(message, at)?;
        if self.order.len() > 2 * self.len + TAKEN_MAX {
            self.order.retain(|message| self.by_message.contains_key(message));
        }
        Some(taken)
    }

    fn remove(&mut self, message: MessageId, at: usize) -> Option<Arc<Form>> {
        let forms = self.by_message.get_mut(&message)?;
        let KeptForm { form, bytes } = forms.remove(at);
        if forms.is_empty() {
            self.by_message.remove(&message);
        }
        self.len -= 1;
        self.bytes -= bytes;
        Some(form)
    }
}

#[cfg(test)]
mod tests {
    use semver::Version;

    use super::*;
    use crate::{clock::now, model::MessageIds};

    fn plan() -> Arc<Plan> {
        let version = Version::new(1, 0, 0);
        let plan = Plan::find(&[], &version, std::slice::from_ref(&version)).unwrap();
        Arc::new(plan)
    }

    fn kept(plan: &Arc<Plan>, payload_len: usize) -> KeptForm {
        let form = Form::fixture(plan, payload_len);
        KeptForm {
            bytes: form.bytes_len(0),
            form,
        }
    }

    #[test]
    fn a_form_that_is_taken_is_not_kept() {
        let (ids, plan, mut shard) = (MessageIds::default(), plan(), Shard::default());
        let message = ids.next(now());
        shard.keep(message, kept(&plan, 100));
        assert!(
            shard.take(message, &self::plan(), false).is_none(),
            "it is of another path"
        );
        assert!(shard.take(message, &plan, true).is_none(), "it has no complement");
        assert!(shard.take(message, &plan, false).is_some());
        assert!(shard.take(message, &plan, false).is_none());
        assert_eq!((shard.len, shard.bytes, shard.by_message.len()), (0, 0, 0));
    }

    #[test]
    fn the_oldest_forms_make_room_for_the_newest() {
        let (ids, plan, mut shard) = (MessageIds::default(), plan(), Shard::default());
        let messages: Vec<_> = (0..10).map(|_| ids.next(now())).collect();
        for message in &messages {
            shard.keep(*message, kept(&plan, 1024 * 1024));
        }
        assert!(shard.bytes <= SHARD_BYTES_MAX && shard.len == 4);
        assert!(shard.take(messages[5], &plan, false).is_none());
        assert!(shard.take(messages[6], &plan, false).is_some());
    }

    #[test]
    fn forms_that_were_taken_leave_no_places_behind_one_that_stays() {
        let (ids, plan, mut shard) = (MessageIds::default(), plan(), Shard::default());
        shard.keep(ids.next(now()), kept(&plan, 100));
        for _ in 0..10_000 {
            let message = ids.next(now());
            shard.keep(message, kept(&plan, 100));
            assert!(shard.take(message, &plan, false).is_some());
        }
        assert_eq!(shard.len, 1);
        assert!(shard.order.len() <= 2 + TAKEN_MAX, "{}", shard.order.len());
    }
}
