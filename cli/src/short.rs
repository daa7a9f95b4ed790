//! Short forms for people: times as ages, ids by their beginnings, and numbers of things.

use std::collections::BTreeSet;

use chrono::{DateTime, Local, SecondsFormat, Utc};

/// The lengths of the beginnings of a UUID that are shown: whole groups of its digits. The first one has its milliseconds.
const PREFIX_LENS: [usize; 4] = [13, 18, 23, 36];
/// The characters of a beginning that is looked up, at least.
const PREFIX_LEN_MIN: usize = 8;
const UUID_LEN: usize = 36;
/// The digits of a UUID of version 7 that are its milliseconds.
const MILLISECOND_DIGITS: usize = 12;
/// The form of a time of day.
const DAY_TIME: &str = "%H:%M:%S%.3f";
/// Unit tests compare screens in UTC, wherever they run.
pub const SCREENS_ARE_UTC: bool = cfg!(test);

/// A time of the broker to the second, in UTC or in the zone of the user.
pub fn time(text: &str, is_utc: bool) -> String {
    written(text, is_utc, SecondsFormat::Secs)
}

/// A time of the broker to the millisecond, where the order of events counts.
pub fn exact_time(text: &str, is_utc: bool) -> String {
    written(text, is_utc, SecondsFormat::Millis)
}

fn written(text: &str, is_utc: bool, form: SecondsFormat) -> String {
    let Ok(time) = DateTime::parse_from_rfc3339(text) else {
        return text.to_owned();
    };
    if is_utc {
        time.with_timezone(&Utc).to_rfc3339_opts(form, true)
    } else {
        time.with_timezone(&Local).to_rfc3339_opts(form, true)
    }
}

/// A time of the broker on a full screen, which has no flag for it: in the zone of the user.
pub fn screen_time(text: &str) -> String {
    time(text, SCREENS_ARE_UTC)
}

/// The time of day of a time of the broker to the millisecond, in UTC or in the zone of the user.
pub fn time_of_day(text: &str, is_utc: bool) -> String {
    let Ok(time) = DateTime::parse_from_rfc3339(text) else {
        return text.to_owned();
    };
    if is_utc {
        time.with_timezone(&Utc).format(DAY_TIME).to_string()
    } else {
        time.with_timezone(&Local).format(DAY_TIME).to_string()
    }
}

/// How long ago a time of the broker was, in its largest unit: `5 min`. `None` if the text is no time.
pub fn age(text: &str, now_unix_ms: u64) -> Option<String> {
    let then = DateTime::parse_from_rfc3339(text).ok()?.timestamp_millis();
    let then = u64::try_from(then).unwrap_or(0);
    Some(span(now_unix_ms.saturating_sub(then) / 1000))
}

/// Seconds in the largest unit that they fill.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// The plural of a noun, unless there is exactly one.
pub fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

/// The first of some words, and how many there are besides.
pub fn first_of(words: &[String], most: usize) -> String {
    match words.len().saturating_sub(most) {
        0 => words.join(", "),
        rest => format!("{} and {rest} more", words[..most].join(", ")),
    }
}

/// How many characters of each of these ids tell them apart. Whole groups are shown.
pub fn prefix_len<'a>(ids: impl Iterator<Item = &'a str>) -> usize {
    let ids: BTreeSet<&str> = ids.collect();
    let tells_apart = |len: &usize| {
        let prefixes: BTreeSet<&str> = ids.iter().map(|id| id.get(..*len).unwrap_or(id)).collect();
        prefixes.len() == ids.len()
    };
    PREFIX_LENS.into_iter().find(tells_apart).unwrap_or(UUID_LEN)
}

/// So many characters of an id; the whole of what is no UUID.
pub fn prefix(id: &str, len: usize) -> &str {
    if is_beginning(id) && id.len() == UUID_LEN {
        id.get(..len).unwrap_or(id)
    } else {
        id
    }
}

/// Whether a text is the beginning of a UUID, and not all of it.
pub fn is_prefix(text: &str) -> bool {
    (PREFIX_LEN_MIN..UUID_LEN).contains(&text.len()) && is_beginning(text)
}

fn is_beginning(text: &str) -> bool {
    text.len() <= UUID_LEN
        && text.char_indices().all(|(at, c)| match at {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_hexdigit() && !c.is_ascii_uppercase(),
        })
}

