//! The protocols of a project with their compiled schemas.
//!
//! The registry actor writes the catalog; every sender reads it, on any thread, for each message.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use semver::{BuildMetadata, Version, VersionReq};

use crate::{
    locked::RwLocked,
    model::{BrokerError, Pattern, ProtocolName, ProtocolRecord},
};

use super::{expected_lenses::ExpectedCount, lenses::Lenses, schema::Schema};

/// A registered protocol with its compiled schema.
#[derive(Debug)]
pub struct Protocol {
    pub record: Arc<ProtocolRecord>,
    pub schema: Schema,
    /// The version as it appears in the envelope of a message.
    pub version_text: Box<str>,
}

impl Protocol {
    /// Compiles the schema of a protocol. Takes up to 100 ms: use [`super::Compiler`] on a worker.
    ///
    /// # Errors
    /// `invalid_schema`, as [`Schema::compile`].
    pub fn compile(record: Arc<ProtocolRecord>) -> Result<Arc<Self>, BrokerError> {
        let schema = Schema::compile(&record.schema)?;
        let version_text = record.version.to_string().into();
        Ok(Arc::new(Self {
            record,
            schema,
            version_text,
        }))
    }

    /// The name of the protocol.
    #[must_use]
    pub fn name(&self) -> &str {
        self.record.name.as_str()
    }

    /// The cursor of a page that ends with this protocol.
    #[must_use]
    pub fn cursor(&self) -> String {
        cursor::encode(&self.record)
    }
}

/// The filters and the page of `discover_protocols`. A protocol must pass all filters that are present.
#[derive(Clone, Debug, Default)]
pub struct DiscoverQuery {
    pub name: Option<ProtocolName>,
    pub version: Option<VersionReq>,
    /// The protocol must have all of these tags.
    pub tags: BTreeSet<String>,
    pub capability: Option<Pattern>,
    /// The protocol must have this text, in lower case, in its name, its description, its author or a tag.
    pub text: Option<String>,
    /// Protocols per page; [`Catalog::PAGE_LEN`] by default.
    pub limit: Option<usize>,
    /// [`DiscoverPage::next_cursor`] of the page before.
    pub cursor: Option<String>,
}

impl DiscoverQuery {
    fn matches(&self, record: &ProtocolRecord) -> bool {
        let contains = |text: &String| {
            let metadata = &record.metadata;
            let words = [
                Some(record.name.as_str()),
                metadata.author.as_deref(),
                metadata.description.as_deref(),
            ];
            let words = words
                .into_iter()
                .flatten()
                .chain(metadata.tags.iter().map(String::as_str));
            words.into_iter().any(|word| word.to_lowercase().contains(text))
        };
        self.version
            .as_ref()
            .is_none_or(|wanted| wanted.matches(&record.version))
            && self.tags.is_subset(&record.metadata.tags)
            && self
                .capability
                .is_none_or(|wanted| record.capabilities.contains(&wanted))
            && self.text.as_ref().is_none_or(contains)
    }
}

/// Protocols ordered by name, then by version as semver orders them.
#[derive(Clone, Debug)]
pub struct DiscoverPage {
    pub protocols: Vec<Arc<Protocol>>,
    /// None on the last page.
    pub next_cursor: Option<String>,
}

impl DiscoverPage {
    /// The only page of a query that looks at one protocol.
    #[must_use]
    pub fn of_one(protocol: &Arc<Protocol>, query: &DiscoverQuery) -> Self {
        let is_wanted = query.cursor.is_none() && query.matches(&protocol.record);
        Self {
            protocols: is_wanted.then(|| Arc::clone(protocol)).into_iter().collect(),
            next_cursor: None,
        }
    }
}

/// A handle on the protocols of one project; clones share them.
///
/// Versions that differ only in build metadata are the same version (semver 2.0.0, section 10): the second is refused
/// as a duplicate, and either spelling finds the first.
#[derive(Clone, Debug)]
pub struct Catalog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Bytes of a payload, also of one that lenses have made.
    payload_len_max: usize,
    index: RwLocked<CatalogIndex>,
    /// Some protocol has lenses, or is about to. Projects without lenses pay one branch for each message.
    has_lenses: AtomicBool,
    lens_changes: AtomicU64,
    expected_lenses: ExpectedCount,
}

