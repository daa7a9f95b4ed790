//! The claim: the token that fences the owner of a session.

use std::num::NonZeroU64;

/// The token of the owner of a session. Of several claims the last one is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim(NonZeroU64);

impl Claim {
    /// A new random token.
    pub fn generate() -> Self {
        Self::from_bits(uuid::Uuid::new_v4().as_u64_pair().1)
    }

    /// The token with these bits; the highest bit is always set.
    pub const fn from_bits(bits: u64) -> Self {
        // The second half of a random UUID has its highest bit set, so no randomness is lost.
        match NonZeroU64::new(bits | 1 << 63) {
            Some(bits) => Self(bits),
            None => Self(NonZeroU64::MAX),
        }
    }

    /// The bits of the token; the highest one is set.
    pub const fn bits(self) -> u64 {
        self.0.get()
    }
}
