//! The threads that ask the broker. They end with the process.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use actors::clock::now;
use rest::{
    backends::{Backend, Backends},
    messages::{ListedMessage, MessageLife},
    sessions::Session,
    stats::Stats,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::data::{Detail, Snapshot};
use super::model::Update;
use super::watched::{SESSIONS_MAX, Tab, Target, Watched};
use crate::client::{Client, ClientError, parameter, parsed, percent_encoded, with_query};
use crate::operate::{EventStream, Frame, Names, Pages, event_line};
use crate::screen::Updates;
use crate::short::SCREENS_ARE_UTC;

/// Messages and dead letters that are shown.
const MESSAGES_MAX: usize = 200;
/// The time of the charts.
const WINDOW: &str = "30m";

/// The way to the broker, whose answers go to the screen as they come.
pub struct Feed {
    watched: Sender<Watched>,
}

impl Feed {
    /// Starts to look at the broker, at once and then in this interval.
    pub fn start(client: &Client, interval: Duration, updates: &Updates<Update>) -> Self {
        let (watched, wishes) = mpsc::channel();
        let poller = Poller {
            client: client.clone(),
            watched: Watched::default(),
        };
        let stream = EventStream::new(client, None, None);
        let client = client.clone();
        updates.spawn(move |updates| poller.run(interval, &updates, &wishes));
        updates.spawn(move |updates| follow(stream, &client, &updates));
        Self { watched }
    }

    /// Changes what is asked for.
    pub fn watch(&self, watched: Watched) {
        // The poller ends with the process.
        let _ = self.watched.send(watched);
    }
}

struct Poller {
    client: Client,
    watched: Watched,
}

impl Poller {
    fn run(mut self, interval: Duration, updates: &Updates<Update>, wishes: &Receiver<Watched>) {
        loop {
            let begun = Instant::now();
            let update = match self.look() {
                Ok(snapshot) => Update::Polled(Box::new(snapshot)),
                Err(error) => Update::Failed(error.line),
            };
            if !updates.send(update) {
                return;
            }
            match wishes.recv_timeout(interval.saturating_sub(begun.elapsed())) {
                Ok(watched) => self.watched = watched,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // Of several wishes the last one holds.
            while let Ok(watched) = wishes.try_recv() {
                self.watched = watched;
            }
        }
    }

    fn look(&self) -> Result<Snapshot, ClientError> {
        let stats: Stats = self.client.get(format!("/api/v1/stats?window={WINDOW}"))?;
        let mut snapshot = Snapshot {
            at_ms: now().unix_ms,
            stats,
            ..Snapshot::default()
        };
        match self.watched.tab {
            Tab::Sessions => {
                let (sessions, more) = self.list(&self.sessions_path(), "sessions", SESSIONS_MAX)?;
                (snapshot.sessions, snapshot.more_sessions) = (sessions, more);
            }
            Tab::Messages => (snapshot.messages, _) = self.list("/api/v1/messages", "messages", MESSAGES_MAX)?,
            Tab::DeadLetters => {
                (snapshot.dead_letters, _) = self.list("/api/v1/dead-letters", "dead_letters", MESSAGES_MAX)?;
            }
            // A key may not be allowed to see them; the figures are shown all the same.
            Tab::Desk => {
                let questions = self.list("/api/v1/questions", "questions", MESSAGES_MAX);
                (snapshot.questions, _) = questions.unwrap_or_default();
            }
            Tab::Backends => snapshot.backends = self.backends().unwrap_or_default(),
            Tab::Replicas | Tab::Events => {}
        }
        snapshot.detail = self
            .watched
            .target
            .as_ref()
            .map(|target| self.detail(target).unwrap_or_else(|error| Detail::Refused(error.line)));
        Ok(snapshot)
    }

    fn backends(&self) -> Result<Vec<Backend>, ClientError> {
        self.client
            .get::<Backends>("/api/v1/backends")
            .map(|answer| answer.backends)
    }

    fn sessions_path(&self) -> String {
        let Watched {
            session_sort,
            session_filter,
            ..
        } = &self.watched;
        let order = match session_sort {
            Some((_, true)) => Some("order=desc".to_owned()),
            _ => None,
        };
        let sort = parameter("sort", session_sort.map(|(sort, _)| sort));
        let filter = parameter("q", session_filter.as_ref());
        with_query("/api/v1/sessions?status=all", [sort, order, filter])
    }

    fn detail(&self, target: &Target) -> Result<Detail, ClientError> {
        match target {
            Target::Session(id) => {
                let session: Session = self.client.get(format!("/api/v1/sessions/{}", percent_encoded(id)))?;
                let path = with_query("/api/v1/messages", [parameter("session", Some(id))]);
                let (messages, _) = self.list::<ListedMessage>(&path, "messages", MESSAGES_MAX)?;
                Ok(Detail::Session(Box::new(session), messages))
            }
            Target::Message(id) => {
                let life: MessageLife = self.client.get(format!("/api/v1/messages/{}", percent_encoded(id)))?;
                Ok(Detail::Message(Box::new(life)))
            }
        }
    }

    /// The first items of a list, and whether there are more.
    fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        member: &'static str,
        most: usize,
    ) -> Result<(Vec<T>, bool), ClientError> {
        let mut pages = Pages::new(&self.client, path.to_owned(), member, most, most);
        let mut items = Vec::new();
        // A page may be empty and still be followed by another; a screen does not need all of them.
        if let Some(page) = pages.next_page()? {
            for item in page {
                items.push(parsed(item.get())?);
            }
        }
        Ok((items, pages.has_more()))
    }
}

/// Hands on the events as lines.
fn follow(mut stream: EventStream, client: &Client, updates: &Updates<Update>) {
    let mut names = Names::ask(client);
    loop {
        match stream.next() {
            Ok(Frame::Event { topic, data, .. }) => {
                let data: Value = serde_json::from_str(&data).unwrap_or_default();
                let line = event_line::line(&topic, &data, &mut names, SCREENS_ARE_UTC);
                if !updates.send(Update::Event(line)) {
                    return;
                }
            }
            Ok(Frame::Heartbeat) => {}
            Err(_) => names = Names::ask(client),
        }
    }
}
