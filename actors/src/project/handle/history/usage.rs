//! Who speaks which version of a protocol, and in which versions messages were sent and delivered.

use std::{collections::HashMap, sync::Arc};

use semver::Version;

use super::{
    ProjectHandle,
    scan::{COUNT_READ_MAX, COUNT_SCAN_MAX, LogScan, Span},
};
use crate::{
    clock::now,
    model::{
        AcceptedMessage, BrokerError, EventKind, EventKinds, MessageId, ProjectEvent, ProtocolName, SessionStatus,
    },
    registry::{DiscoverQuery, Lenses, Protocol, RegisteredLens},
    session::Member,
    storage::{Direction, EventQuery, EventStart, LoggedEvent},
};

/// Versions of one answer, the lowest first.
const VERSIONS_MAX: usize = 1000;

/// A version of a protocol, and who uses it.
#[derive(Debug)]
pub struct VersionUsage {
    pub protocol: Arc<Protocol>,
    /// The lenses from lower versions.
    pub lenses: Vec<RegisteredLens>,
    /// Sessions that declare it and are not disconnected.
    pub active: usize,
    /// Disconnected sessions that declare it and keep their name.
    pub kept: usize,
    /// Those of both whose highest version it is.
    pub only: usize,
    /// Messages that were accepted in this version.
    pub sent: u64,
    /// Copies of them that were delivered as they were sent.
    pub as_sent: u64,
    /// Copies of messages of other versions that were delivered in this one.
    pub transformed: u64,
    /// It is the highest version of no session, and all messages were counted and none had it.
    pub is_retirable: bool,
}

/// The versions of a protocol, the lowest first.
#[derive(Debug)]
pub struct ProtocolUsage {
    pub versions: Vec<VersionUsage>,
    /// Since when messages were counted, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// All versions are listed, and all messages of the time were counted.
    pub is_complete: bool,
}

/// What was counted so far.
struct Tally<'n> {
    name: &'n str,
    /// The places of the versions in the answer, by their text.
    places: HashMap<String, usize>,
    versions: Vec<VersionUsage>,
    /// Copies that were delivered. A walk backward meets them before the message itself.
    delivered: HashMap<MessageId, u64>,
    /// The versions of those of them that were transformed.
    transformed: HashMap<MessageId, Vec<Version>>,
}

impl ProjectHandle {
    /// Who speaks which version of a protocol, and in which versions messages were sent between two times.
    ///
    /// # Errors
    /// `protocol_not_found`, `unavailable`.
    pub async fn protocol_usage(
        &self,
        name: &ProtocolName,
        since_ms: u64,
        until_ms: u64,
    ) -> Result<ProtocolUsage, BrokerError> {
        let _permit = self.walk_permit().await;
        let wanted = name.clone();
        let found = self
            .look_up(move |project| project.versions_of(&wanted))
            .answer()
            .await?;
        let (protocols, all_versions) = found;
        let mut tally = Tally::new(self, name, protocols);
        let mut scan = LogScan::new(Span {
            from: EventStart::Newest,
            direction: Direction::Backward,
            until_ms: Some(until_ms),
            since_ms: Some(since_ms),
            kinds: EventKinds::of(&[EventKind::Accepted, EventKind::Delivered, EventKind::Transformed]),
            scan_max: COUNT_SCAN_MAX,
            read_max: COUNT_READ_MAX,
        });
        while let Some(events) = scan.next(self).await? {
            for event in events {
                tally.add(event);
            }
        }
        let has_counted = scan.rest().is_none() && self.keeps_events().await?;
        let (presence, now) = (self.presence_timeouts(), now());
        self.directory().for_each(|member| {
            if member.is_shown() {
                tally.add_session(name, member, member.status(presence, now));
            }
        });
        let mut versions = tally.versions;
        for version in &mut versions {
            version.is_retirable = has_counted && version.only == 0 && version.sent == 0;
        }
        Ok(ProtocolUsage {
            versions,
            since_ms: match scan.rest() {
                Some(_) => scan.oldest_ms().unwrap_or(until_ms),
                None => since_ms,
            },
            is_complete: has_counted && all_versions,
        })
    }

