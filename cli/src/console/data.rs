//! What the console reads from the answers of the broker: times, places in lists, and texts.

use std::borrow::Cow;
use std::cmp::Reverse;

use actors::model::Urgency;
use chrono::DateTime;
use rest::messages::PersonsMessage;
use rest::questions::Question;

/// A time of the broker as milliseconds since the Unix epoch.
pub fn ms(text: &str) -> Option<u64> {
    let time = DateTime::parse_from_rfc3339(text).ok()?;
    u64::try_from(time.timestamp_millis()).ok()
}

/// How soon a question is to be answered; a broker of another version may have further words.
pub fn urgency(question: &Question) -> Urgency {
    let mut known = Urgency::ALL.into_iter();
    known
        .find(|known| known.as_str() == question.urgency)
        .unwrap_or_default()
}

/// The place of a question in a list: the most urgent first, then the oldest.
pub fn place(question: &Question) -> (Reverse<Urgency>, &str, &str) {
    (Reverse(urgency(question)), &question.asked_at, &question.question_id)
}

/// Its place in the history: the newest first.
pub fn place_in_history(question: &Question) -> Reverse<(&str, &str)> {
    Reverse((&question.asked_at, &question.question_id))
}

/// The text of a message: that of the protocol `text`, else the payload as JSON. None once the broker does not keep it.
pub fn text(message: &PersonsMessage) -> Option<Cow<'_, str>> {
    let payload = message.payload.as_ref()?;
    let text = payload.as_str().or_else(|| payload["text"].as_str());
    Some(text.map_or_else(|| payload.to_string().into(), Cow::Borrowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_of_an_unknown_version_is_read() {
        let text = r#"{"question_id":"q1","urgency":"blazing","asked_at":"2026-11-23T05:01:00.500Z","expires_at":null,
            "asker":{"name":null,"session_id":"s1"},"new_member":{},"summary":"a"}"#;
        let question: Question = serde_json::from_str(text).unwrap();
        assert_eq!(ms(&question.asked_at), Some(1_795_410_060_500));
        assert_eq!((urgency(&question), question.asker()), (Urgency::Medium, "s1"));
        assert!(question.items()[0].allow_other && question.expires_at.is_none());
    }

    #[test]
    fn a_list_does_not_take_away_the_content() {
        let whole =
            r#"{"question_id":"q1","revision":2,"question":"Drop it?","options":[{"value":"y","label":"Yes"}]}"#;
        let mut question: Question = serde_json::from_str(whole).unwrap();
        let brief = |text: &str| serde_json::from_str::<Question>(text).unwrap();
        question.merge(brief(
            r#"{"question_id":"q1","revision":3,"state":"answered","summary":"Drop"}"#,
        ));
        let options = question.options.as_ref().map(Vec::len);
        assert_eq!((question.state.as_str(), options), ("answered", Some(1)));
        question.merge(brief(r#"{"question_id":"q1","revision":1,"state":"pending"}"#));
        assert_eq!(question.state, "answered", "an older look changes nothing");
    }
}
