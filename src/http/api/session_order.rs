//! The order of a list of sessions, and cursors that say in which order they are.

use actors::{
    model::{BrokerError, SessionId, SessionName},
    project::{SessionOrder, SessionSort, SortKey, SortedPlace},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use api::verbs::sessions;

/// The words of the parameter `sort`.
const SORTS: [(&str, SessionSort); 5] = [
    ("connection_time", SessionSort::ConnectionTime),
    ("name", SessionSort::Name),
    ("status", SessionSort::Status),
    ("queue_size", SessionSort::QueueSize),
    ("last_heartbeat", SessionSort::LastHeartbeat),
];

/// Parses the parameters `sort` and `order`. Without `sort` sessions are in order of creation.
///
/// # Errors
/// `InvalidArgument` for another word.
pub fn parse(sort: Option<&str>, order: Option<&str>) -> Result<SessionOrder, BrokerError> {
    let by = match sort {
        None => SessionSort::Created,
        Some(word) => {
            let known = SORTS.iter().find(|(name, _)| *name == word);
            let refused = || {
                let words = "connection_time, name, status, queue_size or last_heartbeat";
                BrokerError::invalid("sort", words)
            };
            known.ok_or_else(refused)?.1
        }
    };
    let is_descending = match order {
        None | Some("asc") => false,
        Some("desc") => true,
        Some(_) => return Err(BrokerError::invalid("order", "asc or desc")),
    };
    Ok(SessionOrder { by, is_descending })
}

/// The cursor behind a place: the id of the session, and in front of it the order and what it is sorted by, unless the list
/// is in order of creation.
pub fn cursor(order: SessionOrder, place: &SortedPlace) -> String {
    let Some(prefix) = prefix(order) else {
        return place.id.to_string();
    };
    let key = match &place.key {
        SortKey::Number(number) => number.to_string(),
        SortKey::Name(None) => String::new(),
        SortKey::Name(Some(name)) => URL_SAFE_NO_PAD.encode(name.as_str()),
    };
    format!("{prefix}{key}.{}", place.id)
}

/// Parses a cursor of a list in this order.
///
/// # Errors
/// `InvalidArgument` for a text that is no cursor of such a list.
pub fn parse_cursor(text: &str, order: SessionOrder) -> Result<SortedPlace, BrokerError> {
    let Some(prefix) = prefix(order) else {
        let key = SortKey::Number(0);
        return sessions::parse_cursor(text).map(|id| SortedPlace { key, id });
    };
    let place = text.strip_prefix(&prefix).and_then(|rest| {
        let (key, id) = rest.split_once('.')?;
        let key = match (order.by, key) {
            (SessionSort::Name, "") => SortKey::Name(None),
            (SessionSort::Name, name) => {
                let name = String::from_utf8(URL_SAFE_NO_PAD.decode(name).ok()?).ok()?;
                SortKey::Name(Some(SessionName::parse(&name).ok()?))
            }
            (_, number) => SortKey::Number(number.parse().ok()?),
        };
        let id = SessionId::parse(id)?;
        Some(SortedPlace { key, id })
    });
    place.ok_or_else(|| BrokerError::invalid("cursor", "not a cursor of this list with this sort and order"))
}

/// What a cursor of this order begins with; None for the order of creation.
fn prefix(order: SessionOrder) -> Option<String> {
    let (word, _) = SORTS.iter().find(|(_, by)| *by == order.by)?;
    let direction = if order.is_descending { "desc" } else { "asc" };
    Some(format!("{word}.{direction}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn a_cursor_names_a_place_in_its_own_order_alone() {
        let id = SessionId::parse(ID).unwrap();
        let name = SessionName::parse("alice. the 1st").unwrap();
        let keys = |by| match by {
            SessionSort::Created => vec![SortKey::Number(0)],
            SessionSort::Name => vec![SortKey::Name(None), SortKey::Name(Some(name.clone()))],
            _ => vec![SortKey::Number(0), SortKey::Number(u64::MAX)],
        };
        let orders: Vec<_> = [None]
            .into_iter()
            .chain(SORTS.iter().map(|(word, _)| Some(*word)))
            .flat_map(|sort| ["asc", "desc"].map(|order| parse(sort, Some(order)).unwrap()))
            .collect();
        for order in &orders {
            for key in keys(order.by) {
                let place = SortedPlace { key, id };
                let text = cursor(*order, &place);
                assert_eq!(parse_cursor(&text, *order).unwrap(), place, "{text}");
                for other in orders.iter().filter(|other| *other != order) {
                    let is_plain = order.by == SessionSort::Created && other.by == SessionSort::Created;
                    assert_eq!(parse_cursor(&text, *other).is_ok(), is_plain, "{text} {other:?}");
                }
            }
        }
    }

    #[test]
    fn other_texts_are_no_cursors() {
        let order = parse(Some("queue_size"), None).unwrap();
        for text in [
            "",
            ID,
            "queue_size.asc.",
            "queue_size.asc.-1.x",
            &format!("queue_size.asc.x.{ID}"),
        ] {
            assert!(parse_cursor(text, order).is_err(), "{text}");
        }
        assert!(parse(Some("size"), None).is_err() && parse(None, Some("up")).is_err());
    }
}
