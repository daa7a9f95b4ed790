//! The id of a request whose frame is too long to be kept, found while the frame is skipped, so that the request is
//! refused under its id. Most clients write the id at the end of a frame. Pure.

use memchr::memchr2;

use super::rpc::{ID_LEN_MAX, is_id};

/// Bytes of a member's name or value that are kept: the longest id with its quotation marks.
const TOKEN_LEN_MAX: usize = ID_LEN_MAX + 2;

/// Reads a JSON object in pieces and finds its member `id`. Takes time in proportion to the bytes, and keeps at most
/// [`TOKEN_LEN_MAX`] of them twice. Text that is no object, such as a batch, has no id.
#[derive(Debug, Default)]
pub struct SkippedFrame {
    place: Place,
    /// Brackets that are open.
    depth: u64,
    string: StringState,
    /// The name or value of the object's current member, cut off after one byte more than may be kept.
    token: Vec<u8>,
    /// The current member is `id`, and its name has ended.
    is_id: bool,
    id: Option<String>,
    /// The object has a member `method`.
    is_request: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Before the first byte of the object.
    #[default]
    Start,
    Object,
    /// After the object, or in text that is none.
    Over,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StringState {
    #[default]
    Outside,
    Inside,
    /// After a backslash.
    Escaped,
}

impl SkippedFrame {
    /// A frame that begins with these bytes.
    pub fn beginning_with(bytes: &[u8]) -> Self {
        let mut frame = Self::default();
        frame.skip(bytes);
        frame
    }

    /// Reads the next bytes of the frame.
    pub fn skip(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            bytes = rest;
            match self.place {
                Place::Start if byte == b'{' => (self.place, self.depth) = (Place::Object, 1),
                Place::Start if !byte.is_ascii_whitespace() => self.place = Place::Over,
                Place::Object => self.in_object(byte),
                Place::Start => {}
                Place::Over => return,
            }
            // Most bytes of a long frame are in strings that are not kept.
            if self.string == StringState::Inside && !self.keeps() {
                let at = memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
                bytes = &bytes[at..];
            }
        }
    }

    /// The id, as JSON, if what was skipped is a request. An error with the id of a response would look like the answer to
    /// another request.
    pub fn into_id(self) -> Option<String> {
        self.id.filter(|id| self.is_request && is_id(id))
    }

    /// The id, as JSON, if what was skipped is a response. It may be a value that no id should have.
    pub fn into_response_id(self) -> Option<String> {
        self.id.filter(|_| !self.is_request)
    }

    fn in_object(&mut self, byte: u8) {
        if self.string != StringState::Outside {
            self.string = match (self.string, byte) {
                (StringState::Inside, b'\\') => StringState::Escaped,
                (StringState::Inside, b'"') => StringState::Outside,
                _ => StringState::Inside,
            };
            return self.keep(byte);
        }
        match byte {
            b'"' => {
                self.string = StringState::Inside;
                self.keep(byte);
            }
            b'{' | b'[' => {
                // A value in brackets is no id.
                self.keep(byte);
                self.depth += 1;
            }
            b'}' | b']' if self.depth > 1 => self.depth -= 1,
            b'}' | b']' => {
                self.end_member();
                self.place = Place::Over;
            }
            b':' if self.depth == 1 => {
                self.is_id = self.token == b"\"id\"";
                self.is_request |= self.token == b"\"method\"";
                self.token.clear();
            }
            b',' if self.depth == 1 => self.end_member(),
            _ if byte.is_ascii_whitespace() => {}
            _ => self.keep(byte),
        }
    }

    fn keeps(&self) -> bool {
        self.depth == 1 && self.token.len() <= TOKEN_LEN_MAX
    }

    fn keep(&mut self, byte: u8) {
        if self.keeps() {
            self.token.push(byte);
        }
    }

    fn end_member(&mut self) {
        if std::mem::take(&mut self.is_id) {
            self.id = str::from_utf8(&self.token).ok().map(str::to_owned);
        }
        self.token.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::mcp::rpc::{self, Incoming};

    fn id_in(text: &str, piece: usize) -> Option<String> {
        let mut frame = SkippedFrame::default();
        text.as_bytes().chunks(piece).for_each(|piece| frame.skip(piece));
        assert!(frame.token.len() <= TOKEN_LEN_MAX + 1);
        frame.into_id()
    }

    #[test]
    fn the_id_is_found_wherever_it_is() {
        let long = "x".repeat(10_000);
        let params = json!({"id": 1, "x": [{"id": "no"}, "\"id\":3,}", long]});
        for (id, found) in [
            ("7", true),
            ("-3", true),
            ("\"a b\"", true),
            ("\"\\\"id\\\":4,}{\"", true),
            ("null", false),
            ("1.5", false),
            ("{\"id\":1}", false),
            ("[1]", false),
            ("tru", false),
        ] {
            for text in [
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"m\",\"params\":{params}}}"),
                format!(" {{ \"method\" : \"m\" , \"params\" : {params} , \"id\" : {id} , \"jsonrpc\" : \"2.0\" }} "),
                format!("{{\"method\":\"m\",\"params\":{params},\"jsonrpc\":\"2.0\",\"id\":{id}}}"),
            ] {
                for piece in [1, 7, usize::MAX] {
                    assert_eq!(id_in(&text, piece).as_deref(), found.then_some(id), "{text}");
                }
            }
        }
        let too_long = format!("{{\"method\":\"m\",\"id\":\"{}\"}}", "x".repeat(ID_LEN_MAX));
        for none in [
            "",
            "[{\"method\":\"m\",\"id\":1}]",
            "\"method\":\"m\",\"id\":1",
            "{\"method\":\"m\",\"params\":{\"id\":1}}",
            "{\"method\":\"m\",\"id\":1",
            "{} {\"method\":\"m\",\"id\":1}",
            "{\"id\":1,\"result\":{\"method\":\"m\"}}",
            &too_long,
        ] {
            assert_eq!(id_in(none, usize::MAX), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_parser_of_frames(
            id in prop_oneof![any::<i64>().prop_map(|id| json!(id)), any::<String>().prop_map(|id| json!(id))],
            texts in proptest::collection::vec(any::<String>(), 0..5),
            place in 0_usize..4,
            piece in 1_usize..50,
        ) {
            let mut members = vec![
                ("jsonrpc".to_owned(), json!("2.0")),
                ("method".to_owned(), json!("m")),
                ("params".to_owned(), texts.iter().map(|text| (text.clone(), json!([text]))).collect::<Value>()),
            ];
            members.insert(place, ("id".to_owned(), id));
            let members: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
            let text = format!("{{{}}}", members.join(","));
            let Ok(Incoming::Request { id, .. }) = rpc::parse(&text) else {
                return Ok(());
            };
            let found = id_in(&text, piece);
            prop_assert_eq!(found.as_deref(), Some(id));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(prop::sample::select(b"{}[]\":,\\id1 \xff".to_vec()), 0..100)) {
            SkippedFrame::beginning_with(&bytes).into_id();
        }
    }
}