    /// The versions of a protocol, the lowest first, and whether they are all.
    fn versions_of(&self, name: &ProtocolName) -> Result<(Vec<Arc<Protocol>>, bool), BrokerError> {
        let query = DiscoverQuery {
            name: Some(name.clone()),
            limit: Some(VERSIONS_MAX),
            ..DiscoverQuery::default()
        };
        let page = self.discover_protocols(&query)?;
        if page.protocols.is_empty() {
            return Err(BrokerError::ProtocolNotFound {
                name: name.to_string(),
                version: "*".to_owned(),
                versions: Vec::new(),
            });
        }
        Ok((page.protocols, page.next_cursor.is_none()))
    }

    /// Whether the store keeps what happens: a log that does has a place behind its newest event.
    async fn keeps_events(&self) -> Result<bool, BrokerError> {
        let end = EventQuery {
            from: EventStart::Newest,
            direction: Direction::Forward,
            kinds: EventKinds::ALL,
            scan_max: 1,
            bytes_max: 1,
        };
        Ok(self.events(end).await?.next.is_some())
    }
}

/// The text of a version without build metadata, which names the same version.
fn text_of(version: &str) -> &str {
    version.split('+').next().unwrap_or(version)
}

impl<'n> Tally<'n> {
    fn new(project: &ProjectHandle, name: &'n ProtocolName, protocols: Vec<Arc<Protocol>>) -> Self {
        let lenses = project.0.catalog.lenses(name.as_str());
        let registered = lenses.as_deref().map_or(&[][..], Lenses::registered);
        let lenses_to = |to: &Version| {
            let lenses = registered
                .iter()
                .filter(|lens| lens.record.to.cmp_precedence(to).is_eq());
            lenses.cloned().collect()
        };
        let versions: Vec<_> = protocols
            .into_iter()
            .map(|protocol| VersionUsage {
                lenses: lenses_to(&protocol.record.version),
                protocol,
                active: 0,
                kept: 0,
                only: 0,
                sent: 0,
                as_sent: 0,
                transformed: 0,
                is_retirable: false,
            })
            .collect();
        let place = |(at, version): (usize, &VersionUsage)| (text_of(&version.protocol.version_text).to_owned(), at);
        Self {
            name: name.as_str(),
            places: versions.iter().enumerate().map(place).collect(),
            versions,
            delivered: HashMap::new(),
            transformed: HashMap::new(),
        }
    }

    fn version(&mut self, text: &str) -> Option<&mut VersionUsage> {
        self.places.get(text_of(text)).map(|at| &mut self.versions[*at])
    }

    fn add(&mut self, logged: LoggedEvent) {
        match logged.event {
            ProjectEvent::Delivered {
                message, delivery: 1, ..
            } => *self.delivered.entry(message).or_default() += 1,
            ProjectEvent::Transformed {
                message,
                delivery: 1,
                transformed,
                ..
            } => {
                if let Some(to) = &transformed.to {
                    self.transformed.entry(message).or_default().push(to.clone());
                }
            }
            ProjectEvent::Accepted(accepted) => {
                let delivered = self.delivered.remove(&accepted.message).unwrap_or_default();
                let transformed = self.transformed.remove(&accepted.message).unwrap_or_default();
                let Some(version) = self.version_of(&accepted) else {
                    return;
                };
                if let Some(version) = self.version(&version) {
                    version.sent += 1;
                    version.as_sent += delivered.saturating_sub(transformed.len() as u64);
                }
                for to in transformed {
                    if let Some(version) = self.version(&to.to_string()) {
                        version.transformed += 1;
                    }
                }
            }
            _ => {}
        }
    }

    /// The version of a message of this protocol.
    fn version_of(&self, accepted: &AcceptedMessage) -> Option<String> {
        // Parsing costs more than a search for the name, and most messages are of other protocols.
        if !accepted.head.contains(self.name) {
            return None;
        }
        let head = accepted.parse_head()?;
        (head.protocol_name == self.name).then_some(head.protocol_version)
    }

    fn add_session(&mut self, name: &ProtocolName, member: &Member, status: SessionStatus) {
        let is_away = status == SessionStatus::Disconnected;
        if is_away && member.record.name.is_none() {
            return;
        }
        let Some(declared) = member.record.capabilities.supported_protocols.get(name) else {
            return;
        };
        for version in declared {
            if let Some(version) = self.version(&version.to_string()) {
                *(if is_away {
                    &mut version.kept
                } else {
                    &mut version.active
                }) += 1;
            }
        }
        if let Some(version) = declared.last().and_then(|highest| self.version(&highest.to_string())) {
            version.only += 1;
        }
    }
}
