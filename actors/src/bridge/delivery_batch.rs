//! Messages that the store has handed over to a replica in the operation that accepted them: for sessions that the
//! replica has in hand and that take messages by push ([`Store::stand_by`](crate::storage::Store::stand_by)).
//!
//! On the channel of the replica come the messages, each as it is stored, and then what says for whom they are: `P`, a
//! version, the length of the id of the project, the id, and the store's own.

use bytes::Bytes;

use super::{FRAME_VERSION, FrameError};
use crate::model::ProjectId;

/// No message begins like this.
const TRAILER_MARK: u8 = b'P';

/// To be read by [`Store::unpack`](crate::storage::Store::unpack).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryBatch {
    pub project: ProjectId,
    /// As they are stored.
    pub messages: Vec<Bytes>,
    /// Who gets them.
    pub recipients: Bytes,
}

impl DeliveryBatch {
    /// How the last part of a parcel begins.
    #[must_use]
    pub fn trailer_head(project: &ProjectId) -> Vec<u8> {
        let id = project.as_str().as_bytes();
        // An id is far shorter than that.
        let len = u16::try_from(id.len()).unwrap_or(u16::MAX);
        [
            &[TRAILER_MARK][..],
            &FRAME_VERSION.to_be_bytes(),
            &len.to_be_bytes(),
            id,
        ]
        .concat()
    }

    #[must_use]
    pub fn is_trailer(part: &[u8]) -> bool {
        part.first() == Some(&TRAILER_MARK)
    }

    /// # Errors
    /// When it is of another version, or not a parcel.
    pub fn parse(messages: Vec<Bytes>, last: &Bytes) -> Result<Self, FrameError> {
        let malformed = || FrameError::Malformed("a parcel is cut short".to_owned());
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
    fn a_parcel_is_read_as_it_was_made() {
        let project = ProjectId::parse("acme").unwrap();
        let last = [&DeliveryBatch::trailer_head(&project)[..], b"addresses"].concat();
        let messages = vec![Bytes::from_static(b"message")];
        let parcel = DeliveryBatch::parse(messages.clone(), &last.clone().into()).unwrap();
        let addresses = Bytes::from_static(b"addresses");
        assert_eq!(
            parcel,
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