#[derive(Debug, Default)]
struct CatalogIndex {
    /// By name, then by the text of the version without build metadata, which is what a message names.
    by_name: HashMap<ProtocolName, HashMap<Box<str>, Arc<Protocol>>>,
    ordered: BTreeMap<(ProtocolName, Version), Arc<Protocol>>,
    /// The lenses of each protocol that has some.
    lenses: HashMap<ProtocolName, Arc<Lenses>>,
    /// Approximate bytes of the compiled schemas and lenses.
    bytes_len: usize,
}

impl Default for Catalog {
    /// With payloads of any length.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl Catalog {
    /// Without protocols, for payloads of at most so many bytes.
    #[must_use]
    pub fn new(payload_len_max: usize) -> Self {
        Self(Arc::new(Shared {
            payload_len_max,
            index: RwLocked::default(),
            has_lenses: AtomicBool::default(),
            lens_changes: AtomicU64::default(),
            expected_lenses: ExpectedCount::default(),
        }))
    }

    /// Bytes of a payload, also of one that lenses have made.
    #[must_use]
    pub fn payload_len_max(&self) -> usize {
        self.0.payload_len_max
    }

    /// The default number of protocols in a page.
    pub const PAGE_LEN: usize = 100;
    /// The largest number of protocols in a page.
    pub const PAGE_LEN_MAX: usize = 1000;

    /// Adds a protocol that the store has accepted, unless the catalog has one with this name and version. Returns the
    /// one in the catalog.
    pub fn insert(&self, protocol: Arc<Protocol>) -> Arc<Protocol> {
        let record = Arc::clone(&protocol.record);
        let mut shelves = self.0.index.write();
        let versions = shelves.by_name.entry(record.name.clone()).or_default();
        let text: Box<str> = precedence(&protocol.version_text).into();
        if let Some(there) = versions.get(&text) {
            return Arc::clone(there);
        }
        versions.insert(text, Arc::clone(&protocol));
        shelves.bytes_len += protocol.schema.bytes_len();
        shelves
            .ordered
            .insert((record.name.clone(), record.version.clone()), Arc::clone(&protocol));
        protocol
    }

    /// The versions of a protocol, newest first, at most `len_max`.
    #[must_use]
    pub fn versions(&self, name: &str, len_max: usize) -> Vec<String> {
        let Ok(name) = ProtocolName::parse(name) else {
            return Vec::new();
        };
        let shelves = self.0.index.read();
        let from = shelves.ordered.range((name.clone(), lowest_version())..);
        let mut versions: Vec<_> = from
            .take_while(|((own, _), _)| *own == name)
            .map(|(_, protocol)| protocol)
            .collect();
        versions.reverse();
        versions.truncate(len_max);
        versions
            .iter()
            .map(|protocol| protocol.version_text.to_string())
            .collect()
    }

    /// Finds a protocol with two hash lookups and no allocation.
    #[must_use]
    pub fn get(&self, name: &str, version: &str) -> Option<Arc<Protocol>> {
        let text = precedence(version);
        if version.len() > text.len() && BuildMetadata::new(&version[text.len() + 1..]).is_err() {
            return None;
        }
        self.0.index.read().by_name.get(name)?.get(text).cloned()
    }

    /// Another replica has changed lenses. Until the result is dropped, deliveries wait.
    pub(crate) fn expect_lenses(&self) -> ExpectedLenses {
        // The lock orders it among changes of the lenses.
        let index = self.0.index.write();
        self.0.expected_lenses.add();
        self.note_lenses(&index);
        ExpectedLenses(self.clone())
    }

    /// Waits until the announced changes of lenses are in the catalog. False if that takes too long.
    pub(crate) async fn until_lenses_are_read(&self) -> bool {
        self.0.expected_lenses.until_zero().await
    }

    /// Whether changes of lenses are announced that are not in the catalog.
    pub(crate) fn expects_lenses(&self) -> bool {
        !self.0.expected_lenses.is_zero()
    }

    /// Whether a protocol has lenses. One look-up, where some protocol has.
    #[must_use]
    pub fn has_lenses_of(&self, name: &str) -> bool {
        self.has_lenses() && self.0.index.read().lenses.contains_key(name)
    }

