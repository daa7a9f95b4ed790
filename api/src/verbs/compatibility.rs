//! The compatibility matrix: for each pair of sessions, what both can speak.

use std::{collections::HashSet, sync::Arc};

use actors::{
    model::{BrokerError, SessionId, SessionStatus},
    project::{Lookup, ProjectHandle, SessionQuery},
    session::Member,
};

use common::json::page::JsonPage;

/// Sessions that one matrix compares: the pairs grow with the square.
const MATRIX_LEN_MAX: usize = 100;
/// Versions and features that one page of the matrix compares: about 5 ms. A page has at least one row.
const MATRIX_ENTRIES_MAX: usize = 40_000;
/// Entries that a lens counts as: several paths along all of them are searched for.
const LENS_ENTRIES: usize = 100;

/// A page of the matrix as JSON text: of the sessions with these ids or names, or of all active ones. It begins after
/// the row of the two sessions `after`.
pub fn page(
    project: &ProjectHandle,
    ids: Option<Vec<String>>,
    after: Option<(SessionId, SessionId)>,
) -> Lookup<Vec<u8>> {
    let members = match ids {
        Some(ids) => project.look_up(move |project| named_members(project, &ids)),
        None => Lookup::Ready(active_members(project)),
    };
    let project = project.clone();
    members.map(move |late| compare(&project, &late.result?, after))
}

/// The page of the matrix after the row of these two sessions.
fn compare(
    project: &ProjectHandle,
    members: &[Arc<Member>],
    after: Option<(SessionId, SessionId)>,
) -> Result<Vec<u8>, BrokerError> {
    let mut pairs = (0..members.len()).flat_map(|a| (a + 1..members.len()).map(move |b| (a, b)));
    if let Some((a, b)) = after {
        let ids = |(at_a, at_b): (usize, usize)| (members[at_a].record.id, members[at_b].record.id);
        if !pairs.any(|pair| ids(pair) == (a, b)) {
            let text = "a session of the last page is not among those that are compared: start again without a cursor";
            return Err(BrokerError::invalid("cursor", text));
        }
    }
    Ok(matrix_page(project, members, pairs))
}

/// The sessions that the caller names, without duplicates.
fn named_members(project: &ProjectHandle, ids: &[String]) -> Result<Vec<Arc<Member>>, BrokerError> {
    let mut members = Vec::new();
    let mut seen = HashSet::new();
    for id in ids {
        let member = project.resolve(id).known()?;
        if seen.insert(member.record.id) {
            members.push(member);
        }
        if members.len() > MATRIX_LEN_MAX {
            return Err(too_many_sessions());
        }
    }
    Ok(members)
}

fn active_members(project: &ProjectHandle) -> Result<Vec<Arc<Member>>, BrokerError> {
    let page = project.list_sessions(&SessionQuery {
        status: Some(SessionStatus::Active),
        protocol: None,
        feature: None,
        text: None,
        limit: MATRIX_LEN_MAX,
        after: None,
    });
    if page.more {
        Err(too_many_sessions())
    } else {
        Ok(page.items)
    }
}

fn too_many_sessions() -> BrokerError {
    let text = format!("at most {MATRIX_LEN_MAX} sessions can be compared: name some");
    BrokerError::invalid("session_ids", text)
}

/// Parses the cursor of a page: the two sessions of its last row.
///
/// # Errors
/// `InvalidArgument` for another text.
pub fn parse_cursor(text: &str) -> Result<(SessionId, SessionId), BrokerError> {
    text.split_once('_')
        .and_then(|(a, b)| Some((SessionId::parse(a)?, SessionId::parse(b)?)))
        .ok_or_else(|| BrokerError::invalid("cursor", "not a cursor of this list"))
}

fn matrix_page(
    project: &ProjectHandle,
    members: &[Arc<Member>],
    pairs: impl Iterator<Item = (usize, usize)>,
) -> Vec<u8> {
    let mut rows = JsonPage::new("rows");
    let mut compared = 0;
    let mut last = None;
    let mut pairs = pairs.peekable();
    while let Some(&(a, b)) = pairs.peek() {
        let (a, b) = (&members[a], &members[b]);
        compared += a.record.capabilities.entries_len() + b.record.capabilities.entries_len();
        compared += project.lenses_between(a, b) * LENS_ENTRIES;
        let is_full = last.is_some() && compared > MATRIX_ENTRIES_MAX;
        if is_full || !rows.push(&project.compare(a, b)) {
            break;
        }
        last = Some((a.record.id, b.record.id));
        pairs.next();
    }
    let more = last.filter(|_| pairs.peek().is_some());
    rows.finish(more.map(|(a, b)| format!("{a}_{b}")))
}
