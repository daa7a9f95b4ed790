//! Protocols and their lenses: reads definitions, the filters of a list and a payload to transform, and writes what callers see.

use std::collections::BTreeSet;

use actors::{
    clock::rfc3339_text,
    model::{BrokerError, LensRecord, Pattern, ProtocolMetadata, ProtocolName, ProtocolRecord, SessionId},
    project::{
        LensDefinition, ProjectHandle, ProtocolDefinition, Registrant, TransformRequest, TransformedPayload,
        VersionUsage,
    },
    registry::{self, DiscoverPage, LensOutcome},
};
use rest::{
    protocols::{
        DeliveredCopies, Lens, LensUsage, LensVerdict, Protocol, ProtocolMetadata as MetadataView, ProtocolUsage,
        RegisteredLens, RegisteredProtocol, SpeakingSessions, VersionUsage as VersionView,
    },
    word,
};
use semver::{Version, VersionReq};
use serde::Deserialize;
use serde_json::{Value, json};

use super::arguments::{Arguments, RequirementArgument, VersionArgument};
use crate::auth::Identity;
use common::json::{page::JsonPage, write_json};

/// Protocols of a page, unless the caller sets a limit.
pub const PAGE_LEN: usize = 100;
/// Largest number of protocols of a page.
pub const PAGE_LEN_MAX: usize = 1000;
/// Bytes of a schema as it is sent. The registry bounds it again without white space.
pub const SCHEMA_LEN_MAX: usize = 512 * 1024;
const METADATA_LEN_MAX: usize = 16 * 1024;
/// Bytes of the complement of an earlier transformation.
const COMPLEMENT_LEN_MAX: usize = 16 * 1024;

/// The metadata that a caller may set. Unlike the stored form, it refuses unknown members, which are mistakes.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Metadata {
    author: Option<String>,
    description: Option<String>,
    tags: BTreeSet<String>,
}

impl From<Metadata> for ProtocolMetadata {
    fn from(metadata: Metadata) -> Self {
        let Metadata {
            author,
            description,
            tags,
        } = metadata;
        Self {
            author,
            description,
            tags,
        }
    }
}

/// The protocol that the arguments define; it takes all of them.
///
/// # Errors
/// `InvalidArgument` for an argument that is missing, wrong or unknown.
pub fn parse_definition(
    mut arguments: Arguments<'_>,
    session: Option<SessionId>,
) -> Result<ProtocolDefinition, BrokerError> {
    let name = ProtocolName::parse(&arguments.required_text("name")?)?;
    let version = parse_version(&arguments.required_text("version")?)?;
    let schema = arguments
        .optional_within::<Value>("schema", SCHEMA_LEN_MAX)?
        .ok_or_else(|| BrokerError::invalid("schema", "required"))?;
    let capabilities = arguments
        .optional::<BTreeSet<Pattern>>("capabilities")?
        .unwrap_or_default();
    let metadata = arguments.optional_object::<Metadata>("metadata", METADATA_LEN_MAX)?;
    let from = arguments.text("from")?;
    let from = from.map(|text| parse_version_of("from", &text)).transpose()?;
    let lens = parse_lens(&mut arguments, from)?;
    let dry_run = arguments.optional("dry_run")?.unwrap_or(false);
    arguments.finish()?;
    Ok(ProtocolDefinition {
        name,
        version,
        schema,
        capabilities,
        metadata: metadata.unwrap_or_default().into(),
        by: Registrant {
            session,
            ..Registrant::default()
        },
        lens,
        dry_run,
    })
}

/// The lens into a version that the arguments define; it takes those about the lens.
///
/// # Errors
/// `InvalidArgument` for one that is missing or wrong.
fn parse_lens(arguments: &mut Arguments<'_>, from: Option<Version>) -> Result<Option<LensDefinition>, BrokerError> {
    let ops = arguments.optional::<Value>("lens")?;
    let direction = arguments.optional("direction")?;
    let allow_loss = arguments.optional("allow_loss")?;
    let replaces = arguments.optional("replace_lens")?;
    match (from, ops) {
        (Some(from), Some(ops)) => Ok(Some(LensDefinition {
            from,
            ops,
            direction: direction.unwrap_or_default(),
            allow_loss: allow_loss.unwrap_or(false),
            replaces: replaces.unwrap_or(false),
        })),
        (Some(_), None) => Err(BrokerError::invalid("lens", "comes together with from")),
        (None, Some(_)) => Err(BrokerError::invalid("from", "comes together with lens")),
        (None, None) => {
            let given = [
                ("direction", direction.is_some()),
                ("allow_loss", allow_loss.is_some()),
                ("replace_lens", replaces.is_some()),
            ];
            match given.into_iter().find(|(_, is_given)| *is_given) {
                Some((name, _)) => Err(BrokerError::invalid(name, "comes together with lens")),
                None => Ok(None),
            }
        }
    }
}

