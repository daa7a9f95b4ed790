//! The logins of browsers: what the broker stores of each cookie that it has handed out.

use serde::{Deserialize, Serialize};

use super::ProjectRecord;
use crate::model::KeyDigest;

/// Logins of one holder, at most: a further one ends its oldest.
const LOGINS_OF_HOLDER_MAX: usize = 8;
/// Logins of one project, at most: a further one ends the oldest.
const LOGINS_MAX: usize = 128;

/// A login as it is stored. Neither the token of its cookie nor the credential can be recovered from it alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginRecord {
    /// The digest of the token that the cookie holds.
    pub digest: KeyDigest,
    /// The credential, encrypted under a key that is derived from the token.
    pub sealed: String,
    /// The principal that logged in, as the audit log names it.
    pub holder: String,
    /// Milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// Milliseconds since the Unix epoch.
    pub expires_at_ms: u64,
}

impl ProjectRecord {
    /// Adds a login. Ends those that have expired and the oldest ones beyond the bounds: 8 of one holder, 128 of the
    /// project.
    pub fn add_login(&mut self, login: LoginRecord, now_ms: u64) {
        self.logins.retain(|known| known.expires_at_ms > now_ms);
        let is_own = |known: &LoginRecord| known.holder == login.holder;
        if self.logins.iter().filter(|known| is_own(known)).count() >= LOGINS_OF_HOLDER_MAX {
            self.end_oldest_login(is_own);
        }
        if self.logins.len() >= LOGINS_MAX {
            self.end_oldest_login(|_| true);
        }
        self.logins.push(login);
    }

    fn end_oldest_login(&mut self, may_end: impl Fn(&LoginRecord) -> bool) {
        let logins = self.logins.iter().enumerate().filter(|(_, login)| may_end(login));
        if let Some((oldest, _)) = logins.min_by_key(|(_, login)| login.created_at_ms) {
            self.logins.remove(oldest);
        }
    }

    /// The login whose token has this digest, unless it has expired.
    pub fn login(&self, digest: &KeyDigest, now_ms: u64) -> Option<&LoginRecord> {
        let found = self.logins.iter().find(|login| login.digest.matches(digest));
        found.filter(|login| self.active && login.expires_at_ms > now_ms)
    }

    /// Ends the login whose token has this digest, if it exists.
    pub fn end_login(&mut self, digest: &KeyDigest) {
        self.logins.retain(|login| !login.digest.matches(digest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1000;

    fn login(text: &str, holder: &str, at: u64) -> LoginRecord {
        LoginRecord {
            digest: KeyDigest::of_key(text),
            sealed: String::new(),
            holder: holder.to_owned(),
            created_at_ms: at,
            expires_at_ms: at + 100,
        }
    }

    fn has(record: &ProjectRecord, text: &str, now_ms: u64) -> bool {
        record.login(&KeyDigest::of_key(text), now_ms).is_some()
    }

    #[test]
    fn a_login_lasts_until_it_expires_or_is_ended_or_its_project_is_deleted() {
        let mut record = ProjectRecord::default_project(NOW);
        for token in ["a", "b", "c"] {
            record.add_login(login(token, "key:default/k", NOW), NOW);
        }
        assert!(has(&record, "a", NOW + 99) && !has(&record, "a", NOW + 100) && !has(&record, "x", NOW));
        record.end_login(&KeyDigest::of_key("a"));
        assert!(!has(&record, "a", NOW) && has(&record, "b", NOW));
        record.add_login(login("d", "key:default/k", NOW + 100), NOW + 100);
        assert_eq!(record.logins.len(), 1, "those that have expired are removed");
        record.close(NOW + 100);
        assert!(!has(&record, "d", NOW + 100));
    }

    #[test]
    fn the_oldest_login_of_its_holder_makes_room() {
        let mut record = ProjectRecord::default_project(NOW);
        record.add_login(login("other", "key:default/o", NOW), NOW);
        for at in 0..=LOGINS_OF_HOLDER_MAX as u64 {
            record.add_login(login(&at.to_string(), "key:default/k", NOW + at), NOW);
        }
        assert!(!has(&record, "0", NOW) && has(&record, "1", NOW) && has(&record, "other", NOW));
        assert_eq!(record.logins.len(), LOGINS_OF_HOLDER_MAX + 1);
    }

    #[test]
    fn a_project_has_a_bounded_number_of_logins() {
        let mut record = ProjectRecord::default_project(NOW);
        for at in 0..=LOGINS_MAX as u64 {
            record.add_login(login(&at.to_string(), &format!("holder {at}"), NOW + at % 50), NOW);
        }
        assert_eq!(record.logins.len(), LOGINS_MAX);
        assert!(!has(&record, "0", NOW) && has(&record, &LOGINS_MAX.to_string(), NOW));
    }
}
