//! The answer to the last direct message of a peer. The next one usually differs from it only in the id of the message, so
//! that it is made of it.

use actors::model::{MessageId, UNSET_ID};
use memchr::memmem;

use super::reply::CallResult;
use common::json::frame::JsonText;

/// All that an answer says of a message besides its id, where it says nothing else than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveredAtOnce {
    /// When it was delivered, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The length of the queue. None where it is not disclosed.
    pub queue_len: Option<usize>,
    /// The messages that wait for the sender.
    pub unread: usize,
    /// The request is modern.
    pub modern: bool,
}

/// The text of the last answer, and the buffer for the next.
#[derive(Debug, Default)]
pub struct LastAnswer {
    /// The result of the call.
    text: Vec<u8>,
    /// What it says, if the next answer can be made of it.
    says: Option<DeliveredAtOnce>,
    /// Where the id of the message is: in the text of the result and in its object.
    ids_at: [usize; 2],
    /// A buffer for the object.
    object: Vec<u8>,
}

impl LastAnswer {
    /// The result for the sender of a message. `write`, which writes the object of the result into an empty buffer, is called
    /// unless the last answer says the same of another message.
    pub fn next(
        &mut self,
        message: MessageId,
        says: Option<DeliveredAtOnce>,
        write: impl FnOnce(&mut Vec<u8>) -> CallResult<'_>,
    ) -> &[u8] {
        let mut buffer = [0; UNSET_ID.len()];
        let id = message.as_uuid().as_hyphenated().encode_lower(&mut buffer).as_bytes();
        if says.is_some() && says == self.says {
            for at in self.ids_at {
                self.text[at..at + id.len()].copy_from_slice(id);
            }
            return &self.text;
        }
        self.object.clear();
        self.text.clear();
        write(&mut self.object).write_to(&mut self.text);
        let mut places = memmem::find_iter(&self.text, id);
        let places = places.next().zip(places.next());
        self.says = says.filter(|_| places.is_some());
        self.ids_at = places.map_or([0; 2], |(first, second)| [first, second]);
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use actors::{clock::now, model::MessageIds};

    use super::*;
    use crate::mcp::reply::UnreadCount;

    #[test]
    fn an_answer_that_is_made_of_the_last_one_is_as_if_it_was_written() {
        let (mut last, ids) = (LastAnswer::default(), MessageIds::default());
        let mut answer = |says: Option<DeliveredAtOnce>, unread| {
            let (id, mut is_written) = (ids.next(now()), false);
            let text = last.next(id, says, |object| {
                is_written = true;
                object.extend_from_slice(format!("{{\"message_id\":\"{id}\"}}").as_bytes());
                CallResult {
                    modern: false,
                    object,
                    is_error: false,
                    unread: UnreadCount::Of(unread),
                }
            });
            let text = std::str::from_utf8(text).unwrap();
            let expected = format!(
                "{{\"content\":[{{\"type\":\"text\",\"text\":\"{{\\\"message_id\\\":\\\"{id}\\\",\\\"unread\\\":{unread}}}\"}}],\
                 \"structuredContent\":{{\"message_id\":\"{id}\",\"unread\":{unread}}},\"isError\":false,\
                 \"_meta\":{{\"dev.mcp-broker/unread\":{unread}}}}}"
            );
            assert_eq!(text, expected);
            is_written
        };
        let says = |unread| {
            Some(DeliveredAtOnce {
                at_ms: 7,
                queue_len: Some(0),
                unread,
                modern: false,
            })
        };
        assert_eq!(
            [answer(says(0), 0), answer(says(0), 0), answer(says(0), 0)],
            [true, false, false]
        );
        assert_eq!([answer(says(12), 12), answer(says(12), 12)], [true, false]);
        assert_eq!([answer(None, 12), answer(None, 12), answer(says(12), 12)], [true; 3]);
        assert!(!answer(says(12), 12));
    }
}
