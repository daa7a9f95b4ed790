//! The front of an agent: speaks MCP on stdin and stdout, and holds a connection to a broker, which it outlives.
//!
//! `client_side` reads the client's frames, `own_answers` answers some of them, `requests` keeps the others until they are
//! answered. `broker_side` connects by way of a `Dial`, sends the opening that `replay` has recorded, and passes the
//! broker's frames on. `wake` wakes the agent when the broker asks for it. The threads share `State`. This room
//! knows neither the command line nor the transports of the broker.

mod broker_frame;
mod broker_side;
mod client_side;
pub mod dial;
mod identity;
mod lines;
pub mod log;
mod own_answers;
mod refusal;
mod replay;
mod requests;
mod shared;
mod splice;
mod stdio;
mod threads;
mod wake;

use std::{io::Read, os::unix::net::UnixStream, sync::Arc, time::Duration};

use actors::model::{Scope, ToolSet};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use broker_side::BrokerSide;
use client_side::ClientSide;
use dial::Dial;
use shared::{Lists, Shared, State};
use threads::spawn;

use api::mcp::tools;

pub use identity::{Identity, Naming};
pub use log::Log;
pub use own_answers::OfferedEra;
pub use stdio::Stdout;
pub use threads::STACK_LEN;
pub use wake::{Inbox, Pane, WakeMode, WakeOptions};

/// How a front serves its client.
pub struct Options {
    /// Who the client is, as far as the environment tells.
    pub identity: Identity,
    /// How the agent gets its name.
    pub naming: Naming,
    /// Which generations of MCP are offered.
    pub era: OfferedEra,
    /// Bytes of the longest frame of the client.
    pub frame_len_max: usize,
    /// How the agent is woken.
    pub wake: WakeOptions,
    /// The broker is expected to have other lists than the front: with backends, or with another set of tools.
    pub expects_other_lists: bool,
    /// How long the first lists wait for a broker that is not of this user.
    pub list_wait: Option<Duration>,
    /// Handshakes wait for what the broker says of itself.
    pub awaits_introduction: bool,
    /// The log of all fronts.
    pub log: Log,
}

/// The tools that a broker of this version has for agents, whether it lists them or not.
pub fn own_tools() -> serde_json::Value {
    tools::list(true, false, Scope::Member, ToolSet::Full)
}

/// Serves the client until it ends, and ends the process.
///
/// # Errors
/// The system has no thread or no descriptor left.
pub fn run(options: Options, stdout: Stdout, dial: Arc<dyn Dial>) -> std::io::Result<std::convert::Infallible> {
    let state = State {
        name: match &options.naming {
            Naming::Given(name) => Some(name.clone()),
            Naming::ByAgent | Naming::Automatic => None,
        },
        identity: options.identity,
        naming: options.naming,
        wake: options.wake,
        lists: if options.expects_other_lists || options.list_wait.is_some() {
            Lists::Awaited
        } else {
            Lists::Own
        },
        awaits_introduction: options.awaits_introduction,
        ..State::default()
    };
    let shared = Arc::new(Shared::new(state, stdout, options.log));
    end_on_signals(&shared)?;
    let broker_side = BrokerSide::new(Arc::clone(&shared), dial);
    spawn("broker", move || broker_side.run())?;
    ClientSide::new(shared, options.era, options.frame_len_max, options.list_wait).run()
}

/// Ends the process at a signal, in the same way as when the client closes stdin.
fn end_on_signals(shared: &Arc<Shared>) -> std::io::Result<()> {
    let (mut caught, writer) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
    }
    let shared = Arc::clone(shared);
    spawn("signals", move || {
        // The writers live as long as the process.
        let _ = caught.read(&mut [0]);
        shared.end("a signal ends the front")
    })
}
