//! The rules for what the desk calls outside the broker: URLs of HTTP, topics of ntfy, and the secret that signs.

use std::{fmt, ops::RangeInclusive};

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use ureq::http::Uri;

use super::rules::{NotAllowed, Rule, Shape};

/// A URL of HTTP that may hold a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct WebUrl(String);

impl WebUrl {
    /// Bytes of the longest URL.
    const LEN_MAX: usize = 2_048;

    fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok().filter(|_| text.len() <= Self::LEN_MAX)?;
        let authority = uri.authority()?.as_str();
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        (is_web && !uri.host()?.is_empty() && !authority.contains('@')).then(|| Self(text.to_owned()))
    }

    /// The URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host and the port.
    pub fn authority(&self) -> &str {
        let rest = self.0.split_once("://").map_or("", |(_, rest)| rest);
        rest.split(['/', '?', '#']).next().unwrap_or_default()
    }
}

impl fmt::Debug for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebUrl(…)")
    }
}

/// URLs of HTTP, at most so many.
pub struct WebUrls(pub usize);

impl Rule for WebUrls {
    type Value = Vec<WebUrl>;
    const SHAPE: Shape = Shape::Many("URLS");

    fn parse(&self, text: &str) -> Result<Self::Value, NotAllowed> {
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        let urls = text.split(',').map(|url| WebUrl::parse(url.trim()));
        let urls: Vec<_> = urls.collect::<Option<_>>().ok_or(NotAllowed)?;
        let is_repeated = |at: usize| urls[..at].contains(&urls[at]);
        if urls.len() > self.0 || (0..urls.len()).any(is_repeated) {
            return Err(NotAllowed);
        }
        Ok(urls)
    }

    fn allowed(&self) -> String {
        format!(
            "at most {} different URLs that begin with http:// or https://, without a user, separated by commas",
            self.0
        )
    }
}

/// A URL of HTTP, or none.
pub struct OptionalWebUrl;

impl Rule for OptionalWebUrl {
    type Value = Option<WebUrl>;
    const SHAPE: Shape = Shape::One("URL");

    fn parse(&self, text: &str) -> Result<Self::Value, NotAllowed> {
        match text {
            "" => Ok(None),
            _ => WebUrl::parse(text).map(Some).ok_or(NotAllowed),
        }
    }

    fn allowed(&self) -> String {
        "a URL that begins with http:// or https://, without a user".to_owned()
    }
}

/// A topic of ntfy: the server to which messages are published, and the name of the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NtfyTopic {
    /// The URL of the topic, by which it is known.
    pub url: WebUrl,
    /// Where messages are published as JSON: the URL without the name of the topic.
    pub server: WebUrl,
    pub topic: String,
}

impl NtfyTopic {
    fn parse(text: &str) -> Option<Self> {
        let url = WebUrl::parse(text)?;
        let uri: Uri = text.parse().ok()?;
        let topic = uri.path().strip_prefix('/')?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if topic.is_empty() || topic.len() > 64 || !topic.bytes().all(is_name) {
            return None;
        }
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let server = WebUrl(format!("{}://{}/{query}", uri.scheme_str()?, uri.authority()?));
        let topic = topic.to_owned();
        Some(Self { url, server, topic })
    }
}

/// A topic of ntfy, or none.
pub struct OptionalTopic;

impl Rule for OptionalTopic {
    type Value = Option<NtfyTopic>;
    const SHAPE: Shape = Shape::One("URL");

    fn parse(&self, text: &str) -> Result<Self::Value, NotAllowed> {
        match text {
            "" => Ok(None),
            _ => NtfyTopic::parse(text).map(Some).ok_or(NotAllowed),
        }
    }

    fn allowed(&self) -> String {
        "the URL of a topic such as https://ntfy.sh/my-topic".to_owned()
    }
}

/// The secret that signs webhooks and links, as Standard Webhooks writes it: `whsec_` and base64.
#[derive(Clone, PartialEq, Eq)]
pub struct DeskSecret(Vec<u8>);

impl DeskSecret {
    /// Bytes of a secret (Standard Webhooks, "Signature scheme").
    const LEN: RangeInclusive<usize> = 24..=64;

    /// The secret in this text.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text.strip_prefix("whsec_")?).ok()?;
        Self::LEN.contains(&bytes.len()).then_some(Self(bytes))
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A key for this purpose, which tells nothing of the secret or of another key.
    pub fn key_for(&self, purpose: &str) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).unwrap_or_else(|never| unreachable!("{never}"));
        mac.update(purpose.as_bytes());
        mac.finalize().into_bytes().into()
    }

    /// What a secret looks like.
    pub fn allowed() -> String {
        format!(
            "whsec_ and the base64 of {} to {} bytes",
            Self::LEN.start(),
            Self::LEN.end()
        )
    }
}

impl fmt::Debug for DeskSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeskSecret(…)")
    }
}