    fn note_lenses(&self, index: &CatalogIndex) {
        let has_lenses = !index.lenses.is_empty() || !self.0.expected_lenses.is_zero();
        self.0.has_lenses.store(has_lenses, Ordering::Relaxed);
    }

    /// Whether some protocol has lenses, or another replica has announced some.
    #[must_use]
    pub fn has_lenses(&self) -> bool {
        self.0.has_lenses.load(Ordering::Relaxed)
    }

    /// Changes of lenses so far. What was looked up after a number was read holds until it grows.
    pub(crate) fn lens_changes(&self) -> u64 {
        self.0.lens_changes.load(Ordering::Acquire)
    }

    /// The lenses of a protocol; None without any.
    #[must_use]
    pub fn lenses(&self, name: &str) -> Option<Arc<Lenses>> {
        if !self.has_lenses() {
            return None;
        }
        self.0.index.read().lenses.get(name).cloned()
    }

    /// Replaces the lenses of a protocol by these.
    pub fn set_lenses(&self, name: &ProtocolName, lenses: Lenses) {
        let mut index = self.0.index.write();
        let len = lenses.bytes_len();
        let before = if lenses.is_empty() {
            index.lenses.remove(name)
        } else {
            index.lenses.insert(name.clone(), Arc::new(lenses))
        };
        index.bytes_len = index
            .bytes_len
            .saturating_sub(before.map_or(0, |lenses| lenses.bytes_len()))
            + len;
        self.note_lenses(&index);
        self.0.lens_changes.fetch_add(1, Ordering::Release);
    }

    /// The protocols that have lenses.
    #[must_use]
    pub(super) fn names_with_lenses(&self) -> Vec<ProtocolName> {
        self.0.index.read().lenses.keys().cloned().collect()
    }

    /// The number of lenses.
    #[must_use]
    pub fn lenses_len(&self) -> usize {
        let index = self.0.index.read();
        index.lenses.values().map(|lenses| lenses.registered().len()).sum()
    }

    /// A page of protocols.
    ///
    /// # Errors
    /// `invalid_argument` for a `cursor` that no page returned, and for a `limit` outside of 1 to 1000.
    pub fn discover(&self, query: &DiscoverQuery) -> Result<DiscoverPage, BrokerError> {
        let limit = query.limit.unwrap_or(Self::PAGE_LEN);
        if !(1..=Self::PAGE_LEN_MAX).contains(&limit) {
            return Err(BrokerError::invalid("limit", format!("1 to {}", Self::PAGE_LEN_MAX)));
        }
        let start = match &query.cursor {
            Some(cursor) => Bound::Excluded(cursor::decode(cursor)?),
            None => query
                .name
                .clone()
                .map_or(Bound::Unbounded, |name| Bound::Included((name, lowest_version()))),
        };
        let wanted = |protocol: &&Arc<Protocol>| query.matches(&protocol.record);
        let shelves = self.0.index.read();
        let mut found = shelves
            .ordered
            .range((start, Bound::Unbounded))
            .map(|(_, protocol)| protocol)
            .skip_while(|protocol| query.name.as_ref().is_some_and(|name| protocol.record.name < *name))
            .take_while(|protocol| query.name.as_ref().is_none_or(|name| protocol.record.name == *name))
            .filter(wanted);
        let protocols: Vec<_> = found.by_ref().take(limit).cloned().collect();
        let more = found.next().is_some();
        let last = protocols.last().filter(|_| more);
        Ok(DiscoverPage {
            next_cursor: last.map(|last| last.cursor()),
            protocols,
        })
    }

    /// The number of protocols.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.index.read().ordered.len()
    }

    /// True if the project has no protocol.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Approximate bytes of the compiled schemas and lenses.
    #[must_use]
    pub fn bytes_len(&self) -> usize {
        self.0.index.read().bytes_len
    }
}

/// A change of lenses that is announced. Dropped once the catalog has it, or the store cannot be read.
#[derive(Debug)]
pub(crate) struct ExpectedLenses(Catalog);

impl Drop for ExpectedLenses {
    fn drop(&mut self) {
        let index = self.0.0.index.write();
        self.0.0.expected_lenses.remove();
        self.0.note_lenses(&index);
    }
}

/// The version without build metadata, which does not take part in precedence.
fn precedence(version: &str) -> &str {
    version.split_once('+').map_or(version, |(text, _)| text)
}

