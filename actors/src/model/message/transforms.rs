//! What lenses do to a message for all of its recipients, as its sender learns it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Transformed;
use crate::model::SessionId;

/// Bytes of one version without its places.
const VERSION_BYTES: usize = 64;

/// What lenses do to an accepted message for its recipients as they are then. It is kept with the idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transforms {
    /// What they do for each version, with the number of its recipients.
    pub versions: Vec<(Arc<Transformed>, usize)>,
    /// Recipients of a broadcast for whom they fail on the payload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<SessionId>,
}

impl Transforms {
    /// Of a message to one recipient.
    #[must_use]
    pub fn of_one(transformed: &Arc<Transformed>) -> Arc<Self> {
        Arc::new(Self {
            versions: vec![(Arc::clone(transformed), 1)],
            failed: Vec::new(),
        })
    }

    /// Approximate bytes.
    #[must_use]
    pub fn bytes_len(&self) -> usize {
        let bytes_of = |(transformed, _): &(Arc<Transformed>, usize)| {
            let places = transformed.loss.iter().chain(transformed.defaulted.iter().flatten());
            VERSION_BYTES + places.map(String::len).sum::<usize>()
        };
        self.versions.iter().map(bytes_of).sum::<usize>() + self.failed.len() * size_of::<SessionId>()
    }

    /// The stored form.
    #[must_use]
    pub fn to_text(&self) -> String {
        // A value with text keys and no map cannot fail to be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the stored form. None if it is not one.
    #[must_use]
    pub fn from_text(text: &[u8]) -> Option<Arc<Self>> {
        serde_json::from_slice(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use semver::Version;

    use super::*;

    #[test]
    fn the_stored_form_is_read_back() {
        let (from, to) = (Version::new(1, 0, 0), Version::new(2, 0, 0));
        let transformed = Transformed::new(from, to, vec!["/a".to_owned()], Vec::new(), false);
        let one = Transforms::of_one(&Arc::new(transformed));
        let all = Arc::new(Transforms {
            failed: vec![SessionId::generate()],
            ..(*one).clone()
        });
        assert_eq!((one.bytes_len(), all.bytes_len()), (66, 82));
        for transforms in [one, all] {
            assert_eq!(Transforms::from_text(transforms.to_text().as_bytes()), Some(transforms));
        }
        assert_eq!(Transforms::from_text(b""), None);
    }
}
