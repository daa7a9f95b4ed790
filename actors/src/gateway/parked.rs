//! Calls whose backend has asked their caller for input, and whose caller answers with another request. Until then they stay
//! open, and keep their place.

use std::{collections::HashMap, sync::Arc};

use crate::locked::Locked;

use uuid::Uuid;

use super::{call::InputRequest, checkout::LentCall, open_calls::CallEntry};

/// Parked calls of one backend.
const PARKED_MAX: usize = 64;

/// A call that waits for the answer of its caller. Dropping it cancels it at the backend.
#[derive(Debug)]
pub struct ParkedCall {
    pub call: LentCall,
    /// What the caller is asked, at least one question.
    pub questions: Vec<InputRequest>,
    /// What operators see of it.
    pub entry: Arc<CallEntry>,
}

/// The parked calls of one backend.
#[derive(Debug, Default)]
pub struct ParkedCalls(Locked<HashMap<Uuid, ParkedCall>>);

impl ParkedCalls {
    /// Parks a call. Returns the id under which it is taken again.
    ///
    /// # Errors
    /// Too many are parked: the call is given back.
    pub fn park(&self, call: ParkedCall) -> Result<Uuid, ParkedCall> {
        let mut parked = self.0.lock();
        if parked.len() >= PARKED_MAX {
            return Err(call);
        }
        let id = Uuid::new_v4();
        parked.insert(id, call);
        Ok(id)
    }

    /// The number of parked calls.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Frees what a call occupies whose instance has ended. It waits for its caller, who gets an error.
    pub fn vacate(&self, id: Uuid) {
        // Dropped once the lock is free: another call gets it.
        let checkout = self.0.lock().get_mut(&id).and_then(|parked| parked.call.vacate());
        drop(checkout);
    }

    /// Takes a call out.
    pub fn take(&self, id: Uuid) -> Option<ParkedCall> {
        self.0.lock().remove(&id)
    }

    /// Takes the call out that operators see as this one.
    pub fn take_entry(&self, entry: &Arc<CallEntry>) -> Option<ParkedCall> {
        let mut parked = self.0.lock();
        let id = parked.iter().find(|(_, call)| Arc::ptr_eq(&call.entry, entry));
        let id = id.map(|(id, _)| *id)?;
        parked.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::{Affinity, CallOrigin, Checkouts, FrameLink, Lane, Link, OpenCalls, PoolMode, Profile};

    #[test]
    fn a_parked_call_is_taken_once_and_their_number_is_bounded() {
        let (link, checkouts, parked) = (FrameLink::new(), Checkouts::new(100, |_| {}), ParkedCalls::default());
        checkouts.open(PoolMode::SHARED, Arc::clone(&link) as Arc<dyn Link>, Profile::ALL, 100);
        let open_calls = Arc::<OpenCalls>::default();
        let origin = || CallOrigin {
            caller: "anonymous".into(),
            session: None,
            method: "tools/call",
        };
        let call = || ParkedCall {
            call: checkouts
                .try_lend(&Affinity::EVERYONE, &"a".into())
                .unwrap()
                .open(&mut |_, _| {})
                .unwrap(),
            questions: Vec::new(),
            entry: open_calls.begin(origin(), 0),
        };
        let ids: Vec<_> = (0..PARKED_MAX).map(|_| parked.park(call()).unwrap()).collect();
        assert!(parked.park(call()).is_err());
        assert_eq!((link.in_flight(), checkouts.taken(Lane::Main)), (64, 64));
        assert!(parked.take(ids[0]).is_some());
        assert!(parked.take(ids[0]).is_none());
        assert_eq!(
            (link.in_flight(), checkouts.taken(Lane::Main)),
            (63, 63),
            "it ends with its caller"
        );
        let entry = open_calls.all().remove(0);
        assert!(parked.take_entry(&entry).is_some());
        assert!(parked.take_entry(&entry).is_none());
        assert_eq!(parked.count(), 62);
    }
}
