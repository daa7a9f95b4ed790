//! The receipts compared with a model that keeps everything and learns what the receipts may forget.

use std::collections::{BTreeMap, HashSet};

use proptest::{collection::vec, prelude::*, sample::Index};
use uuid::Uuid;

use super::*;
use crate::model::{DeadLetterReason, OutcomeKind};

const LEN_MAX: usize = 12;

#[derive(Clone, Debug)]
enum Step {
    /// Accepts a message with this id for this number of sessions.
    Accept { id: u16, sessions: usize },
    /// Sets the status of one entry.
    Set { entry: Index, status: DeliveryStatus },
    /// Redrives a final entry to this session.
    Requeue { entry: Index, session: u8 },
    /// Rebuilds the receipts from what a journal has persisted.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let status = prop::sample::select(vec![
        DeliveryStatus::Queued,
        DeliveryStatus::Delivered,
        DeliveryStatus::Acknowledged,
        DeliveryStatus::Expired,
        DeliveryStatus::DeadLettered(DeadLetterReason::DeliveryLimit),
    ]);
    // Mostly ascending ids, as a router creates them; the model skips ids that are in use.
    let step = (0..40_u16, 0..6_usize, any::<Index>(), status, 0..8_u8, 0..20).prop_map(
        |(offset, sessions, entry, status, session, kind)| match kind {
            0..8 => Step::Accept { id: offset, sessions },
            8..17 => Step::Set { entry, status },
            17 => Step::Restart,
            _ => Step::Requeue { entry, session },
        },
    );
    vec(step, 1..150)
}

#[derive(Default)]
struct Model {
    /// By receipt number: the message and its entries.
    receipts: BTreeMap<u64, (MessageId, Vec<RecipientStatus>)>,
    /// Receipts below this number were evicted from `recent`.
    base: u64,
}

impl Model {
    fn evict(&mut self) {
        let len = |model: &Self| {
            model
                .receipts
                .range(model.base..)
                .map(|(_, (_, all))| all.len())
                .sum::<usize>()
        };
        while len(self) > LEN_MAX {
            self.base += 1;
        }
    }

    /// The entries that must be reported for a message: all in `recent`, and every open one.
    fn expected(&self, id: MessageId) -> HashSet<(SessionId, DeliveryStatus, u64)> {
        let of_it = self.receipts.iter().filter(|(_, (other, _))| *other == id);
        of_it
            .flat_map(|(number, (_, all))| all.iter().filter(move |e| *number >= self.base || !e.status.is_final()))
            .map(|entry| (entry.session, entry.status, entry.at_ms))
            .collect()
    }

    /// The final entries in `recent`, and all open entries.
    fn journalled(&self) -> Vec<(ReceiptKey, MessageId, RecipientStatus)> {
        let keys = self.keys().into_iter();
        let entries = keys.map(|key| {
            let (id, all) = &self.receipts[&key.receipt];
            (key, *id, all[key.recipient_index as usize].clone())
        });
        entries
            .filter(|(key, _, entry)| key.receipt >= self.base || !entry.status.is_final())
            .collect()
    }

    /// Receipts that were in `recent` are there again. So are receipts of which only the last entries were forgotten.
    fn restarted(&mut self, base: u64) {
        assert!(base <= self.base);
        for (_, (_, all)) in self.receipts.range_mut(base..self.base) {
            let open_len = all.iter().take_while(|entry| !entry.status.is_final()).count();
            assert!(all[open_len..].iter().all(|entry| entry.status.is_final()));
            all.truncate(open_len);
        }
        self.base = base;
    }

    fn keys(&self) -> Vec<ReceiptKey> {
        let keys = |(&receipt, (_, all)): (&u64, &(MessageId, Vec<RecipientStatus>))| {
            (0..all.len() as u32)
                .map(move |recipient| ReceiptKey {
                    receipt,
                    recipient_index: recipient,
                })
                .collect::<Vec<_>>()
        };
        self.receipts.iter().flat_map(keys).collect()
    }

    fn entry(&mut self, key: ReceiptKey) -> (MessageId, &mut RecipientStatus) {
        let (id, all) = self.receipts.get_mut(&key.receipt).expect("a key of the model");
        (*id, &mut all[key.recipient_index as usize])
    }
}

fn id(number: u128) -> MessageId {
    MessageId::from_uuid(Uuid::from_u128(number))
}

fn session(number: u128) -> SessionId {
    SessionId::from_uuid(Uuid::from_u128(number))
}

