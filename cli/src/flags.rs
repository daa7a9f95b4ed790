//! Constructors of flags and arguments that several commands share.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches};

use common::config::{Integer, Rule, Span};

/// A flag with a text.
pub fn text(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// A flag without a value.
pub fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// A flag that may be repeated, and takes several values separated by commas.
pub fn many(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    text(name, value, help).action(ArgAction::Append).value_delimiter(',')
}

/// The help of a flag with one of a few words, which it names.
pub fn one_of(words: &[&str], help: &str) -> String {
    format!("{help}\n[allowed: {}]", words.join(", "))
}

/// A flag with one of a few words, which the help names.
pub fn choice(name: &'static str, value: &'static str, words: &'static [&'static str], help: &'static str) -> Arg {
    text(name, value, "")
        .help(one_of(words, help))
        .value_parser(PossibleValuesParser::new(words))
        .hide_possible_values(true)
}

/// The parser of a whole number.
pub fn whole(range: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    move |text| {
        let rule = Integer(range.clone());
        rule.parse(text).map_err(|_| rule.allowed())
    }
}

/// A flag with a whole number that is not less than `least`.
pub fn number(name: &'static str, least: u32, help: &'static str) -> Arg {
    text(name, "N", help).value_parser(whole(least..=u32::MAX))
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

/// A flag with a duration.
pub fn duration(name: &'static str, range: RangeInclusive<u64>, help: &'static str) -> Arg {
    text(name, "TIME", help).value_parser(seconds(range))
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

/// The value of a flag with a text.
pub fn given(matches: &ArgMatches, name: &str) -> Option<String> {
    matches.get_one::<String>(name).cloned()
}
