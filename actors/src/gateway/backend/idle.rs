//! Ends a backend that has no calls.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use actix::{AsyncContext, Context};

use super::Backend;
use crate::{clock::now, gateway::life::LifeEvent};

/// How often it is checked whether a backend has been idle for too long, as a part of that time.
const IDLE_CHECKS: u32 = 4;

impl Backend {
    /// Ends the instance once it has had no call for as long as the configuration allows.
    pub(super) fn check_idle(&mut self, ctx: &mut Context<Self>) {
        let Some(idle_max) = self.shared.view().config.stop_when_idle else {
            return;
        };
        let number = self.running_number();
        ctx.run_later(idle_max / IDLE_CHECKS, move |backend, ctx| {
            if backend.running_number() != number {
                return;
            }
            if backend.is_idle(idle_max) {
                backend.on(LifeEvent::IdleTooLong, ctx);
            } else {
                backend.check_idle(ctx);
            }
        });
    }

    fn is_idle(&self, idle_max: Duration) -> bool {
        let view = self.shared.view();
        let idle_ms = now()
            .mono_ms
            .saturating_sub(self.shared.counters.last_call_ms.load(Relaxed));
        let since_ready = now().unix_ms.saturating_sub(view.since_ms);
        let has_calls = self.shared.counters.open.load(Relaxed) > 0 || self.shared.parked.count() > 0;
        !has_calls && u128::from(idle_ms.min(since_ready)) >= idle_max.as_millis()
    }
}
