//! Sessions: addresses, presence, takeover, and a broker that was frozen.

mod acting;
mod addresses;
mod frozen_broker;
mod presence;
mod takeovers;
