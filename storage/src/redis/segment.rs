//! Segments as Redis holds them: what is stored of the messages of one entry of an inbox (`scripts/messages.lua`).
//!
//! For each message: the length of what is stored of it, the length of its envelope (4 bytes each, big-endian), what is
//! stored ([`Message::write_stored`]). A single message is a segment of one.

use actors::{model::Message, storage::StoreError};

use super::reply::unreadable;

/// Most messages of a segment: the flags of its entry hold their number less one in four bits.
pub(super) const LEN_MAX: usize = 16;
/// Most bytes of the envelopes of a segment of several messages.
pub(super) const BYTES_MAX: usize = 128 * 1024;

/// Bytes before each message.
const HEAD_LEN: usize = 8;
/// Where the number of messages is in the flags.
const LEN_SHIFT: u8 = 4;

/// The flags of a segment of so many plain messages.
pub(super) const fn flags_of_len(len: usize) -> u8 {
    (len.saturating_sub(1) as u8) << LEN_SHIFT
}

/// The number of messages of the segment with these flags.
pub(super) const fn len_of_flags(flags: u8) -> usize {
    (flags >> LEN_SHIFT) as usize + 1
}

/// Adds a message.
pub(super) fn push(segment: &mut Vec<u8>, message: &Message) {
    let head_at = segment.len();
    segment.extend([0; 4]);
    segment.extend(envelope_len(message).to_be_bytes());
    message.write_stored(segment);
    // A message is shorter than 4 GiB: more cannot be sent.
    let stored_len = (segment.len() - head_at - HEAD_LEN) as u32;
    segment[head_at..head_at + 4].copy_from_slice(&stored_len.to_be_bytes());
}

/// The bytes that [`push`] adds.
pub(super) fn capacity_for(message: &Message) -> usize {
    HEAD_LEN + message.stored_len()
}

/// The length of the envelope of a message, in bytes, as budgets count it.
pub(super) fn envelope_len(message: &Message) -> u32 {
    u32::try_from(message.encoded_len(1)).unwrap_or(u32::MAX)
}

/// Calls `read` with what is stored of each message.
///
/// # Errors
/// `Unreachable` when this is no segment, and what `read` returns.
pub(super) fn for_each(
    mut segment: &[u8],
    mut read: impl FnMut(&[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    while !segment.is_empty() {
        let (message, rest) = split_first(segment).ok_or_else(|| unreadable("a segment"))?;
        read(message)?;
        segment = rest;
    }
    Ok(())
}

/// The number of messages, as far as this is a segment.
pub(super) fn len(mut segment: &[u8]) -> usize {
    let mut len = 0;
    while let Some((_, rest)) = split_first(segment) {
        len += 1;
        segment = rest;
    }
    len
}

fn split_first(segment: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = segment.split_first_chunk::<HEAD_LEN>()?;
    let (len, _) = head.split_first_chunk()?;
    rest.split_at_checked(u32::from_be_bytes(*len) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(messages: &[&[u8]]) -> Vec<u8> {
        let with_head = |message: &&[u8]| {
            let len = (message.len() as u32).to_be_bytes();
            [&len[..], &[0; 4], message].concat()
        };
        messages.iter().flat_map(with_head).collect()
    }

    #[test]
    fn a_segment_gives_its_messages_in_order() {
        let stored = segment(&[b"first", b"", b"third"]);
        let mut read = Vec::new();
        for_each(&stored, |message| {
            read.push(message.to_vec());
            Ok(())
        })
        .unwrap();
        assert_eq!(read, [&b"first"[..], b"", b"third"]);
        assert_eq!(len(&stored), 3);
    }

    #[test]
    fn a_truncated_segment_is_refused() {
        let stored = segment(&[b"first", b"second"]);
        assert!(for_each(&stored[..stored.len() - 1], |_| Ok(())).is_err());
        assert_eq!(len(&stored[..stored.len() - 1]), 1);
    }

    #[test]
    fn flags_hold_the_number_of_messages() {
        for len in 1..=LEN_MAX {
            assert_eq!(len_of_flags(flags_of_len(len)), len);
        }
    }
}
