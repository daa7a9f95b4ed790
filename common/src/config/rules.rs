//! The rules for values: each rule parses a text and describes the allowed values from the same bounds.

use std::fmt::{self, Display};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use actors::model::{KeyDigest, ToolSet};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

pub use super::span::{NotAllowed, Rule, Shape, Size, Span, hours, millis, seconds};

use super::kinds::{ClarifyBy, GatewayCommands, GatewayPrefix, LogFormat, RedisFallback, StorageKind};
use storage::redis::RedisSettings;

/// The shape of a rule, usable in a constant.
pub const fn shape<R: Rule>(_: &R) -> Shape {
    R::SHAPE
}

/// A whole number within bounds, both included.
pub struct Integer<T>(pub RangeInclusive<T>);

impl<T: FromStr + PartialOrd + Display> Rule for Integer<T> {
    type Value = T;
    const SHAPE: Shape = Shape::One("N");

    fn parse(&self, text: &str) -> Result<T, NotAllowed> {
        let number = text.parse().map_err(|_| NotAllowed)?;
        if self.0.contains(&number) {
            Ok(number)
        } else {
            Err(NotAllowed)
        }
    }

    fn allowed(&self) -> String {
        format!("a whole number from {} to {}", self.0.start(), self.0.end())
    }
}

/// What separates the parts of a name: one to three characters that every client allows in names.
pub struct Separator;

impl Rule for Separator {
    type Value = String;
    const SHAPE: Shape = Shape::One("TEXT");

    fn parse(&self, text: &str) -> Result<String, NotAllowed> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if (1..=3).contains(&text.len()) && text.chars().all(is_allowed) {
            Ok(text.to_owned())
        } else {
            Err(NotAllowed)
        }
    }

    fn allowed(&self) -> String {
        "one to three of A-Z, a-z, 0-9, _ and -".to_owned()
    }
}

/// A count, or `auto` (`None`), which is resolved at the start.
pub struct AutoOr(pub RangeInclusive<usize>);

impl Rule for AutoOr {
    type Value = Option<NonZeroUsize>;
    const SHAPE: Shape = Shape::One("N");

    fn parse(&self, text: &str) -> Result<Self::Value, NotAllowed> {
        if text == "auto" {
            return Ok(None);
        }
        Integer(self.0.clone())
            .parse(text)
            .and_then(|n| NonZeroUsize::new(n).map(Some).ok_or(NotAllowed))
    }

    fn allowed(&self) -> String {
        format!("auto, or {}", Integer(self.0.clone()).allowed())
    }
}

/// A share: greater than 0, at most 1.
pub struct Ratio;

impl Rule for Ratio {
    type Value = f64;
    const SHAPE: Shape = Shape::One("RATIO");

    fn parse(&self, text: &str) -> Result<f64, NotAllowed> {
        let ratio: f64 = text.parse().map_err(|_| NotAllowed)?;
        if ratio > 0.0 && ratio <= 1.0 {
            Ok(ratio)
        } else {
            Err(NotAllowed)
        }
    }

    fn allowed(&self) -> String {
        "a number greater than 0 and at most 1".to_owned()
    }
}