fn run(steps: Vec<Step>) {
    let (mut receipts, mut model) = (Receipts::new(LEN_MAX), Model::default());
    let (mut ids, mut next_id) = (HashSet::new(), 100_u128);
    for (at_ms, step) in (0..).zip(steps) {
        match step {
            Step::Accept { id: offset, sessions } => {
                let new = id(next_id + u128::from(offset) - 20);
                if sessions == 0 || !ids.insert(new) {
                    continue;
                }
                next_id += 3;
                accept(&mut receipts, &mut model, new, sessions, at_ms);
            }
            Step::Set { entry, status } => set(&mut receipts, &mut model, entry, status, at_ms),
            Step::Requeue { entry, session: to } => {
                requeue(&mut receipts, &mut model, entry, session(to.into()), at_ms);
            }
            Step::Restart => {
                receipts = Receipts::new(LEN_MAX);
                receipts.restore(model.journalled(), &mut ());
                model.restarted(receipts.first_number);
            }
        }
        check(&receipts, &model, &ids);
    }
}

fn accept(receipts: &mut Receipts, model: &mut Model, id: MessageId, count: usize, at_ms: u64) {
    let sessions: Vec<_> = (0..count as u128).map(session).collect();
    let number = receipts.next_key(0).receipt;
    match sessions[..] {
        [only] => receipts.accept_one(id, only, at_ms, &mut ()),
        _ => receipts.accept_many(id, &sessions, at_ms, &mut ()),
    }
    let entries = sessions.iter().map(|&session| queued(session, at_ms)).collect();
    model.receipts.insert(number, (id, entries));
    model.evict();
}

fn set(receipts: &mut Receipts, model: &mut Model, entry: Index, status: DeliveryStatus, at_ms: u64) {
    let keys = model.keys();
    if keys.is_empty() {
        return;
    }
    let key = *entry.get(&keys);
    let (id, entry) = model.entry(key);
    // As in the store, only a redrive reopens a final entry.
    if !entry.status.is_final() {
        (entry.status, entry.at_ms) = (status, at_ms);
        receipts.set(key, id, status, at_ms, &mut ());
    }
}

fn requeue(receipts: &mut Receipts, model: &mut Model, entry: Index, to: SessionId, at_ms: u64) {
    let keys: Vec<_> = model
        .keys()
        .into_iter()
        .filter(|&key| model.entry(key).1.status.is_final())
        .collect();
    if keys.is_empty() {
        return;
    }
    let (id, _) = model.entry(*entry.get(&keys));
    let open = model
        .expected(id)
        .iter()
        .any(|(session, status, _)| *session == to && !status.is_final());
    assert_eq!(receipts.is_open(id, to), open);
    if open {
        return;
    }
    let key = receipts.requeue(id, to, at_ms, &mut ());
    let (other, entries) = model.receipts.entry(key.receipt).or_insert((id, Vec::new()));
    assert_eq!(*other, id, "the key of another message");
    let place = key.recipient_index as usize;
    if place == entries.len() {
        entries.push(queued(to, at_ms));
    }
    assert_eq!(entries[place].session, to, "the key of another recipient");
    entries[place] = queued(to, at_ms);
    model.evict();
}

