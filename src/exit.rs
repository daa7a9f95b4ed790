//! How the process ends. Supervisors and scripts tell "mend the configuration" from "start it again" by these codes.

/// Something failed that no other code names.
pub const FAILED: u8 = 1;

/// The command line or the configuration is wrong: the same start fails again.
pub const USAGE: u8 = 2;

/// The broker gave up: its root failed too often. Starting it again may help.
pub const GAVE_UP: u8 = 70;
