//! Encrypts the answers to sensitive questions: ChaCha20-Poly1305 under a key that is made of `desk_secret_file`.

use std::fmt;

use actors::model::{AnswerSeal, QuestionId};
use base64::{Engine, engine::general_purpose::STANDARD};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::config::DeskSecret;

/// Encrypts with the secret of the desk.
pub struct DeskSeal(LessSafeKey);

impl DeskSeal {
    /// Encrypts with a key of this secret, which is good for nothing else.
    pub fn new(secret: &DeskSecret) -> Self {
        let key = secret.key_for("mcp-broker sealed answers");
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key).unwrap_or_else(|never| unreachable!("{never}"));
        Self(LessSafeKey::new(key))
    }
}

impl AnswerSeal for DeskSeal {
    fn seal(&self, question: QuestionId, text: &str) -> Option<String> {
        // 12 random bytes: a secret seals far fewer than the 2^32 answers after which two could be equal.
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).ok()?;
        let mut bytes = text.as_bytes().to_vec();
        let aad = Aad::from(*question.as_uuid().as_bytes());
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut bytes)
            .ok()?;
        Some(STANDARD.encode([&nonce[..], &bytes].concat()))
    }

    fn open(&self, question: QuestionId, sealed: &str) -> Option<String> {
        let bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let aad = Aad::from(*question.as_uuid().as_bytes());
        let text = self
            .0
            .open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut sealed)
            .ok()?;
        String::from_utf8(text.to_vec()).ok()
    }
}

impl fmt::Debug for DeskSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeskSeal(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(byte: u8) -> DeskSeal {
        let text = STANDARD.encode([byte; 32]);
        DeskSeal::new(&DeskSecret::parse(&format!("whsec_{text}")).unwrap())
    }

    #[test]
    fn an_answer_is_opened_for_its_question_with_its_secret_alone() {
        let (id, text) = (QuestionId::generate(), "hunter2 \u{1f980}");
        let sealed = seal(1).seal(id, text).unwrap();
        assert_ne!(sealed, seal(1).seal(id, text).unwrap(), "equal answers look different");
        assert_eq!(seal(1).open(id, &sealed).as_deref(), Some(text));
        assert_eq!(seal(2).open(id, &sealed), None);
        assert_eq!(seal(1).open(QuestionId::generate(), &sealed), None);
        assert_eq!(seal(1).open(id, &sealed[4..]), None);
        assert_eq!(seal(1).open(id, ""), None);
    }
}
