//! Sessions as other callers see them: filters, pages and views of a list.

use std::sync::Arc;

use actors::{
    clock::rfc3339_text,
    desk::{ConsoleView, DeskSummary, Presence},
    model::{BrokerError, Capabilities, Rung, SessionId, SessionStatus},
    project::{Page, ProjectHandle, SessionOrder, SessionQuery, SessionSort, SortedPlace},
    session::Member,
};
use rest::sessions::Session;

use common::json::page::JsonPage;

/// Sessions of a page, unless the caller sets a limit.
pub const PAGE_LEN: usize = 100;
/// Largest number of sessions of a page.
pub const PAGE_LEN_MAX: usize = 1000;

/// Parses the status filter of a list: `active` by default; `all` selects every status.
///
/// # Errors
/// `InvalidArgument` for another word.
pub fn parse_status(word: Option<&str>) -> Result<Option<SessionStatus>, BrokerError> {
    match word {
        None | Some("active") => Ok(Some(SessionStatus::Active)),
        Some("stale") => Ok(Some(SessionStatus::Stale)),
        Some("disconnected") => Ok(Some(SessionStatus::Disconnected)),
        Some("all") => Ok(None),
        Some(_) => Err(BrokerError::invalid("status", "active, stale, disconnected or all")),
    }
}

/// Parses the cursor of a list of sessions: the id of the last one of the page before.
///
/// # Errors
/// `InvalidArgument` for another text.
pub fn parse_cursor(text: &str) -> Result<SessionId, BrokerError> {
    SessionId::parse(text).ok_or_else(|| BrokerError::invalid("cursor", "not a cursor of this list"))
}

/// A page of sessions as JSON text, with the present number of waiting messages of each.
pub async fn list(project: &ProjectHandle, query: &SessionQuery, with_capabilities: bool) -> Vec<u8> {
    let page = project.list_sessions(query);
    project.refresh_waiting(&page.items).await;
    let desk = desk_of(project, &page.items).await;
    page_text(project, &page, with_capabilities, desk.as_deref())
}

/// The desk, where it is needed to show one of these sessions.
async fn desk_of(project: &ProjectHandle, members: &[Arc<Member>]) -> Option<Arc<DeskSummary>> {
    if members.iter().any(|member| member.record.is_human()) {
        project.desk().await.ok()
    } else {
        None
    }
}

/// Sessions whose numbers of waiting messages are asked from a shared store before they are sorted by them. With more of
/// them the order is that of the numbers that this replica last knew.
const RECOUNTED_LEN_MAX: usize = 2_000;

/// A page of sessions in an order as JSON text, with the number of all that match. `cursor` writes the cursor behind a
/// place.
pub async fn sorted_list(
    project: &ProjectHandle,
    query: &SessionQuery,
    order: SessionOrder,
    after: Option<&SortedPlace>,
    with_capabilities: bool,
    cursor: impl Fn(&SortedPlace) -> String,
) -> Vec<u8> {
    if order.by == SessionSort::QueueSize {
        let limit = RECOUNTED_LEN_MAX;
        let all = project.list_sessions(&SessionQuery { limit, ..query.clone() });
        if !all.more {
            project.refresh_waiting(&all.items).await;
        }
    }
    let page = project.list_sorted_sessions(query, order, after);
    let members: Vec<_> = page.items.iter().map(|(_, member)| Arc::clone(member)).collect();
    project.refresh_waiting(&members).await;
    let desk = desk_of(project, &members).await;
    let mut text = JsonPage::new("sessions").with("total", &page.total);
    let ended = text.push_all(&page.items, |(_, member)| {
        listed(project, member, with_capabilities, desk.as_deref())
    });
    let last = ended.or(page.items.last().filter(|_| page.more));
    text.finish(last.map(|(place, _)| cursor(place)))
}

/// As [`list`], with the numbers of waiting messages as they are known now.
pub fn known_page(project: &ProjectHandle, page: &Page<Arc<Member>>, with_capabilities: bool) -> Vec<u8> {
    page_text(project, page, with_capabilities, None)
}

fn page_text(
    project: &ProjectHandle,
    page: &Page<Arc<Member>>,
    with_capabilities: bool,
    desk: Option<&DeskSummary>,
) -> Vec<u8> {
    let mut text = JsonPage::new("sessions");
    let ended = text.push_all(&page.items, |member| listed(project, member, with_capabilities, desk));
    let last = ended.or(page.items.last().filter(|_| page.more));
    text.finish(last.map(|member| member.record.id))
}

/// A session, as other callers see it now.
pub fn session_view(project: &ProjectHandle, member: &Member, with_capabilities: bool) -> Session {
    let record = &member.record;
    Session {
        session_id: record.id.to_string(),
        name: record.name.as_ref().map(ToString::to_string),
        aliases: record.aliases.iter().map(ToString::to_string).collect(),
        project_id: project.id().to_string(),
        status: project.status(member).as_str().to_owned(),
        connection_time: rfc3339_text(record.connected_at_ms),
        last_heartbeat: rfc3339_text(member.shared.last_seen_unix_ms()),
        queue_size: member.shared.waiting() as u64,
        activity: member.shared.wakes().activity().as_str().to_owned(),
        wakes_by: wakes_by(member).map(|rungs| rungs.iter().map(|rung| rung.as_str().to_owned()).collect()),
        capabilities: with_capabilities.then(|| capabilities_view(&record.capabilities)),
        metadata: with_capabilities.then(|| record.metadata.clone()),
        ..Session::default()
    }
}

fn capabilities_view(declared: &Capabilities) -> rest::sessions::Capabilities {
    let protocols = declared.supported_protocols.iter();
    rest::sessions::Capabilities {
        supported_protocols: protocols
            .map(|(name, versions)| (name.to_string(), versions.iter().map(ToString::to_string).collect()))
            .collect(),
        supported_features: declared.supported_features.iter().cloned().collect(),
    }
}

/// The view of a session in a list: a person is shown as one, with what the desk knows.
fn listed(project: &ProjectHandle, member: &Member, with_capabilities: bool, desk: Option<&DeskSummary>) -> Session {
    let mut view = session_view(project, member, with_capabilities);
    if member.record.is_human() {
        let is_theirs = |console: &&ConsoleView| Some(&console.human) == member.record.name.as_ref();
        let consoles: Vec<_> = desk.iter().flat_map(|desk| &desk.consoles).filter(is_theirs).collect();
        // By the console at which they are most present.
        let best = consoles.iter().map(|console| console.presence).min();
        view.kind = Some("human".to_owned());
        view.presence = Some(best.unwrap_or(Presence::Away).as_str().to_owned());
        view.open = Some(consoles.iter().map(|console| console.open).sum());
    }
    view
}

/// The ways in which the client of an agent can wake it; None if there is none.
pub fn wakes_by(member: &Member) -> Option<Vec<Rung>> {
    let rungs = member.shared.wakes().rungs();
    (!rungs.is_empty()).then(|| rungs.iter().collect())
}
