//! What lenses did to a message for one recipient: the sender, the recipient and the receipt learn it.

use std::sync::{Arc, OnceLock};

use semver::Version;
use serde::{Deserialize, Serialize};

/// Bytes of the places of both lists that a receipt keeps.
pub const PLACES_BYTES_MAX: usize = 2048;

/// Bytes of places that take the room of one receipt.
const BYTES_PER_RECEIPT: usize = 64;

/// What lenses did to a message for one recipient.
///
/// ```text
/// Transformed { from: 1.0.0, to: Some(3.0.0), loss: [], defaulted: Some(["/size"]), more: false, .. }
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transformed {
    pub from: Version,
    /// None for a sender in another project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Version>,
    /// Places of the payload as sent that the way back would not restore.
    pub loss: Vec<String>,
    /// Places of the payload as delivered that are made up. None for a sender in another project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaulted: Option<Vec<String>>,
    /// One of the lists does not name all places.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// The stored form, once it was needed.
    #[serde(skip)]
    text: OnceLock<Box<str>>,
}

impl Transformed {
    /// What a recipient in the project of the sender gets.
    #[must_use]
    pub const fn new(from: Version, to: Version, loss: Vec<String>, defaulted: Vec<String>, more: bool) -> Self {
        Self {
            from,
            to: Some(to),
            loss,
            defaulted: Some(defaulted),
            more,
            text: OnceLock::new(),
        }
    }

    /// What a receipt keeps: the places of both lists that fit together into [`PLACES_BYTES_MAX`].
    #[must_use]
    pub fn kept(self: &Arc<Self>) -> Arc<Self> {
        if self.places().map(String::len).sum::<usize>() <= PLACES_BYTES_MAX {
            return Arc::clone(self);
        }
        let mut room = PLACES_BYTES_MAX;
        let mut fits = |place: &&String| {
            let left = room.checked_sub(place.len());
            room = left.unwrap_or(0);
            left.is_some()
        };
        let loss = self.loss.iter().take_while(&mut fits).cloned().collect();
        let defaulted = self.defaulted.as_ref();
        let defaulted = defaulted.map(|places| places.iter().take_while(&mut fits).cloned().collect());
        Arc::new(Self {
            from: self.from.clone(),
            to: self.to.clone(),
            loss,
            defaulted,
            more: true,
            text: OnceLock::new(),
        })
    }

    fn places(&self) -> impl Iterator<Item = &String> {
        self.loss.iter().chain(self.defaulted.iter().flatten())
    }

    /// What a sender in another project learns.
    #[must_use]
    pub fn for_other_project(&self) -> Self {
        Self {
            from: self.from.clone(),
            to: None,
            loss: self.loss.clone(),
            defaulted: None,
            more: false,
            text: OnceLock::new(),
        }
    }

    /// The room that it takes besides its receipt, counted in receipts.
    pub fn receipts_len(&self) -> usize {
        1 + self.places().map(String::len).sum::<usize>() / BYTES_PER_RECEIPT
    }

    /// The stored form.
    pub fn text(&self) -> &str {
        // A value with text keys and no map cannot fail to be written.
        let write = || serde_json::to_string(self).unwrap_or_default().into();
        self.text.get_or_init(write)
    }

    /// Reads the stored form. None if it is not one.
    pub fn from_text(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }
}

impl PartialEq for Transformed {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.text() == other.text()
    }
}

impl Eq for Transformed {}

#[cfg(test)]
mod tests {
    use super::*;

    fn transformed(loss: &[&str], defaulted: &[&str]) -> Arc<Transformed> {
        let list = |places: &[&str]| places.iter().map(ToString::to_string).collect();
        let (from, to) = (Version::new(1, 0, 0), Version::new(2, 0, 0));
        Arc::new(Transformed::new(from, to, list(loss), list(defaulted), false))
    }

    #[test]
    fn the_stored_form_is_read_back() {
        for kept in [transformed(&[], &[]), transformed(&["/a\"", "/b/*"], &["/c"])] {
            assert_eq!(Transformed::from_text(kept.text().as_bytes()).as_ref(), Some(&*kept));
            let shown = kept.for_other_project();
            assert_eq!(Transformed::from_text(shown.text().as_bytes()), Some(shown));
        }
        assert_eq!(Transformed::from_text(b""), None);
    }

    #[test]
    fn a_receipt_leaves_out_places_that_do_not_fit() {
        let long = "x".repeat(PLACES_BYTES_MAX / 2);
        let whole = transformed(&[&long], &[&long]);
        assert!(Arc::ptr_eq(&whole.kept(), &whole) && !whole.more);
        assert_eq!(whole.receipts_len(), 1 + PLACES_BYTES_MAX / BYTES_PER_RECEIPT);
        let part = transformed(&[&long], &[&long, "y", "z"]).kept();
        assert!(part.more);
        assert_eq!((&part.loss, &part.defaulted), (&whole.loss, &whole.defaulted));
    }
}
