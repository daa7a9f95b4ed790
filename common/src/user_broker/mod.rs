//! The brokers of one user on this machine: where their files are, how a client finds or starts one, and which of two
//! versions serves.
//!
//! `instance` names a broker, `paths` its files, `vetting` who may have touched them. `attach` connects, and starts a
//! broker where none runs: `greeting` is the first exchange, `spawn` the start, `lock` what keeps starts apart. `version`
//! judges a client, `publish` makes the name of a socket, `life` tells whether a broker lives, `living` which of all do, `stop` ends it. This room
//! knows neither MCP nor the command line.

mod attach;
mod build;
mod client;
mod error;
mod greeting;
pub mod hello;
mod info;
mod instance;
mod life;
mod living;
mod lock;
pub mod mail;
mod paths;
mod peer;
mod publish;
mod ready;
mod spawn;
mod stop;
mod version;
mod vetting;

pub use attach::{Attached, StartPolicy, attach};
pub use build::{build_id, executable, is_replaced, own_protocol, running_version, started_at};
pub use client::{LineClient, RequestError};
pub use error::{AttachError, LocalError};
pub use greeting::connect;
pub use info::{Info, Living, write_private};
pub use instance::Instance;
pub use life::{HOOK_PREFIX, LifeLock, files, is_alive, remove_folder, remove_remains};
pub use living::living_brokers;
pub use lock::{FileLock, LockError, pause_until};
pub use paths::{LocalPaths, config_file_of_user};
pub use peer::{PeerProcess, peer_of};
pub use publish::{PublishedSocket, SOCKET_PATH_LEN_MAX, publish_socket};
pub use ready::Readiness;
pub use stop::{Stopped, stop};
pub use version::{Meeting, meet};
pub use vetting::{vet, vet_above};
