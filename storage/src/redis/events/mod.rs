//! The event log of a project in Redis: a stream of blocks (`scripts/events.lua`).
//!
//! `buffer` gathers what this replica causes, `writer` appends it to the stream behind the operations, `reader` reads
//! pages. Released messages, dead letters and redrives are recorded by the functions.

pub(super) mod buffer;
mod reader;
mod writer;

use actors::storage::StoreError;

use super::reply::unreadable;

/// The bits of the number of a block that hold the sequence number in the id of the stream: as many blocks may be
/// appended while the clock of the server does not move or goes back.
const SEQ_BITS: u32 = 22;

/// The id of a block in the stream: milliseconds by the clock of the server, and a sequence number. As the number of a
/// block in a position it is one integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BlockId(u64);

impl BlockId {
    /// The id of no block: below all others.
    const NONE: Self = Self(0);

    /// The first id of a millisecond.
    const fn first_of(ms: u64) -> Self {
        Self(ms << SEQ_BITS)
    }

    /// # Errors
    /// When this is no id of a stream.
    fn parse(text: &[u8]) -> Result<Self, StoreError> {
        let parsed = std::str::from_utf8(text).ok().and_then(|text| {
            let (ms, seq) = text.split_once('-')?;
            let (ms, seq): (u64, u64) = (ms.parse().ok()?, seq.parse().ok()?);
            (ms < 1 << (64 - SEQ_BITS) && seq < 1 << SEQ_BITS).then_some(Self(ms << SEQ_BITS | seq))
        });
        parsed.ok_or_else(|| unreadable("the id of a block of events"))
    }

    const fn ms(self) -> u64 {
        self.0 >> SEQ_BITS
    }

    const fn seq(self) -> u64 {
        self.0 & ((1 << SEQ_BITS) - 1)
    }

    /// As an argument of `XRANGE`.
    fn text(self) -> String {
        format!("{}-{}", self.ms(), self.seq())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_block_is_its_id() {
        for text in ["0-0", "1790000000000-0", "1790000000000-4194303"] {
            assert_eq!(BlockId::parse(text.as_bytes()).unwrap().text(), text);
        }
        let ids = ["1-0", "1-1", "2-0", "1790000000000-7"].map(|text| BlockId::parse(text.as_bytes()).unwrap());
        assert!(ids.is_sorted() && BlockId::NONE < ids[0]);
        for text in ["", "1", "1-", "-1", "1-4194304", "4398046511104-0", "a-b"] {
            assert!(BlockId::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
