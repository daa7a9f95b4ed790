use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Supervised};

use super::{
    Charter, Directory, ProjectHandle, Projects, Registered, Registration, Settings,
    handle::Parts,
    messages::{Child, ChildDown, Close, Register},
};
use crate::{
    clock::now,
    model::{BrokerError, DeadLetterReason, Owner, ProjectId, ProjectRecord, SessionId, SessionRecord},
    registry::{Catalog, Registry},
    router::Router,
    session::{Abandon, Attach, Connection, Detach, Ended, Member, Retire, Session, SessionSettings, Vitals},
    storage::Store,
    supervise::{self, Address, Posted, Pulse, settle},
};

type Reply = tokio::sync::oneshot::Sender<Result<Registered, BrokerError>>;

/// How often the store is asked to expire what has outlived its time.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// The actor of one project: the parent of its registry, its router and its sessions.
pub struct Project {
    id: ProjectId,
    settings: Settings,
    address: Address<Project>,
    store: Arc<dyn Store>,
    directory: Arc<Directory>,
    charter: Arc<Charter>,
    pulse: Arc<Pulse>,
    gave_up: Option<Box<dyn FnOnce()>>,
}

impl Project {
    /// Starts a project and its children on this thread's arbiter. `gave_up` runs when the project cannot go on.
    pub(crate) fn start(
        record: Arc<ProjectRecord>,
        settings: Settings,
        store: Arc<dyn Store>,
        neighbours: Weak<Projects>,
        gave_up: impl FnOnce() + Clone + 'static,
    ) -> ProjectHandle {
        let id = record.id.clone();
        let charter = Charter::new(settings, record);
        let pulse = Pulse::new("project", id.as_str());
        let directory = Arc::new(Directory::new(settings.presence));
        let catalog = Arc::new(Catalog::default());
        let address = supervise::start(Arc::clone(&pulse), settings.restarts, gave_up.clone(), {
            let (id, store, directory) = (id.clone(), Arc::clone(&store), Arc::clone(&directory));
            let charter = Arc::clone(&charter);
            |address| Self {
                id,
                settings,
                address,
                store,
                directory,
                charter,
                pulse,
                gave_up: Some(Box::new(gave_up)),
            }
        });
        let down = |child| {
            let project = address.clone();
            move || project.report(ChildDown { child })
        };
        let registry = supervise::start(
            Pulse::new("registry", id.as_str()),
            settings.restarts,
            down(Child::Registry),
            |_| Registry::new(Arc::clone(&catalog), Arc::clone(&store)),
        );
        let router = supervise::start(
            Pulse::new("router", id.as_str()),
            settings.restarts,
            down(Child::Router),
            |_| Router::new(Arc::clone(&directory), Arc::clone(&store), Arc::clone(&charter)),
        );
        ProjectHandle::new(Parts {
            id,
            settings,
            project: address,
            registry,
            router,
            directory,
            charter,
            catalog,
            store,
            neighbours,
        })
    }

