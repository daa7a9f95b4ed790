//! Links by which one question can be answered without a login: `/a/{project}.{question}.{token}`.

use std::fmt;

use actors::model::{ProjectId, QuestionId};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use common::config::DeskSecret;

/// Bytes of the part that cannot be guessed.
const TOKEN_BYTES: usize = 16;

/// Signs the links of a broker. All replicas have the same secret, so each knows the links of the others, and the store
/// keeps none.
#[derive(Clone)]
pub struct LinkSigner(Hmac<Sha256>);

impl LinkSigner {
    /// Signs with a key of this secret, which is good for nothing else.
    pub fn new(secret: &DeskSecret) -> Self {
        let key = secret.key_for("mcp-broker answer links");
        Self(Hmac::new_from_slice(&key).unwrap_or_else(|never| unreachable!("{never}")))
    }

    fn mac(&self, project: &ProjectId, question: QuestionId) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(question.as_uuid().as_bytes());
        mac.update(project.as_str().as_bytes());
        mac
    }
}

impl fmt::Debug for LinkSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkSigner(…)")
    }
}

/// A link that answers one question. It is good until the question is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerLink {
    pub project: ProjectId,
    pub question: QuestionId,
    token: [u8; TOKEN_BYTES],
}

impl AnswerLink {
    /// The link of a question.
    pub fn new(signer: &LinkSigner, project: &ProjectId, question: QuestionId) -> Self {
        let mut token = [0; TOKEN_BYTES];
        token.copy_from_slice(&signer.mac(project, question).finalize().into_bytes()[..TOKEN_BYTES]);
        Self {
            project: project.clone(),
            question,
            token,
        }
    }

    /// Reads the last part of the path. None for anything that the signer has not made.
    pub fn parse(signer: &LinkSigner, text: &str) -> Option<Self> {
        let (rest, token) = text.rsplit_once('.')?;
        let (project, question) = rest.rsplit_once('.')?;
        let (project, question) = (ProjectId::parse(project).ok()?, QuestionId::parse(question)?);
        let token: [u8; TOKEN_BYTES] = URL_SAFE_NO_PAD.decode(token).ok()?.try_into().ok()?;
        // Compares in constant time.
        signer.mac(&project, question).verify_truncated_left(&token).ok()?;
        Some(Self {
            project,
            question,
            token,
        })
    }

    /// The path of the link.
    pub fn path(&self) -> String {
        let token = URL_SAFE_NO_PAD.encode(self.token);
        format!("/a/{}.{}.{token}", self.project, self.question)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer(byte: u8) -> LinkSigner {
        let text = base64::engine::general_purpose::STANDARD.encode([byte; 32]);
        LinkSigner::new(&DeskSecret::parse(&format!("whsec_{text}")).unwrap())
    }

    #[test]
    fn a_link_is_good_for_its_question_project_and_secret_alone() {
        let (project, question) = (ProjectId::parse("shop").unwrap(), QuestionId::generate());
        let link = AnswerLink::new(&signer(1), &project, question);
        let text = link.path().strip_prefix("/a/").unwrap().to_owned();
        assert_eq!(AnswerLink::parse(&signer(1), &text), Some(link));
        assert_eq!(AnswerLink::parse(&signer(2), &text), None, "another secret");
        let (_, token) = text.rsplit_once('.').unwrap();
        let other = QuestionId::generate();
        for forged in [
            format!("shop.{other}.{token}"),
            format!("shot.{question}.{token}"),
            format!("shop.{question}.{}", &token[1..]),
            format!("shop.{question}."),
            format!("shop.{question}.{}", URL_SAFE_NO_PAD.encode([0; TOKEN_BYTES])),
            String::new(),
        ] {
            assert_eq!(AnswerLink::parse(&signer(1), &forged), None, "{forged}");
        }
    }
}
