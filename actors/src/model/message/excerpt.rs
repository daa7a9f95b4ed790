//! The first words of a payload, for lists of messages.

use serde::Deserialize;
use serde_json::value::RawValue;

/// Characters of an excerpt.
const CHARACTERS_MAX: usize = 160;
/// A longer payload is not parsed: its JSON text is cut. An excerpt costs 50 µs at most.
const PARSED_BYTES_MAX: usize = 32 << 10;

/// The members of a payload that are its text for people.
#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    /// Of the messages of the broker: reports, and answers of people.
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
}

/// The first words of a payload on one line: those of its member `text` or `summary`, else of its JSON text.
pub fn excerpt(payload: &str) -> String {
    if payload.len() > PARSED_BYTES_MAX {
        return first_words(&payload[..payload.floor_char_boundary(PARSED_BYTES_MAX)]);
    }
    let is_text = |raw: &&RawValue| raw.get().starts_with('"');
    let member = serde_json::from_str::<Said<'_>>(payload)
        .ok()
        .and_then(|said| [said.text, said.summary].into_iter().flatten().find(is_text));
    let json = member.map_or(payload, RawValue::get);
    match serde_json::from_str::<String>(json) {
        Ok(text) => first_words(&text),
        Err(_) => first_words(payload),
    }
}

fn first_words(text: &str) -> String {
    let mut words = String::new();
    let mut room = CHARACTERS_MAX;
    for word in text.split_whitespace() {
        let gap = usize::from(!words.is_empty());
        let len = word.chars().take(room + 1).count();
        if gap + len > room {
            words.extend(" ".repeat(gap).chars().chain(word.chars()).take(room.saturating_sub(1)));
            words.push('…');
            break;
        }
        words.push_str(&" ".repeat(gap));
        words.push_str(word);
        room -= gap + len;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_the_text_of_a_payload_on_one_line() {
        for (payload, wanted) in [
            (r#"{"n":1,"text":"two\n  lines \u00e4"}"#, "two lines ä"),
            (r#"{"summary":"mara answered","state":"answered"}"#, "mara answered"),
            (r#"{"text":{"deep":1},"summary":"s"}"#, "s"),
            (r#"{"text":7}"#, r#"{"text":7}"#),
            (r#""a plain text""#, "a plain text"),
            ("[1, 2]", "[1, 2]"),
            (r#"{"text":""}"#, ""),
            ("{}", "{}"),
        ] {
            assert_eq!(excerpt(payload), wanted, "{payload}");
        }
    }

    #[test]
    fn an_excerpt_has_a_bound() {
        for text in ["ä".repeat(500), "word ".repeat(500), "x".repeat(1 << 20)] {
            let cut = excerpt(&serde_json::json!({"text": text}).to_string());
            assert_eq!(cut.chars().count(), CHARACTERS_MAX, "{cut}");
            assert!(cut.ends_with('…'), "{cut}");
        }
        let exact = "y".repeat(CHARACTERS_MAX);
        assert_eq!(excerpt(&format!("\"{exact}\"")), exact);
    }
}
