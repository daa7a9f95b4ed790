//! Parsers and helps of flags and arguments that several commands share.

use std::ops::RangeInclusive;
use std::time::Duration;

use common::config::{Integer, Rule, Span};

/// The help of a flag with one of a few words, which it names.
pub fn one_of(words: &[&str], help: &str) -> String {
    format!("{help}\n[allowed: {}]", words.join(", "))
}

/// The parser of a whole number.
pub fn whole(range: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    move |text| {
        let rule = Integer(range.clone());
        rule.parse(text).map_err(|_| rule.allowed())
    }
}

/// The longest duration of a flag that has no bound of its own: ten years.
pub const DURATION_SECONDS_MAX: u64 = 3650 * 24 * 3600;

/// The parser of a duration in the syntax of the settings, as whole seconds, rounded up.
pub fn seconds(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let rule = Span(Duration::from_secs(*range.start())..=Duration::from_secs(*range.end()));
        let span = rule.parse(text).map_err(|_| rule.allowed())?;
        Ok(span.as_secs() + u64::from(span.subsec_nanos() > 0))
    }
}

/// The longest call of a tool, unless the user sets it: more than the longest wait of a tool.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(130);

/// Refuses ids that would change the path of the request. All other ids are checked by the broker.
///
/// # Errors
/// What an id is, for the text "allowed: ...".
pub fn id(text: &str) -> Result<String, String> {
    if text.bytes().all(|byte| byte == b'.') {
        return Err("an id".to_owned());
    }
    Ok(text.to_owned())
}
