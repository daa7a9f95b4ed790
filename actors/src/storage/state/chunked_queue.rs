//! A queue whose growth never moves its items.

use std::collections::VecDeque;

/// Items per allocation. Small in tests, so that they cross chunk borders often.
const CHUNK_LEN: usize = if cfg!(test) { 4 } else { 1024 };

/// A queue that allocates in chunks and never moves an item. A `VecDeque` of a million receipts stops the project for
/// some milliseconds each time it doubles.
#[derive(Debug)]
pub struct ChunkedQueue<T> {
    /// Every chunk but the last was filled with [`CHUNK_LEN`] items; the first has lost `first_chunk_consumed` of them.
    chunks: VecDeque<VecDeque<T>>,
    first_chunk_consumed: usize,
    len: usize,
    /// The last chunk that became empty, reused for the next.
    spare: VecDeque<T>,
}

impl<T> ChunkedQueue<T> {
    /// An empty queue.
    pub const fn new() -> Self {
        Self {
            chunks: VecDeque::new(),
            first_chunk_consumed: 0,
            len: 0,
            spare: VecDeque::new(),
        }
    }

    /// The number of items.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The item at an index; None past the end.
    pub fn get(&self, at: usize) -> Option<&T> {
        let (chunk, at) = self.position(at);
        self.chunks.get(chunk)?.get(at)
    }

    /// The item at an index, to be changed; None past the end.
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        let (chunk, at) = self.position(at);
        self.chunks.get_mut(chunk)?.get_mut(at)
    }

    /// Appends an item.
    pub fn push_back(&mut self, item: T) {
        let (chunk, _) = self.position(self.len);
        if chunk == self.chunks.len() {
            self.chunks.push_back(std::mem::take(&mut self.spare));
        }
        self.chunks[chunk].push_back(item);
        self.len += 1;
    }

    /// Removes the first item; None if the queue is empty.
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

    /// The chunk of an item and its index there.
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
        fn a_chunked_queue_behaves_like_a_vec_deque(pushes in vec(any::<bool>(), 0..100)) {
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
