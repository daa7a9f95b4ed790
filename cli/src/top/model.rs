//! What `top` shows, and what keys and answers of the broker change. Pure: time is an argument.

use std::collections::{HashMap, VecDeque};

use actors::clock::rfc3339_text;

use super::data::{Detail, Snapshot};
use super::grid::{Grid, Row, Sort};
use super::watched::{SESSIONS_MAX, Tab, Target, Watched};
use crate::screen::Key;

/// Events that are kept for the view.
const EVENTS_MAX: usize = 500;
/// Sessions and messages that may be opened one from the other.
const OPEN_MAX: usize = 16;
/// The longest filter, in characters.
const FILTER_CHARS_MAX: usize = 32;
/// The longest filter that the broker takes.
const BROKER_FILTER_BYTES_MAX: usize = 32;
/// Rows that the keys for a page move.
const PAGE_ROWS: usize = 10;
/// What the broker calls the columns of the view of sessions.
const SESSION_SORTS: [Option<&str>; 6] = [
    Some("name"),
    Some("status"),
    Some("queue_size"),
    Some("last_heartbeat"),
    Some("connection_time"),
    None,
];
/// The most points of a chart that are kept.
pub const CHART_POINTS_MAX: usize = 200;

/// What a key asks of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    Nothing,
    Quit,
    Watch(Watched),
}

/// What the feed brings.
#[derive(Debug)]
pub enum Update {
    Polled(Box<Snapshot>),
    Failed(String),
    Event(String),
}

/// Changes of the counters per second; unknown before the second look and after a restart of the broker.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rates {
    pub accepted: Option<f64>,
    pub delivered: Option<f64>,
    pub acknowledged: Option<f64>,
    pub refused: Option<f64>,
}

/// The time since which the broker has not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    pub since_ms: u64,
    pub reason: String,
}

/// What is shown.
#[derive(Debug)]
pub struct Model {
    pub url: String,
    pub has_colours: bool,
    pub now_ms: u64,
    pub snapshot: Option<Box<Snapshot>>,
    pub rates: Rates,
    pub outage: Option<Outage>,
    pub tab: Tab,
    pub filter: String,
    pub is_typing: bool,
    pub shows_help: bool,
    /// What is opened, each from the one before.
    pub open: Vec<Target>,
    /// The selected row of the present list.
    pub selected: usize,
    sorts: HashMap<Tab, Sort>,
    events: VecDeque<String>,
    names: HashMap<String, String>,
}

impl Model {
    /// Before the first answer.
    pub fn new(url: &str, has_colours: bool) -> Self {
        Self {
            url: url.to_owned(),
            has_colours,
            now_ms: 0,
            snapshot: None,
            rates: Rates::default(),
            outage: None,
            tab: Tab::default(),
            filter: String::new(),
            is_typing: false,
            shows_help: false,
            open: Vec::new(),
            selected: 0,
            sorts: HashMap::new(),
            events: VecDeque::new(),
            names: HashMap::new(),
        }
    }

