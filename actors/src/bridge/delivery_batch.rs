//! A delivery batch: messages that the store leased to sessions of one replica in the operation that accepted them.
//! Only sessions that this replica has claimed and that have push delivery started are leased to in this way.
//!
//! The channel of the replica carries the messages first, each in its stored form, and then a trailer that says who
//! they are for: the byte `P`, the version (4 bytes, big-endian), the length of the project id (2 bytes, big-endian),
//! the id, and the recipients in the store's own format.

use bytes::Bytes;

use super::{FRAME_VERSION, FrameError};
use crate::model::ProjectId;

/// The first byte of a trailer. No stored message begins with it.
const TRAILER_MARK: u8 = b'P';

/// Messages for sessions of one project. The store decodes the recipients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryBatch {
    /// The project of all recipients.
    pub project: ProjectId,
    /// In their stored form.
    pub messages: Vec<Bytes>,
    /// The recipients, in the store's own format.
    pub recipients: Bytes,
}

impl DeliveryBatch {
    /// The first bytes of the trailer for a project; the recipients follow.
    pub fn trailer_head(project: &ProjectId) -> Vec<u8> {
        let id = project.as_str().as_bytes();
        // A project id has at most 63 bytes.
        let len = u16::try_from(id.len()).unwrap_or(u16::MAX);
        [
            &[TRAILER_MARK][..],
            &FRAME_VERSION.to_be_bytes(),
            &len.to_be_bytes(),
            id,
        ]
        .concat()
    }

    /// Whether these bytes are the trailer of a batch.
    pub fn is_trailer(part: &[u8]) -> bool {
        part.first() == Some(&TRAILER_MARK)
    }

    /// Reads a batch from its messages and its trailer.
    ///
    /// # Errors
    /// [`FrameError::Version`] for a batch of another version, [`FrameError::Malformed`] for a trailer that is cut
    /// short or names no project.
    pub fn parse(messages: Vec<Bytes>, last: &Bytes) -> Result<Self, FrameError> {
        let malformed = || FrameError::Malformed("the trailer of a delivery batch is cut short".to_owned());
        let rest = last.strip_prefix(&[TRAILER_MARK]).ok_or_else(malformed)?;
        let (version, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
        match u32::from_be_bytes(*version) {
            FRAME_VERSION => {}
            other => return Err(FrameError::Version(other)),
        }
        let (len, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
        let (id, addresses) = rest
            .split_at_checked(u16::from_be_bytes(*len).into())
            .ok_or_else(malformed)?;
        let id = std::str::from_utf8(id).map_err(|error| FrameError::Malformed(error.to_string()))?;
        Ok(Self {
            project: ProjectId::parse(id).map_err(|error| FrameError::Malformed(error.to_string()))?,
            messages,
            recipients: last.slice_ref(addresses),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_batch_is_read_back() {
        let project = ProjectId::parse("acme").unwrap();
        let last = [&DeliveryBatch::trailer_head(&project)[..], b"addresses"].concat();
        let messages = vec![Bytes::from_static(b"message")];
        let batch = DeliveryBatch::parse(messages.clone(), &last.clone().into()).unwrap();
        let addresses = Bytes::from_static(b"addresses");
        assert_eq!(
            batch,
            DeliveryBatch {
                project,
                messages,
                recipients: addresses
            }
        );
        assert!(DeliveryBatch::is_trailer(&last) && !DeliveryBatch::is_trailer(b"message"));
        for len in 0..last.len() - b"addresses".len() {
            let cut = last[..len].to_vec().into();
            assert!(DeliveryBatch::parse(Vec::new(), &cut).is_err(), "{len} bytes");
        }
        let mut newer = last;
        newer[4] += 1;
        let error = FrameError::Version(FRAME_VERSION + 1);
        assert_eq!(DeliveryBatch::parse(Vec::new(), &newer.into()), Err(error));
    }
}