/// The first and the last millisecond of the ids of version 7 that begin so.
pub fn milliseconds(prefix: &str) -> (u64, u64) {
    let digits: String = prefix.chars().filter(|c| *c != '-').take(MILLISECOND_DIGITS).collect();
    let read = |fill: &str| {
        let filled: String = digits
            .chars()
            .chain(fill.repeat(MILLISECOND_DIGITS).chars())
            .take(MILLISECOND_DIGITS)
            .collect();
        u64::from_str_radix(&filled, 16).unwrap_or(0)
    };
    (read("0"), read("f"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_ages_or_shown_to_the_second() {
        assert_eq!(time("2026-11-23T05:00:29.123Z", true), "2026-11-23T05:00:29Z");
        assert_eq!(time("2026-11-23T06:00:29.123+01:00", true), "2026-11-23T05:00:29Z");
        assert_eq!(exact_time("2026-11-23T05:00:29.1Z", true), "2026-11-23T05:00:29.100Z");
        assert_eq!(time_of_day("2026-11-23T05:00:29.123Z", true), "05:00:29.123");
        let local = time("2026-11-23T05:00:29.123Z", false);
        assert_eq!(
            DateTime::parse_from_rfc3339(&local).unwrap(),
            DateTime::parse_from_rfc3339("2026-11-23T05:00:29Z").unwrap()
        );
        for other in ["", "yesterday", "1.5"] {
            assert_eq!(time(other, true), other);
            assert_eq!(age(other, 0), None);
        }
        let now = 1_795_410_029_123;
        for (then, shown) in [
            ("2026-11-23T05:00:29.123Z", "0 s"),
            ("2026-11-23T05:00:00.123Z", "29 s"),
            ("2026-11-23T04:00:30.123Z", "59 min"),
            ("2026-11-22T04:00:29.123Z", "25 h"),
            ("2026-11-20T05:00:29.123Z", "3 d"),
            ("2027-01-01T00:00:00Z", "0 s"),
        ] {
            assert_eq!(age(then, now).unwrap(), shown, "{then}");
        }
    }

    #[test]
    fn nouns_have_plurals() {
        assert_eq!(
            [0, 1, 2].map(|count| counted(count, "message")),
            ["0 messages", "1 message", "2 messages"]
        );
    }

    #[test]
    fn an_id_is_shown_as_far_as_it_differs_from_the_others() {
        let ids = [
            "0198f3a2-7c41-7aa0-9e0b-5d1c2f7a9b10",
            "0198f3a2-7c42-7aa0-9e0b-5d1c2f7a9b11",
        ];
        assert_eq!(prefix_len(ids.into_iter()), 13);
        assert_eq!(prefix(ids[0], 13), "0198f3a2-7c41");
        let same_ms = [
            "0198f3a2-7c41-7aa0-9e0b-5d1c2f7a9b10",
            "0198f3a2-7c41-7aa1-9e0b-5d1c2f7a9b10",
        ];
        assert_eq!(prefix_len(same_ms.into_iter()), 18);
        assert_eq!(prefix_len([ids[0], ids[0]].into_iter()), 13, "one id twice is one");
        assert_eq!(prefix_len([].into_iter()), 13);
        assert_eq!(
            prefix("a-thread-with-a-name-of-its-own", 13),
            "a-thread-with-a-name-of-its-own"
        );
    }

    #[test]
    fn a_beginning_of_an_id_is_recognised_and_has_its_milliseconds() {
        for text in [
            "0198f3a2",
            "0198f3a2-",
            "0198f3a2-7c41",
            "0198f3a2-7c41-7aa0-9e0b-5d1c2f7a9b1",
        ] {
            assert!(is_prefix(text), "{text}");
        }
        for text in [
            "",
            "0198f3a",
            "0198F3A2",
            "alice",
            "deadbeefs",
            "0198f3a27c41",
            "0198f3a2-7c41-7aa0-9e0b-5d1c2f7a9b10",
        ] {
            assert!(!is_prefix(text), "{text}");
        }
        let (first, last) = milliseconds("0198f3a2-7c41-7aa0");
        assert_eq!((first, last), (0x0198_f3a2_7c41, 0x0198_f3a2_7c41));
        assert_eq!(milliseconds("0198f3a2"), (0x0198_f3a2_0000, 0x0198_f3a2_ffff));
    }
}
