//! The open calls of a link by number. A number is an index and a generation, so that finding a call is one look into a
//! list, and a late answer never finds the call that uses the place now. Pure.

use super::call::CallNumber;

/// Bits of a number that hold the index; the rest holds the generation. Numbers stay below 2^53, which every JSON parser
/// reads exactly.
const INDEX_BITS: u32 = 20;
const GENERATION_MAX: u64 = (1 << (53 - INDEX_BITS)) - 1;

/// Calls that one link may have open.
pub const SLOTS_MAX: usize = 1 << INDEX_BITS;

/// The open calls of a link.
#[derive(Debug)]
pub struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Slot<T> {
    /// The generation of the call that is in the slot, or that was in it last. The first is 1.
    generation: u64,
    call: Option<T>,
}

/// What a number is the id of.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// An open call.
    Open(T),
    /// A call that has ended or was cancelled.
    Late,
    /// This link has not used the number.
    Unknown,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    /// The number of open calls.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a call. `None` if too many are open.
    pub fn insert(&mut self, call: T) -> Option<CallNumber> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < SLOTS_MAX => {
                self.slots.push(Slot {
                    generation: 0,
                    call: None,
                });
                self.slots.len() - 1
            }
            None => return None,
        };
        let slot = &mut self.slots[index];
        slot.generation = if slot.generation < GENERATION_MAX {
            slot.generation + 1
        } else {
            1
        };
        slot.call = Some(call);
        Some(CallNumber(slot.generation << INDEX_BITS | index as u64))
    }

    /// The open calls.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.call.as_ref())
    }

    /// The number of the only open call. `None` if there are several or none.
    pub fn only(&self) -> Option<CallNumber> {
        let is_open = |(_, slot): &(usize, &Slot<T>)| slot.call.is_some();
        let mut open = self.slots.iter().enumerate().filter(is_open);
        let (index, slot) = open.next().filter(|_| self.len() == 1)?;
        Some(CallNumber(slot.generation << INDEX_BITS | index as u64))
    }

    /// Looks at an open call.
    pub fn get(&self, number: CallNumber) -> Found<&T> {
        match self.slot(number) {
            Some((index, generation)) => {
                let slot = &self.slots[index];
                match &slot.call {
                    Some(call) if slot.generation == generation => Found::Open(call),
                    _ if generation <= slot.generation => Found::Late,
                    _ => Found::Unknown,
                }
            }
            None => Found::Unknown,
        }
    }

    /// An open call, to be changed.
    pub fn get_mut(&mut self, number: CallNumber) -> Option<&mut T> {
        let (index, generation) = self.slot(number)?;
        let slot = &mut self.slots[index];
        slot.call.as_mut().filter(|_| slot.generation == generation)
    }

    /// Takes a call out.
    pub fn remove(&mut self, number: CallNumber) -> Found<T> {
        match self.get(number) {
            Found::Open(_) => {}
            Found::Late => return Found::Late,
            Found::Unknown => return Found::Unknown,
        }
        let Some((index, _)) = self.slot(number) else {
            return Found::Unknown;
        };
        match self.slots[index].call.take() {
            Some(call) => {
                self.free.push(index);
                Found::Open(call)
            }
            None => Found::Late,
        }
    }

    /// Takes all calls out, in no order.
    pub fn drain(&mut self) -> Vec<T> {
        let calls: Vec<T> = self.slots.iter_mut().filter_map(|slot| slot.call.take()).collect();
        self.free = (0..self.slots.len()).collect();
        calls
    }

    fn slot(&self, CallNumber(number): CallNumber) -> Option<(usize, u64)> {
        let generation = number >> INDEX_BITS;
        let index = usize::try_from(number & ((1 << INDEX_BITS) - 1)).ok()?;
        (generation > 0 && index < self.slots.len()).then_some((index, generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_finds_its_call_until_it_is_taken_out() {
        let mut slots = Slots::default();
        let (first, second) = (slots.insert("a").unwrap(), slots.insert("b").unwrap());
        assert_eq!((slots.len(), slots.only()), (2, None));
        assert_eq!(slots.get(first), Found::Open(&"a"));
        assert_eq!(slots.remove(second), Found::Open("b"));
        assert_eq!(slots.remove(second), Found::Late);
        assert_eq!(slots.only(), Some(first));
        assert_eq!(slots.remove(first), Found::Open("a"));
        assert_eq!((slots.len(), slots.only()), (0, None));
    }

    #[test]
    fn a_late_answer_does_not_find_the_call_that_has_the_place_now() {
        let mut slots = Slots::default();
        let first = slots.insert("a").unwrap();
        slots.remove(first);
        let second = slots.insert("b").unwrap();
        assert_ne!(first, second);
        assert_eq!(slots.remove(first), Found::Late);
        assert_eq!(slots.get(second), Found::Open(&"b"));
    }

    #[test]
    fn numbers_that_were_never_used_are_unknown() {
        let mut slots = Slots::default();
        let CallNumber(number) = slots.insert("a").unwrap();
        for other in [0, 1, 2, number + 1, number + (1 << INDEX_BITS), u64::MAX] {
            assert_eq!(slots.remove(CallNumber(other)), Found::Unknown, "{other}");
        }
        assert!(number < 1 << 53);
    }
}
