//! Numbers, ids and texts as bytes. Numbers are big-endian, so that keys sort in the order of the numbers.

use uuid::Uuid;

use crate::{
    model::{MessageId, ProjectId, QuestionId, SessionId},
    storage::StoreError,
};

/// The result of decoding a record.
pub type Decoded<T> = Result<T, StoreError>;

/// The error for a record that another version wrote, or that is damaged.
pub fn damaged(what: &str) -> StoreError {
    StoreError::Unreachable(format!("a record cannot be read: {what}"))
}

/// Encodes a key or a value.
#[derive(Debug, Default)]
pub struct RecordWriter(pub Vec<u8>);

impl RecordWriter {
    /// An empty record with room for this many bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    /// Appends a byte.
    pub fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    /// Appends 4 bytes.
    pub fn u32(self, value: u32) -> Self {
        self.rest(&value.to_be_bytes())
    }

    /// Appends 8 bytes.
    pub fn u64(self, value: u64) -> Self {
        self.rest(&value.to_be_bytes())
    }

    /// Appends the 16 bytes of an id.
    pub fn session(self, id: SessionId) -> Self {
        self.rest(id.as_uuid().as_bytes())
    }

    /// Appends the 16 bytes of an id.
    pub fn message(self, id: MessageId) -> Self {
        self.rest(id.as_uuid().as_bytes())
    }

    /// Appends the 16 bytes of an id.
    pub fn question(self, id: QuestionId) -> Self {
        self.rest(id.as_uuid().as_bytes())
    }

    /// Appends the length as 4 bytes, and the text.
    pub fn text(self, text: &str) -> Self {
        self.u32(text.len() as u32).rest(text.as_bytes())
    }

    /// A byte that says whether the value is present, followed by what `write` appends.
    pub fn option<T>(self, value: Option<T>, write: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            None => self.u8(0),
            Some(value) => write(self.u8(1), value),
        }
    }

    /// Bytes without a length, at the end of a record.
    pub fn rest(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// Decodes a key or a value; holds the bytes that remain.
#[derive(Debug)]
pub struct RecordReader<'a>(pub &'a [u8]);

impl<'a> RecordReader<'a> {
    /// Reads a byte.
    ///
    /// # Errors
    /// If the record is too short.
    pub fn u8(&mut self) -> Decoded<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads 4 bytes.
    ///
    /// # Errors
    /// If the record is too short.
    pub fn u32(&mut self) -> Decoded<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads 8 bytes.
    ///
    /// # Errors
    /// If the record is too short.
    pub fn u64(&mut self) -> Decoded<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads 16 bytes.
    ///
    /// # Errors
    /// If the record is too short.
    pub fn uuid(&mut self) -> Decoded<Uuid> {
        self.array().map(Uuid::from_bytes)
    }

    /// Reads an id.
    ///
    /// # Errors
    /// If the record is too short.
    pub fn session(&mut self) -> Decoded<SessionId> {
        self.uuid().map(SessionId::from_uuid)
    }

    /// Reads an id.
    ///
    /// # Errors
    /// If the record is too short.
    pub fn message(&mut self) -> Decoded<MessageId> {
        self.uuid().map(MessageId::from_uuid)
    }

    /// Reads an id.
    ///
    /// # Errors
    /// If the record is too short.
    pub fn question(&mut self) -> Decoded<QuestionId> {
        self.uuid().map(QuestionId::from_uuid)
    }

    /// Reads a text with its length.
    ///
    /// # Errors
    /// If the record is too short or the text is not UTF-8.
    pub fn text(&mut self) -> Decoded<&'a str> {
        let len = self.u32()? as usize;
        std::str::from_utf8(self.bytes(len)?).map_err(|_| damaged("a text is not UTF-8"))
    }

    /// Reads a project id with its length.
    ///
    /// # Errors
    /// If the record is too short or the text is not a project id.
    pub fn project(&mut self) -> Decoded<ProjectId> {
        ProjectId::parse(self.text()?).map_err(|_| damaged("an invalid project id"))
    }

    /// Reads an optional value.
    ///
    /// # Errors
    /// Those of `read`, and if the byte before the value is neither 0 nor 1.
    pub fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Decoded<T>) -> Decoded<Option<T>> {
        match self.u8()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            _ => Err(damaged("a presence byte other than 0 and 1")),
        }
    }

    /// Returns all bytes that remain.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn bytes(&mut self, len: usize) -> Decoded<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or_else(|| damaged("too short"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk().ok_or_else(|| damaged("too short"))?;
        self.0 = rest;
        Ok(*array)
    }
}
