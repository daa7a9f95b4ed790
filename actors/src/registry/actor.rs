use std::{sync::Arc, time::Duration};

use actix::{Actor, AsyncContext, Context, Handler, Supervised};

use super::{
    Catalog, Compiler, Protocol,
    messages::{Admit, Admitted, Learn},
};
use crate::{
    model::{BrokerError, ProtocolRecord},
    storage::{Inserted, Op, Store},
    supervise::{Posted, settle},
};

/// Bytes that the compiled schemas of one project take, about: room for several thousand ordinary ones. They stay in
/// memory as long as the project, at every replica.
const SCHEMAS_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The actor of one project's protocols: the only one that writes the catalog. Reading it needs no actor.
pub struct Registry {
    catalog: Arc<Catalog>,
    compiler: Arc<Compiler>,
    store: Arc<dyn Store>,
    /// Bytes of the schemas that the store is asked to take in: they count as if they were there.
    admitting: usize,
}

impl Registry {
    pub(crate) fn new(catalog: Arc<Catalog>, compiler: Arc<Compiler>, store: Arc<dyn Store>) -> Self {
        Self {
            catalog,
            compiler,
            store,
            admitting: 0,
        }
    }

    /// Takes in what the store has and the catalog has not: everything after a start. Nobody is served before that, so
    /// the schemas are compiled here.
    fn load(&mut self, ctx: &mut Context<Self>) {
        let op = self.store.protocols();
        settle(op, self, ctx, |registry, records, ctx| match records {
            Ok(records) => {
                for record in unknown(&registry.catalog, records) {
                    registry.take_in(&record, Protocol::compile(Arc::clone(&record)));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "protocols cannot be loaded yet: tried again");
                ctx.run_later(Duration::from_secs(1), Self::load);
            }
        });
    }

    /// Adds what the store has, or logs why it is left out.
    fn take_in(&self, record: &ProtocolRecord, compiled: Result<Arc<Protocol>, BrokerError>) {
        match compiled {
            Ok(protocol) => drop(self.catalog.admit(protocol)),
            Err(error) => {
                tracing::error!(name = %record.name, version = %record.version, %error, "stored protocol left out")
            }
        }
    }

    /// What becomes of a registration that the store has answered.
    fn settled(
        &self,
        protocol: Arc<Protocol>,
        len_max: Option<usize>,
        inserted: Inserted,
    ) -> Result<Admitted, BrokerError> {
        let there = match inserted {
            Inserted::New => {
                let record = Arc::clone(&self.catalog.admit(protocol).record);
                return Ok(Admitted { record, existed: false });
            }
            Inserted::Full => {
                let max = len_max.unwrap_or_default();
                let text = format!("the project has its {max} protocols (max_protocols), and they stay");
                return Err(BrokerError::forbidden(text));
            }
            Inserted::Exists(there) => there,
        };
        Admitted::there(&there, &protocol.record)
    }
}

/// What the catalog has not.
fn unknown(catalog: &Catalog, mut records: Vec<Arc<ProtocolRecord>>) -> Vec<Arc<ProtocolRecord>> {
    records.retain(|record| catalog.get(record.name.as_str(), &record.version.to_string()).is_none());
    records
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
        let len = protocol.schema.bytes_len();
        if self.catalog.bytes_len() + self.admitting + len > SCHEMAS_BYTES_MAX {
            let text = format!(
                "the compiled schemas of the project would take more than {SCHEMAS_BYTES_MAX} bytes, and protocols stay: \
                 use simpler schemas, or another project"
            );
            drop(reply.send(Err(BrokerError::forbidden(text))));
            return;
        }
        let op = self.store.insert_protocol(Arc::clone(&protocol.record), len_max);
        self.admitting += len;
        settle(op, self, ctx, move |registry, inserted, _| {
            registry.admitting = registry.admitting.saturating_sub(len);
            let answer = match inserted {
                Ok(inserted) => registry.settled(protocol, len_max, inserted),
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
        let (store, catalog, compiler) = (
            Arc::clone(&self.store),
            Arc::clone(&self.catalog),
            Arc::clone(&self.compiler),
        );
        let op: Op<Vec<_>> = Box::pin(async move {
            let records = match which {
                Some((name, version)) => store.protocol(name, version).await?.into_iter().collect(),
                None => store.protocols().await?,
            };
            let mut compiled = Vec::new();
            for record in unknown(&catalog, records) {
                compiled.push((Arc::clone(&record), compiler.compile(record).await));
            }
            Ok(compiled)
        });
        settle(op, self, ctx, move |registry, compiled, _| match compiled {
            Ok(compiled) => {
                for (record, compiled) in compiled {
                    registry.take_in(&record, compiled);
                }
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
