//! The names of sessions by their ids, for tables that people read.

use std::collections::HashMap;

use rest::sessions::Session;

use super::lists::Pages;
use crate::client::{Client, parsed};

/// Sessions of which the names are asked for. The others are shown by their ids.
const SESSIONS_MAX: usize = 1000;

/// The names of sessions by their ids. Bounded by what the broker answered and by what [`Names::learn`] adds.
#[derive(Debug, Default)]
pub struct Names(HashMap<String, String>);

impl Names {
    /// Asks the broker for the names of its sessions. A broker that does not answer has no names: ids are shown then.
    pub fn ask(client: &Client) -> Self {
        let path = "/api/v1/sessions?status=all".to_owned();
        let mut pages = Pages::new(client, path, "sessions", SESSIONS_MAX, SESSIONS_MAX);
        let mut names = Self::default();
        while let Ok(Some(page)) = pages.next_page() {
            for session in page {
                if let Ok(Session {
                    session_id,
                    name: Some(name),
                    ..
                }) = parsed(session.get())
                {
                    names.learn(session_id, name);
                }
            }
        }
        names
    }

    /// Remembers a name. Beyond ten times the first number of names it forgets all, so that a long run stays bounded.
    pub fn learn(&mut self, session: String, name: String) {
        if self.0.len() >= 10 * SESSIONS_MAX {
            self.0.clear();
        }
        self.0.insert(session, name);
    }

    /// The name of a session, or else its id.
    pub fn of<'a>(&'a self, session: &'a str) -> &'a str {
        self.0.get(session).map_or(session, String::as_str)
    }
}
