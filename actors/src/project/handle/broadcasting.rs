//! A broadcast: its audience, the paths of lenses that widen it, and the forms of the message for those whom they reach.

use std::{collections::BTreeSet, sync::Arc};

use lens::TransformError;

use super::{
    Lookup, ProjectHandle,
    sending::{Attempt, SendRequest},
};
use crate::{
    clock::now,
    directory::{AudienceQuery, ByLenses, TransformedFor},
    model::{BrokerError, CapabilityFilter, TransformFailure, TransformReason, TransformRule},
    registry::builtin,
    router::{Recipients, Submission},
    session::Member,
    speech::Form,
};

impl ProjectHandle {
    /// Checks and encodes a message for all sessions that a filter selects. Nothing is accepted yet.
    ///
    /// # Errors
    /// `forbidden` for a protocol of the broker's own messages, `protocol_not_found`, `payload_invalid`.
    pub fn prepare_broadcast(
        &self,
        sender: &Arc<Member>,
        filter: CapabilityFilter,
        request: &SendRequest<'_>,
    ) -> Lookup<Submission> {
        if !request.is_large() {
            let result = self.try_broadcast(sender, &filter, request, Attempt::First);
            if !matches!(&result, Err(unknown) if self.may_be_elsewhere(unknown)) {
                return Lookup::Ready(result);
            }
        }
        let sender = Arc::clone(sender);
        let prepare = move |project: &Self, request: &SendRequest<'_>, attempt: Attempt<'_>| {
            project.try_broadcast(&sender, &filter, request, attempt)
        };
        self.prepare_later(request, BTreeSet::new(), prepare)
    }

    fn try_broadcast(
        &self,
        sender: &Member,
        filter: &CapabilityFilter,
        request: &SendRequest<'_>,
        attempt: Attempt<'_>,
    ) -> Result<Submission, BrokerError> {
        builtin::check_send(request.protocol_name)?;
        let protocol = self.protocol(request.protocol_name, request.protocol_version)?;
        let mut audience = AudienceQuery {
            sender: sender.record.id,
            filter: filter.clone(),
            protocol: protocol.record.name.clone(),
            version: protocol.record.version.clone(),
            by_lenses: self.by_lenses(request),
        };
        let paths = self.paths_of(&audience, request, attempt)?;
        protocol.schema.validate_within(&request.work, request.payload)?;
        let forms = self.forms_of(&paths, &mut audience, request, attempt)?;
        let mut submission = self.submission(sender, Recipients::Many(Box::new(audience)), request);
        submission.forms = forms;
        Ok(submission)
    }

    /// How the lenses of a protocol widen the audience of a broadcast.
    fn by_lenses(&self, request: &SendRequest<'_>) -> Option<ByLenses> {
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
    fn paths_of(
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
    fn forms_of(
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
}

/// Whether only the budget of this send is spent, on the forms before.
fn is_out_of_work(failure: &TransformFailure) -> bool {
    failure.reason == TransformReason::Fails(TransformError::TooExpensive)
}
