//! The actor that registers protocols: writes them to the store and to the catalog.

use std::{sync::Arc, time::Duration};

use actix::{Actor, AsyncContext, Context, Handler, Supervised};

use super::{
    catalog::{Catalog, ExpectedLenses, Protocol},
    compiler::Compiler,
    lens_keeper::LensKeeper,
    messages::{ChangeLens, Refresh, RefreshCatalog, RegisterProtocol, RegisteredProtocol},
};
use crate::{
    clock::now,
    model::{ActorKind, BrokerError, ProjectEvent, ProtocolRecord},
    ops::then,
    storage::{Inserted, Op, Store},
    supervise::Envelope,
};

/// Approximate bytes that the compiled schemas of one project may take: room for several thousand ordinary ones. Every
/// replica keeps them in memory as long as the project is open.
pub(super) const SCHEMAS_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The only writer of a project's catalog. Readers use the catalog without the actor.
pub struct Registry {
    catalog: Arc<Catalog>,
    compiler: Arc<Compiler>,
    store: Arc<dyn Store>,
    lenses: Arc<LensKeeper>,
    /// Deliveries wait until the stored lenses are loaded.
    loading: Option<ExpectedLenses>,
    /// Bytes of the schemas that wait for the store; they count as if they were in the catalog.
    pending_bytes: usize,
}

impl Registry {
    /// A registry that loads the stored protocols when it starts.
    pub(crate) fn new(catalog: Arc<Catalog>, compiler: Arc<Compiler>, store: Arc<dyn Store>) -> Self {
        let lenses = LensKeeper::new(Arc::clone(&catalog), Arc::clone(&store));
        Self {
            lenses: Arc::new(lenses),
            loading: Some(catalog.expect_lenses()),
            catalog,
            compiler,
            store,
            pending_bytes: 0,
        }
    }

    /// Adds the stored protocols that the catalog lacks, and the stored lenses: after a start, all of them. The project serves
    /// nothing before that, so they are compiled here, on the worker.
    fn load(&mut self, ctx: &mut Context<Self>) {
        let (store, catalog, lenses) = (
            Arc::clone(&self.store),
            Arc::clone(&self.catalog),
            Arc::clone(&self.lenses),
        );
        let op: Op<()> = Box::pin(async move {
            for record in not_in_catalog(&catalog, store.protocols().await?) {
                add_stored(&catalog, &record, Protocol::compile(Arc::clone(&record)));
            }
            lenses.load().await
        });
        then(op, self, ctx, |registry, loaded, ctx| match loaded {
            Ok(()) => registry.loading = None,
            Err(error) => {
                tracing::warn!(%error, "protocols and lenses could not be loaded; retrying in 1 s");
                ctx.run_later(Duration::from_secs(1), Self::load);
            }
        });
    }

    /// Completes a registration that the store has answered.
    ///
    /// # Errors
    /// `forbidden` if the project has its maximum of protocols; `protocol_exists` if another protocol has this name and
    /// version.
    fn finish_registration(
        &self,
        protocol: Arc<Protocol>,
        len_max: Option<usize>,
        inserted: Inserted,
    ) -> Result<RegisteredProtocol, BrokerError> {
        let there = match inserted {
            Inserted::New => {
                let record = Arc::clone(&self.catalog.insert(protocol).record);
                let event = ProjectEvent::Protocol {
                    name: record.name.clone(),
                    version: record.version.clone(),
                    by: record.registered_by,
                };
                self.store.record(event, now());
                return Ok(RegisteredProtocol::new(record));
            }
            Inserted::Full => {
                return Err(protocols_full(len_max.unwrap_or_default()));
            }
            Inserted::Exists(there) => there,
        };
        RegisteredProtocol::existing(&there, &protocol.record)
    }
}

/// The error of a project that has its maximum of protocols.
pub(crate) fn protocols_full(len_max: usize) -> BrokerError {
    BrokerError::forbidden(format!(
        "the project has {len_max} protocols, its maximum (max_protocols), and protocols cannot be removed"
    ))
}

