//! The ids of messages.

use uuid::{ContextV7, Timestamp, Uuid};

use crate::{clock::Now, model::MessageId};

/// Generates ids that grow: within one generator a later message has a greater id, even if the wall clock is set back.
#[derive(Debug, Default)]
pub struct MessageIds(ContextV7);

impl MessageIds {
    /// The next id.
    pub fn next(&self, now: Now) -> MessageId {
        let (seconds, millis) = (now.unix_ms / 1000, now.unix_ms % 1000);
        let timestamp = Timestamp::from_unix(&self.0, seconds, millis as u32 * 1_000_000);
        MessageId::from_uuid(Uuid::new_v7(timestamp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_even_when_the_wall_clock_goes_back() {
        let ids = MessageIds::default();
        let mut last = ids.next(Now {
            unix_ms: 1_790_000_000_000,
            mono_ms: 0,
        });
        for step in 0..20_000_u64 {
            let next = ids.next(Now {
                unix_ms: 1_790_000_000_000 - step % 700,
                mono_ms: 0,
            });
            assert!(next > last, "{next} after {last}");
            last = next;
        }
    }

    #[test]
    fn an_id_holds_the_time_at_which_it_was_made() {
        let now = Now {
            unix_ms: 1_790_000_000_123,
            mono_ms: 0,
        };
        let id = MessageIds::default().next(now);
        let made = id.as_uuid().get_timestamp().map(|made| made.to_unix());
        assert_eq!(made, Some((1_790_000_000, 123_000_000)));
    }
}