    /// Time passes.
    pub fn tick(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// When the time that is shown is another one, in milliseconds since the Unix epoch: an outage is shown in seconds.
    pub fn next_tick_ms(&self) -> Option<u64> {
        self.outage.as_ref().map(|_| self.now_ms + 1000)
    }

    /// Takes in what the feed brings.
    pub fn apply(&mut self, update: Update, now_ms: u64) {
        match update {
            Update::Polled(snapshot) => self.take(snapshot),
            Update::Failed(reason) => {
                let since_ms = self.outage.as_ref().map_or(now_ms, |outage| outage.since_ms);
                self.outage = Some(Outage { since_ms, reason });
                self.rates = Rates::default();
            }
            Update::Event(line) => {
                if self.events.len() >= EVENTS_MAX {
                    self.events.pop_front();
                }
                self.events.push_back(line);
            }
        }
    }

    fn take(&mut self, mut snapshot: Box<Snapshot>) {
        self.outage = None;
        if let Some(old) = &mut self.snapshot {
            self.rates = rates(old, &snapshot);
            // Lists of other views stay until they are asked for again.
            if self.tab != Tab::Sessions {
                std::mem::swap(&mut snapshot.sessions, &mut old.sessions);
                snapshot.more_sessions = old.more_sessions;
            }
        }
        let named = snapshot.sessions.iter();
        self.names = named
            .filter_map(|session| Some((session.session_id.clone(), session.name.clone()?)))
            .collect();
        self.snapshot = Some(snapshot);
        self.selected = self.selected.min(self.last_row());
    }

    /// The name of a session, or else its id.
    pub fn name_of(&self, session: &str) -> String {
        self.names.get(session).cloned().unwrap_or_else(|| session.to_owned())
    }

    /// How the present list is sorted.
    pub fn sort(&self) -> Sort {
        self.sorts.get(&self.tab).copied().unwrap_or_default()
    }

    /// The present list: that of the view, or that of what is opened. `None` where the opened thing has none yet.
    pub fn grid(&self) -> Option<Grid> {
        let snapshot = self.snapshot.as_ref()?;
        let name_of = |session: &str| self.name_of(session);
        let now = rfc3339_text(self.now_ms);
        if self.open.is_empty() {
            let events: Vec<String> = self.events.iter().cloned().collect();
            let grid = Grid::of(self.tab, snapshot, &events, &now, name_of);
            return Some(grid.filtered(&self.filter).sorted(self.sort()));
        }
        match &snapshot.detail {
            Some(Detail::Session(_, messages)) => Some(Grid::of_messages(messages, &now, name_of)),
            _ => None,
        }
    }

    fn rows(&self) -> Vec<Row> {
        self.grid().map_or_else(Vec::new, |grid| grid.rows)
    }

    /// The last row that can be selected; of the life of a message, the last line to which it can be scrolled.
    fn last_row(&self) -> usize {
        let detail = self.snapshot.as_ref().and_then(|snapshot| snapshot.detail.as_ref());
        let len = match detail {
            Some(Detail::Message(life)) if !self.open.is_empty() => life
                .recipients
                .iter()
                .map(|recipient| recipient.events.len().max(1))
                .sum(),
            _ => self.rows().len(),
        };
        len.saturating_sub(1)
    }

    /// What a key does.
    pub fn press(&mut self, key: Key) -> Wish {
        if key == Key::Ctrl('c') {
            return Wish::Quit;
        }
        if self.is_typing {
            return self.type_filter(key);
        }
        if self.shows_help {
            self.shows_help = false;
            return Wish::Nothing;
        }
        let last = self.last_row();
        match key {
            Key::Char('q') => return Wish::Quit,
            Key::Char('?') => self.shows_help = true,
            Key::Char('/') if self.open.is_empty() => self.is_typing = true,
            Key::Char('s') => {
                self.sort_by_next();
                return self.watch_again();
            }
            Key::Char('r') => {
                self.sorts.entry(self.tab).or_default().is_reversed ^= true;
                return self.watch_again();
            }
            Key::Char(digit @ '1'..='7') => {
                let index = digit as usize - '1' as usize;
                return self.show(Tab::ALL[index]);
            }
            Key::Tab => return self.show(Tab::ALL[(self.tab.index() + 1) % Tab::ALL.len()]),
            Key::BackTab => return self.show(Tab::ALL[(self.tab.index() + Tab::ALL.len() - 1) % Tab::ALL.len()]),
            Key::Up | Key::Char('k') => self.selected = self.selected.saturating_sub(1),
            Key::Down | Key::Char('j') => self.selected = (self.selected + 1).min(last),
            Key::PageUp => self.selected = self.selected.saturating_sub(PAGE_ROWS),
            Key::PageDown => self.selected = (self.selected + PAGE_ROWS).min(last),
            Key::Home => self.selected = 0,
            Key::End => self.selected = last,
            Key::Enter => return self.open_selected(),
            Key::Escape | Key::Backspace => return self.go_back(),
            _ => {}
        }
        Wish::Nothing
    }

    fn type_filter(&mut self, key: Key) -> Wish {
        match key {
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.is_typing = false;
                self.filter.clear();
            }
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Char(c) => self.type_text(c.encode_utf8(&mut [0; 4])),
            Key::Paste(text) => self.type_text(&text),
            _ => {}
        }
        self.selected = 0;
        if self.is_typing {
            Wish::Nothing
        } else {
            self.watch_again()
        }
    }

