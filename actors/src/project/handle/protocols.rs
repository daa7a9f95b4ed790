//! Protocols: register, find, negotiate.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use super::ProjectHandle;
use crate::{
    clock::now,
    model::{BrokerError, Pattern, ProtocolMetadata, ProtocolName, ProtocolRecord, SessionId},
    negotiate::{self, MatrixRow, Negotiation, RequiredProtocol},
    registry::{DiscoverPage, DiscoverQuery, Protocol, RegisterProtocol, RegisteredProtocol, Schema, builtin},
    session::Member,
};

/// A protocol to register.
pub struct ProtocolDefinition {
    /// Name and version identify the protocol in its project.
    pub name: ProtocolName,
    pub version: semver::Version,
    /// A JSON Schema for the payloads.
    pub schema: Value,
    /// The messaging patterns that the protocol is meant for.
    pub capabilities: BTreeSet<Pattern>,
    pub metadata: ProtocolMetadata,
    /// The session of the caller, if it has one.
    pub registered_by: Option<SessionId>,
}

impl ProjectHandle {
    /// Validates a definition and registers it. The identical definition is accepted again.
    ///
    /// # Errors
    /// `protocol_exists`, `invalid_schema`, `forbidden` when the project has its maximum of protocols and for the name of a
    /// built-in protocol, `unavailable`.
    pub async fn register_protocol(&self, definition: ProtocolDefinition) -> Result<RegisteredProtocol, BrokerError> {
        let ProtocolDefinition {
            name,
            version,
            schema,
            capabilities,
            metadata,
            registered_by,
        } = definition;
        if self.0.catalog.versions(name.as_str(), 1).is_empty() {
            builtin::check_register(name.as_str())?;
        }
        let registered_at_ms = now().unix_ms;
        let record = ProtocolRecord {
            name,
            version,
            schema,
            capabilities,
            metadata,
            registered_at_ms,
            registered_by,
        };
        if let Some(existing) = self.0.catalog.get(record.name.as_str(), &record.version.to_string()) {
            return RegisteredProtocol::existing(&existing.record, &record);
        }
        Schema::check_admits_objects(&record.schema)?;
        let protocol = self.0.compiler.compile(Arc::new(record)).await?;
        let len_max = self.record().config.max_protocols;
        let command = |reply| RegisterProtocol {
            protocol,
            len_max,
            reply,
        };
        self.0.registry.request(command).await
    }

    /// A registered or a built-in protocol.
    ///
    /// # Errors
    /// `protocol_not_found`, with the versions that there are.
    pub fn protocol(&self, name: &str, version: &str) -> Result<Arc<Protocol>, BrokerError> {
        let not_found = |versions| BrokerError::ProtocolNotFound {
            name: name.chars().take(80).collect(),
            version: version.chars().take(80).collect(),
            versions,
        };
        if let Some(found) = self.0.catalog.get(name, version) {
            return Ok(found);
        }
        let builtin = builtin::by_name(name);
        if let Some(found) = builtin.filter(|builtin| *builtin.version_text == *version) {
            return Ok(Arc::clone(found));
        }
        let mut versions = self.0.catalog.versions(name, BrokerError::VERSIONS_LEN_MAX);
        versions.extend(builtin.map(|builtin| builtin.version_text.to_string()));
        Err(not_found(versions))
    }

    /// A page of the registered protocols. A built-in one is found by its name alone.
    ///
    /// # Errors
    /// `invalid_argument` for a cursor or a filter that does not fit.
    pub fn discover_protocols(&self, query: &DiscoverQuery) -> Result<DiscoverPage, BrokerError> {
        let page = self.0.catalog.discover(query)?;
        let named = query.name.as_ref().and_then(|name| builtin::by_name(name.as_str()));
        let unregistered = named.filter(|_| page.protocols.is_empty());
        Ok(unregistered.map_or(page, |builtin| DiscoverPage::of_one(builtin, query)))
    }

    /// The number of registered protocol versions.
    pub fn protocols_len(&self) -> usize {
        self.0.catalog.len()
    }

    /// What two sessions can speak with each other, from the view of the first.
    pub fn negotiate(&self, ours: &Member, theirs: &Member, required: &[RequiredProtocol]) -> Negotiation {
        negotiate::negotiate(
            &ours.record.capabilities,
            &theirs.record.capabilities,
            required,
            &|name, from, to| self.0.catalog.lenses(name.as_str())?.plan(from, to),
        )
    }

    /// One row of `compatibility_matrix`.
    pub fn compare(&self, a: &Member, b: &Member) -> MatrixRow {
        let (a, b) = (&a.record, &b.record);
        negotiate::compare(a.id, &a.capabilities, b.id, &b.capabilities, &|name, from, to| {
            self.0.catalog.lenses(name.as_str())?.plan(from, to)
        })
    }

    /// Lenses of the protocols that both sessions declare: what comparing them looks at.
    pub fn lenses_between(&self, a: &Member, b: &Member) -> usize {
        let (a, b) = (
            &a.record.capabilities.supported_protocols,
            &b.record.capabilities.supported_protocols,
        );
        let shared = a.keys().filter(|name| b.contains_key(*name));
        let lenses = shared.filter_map(|name| self.0.catalog.lenses(name.as_str()));
        lenses.map(|lenses| lenses.registered().len()).sum()
    }
}
