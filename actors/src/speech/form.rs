//! One message in another version of its protocol.

use std::sync::{Arc, OnceLock};

use lens::Request;

use crate::{
    clock::fine_ns,
    metrics::{METRICS, TransformResult},
    model::{Message, TransformFailure, TransformReason, TransformRule, Transformed},
    registry::{Catalog, LensPath, WorkBudget},
};

/// A payload in another version, and what its making did.
#[derive(Debug)]
pub struct Form {
    plan: Arc<LensPath>,
    wants_complement: bool,
    payload: String,
    /// The member `transformed` of the envelope, where a complement is added to the transformation.
    with_complement: Option<String>,
    transformation: Arc<Transformed>,
    /// The same, as receipts keep it.
    kept: Arc<Transformed>,
    /// The message of a broadcast in this form, once it was delivered.
    broadcast: OnceLock<Arc<Message>>,
}

/// A payload to transform.
#[derive(Clone, Copy, Debug)]
pub struct FormRequest<'a> {
    pub plan: &'a Arc<LensPath>,
    pub protocol_name: &'a str,
    pub payload: &'a str,
    /// What the sender allows.
    pub rule: TransformRule,
    /// What an earlier transformation on the reverse path has lost.
    pub complement: Option<&'a str>,
    /// The recipient wants to know what this one loses.
    pub wants_complement: bool,
}

impl Form {
    /// Transforms a payload that fits the first version of the path.
    ///
    /// # Errors
    /// If an operation cannot be carried out, the result does not fit or is too large, the work budget is spent, or
    /// something would be lost that must not.
    pub fn make(
        catalog: &Catalog,
        request: &FormRequest<'_>,
        budget: &WorkBudget,
    ) -> Result<Arc<Self>, TransformFailure> {
        let begun_ns = fine_ns();
        let made = Self::transform(catalog, request, budget);
        METRICS.transform.observe(fine_ns().saturating_sub(begun_ns));
        let result = match &made {
            Err(_) => TransformResult::Failed,
            Ok(form) if !form.transformation.loss.is_empty() => TransformResult::Lossy,
            Ok(form) if form.transformation.defaulted.iter().flatten().next().is_some() => TransformResult::Defaulted,
            Ok(_) => TransformResult::Exact,
        };
        METRICS.transforms.of(result).increment();
        made.map(Arc::new)
    }

    fn transform(catalog: &Catalog, request: &FormRequest<'_>, budget: &WorkBudget) -> Result<Self, TransformFailure> {
        let FormRequest { plan, rule, .. } = *request;
        let asked = Request {
            complement: request.complement,
            wants_complement: request.wants_complement,
            ..Request::of(request.payload)
        };
        let made = catalog.transform(request.protocol_name, plan, asked, budget);
        let made = made.map_err(|failure| *failure)?;
        if rule == TransformRule::Lossless && !made.loss.is_empty() {
            let versions = plan.versions();
            return Err(TransformFailure {
                from: versions[0].clone(),
                to: versions[versions.len() - 1].clone(),
                reason: TransformReason::Loses(made.loss),
            });
        }
        let transformation = plan.transformed(&made.loss, &made.defaulted);
        let with_complement = made.complement.map(|complement| {
            let text = transformation.text();
            format!("{},\"complement\":{complement}}}", &text[..text.len() - 1])
        });
        Ok(Self {
            plan: Arc::clone(plan),
            wants_complement: request.wants_complement,
            payload: made.payload,
            with_complement,
            kept: transformation.kept(),
            transformation,
            broadcast: OnceLock::new(),
        })
    }

    /// What the receipt of a recipient keeps of it.
    #[must_use]
    pub const fn kept(&self) -> &Arc<Transformed> {
        &self.kept
    }

    /// Whether it is what this path gives: another one has the same lenses no longer.
    #[must_use]
    pub fn is_by(&self, plan: &Arc<LensPath>, wants_complement: bool) -> bool {
        self.has_path(plan) && self.wants_complement == wants_complement
    }

    /// Whether it was made by this path.
    #[must_use]
    pub fn has_path(&self, plan: &Arc<LensPath>) -> bool {
        Arc::ptr_eq(&self.plan, plan)
    }

    /// Bytes that it takes at most: it may hold the message of a broadcast, whose envelope has so many bytes, and the one that
    /// is made of it.
    #[must_use]
    pub fn bytes_len(&self, envelope_len: usize) -> usize {
        2 * (self.payload.len() + self.transformed().len() + envelope_len)
    }

    /// The member `transformed` of the envelope.
    fn transformed(&self) -> &str {
        match &self.with_complement {
            Some(text) => text,
            None => self.transformation.text(),
        }
    }

    /// This message in this form. The recipients of a broadcast share one. None for an envelope that another build has
    /// written in another way.
    #[must_use]
    pub fn of_message(&self, sent: &Arc<Message>) -> Option<Arc<Message>> {
        if let Some(known) = self.broadcast.get().filter(|known| known.is_form_of(sent)) {
            return Some(Arc::clone(known));
        }
        let made = Arc::new(sent.in_version(self.plan.end(), &self.payload, self.transformed())?);
        if sent.recipient.is_none() {
            let _ = self.broadcast.set(Arc::clone(&made));
        }
        Some(made)
    }
}

#[cfg(test)]
impl Form {
    /// A form with a payload of this length.
    pub fn fixture(plan: &Arc<LensPath>, payload_len: usize) -> Arc<Self> {
        let version = semver::Version::new(1, 0, 0);
        let transformation = Arc::new(Transformed::new(
            version.clone(),
            version,
            Vec::new(),
            Vec::new(),
            false,
        ));
        Arc::new(Self {
            plan: Arc::clone(plan),
            wants_complement: false,
            payload: " ".repeat(payload_len),
            with_complement: None,
            kept: Arc::clone(&transformation),
            transformation,
            broadcast: OnceLock::new(),
        })
    }
}
