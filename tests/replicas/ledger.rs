//! The accepted messages of a load and their arrivals: finds lost, repeated and reordered messages.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// The time limit until every accepted message has arrived after the faults. Far more than it takes.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(90);
/// Upgrades of other clients between two of one client.
const UPGRADES_APART: usize = 3;

/// The accepted messages and the messages that have arrived.
#[derive(Default)]
pub struct Ledger {
    book: Mutex<Book>,
    changed: Condvar,
    upgrades: AtomicUsize,
}

#[derive(Default)]
struct Book {
    /// By message.
    accepted: BTreeMap<String, Entry>,
    /// By message and recipient.
    arrivals: HashSet<(String, String)>,
    /// The number of the last message that arrived for the first time, by recipient and sender.
    last_new: HashMap<(String, String), u64>,
    out_of_order: Vec<String>,
    refusals: usize,
    reconnects: usize,
    reconnect_max: Duration,
    lost_http_calls: usize,
    /// First arrivals that lenses had transformed.
    transformed: usize,
}

struct Entry {
    text: String,
    audience: Vec<String>,
}

/// The result of a load.
#[derive(Debug)]
pub struct Balance {
    pub accepted: usize,
    /// Messages that arrived after a later one of the same sender, when both arrived for the first time.
    pub out_of_order: Vec<String>,
    /// How often a client lost its connection and registered again.
    pub reconnects: usize,
    /// The longest time that took.
    pub reconnect_max: Duration,
    /// Calls over HTTP without an answer of a broker.
    pub lost_http_calls: usize,
    /// Messages with each of their recipients.
    pub arrivals: usize,
    /// Those of them that lenses had transformed.
    pub transformed: usize,
}

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Upgrades the next client to its next version: client 0 first, and again every [`UPGRADES_APART`] upgrades.
    pub fn upgrade_next(&self) {
        self.upgrades.fetch_add(1, Ordering::SeqCst);
    }

    /// The version that this client speaks now, of so many. After the last one it goes back one version, and then returns.
    pub fn version_of(&self, client: usize, versions: usize) -> usize {
        let upgrades = self.upgrades.load(Ordering::SeqCst);
        let (own, last) = (
            upgrades.saturating_sub(client).div_ceil(UPGRADES_APART),
            versions.saturating_sub(1),
        );
        if own == last + 1 {
            last.saturating_sub(1)
        } else {
            own.min(last)
        }
    }

    /// Records that a sender has its answer. A repeat with the same text must return the same message.
    pub fn record_accepted(&self, id: &str, text: &str, audience: &[String]) {
        let entry = Entry {
            text: text.to_owned(),
            audience: audience.to_vec(),
        };
        let before = self.book().accepted.insert(id.to_owned(), entry);
        assert!(before.is_none_or(|before| before.text == text), "{id} is two messages");
        self.changed.notify_all();
    }

    /// Records an arrival. The text is the name of the sender and a growing number.
    pub fn record_arrival(&self, recipient: &str, id: &str, text: &str, is_transformed: bool) {
        let mut book = self.book();
        if book.arrivals.insert((id.to_owned(), recipient.to_owned())) {
            let (sender, number) = text.split_once(' ').unwrap();
            let number: u64 = number.parse().unwrap();
            let last = book
                .last_new
                .entry((recipient.to_owned(), sender.to_owned()))
                .or_default();
            let is_late = number < *last;
            *last = number.max(*last);
            book.transformed += usize::from(is_transformed);
            if is_late {
                book.out_of_order.push(format!("{text} at {recipient}"));
            }
        }
        drop(book);
        self.changed.notify_all();
    }

    /// The ids of the accepted messages so far.
    pub fn accepted(&self) -> HashSet<String> {
        self.book().accepted.keys().cloned().collect()
    }

    /// Records that a client is registered again, this long after it lost its connection.
    pub fn record_reconnect(&self, took: Duration) {
        let mut book = self.book();
        book.reconnects += 1;
        book.reconnect_max = book.reconnect_max.max(took);
    }

    pub fn record_lost_http_call(&self) {
        self.book().lost_http_calls += 1;
    }

    pub fn record_refusal(&self) {
        self.book().refusals += 1;
        self.changed.notify_all();
    }

    /// Waits until `len` further messages are accepted.
    pub fn await_more_accepted(&self, len: usize) {
        let wanted = self.book().accepted.len() + len;
        self.await_book(&format!("{wanted} accepted messages"), |book| {
            book.accepted.len() >= wanted
        });
    }

    /// Waits until each of `senders` senders has a further message accepted.
    pub fn await_one_more_of_each(&self, senders: usize) {
        let before = self.book().accepted_by_sender();
        self.await_book("a further message of each sender", |book| {
            let by_sender = book.accepted_by_sender();
            let has_more = |(sender, len): (&String, &usize)| *len > before.get(sender).copied().unwrap_or(0);
            by_sender.iter().filter(|&sender| has_more(sender)).count() >= senders
        });
    }

    /// Waits until `len` further calls were refused with `unavailable`.
    pub fn await_more_refusals(&self, len: usize) {
        let wanted = self.book().refusals + len;
        self.await_book(&format!("{wanted} refusals"), |book| book.refusals >= wanted);
    }

    /// Waits until everything that was accepted has arrived.
    pub fn await_all_arrived(&self) -> Balance {
        self.await_book("all that was accepted has arrived", |book| {
            book.missing().next().is_none()
        });
        let book = self.book();
        Balance {
            accepted: book.accepted.len(),
            out_of_order: book.out_of_order.clone(),
            reconnects: book.reconnects,
            reconnect_max: book.reconnect_max,
            lost_http_calls: book.lost_http_calls,
            arrivals: book.arrivals.len(),
            transformed: book.transformed,
        }
    }

    fn await_book(&self, what: &str, is_so: impl Fn(&Book) -> bool) {
        let deadline = Instant::now() + ARRIVAL_TIMEOUT;
        let mut book = self.book();
        while !is_so(&book) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let missing: Vec<_> = book.missing().take(20).collect();
                panic!(
                    "timed out: {what}; {} accepted, {} refusals; missing: {missing:#?}",
                    book.accepted.len(),
                    book.refusals
                );
            }
            let waited = self.changed.wait_timeout(book, left.min(Duration::from_secs(1)));
            book = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Book {
    fn accepted_by_sender(&self) -> HashMap<String, usize> {
        let mut len_of = HashMap::new();
        for entry in self.accepted.values() {
            let (sender, _) = entry.text.split_once(' ').unwrap();
            *len_of.entry(sender.to_owned()).or_default() += 1;
        }
        len_of
    }

    fn missing(&self) -> impl Iterator<Item = (&String, &String, &String)> {
        self.accepted.iter().flat_map(|(id, entry)| {
            let missing = entry
                .audience
                .iter()
                .filter(|recipient| !self.arrivals.contains(&(id.clone(), (*recipient).clone())));
            missing.map(move |recipient| (id, &entry.text, recipient))
        })
    }
}