/// Lower than every other version.
fn lowest_version() -> Version {
    Version {
        pre: semver::Prerelease::new("0").unwrap_or_default(),
        ..Version::new(0, 0, 0)
    }
}

/// Encodes `name version` in hexadecimal: opaque to clients, and only letters and digits.
mod cursor {
    use semver::Version;

    use crate::model::{BrokerError, ProtocolName, ProtocolRecord};

    /// The cursor after a protocol.
    pub fn encode(record: &ProtocolRecord) -> String {
        let text = format!("{} {}", record.name, record.version);
        let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or_default();
        text.bytes()
            .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
            .collect()
    }

    /// The name and version in a cursor.
    ///
    /// # Errors
    /// `invalid_argument` if the text is not a cursor.
    pub fn decode(text: &str) -> Result<(ProtocolName, Version), BrokerError> {
        parse(text).ok_or_else(|| BrokerError::invalid("cursor", "not a cursor of discover_protocols"))
    }

    fn parse(text: &str) -> Option<(ProtocolName, Version)> {
        let digits: Vec<u8> = text
            .chars()
            .map(|c| c.to_digit(16).map(|digit| digit as u8))
            .collect::<Option<_>>()?;
        let bytes = digits.chunks(2).map(|pair| match pair {
            [high, low] => Some(high << 4 | low),
            _ => None,
        });
        let text = String::from_utf8(bytes.collect::<Option<_>>()?).ok()?;
        let (name, version) = text.split_once(' ')?;
        Some((ProtocolName::parse(name).ok()?, Version::parse(version).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{model::ProtocolMetadata, registry::fixtures};

    fn record(name: &str, version: &str, tags: &[&str]) -> ProtocolRecord {
        ProtocolRecord {
            capabilities: BTreeSet::from([Pattern::Broadcast]),
            metadata: ProtocolMetadata {
                tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
                ..ProtocolMetadata::default()
            },
            ..fixtures::protocol_record(name, version, json!({"type": "object"}))
        }
    }

    fn catalog(records: &[(&str, &str)]) -> Catalog {
        let catalog = Catalog::default();
        for (name, version) in records {
            insert(&catalog, record(name, version, &[]));
        }
        catalog
    }

    fn insert(catalog: &Catalog, record: ProtocolRecord) -> Arc<Protocol> {
        catalog.insert(Protocol::compile(Arc::new(record)).unwrap())
    }

    fn found(page: &DiscoverPage) -> Vec<String> {
        let text = |protocol: &Arc<Protocol>| format!("{} {}", protocol.name(), protocol.version_text);
        page.protocols.iter().map(text).collect()
    }

    fn name(text: &str) -> Option<ProtocolName> {
        ProtocolName::parse(text).ok()
    }

    #[test]
    fn a_protocol_is_found_by_name_and_version_and_inserted_once() {
        let catalog = catalog(&[("chat", "1.0.0"), ("chat", "1.1.0"), ("call", "1.0.0")]);
        assert_eq!(&*catalog.get("chat", "1.1.0").unwrap().version_text, "1.1.0");
        assert!(catalog.get("chat", "2.0.0").is_none() && catalog.get("unknown", "1.0.0").is_none());
        let len = catalog.bytes_len();
        let one_len = catalog.get("chat", "1.0.0").unwrap().schema.bytes_len();
        assert_eq!(len, 3 * one_len, "each takes as much as the others");
        assert!(one_len > 0 && !catalog.is_empty() && Catalog::default().is_empty());
        let there = insert(&catalog, record("chat", "1.0.0", &["other"]));
        assert!(there.record.metadata.tags.is_empty(), "the first one stays");
        assert_eq!((catalog.len(), catalog.bytes_len()), (3, len));
        assert_eq!(catalog.versions("chat", 10), ["1.1.0", "1.0.0"]);
        assert_eq!(catalog.versions("chat", 1), ["1.1.0"]);
        assert!(catalog.versions("unknown", 10).is_empty());
    }

    #[test]
    fn build_metadata_makes_no_version_of_its_own() {
        let catalog = catalog(&[("chat", "1.0.0+a")]);
        assert_eq!(
            &*insert(&catalog, record("chat", "1.0.0+b", &[])).version_text,
            "1.0.0+a"
        );
        for spelling in ["1.0.0", "1.0.0+a", "1.0.0+b"] {
            assert_eq!(&*catalog.get("chat", spelling).unwrap().version_text, "1.0.0+a");
        }
        assert!(catalog.get("chat", "1.0.0+").is_some() == BuildMetadata::new("").is_ok());
        assert!(catalog.get("chat", "1.0.0+no good").is_none());
    }

    #[test]
    fn discovery_orders_by_name_then_as_semver_does() {
        let catalog = catalog(&[
            ("chat", "1.10.0"),
            ("chat", "1.9.0"),
            ("chat", "1.10.0-rc.1"),
            ("call", "3.0.0"),
        ]);
        let all = catalog.discover(&DiscoverQuery::default()).unwrap();
        assert_eq!(
            found(&all),
            ["call 3.0.0", "chat 1.9.0", "chat 1.10.0-rc.1", "chat 1.10.0"]
        );
        assert_eq!(all.next_cursor, None);
    }

    #[test]
    fn discovery_applies_all_given_filters() {
        let catalog = catalog(&[
            ("chat", "1.0.0"),
            ("chat", "2.0.0"),
            ("chatter", "1.0.0"),
            ("aa", "1.0.0"),
        ]);
        insert(&catalog, record("chat", "1.5.0", &["x", "y"]));
        let ask = |query: DiscoverQuery| found(&catalog.discover(&query).unwrap());
        let chat = DiscoverQuery {
            name: name("chat"),
            ..DiscoverQuery::default()
        };
        assert_eq!(ask(chat.clone()), ["chat 1.0.0", "chat 1.5.0", "chat 2.0.0"]);
        let one = DiscoverQuery {
            version: VersionReq::parse("^1.1").ok(),
            ..chat.clone()
        };
        assert_eq!(ask(one), ["chat 1.5.0"]);
        let tags = |tags: &[&str]| DiscoverQuery {
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..DiscoverQuery::default()
        };
        assert_eq!(ask(tags(&["y", "x"])), ["chat 1.5.0"]);
        assert_eq!(ask(tags(&["x", "z"])), [""; 0]);
        let streaming = DiscoverQuery {
            capability: Some(Pattern::Streaming),
            ..chat
        };
        assert_eq!(ask(streaming), [""; 0]);
    }

    #[test]
    fn pages_follow_one_another_without_gap_or_repeat() {
        let versions: Vec<String> = (0..25).map(|minor| format!("1.{minor}.0")).collect();
        let records: Vec<_> = versions.iter().map(|version| ("chat", version.as_str())).collect();
        let catalog = catalog(&records);
        let mut query = DiscoverQuery {
            limit: Some(10),
            name: name("chat"),
            ..DiscoverQuery::default()
        };
        let mut seen = Vec::new();
        loop {
            let page = catalog.discover(&query).unwrap();
            seen.extend(found(&page));
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                break;
            }
        }
        assert_eq!(
            seen,
            records.iter().map(|(n, v)| format!("{n} {v}")).collect::<Vec<_>>()
        );
    }

    #[test]
    fn an_invalid_cursor_is_refused() {
        let catalog = catalog(&[("call", "1.0.0"), ("chat", "1.0.0")]);
        let hex = |text: &str| {
            let digits = text.bytes().map(|byte| format!("{byte:02x}"));
            digits.collect::<Vec<_>>().concat()
        };
        for cursor in ["", "zz", "6", "é", "ff", &hex("chat"), &hex("chat 1"), &hex("X 1.0.0")] {
            let query = DiscoverQuery {
                cursor: Some(cursor.to_owned()),
                ..DiscoverQuery::default()
            };
            let error = catalog.discover(&query).unwrap_err();
            assert!(matches!(error, BrokerError::InvalidArgument { field, .. } if field == "cursor"));
        }
        for limit in [0, 1001] {
            let query = DiscoverQuery {
                limit: Some(limit),
                ..DiscoverQuery::default()
            };
            assert_eq!(catalog.discover(&query).unwrap_err().code(), "invalid_argument");
        }
        // A cursor of another name neither skips nor adds a protocol.
        let query = DiscoverQuery {
            name: name("chat"),
            cursor: Some(hex("aa 9.0.0")),
            ..DiscoverQuery::default()
        };
        assert_eq!(found(&catalog.discover(&query).unwrap()), ["chat 1.0.0"]);
    }
}