/// The lens from this version that the arguments define; it takes all of them.
///
/// # Errors
/// `InvalidArgument` for an argument that is missing, wrong or unknown.
pub fn parse_lens_from(mut arguments: Arguments<'_>, from: &str) -> Result<LensDefinition, BrokerError> {
    let lens = parse_lens(&mut arguments, Some(parse_version_of("from", from)?))?;
    arguments.finish()?;
    lens.ok_or_else(|| BrokerError::invalid("lens", "required"))
}

/// A registered protocol without its schema, as the caller sees it.
pub fn registered_view(registered: &registry::RegisteredProtocol, dry_run: bool) -> RegisteredProtocol {
    RegisteredProtocol {
        protocol: bare_view(&registered.record),
        existed: registered.is_duplicate,
        lens: registered.lens.as_ref().map(registered_lens_view),
        dry_run,
    }
}

/// A registered lens, as the caller sees it.
pub fn registered_lens_view(lens: &LensOutcome) -> RegisteredLens {
    RegisteredLens {
        lens: lens_view(&lens.record, false),
        existed: lens.is_duplicate,
    }
}

/// Parses the version of a protocol.
///
/// # Errors
/// `InvalidArgument` for a text that is no semantic version.
pub fn parse_version(text: &str) -> Result<Version, BrokerError> {
    parse_version_of("version", text)
}

/// As [`parse_version`], for an argument of this name.
///
/// # Errors
/// As [`parse_version`].
pub fn parse_version_of(field: &str, text: &str) -> Result<Version, BrokerError> {
    let VersionArgument(version) = text
        .parse()
        .map_err(|reason: String| BrokerError::invalid(field, reason))?;
    Ok(version)
}

/// Parses the version filter of a list.
///
/// # Errors
/// `InvalidArgument` for a text that is no version requirement.
pub fn parse_requirement(text: &str) -> Result<VersionReq, BrokerError> {
    let RequirementArgument(wanted) = text
        .parse()
        .map_err(|reason: String| BrokerError::invalid("version", reason))?;
    Ok(wanted)
}

/// The payload to transform; it takes all arguments. The payload has at most `payload_len_max` bytes.
///
/// # Errors
/// `InvalidArgument` for an argument that is missing, wrong or unknown; `PayloadTooLarge`.
pub fn parse_transform(
    protocol_name: &str,
    mut arguments: Arguments<'_>,
    payload_len_max: usize,
) -> Result<TransformRequest, BrokerError> {
    let from_version = arguments.required_text("from_version")?.into_owned();
    let to_version = arguments.required_text("to_version")?.into_owned();
    let payload = arguments.required_raw("payload")?;
    if payload.len() > payload_len_max {
        return Err(BrokerError::PayloadTooLarge { limit: payload_len_max });
    }
    let complement = arguments.raw_within("complement", COMPLEMENT_LEN_MAX)?;
    if complement.is_some_and(|text| !text.starts_with('{')) {
        return Err(BrokerError::invalid("complement", "must be an object"));
    }
    arguments.finish()?;
    Ok(TransformRequest {
        protocol_name: protocol_name.to_owned(),
        from_version,
        to_version,
        payload: payload.to_owned(),
        complement: complement.map(str::to_owned),
    })
}

/// Transforms a payload, and charges its work to the caller. Returns the answer as JSON text.
///
/// # Errors
/// Those of [`ProjectHandle::transform`].
pub async fn transform(by: &Identity, request: TransformRequest) -> Result<Vec<u8>, BrokerError> {
    let late = by.project.transform(request).await;
    by.charge_work(late.work);
    Ok(transformed_text(&late.result?))
}