    fn register(&mut self, registration: Registration, ctx: &mut Context<Self>, reply: Reply) {
        let Registration {
            name,
            capabilities,
            metadata,
            owner,
            current,
            connection,
        } = registration;
        let lives = |member: &Arc<Member>| !member.is_over();
        let is_own = |member: &Arc<Member>| member.record.owner == owner;
        let current = current.and_then(|id| self.directory.by_id(id));
        // That of somebody else is not there, whatever the caller says.
        let current = current.filter(|member| lives(member) && is_own(member));
        let holder = name.as_ref().and_then(|name| self.directory.by_name(name.as_str()));
        let holder = holder
            .filter(lives)
            .and_then(|holder| self.unless_orphan(holder, &owner));
        let is_nameless = |member: &Arc<Member>| member.record.name.is_none();
        // Whom the registration is about: whoever holds the name; else the caller's own session, if it can take it.
        let subject = match (holder, &current) {
            (Some(holder), _) => Some(holder),
            (None, Some(current)) if name.is_none() || is_nameless(current) => Some(Arc::clone(current)),
            (None, _) => None,
        };
        if let Some(refusal) = self.refusal(subject.as_deref(), &owner) {
            drop(reply.send(Err(refusal)));
            return;
        }
        let resumed = subject.is_some();
        let record = match &subject {
            Some(member) => SessionRecord {
                id: member.record.id,
                name: name.or_else(|| member.record.name.clone()),
                capabilities: capabilities.unwrap_or_else(|| member.record.capabilities.clone()),
                metadata: metadata.unwrap_or_else(|| member.record.metadata.clone()),
                connected_at_ms: member.record.connected_at_ms,
                owner,
            },
            None => SessionRecord {
                id: SessionId::generate(),
                name,
                capabilities: capabilities.unwrap_or_default(),
                metadata: metadata.unwrap_or_default(),
                connected_at_ms: now().unix_ms,
                owner,
            },
        };
        let left = current.filter(|current| current.record.id != record.id);
        let member = self.seat(record, subject.as_deref(), false);
        let op = self.store.put_session(member.record.clone());
        settle(op, self, ctx, move |project, stored, _| {
            let answer = match stored {
                Ok(()) => {
                    Self::leave(left, connection.as_deref());
                    member.vitals.touch(now());
                    // The mailbox of a session just made or found is not full, and if it is the caller hears of it.
                    member
                        .address
                        .tell(Attach {
                            connection,
                            named: member.record.name.is_some(),
                            reclaims: false,
                        })
                        .map(|()| Registered { member, resumed })
                }
                Err(error) => {
                    match subject {
                        Some(before) => project.directory.put(&before),
                        None => drop(project.directory.remove(member.record.id)),
                    }
                    Err(error.into())
                }
            };
            let _ = reply.send(answer);
        });
    }

    /// Why this owner may not register this session, or a new one.
    fn refusal(&self, subject: Option<&Member>, owner: &Owner) -> Option<BrokerError> {
        let Some(subject) = subject else {
            let max = self.charter.terms().record.config.max_sessions?;
            return (self.directory.len() >= max).then(|| {
                BrokerError::forbidden(format!(
                    "the project has its {max} sessions (max_sessions): one of them has to leave first"
                ))
            });
        };
        (subject.record.owner != *owner)
            .then(|| BrokerError::forbidden("the name belongs to a session of another key: choose another"))
    }

    /// A session as which nobody can act any more, because its last key has ended, makes room for who wants its name:
    /// it ends, and what its inbox holds becomes dead letters, which can be sent again.
    fn unless_orphan(&self, holder: Arc<Member>, owner: &Owner) -> Option<Arc<Member>> {
        let held_by = &holder.record.owner;
        if held_by == owner || !self.charter.terms().record.is_orphaned(held_by, now().unix_ms) {
            return Some(holder);
        }
        holder.address.report(Retire {
            reason: DeadLetterReason::RecipientGone,
        });
        None
    }

    /// Puts a session into the directory: a new actor, or the one that is there with a new record. The name is
    /// taken from this moment on, however long the store needs.
    fn seat(&self, record: SessionRecord, before: Option<&Member>, resumes: bool) -> Arc<Member> {
        let member = match before {
            Some(before) => Member {
                record,
                vitals: Arc::clone(&before.vitals),
                address: before.address.clone(),
            },
            None => self.open(record, Vitals::new(now()), resumes),
        };
        let member = Arc::new(member);
        self.directory.put(&member);
        member
    }

    /// Starts the actor of a session, which `resumes` one that the store has.
    fn open(&self, record: SessionRecord, vitals: Arc<Vitals>, resumes: bool) -> Member {
        let id = record.id;
        let settings = SessionSettings {
            presence: self.settings.presence,
            retention: self.settings.session_retention,
            delivery_limit: self.settings.delivery_limit,
            named: record.name.is_some(),
            resumes,
        };
        let pulse = Pulse::new("session", record.id.to_string());
        let (project, store) = (self.address.clone(), Arc::clone(&self.store));
        let ended = project.clone();
        let address = supervise::start(
            Arc::clone(&pulse),
            self.settings.restarts,
            move || {
                project.report(ChildDown {
                    child: Child::Session(id),
                })
            },
            |_| {
                Session::new(id, settings, Arc::clone(&vitals), store, pulse, move |fact| {
                    ended.report(fact)
                })
            },
        );
        Member {
            record,
            vitals,
            address,
        }
    }

