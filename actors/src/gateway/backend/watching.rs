//! Watches the files of the program.

use std::sync::Arc;

use actix::{Context, Handler};

use super::Backend;
use crate::{gateway::life::StartReason, supervise::Envelope};

/// The files of the program have changed.
struct FilesChanged;

impl Backend {
    /// Watches the files that the configuration names.
    pub(super) fn watch(&mut self) {
        let config = Arc::clone(&self.shared.view().config);
        self.watching = None;
        if !config.watch.is_empty() && !config.is_disabled {
            let address = self.address.clone();
            let changed = Arc::new(move || address.report(FilesChanged));
            self.watching = Some(self.launcher.watch(&config, Arc::clone(&self.shared.log), changed));
        }
    }
}

impl Handler<Envelope<FilesChanged>> for Backend {
    type Result = ();

    fn handle(&mut self, _: Envelope<FilesChanged>, ctx: &mut Context<Self>) {
        tracing::info!(
            project = %self.shared.project,
            backend = %self.shared.name,
            "the files of a backend have changed"
        );
        self.renew(StartReason::Change, ctx);
    }
}
