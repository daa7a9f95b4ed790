//! What a recipient gets of a message: as it was sent, or in a version that it declares, made by lenses. Pure decisions,
//! the transformation of one payload, and the forms that are kept for their next delivery.

mod form;
mod forms;

use std::sync::Arc;

use semver::Version;

pub use form::{Form, FormRequest};
pub use forms::FORMS;

use crate::{
    model::{Capabilities, Message, ProtocolName, TransformFailure, TransformReason, TransformRule},
    registry::{Catalog, LensPath, Lenses, builtin},
};

/// The feature of sessions that want to know what would restore a transformed payload.
const COMPLEMENT: &str = "complement";

/// How a message reaches a recipient.
#[derive(Clone, Debug)]
pub enum Speech {
    AsSent,
    /// In the version at the end of this path.
    By(Arc<LensPath>),
    /// A lens on the only way does not compile in this build.
    NotCompiled(Box<TransformFailure>),
    /// The recipient declares no version that it could be.
    Refused,
}

impl Speech {
    /// How a recipient with these capabilities gets a message of this version of a protocol. `lenses` are those of the
    /// protocol.
    #[must_use]
    pub fn of(
        (name, version): (&ProtocolName, &Version),
        capabilities: &Capabilities,
        lenses: Option<&Lenses>,
        rule: TransformRule,
    ) -> Self {
        if let Some(lenses) = lenses
            && rule != TransformRule::Never
            && let Some(declared) = capabilities.supported_protocols.get(name)
        {
            if declared.contains(version) {
                return Self::AsSent;
            }
            match lenses.plan(version, declared) {
                // It declares this version with other build metadata.
                Some(plan) if plan.versions().len() == 1 => return Self::AsSent,
                Some(plan) => return Self::By(plan),
                None => {}
            }
        }
        if capabilities.accepts(name, version) {
            return Self::AsSent;
        }
        let lenses = lenses.filter(|_| rule != TransformRule::Never);
        let declared = capabilities.supported_protocols.get(name);
        let broken = lenses.and_then(|lenses| lenses.broken_between(version, declared?));
        broken.map_or(Self::Refused, |(lens, to)| {
            Self::NotCompiled(Box::new(TransformFailure {
                from: version.clone(),
                to: to.clone(),
                reason: TransformReason::NotCompiled(Box::new([lens.from.clone(), lens.to.clone()])),
            }))
        })
    }
}

/// Whether a session with these capabilities gets complements.
#[must_use]
pub fn wants_complement(capabilities: &Capabilities) -> bool {
    capabilities.supported_features.contains(COMPLEMENT)
}

/// What is to be done with a message that is being delivered.
#[derive(Debug)]
pub enum Passage {
    AsSent,
    /// As it was sent, although the session cannot read it, as far as this replica knows.
    Unreadable,
    /// The form that was made for an earlier delivery, or when it was sent.
    Kept(Arc<Form>),
    Make(Arc<LensPath>),
    /// A lens that it needs does not compile in this build.
    Fails(Box<TransformFailure>),
}

impl Passage {
    /// What is to be done with a message that is being delivered, if this is its path.
    #[must_use]
    pub fn by(plan: Arc<LensPath>, wants_complement: bool, message: &Message) -> Self {
        if let Some(form) = FORMS.find(message.id, &plan, wants_complement) {
            return Self::Kept(form);
        }
        if message.transform_headers().transform == TransformRule::Never {
            return Self::AsSent;
        }
        Self::Make(plan)
    }

    /// The path of lenses by which a session with these capabilities reads a message, unless its sender excludes it.
    ///
    /// # Errors
    /// What is to be done without lenses. What the session could not read is delivered as it was sent: it was accepted when
    /// that was different.
    pub fn path(catalog: &Catalog, capabilities: &Capabilities, message: &Arc<Message>) -> Result<Arc<LensPath>, Self> {
        let protocol = message.protocol();
        let Some((name, version)) = protocol.filter(|_| !capabilities.supported_protocols.is_empty()) else {
            return Err(Self::AsSent);
        };
        let Some(protocol) = catalog.get(name, version) else {
            return Err(match builtin::by_name(name) {
                Some(_) => Self::AsSent,
                None => Self::Unreadable,
            });
        };
        let sent = (&protocol.record.name, &protocol.record.version);
        let lenses = catalog.lenses(name);
        match Speech::of(sent, capabilities, lenses.as_deref(), TransformRule::Any) {
            Speech::AsSent => Err(Self::AsSent),
            Speech::Refused => Err(Self::Unreadable),
            Speech::NotCompiled(failure) => Err(match message.transform_headers().transform {
                TransformRule::Never => Self::AsSent,
                _ => Self::Fails(failure),
            }),
            Speech::By(plan) => Ok(plan),
        }
    }
}
