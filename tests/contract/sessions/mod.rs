//! Sessions: presence, takeover, and a broker that was frozen.

mod frozen_broker;
mod presence;
mod takeovers;
