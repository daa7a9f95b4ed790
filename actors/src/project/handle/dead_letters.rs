//! Pages of the dead letters of a project, of which some are in the stores of others.

use super::{Page, ProjectHandle};
use crate::{
    model::{BrokerError, DeadLetter, PageRoom},
    session::ReadRoom,
    storage::{DeadLetterQuery, DeadLetters, LetterBeyond, envelope_bytes},
};

impl ProjectHandle {
    /// Dead letters of this project, and those of its messages to others.
    /// A letter that is larger than the bytes of the query is a page of its own, and read when there is room for it.
    pub async fn dead_letters(
        &self,
        mut query: DeadLetterQuery,
        room: &dyn ReadRoom,
    ) -> Result<Page<DeadLetter>, BrokerError> {
        loop {
            let (DeadLetters { letters, beyond }, more) = self.page_of_dead_letters(query.clone()).await?;
            match beyond {
                Some(LetterBeyond { bytes, .. }) if letters.is_empty() => {
                    room.reserve(bytes).await;
                    query.bytes_max = bytes;
                }
                _ => return Ok(Page { items: letters, more }),
            }
        }
    }

    /// The letters, and whether there are more.
    async fn page_of_dead_letters(&self, query: DeadLetterQuery) -> Result<(DeadLetters, bool), BrokerError> {
        let limit = query.limit;
        let query = DeadLetterQuery {
            limit: limit.saturating_add(1),
            ..query
        };
        let mut page = self.0.store.dead_letters(query.clone()).await?;
        let mut more = end_page(&mut page, limit, query.bytes_max);
        let query = DeadLetterQuery {
            origin: Some(self.0.id.clone()),
            ..query
        };
        for target in self.0.store.crossing_targets().await? {
            let abroad = self.neighbour(&target);
            if let Some(abroad) = abroad {
                let DeadLetters { letters, beyond } = abroad.0.store.dead_letters(query.clone()).await?;
                page.letters.extend(letters);
                let nearest = page.beyond.into_iter().chain(beyond);
                page.beyond = nearest.min_by_key(|beyond| (beyond.message, beyond.recipient));
                more |= end_page(&mut page, limit, query.bytes_max);
            }
        }
        Ok((page, more))
    }
}

/// Puts letters of several stores in their order, and ends the page where it has to end. Returns whether there are more.
fn end_page(page: &mut DeadLetters, limit: usize, bytes_max: usize) -> bool {
    let DeadLetters { letters, beyond } = page;
    letters.sort_unstable_by_key(|letter| (letter.message.id, letter.recipient));
    let mut room = PageRoom::new(bytes_max);
    let shown = letters.iter().take(limit).take_while(|letter| {
        let is_before =
            |beyond: &LetterBeyond| (letter.message.id, letter.recipient) < (beyond.message, beyond.recipient);
        beyond.as_ref().is_none_or(is_before) && room.takes(envelope_bytes(&letter.message))
    });
    let len = shown.count();
    let more = len < letters.len() || beyond.is_some();
    letters.truncate(len);
    more
}
