//! The instances of the pool: started for callers that can be asked, and ended when they are not needed.

use std::{sync::Arc, time::Duration};

use actix::{AsyncContext, Context, fut::wrap_future};
use tokio::time::timeout;

use super::{Backend, DRAIN_MAX, Launched};
use crate::{
    clock::millis,
    gateway::{
        call::Link,
        launch::{InstanceEvent, ReadyInstance, ServerInfo},
        life::{LifeEvent, StartReason},
        lists::BackendLists,
        pool::{Pool, PoolMode, PoolOrder},
    },
    model::Sharing,
};

/// How long an instance of the pool is kept that has no call.
const UNUSED_MAX: Duration = Duration::from_secs(60);
/// How long it is kept if it belongs to an owner and the configuration does not say how long: it may remember what its owner
/// has done.
const UNUSED_OWNED_MAX: Duration = Duration::from_secs(1_800);

impl Launched {
    /// Takes what the instance has said in its handshake. Returns what it has said of itself.
    pub(super) fn agreed(&mut self, ready: ReadyInstance) -> Arc<ServerInfo> {
        let others = self.config.instances_max().saturating_sub(1);
        self.pool_mode = PoolMode::new(self.config.sharing, ready.asks_without_call, others);
        self.link = Some(ready.link);
        ready.server
    }

    /// Lets the open calls end, for at most [`DRAIN_MAX`], and then the instance.
    pub(super) fn end_once_idle(self, ctx: &mut Context<Backend>) {
        let Self {
            instance,
            link: Some(link),
            ..
        } = self
        else {
            return;
        };
        ctx.spawn(wrap_future(async move {
            let _ = timeout(DRAIN_MAX, link.wait_until_idle()).await;
            drop(instance);
        }));
    }
}

impl Backend {
    /// Does what the pool needs.
    pub(super) fn carry_out(&mut self, order: PoolOrder, ctx: &mut Context<Self>) {
        match order {
            PoolOrder::Start { id } => self.start_pooled(id, ctx),
            PoolOrder::End { id } => self.end_pooled(id),
            // Another one may have taken its place by now.
            PoolOrder::Restart { .. } if self.shared.checkouts.look(Pool::lacks_main) => {
                self.on(LifeEvent::Restart(StartReason::Cancelled), ctx);
            }
            PoolOrder::Restart { .. } => {}
        }
    }

    fn start_pooled(&mut self, id: u64, ctx: &mut Context<Self>) {
        // The pool may have been closed meanwhile.
        let affinity = self.shared.checkouts.look(|pool| pool.affinity_of(id));
        // Not the table of now: what follows from a change of it may not have come up.
        let (
            Some(affinity),
            Some(Launched {
                config,
                link: Some(main),
                ..
            }),
        ) = (affinity, &self.running)
        else {
            self.shared
                .checkouts
                .change(|pool, now_ms| pool.remove(id, None, now_ms));
            return;
        };
        let (config, era) = (Arc::clone(config), main.era());
        self.shared.counters.starts.add(StartReason::Asking, 1);
        let launched = self.launch(config, Some(era), Some(affinity));
        let start_timeout = launched.config.start_timeout;
        self.pooled.insert(id, launched);
        ctx.run_later(start_timeout, move |backend, ctx| {
            if backend.pooled.get(&id).is_some_and(|launched| launched.link.is_none()) {
                let reason = format!("it did not answer within {} s", start_timeout.as_secs());
                backend.pooled_gone(id, &reason, ctx);
            }
        });
    }

    /// Takes what an instance of the pool reports.
    pub(super) fn pooled_reported(&mut self, number: u64, event: InstanceEvent, ctx: &mut Context<Self>) {
        let mut pooled = self.pooled.iter_mut();
        let Some((&id, launched)) = pooled.find(|(_, launched)| launched.number == number) else {
            return;
        };
        match event {
            InstanceEvent::Running { .. } => {}
            InstanceEvent::Ready(ready) => {
                launched.agreed(ready);
                // One that is awaited is lent once it has sent its lists: it could make room for another one before.
                if !self.announced.awaits(id) {
                    self.pooled_ready(id, ctx);
                }
            }
            InstanceEvent::Lists(read) => self.pooled_told(id, read.lists, ctx),
            InstanceEvent::Ended(ended) => self.pooled_gone(id, &ended.to_string(), ctx),
            InstanceEvent::NotStarted(reason) => self.pooled_gone(id, &reason, ctx),
        }
    }

