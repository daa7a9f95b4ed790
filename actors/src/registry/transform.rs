//! Transforms a payload along a path of lenses, within the work budget of its message.

use lens::{Plan, Request, Transformed};

use super::{Catalog, WorkBudget};
use crate::model::{TransformFailure, TransformReason};

/// Work of one transformation, and as much again for the check of its result, in nanoseconds of the slowest case: together
/// as long as a worker may be busy with it. Measured in an optimized build: payloads that spend the first half take 2 to 9 ms
/// of a processor (`measure_the_most_expensive_transformations` of the crate `lens`). A broadcast shares the budget of its
/// send, 20 ms, among all versions of its recipients; the forms for which nothing is left are made at their deliveries.
const TRANSFORM_WORK_MAX: u64 = 10_000_000;

impl Catalog {
    /// Transforms a payload that fits the first version of the path. The result fits the last one.
    ///
    /// # Errors
    /// If an operation cannot be carried out, or the result does not fit, is too large or too expensive.
    pub fn transform(
        &self,
        name: &str,
        plan: &Plan,
        request: Request<'_>,
        budget: &WorkBudget,
    ) -> Result<Transformed, Box<TransformFailure>> {
        let versions = plan.versions();
        let (operations, checks) = (budget.part(TRANSFORM_WORK_MAX), budget.part(TRANSFORM_WORK_MAX));
        let mut fits = |at: usize, text: &str| {
            let protocol = self.get(name, &plan.names()[at]);
            protocol.is_some_and(|protocol| protocol.schema.validate_within(&checks, text).is_ok())
        };
        let request = Request {
            len_max: self.payload_len_max().min(request.len_max),
            ..request
        };
        let (before, mut left) = (operations.remaining(), operations.remaining());
        let made = plan.apply(request, &mut left, &mut fits);
        budget.spend(before - left + before - checks.remaining());
        made.map_err(|error| {
            Box::new(TransformFailure {
                from: versions[0].clone(),
                to: versions[versions.len() - 1].clone(),
                reason: TransformReason::Fails(error),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use lens::TransformError;
    use semver::Version;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        model::ProtocolName,
        registry::{Lenses, Protocol, fixtures},
    };

    const SHORT: &str = r#"{"text": "hi", "size": 7}"#;

    /// A catalog with two versions of `chat` and the lens between them.
    fn catalog(payload_len_max: usize) -> Catalog {
        let (name, catalog) = (ProtocolName::parse("chat").unwrap(), Catalog::new(payload_len_max));
        let object = |properties: Value| json!({"type": "object", "properties": properties, "required": ["size"], "additionalProperties": false});
        let schemas = [
            object(json!({"text": {"type": "string"}, "size": {"type": "integer"}})),
            object(json!({"body": {"type": "string"}, "size": {"type": "integer", "maximum": 10}})),
        ];
        for (version, schema) in ["1.0.0", "2.0.0"].into_iter().zip(&schemas) {
            let record = fixtures::protocol_record("chat", version, schema.clone());
            catalog.insert(Protocol::compile(Arc::new(record)).unwrap());
        }
        let ops = json!([{"op": "rename", "path": "/text", "to": "body"}]);
        let lens = fixtures::lens_between("chat", ops, [&schemas[0], &schemas[1]]);
        catalog.set_lenses(&name, Lenses::new(vec![lens]));
        catalog
    }

    fn transform(payload: &str, budget: &WorkBudget) -> Result<Transformed, Box<TransformFailure>> {
        transform_in(&catalog(usize::MAX), payload, budget)
    }

    fn transform_in(
        catalog: &Catalog,
        payload: &str,
        budget: &WorkBudget,
    ) -> Result<Transformed, Box<TransformFailure>> {
        let lenses = catalog.lenses("chat").unwrap();
        let plan = lenses
            .plan(&Version::new(1, 0, 0), &BTreeSet::from([Version::new(2, 0, 0)]))
            .unwrap();
        catalog.transform("chat", &plan, Request::of(payload), budget)
    }

    fn reason(result: Result<Transformed, Box<TransformFailure>>) -> TransformError {
        match *result.unwrap_err() {
            TransformFailure {
                from,
                to,
                reason: TransformReason::Fails(error),
            } => {
                assert_eq!((from, to), (Version::new(1, 0, 0), Version::new(2, 0, 0)));
                error
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_payload_is_transformed_and_its_work_is_charged() {
        let budget = WorkBudget::default();
        let transformed = transform(SHORT, &budget).unwrap();
        let payload: Value = serde_json::from_str(&transformed.payload).unwrap();
        assert_eq!(payload, json!({"body": "hi", "size": 7}));
        assert!(transformed.loss.is_empty() && budget.spent() > 0);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let result = transform(r#"{"size": 11}"#, &WorkBudget::default());
        assert_eq!(reason(result), TransformError::DoesNotFit);
    }

    #[test]
    fn a_result_is_no_larger_than_a_payload_may_be() {
        let result = |len_max| transform_in(&catalog(len_max), SHORT, &WorkBudget::default());
        let len = result(usize::MAX).unwrap().payload.len();
        assert!(result(len).is_ok());
        assert_eq!(reason(result(len - 1)), TransformError::TooLarge);
    }

    #[test]
    fn a_spent_budget_transforms_nothing() {
        let budget = WorkBudget::default();
        budget.spend(budget.remaining());
        assert_eq!(reason(transform(SHORT, &budget)), TransformError::TooExpensive);
    }
}
