//! What lenses do to a message that is being sent: which recipients get it transformed, and the forms that they get.

use std::sync::Arc;

use lens::TransformError;

use super::{
    ProjectHandle,
    sending::{Attempt, SendRequest},
};
use crate::{
    clock::now,
    directory::{AudienceQuery, ByLenses, TransformedFor},
    model::{BrokerError, Complement, TransformFailure, TransformReason, TransformRule},
    registry::{LensPath, Protocol},
    router::Recipients,
    session::Member,
    speech::{Form, FormRequest, Speech, wants_complement},
};

/// Lenses that an error suggests.
const SUGGESTIONS_LEN_MAX: usize = 3;

impl ProjectHandle {
    /// The path of lenses by which a recipient of this project gets a message; None if it gets it as it is sent, or is
    /// not known.
    ///
    /// # Errors
    /// `incompatible_protocol` for a recipient that could not read it, `transform_failed` for one to which only a lens leads
    /// that does not compile. `is_own` says that the sender may know what the
    /// recipient declares.
    pub(super) fn path_to(
        &self,
        target: &Recipients,
        recipient: &str,
        protocol: &Protocol,
        request: &SendRequest<'_>,
        is_own: bool,
    ) -> Result<Option<Arc<LensPath>>, BrokerError> {
        let Recipients::One(member) = target else {
            return Ok(None);
        };
        let record = &protocol.record;
        let lenses = self.0.catalog.lenses(protocol.name());
        let rule = request.headers.transform.unwrap_or_default();
        let capabilities = &member.record.capabilities;
        match Speech::of((&record.name, &record.version), capabilities, lenses.as_deref(), rule) {
            Speech::AsSent => Ok(None),
            Speech::By(plan) => Ok(Some(plan)),
            Speech::NotCompiled(failure) if is_own => Err(BrokerError::TransformFailed(failure)),
            Speech::Refused | Speech::NotCompiled(_) => Err(BrokerError::IncompatibleProtocol {
                recipient: recipient.to_owned(),
                name: record.name.to_string(),
                version: record.version.to_string(),
                speaks: if is_own { supported_versions(member) } else { Vec::new() },
                suggestions: if is_own {
                    suggestions(member, protocol)
                } else {
                    Vec::new()
                },
            }),
        }
    }

    /// The message in the version of its recipient, by the path that was found for it.
    ///
    /// # Errors
    /// `transform_failed`.
    pub(super) fn form_of(
        &self,
        plan: Option<&Arc<LensPath>>,
        target: &Recipients,
        request: &SendRequest<'_>,
    ) -> Result<Option<Arc<Form>>, BrokerError> {
        let (Some(plan), Recipients::One(member)) = (plan, target) else {
            return Ok(None);
        };
        let form = self.make_form(plan, wants_complement(&member.record.capabilities), request);
        form.map(Some)
            .map_err(|failure| BrokerError::TransformFailed(Box::new(failure)))
    }

    fn make_form(
        &self,
        plan: &Arc<LensPath>,
        wants_complement: bool,
        request: &SendRequest<'_>,
    ) -> Result<Arc<Form>, TransformFailure> {
        let request_of_form = FormRequest {
            plan,
            protocol_name: request.protocol_name,
            payload: request.payload,
            rule: request.headers.transform.unwrap_or_default(),
            complement: request.headers.complement.as_ref().map(Complement::as_str),
            wants_complement,
        };
        Form::make(&self.0.catalog, &request_of_form, &request.work)
    }

    /// How the lenses of a protocol widen the audience of a broadcast.
    pub(super) fn by_lenses(&self, request: &SendRequest<'_>) -> Option<ByLenses> {
        let lenses = self.0.catalog.lenses(request.protocol_name)?;
        Some(ByLenses {
            lenses,
            rule: request.headers.transform.unwrap_or_default(),
            failed: Vec::new(),
        })
    }

