//! What the backend offers: read from the store at the start, reported by instances, and kept in the store.

use std::sync::{Arc, atomic::Ordering};

use actix::{ActorFutureExt, AsyncContext, Context, fut::wrap_future};

use super::Backend;
use crate::{
    clock::now,
    gateway::{
        backend::ADDED_LISTS_BYTES_MAX,
        kept_lists::{Announcement, Keeping},
        launch::ReadLists,
        life::LifeEvent,
        lists::BackendLists,
        pool::PoolOrder,
        profile::Profile,
    },
    model::BackendOrigin,
};

impl Backend {
    /// Reads from the store what the backend offers. It is started if that is not known.
    pub(super) fn load_lists(&mut self, ctx: &mut Context<Self>) {
        let (store, config) = (Arc::clone(&self.keeping.store), Arc::clone(&self.shared.view().config));
        let loading = async move { store.load(&config).await };
        ctx.spawn(wrap_future(loading).map(|announcement, backend: &mut Self, ctx| {
            match announcement {
                // An instance has been faster.
                _ if backend.shared.view().lists.is_some() => {}
                Some(announcement) => backend.show_kept(announcement),
                None => backend.on(LifeEvent::Wanted, ctx),
            }
        }));
    }

    /// These lists, or none if the backend was added and the project has no room for them.
    fn within_budget(&mut self, lists: Arc<BackendLists>) -> Arc<BackendLists> {
        let bytes = match self.shared.view().config.origin {
            BackendOrigin::Added => lists.bytes(),
            BackendOrigin::File => 0,
        };
        if self.list_bytes.set(bytes) {
            return lists;
        }
        self.list_bytes.set(0);
        let reason = format!(
            "it offers {bytes} bytes, and the added backends of a project have {ADDED_LISTS_BYTES_MAX} together: its lists are not shown"
        );
        self.shared.log.push(&reason, now().unix_ms);
        tracing::warn!(project = %self.shared.project, backend = %self.shared.name, reason, "lists are not shown");
        Arc::default()
    }

    fn show_kept(&mut self, announcement: Announcement) {
        let lists = self.within_budget(Arc::clone(&announcement.lists));
        self.shared.change_view(|view| {
            view.lists = Some(lists);
            view.server.get_or_insert_with(|| Arc::clone(&announcement.server));
        });
        self.keeping.kept = Some(announcement);
        (self.changed)(None);
    }

    /// Starts an instance of the pool that tells what callers are offered that can be asked, unless one runs.
    fn ask_for_lists(&mut self, ctx: &mut Context<Self>) {
        let all = self.shared.view().pool_mode.of_project(Profile::ALL);
        let checkouts = &self.shared.checkouts;
        let order = checkouts.change(|pool, now_ms| pool.start_first(all, now_ms));
        self.await_lists_of(order, ctx);
    }

    /// Starts the instance of the pool that tells what callers are offered that can be asked, if one has to be started.
    pub(super) fn await_lists_of(&mut self, order: Option<PoolOrder>, ctx: &mut Context<Self>) {
        if let Some(order) = order {
            self.announced.await_from(order.id());
            self.carry_out(order, ctx);
        }
    }

    /// Takes what the main instance offers. As long as nothing else is known, it is shown once it is complete.
    pub(super) fn main_told(&mut self, read: ReadLists, ctx: &mut Context<Self>) {
        let ReadLists {
            lists,
            are_complete,
            problems,
        } = read;
        self.show_problems(problems);
        if self.announced.main(lists, are_complete) {
            self.ask_for_lists(ctx);
        }
        let is_known = self.shared.view().lists.is_some();
        if is_known || !self.announced.is_awaiting() {
            self.take_announced_lists(ctx);
        }
    }

    /// Takes what an instance offers to callers that can answer everything; `None` if it does not tell.
    pub(super) fn told_to_askers(&mut self, id: u64, lists: Option<BackendLists>, ctx: &mut Context<Self>) {
        if self.announced.askers(id, lists) {
            self.take_announced_lists(ctx);
        }
    }

    fn take_announced_lists(&mut self, ctx: &mut Context<Self>) {
        if let Some((lists, are_complete)) = self.announced.all() {
            self.take_lists(lists, are_complete, ctx);
        }
    }

    /// Takes what the backend offers, and has the store keep it if that is all that it offers.
    fn take_lists(&mut self, lists: BackendLists, are_complete: bool, ctx: &mut Context<Self>) {
        let before = self.shared.view();
        let known = before.lists.clone().filter(|known| **known == lists);
        if known.is_none() && before.lists.is_some() {
            self.shared.counters.list_changes.fetch_add(1, Ordering::Relaxed);
        }
        let lists = match known {
            Some(known) => known,
            None => self.within_budget(Arc::new(lists)),
        };
        self.shared.change_view(|view| {
            view.lists = Some(Arc::clone(&lists));
            view.has_announced = true;
        });
        (self.changed)(None);
        if let Some(running) = self.running.as_ref().filter(|_| are_complete) {
            let server = before.server.clone().unwrap_or_default();
            self.keeping.next = Some(Announcement::new(&running.config, server, lists));
            self.keep_lists(ctx);
        }
    }

    /// Shows operators what of the lists is not offered. The log names each once, as long as it stays.
    fn show_problems(&mut self, problems: Vec<String>) {
        let before = Arc::clone(&self.shared.view().list_problems);
        let (project, backend) = (&self.shared.project, &self.shared.name);
        for problem in problems.iter().filter(|problem| !before.contains(problem)) {
            self.shared.log.push(&format!("not offered: {problem}"), now().unix_ms);
            tracing::warn!(%project, %backend, reason = problem, "a part of what a backend lists is not offered");
        }
        if *before != *problems {
            self.shared.change_view(|view| view.list_problems = problems.into());
        }
    }

    fn keep_lists(&mut self, ctx: &mut Context<Self>) {
        if self.keeping.is_writing {
            return;
        }
        let Keeping { store, kept, next, .. } = &mut self.keeping;
        let Some(announcement) = next.take().filter(|next| kept.as_ref() != Some(next)) else {
            return;
        };
        let (store, name) = (Arc::clone(store), self.shared.name.clone());
        self.keeping.is_writing = true;
        let writing = async move { store.keep(&name, &announcement).await.then_some(announcement) };
        ctx.spawn(wrap_future(writing).map(|kept, backend: &mut Self, ctx| {
            backend.keeping.is_writing = false;
            backend.keeping.kept = kept;
            backend.keep_lists(ctx);
        }));
    }
}