/// One of a few words.
pub struct Choice<T: 'static>(pub &'static [(&'static str, T)]);

/// A type that [`Choice`] picks from.
pub trait Choosable: Copy {
    const SHAPE: Shape;
}

impl Choosable for bool {
    const SHAPE: Shape = Shape::Switch;
}

impl Choosable for StorageKind {
    const SHAPE: Shape = Shape::One("KIND");
}

impl Choosable for RedisFallback {
    const SHAPE: Shape = Shape::One("KIND");
}

impl Choosable for ClarifyBy {
    const SHAPE: Shape = Shape::One("WAYS");
}

impl Choosable for ToolSet {
    const SHAPE: Shape = Shape::One("SET");
}

impl Choosable for GatewayCommands {
    const SHAPE: Shape = Shape::One("WHO");
}

impl Choosable for GatewayPrefix {
    const SHAPE: Shape = Shape::One("RULE");
}

impl Choosable for LogFormat {
    const SHAPE: Shape = Shape::One("FORMAT");
}

impl<T: Choosable> Rule for Choice<T> {
    type Value = T;
    const SHAPE: Shape = T::SHAPE;

    fn parse(&self, text: &str) -> Result<T, NotAllowed> {
        let found = self.0.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| *value).ok_or(NotAllowed)
    }

    fn allowed(&self) -> String {
        let words: Vec<_> = self.0.iter().map(|(word, _)| *word).collect();
        words.join(", ")
    }
}

/// A port, or none.
pub struct OptionalPort;

impl Rule for OptionalPort {
    type Value = Option<u16>;
    const SHAPE: Shape = Shape::One("N");

    fn parse(&self, text: &str) -> Result<Self::Value, NotAllowed> {
        match text {
            "" | "off" => Ok(None),
            _ => text.parse().map(Some).map_err(|_| NotAllowed),
        }
    }

    fn allowed(&self) -> String {
        Integer(0..=u16::MAX).allowed()
    }
}

/// An IP address to listen on; `localhost` is 127.0.0.1.
pub struct Address;

impl Rule for Address {
    type Value = IpAddr;
    const SHAPE: Shape = Shape::One("IP");

    fn parse(&self, text: &str) -> Result<IpAddr, NotAllowed> {
        let text = if text == "localhost" {
            "127.0.0.1"
        } else {
            unbracketed(text)
        };
        text.parse().map_err(|_| NotAllowed)
    }

    fn allowed(&self) -> String {
        "an IPv4 or IPv6 address, or localhost".to_owned()
    }
}

fn unbracketed(text: &str) -> &str {
    text.strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text)
}

/// Host names without port, in lower case; IPv6 addresses without brackets.
pub struct Names;

impl Rule for Names {
    type Value = Vec<String>;
    const SHAPE: Shape = Shape::Many("NAMES");

    fn parse(&self, text: &str) -> Result<Self::Value, NotAllowed> {
        parse_list(text, |item| {
            let name = unbracketed(item);
            (name == "*" || is_host(name)).then(|| name.to_owned())
        })
    }

    fn allowed(&self) -> String {
        "host names or IP addresses without port, separated by commas, or *".to_owned()
    }
}

/// Web origins in lower case, as a browser sends them: scheme, host, and the port unless it is the usual one.
pub struct Origins;

impl Rule for Origins {
    type Value = Vec<String>;
    const SHAPE: Shape = Shape::Many("ORIGINS");

    fn parse(&self, text: &str) -> Result<Self::Value, NotAllowed> {
        parse_list(text, |item| (item == "*" || is_origin(item)).then(|| item.to_owned()))
    }

    fn allowed(&self) -> String {
        "origins such as https://ops.example.com or http://localhost:3000, separated by commas, or *".to_owned()
    }
}

/// Items in lower case without spaces around them. The empty text is the empty list.
fn parse_list(text: &str, item: impl Fn(&str) -> Option<String>) -> Result<Vec<String>, NotAllowed> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    text.to_ascii_lowercase()
        .split(',')
        .map(|part| item(part.trim()).ok_or(NotAllowed))
        .collect()
}

fn is_host(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && label.len() <= 63 && label.bytes().all(is_inner)
    };
    name.parse::<IpAddr>().is_ok() || name.split('.').all(is_label)
}

fn is_origin(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (rest, None),
    };
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(is_scheme)
        && is_host(unbracketed(host))
        && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// An admin key, kept as its digest.
pub struct AdminKey;

impl Rule for AdminKey {
    type Value = Option<KeyDigest>;
    const SHAPE: Shape = Shape::One("KEY");

    fn parse(&self, text: &str) -> Result<Self::Value, NotAllowed> {
        let is_key = (16..=256).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        match text {
            "" => Ok(None),
            _ if is_key => Ok(Some(KeyDigest::of_key(text))),
            _ => Err(NotAllowed),
        }
    }

    fn allowed(&self) -> String {
        "16 to 256 visible ASCII characters without spaces, such as mcp-broker keygen prints".to_owned()
    }
}

/// The path of a file.
pub struct FilePath;

impl Rule for FilePath {
    type Value = Option<PathBuf>;
    const SHAPE: Shape = Shape::One("FILE");

    fn parse(&self, text: &str) -> Result<Self::Value, NotAllowed> {
        Ok((!text.is_empty()).then(|| text.into()))
    }

    fn allowed(&self) -> String {
        "the path of a file".to_owned()
    }
}

/// The path of a folder.
pub struct Folder;