    fn type_text(&mut self, text: &str) {
        let room = FILTER_CHARS_MAX.saturating_sub(self.filter.chars().count());
        self.filter.extend(text.chars().filter(|c| !c.is_control()).take(room));
    }

    fn sort_by_next(&mut self) {
        let Some(columns) = self.grid().map(|grid| grid.headings.len()) else {
            return;
        };
        let sort = self.sorts.entry(self.tab).or_default();
        sort.column = match sort.column {
            None => Some(0),
            Some(column) if column + 1 < columns => Some(column + 1),
            Some(_) => None,
        };
    }

    fn show(&mut self, tab: Tab) -> Wish {
        self.tab = tab;
        self.open.clear();
        self.filter.clear();
        self.selected = 0;
        self.watch()
    }

    fn open_selected(&mut self) -> Wish {
        let target = self.rows().into_iter().nth(self.selected).and_then(|row| row.target);
        let Some(target) = target.filter(|_| self.open.len() < OPEN_MAX) else {
            return Wish::Nothing;
        };
        self.open.push(target);
        self.selected = 0;
        self.watch()
    }

    fn go_back(&mut self) -> Wish {
        if self.open.pop().is_some() {
            self.selected = 0;
            return self.watch();
        }
        self.filter.clear();
        self.watch_again()
    }

    /// Asks for what is shown now. What was opened before is not shown for it.
    fn watch(&mut self) -> Wish {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.detail = None;
        }
        Wish::Watch(self.watched())
    }

    /// Asks for sessions in another order or with another filter. Other lists are sorted and filtered here.
    fn watch_again(&self) -> Wish {
        match self.tab {
            Tab::Sessions => Wish::Watch(self.watched()),
            _ => Wish::Nothing,
        }
    }

    fn watched(&self) -> Watched {
        let sort = self.sort();
        let column = sort.column.and_then(|column| *SESSION_SORTS.get(column)?);
        let stats = self.snapshot.as_ref().map(|snapshot| &snapshot.stats.sessions);
        let sessions = stats.map_or(0, |stats| stats.active + stats.stale + stats.disconnected);
        let has_more = sessions > SESSIONS_MAX as u64;
        let filter = Some(self.filter.clone())
            .filter(|filter| has_more && (1..=BROKER_FILTER_BYTES_MAX).contains(&filter.len()));
        Watched {
            tab: self.tab,
            target: self.open.last().cloned(),
            session_sort: column
                .map(|column| (column, sort.is_reversed))
                .filter(|_| self.tab == Tab::Sessions),
            session_filter: filter.filter(|_| self.tab == Tab::Sessions),
        }
    }

    /// The last points of a chart, oldest first.
    pub fn chart(&self, figure: &str) -> Vec<u64> {
        let series = self
            .snapshot
            .as_ref()
            .and_then(|snapshot| snapshot.stats.series.as_ref());
        let points = series.and_then(|series| series.points.get(figure));
        let Some(points) = points else { return Vec::new() };
        let first = points.len().saturating_sub(CHART_POINTS_MAX);
        points[first..].iter().map(|point| point.map_or(0, whole)).collect()
    }
}

/// A point of a chart as a whole number that is not negative.
#[allow(clippy::cast_sign_loss, reason = "a negative or absent point is 0")]
fn whole(point: f64) -> u64 {
    point.max(0.0).round() as u64
}

#[allow(clippy::cast_precision_loss, reason = "rates are shown with a few digits")]
fn rates(old: &Snapshot, new: &Snapshot) -> Rates {
    let seconds = new.at_ms.saturating_sub(old.at_ms) as f64 / 1000.0;
    let rate = |old: u64, new: u64| (seconds > 0.0 && new >= old).then(|| (new - old) as f64 / seconds);
    let (old, new) = (&old.stats.messages, &new.stats.messages);
    Rates {
        accepted: rate(old.accepted, new.accepted),
        delivered: rate(old.delivered, new.delivered),
        acknowledged: rate(old.acknowledged, new.acknowledged),
        refused: rate(old.refused, new.refused),
    }
}
