//! What a console is run with.

use super::feed::{Caller, Place};
use super::model::Options;
use super::notify::Notifier;

/// A console to run.
#[derive(Debug)]
pub struct Console {
    pub place: Place,
    pub caller: Caller,
    pub options: Options,
    pub notifier: Notifier,
    pub is_plain: bool,
    pub editor: String,
    /// The type of the terminal, if the environment names one.
    pub term: Option<String>,
}
