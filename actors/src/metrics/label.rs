//! The values of a label: those of an enum, so that no caller can add one.

/// The values of a label.
pub trait Labelled: Copy + 'static {
    /// All values.
    const ALL: &'static [Self];

    /// The position in [`Self::ALL`].
    fn index(self) -> usize;

    /// The value as metrics show it.
    fn as_str(self) -> &'static str;
}
