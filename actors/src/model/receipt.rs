//! The receipt of a `receive_messages` call, by which the next call acknowledges its messages.

use std::fmt;

use super::SessionId;

/// Names the messages that one call of `receive_messages` returned.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallReceipt(u64);

impl CallReceipt {
    /// A random receipt.
    pub fn generate() -> Self {
        Self(uuid::Uuid::new_v4().as_u64_pair().0)
    }

    /// The number of the receipt, big-endian.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// The text that a caller passes back: 24 hexadecimal digits. The last eight bind the receipt to its session.
    pub fn to_text(self, session: SessionId) -> String {
        format!("{:016x}{:08x}", self.0, self.checksum(session))
    }

    /// Reads a receipt. None when the text is not a receipt of this session: mistyped, cut off, or of another
    /// session.
    pub fn parse(text: &str, session: SessionId) -> Option<Self> {
        const LEN: usize = 24;
        let is_hexadecimal = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
        if text.len() != LEN || !text.bytes().all(is_hexadecimal) {
            return None;
        }
        let (number, check) = text.split_at(16);
        let receipt = Self(u64::from_str_radix(number, 16).ok()?);
        (u32::from_str_radix(check, 16) == Ok(receipt.checksum(session))).then_some(receipt)
    }

    /// FNV-1a, folded to 32 bits: it finds mistakes and protects no secret. Every replica computes the same value.
    fn checksum(self, session: SessionId) -> u32 {
        let number = self.to_bytes();
        let bytes = session.as_uuid().as_bytes().iter().chain(&number);
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (hash ^ (hash >> 32)) as u32
    }
}

impl fmt::Debug for CallReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_receipt_is_the_same_in_every_build() {
        let session = SessionId::parse("0190a5d2-c000-7000-8000-00000000002a").unwrap();
        let receipt = CallReceipt(0x0123_4567_89ab_cdef);
        assert_eq!(receipt.to_text(session), "0123456789abcdef8da00f58");
        assert_eq!(receipt.to_bytes(), [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
        assert_eq!(
            CallReceipt::parse("0123456789abcdee8da00f58", session),
            None,
            "a digit is wrong"
        );
    }

    #[test]
    fn a_receipt_is_read_back_by_its_session_alone() {
        let (own, other) = (SessionId::generate(), SessionId::generate());
        for _ in 0..100 {
            let receipt = CallReceipt::generate();
            let text = receipt.to_text(own);
            assert_eq!(text.len(), 24);
            assert_eq!(CallReceipt::parse(&text, own), Some(receipt));
            assert_eq!(CallReceipt::parse(&text, other), None);
            for bad in [
                &text[1..],
                &format!("{text}0"),
                &format!("+{}", &text[1..]),
                &text.to_uppercase(),
                "",
            ] {
                assert!(
                    CallReceipt::parse(bad, own).is_none_or(|read| bad == text && read == receipt),
                    "{bad}"
                );
            }
        }
    }
}