/// The answer has the payload and the complement as the lenses have written them.
fn transformed_text(of: &TransformedPayload) -> Vec<u8> {
    let (transformed, versions) = (&of.transformed, of.plan.versions());
    let mut rest = json!({
        "from": versions[0],
        "to": versions[versions.len() - 1],
        "path": versions,
        "class": of.plan.describe().class,
        "loss": transformed.loss,
        "defaulted": transformed.defaulted,
    });
    if transformed.loss.more() || transformed.defaulted.more() {
        rest["more"] = json!(true);
    }
    let mut text = Vec::with_capacity(transformed.payload.len() + 512);
    text.extend_from_slice(b"{\"payload\":");
    text.extend_from_slice(transformed.payload.as_bytes());
    if let Some(complement) = &transformed.complement {
        text.extend_from_slice(b",\"complement\":");
        text.extend_from_slice(complement.as_bytes());
    }
    let at = text.len();
    write_json(&mut text, &rest);
    text[at] = b',';
    text
}

/// A page of protocols as JSON text.
pub fn page(project: &ProjectHandle, page: &DiscoverPage, with_schema: bool) -> Vec<u8> {
    let mut text = JsonPage::new("protocols");
    let ended = text.push_all(&page.protocols, |protocol| {
        protocol_view(project, &protocol.record, with_schema)
    });
    let next = ended.map(|last| last.cursor()).or_else(|| page.next_cursor.clone());
    text.finish(next)
}

/// A protocol with the lenses into its version, as callers see it.
pub fn protocol_view(project: &ProjectHandle, record: &ProtocolRecord, with_schema: bool) -> Protocol {
    let lenses = project.lenses(record.name.as_str());
    let lenses = lenses.iter().flat_map(|lenses| lenses.into_version(&record.version));
    Protocol {
        lenses: lenses.map(|lens| lens_view(&lens.record, with_schema)).collect(),
        schema: with_schema.then(|| record.schema.clone()),
        ..bare_view(record)
    }
}

/// A protocol without its schema and its lenses.
fn bare_view(record: &ProtocolRecord) -> Protocol {
    Protocol {
        name: record.name.to_string(),
        version: record.version.to_string(),
        capabilities: record.capabilities.iter().map(word).collect(),
        metadata: MetadataView {
            author: record.metadata.author.clone(),
            description: record.metadata.description.clone(),
            tags: record.metadata.tags.iter().cloned().collect(),
        },
        registered_at: rfc3339_text(record.registered_at_ms),
        registered_by: record.registered_by.map(|session| session.to_string()),
        schema: None,
        lenses: Vec::new(),
    }
}

fn lens_view(record: &LensRecord, with_ops: bool) -> Lens {
    // The verdicts are stored as they were answered.
    let verdict = |verdict: &Option<Value>| LensVerdict::deserialize(verdict.as_ref()?).ok();
    Lens {
        from: record.from.to_string(),
        to: record.to.to_string(),
        direction: word(record.direction),
        forward: verdict(&record.forward),
        backward: verdict(&record.backward),
        revision: record.revision,
        ops: with_ops.then(|| record.ops.clone()),
    }
}

/// Who speaks which version of a protocol, and in which versions messages were sent between two times.
///
/// # Errors
/// As [`ProjectHandle::protocol_usage`].
pub async fn usage(
    project: &ProjectHandle,
    name: &ProtocolName,
    since_ms: u64,
    until_ms: u64,
) -> Result<ProtocolUsage, BrokerError> {
    let usage = project.protocol_usage(name, since_ms, until_ms).await?;
    Ok(ProtocolUsage {
        name: name.to_string(),
        since: rfc3339_text(usage.since_ms),
        until: rfc3339_text(until_ms),
        complete: usage.is_complete,
        versions: usage.versions.iter().map(version_view).collect(),
    })
}

fn version_view(version: &VersionUsage) -> VersionView {
    let record = &version.protocol.record;
    VersionView {
        version: record.version.to_string(),
        registered_at: rfc3339_text(record.registered_at_ms),
        lenses: version.lenses.iter().map(lens_usage).collect(),
        sessions: SpeakingSessions {
            active: version.active,
            kept: version.kept,
            only: version.only,
        },
        sent: version.sent,
        delivered: DeliveredCopies {
            as_sent: version.as_sent,
            transformed: version.transformed,
        },
        retirable: version.is_retirable,
    }
}

fn lens_usage(lens: &registry::RegisteredLens) -> LensUsage {
    let class = |verdict: &Option<Value>| Some(verdict.as_ref()?["class"].as_str()?.to_owned());
    LensUsage {
        from: lens.record.from.to_string(),
        forward: class(&lens.record.forward),
        backward: class(&lens.record.backward),
    }
}
