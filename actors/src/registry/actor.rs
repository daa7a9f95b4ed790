use std::{sync::Arc, time::Duration};

use actix::{Actor, AsyncContext, Context, Handler, Supervised};

use super::{
    Catalog, Protocol,
    messages::{Admit, Learn},
};
use crate::{
    model::{BrokerError, ProtocolRecord},
    storage::{Op, Store},
    supervise::{Posted, settle},
};

/// The actor of one project's protocols: the only one that writes the catalog. Reading it needs no actor.
pub struct Registry {
    catalog: Arc<Catalog>,
    store: Arc<dyn Store>,
    /// How many the store is asked to take in: they count as if they were there.
    admitting: usize,
}

impl Registry {
    pub(crate) fn new(catalog: Arc<Catalog>, store: Arc<dyn Store>) -> Self {
        Self {
            catalog,
            store,
            admitting: 0,
        }
    }

    /// Takes in what the store has and the catalog has not: everything after a start.
    fn take_in(&self, records: Vec<Arc<ProtocolRecord>>) {
        for record in records {
            let version = record.version.to_string();
            if self.catalog.get(record.name.as_str(), &version).is_none() {
                self.restore(&record);
            }
        }
    }

    fn load(&mut self, ctx: &mut Context<Self>) {
        let op = self.store.protocols();
        settle(op, self, ctx, |registry, records, ctx| match records {
            Ok(records) => registry.take_in(records),
            Err(error) => {
                tracing::warn!(%error, "protocols cannot be loaded yet: tried again");
                ctx.run_later(Duration::from_secs(1), Self::load);
            }
        });
    }

    fn restore(&self, record: &Arc<ProtocolRecord>) {
        match Protocol::compile(Arc::clone(record)) {
            // It is there already after a panic: that is what it should be.
            Ok(protocol) => drop(self.catalog.admit(protocol)),
            Err(error) => {
                tracing::error!(name = %record.name, version = %record.version, %error, "stored protocol left out")
            }
        }
    }
}

impl Actor for Registry {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.load(ctx);
    }
}

impl Supervised for Registry {
    /// The catalog is a view of the store, and `started` completes it.
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.admitting = 0;
    }
}

impl Handler<Posted<Admit>> for Registry {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Admit>, ctx: &mut Context<Self>) {
        let Admit {
            protocol,
            len_max,
            reply,
        } = message;
        if let Some(max) = len_max.filter(|&max| self.catalog.len() + self.admitting >= max) {
            let text = format!("the project has its {max} protocols (max_protocols), and they stay");
            drop(reply.send(Err(BrokerError::forbidden(text))));
            return;
        }
        let op = self.store.insert_protocol(Arc::clone(&protocol.record));
        self.admitting += 1;
        settle(op, self, ctx, move |registry, inserted, _| {
            registry.admitting -= 1;
            let answer = match inserted {
                Ok(true) => registry.catalog.admit(Arc::clone(&protocol)).map(|()| protocol),
                Ok(false) => {
                    let (name, version) = (protocol.record.name.clone(), protocol.record.version.clone());
                    Err(BrokerError::ProtocolExists { name, version })
                }
                Err(error) => Err(error.into()),
            };
            let _ = reply.send(answer);
        });
    }
}

impl Handler<Posted<Learn>> for Registry {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Learn>, ctx: &mut Context<Self>) {
        let Learn { which, done } = message;
        let op: Op<Vec<_>> = match which {
            Some((name, version)) => {
                let record = self.store.protocol(name, version);
                Box::pin(async { Ok(record.await?.into_iter().collect()) })
            }
            None => self.store.protocols(),
        };
        settle(op, self, ctx, move |registry, records, _| match records {
            Ok(records) => {
                registry.take_in(records);
                let _ = done.send(());
            }
            // Whoever asks does so again.
            Err(error) => tracing::debug!(%error, "protocols could not be looked at"),
        });
    }
}

#[cfg(feature = "faults")]
impl Handler<Posted<super::Panic>> for Registry {
    type Result = ();

    fn handle(&mut self, _: Posted<super::Panic>, _: &mut Context<Self>) {
        panic!("a fault was injected");
    }
}
