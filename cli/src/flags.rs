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

/// A flag with one of a few words, which the help names.
pub fn choice(name: &'static str, value: &'static str, words: &'static [&'static str], help: &'static str) -> Arg {
    text(name, value, "")
        .help(format!("{help}\n[allowed: {}]", words.join(", ")))
        .value_parser(PossibleValuesParser::new(words))
        .hide_possible_values(true)
}

/// A flag with a whole number that is not less than `least`.
pub fn number(name: &'static str, least: u32, help: &'static str) -> Arg {
    let parser = move |text: &str| {
        let rule = Integer(least..=u32::MAX);
        rule.parse(text).map_err(|_| rule.allowed())
    };
    text(name, "N", help).value_parser(parser)
}

/// The flag `--limit` of a list.
pub fn limit(most: u32, default: &'static str, help: &'static str) -> Arg {
    let parser = move |text: &str| {
        let rule = Integer(1..=most);
        rule.parse(text).map_err(|_| rule.allowed())
    };
    text("limit", "N", help).default_value(default).value_parser(parser)
}

/// The longest duration of a flag that has no bound of its own: ten years.
pub const DURATION_SECONDS_MAX: u64 = 3650 * 24 * 3600;

/// A flag with a duration in the syntax of the settings, as whole seconds, rounded up.
pub fn duration(name: &'static str, seconds: RangeInclusive<u64>, help: &'static str) -> Arg {
    let parser = move |text: &str| {
        let rule = Span(Duration::from_secs(*seconds.start())..=Duration::from_secs(*seconds.end()));
        let span = rule.parse(text).map_err(|_| rule.allowed())?;
        Ok::<u64, String>(span.as_secs() + u64::from(span.subsec_nanos() > 0))
    };
    text(name, "TIME", help).value_parser(parser)
}

/// The longest call of a tool, unless the user sets it: more than the longest wait of a tool.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(130);

/// The flag `--timeout` of a call of a tool.
pub fn call_timeout() -> Arg {
    duration("timeout", 1..=3600, "Longest wait for the answer, from 1s to 1h").default_value("130s")
}

/// The value of [`call_timeout`].
pub fn given_call_timeout(matches: &ArgMatches) -> Duration {
    let seconds = matches.get_one::<u64>("timeout").copied();
    seconds.map_or(CALL_TIMEOUT, Duration::from_secs)
}

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

/// The required argument `NAME`: a session.
pub fn session() -> Arg {
    Arg::new("session")
        .value_name("NAME")
        .required(true)
        .value_parser(id)
        .help("Name or id of the session")
}

/// The value of a flag with a text.
pub fn given(matches: &ArgMatches, name: &str) -> Option<String> {
    matches.get_one::<String>(name).cloned()
}

/// The value of a flag with a number.
pub fn given_number(matches: &ArgMatches, name: &str) -> Option<u32> {
    matches.get_one::<u32>(name).copied()
}
