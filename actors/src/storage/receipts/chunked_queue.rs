use std::collections::VecDeque;

/// How much is allocated at once. Tests cross the seams often.
const CHUNK_LEN: usize = if cfg!(test) { 4 } else { 1024 };

/// A queue that never moves what it holds. A `VecDeque` of a million receipts stands still for some milliseconds each
/// time it doubles, and everybody with it.
#[derive(Debug)]
pub(super) struct ChunkedQueue<T> {
    /// All but the last hold [`CHUNK`] items, of which the first has lost `taken`.
    chunks: VecDeque<VecDeque<T>>,
    first_chunk_consumed: usize,
    len: usize,
    /// The last chunk that was emptied, to be filled again.
    spare: VecDeque<T>,
}

impl<T> ChunkedQueue<T> {
    pub const fn new() -> Self {
        Self {
            chunks: VecDeque::new(),
            first_chunk_consumed: 0,
            len: 0,
            spare: VecDeque::new(),
        }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, at: usize) -> Option<&T> {
        let (chunk, at) = self.position(at);
        self.chunks.get(chunk)?.get(at)
    }

    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        let (chunk, at) = self.position(at);
        self.chunks.get_mut(chunk)?.get_mut(at)
    }

    pub fn push_back(&mut self, item: T) {
        let (chunk, _) = self.position(self.len);
        if chunk == self.chunks.len() {
            self.chunks.push_back(std::mem::take(&mut self.spare));
        }
        self.chunks[chunk].push_back(item);
        self.len += 1;
    }

    pub fn pop_front(&mut self) -> Option<T> {
        let item = self.chunks.front_mut()?.pop_front()?;
        self.len -= 1;
        self.first_chunk_consumed += 1;
        if self.first_chunk_consumed == CHUNK_LEN {
            self.first_chunk_consumed = 0;
            self.spare = self.chunks.pop_front()?;
        }
        Some(item)
    }

    /// In which chunk an item is, and where in it.
    const fn position(&self, at: usize) -> (usize, usize) {
        let from_start = at + self.first_chunk_consumed;
        let taken = if from_start < CHUNK_LEN {
            self.first_chunk_consumed
        } else {
            0
        };
        (from_start / CHUNK_LEN, from_start % CHUNK_LEN - taken)
    }
}

impl<T> std::ops::Index<usize> for ChunkedQueue<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        let (chunk, at) = self.position(at);
        &self.chunks[chunk][at]
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn a_ring_is_a_queue(pushes in vec(any::<bool>(), 0..100)) {
            let (mut ring, mut queue) = (ChunkedQueue::new(), VecDeque::new());
            for (number, push) in pushes.into_iter().enumerate() {
                if push {
                    ring.push_back(number);
                    queue.push_back(number);
                } else {
                    prop_assert_eq!(ring.pop_front(), queue.pop_front());
                }
                let items: Vec<_> = (0..ring.len()).map(|at| ring[at]).collect();
                prop_assert_eq!(items, Vec::from(queue.clone()));
                prop_assert_eq!(ring.get(queue.len()), None);
                prop_assert_eq!(ring.get_mut(queue.len()), None);
            }
        }
    }
}
