//! Exit codes. Supervisors and scripts tell from them whether to fix the configuration or to restart the process.

/// A failure without a code of its own.
pub const FAILED: u8 = 1;

/// The command line or the configuration is wrong: the same start would fail again.
pub const USAGE: u8 = 2;

/// What a command waited for did not happen in time.
pub const TIMED_OUT: u8 = 3;

/// What a command lists or changes does not exist, or is closed.
pub const NOTHING: u8 = 3;

/// Tools are not ready yet.
pub const NOT_YET: u8 = 10;

/// Tools are not ready until a person acts.
pub const NEEDS_PERSON: u8 = 11;

/// There are no such tools.
pub const UNKNOWN: u8 = 12;

/// A signal ended the command: this and its number, as shells count.
pub const SIGNALLED: u8 = 128;

/// The root actor failed too often. A restart may help.
pub const GAVE_UP: u8 = 70;

/// No broker runs.
pub const NOT_RUNNING: u8 = 3;

/// No broker runs, and a dead one has left files.
pub const REMAINS: u8 = 4;
