//! Numbers, ids and texts as bytes. Numbers are big-endian, so that keys ascend as they do.

use uuid::Uuid;

use crate::{
    model::{MessageId, ProjectId, SessionId},
    storage::StoreError,
};

pub type Decoded<T> = Result<T, StoreError>;

/// What was written by another version, or by chance.
pub fn damaged(what: &str) -> StoreError {
    StoreError::Unreachable(format!("a record cannot be read: {what}"))
}

#[derive(Debug, Default)]
pub struct RecordWriter(pub Vec<u8>);

impl RecordWriter {
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    pub fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub fn u32(self, value: u32) -> Self {
        self.rest(&value.to_be_bytes())
    }

    pub fn u64(self, value: u64) -> Self {
        self.rest(&value.to_be_bytes())
    }

    pub fn session(self, id: SessionId) -> Self {
        self.rest(id.as_uuid().as_bytes())
    }

    pub fn message(self, id: MessageId) -> Self {
        self.rest(id.as_uuid().as_bytes())
    }

    pub fn text(self, text: &str) -> Self {
        self.u32(text.len() as u32).rest(text.as_bytes())
    }

    /// A byte that says whether it is there, and then what `write` writes.
    pub fn option<T>(self, value: Option<T>, write: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            None => self.u8(0),
            Some(value) => write(self.u8(1), value),
        }
    }

    /// Bytes whose length nobody needs to be told.
    pub fn rest(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

#[derive(Debug)]
pub struct RecordReader<'a>(pub &'a [u8]);

impl<'a> RecordReader<'a> {
    pub fn u8(&mut self) -> Decoded<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u32(&mut self) -> Decoded<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Decoded<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub fn uuid(&mut self) -> Decoded<Uuid> {
        self.array().map(Uuid::from_bytes)
    }

    pub fn session(&mut self) -> Decoded<SessionId> {
        self.uuid().map(SessionId::from_uuid)
    }

    pub fn message(&mut self) -> Decoded<MessageId> {
        self.uuid().map(MessageId::from_uuid)
    }

    pub fn text(&mut self) -> Decoded<&'a str> {
        let len = self.u32()? as usize;
        std::str::from_utf8(self.bytes(len)?).map_err(|_| damaged("a text is no UTF-8"))
    }

    pub fn project(&mut self) -> Decoded<ProjectId> {
        ProjectId::parse(self.text()?).map_err(|_| damaged("a project id is none"))
    }

    pub fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Decoded<T>) -> Decoded<Option<T>> {
        match self.u8()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            _ => Err(damaged("neither there nor not")),
        }
    }

    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn bytes(&mut self, len: usize) -> Decoded<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or_else(|| damaged("it is too short"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk().ok_or_else(|| damaged("it is too short"))?;
        self.0 = rest;
        Ok(*array)
    }
}