    /// A caller that registers another session leaves the one it had. One without a name ends with that: nobody
    /// could come back to it.
    fn leave(left: Option<Arc<Member>>, connection: Option<&dyn Connection>) {
        let Some(left) = left else { return };
        // The connection goes on, with another session.
        let detached = connection.map_or(Ok(()), |connection| {
            left.address.tell(Detach {
                connection: connection.id(),
            })
        });
        let told = match left.record.name {
            None => detached.and_then(|()| {
                left.address.tell(Retire {
                    reason: DeadLetterReason::RecipientGone,
                })
            }),
            Some(_) => detached,
        };
        if told.is_err() {
            tracing::warn!(session = %left.record.id, "a session that was left could not be told");
        }
    }

    /// Opens what the store has and the directory has not: all sessions after a start, none after a panic.
    fn reload(&mut self, ctx: &mut Context<Self>) {
        let op = self.store.sessions();
        settle(op, self, ctx, |project, records, ctx| match records {
            Ok(records) => {
                for record in records {
                    if project.directory.by_id(record.id).is_none() {
                        project.seat(record, None, true);
                    }
                }
            }
            Err(error) => {
                tracing::warn!(project = %project.id, %error, "sessions cannot be loaded yet: tried again");
                ctx.run_later(Duration::from_secs(1), Self::reload);
            }
        });
    }

    fn sweep(&mut self, ctx: &mut Context<Self>) {
        let op = self.store.sweep(now());
        settle(op, self, ctx, |project, swept, _| match swept {
            Ok(changed) => {
                for (session, waiting) in changed {
                    if let Some(member) = project.directory.by_id(session) {
                        member.vitals.set_waiting(waiting);
                    }
                }
            }
            Err(error) => tracing::warn!(project = %project.id, %error, "the store could not be swept"),
        });
    }
}

impl Actor for Project {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.reload(ctx);
        ctx.run_interval(SWEEP_INTERVAL, Self::sweep);
    }
}

impl Handler<Posted<Close>> for Project {
    type Result = ();

    /// The sessions end, and what their inboxes hold with them; their connections are told. The registry and the router
    /// go with the last who holds on to the project.
    fn handle(&mut self, _: Posted<Close>, ctx: &mut Context<Self>) {
        for member in self.directory.all() {
            let retire = Retire {
                reason: DeadLetterReason::RecipientGone,
            };
            member.address.report(retire);
        }
        self.pulse.finish();
        ctx.stop();
    }
}

impl Handler<Posted<Abandon>> for Project {
    type Result = ();

    fn handle(&mut self, _: Posted<Abandon>, ctx: &mut Context<Self>) {
        self.pulse.finish();
        ctx.stop();
    }
}

/// The directory and the children's addresses are facts about the world and stay; there is no other state.
impl Supervised for Project {}

impl Handler<Posted<Register>> for Project {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Register>, ctx: &mut Context<Self>) {
        let Register { registration, reply } = message;
        self.register(registration, ctx, reply);
    }
}

impl Handler<Posted<Ended>> for Project {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Ended>, _: &mut Context<Self>) {
        self.directory.remove(message.session);
    }
}

impl Handler<Posted<ChildDown>> for Project {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<ChildDown>, _: &mut Context<Self>) {
        match message.child {
            // Its inbox is in the store: a new actor goes on from there. Its connection was closed with it.
            Child::Session(id) => {
                if let Some(before) = self.directory.by_id(id) {
                    tracing::error!(session = %id, "session given up: opened anew");
                    let member = self.open(before.record.clone(), Arc::clone(&before.vitals), true);
                    self.directory.put(&Arc::new(member));
                }
            }
            child @ (Child::Registry | Child::Router) => {
                tracing::error!(project = %self.id, ?child, "the project cannot go on without it: opened anew");
                if let Some(gave_up) = self.gave_up.take() {
                    gave_up();
                }
            }
        }
    }
}

#[cfg(feature = "faults")]
impl Handler<Posted<super::Panic>> for Project {
    type Result = ();

    fn handle(&mut self, _: Posted<super::Panic>, _: &mut Context<Self>) {
        panic!("a fault was injected");
    }
}
