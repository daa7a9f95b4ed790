//! Dead letters: lists, counts and redrives. Dead letters of messages to other projects are in the stores of those
//! projects.

use std::collections::BTreeMap;

use super::{Page, ProjectHandle};
use crate::{
    clock::now,
    model::{BrokerError, DeadLetter, MessageId, PageRoom, SessionId, SessionName},
    session::ReadBudget,
    storage::{BlockedDeadLetter, DeadLetterPage, DeadLetterQuery, Redriven, envelope_bytes},
};

/// The parameters of a redrive.
pub struct RedriveRequest {
    /// The dead letters, by message id.
    pub messages: Vec<MessageId>,
    /// None: the original recipients.
    pub recipient: Option<SessionId>,
}

impl ProjectHandle {
    /// A page of the dead letters of this project and of its messages to others. A dead letter larger than the byte
    /// limit of the query is a page of its own, read when `room` has room for it.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn dead_letters(
        &self,
        mut query: DeadLetterQuery,
        room: &dyn ReadBudget,
    ) -> Result<Page<DeadLetter>, BrokerError> {
        loop {
            let (DeadLetterPage { dead_letters, blocked }, more) = self.dead_letter_page(query.clone()).await?;
            match blocked {
                Some(BlockedDeadLetter { bytes, .. }) if dead_letters.is_empty() => {
                    room.reserve(bytes).await;
                    query.bytes_max = bytes;
                }
                _ => {
                    return Ok(Page {
                        items: dead_letters,
                        more,
                    });
                }
            }
        }
    }

    /// The name of the recipient of a dead letter: the name that it has now, or else the one that it had.
    pub fn recipient_name(&self, dead: &DeadLetter) -> Option<SessionName> {
        let member = self.session(dead.recipient);
        let name = member.and_then(|member| member.record.name.clone());
        name.or_else(|| dead.recipient_name.clone())
    }

    /// The number of dead letters in this project's store.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn dead_letter_count(&self) -> Result<usize, BrokerError> {
        Ok(self.0.store.dead_letter_count().await?)
    }

    /// Sends dead letters again and nudges their recipients.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn redrive(&self, request: RedriveRequest) -> Result<Redriven, BrokerError> {
        let RedriveRequest { messages, recipient } = request;
        let done = self
            .0
            .store
            .redrive(messages, recipient, self.limits().queue_capacity, now())
            .await?;
        self.0.counters.redriven(done.sent.len());
        // The last number of a recipient counts.
        let recipients: BTreeMap<_, _> = done
            .sent
            .iter()
            .map(|&(_, session, waiting)| (session, waiting))
            .collect();
        for (session, waiting) in recipients {
            if let Some(member) = self.0.directory.by_id(session) {
                member.shared.set_waiting(waiting);
                self.0.directory.nudge(&member, None);
            }
        }
        Ok(done)
    }

    /// The dead letters of a page, and whether more follow.
    async fn dead_letter_page(&self, query: DeadLetterQuery) -> Result<(DeadLetterPage, bool), BrokerError> {
        let limit = query.limit;
        let query = DeadLetterQuery {
            limit: limit.saturating_add(1),
            ..query
        };
        let mut page = self.0.store.dead_letters(query.clone()).await?;
        let mut more = cut_page(&mut page, limit, query.bytes_max);
        let query = DeadLetterQuery {
            origin: Some(self.0.id.clone()),
            ..query
        };
        for target in self.0.store.cross_project_targets().await? {
            let remote = self.other_project(&target);
            if let Some(remote) = remote {
                let DeadLetterPage { dead_letters, blocked } = remote.0.store.dead_letters(query.clone()).await?;
                // The names of another project are its own.
                page.dead_letters
                    .extend(dead_letters.into_iter().map(|dead| DeadLetter {
                        recipient_name: None,
                        ..dead
                    }));
                let nearest = page.blocked.into_iter().chain(blocked);
                page.blocked = nearest.min_by_key(|blocked| (blocked.message, blocked.recipient));
                more |= cut_page(&mut page, limit, query.bytes_max);
            }
        }
        Ok((page, more))
    }
}

/// Sorts dead letters of several stores and cuts the page at its limits. Returns whether more follow.
fn cut_page(page: &mut DeadLetterPage, limit: usize, bytes_max: usize) -> bool {
    let DeadLetterPage { dead_letters, blocked } = page;
    dead_letters.sort_unstable_by_key(|dead_letter| (dead_letter.message.id, dead_letter.recipient));
    let mut room = PageRoom::new(bytes_max);
    let shown = dead_letters.iter().take(limit).take_while(|dead_letter| {
        let is_before = |blocked: &BlockedDeadLetter| {
            (dead_letter.message.id, dead_letter.recipient) < (blocked.message, blocked.recipient)
        };
        blocked.as_ref().is_none_or(is_before) && room.try_take(envelope_bytes(&dead_letter.message))
    });
    let len = shown.count();
    let more = len < dead_letters.len() || blocked.is_some();
    dead_letters.truncate(len);
    more
}
