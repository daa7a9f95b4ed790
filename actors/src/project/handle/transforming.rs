//! Transforms a payload for a caller that wants to see what a recipient of another version would get.

use std::{collections::BTreeSet, sync::Arc};

use lens::{Request, Transformed};
use semver::Version;

use super::{LateAnswer, ProjectHandle, lookup::after_wait};
use crate::{
    model::BrokerError,
    registry::{LensPath, Protocol, WorkBudget},
};

/// A payload to transform.
pub struct TransformRequest {
    /// The name of the protocol as the caller wrote it.
    pub protocol_name: String,
    /// The version of the payload, as the caller wrote it.
    pub from_version: String,
    pub to_version: String,
    /// The text of a JSON value.
    pub payload: String,
    /// The complement of the reverse path, which an earlier transformation has given.
    pub complement: Option<String>,
}

/// A payload of another version, and the path that led there.
pub struct TransformedPayload {
    pub transformed: Transformed,
    pub plan: Arc<LensPath>,
}

impl ProjectHandle {
    /// Transforms a payload, off the workers if it is large. Something unknown may be known to another replica, so that it is
    /// tried again once this one is current.
    ///
    /// The answer is an error for a protocol of the broker's own messages and an unknown one (`protocol_not_found`), without
    /// lenses that lead there (`incompatible_protocol`), and for a payload that does not fit (`payload_invalid`) or is not
    /// transformed (`transform_failed`).
    pub async fn transform(&self, request: TransformRequest) -> LateAnswer<TransformedPayload> {
        let request = Arc::new(request);
        let first = self.run_transform(&request).await;
        match &first.result {
            Err(unknown) if self.may_be_elsewhere(unknown) => {}
            _ => return first,
        }
        let current = self.wait_until_current_with(&BTreeSet::new()).await;
        let again = self.run_transform(&request).await;
        LateAnswer {
            result: after_wait(again.result, current),
            work: first.work + again.work,
        }
    }

    async fn run_transform(&self, request: &Arc<TransformRequest>) -> LateAnswer<TransformedPayload> {
        let (project, payload_len) = (self.clone(), request.payload.len());
        let request = Arc::clone(request);
        let run = move || {
            let work = WorkBudget::default();
            LateAnswer {
                result: project.try_transform(&request, &work),
                work: work.spent(),
            }
        };
        self.run_check(payload_len, run).await
    }

    fn try_transform(&self, request: &TransformRequest, work: &WorkBudget) -> Result<TransformedPayload, BrokerError> {
        let from = self.protocol(&request.protocol_name, &request.from_version)?;
        let to = self.protocol(&request.protocol_name, &request.to_version)?;
        let plan = self.path(&from, &to.record.version)?;
        from.schema.validate_within(work, &request.payload)?;
        let wanted = Request {
            complement: request.complement.as_deref(),
            wants_complement: true,
            ..Request::of(&request.payload)
        };
        let transformed = self.0.catalog.transform(from.name(), &plan, wanted, work);
        let transformed = transformed.map_err(BrokerError::TransformFailed)?;
        Ok(TransformedPayload { transformed, plan })
    }

    /// The path of lenses to another version. It is empty to the same one.
    fn path(&self, from: &Protocol, to: &Version) -> Result<Arc<LensPath>, BrokerError> {
        let name = &from.record.name;
        let lenses = self.0.catalog.lenses(name.as_str()).unwrap_or_default();
        let plan = lenses.plan(&from.record.version, &BTreeSet::from([to.clone()]));
        plan.ok_or_else(|| BrokerError::NoLens {
            name: name.to_string(),
            from: from.record.version.clone(),
            to: to.clone(),
        })
    }
}
