//! The table `tools` of a backend: which of its tools are offered, under which names and texts, and how long calls of
//! single tools may take.

use std::{collections::BTreeMap, time::Duration};

use actors::model::{CallTimeouts, ToolChoice, ToolOverride};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use super::span::{Rule, Span, hours, millis};

/// Times of a backend.
pub const BACKEND_TIME: Span = Span(millis(100)..=hours(24 * 7));

/// Tools with timeouts of their own, and tools with other texts, of one backend.
const TOOLS_MAX: usize = 1_000;
const TITLE_BYTES_MAX: usize = 256;
const DESCRIPTION_BYTES_MAX: usize = 4 * 1024;
/// Characters of a name that errors show.
const SHOWN_CHARS_MAX: usize = 64;

const TIMEOUTS: [&str; 2] = ["call_timeout", "call_timeout_max"];
/// Members of a table in `tools.override`.
const OVERRIDE: [&str; 4] = ["title", "description", TIMEOUTS[0], TIMEOUTS[1]];

/// What the configuration says of the tools of a backend.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct ToolsTable {
    #[serde(deserialize_with = "patterns")]
    allow: Vec<String>,
    #[serde(deserialize_with = "patterns")]
    deny: Vec<String>,
    rename: BTreeMap<String, String>,
    #[serde(rename = "override")]
    overrides: BTreeMap<String, Value>,
    /// The tables of single tools, by their original names.
    #[serde(flatten)]
    single: BTreeMap<String, Value>,
}

fn patterns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Vec::deserialize(deserializer).map_err(|_| {
        let reason = "allow and deny are lists of patterns; a tool that is called so has its table in tools.override";
        D::Error::custom(reason)
    })
}

impl ToolsTable {
    /// What holds for the tools of a backend whose calls may take this long.
    ///
    /// # Errors
    /// The first wrong key, and what is allowed.
    pub fn choice(self, of_backend: CallTimeouts) -> Result<ToolChoice, String> {
        for key in TIMEOUTS {
            if self
                .rename
                .get(key)
                .is_some_and(|name| BACKEND_TIME.parse(name).is_ok())
            {
                let reason = "rename has the new names of tools; timeouts of a tool that is called so";
                return Err(format!("tools.rename.{key}: {reason} are in tools.override.rename"));
            }
        }
        let mut timeouts = single_timeouts(self.single, of_backend)?;
        Ok(ToolChoice {
            overrides: overrides(self.overrides, &self.rename, of_backend, &mut timeouts)?,
            timeouts,
            allow: self.allow,
            deny: self.deny,
            rename: self.rename,
        })
    }
}

/// The timeouts that the tables of single tools set.
fn single_timeouts(
    single: BTreeMap<String, Value>,
    of_backend: CallTimeouts,
) -> Result<BTreeMap<String, CallTimeouts>, String> {
    check_number("tools", single.len())?;
    let one = |(tool, table): (String, Value)| {
        let key = under("tools", &tool);
        if !table.is_object() {
            return Err(format!(
                "{key}: is not known; known: allow, deny, rename, override, and tables of single tools with {}",
                TIMEOUTS.join(", ")
            ));
        }
        let timeouts = timeouts(&key, members(&key, table, TIMEOUTS)?, of_backend)?;
        Ok((tool, timeouts))
    };
    single.into_iter().map(one).collect()
}

/// The timeouts of a tool. A time that its table lacks is that of the backend, unless the other one excludes it.
fn timeouts(key: &str, texts: [Option<String>; 2], of_backend: CallTimeouts) -> Result<CallTimeouts, String> {
    let [silent, total] = texts;
    let [silent, total] = [time(key, TIMEOUTS[0], silent)?, time(key, TIMEOUTS[1], total)?];
    Ok(match (silent, total) {
        (None, None) => of_backend,
        (None, Some(total)) => CallTimeouts {
            silent: of_backend.silent.min(total),
            total,
        },
        (Some(silent), total) => CallTimeouts {
            silent,
            total: total.unwrap_or(of_backend.total).max(silent),
        },
    })
}

fn time(key: &str, member: &str, text: Option<String>) -> Result<Option<Duration>, String> {
    let parsed = text.map(|text| BACKEND_TIME.parse(text.trim())).transpose();
    parsed.map_err(|_| format!("{key}.{member}: must be {}", BACKEND_TIME.allowed()))
}

