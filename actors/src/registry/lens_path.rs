//! A path of lenses of a protocol, and what it did to recent payloads: mostly the same.

use std::{ops::Deref, sync::Arc};

use lens::{Places, Plan};

use crate::{locked::Locked, model::Transformed};

/// Results that a path remembers, and the bytes that one may have as text: 1 KiB for a path.
const REMEMBERED_MAX: usize = 4;
const REMEMBERED_BYTES_MAX: usize = 256;

/// A path of lenses of a protocol.
#[derive(Debug)]
pub struct LensPath {
    plan: Plan,
    /// The version at its end, as envelopes name it.
    end: Box<str>,
    recent: Locked<Vec<Recent>>,
}

/// What it did to a payload.
#[derive(Debug)]
struct Recent {
    loss: Places,
    defaulted: Places,
    transformed: Arc<Transformed>,
}

impl LensPath {
    /// The version at its end, as envelopes name it.
    #[must_use]
    pub fn end(&self) -> &str {
        &self.end
    }

    /// What recipients and receipts learn of a transformation along this path. Payloads to which it did the same share one.
    #[must_use]
    pub fn transformed(&self, loss: &Places, defaulted: &Places) -> Arc<Transformed> {
        let is_same = |recent: &&Recent| recent.loss == *loss && recent.defaulted == *defaulted;
        if let Some(known) = self.recent.lock().iter().find(is_same) {
            return Arc::clone(&known.transformed);
        }
        let list = |places: &Places| places.iter().map(ToString::to_string).collect();
        let versions = self.plan.versions();
        let transformed = Arc::new(Transformed::new(
            versions[0].clone(),
            versions[versions.len() - 1].clone(),
            list(loss),
            list(defaulted),
            loss.more() || defaulted.more(),
        ));
        if transformed.text().len() <= REMEMBERED_BYTES_MAX {
            let mut recent = self.recent.lock();
            if recent.len() == REMEMBERED_MAX {
                recent.remove(0);
            }
            recent.push(Recent {
                loss: loss.clone(),
                defaulted: defaulted.clone(),
                transformed: Arc::clone(&transformed),
            });
        }
        transformed
    }
}

impl From<Plan> for LensPath {
    fn from(plan: Plan) -> Self {
        let end = plan.versions().last().map(ToString::to_string);
        Self {
            plan,
            end: end.unwrap_or_default().into(),
            recent: Locked::default(),
        }
    }
}

impl Deref for LensPath {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}

#[cfg(test)]
mod tests {
    use lens::Path;
    use semver::Version;

    use super::*;

    fn places(texts: &[&str]) -> Places {
        texts.iter().map(|text| Path::parse(text).unwrap()).collect()
    }

    fn path() -> LensPath {
        let version = Version::new(1, 0, 0);
        Plan::find(&[], &version, std::slice::from_ref(&version))
            .unwrap()
            .into()
    }

    #[test]
    fn payloads_to_which_a_path_does_the_same_share_what_is_said_of_it() {
        let (path, none) = (path(), Places::default());
        let (a, b) = (places(&["/a"]), places(&["/b"]));
        let first = path.transformed(&a, &none);
        assert_eq!(first.loss, ["/a"]);
        assert!(Arc::ptr_eq(&first, &path.transformed(&a, &none)));
        for (loss, defaulted) in [(&b, &none), (&none, &a), (&a, &b)] {
            let other = path.transformed(loss, defaulted);
            let texts = |places: &Places| places.iter().map(ToString::to_string).collect::<Vec<_>>();
            assert_eq!(
                (other.loss.clone(), other.defaulted.clone()),
                (texts(loss), Some(texts(defaulted)))
            );
        }
        assert!(Arc::ptr_eq(&first, &path.transformed(&a, &none)), "four are remembered");
    }

    #[test]
    fn what_a_path_remembers_is_bounded() {
        let (path, none) = (path(), Places::default());
        for at in 0..100 {
            let long = format!("/{at}{}", "x".repeat(REMEMBERED_BYTES_MAX));
            for place in [&format!("/{at}"), &long] {
                assert_eq!(path.transformed(&places(&[place]), &none).loss, [place.as_str()]);
            }
        }
        let recent = path.recent.lock();
        assert_eq!(recent.len(), REMEMBERED_MAX);
        assert!(
            recent
                .iter()
                .all(|one| one.transformed.text().len() <= REMEMBERED_BYTES_MAX)
        );
    }
}
