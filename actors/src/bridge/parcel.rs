//! Messages that the store has handed over to a replica in the operation that accepted them: for sessions that the
//! replica has in hand and that take messages by push ([`Store::stand_by`](crate::storage::Store::stand_by)).
//!
//! A version, the length of the id of the project, the id; what follows is the store's own ([`Parcel::contents`]).

use bytes::Bytes;

use super::{FrameError, VERSION};
use crate::model::ProjectId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    pub project: ProjectId,
    /// For [`Store::unpack`](crate::storage::Store::unpack).
    pub contents: Bytes,
}

impl Parcel {
    /// How a parcel begins.
    #[must_use]
    pub fn head(project: &ProjectId) -> Vec<u8> {
        let id = project.as_str().as_bytes();
        // An id is far shorter than that.
        let len = u16::try_from(id.len()).unwrap_or(u16::MAX);
        [&VERSION.to_be_bytes()[..], &len.to_be_bytes(), id].concat()
    }

    /// # Errors
    /// When it is of another version, or not a parcel.
    pub fn parse(bytes: Bytes) -> Result<Self, FrameError> {
        let malformed = || FrameError::Malformed("a parcel is cut short".to_owned());
        let (version, rest) = bytes.split_first_chunk().ok_or_else(malformed)?;
        match u32::from_be_bytes(*version) {
            VERSION => {}
            other => return Err(FrameError::Version(other)),
        }
        let (len, rest) = rest.split_first_chunk().ok_or_else(malformed)?;
        let (id, contents) = rest
            .split_at_checked(u16::from_be_bytes(*len).into())
            .ok_or_else(malformed)?;
        let id = std::str::from_utf8(id).map_err(|error| FrameError::Malformed(error.to_string()))?;
        Ok(Self {
            project: ProjectId::parse(id).map_err(|error| FrameError::Malformed(error.to_string()))?,
            contents: bytes.slice_ref(contents),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parcel_is_read_as_it_was_made() {
        let project = ProjectId::parse("acme").unwrap();
        let bytes = [&Parcel::head(&project)[..], b"contents"].concat();
        let parcel = Parcel::parse(bytes.clone().into()).unwrap();
        assert_eq!((parcel.project, &parcel.contents[..]), (project, &b"contents"[..]));
        for len in 0..bytes.len() - b"contents".len() {
            assert!(Parcel::parse(bytes[..len].to_vec().into()).is_err(), "{len} bytes");
        }
        let mut newer = bytes;
        newer[3] += 1;
        assert_eq!(Parcel::parse(newer.into()), Err(FrameError::Version(VERSION + 1)));
    }
}
