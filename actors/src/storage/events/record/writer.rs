//! Writes the fields of a record.

use crate::model::{EventKind, MessageId, SessionId};

/// Enough for the fields of fixed size of any record.
pub const FIXED_FIELDS_BYTES: usize = 96;

/// The time of a record next to that of its block, both in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub struct RecordTime {
    pub at_ms: u64,
    pub block_ms: u64,
}

impl RecordTime {
    const fn delta(self) -> u64 {
        zigzag(self.at_ms.wrapping_sub(self.block_ms).cast_signed())
    }
}

/// Writes the fields of one record at the end of the log. The length comes first: the record begins with as many bytes as it
/// usually takes, and [`FieldWriter::end`] moves the fields if it takes others.
pub struct FieldWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    length_bytes: usize,
}

impl<'a> FieldWriter<'a> {
    /// A record of less than 128 bytes, usually.
    #[inline]
    pub fn begin(out: &'a mut Vec<u8>, kind: EventKind, time: RecordTime) -> Self {
        Self::begin_with(1, out, kind, time)
    }

    #[inline]
    pub fn begin_with(length_bytes: usize, out: &'a mut Vec<u8>, kind: EventKind, time: RecordTime) -> Self {
        out.reserve(FIXED_FIELDS_BYTES);
        let start = out.len();
        out.extend_from_slice(&[0, 0][..length_bytes]);
        out.push(kind as u8);
        let fields = Self {
            out,
            start,
            length_bytes,
        };
        fields.number(time.delta())
    }

    #[inline]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.out.extend_from_slice(bytes);
        self
    }

    #[inline]
    pub fn byte(self, byte: u8) -> Self {
        self.out.push(byte);
        self
    }

    #[inline]
    pub fn message(self, id: MessageId) -> Self {
        self.bytes(id.as_uuid().as_bytes())
    }

    #[inline]
    pub fn session(self, id: SessionId) -> Self {
        self.bytes(id.as_uuid().as_bytes())
    }

    #[inline]
    pub fn number(self, value: u64) -> Self {
        write_number(self.out, value);
        self
    }

    /// A text with its length.
    #[inline]
    pub fn text(self, text: &[u8]) -> Self {
        self.number(text.len() as u64).bytes(text)
    }

    /// Writes the length.
    #[inline]
    pub fn end(self) {
        let fields_at = self.start + self.length_bytes;
        let len = self.out.len() - fields_at;
        match self.length_bytes {
            1 if len < 1 << 7 => self.out[self.start] = len as u8,
            2 if (1 << 7..1 << 14).contains(&len) => {
                self.out[self.start] = len as u8 | 0x80;
                self.out[self.start + 1] = (len >> 7) as u8;
            }
            _ => {
                let mut number = Vec::new();
                write_number(&mut number, len as u64);
                self.out.splice(self.start..fields_at, number);
            }
        }
    }
}

pub const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

pub const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

pub fn write_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
