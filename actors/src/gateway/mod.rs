//! The gateway: the backend MCP servers that the agents of a project share.
//!
//! ```text
//! Gateway                    makes the routing table, and keeps the backends as the configuration has them
//! └─ Backend × n             starts an instance, ends it, and starts it again
//!    └─ instance             no actor: a process or a connection, which the program brings
//!       (+ others             for callers that do not share the main one)
//! ```
//!
//! A call passes no actor. Its caller looks its name up in the [`RoutingTable`], gets a [`Checkout`] (an instance and a turn) from
//! the [`Checkouts`] of the backend, and writes its request into the [`Link`] of that instance. The answer comes back by the
//! number of the call ([`Call`]).
//!
//! # Invariants
//!
//! 1. A call is exactly one of: waiting, written, parked, ended. It ends once.
//! 2. A call whose first byte was written is not sent again.
//! 3. A number of a link is used for one call only, so a late answer reaches no other call.
//! 4. An instance belongs to one project, one backend and one affinity.
//! 5. A question of a backend reaches the caller of the call that it belongs to, or no caller.
//! 6. The failure of a backend, of its instance or of its actor, reaches neither its project nor another backend.
//!
//! What a backend offers is kept in the store of the project. The gateway knows neither projects nor sessions. What starts
//! processes and speaks to them is behind [`Launcher`].

mod actor;
mod added;
mod addresses;
mod announced_lists;
mod asked_urls;
mod backend;
mod call;
mod changes;
mod checkout;
mod frame_link;
mod handed_out;
mod kept_lists;
mod launch;
mod life;
mod listing;
mod lists;
mod log;
mod names;
mod open_calls;
mod parked;
mod pool;
mod profile;
mod room;
mod routing_table;
mod shared;
mod sound_items;
mod subscribed;
mod turns;

pub use actor::{Gateway, GatewayHandle, GatewaySettings};
pub use added::BackendTables;
pub use addresses::{offered_uri, scheme_of};
pub use asked_urls::AskedUrls;
pub use call::{Call, CallEnd, CallEvent, CallNumber, CallPurpose, InputRequest, Link, LinkEnded, LinkRefusal};
pub use checkout::{Checkout, Checkouts, LentCall, NotLent, Queued};
pub use frame_link::{Belongs, FIRST_PING, FrameLink, SET_LOG_LEVEL};
pub use launch::{
    Instance, InstanceEvent, LaunchOrder, Launcher, ReadLists, ReadyInstance, Report, ServerInfo, process_number,
};
pub use life::{BackendState, StartReason};
pub use listing::{ListPage, Listing, Target};
pub use lists::{BackendLists, Item, ListKind, ListPart, read_page};
pub use log::{BackendLog, LogLine};
pub use names::{Naming, Prefix};
pub use open_calls::{
    BackendCounters, CallEntry, CallOrigin, CallStage, CallStatus, Counts, Direction, EndedByOperator, OpenCalls,
};
pub use parked::{ParkedCall, ParkedCalls};
pub use pool::{Affinity, Cooldown, PoolMode};
pub use profile::Profile;
pub use routing_table::{BACKEND_META, RoutingTable};
pub use shared::{AllRevisions, BackendCommand, BackendShared, BackendView, GatewayShared, ListRevisions, Offered};
pub use subscribed::{
    Subscribed, SubscribedOwners, SubscribedResources, SubscribedTasks, Subscription, Subscriptions, TaskSubscription,
};
pub use turns::{CallerId, Lane, TooManyWait};