fn check(receipts: &Receipts, model: &Model, ids: &HashSet<MessageId>) {
    let mut open = 0;
    for id in ids.iter().copied().chain([79, 110, 150, 100_000].map(id)) {
        let told = receipts.get(id);
        assert_ne!(told, Some(Vec::new()));
        let told: HashSet<_> = told
            .into_iter()
            .flatten()
            .map(|entry| (entry.session, entry.status, entry.at_ms))
            .collect();
        open += told.iter().filter(|(_, status, _)| !status.is_final()).count();
        assert_eq!(told, model.expected(id), "{id}");
    }
    assert!(receipts.len <= LEN_MAX && receipts.recent.len() <= LEN_MAX && receipts.out_of_order.len() <= LEN_MAX);
    assert!(receipts.evicted_open.values().map(Vec::len).sum::<usize>() <= open);
    assert!(receipts.evicted_open.values().all(|entries| !entries.is_empty()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn receipts_agree_with_the_model_and_forget_only_final_entries(steps in steps()) {
        run(steps);
    }
}

const fn key(receipt: u64, recipient: u32) -> ReceiptKey {
    ReceiptKey {
        receipt,
        recipient_index: recipient,
    }
}

fn status(receipts: &Receipts, id: MessageId) -> Option<DeliveryStatus> {
    receipts.get(id).map(|entries| entries[0].status)
}

#[test]
fn an_entry_is_found_by_its_key_after_a_restart_with_gaps_around_it() {
    let gap = [key(3, 0), key(5, 0), key(6, 0)];
    let hole = [key(3, 0), key(4, 0), key(5, 1)];
    let hole_before_the_last = [key(3, 0), key(4, 1), key(5, 0)];
    for keys in [gap, hole, hole_before_the_last] {
        let mut receipts = Receipts::new(LEN_MAX);
        let id_of = |key: ReceiptKey| id(key.receipt.into());
        let entry = |&key: &ReceiptKey| (key, id_of(key), queued(session(1), 0));
        receipts.restore(keys.iter().map(entry).collect(), &mut ());
        let next = receipts.next_key(0);
        assert_eq!(next, key(keys[2].receipt + 1, 0), "a key of its own for the next one");
        receipts.accept_one(id_of(next), session(1), 0, &mut ());
        for moved in [keys[0], keys[1], keys[2], next] {
            receipts.set(moved, id_of(moved), DeliveryStatus::Delivered, 1, &mut ());
            assert_eq!(
                status(&receipts, id_of(moved)),
                Some(DeliveryStatus::Delivered),
                "{moved:?}"
            );
            receipts.set(moved, id_of(moved), DeliveryStatus::Queued, 2, &mut ());
        }
    }
}

/// A message has two receipts if it was redriven after the first had been evicted.
#[test]
fn a_message_with_two_receipts_reports_both_after_a_restart() {
    let mut receipts = Receipts::new(LEN_MAX);
    let entries = vec![
        (key(0, 0), id(9), queued(session(1), 0)),
        (key(1, 0), id(9), queued(session(2), 1)),
    ];
    receipts.restore(entries, &mut ());
    let told = |receipts: &Receipts| receipts.get(id(9)).map_or(0, |entries| entries.len());
    assert_eq!(told(&receipts), 2);
    assert!(receipts.is_open(id(9), session(1)) && receipts.is_open(id(9), session(2)));
    receipts.set(key(0, 0), id(9), DeliveryStatus::Acknowledged, 2, &mut ());
    assert_eq!(told(&receipts), 1);
    assert!(receipts.is_open(id(9), session(2)));
}

#[test]
fn ascending_ids_need_no_memory_beyond_the_queue() {
    let mut receipts = Receipts::new(LEN_MAX);
    for number in 0..3 * LEN_MAX as u128 {
        receipts.accept_one(id(number), session(1), 0, &mut ());
        assert!(receipts.out_of_order.is_empty());
    }
}

/// A journal that keeps the receipts as a disk does.
#[derive(Default)]
struct KeptReceipts(BTreeMap<ReceiptKey, RecipientStatus>);

impl Journal for KeptReceipts {
    const KEEPS_EVENTS: bool = false;

    fn record(&mut self, change: Change<'_>) {
        match change {
            Change::ReceiptFinal { key, entry, .. } => drop(self.0.insert(key, entry.clone())),
            Change::ReceiptRemoved(key) => drop(self.0.remove(&key)),
            _ => {}
        }
    }
}

#[test]
fn notes_take_the_room_of_receipts() {
    let mut kept = KeptReceipts::default();
    let mut receipts = Receipts::new(100);
    let note = Outcome::new(OutcomeKind::Done, &"x".repeat(1000));
    assert_eq!(note.receipts_len(), 16);
    for number in 1..=50 {
        let key = receipts.next_key(0);
        receipts.accept_one(id(number), session(1), 0, &mut kept);
        receipts.set(key, id(number), DeliveryStatus::Acknowledged, 1, &mut kept);
        receipts.set_outcome(key, id(number), &note, &mut kept);
    }
    // 100 / 17 receipts with such a note are kept, in memory and by the journal.
    let known = |receipts: &Receipts, number| receipts.get(id(number)).map(|all| all[0].outcome.clone());
    let of_45_and_46 = [None, Some(Some(note))];
    assert_eq!([known(&receipts, 45), known(&receipts, 46)], of_45_and_46);
    assert_eq!(kept.0.len(), 5);

    let stored = kept
        .0
        .iter()
        .map(|(key, entry)| (*key, id(u128::from(key.receipt) + 1), entry.clone()));
    let mut restored = Receipts::new(100);
    restored.restore(stored.collect(), &mut ());
    assert_eq!([known(&restored, 45), known(&restored, 46)], of_45_and_46);
}
