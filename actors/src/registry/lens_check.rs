//! Checks a lens against the compiled schemas of both versions.

use lens::{Checked, Direction, Lens, LensError, Options, Side};

use super::catalog::Protocol;
use crate::clock::fine_ns;

/// Lenses into one version.
pub(crate) const LENSES_INTO_VERSION_MAX: usize = 8;
/// Nanoseconds after which a check ends: what is open then is `sampled`.
const CHECK_NS_MAX: u64 = 100_000_000;

/// Checks a lens. Takes up to 100 ms and the time of one sample: use [`super::Compiler`] on a worker.
///
/// # Errors
/// As [`Lens::check`].
pub(crate) fn check_lens(
    lens: &Lens,
    source: &Protocol,
    target: &Protocol,
    direction: Direction,
    allow_loss: bool,
) -> Result<Checked, LensError> {
    let begun_ns = fine_ns();
    let is_out_of_time = || fine_ns().saturating_sub(begun_ns) > CHECK_NS_MAX;
    let fits_source = |payload: &str| source.schema.validate(payload).is_ok();
    let fits_target = |payload: &str| target.schema.validate(payload).is_ok();
    let source = Side {
        schema: &source.record.schema,
        fits: &fits_source,
        kept: &[],
    };
    let target = Side {
        schema: &target.record.schema,
        fits: &fits_target,
        kept: &[],
    };
    let options = Options {
        direction,
        allow_loss,
        is_out_of_time: &is_out_of_time,
    };
    lens.check(&source, &target, &options)
}