    /// The paths by which the audience of a broadcast as it is now gets the message.
    ///
    /// # Errors
    /// A recipient is left out, and a lens of another replica may lead to it.
    pub(super) fn paths_of(
        &self,
        audience: &AudienceQuery,
        request: &SendRequest<'_>,
        attempt: Attempt<'_>,
    ) -> Result<Vec<TransformedFor>, BrokerError> {
        let is_last = self.is_last(attempt) || request.headers.transform == Some(TransformRule::Never);
        let (paths, without) = if audience.by_lenses.is_some() {
            let selected = self.0.directory.select_recipients(audience, now());
            (selected.transformed, selected.without_path)
        } else if is_last {
            return Ok(Vec::new());
        } else {
            (Vec::new(), self.0.directory.version_without_path(audience, now()))
        };
        match without.filter(|_| !is_last) {
            None => Ok(paths),
            Some(to) => Err(BrokerError::NoLens {
                name: audience.protocol.to_string(),
                from: audience.version.clone(),
                to,
            }),
        }
    }

    /// Whether a broadcast goes to those whom it reaches by the lenses that are known here.
    fn is_last(&self, attempt: Attempt<'_>) -> bool {
        !self.is_shared() || attempt.is_current()
    }

    /// The message in the versions of its audience: one form for each path. Those for whom the lenses fail are noted in the
    /// query. Those whose form the work budget has no room for get it made when it is delivered.
    ///
    /// # Errors
    /// A lens fails, and another replica may have replaced it.
    pub(super) fn forms_of(
        &self,
        paths: &[TransformedFor],
        audience: &mut AudienceQuery,
        request: &SendRequest<'_>,
        attempt: Attempt<'_>,
    ) -> Result<Option<Box<[Arc<Form>]>>, BrokerError> {
        let (mut forms, mut failed) = (Vec::new(), Vec::new());
        for row in paths {
            let kinds = [
                (false, row.recipients > row.want_complement),
                (true, row.want_complement > 0),
            ];
            for (wants_complement, is_wanted) in kinds {
                if !is_wanted {
                    continue;
                }
                match self.make_form(&row.plan, wants_complement, request) {
                    Ok(form) => forms.push(form),
                    Err(failure) if is_out_of_work(&failure) && !forms.is_empty() => {}
                    Err(_) if self.is_last(attempt) => failed.push(Arc::clone(&row.plan)),
                    Err(failure) => return Err(BrokerError::TransformFailed(Box::new(failure))),
                }
            }
        }
        if let Some(by_lenses) = &mut audience.by_lenses {
            by_lenses.failed = failed;
        }
        Ok((!forms.is_empty()).then(|| forms.into()))
    }

    /// Turns the refusal of a message with an idempotency key into an answer of the router: it may repeat one that its
    /// recipient could read then, and gets the first answer.
    pub(super) fn unless_repeat<T>(
        &self,
        result: Result<Option<T>, BrokerError>,
        target: &mut Recipients,
        request: &SendRequest<'_>,
        attempt: Attempt<'_>,
    ) -> Result<Option<T>, BrokerError> {
        let may_be_elsewhere = self.is_shared() && matches!(attempt, Attempt::First);
        result.or_else(|refusal| {
            if request.headers.idempotency_key.is_none() || may_be_elsewhere {
                return Err(refusal);
            }
            *target = Recipients::Missing(Box::new(refusal));
            Ok(None)
        })
    }
}

/// Whether only the budget of this send is spent, on the forms before.
fn is_out_of_work(failure: &TransformFailure) -> bool {
    failure.reason == TransformReason::Fails(TransformError::TooExpensive)
}

fn supported_versions(member: &Member) -> Vec<String> {
    let protocols = &member.record.capabilities.supported_protocols;
    protocols
        .iter()
        .flat_map(|(name, versions)| versions.iter().map(move |version| format!("{name} {version}")))
        .collect()
}

/// The lenses that would let the recipient read the message.
fn suggestions(member: &Member, protocol: &Protocol) -> Vec<String> {
    let (name, version) = (&protocol.record.name, &protocol.record.version);
    let declared = member.record.capabilities.supported_protocols.get(name);
    let newest = declared.into_iter().flatten().rev().take(SUGGESTIONS_LEN_MAX);
    newest
        .map(|own| {
            let (low, high) = if own < version { (own, version) } else { (version, own) };
            format!("register a lens of {name} from {low} to {high}")
        })
        .collect()
}
