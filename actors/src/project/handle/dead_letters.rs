//! Pages of the dead letters of a project, of which some are in the stores of others.

use super::{Page, ProjectHandle};
use crate::{
    model::{BrokerError, DeadLetter, PageRoom},
    session::ReadBudget,
    storage::{BlockedDeadLetter, DeadLetterPage, DeadLetterQuery, envelope_bytes},
};

impl ProjectHandle {
    /// Dead letters of this project, and those of its messages to others.
    /// A letter that is larger than the bytes of the query is a page of its own, and read when there is room for it.
    pub async fn dead_letters(
        &self,
        mut query: DeadLetterQuery,
        room: &dyn ReadBudget,
    ) -> Result<Page<DeadLetter>, BrokerError> {
        loop {
            let (
                DeadLetterPage {
                    dead_letters: letters,
                    blocked: beyond,
                },
                more,
            ) = self.dead_letter_page(query.clone()).await?;
            match beyond {
                Some(BlockedDeadLetter { bytes, .. }) if letters.is_empty() => {
                    room.reserve(bytes).await;
                    query.bytes_max = bytes;
                }
                _ => return Ok(Page { items: letters, more }),
            }
        }
    }

    /// The letters, and whether there are more.
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
            let abroad = self.other_project(&target);
            if let Some(abroad) = abroad {
                let DeadLetterPage {
                    dead_letters: letters,
                    blocked: beyond,
                } = abroad.0.store.dead_letters(query.clone()).await?;
                page.dead_letters.extend(letters);
                let nearest = page.blocked.into_iter().chain(beyond);
                page.blocked = nearest.min_by_key(|beyond| (beyond.message, beyond.recipient));
                more |= cut_page(&mut page, limit, query.bytes_max);
            }
        }
        Ok((page, more))
    }
}

/// Puts letters of several stores in their order, and ends the page where it has to end. Returns whether there are more.
fn cut_page(page: &mut DeadLetterPage, limit: usize, bytes_max: usize) -> bool {
    let DeadLetterPage {
        dead_letters: letters,
        blocked: beyond,
    } = page;
    letters.sort_unstable_by_key(|letter| (letter.message.id, letter.recipient));
    let mut room = PageRoom::new(bytes_max);
    let shown = letters.iter().take(limit).take_while(|letter| {
        let is_before =
            |beyond: &BlockedDeadLetter| (letter.message.id, letter.recipient) < (beyond.message, beyond.recipient);
        beyond.as_ref().is_none_or(is_before) && room.try_take(envelope_bytes(&letter.message))
    });
    let len = shown.count();
    let more = len < letters.len() || beyond.is_some();
    letters.truncate(len);
    more
}