/// The texts of tools by their original names, and their timeouts, which join those of the tables of single tools. A
/// table has the name that the tool is renamed to, or the original one.
fn overrides(
    tables: BTreeMap<String, Value>,
    rename: &BTreeMap<String, String>,
    of_backend: CallTimeouts,
    all_timeouts: &mut BTreeMap<String, CallTimeouts>,
) -> Result<BTreeMap<String, ToolOverride>, String> {
    check_number("tools.override", tables.len())?;
    let mut originals = BTreeMap::<&str, Vec<&String>>::new();
    for (original, renamed) in rename {
        originals.entry(renamed).or_default().push(original);
    }
    let mut overrides = BTreeMap::new();
    for (name, table) in tables {
        let key = under("tools.override", &name);
        let [title, description, silent, total] = members(&key, table, OVERRIDE)?;
        for (member, text, bytes_max) in [
            (OVERRIDE[0], &title, TITLE_BYTES_MAX),
            (OVERRIDE[1], &description, DESCRIPTION_BYTES_MAX),
        ] {
            if text.as_ref().is_some_and(|text| text.len() > bytes_max) {
                return Err(format!("{key}.{member}: at most {bytes_max} bytes"));
            }
        }
        let original = match originals.get(name.as_str()).map(Vec::as_slice) {
            None => name,
            Some([original]) => (*original).clone(),
            Some(_) => return Err(format!("{key}: several tools are renamed so")),
        };
        let texts = ToolOverride { title, description };
        if overrides.insert(original.clone(), texts).is_some() {
            return Err(format!(
                "{key}: another table is of the same tool, under its other name"
            ));
        }
        if silent.is_some() || total.is_some() {
            let other = under("tools", &original);
            let timeouts = timeouts(&key, [silent, total], of_backend)?;
            if all_timeouts.insert(original, timeouts).is_some() {
                return Err(format!(
                    "{key}: {other} is about the same tool: set its timeouts in one of the two"
                ));
            }
        }
    }
    Ok(overrides)
}

fn check_number(key: &str, number: usize) -> Result<(), String> {
    if number > TOOLS_MAX {
        return Err(format!("{key}: at most {TOOLS_MAX} tables of tools"));
    }
    Ok(())
}

/// The texts of the known members of a table.
fn members<const N: usize>(key: &str, table: Value, known: [&str; N]) -> Result<[Option<String>; N], String> {
    let Value::Object(table) = table else {
        return Err(format!("{key}: must be a table with {}", known.join(", ")));
    };
    let mut found = [const { None }; N];
    for (member, value) in table {
        let Some(at) = known.iter().position(|known| *known == member) else {
            let key = under(key, &member);
            return Err(format!("{key}: is not known; known: {}", known.join(", ")));
        };
        found[at] = match value {
            Value::String(text) => Some(text),
            Value::Number(number) => Some(number.to_string()),
            _ => return Err(format!("{}: must be a text", under(key, &member))),
        };
    }
    Ok(found)
}