impl Rule for Folder {
    type Value = PathBuf;
    const SHAPE: Shape = Shape::One("FOLDER");

    fn parse(&self, text: &str) -> Result<Self::Value, NotAllowed> {
        if text.is_empty() {
            return Err(NotAllowed);
        }
        Ok(text.into())
    }

    fn allowed(&self) -> String {
        "the path of a folder".to_owned()
    }
}

/// The URL of Redis, which may contain a password; `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

impl RedisUrl {
    /// The URL in clear text, with its password.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same URL with this password; None for a URL that has one.
    pub fn with_password(&self, password: &str) -> Option<Self> {
        let (scheme, rest) = self.0.split_once("://")?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (user, hosts) = rest[..end].rsplit_once('@').unwrap_or(("", &rest[..end]));
        let password = utf8_percent_encode(password, NON_ALPHANUMERIC);
        (!user.contains(':')).then(|| Self(format!("{scheme}://{user}:{password}@{hosts}{}", &rest[end..])))
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisUrl(***)")
    }
}

/// A URL of Redis.
pub struct RedisAddress;

impl Rule for RedisAddress {
    type Value = RedisUrl;
    const SHAPE: Shape = Shape::One("URL");

    fn parse(&self, text: &str) -> Result<Self::Value, NotAllowed> {
        RedisSettings::new(text)
            .check()
            .map(|()| RedisUrl(text.to_owned()))
            .map_err(|_| NotAllowed)
    }

    fn allowed(&self) -> String {
        "a URL such as redis://cache:6379, rediss://, redis+cluster:// or redis+sentinel://".to_owned()
    }
}

/// The address of a program, with its port.
pub struct ReplicaAddress;

impl Rule for ReplicaAddress {
    type Value = Option<SocketAddr>;
    const SHAPE: Shape = Shape::One("IP:PORT");

    fn parse(&self, text: &str) -> Result<Self::Value, NotAllowed> {
        let reachable = |address: &SocketAddr| !address.ip().is_unspecified() && address.port() != 0;
        match text {
            "" => Ok(None),
            _ => text.parse().ok().filter(reachable).map(Some).ok_or(NotAllowed),
        }
    }

    fn allowed(&self) -> String {
        "an address with its port, such as 10.1.2.3:8000 or [fd00::1]:8000".to_owned()
    }
}

/// A text without spaces: a name, a path or a URL.
pub struct Word;

impl Rule for Word {
    type Value = Option<String>;
    const SHAPE: Shape = Shape::One("TEXT");

    fn parse(&self, text: &str) -> Result<Self::Value, NotAllowed> {
        let is_word = |text: &str| text.len() <= 2048 && !text.chars().any(|c| c.is_control() || c.is_whitespace());
        match text {
            "" => Ok(None),
            _ if is_word(text) => Ok(Some(text.to_owned())),
            _ => Err(NotAllowed),
        }
    }

    fn allowed(&self) -> String {
        "a text without spaces".to_owned()
    }
}

/// A level, or directives of tracing's `EnvFilter`.
pub struct LogFilter;

impl Rule for LogFilter {
    type Value = String;
    const SHAPE: Shape = Shape::One("LEVEL");

    /// `EnvFilter` takes a misspelled level for a module name and then logs almost nothing, so a part without `=` must
    /// be a level here.
    fn parse(&self, text: &str) -> Result<String, NotAllowed> {
        let is_part =
            |part: &str| part.contains('=') || part.trim().parse::<LevelFilter>().is_ok_and(|_| is_word(part));
        let is_filter = text.split(',').all(is_part) && EnvFilter::builder().parse(text).is_ok();
        is_filter.then(|| text.to_owned()).ok_or(NotAllowed)
    }

    fn allowed(&self) -> String {
        "error, warn, info, debug, trace, off, or a filter such as info,mcp_broker::http=debug".to_owned()
    }
}

/// Checks a filter of the log.
///
/// # Errors
/// What is allowed, if this is no filter.
pub fn check_log_filter(text: &str) -> Result<(), String> {
    LogFilter.parse(text).map(drop).map_err(|_| LogFilter.allowed())
}

/// Excludes numbers and the empty text, which `LevelFilter` would accept.
fn is_word(part: &str) -> bool {
    part.contains(|c: char| c.is_ascii_alphabetic())
}
