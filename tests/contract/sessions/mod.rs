//! Sessions: who acts as one, addresses, names that are still to come, presence, takeover, and a broker that was frozen.

mod acting;
mod addresses;
mod expected;
mod frozen_broker;
mod presence;
mod takeovers;
