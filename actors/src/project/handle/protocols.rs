//! Protocols: register, find, negotiate.

use std::{collections::BTreeSet, sync::Arc};

use lens::Description;
use semver::Version;
use serde_json::Value;

use super::{
    ProjectHandle,
    lenses::{LensDefinition, PreparedLens, Registrant},
};
use crate::{
    clock::now,
    model::{BrokerError, Pattern, ProtocolMetadata, ProtocolName, ProtocolRecord},
    negotiate::{self, MatrixRow, Negotiation, RequiredProtocol},
    registry::{
        DiscoverPage, DiscoverQuery, Protocol, RegisterProtocol, RegisteredProtocol, Schema, builtin,
        check_schema_bytes, protocols_full,
    },
    session::Member,
};

/// A protocol to register.
pub struct ProtocolDefinition {
    /// Name and version identify the protocol in its project.
    pub name: ProtocolName,
    pub version: Version,
    /// A JSON Schema for the payloads.
    pub schema: Value,
    /// The messaging patterns that the protocol is meant for.
    pub capabilities: BTreeSet<Pattern>,
    pub metadata: ProtocolMetadata,
    pub by: Registrant,
    /// A lens from a lower version.
    pub lens: Option<LensDefinition>,
    /// Checks everything, and stores nothing.
    pub dry_run: bool,
}

impl ProjectHandle {
    /// Validates a definition and registers it, with its lens. The identical definition is accepted again.
    ///
    /// # Errors
    /// `protocol_exists`, `invalid_schema`, `forbidden` when the project has its maximum of protocols and for the name of a
    /// built-in protocol, `unavailable`; for a lens as [`Self::put_lens`].
    pub async fn register_protocol(&self, definition: ProtocolDefinition) -> Result<RegisteredProtocol, BrokerError> {
        let ProtocolDefinition {
            name,
            version,
            schema,
            capabilities,
            metadata,
            by,
            lens,
            dry_run,
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
            registered_by: by.session,
            owner: by.owner.clone(),
        };
        let record = Arc::new(record);
        if lens.is_some() {
            builtin::check_lens(record.name.as_str())?;
        }
        if lens.is_some() || dry_run {
            // A version that another replica has registered is not new.
            let (project, record) = (self.clone(), Arc::clone(&record));
            let known = self.look_up_optional(move || project.known_version(&record));
            known.answer().await?;
        }
        let (protocol, known) = if let Some(known) = self.known_version(&record) {
            let registered = RegisteredProtocol::existing(&known.record, &record)?;
            (known, Some(registered))
        } else {
            Schema::check_admits_objects(&record.schema)?;
            (self.0.compiler.compile(record).await?, None)
        };
        let prepared = match &lens {
            Some(lens) => Some(self.prepare_lens(&protocol, known.is_none(), lens, &by).await?),
            None => None,
        };
        if dry_run {
            let registered = known.map_or_else(|| self.would_register(&protocol), Ok)?;
            let lens = prepared.as_ref().map(PreparedLens::outcome);
            return Ok(RegisteredProtocol { lens, ..registered });
        }
        let registered = match known {
            Some(known) => known,
            None => self.register_new(&protocol).await?,
        };
        let Some((prepared, wanted)) = prepared.zip(lens) else {
            return Ok(registered);
        };
        if registered.is_duplicate {
            self.wait_until_current().await?;
            prepared.check_owner(&registered.record, &by)?;
        }
        let lens = self.store_lens(prepared, &protocol, true, &wanted, &by).await?;
        Ok(RegisteredProtocol {
            lens: Some(lens),
            ..registered
        })
    }

    fn known_version(&self, record: &ProtocolRecord) -> Option<Arc<Protocol>> {
        self.0.catalog.get(record.name.as_str(), &record.version.to_string())
    }

    async fn register_new(&self, protocol: &Arc<Protocol>) -> Result<RegisteredProtocol, BrokerError> {
        let protocol = Arc::clone(protocol);
        let len_max = self.record().config.max_protocols;
        let command = |reply| RegisterProtocol {
            protocol,
            len_max,
            reply,
        };
        self.0.registry.request(command).await
    }

    /// The answer of a registration that would store this protocol.
    fn would_register(&self, protocol: &Protocol) -> Result<RegisteredProtocol, BrokerError> {
        if let Some(len_max) = self.record().config.max_protocols
            && self.0.catalog.len() >= len_max
        {
            return Err(protocols_full(len_max));
        }
        check_schema_bytes(self.0.catalog.bytes_len(), protocol.schema.bytes_len())?;
        Ok(RegisteredProtocol::new(Arc::clone(&protocol.record)))
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
            &|name, from, to| self.describe_path(name, from, to),
        )
    }

    /// The version to which the best path of lenses leads, and what it does.
    fn describe_path(
        &self,
        name: &ProtocolName,
        from: &Version,
        to: &BTreeSet<Version>,
    ) -> Option<(Version, Description)> {
        let path = self.0.catalog.lenses(name.as_str())?.plan(from, to)?;
        Some((path.versions().last()?.clone(), path.describe()))
    }

    /// One row of `compatibility_matrix`.
    pub fn compare(&self, a: &Member, b: &Member) -> MatrixRow {
        let (a, b) = (&a.record, &b.record);
        negotiate::compare(a.id, &a.capabilities, b.id, &b.capabilities, &|name, from, to| {
            self.describe_path(name, from, to)
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
