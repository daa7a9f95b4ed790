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

/// Declares an enum whose variants are the values of a label.
macro_rules! label {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_meta])* $variant,)+ }

        impl $crate::metrics::Labelled for $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)+];

            fn index(self) -> usize {
                self as usize
            }

            fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl $name {
            /// The number of values.
            pub const LEN: usize = <Self as $crate::metrics::Labelled>::ALL.len();
        }
    };
}
pub(crate) use label;