/// The key of an entry of a table.
fn under(table: &str, name: &str) -> String {
    let shown: String = name.chars().take(SHOWN_CHARS_MAX).collect();
    format!("{table}.{shown}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::span::seconds, *};

    fn choice(table: Value) -> Result<ToolChoice, String> {
        let of_backend = CallTimeouts {
            silent: seconds(60),
            total: seconds(600),
        };
        let table: ToolsTable = serde_json::from_value(table).map_err(|error| error.to_string())?;
        table.choice(of_backend)
    }

    #[test]
    fn a_tool_has_the_timeouts_of_its_table_and_otherwise_those_of_the_backend() {
        for (table, silent, total) in [
            (json!({"call_timeout": "5s"}), 5, 600),
            (json!({"call_timeout": 20}), 20, 600),
            (json!({"call_timeout": "20m"}), 1_200, 1_200),
            (json!({"call_timeout_max": "90s"}), 60, 90),
            (json!({"call_timeout_max": "30s"}), 30, 30),
            (json!({"call_timeout": "5s", "call_timeout_max": "7s"}), 5, 7),
            (json!({"call_timeout": "9s", "call_timeout_max": "7s"}), 9, 9),
            (json!({}), 60, 600),
        ] {
            let choice = choice(json!({"a.b": table.clone(), "deny": ["x"], "rename": {"y": "z"}})).unwrap();
            let (silent, total) = (seconds(silent), seconds(total));
            assert_eq!(choice.timeouts["a.b"], CallTimeouts { silent, total }, "{table}");
            assert_eq!(
                (choice.timeouts.len(), choice.deny.len(), choice.rename.len()),
                (1, 1, 1)
            );
        }
    }

    #[test]
    fn the_table_of_a_tool_in_override_has_timeouts_whatever_the_tool_is_called() {
        let one = |silent, total| CallTimeouts {
            silent: seconds(silent),
            total: seconds(total),
        };
        let override_of = json!({
            "allow": {"call_timeout": "5s", "title": "T"},
            "deny": {"call_timeout_max": 30},
            "rename": {"call_timeout": "9s", "call_timeout_max": "7s"},
            "override": {"call_timeout": "6s"},
            "call_timeout": {"call_timeout": "8s"},
            "new": {"call_timeout": "7s"},
            "texts": {"title": "T"},
        });
        let table = json!({
            "override": override_of,
            "rename": {"old": "new", "x": "single"},
            "deny": ["x"],
            "single": {"call_timeout": "4s"},
        });
        let expected = [
            ("allow", one(5, 600)),
            ("deny", one(30, 30)),
            ("rename", one(9, 9)),
            ("override", one(6, 600)),
            ("call_timeout", one(8, 600)),
            ("old", one(7, 600)),
            ("single", one(4, 600)),
        ];
        let expected = expected.map(|(tool, timeouts)| (tool.to_owned(), timeouts));
        let choice = choice(table).unwrap();
        assert_eq!(choice.timeouts, BTreeMap::from(expected));
        assert_eq!(choice.overrides["allow"].title.as_deref(), Some("T"));
    }

    #[test]
    fn texts_are_found_by_the_new_name_of_a_tool_and_by_the_original_one() {
        let rename = json!({"search_repositories": "repos", "a": "b", "b": "a"});
        let with = |overrides: Value| choice(json!({"rename": rename, "override": overrides}));
        for (name, original) in [
            ("repos", "search_repositories"),
            ("search_repositories", "search_repositories"),
            ("a", "b"),
            ("other", "other"),
        ] {
            let overrides = with(json!({name: {"title": "T"}})).unwrap().overrides;
            let texts = ToolOverride {
                title: Some("T".to_owned()),
                description: None,
            };
            assert_eq!(overrides, BTreeMap::from([(original.to_owned(), texts)]), "{name}");
        }
        let both = with(json!({"repos": {}, "search_repositories": {}})).unwrap_err();
        assert!(
            both.starts_with("tools.override.search_repositories: another table"),
            "{both}"
        );
        let several = choice(json!({"rename": {"a": "c", "b": "c"}, "override": {"c": {}}})).unwrap_err();
        assert!(several.starts_with("tools.override.c: several tools"), "{several}");
    }

    #[test]
    fn a_wrong_table_of_a_tool_is_refused_with_its_key() {
        let long = |bytes: usize| "x".repeat(bytes);
        for (table, error) in [
            (
                json!({"alow": []}),
                "tools.alow: is not known; known: allow, deny, rename, override, and",
            ),
            (json!({"a": "5s"}), "tools.a: is not known"),
            (
                json!({"a": {"timeout": "5s"}}),
                "tools.a.timeout: is not known; known: call_timeout, call_timeout_max",
            ),
            (
                json!({"a": {"call_timeout": "soon"}}),
                "tools.a.call_timeout: must be a time from 100ms to 7d",
            ),
            (
                json!({"a": {"call_timeout_max": "99ms"}}),
                "tools.a.call_timeout_max: must be a time",
            ),
            (
                json!({"a": {"call_timeout": null}}),
                "tools.a.call_timeout: must be a text",
            ),
            (
                json!({"allow": {"call_timeout": "5s"}}),
                "allow and deny are lists of patterns; a tool",
            ),
            (json!({"deny": "x"}), "allow and deny are lists of patterns; a tool"),
            (
                json!({"rename": {"call_timeout_max": "5s"}}),
                "tools.rename.call_timeout_max: rename has the new",
            ),
            (
                json!({"override": {"call_timeout": "5s"}}),
                "tools.override.call_timeout: must be a table with title",
            ),
            (
                json!({"override": {"deny": {"call_timeout": "soon"}}}),
                "tools.override.deny.call_timeout: must be a time from 100ms to 7d",
            ),
            (
                json!({"override": {"b": {"call_timeout": "5s"}}, "rename": {"a": "b"}, "a": {}}),
                "tools.override.b: tools.a is about the same tool: set its timeouts in one of the two",
            ),
            (
                json!({"override": {"a": {"name": "b"}}}),
                "tools.override.a.name: is not known; known: title, desc",
            ),
            (
                json!({"override": {"a": {"title": []}}}),
                "tools.override.a.title: must be a text",
            ),
            (
                json!({"override": {"a": {"title": long(257)}}}),
                "tools.override.a.title: at most 256 bytes",
            ),
            (
                json!({"override": {"a": {"description": long(4_097)}}}),
                "tools.override.a.description: at most 4096",
            ),
        ] {
            let found = choice(table.clone()).unwrap_err();
            assert!(found.starts_with(error), "{table}: {found}");
        }
        let name = choice(json!({long(1_000): 1})).unwrap_err();
        assert!(name.len() < 250, "{name}");
        choice(json!({"override": {"a": {"title": long(256), "description": long(4_096)}}})).unwrap();
    }

    #[test]
    fn the_tables_of_tools_are_bounded_in_number() {
        let tables = |number: usize| -> Value { (0..number).map(|at| (format!("t{at}"), json!({}))).collect() };
        choice(tables(1_000)).unwrap();
        assert!(choice(tables(1_001)).unwrap_err().starts_with("tools: at most 1000"));
        choice(json!({"override": tables(1_000)})).unwrap();
        let error = choice(json!({"override": tables(1_001)})).unwrap_err();
        assert!(error.starts_with("tools.override: at most 1000"), "{error}");
    }
}
