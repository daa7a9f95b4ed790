//! Checks a lens against the compiled schemas of both versions.

use std::sync::Arc;

use lens::{Checked, Direction, Kept, Lens, LensError, Options, Proved, Side};

use super::catalog::Protocol;
use crate::clock::fine_ns;

/// Lenses into one version.
pub(crate) const LENSES_INTO_VERSION_MAX: usize = 8;
/// Nanoseconds after which the checks of a registration end: what is open then is `sampled`.
const CHECK_NS_MAX: u64 = 100_000_000;

/// A kept message on which a lens is tried.
pub(crate) struct KeptPayload {
    pub message_id: String,
    pub payload: String,
}

/// The check of a lens. What rules do not prove is tried on generated payloads, and then on kept messages.
#[derive(Clone)]
pub(crate) struct LensCheck {
    pub lens: Arc<Lens>,
    pub source: Arc<Protocol>,
    pub target: Arc<Protocol>,
    pub direction: Direction,
    pub allow_loss: bool,
    /// The time that is left.
    left_ns: u64,
}

impl LensCheck {
    pub fn new(
        lens: Lens,
        source: Arc<Protocol>,
        target: Arc<Protocol>,
        direction: Direction,
        allow_loss: bool,
    ) -> Self {
        Self {
            lens: Arc::new(lens),
            source,
            target,
            direction,
            allow_loss,
            left_ns: CHECK_NS_MAX,
        }
    }

    /// Checks the lens, also on these messages of the two versions. Takes up to the time that is left, and the time of one sample:
    /// use [`super::Compiler`] on a worker. Returns the check with the time that is left then.
    ///
    /// # Errors
    /// As [`Lens::check`].
    pub fn run(mut self, of_source: &[KeptPayload], of_target: &[KeptPayload]) -> Result<(Checked, Self), LensError> {
        let begun_ns = fine_ns();
        let spent_ns = || fine_ns().saturating_sub(begun_ns);
        let is_out_of_time = || spent_ns() > self.left_ns;
        let fits_source = |payload: &str| self.source.schema.validate(payload).is_ok();
        let fits_target = |payload: &str| self.target.schema.validate(payload).is_ok();
        let [of_source, of_target] = [of_source, of_target].map(kept);
        let source = Side {
            schema: &self.source.record.schema,
            fits: &fits_source,
            kept: &of_source,
        };
        let target = Side {
            schema: &self.target.record.schema,
            fits: &fits_target,
            kept: &of_target,
        };
        let options = Options {
            direction: self.direction,
            allow_loss: self.allow_loss,
            is_out_of_time: &is_out_of_time,
        };
        let checked = self.lens.check(&source, &target, &options)?;
        self.left_ns = self.left_ns.saturating_sub(spent_ns());
        Ok((checked, self))
    }

    /// Whether the messages that are kept may show more, after a check without them.
    pub fn wants_kept(&self, checked: &Checked) -> bool {
        let verdicts = [&checked.forward, &checked.backward];
        let is_sampled = verdicts
            .iter()
            .any(|verdict| verdict.as_ref().is_some_and(|verdict| verdict.proof == Proved::Sampled));
        is_sampled && self.left_ns > 0
    }
}

fn kept(payloads: &[KeptPayload]) -> Vec<Kept<'_>> {
    let kept = payloads.iter().map(|kept| Kept {
        message_id: &kept.message_id,
        payload: &kept.payload,
    });
    kept.collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn a_lens_is_tried_on_256_generated_payloads() {
        let members: Map<_, _> = (0..200)
            .map(|at| (format!("a{at}"), json!({"type": "integer"})))
            .collect();
        let source = json!({"type": "object", "properties": members});
        let target = json!({"type": "object", "properties": members, "not": {"required": ["gone"]}});
        let tried = Cell::new(0);
        let counts = |_: &str| {
            tried.set(tried.get() + 1);
            true
        };
        let from = Side {
            schema: &source,
            fits: &counts,
            kept: &[],
        };
        let to = Side {
            schema: &target,
            fits: &|_| true,
            kept: &[],
        };
        let options = Options {
            direction: Direction::Forward,
            allow_loss: true,
            is_out_of_time: &|| false,
        };
        let checked = Lens::parse(&json!([])).unwrap().check(&from, &to, &options).unwrap();
        assert_eq!(checked.forward.unwrap().proof, Proved::Sampled);
        assert_eq!(tried.get(), 256);
    }
}
