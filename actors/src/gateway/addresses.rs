//! The addresses of the resources of backends where a client sees several backends: each has the name of its backend in front.
//! Pure.

use std::{borrow::Cow, collections::HashSet};

use super::lists::{BackendLists, ListKind};
use crate::{
    json::{self, scan},
    model::BackendName,
};

/// The scheme of user interfaces (MCP Apps). Hosts look for it, so it stays in front.
const UI: &str = "ui://";
/// What precedes a name that begins with a digit: no scheme of a URI may (RFC 3986, section 3.1).
const BEFORE_DIGIT: &str = "mcp-";
/// Bytes of a `_meta` whose addresses are looked for, and how deep they are.
const META_LEN_MAX: usize = 64 * 1024;
const META_DEPTH_MAX: usize = 8;
/// Schemes of pages that a client opens itself.
const WEB: [&str; 2] = ["http", "https"];

/// The URI under which a resource of a backend is offered: `github+file:///x`, and `ui://github/x` for `ui://x`.
pub fn offered_uri(backend: &BackendName, uri: &str) -> String {
    match uri.strip_prefix(UI) {
        Some(path) => format!("{UI}{backend}/{path}"),
        None if backend.as_str().starts_with(|c: char| c.is_ascii_digit()) => format!("{BEFORE_DIGIT}{backend}+{uri}"),
        None => format!("{backend}+{uri}"),
    }
}

/// The names that the backend of an offered URI may have, and the URI that it gives the resource. `None` for a URI that has no
/// name of a backend in it.
pub(super) fn split_uri(uri: &str) -> Option<([Option<&str>; 2], String)> {
    if let Some(rest) = uri.strip_prefix(UI) {
        let (name, path) = rest.split_once('/')?;
        return Some(([Some(name), None], format!("{UI}{path}")));
    }
    let (name, original) = uri.split_once('+')?;
    let after = name.strip_prefix(BEFORE_DIGIT);
    let numbered = after.filter(|name| name.starts_with(|c: char| c.is_ascii_digit()));
    Some(([Some(name), numbered], original.to_owned()))
}

/// The scheme of a text that looks like a URI.
pub fn scheme_of(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once(':')?;
    let mut bytes = scheme.bytes();
    let begins = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic());
    let goes_on = bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let is_one = begins && goes_on && !rest.is_empty() && !text.contains(char::is_whitespace);
    is_one.then_some(scheme)
}

/// What tells an address of a backend from other texts in `_meta`.
#[derive(Default)]
pub(super) struct Addresses<'a> {
    listed: HashSet<&'a str>,
    schemes: HashSet<&'a str>,
}

impl<'a> Addresses<'a> {
    /// The addresses of a backend that offers these lists.
    pub fn new(lists: &'a BackendLists) -> Self {
        let keys = |kind| lists.of(kind).iter().map(|item| item.key.as_str());
        let all = keys(ListKind::Resources).chain(keys(ListKind::Templates));
        Self {
            listed: keys(ListKind::Resources).collect(),
            schemes: all
                .filter_map(scheme_of)
                .filter(|scheme| !WEB.contains(scheme))
                .collect(),
        }
    }

    fn has(&self, text: &str) -> bool {
        let scheme = scheme_of(text);
        scheme.is_some_and(|scheme| scheme == "ui" || self.schemes.contains(scheme)) || self.listed.contains(text)
    }

    /// A value of `_meta` in which the addresses of a backend are those under which they are offered.
    pub fn offered_in<'v>(&self, backend: &BackendName, value: &'v str) -> Cow<'v, str> {
        if value.len() > META_LEN_MAX || !value.contains(':') {
            return Cow::Borrowed(value);
        }
        self.replaced(backend, value, META_DEPTH_MAX)
            .map_or(Cow::Borrowed(value), Cow::Owned)
    }

    /// The value with other addresses; `None` if it has none.
    fn replaced(&self, backend: &BackendName, value: &str, depth: usize) -> Option<String> {
        let below = depth.checked_sub(1)?;
        match value.as_bytes().first()? {
            b'"' => {
                let text = scan::string(value)?;
                self.has(&text).then(|| json::string(&offered_uri(backend, &text)))
            }
            b'{' => {
                let mut has_any = false;
                let text = json::replace_values::<scan::ScanError>(value, |_, member| {
                    let member = self.replaced(backend, member, below);
                    has_any |= member.is_some();
                    Ok(member)
                });
                text.ok().filter(|_| has_any)
            }
            b'[' => {
                let (mut elements, mut has_any) = (Vec::new(), false);
                scan::elements::<scan::ScanError>(value, |element| {
                    let replaced = self.replaced(backend, element, below);
                    has_any |= replaced.is_some();
                    elements.push(replaced.map_or(Cow::Borrowed(element), Cow::Owned));
                    Ok(())
                })
                .ok()?;
                has_any.then(|| format!("[{}]", elements.join(",")))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Item;

    fn name(text: &str) -> BackendName {
        BackendName::parse(text).unwrap()
    }

    #[test]
    fn an_offered_uri_is_one_and_leads_to_its_backend() {
        for (backend, uri, offered) in [
            ("docs", "file:///x", "docs+file:///x"),
            ("docs", "ui://x/y", "ui://docs/x/y"),
            ("1password", "op://vault", "mcp-1password+op://vault"),
            ("a-b", "a+b:c", "a-b+a+b:c"),
        ] {
            assert_eq!(offered_uri(&name(backend), uri), offered);
            assert!(url::Url::parse(offered).is_ok());
            let (names, original) = split_uri(offered).unwrap();
            assert!(names.contains(&Some(backend)), "{names:?}");
            assert_eq!(original, uri);
        }
        assert_eq!(split_uri("file:///x"), None);
    }

    #[test]
    fn addresses_in_meta_are_those_that_are_offered() {
        let item = |key: &str| Item {
            key: key.to_owned(),
            text: "{}".into(),
        };
        let lists = BackendLists {
            resources: vec![item("notes://one"), item("https://example.com/listed")],
            templates: vec![item("db:///{table}")],
            ..BackendLists::default()
        };
        let addresses = Addresses::new(&lists);
        let offered = |value| addresses.offered_in(&name("a"), value).into_owned();
        assert_eq!(
            offered(r#"{"ui":{"resourceUri":"ui://w/x"},"n":["notes://2", "db:///t",1.50]}"#),
            r#"{"ui":{"resourceUri":"ui://a/w/x"},"n":["a+notes://2","a+db:///t",1.50]}"#
        );
        assert_eq!(
            offered(r#""https://example.com/listed""#),
            r#""a+https://example.com/listed""#
        );
        for other in [
            r#""https://example.com/other""#,
            r#"{"a": "git://x", "b" : "notes", "c":"ui: a text", "d":"12:30"}"#,
            "[1e400]",
        ] {
            assert_eq!(offered(other), other);
        }
        assert!(
            Addresses::default()
                .offered_in(&name("a"), r#""notes://one""#)
                .contains("\"notes")
        );
    }
}
