//! JSON text as the parts of the broker read it without building values.

pub mod frame;
pub mod scan;

use std::borrow::Cow;

use scan::ScanError;

/// The members of an object in their order: decoded keys and raw values.
///
/// # Errors
/// The text is not exactly one object.
pub fn members(text: &str) -> Result<Vec<(Cow<'_, str>, &str)>, ScanError> {
    let mut members = Vec::new();
    scan::deep_members::<ScanError>(text, |key, value| {
        members.push((key, value));
        Ok(())
    })?;
    Ok(members)
}

/// The raw value of a member of an object; the last one if there are several. `None` also for a text that is no object.
pub fn member<'a>(text: &'a str, wanted: &str) -> Option<&'a str> {
    let mut found = None;
    scan::deep_members::<ScanError>(text, |key, value| {
        if key == wanted {
            found = Some(value);
        }
        Ok(())
    })
    .ok()?;
    found
}

/// Writes an object with these members.
pub fn write_object<'a>(out: &mut Vec<u8>, members: impl IntoIterator<Item = (&'a str, &'a str)>) {
    out.push(b'{');
    for (at, (key, value)) in members.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(out, key);
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
    }
    out.push(b'}');
}

/// The text of an object in which the values of some members are replaced: `replace` gets each member and returns its new
/// value. All other bytes stay as they are.
///
/// # Errors
/// As [`members`], and those of `replace`.
pub fn replace_values<E: From<ScanError>>(
    text: &str,
    mut replace: impl FnMut(&str, &str) -> Result<Option<String>, E>,
) -> Result<String, E> {
    let (mut out, mut copied) = (String::with_capacity(text.len() + 64), 0);
    scan::deep_members::<E>(text, |key, value| {
        if let Some(replaced) = replace(&key, value)? {
            let start = value.as_ptr().addr() - text.as_ptr().addr();
            out.push_str(&text[copied..start]);
            out.push_str(&replaced);
            copied = start + value.len();
        }
        Ok(())
    })?;
    out.push_str(&text[copied..]);
    Ok(out)
}

/// Writes a JSON string.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    let written = serde_json::to_writer(out, text);
    debug_assert!(written.is_ok(), "a string always serializes");
}

/// A JSON string.
pub fn string(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    write_string(&mut out, text);
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_replaced_values_change() {
        let text = "{ \"a\" : 1e400,\n\"\\u0062\": [ \"x\" ] ,\"c\":{\"b\":0}, \"b\":2 }";
        let replaced = replace_values::<ScanError>(text, |key, _| Ok((key == "b").then(|| "\"new\"".to_owned())));
        let expected = "{ \"a\" : 1e400,\n\"\\u0062\": \"new\" ,\"c\":{\"b\":0}, \"b\":\"new\" }";
        assert_eq!(replaced.as_deref(), Ok(expected));
        assert_eq!(replace_values::<ScanError>(text, |_, _| Ok(None)).as_deref(), Ok(text));
        assert!(replace_values::<ScanError>("[1]", |_, _| Ok(None)).is_err());
    }
}
