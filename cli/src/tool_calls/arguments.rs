//! The arguments of a tool as a person writes them: `key=value`, with dots in the key for objects in objects.

use serde_json::{Map, Value};

/// Keys with more dots are refused.
const DEPTH_MAX: usize = 32;
/// Characters of a word that a refusal shows.
const SHOWN_CHARS_MAX: usize = 60;
/// How an argument is written.
const FORM: &str = "an argument is key=value, or all of them are one JSON object";

/// Cuts a line into words. White space separates them, but not in quotes, brackets and braces. A value in single quotes is a
/// string as it is.
///
/// # Errors
/// What is not closed.
pub fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut depth = 0_usize;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => word.push_str(&json_string(&mut chars).ok_or("a double quote is not closed")?),
            '\'' if depth == 0 && (word.is_empty() || word.ends_with('=')) => {
                let rest = chars.as_str();
                let (text, after) = rest.split_once('\'').ok_or("a single quote is not closed")?;
                word.push_str(&Value::from(text).to_string());
                chars = after.chars();
            }
            c if c.is_whitespace() && depth == 0 => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => {
                match c {
                    '{' | '[' => depth += 1,
                    '}' | ']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                word.push(c);
            }
        }
    }
    if depth > 0 {
        return Err("a bracket or a brace is not closed".to_owned());
    }
    if !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

/// A string of JSON with its quotes, of which the first has been read.
fn json_string(chars: &mut std::str::Chars) -> Option<String> {
    let mut text = "\"".to_owned();
    loop {
        let c = chars.next()?;
        text.push(c);
        match c {
            '"' => return Some(text),
            '\\' => text.push(chars.next()?),
            _ => {}
        }
    }
}

/// The object that words describe: one JSON object, or `key=value`. `schema` is that of the tool: where it wants a string, a
/// value is one; elsewhere a value that is JSON is taken as JSON.
///
/// # Errors
/// Which word cannot be used, and why.
pub fn object(words: &[String], schema: &Value) -> Result<Map<String, Value>, String> {
    if let [word] = words
        && word.trim_start().starts_with('{')
    {
        let object = serde_json::from_str(word);
        return object.map_err(|error| format!("the JSON object is not valid at its character {}", error.column()));
    }
    let mut object = Map::new();
    for word in words {
        let (key, text) = word
            .split_once('=')
            .filter(|(key, _)| !key.is_empty() && !key.starts_with(['{', '[', '"']))
            .ok_or_else(|| format!("{} has no key: {FORM}", shown(word)))?;
        let keys: Vec<&str> = key.split('.').collect();
        if keys.len() > DEPTH_MAX || keys.iter().any(|key| key.is_empty()) {
            return Err(format!(
                "{key:?} is not a key: names with single dots between them, at most {DEPTH_MAX}"
            ));
        }
        let value = value(text, schema_of(schema, &keys)).map_err(|reason| format!("the value of {key} {reason}"))?;
        put(&mut object, &keys, value)
            .map_err(|()| format!("{key} is given twice, or is both a value and an object"))?;
    }
    Ok(object)
}

/// A word as a refusal shows it.
fn shown(word: &str) -> String {
    match word.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &word[..end]),
        None => word.to_owned(),
    }
}

fn schema_of<'a>(schema: &'a Value, keys: &[&str]) -> Option<&'a Value> {
    keys.iter()
        .try_fold(schema, |schema, key| schema.get("properties")?.get(*key))
}

fn value(text: &str, schema: Option<&Value>) -> Result<Value, String> {
    let json = serde_json::from_str::<Value>(text);
    if wants_text(schema) {
        return Ok(match json {
            Ok(Value::String(text)) => text.into(),
            _ => text.into(),
        });
    }
    match json {
        Ok(value) => Ok(value),
        Err(error) if text.starts_with(['{', '[', '"']) => {
            Err(format!("is not valid JSON at its character {}", error.column()))
        }
        Err(_) => Ok(text.into()),
    }
}

/// Whether a schema allows only strings, or lists the values that it allows.
fn wants_text(schema: Option<&Value>) -> bool {
    schema.is_some_and(|schema| schema.get("type") == Some(&Value::from("string")) || schema.get("enum").is_some())
}

fn put(object: &mut Map<String, Value>, keys: &[&str], value: Value) -> Result<(), ()> {
    let Some((key, rest)) = keys.split_first() else {
        return Err(());
    };
    if rest.is_empty() {
        return match object.insert((*key).to_owned(), value) {
            None => Ok(()),
            Some(_) => Err(()),
        };
    }
    let below = object.entry(*key).or_insert_with(|| Value::Object(Map::new()));
    put(below.as_object_mut().ok_or(())?, rest, value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(line: &str, schema: &Value) -> Result<Value, String> {
        object(&words(line)?, schema).map(Value::Object)
    }

    #[test]
    fn values_are_json_where_they_can_be() {
        assert_eq!(
            read(
                r#"name=bob n=5 ok=true none=null list=[1, "a b"] o={"a": {"b c": 1}} s="two words" t='{"raw": 1}' e= u=http://a/?b=c"#,
                &json!({})
            )
            .unwrap(),
            json!({"name": "bob", "n": 5, "ok": true, "none": null, "list": [1, "a b"], "o": {"a": {"b c": 1}},
                "s": "two words", "t": "{\"raw\": 1}", "e": "", "u": "http://a/?b=c"})
        );
    }

    #[test]
    fn a_string_of_the_schema_stays_a_string() {
        let schema = json!({"properties": {"version": {"type": "string"}, "headers": {"properties": {"id": {"type": "string"}}}}});
        assert_eq!(
            read("version=1.0 headers.id=42 headers.ttl=42 other=42", &schema).unwrap(),
            json!({"version": "1.0", "headers": {"id": "42", "ttl": 42}, "other": 42})
        );
        assert_eq!(read("version=\"1.0\"", &schema).unwrap(), json!({"version": "1.0"}));
    }

    #[test]
    fn dots_make_objects() {
        assert_eq!(
            read("payload.text=hi payload.from.name=a", &json!({})).unwrap(),
            json!({"payload": {"text": "hi", "from": {"name": "a"}}})
        );
    }

    #[test]
    fn all_arguments_may_be_one_json_object() {
        let line = r#"{"name": "alice", "schema": {"type": "object"}, "text": "a = {b"}"#;
        let object = json!({"name": "alice", "schema": {"type": "object"}, "text": "a = {b"});
        assert_eq!(read(line, &json!({})).unwrap(), object);
        assert_eq!(read("{}", &json!({})).unwrap(), json!({}));
        for (line, reason) in [
            (r#"{"name": alice}"#, "not valid at its character 10"),
            (
                r#"{"a": 1} b=2"#,
                r#"{"a": 1} has no key: an argument is key=value, or all of them are one JSON object"#,
            ),
            ("[1]", "one JSON object"),
        ] {
            let error = read(line, &json!({})).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for (line, reason) in [
            ("word", "has no key"),
            ("=x", "has no key"),
            ("a=1 a=2", "given twice"),
            ("a=1 a.b=2", "both a value and an object"),
            ("a..b=1", "is not a key"),
            ("a=\"x", "not closed"),
            ("a='x", "not closed"),
            ("a={\"b\": 1", "not closed"),
            ("a={b}", "not valid JSON"),
        ] {
            let error = read(line, &json!({})).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
        let deep = format!("{}a=1", "a.".repeat(100_000));
        assert!(read(&deep, &json!({})).unwrap_err().contains("is not a key"));
    }
}
