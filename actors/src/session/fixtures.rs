//! Messages for the tests of the parts of a session.

use crate::{
    clock::Now,
    model::{Addressing, Headers, MessageIds, NewMessage, ProjectId, SessionId, SessionRecord},
    storage::Delivery,
};

/// The present of these tests.
pub const NOW: Now = Now {
    unix_ms: 1_800_000_000_000,
    mono_ms: 5000,
};

/// The first delivery of a message to this recipient, or of a broadcast.
pub fn delivery(ids: &MessageIds, recipient: Option<SessionId>, is_tracked: bool) -> Delivery {
    let sender = SessionRecord::unnamed();
    let (project, headers) = (ProjectId::default_project(), Headers::default());
    let to = if recipient.is_some() {
        Addressing::Direct
    } else {
        Addressing::Broadcast
    };
    let draft = NewMessage::new(&project, &sender, to, ("chat", "1.0.0"), "{}", &headers);
    Delivery {
        message: draft.seal(ids.next(NOW), recipient, NOW, is_tracked),
        count: 1,
    }
}
