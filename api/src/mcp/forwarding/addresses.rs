//! Notes the addresses of resources that a result of a backend hands out, so that its caller can read them.

use std::borrow::Cow;

use actors::{gateway::scheme_of, model::BackendName};

use super::owner::Caller;
use crate::mcp::context::PeerContext;
use common::json::scan::{self, ScanError};

/// Addresses of one result that are noted.
const NOTED_MAX: usize = 1_000;
/// Levels of a result below which no address is looked for: that of a resource in a message of the result of a task.
const DEPTH_MAX: usize = 6;
/// Bytes of a `_meta` in which addresses are looked for.
const META_LEN_MAX: usize = 64 * 1024;

/// Notes what a result hands out that a backend gives the caller. A client that sees one backend needs no note.
pub fn note(context: &PeerContext, backend: &BackendName, result: &[u8]) {
    let Some(gateway) = context.project.gateway() else {
        return;
    };
    let may_have_any = [b"\"uri\"".as_slice(), b"\"_meta\""]
        .iter()
        .any(|member| memchr::memmem::find(result, member).is_some());
    if !may_have_any || context.exposure.only_backend(&gateway.shared().offered()).is_some() {
        return;
    }
    let mut addresses = Vec::new();
    collect(str::from_utf8(result).unwrap_or_default(), DEPTH_MAX, &mut addresses);
    let caller = Caller::of(context).id();
    for address in addresses {
        gateway.shared().handed_out.note(caller, backend, &address);
    }
}

/// The addresses in a result, in one of its parts or in a list of such.
fn collect<'a>(value: &'a str, depth: usize, addresses: &mut Vec<Cow<'a, str>>) {
    let Some(below) = depth.checked_sub(1).filter(|_| addresses.len() < NOTED_MAX) else {
        return;
    };
    // What is no JSON has no addresses.
    let _ = match value.as_bytes().first() {
        Some(b'{') => scan::members::<ScanError>(value, |key, value| {
            match &*key {
                "uri" => addresses.extend(scan::string(value)),
                "_meta" if value.len() <= META_LEN_MAX => collect_texts(value, DEPTH_MAX, addresses),
                "content" | "contents" | "messages" | "resource" | "result" => collect(value, below, addresses),
                _ => {}
            }
            Ok(())
        }),
        Some(b'[') => scan::elements::<ScanError>(value, |element| {
            collect(element, below, addresses);
            Ok(())
        }),
        _ => Ok(()),
    };
}

/// The texts in a value that look like URIs.
fn collect_texts<'a>(value: &'a str, depth: usize, addresses: &mut Vec<Cow<'a, str>>) {
    let Some(below) = depth.checked_sub(1).filter(|_| addresses.len() < NOTED_MAX) else {
        return;
    };
    let _ = match value.as_bytes().first() {
        Some(b'"') => {
            addresses.extend(scan::string(value).filter(|text| scheme_of(text).is_some()));
            Ok(())
        }
        Some(b'{') => scan::members::<ScanError>(value, |_, value| {
            collect_texts(value, below, addresses);
            Ok(())
        }),
        Some(b'[') => scan::elements::<ScanError>(value, |element| {
            collect_texts(element, below, addresses);
            Ok(())
        }),
        _ => Ok(()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_all_kinds_of_results_are_found() {
        for (result, expected) in [
            (
                r#"{"content":[{"type":"resource_link","uri":"a:1"},{"type":"resource","resource":{"uri":"a:2"}}]}"#,
                &["a:1", "a:2"][..],
            ),
            (
                r#"{"contents":[{"uri":"a:1","blob":""},{"uri":"a:\u0032"}]}"#,
                &["a:1", "a:2"],
            ),
            (
                r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a:1"}}}]}"#,
                &["a:1"],
            ),
            (
                r#"{"_meta":{"ui":{"resourceUri":"ui://a"},"n":[1,"a:2","a text: no URI"]},"content":[]}"#,
                &["ui://a", "a:2"],
            ),
            (
                r#"{"taskId":"t","result":{"content":[{"type":"resource_link","uri":"a:1"}]}}"#,
                &["a:1"],
            ),
            (r#"{"structuredContent":{"uri":"a:1"},"content":[]}"#, &[]),
            ("[", &[]),
        ] {
            let mut addresses = Vec::new();
            collect(result, DEPTH_MAX, &mut addresses);
            assert_eq!(addresses, expected, "{result}");
        }
    }

    #[test]
    fn the_addresses_of_one_result_are_bounded() {
        let link = r#"{"type":"resource_link","uri":"a:1"}"#;
        let result = format!("{{\"content\":[{}]}}", vec![link; NOTED_MAX * 2].join(","));
        let mut addresses = Vec::new();
        collect(&result, DEPTH_MAX, &mut addresses);
        assert_eq!(addresses.len(), NOTED_MAX);
    }
}
