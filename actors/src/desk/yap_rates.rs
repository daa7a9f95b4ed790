//! How many yaps of a session are shown one by one. More are folded into one with their number. Pure.

use std::collections::HashMap;

use crate::{
    clock::Now,
    model::{SessionId, Yap},
};

/// Yaps of a session in a row that are shown one by one.
const BURST: u64 = 50;
/// Milliseconds after which a session may yap once more: 60 a minute.
const INTERVAL_MS: u64 = 1_000;

/// The rates of all sessions that have yapped lately.
#[derive(Debug, Default)]
pub struct YapRates(HashMap<SessionId, YapRate>);

#[derive(Debug)]
struct YapRate {
    /// Milliseconds of credit: each yap costs [`INTERVAL_MS`].
    credit_ms: u64,
    /// When the credit was counted, on the monotonic clock.
    counted_ms: u64,
    /// The last yap that was over the rate; its `folded` counts those before it that it replaces.
    folded: Option<Yap>,
}

impl YapRate {
    const CREDIT_MAX_MS: u64 = BURST * INTERVAL_MS;

    const fn new(now: Now) -> Self {
        Self {
            credit_ms: Self::CREDIT_MAX_MS,
            counted_ms: now.mono_ms,
            folded: None,
        }
    }

    fn count(&mut self, now: Now) {
        let elapsed_ms = now.mono_ms.saturating_sub(self.counted_ms);
        self.credit_ms = self.credit_ms.saturating_add(elapsed_ms).min(Self::CREDIT_MAX_MS);
        self.counted_ms = now.mono_ms;
    }

    const fn take(&mut self) -> bool {
        let can_pay = self.credit_ms >= INTERVAL_MS;
        if can_pay {
            self.credit_ms -= INTERVAL_MS;
        }
        can_pay
    }
}

impl YapRates {
    /// Gives the yap back if it is shown now. Else it is folded: [`Self::take_due`] returns it.
    pub fn admit(&mut self, mut yap: Yap, now: Now) -> Option<Yap> {
        let rate = self.0.entry(yap.sender).or_insert_with(|| YapRate::new(now));
        rate.count(now);
        if rate.folded.is_none() && rate.take() {
            return Some(yap);
        }
        yap.folded = rate.folded.as_ref().map_or(0, |before| before.folded.saturating_add(1));
        rate.folded = Some(yap);
        None
    }

    /// Takes back a yap that [`Self::take_due`] has returned and that could not be shown. One that came meanwhile replaces
    /// it, too.
    pub fn fold_again(&mut self, yap: Yap, now: Now) {
        let rate = self.0.entry(yap.sender).or_insert_with(|| YapRate::new(now));
        match &mut rate.folded {
            Some(newer) => newer.folded = newer.folded.saturating_add(yap.folded.saturating_add(1)),
            empty => *empty = Some(yap),
        }
    }

    /// Folded yaps that may be shown by now, and when the next may be, on the monotonic clock.
    pub fn take_due(&mut self, now: Now) -> (Vec<Yap>, Option<u64>) {
        let (mut due, mut next_ms) = (Vec::new(), None::<u64>);
        self.0.retain(|_, rate| {
            rate.count(now);
            if rate.folded.is_some() && rate.take() {
                due.extend(rate.folded.take());
            }
            if rate.folded.is_some() {
                let at = now.mono_ms + INTERVAL_MS - rate.credit_ms;
                next_ms = Some(next_ms.map_or(at, |next| next.min(at)));
            }
            rate.folded.is_some() || rate.credit_ms < YapRate::CREDIT_MAX_MS
        });
        (due, next_ms)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn at(mono_ms: u64) -> Now {
        Now {
            unix_ms: 1_790_000_000_000,
            mono_ms,
        }
    }

    fn yap(sender: u128, message: usize) -> Yap {
        Yap {
            id: Uuid::from_u128(message as u128),
            sender: SessionId::from_uuid(Uuid::from_u128(sender)),
            sender_name: None,
            message: message.to_string(),
            mode: None,
            category: None,
            task_context: None,
            sent_at_ms: None,
            folded: 0,
        }
    }

    #[test]
    fn a_folded_yap_that_could_not_be_shown_is_counted_again() {
        let mut rates = YapRates::default();
        (0..60).for_each(|n| drop(rates.admit(yap(1, n), at(0))));
        let (mut due, _) = rates.take_due(at(1_000));
        let failed = due.pop().unwrap();
        assert_eq!(failed.folded, 9);
        rates.fold_again(failed.clone(), at(1_000));
        assert_eq!(rates.take_due(at(2_000)).0, std::slice::from_ref(&failed));
        rates.admit(yap(1, 60), at(2_000));
        rates.fold_again(failed, at(2_000));
        let (due, _) = rates.take_due(at(3_000));
        assert_eq!((due[0].message.as_str(), due[0].folded), ("60", 10));
    }

    #[test]
    fn a_burst_is_shown_and_what_follows_is_folded_into_one() {
        let mut rates = YapRates::default();
        let shown = (0..88).filter(|n| rates.admit(yap(1, *n), at(0)).is_some()).count();
        assert_eq!(shown, 50);
        assert!(
            rates.admit(yap(2, 0), at(0)).is_some(),
            "another session has its own rate"
        );
        assert_eq!(rates.take_due(at(999)), (Vec::new(), Some(1_000)));
        let (due, next) = rates.take_due(at(1_000));
        assert_eq!((due.len(), due[0].folded, due[0].message.as_str()), (1, 37, "87"));
        assert_eq!(next, None);
        assert!(
            rates.admit(yap(1, 88), at(1_000)).is_none(),
            "the folded one took the credit"
        );
        rates.take_due(at(60_000));
        rates.take_due(at(120_000));
        assert!(rates.0.is_empty(), "a session with its whole credit is forgotten");
    }

    proptest! {
        /// Below the rate every yap is shown. Above it each is shown or counted by one that is shown.
        #[test]
        fn no_yap_is_dropped(pauses in prop::collection::vec(0_u64..1_500, 1..300)) {
            let (mut rates, mut now_ms, mut told, mut shown) = (YapRates::default(), 0, 0_u32, 0_usize);
            for (number, pause) in pauses.iter().enumerate() {
                now_ms += pause;
                for yap in rates.take_due(at(now_ms)).0.into_iter().chain(rates.admit(yap(1, number), at(now_ms))) {
                    told += 1 + yap.folded;
                    shown += 1;
                }
                prop_assert!(shown as u64 <= 50 + now_ms / 1_000);
            }
            told += rates.take_due(at(now_ms + 1_000)).0.iter().map(|yap| 1 + yap.folded).sum::<u32>();
            prop_assert_eq!(told as usize, pauses.len());
        }
    }
}