    /// An instance has sent its lists.
    fn pooled_told(&mut self, id: u64, lists: BackendLists, ctx: &mut Context<Self>) {
        let was_awaited = self.announced.awaits(id);
        let has_owner = self.sharing() != Sharing::Project && !was_awaited;
        if has_owner {
            // What one owner is offered is not for all.
            return;
        }
        self.told_to_askers(id, Some(lists), ctx);
        match self.sharing() {
            _ if !was_awaited => {}
            Sharing::Project => self.pooled_ready(id, ctx),
            // It has no owner, so no call will use it.
            Sharing::Key | Sharing::Session => {
                self.shared
                    .checkouts
                    .change(|pool, now_ms| pool.remove(id, None, now_ms));
                self.end_pooled(id);
            }
        }
    }

    /// Which callers share an instance, as the running one was started. The table may say something else by now.
    fn sharing(&self) -> Sharing {
        self.running
            .as_ref()
            .map_or(Sharing::Project, |running| running.config.sharing)
    }

    fn pooled_ready(&mut self, id: u64, ctx: &mut Context<Self>) {
        let link = self.pooled.get(&id).and_then(|launched| launched.link.clone());
        if let Some(link) = link {
            self.shared
                .checkouts
                .change(|pool, now_ms| pool.ready(id, link, now_ms));
            if self.pool_timer.is_none() {
                self.end_unused_in(self.unused_max(), ctx);
            }
        }
    }

    fn end_pooled(&mut self, id: u64) {
        self.pooled.remove(&id);
    }

    fn pooled_gone(&mut self, id: u64, reason: &str, ctx: &mut Context<Self>) {
        let was_ready = self.pooled.remove(&id).is_some_and(|launched| launched.link.is_some());
        let not_started = (!was_ready).then(|| reason.to_owned());
        tracing::info!(
            project = %self.shared.project,
            backend = %self.shared.name,
            reason,
            "an instance of a backend for some of its callers has ended"
        );
        self.shared
            .checkouts
            .change(|pool, now_ms| pool.remove(id, not_started, now_ms));
        self.told_to_askers(id, None, ctx);
    }

    /// How long an instance of the pool is kept that has no call.
    fn unused_max(&self) -> Duration {
        match self.sharing() {
            Sharing::Project => UNUSED_MAX,
            Sharing::Key | Sharing::Session => {
                let configured = self.shared.view().config.stop_when_idle;
                configured.unwrap_or(UNUSED_OWNED_MAX)
            }
        }
    }

    /// Ends the instances that have had no call for long, after this time and from then on.
    fn end_unused_in(&mut self, pause: Duration, ctx: &mut Context<Self>) {
        self.pool_timer = Some(ctx.run_later(pause, |backend, ctx| {
            backend.pool_timer = None;
            let idle_ms = millis(backend.unused_max());
            let checkouts = &backend.shared.checkouts;
            let (unused, next_ms) = checkouts.change(|pool, now_ms| pool.take_unused(idle_ms, now_ms));
            for id in unused {
                backend.end_pooled(id);
            }
            if let Some(next_ms) = next_ms {
                backend.end_unused_in(Duration::from_millis(next_ms), ctx);
            }
        }));
    }

    /// Lends no instance of the pool to further calls. Returns the links of those that may have calls; the others end.
    pub(super) fn close_pool(&mut self) -> Vec<Arc<dyn Link>> {
        self.shared.checkouts.change(|pool, _| pool.close());
        self.pooled.retain(|_, launched| launched.link.is_some());
        self.pooled
            .values()
            .filter_map(|launched| launched.link.clone())
            .collect()
    }

    /// Lends no instance of the pool to further calls. They end with their calls.
    pub(super) fn retire_pool(&mut self, ctx: &mut Context<Self>) {
        self.shared.checkouts.change(|pool, _| pool.close());
        for (_, launched) in self.pooled.drain() {
            launched.end_once_idle(ctx);
        }
    }

    /// Ends the instances of the pool.
    pub(super) fn end_pool(&mut self) {
        self.shared.checkouts.change(|pool, _| pool.close());
        self.pooled.clear();
    }
}
