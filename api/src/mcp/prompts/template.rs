//! Renders texts with placeholders in one pass.

use std::fmt::Write;

/// Renders a text. `{{name}}` becomes the value of this name, or nothing. The text between `{{#name}}` and `{{/name}}`
/// stays only if there is a value, that between `{{^name}}` and `{{/name}}` only if there is none; sections of
/// different names may be nested.
///
/// Values are not rendered again: their content cannot change the text around them.
pub fn render(template: &str, values: &[(&str, String)]) -> String {
    let value = |name: &str| {
        let mut known = values.iter().filter(|(known, _)| *known == name);
        known.next().map(|(_, value)| value.as_str())
    };
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, tagged)) = rest.split_once("{{") {
        out.push_str(before);
        let (tag, after) = tagged.split_once("}}").unwrap_or((tagged, ""));
        rest = after;
        let left_out = if let Some(name) = tag.strip_prefix('#') {
            value(name).is_none().then_some(name)
        } else if let Some(name) = tag.strip_prefix('^') {
            value(name).is_some().then_some(name)
        } else {
            out.push_str(value(tag).unwrap_or_default());
            None
        };
        if let Some(name) = left_out {
            let end = format!("{{{{/{name}}}}}");
            rest = rest.split_once(&end).map_or("", |(_, after)| after);
        }
    }
    out.push_str(rest);
    out
}

/// Quotes a text as a JSON string on one line without invisible characters. A reader sees where it ends, and can copy
/// it into the arguments of a tool.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\n' => out.push_str("\\n"),
            _ if is_invisible(character) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            _ => out.push(character),
        }
    }
    out.push('"');
    out
}

/// Whether a character breaks a line, changes the direction of text, or can hide text from a person but not from a
/// model.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_sections_are_filled_in() {
        let template = "{{a}}{{#a}}, with {{a}}{{#b}} and {{b}}{{/b}}{{/a}}{{^b}}, no b{{/b}}{}}.";
        let values = [("a", "1".to_owned()), ("b", "2".to_owned())];
        assert_eq!(render(template, &values), "1, with 1 and 2{}}.");
        assert_eq!(render(template, &values[..1]), "1, with 1, no b{}}.");
        assert_eq!(render(template, &values[1..]), "{}}.");
        assert_eq!(render(template, &[]), ", no b{}}.");
        assert_eq!(render("plain", &values), "plain");
    }

    #[test]
    fn a_value_is_not_read_as_a_template() {
        for hostile in ["{{b}}", "{{", "}}", "{{/a}}", "{{#b}}", "{{^b}}{{/a}}", "{{a}}"] {
            let values = [("a", hostile.to_owned()), ("b", "secret".to_owned())];
            assert_eq!(
                render("<{{#a}}{{a}}{{/a}}|{{a}}>", &values),
                format!("<{hostile}|{hostile}>")
            );
        }
    }

    #[test]
    fn a_quoted_text_is_one_line_of_json_and_hides_nothing() {
        for (text, expected) in [
            ("", r#""""#),
            ("bob", r#""bob""#),
            ("Zoë 😀", r#""Zoë 😀""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("a\nb\r\t\u{0}", r#""a\nb\u000d\u0009\u0000""#),
            ("\u{2028}\u{85}\u{202e}", r#""\u2028\u0085\u202e""#),
            ("x\u{e0041}", r#""x\udb40\udc41""#),
        ] {
            assert_eq!(quoted(text), expected);
            assert_eq!(serde_json::from_str::<String>(&quoted(text)).unwrap(), text);
        }
    }
}
