//! Output that is compared with files. `UPDATE_GOLDEN=1` writes them.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use test_client::golden;

/// Compares an output with `golden/NAME.txt`, after ids and times have been replaced.
pub fn assert_golden(name: &str, output: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/cli_live/golden/{name}.txt"));
    let shown = normalised(output);
    golden::assert_golden(&path, &shown);
}

/// Replaces ids by numbers in the order of their appearance, and times by zeros, without a change of width.
fn normalised(text: &str) -> String {
    let mut ids: BTreeMap<String, usize> = BTreeMap::new();
    let mut shown = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(id) = rest.get(..36).filter(|word| is_uuid(word)) {
            let next = ids.len() + 1;
            let number = *ids.entry(id.to_owned()).or_insert(next);
            let _ = write!(shown, "id-{number:033}");
            rest = &rest[36..];
        } else if let Some(len) = time_len(rest) {
            shown.push_str(&rest[..len].replace(|c: char| c.is_ascii_digit(), "0"));
            rest = &rest[len..];
        } else {
            shown.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    shown
}

fn is_uuid(word: &str) -> bool {
    word.char_indices().all(|(at, c)| match at {
        8 | 13 | 18 | 23 => c == '-',
        _ => c.is_ascii_hexdigit(),
    })
}

/// The length of the time at the beginning of a text, with or without its date and its fraction.
fn time_len(text: &str) -> Option<usize> {
    for pattern in ["0000-00-00T00:00:00.000Z", "0000-00-00T00:00:00Z", "00:00:00.000"] {
        let Some(word) = text.get(..pattern.len()) else {
            continue;
        };
        if word.replace(|c: char| c.is_ascii_digit(), "0") == pattern {
            return Some(pattern.len());
        }
    }
    None
}