/// Checks that the compiled schemas and lenses of a project may take so many more bytes.
///
/// # Errors
/// `forbidden`.
pub(crate) fn check_schema_bytes(taken: usize, more: usize) -> Result<(), BrokerError> {
    if taken + more <= SCHEMAS_BYTES_MAX {
        return Ok(());
    }
    let text = format!(
        "the compiled schemas of the project would take more than {SCHEMAS_BYTES_MAX} bytes, and protocols stay: \
         use simpler schemas, or another project"
    );
    Err(BrokerError::forbidden(text))
}

/// Adds a stored protocol to the catalog; logs one that does not compile.
fn add_stored(catalog: &Catalog, record: &ProtocolRecord, compiled: Result<Arc<Protocol>, BrokerError>) {
    match compiled {
        Ok(protocol) => drop(catalog.insert(protocol)),
        Err(error) => {
            tracing::error!(name = %record.name, version = %record.version, %error, "a stored protocol does not compile and is ignored")
        }
    }
}

/// The records whose protocol the catalog lacks.
fn not_in_catalog(catalog: &Catalog, mut records: Vec<Arc<ProtocolRecord>>) -> Vec<Arc<ProtocolRecord>> {
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
    /// The catalog stays, as a view of the store; `started` completes it.
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.pending_bytes = 0;
        self.store.record(ProjectEvent::restarted(ActorKind::Registry), now());
    }
}

impl Handler<Envelope<RegisterProtocol>> for Registry {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<RegisterProtocol>, ctx: &mut Context<Self>) {
        let RegisterProtocol {
            protocol,
            len_max,
            reply,
        } = message;
        let len = protocol.schema.bytes_len();
        if let Err(error) = check_schema_bytes(self.catalog.bytes_len() + self.pending_bytes, len) {
            drop(reply.send(Err(error)));
            return;
        }
        let op = self.store.insert_protocol(&protocol.record, len_max);
        self.pending_bytes += len;
        then(op, self, ctx, move |registry, inserted, _| {
            registry.pending_bytes = registry.pending_bytes.saturating_sub(len);
            let answer = match inserted {
                Ok(inserted) => registry.finish_registration(protocol, len_max, inserted),
                Err(error) => Err(error.into()),
            };
            let _ = reply.send(answer);
        });
    }
}

impl Handler<Envelope<ChangeLens>> for Registry {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<ChangeLens>, ctx: &mut Context<Self>) {
        let ChangeLens { change, reply } = message;
        let lenses = Arc::clone(&self.lenses);
        let op: Op<_> = Box::pin(async move { lenses.change(change).await });
        then(op, self, ctx, move |_, changed, _| {
            let _ = reply.send(changed.map_err(BrokerError::from));
        });
    }
}

impl Handler<Envelope<RefreshCatalog>> for Registry {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<RefreshCatalog>, ctx: &mut Context<Self>) {
        let RefreshCatalog { what, done } = message;
        let (store, catalog, compiler, lenses) = (
            Arc::clone(&self.store),
            Arc::clone(&self.catalog),
            Arc::clone(&self.compiler),
            Arc::clone(&self.lenses),
        );
        let op: Op<()> = Box::pin(async move {
            let records = match &what {
                Refresh::All => store.protocols().await?,
                Refresh::Protocol(name, version) => store.protocol(name, version).await?.into_iter().collect(),
                Refresh::Lenses(name) => store.versions_of(name).await?,
            };
            for record in not_in_catalog(&catalog, records) {
                let compiled = compiler.compile(Arc::clone(&record)).await;
                add_stored(&catalog, &record, compiled);
            }
            // A lens is stored after its versions, so that they are in the catalog when it is read.
            lenses.refresh(what).await
        });
        then(op, self, ctx, move |_, refreshed, _| match refreshed {
            Ok(()) => drop(done.send(())),
            // The sender of the message tries again.
            Err(error) => tracing::debug!(%error, "protocols and lenses could not be read"),
        });
    }
}

crate::supervise::panics!(Registry);
