//! The trace context of W3C (`traceparent`, `tracestate`): validated when it is read, and written in one form.

use std::sync::Arc;

/// Bytes of `traceparent`.
pub const TRACEPARENT_LEN: usize = 55;
/// Bytes of `tracestate`; a longer one is ignored.
pub const TRACESTATE_LEN_MAX: usize = 512;
/// Entries of `tracestate` (W3C Trace Context, section 3.3.1.1).
const STATE_ENTRIES_MAX: usize = 32;
/// Bytes of a key, and of a value, of `tracestate`.
const STATE_PART_LEN_MAX: usize = 256;

/// The trace is recorded by its caller.
const SAMPLED: u8 = 1;
/// The flags that version 00 defines: sampled, and a random trace id.
const KNOWN_FLAGS: u8 = 3;

/// The position of a caller in a trace. It never holds an invalid id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The id of the trace; not 0.
    pub trace_id: u128,
    /// The id of the caller's span; not 0.
    pub span_id: u64,
    flags: u8,
    /// `tracestate` without empty entries; `None` if there is none.
    state: Option<Arc<str>>,
}

impl TraceContext {
    /// The context of a span that is recorded.
    pub const fn recorded(trace_id: u128, span_id: u64, state: Option<Arc<str>>) -> Self {
        Self {
            trace_id,
            span_id,
            flags: SAMPLED,
            state,
        }
    }

    /// Parses both values. An invalid `tracestate` is ignored; `None` for an invalid `traceparent`, because the context
    /// as a whole is ignored then (W3C Trace Context, section 3.3).
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let text = traceparent.as_bytes();
        let (head, rest) = text.split_at_checked(TRACEPARENT_LEN)?;
        let has_separators = [2, 35, 52].into_iter().all(|at| head[at] == b'-');
        let version = hex(&head[..2])?;
        let is_shaped = match version {
            0 => rest.is_empty(),
            0xff => false,
            // A later version may append fields.
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        if !has_separators || !is_shaped {
            return None;
        }
        let context = Self {
            trace_id: hex(&head[3..35])?,
            span_id: u64::try_from(hex(&head[36..52])?).ok()?,
            flags: hex(&head[53..])? as u8 & KNOWN_FLAGS,
            state: tracestate.and_then(parse_state),
        };
        (context.trace_id != 0 && context.span_id != 0).then_some(context)
    }

    /// Whether the caller records the trace.
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// `tracestate`, if there is any.
    pub const fn state(&self) -> Option<&Arc<str>> {
        self.state.as_ref()
    }

    /// `traceparent` in version 00.
    pub fn traceparent(&self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }

    /// Appends the JSON object `{"tracestate":…,"traceparent":…}`. `traceparent` is last, so that [`Self::at_end`] finds
    /// it without searching.
    pub fn write_meta(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        if let Some(state) = &self.state {
            out.extend_from_slice(STATE_MEMBER);
            // Writing a string to memory cannot fail.
            let _ = serde_json::to_writer(&mut *out, state);
            out.push(b',');
        }
        out.extend_from_slice(PARENT_MEMBER);
        out.push(b'"');
        out.extend_from_slice(self.traceparent().as_bytes());
        out.extend_from_slice(b"\"}");
    }

    /// The object that [`Self::write_meta`] wrote, if it is at the end of `json`.
    pub fn meta_at_end(json: &[u8]) -> Option<&[u8]> {
        let at = json.len().checked_sub(PARENT_TAIL_LEN)?;
        let tail = &json[at..];
        // A quotation mark inside of a JSON string is escaped, so no text of a caller looks like this.
        if !tail.starts_with(PARENT_MEMBER) || !tail.ends_with(b"\"}") {
            return None;
        }
        match json[..at].last()? {
            b'{' => json.get(at - 1..),
            b',' => {
                let from = at.saturating_sub(STATE_MEMBER.len() + 6 * TRACESTATE_LEN_MAX + 4);
                let state = memchr::memmem::rfind(&json[from..at], STATE_MEMBER)?;
                json.get((from + state).checked_sub(1)?..)
            }
            _ => None,
        }
    }

    /// The context that [`Self::write_meta`] wrote at the end of `json`.
    pub fn at_end(json: &[u8]) -> Option<Self> {
        #[derive(serde::Deserialize)]
        struct Meta {
            traceparent: String,
            tracestate: Option<String>,
        }
        let meta: Meta = serde_json::from_slice(Self::meta_at_end(json)?).ok()?;
        Self::parse(&meta.traceparent, meta.tracestate.as_deref())
    }
}

const STATE_MEMBER: &[u8] = b"\"tracestate\":";
const PARENT_MEMBER: &[u8] = b"\"traceparent\":";
/// Bytes from [`PARENT_MEMBER`] to the closing brace.
const PARENT_TAIL_LEN: usize = PARENT_MEMBER.len() + TRACEPARENT_LEN + 3;

/// A number of lower-case hexadecimal digits.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

/// `tracestate` without empty entries and white space; `None` if it is invalid or empty.
fn parse_state(text: &str) -> Option<Arc<str>> {
    if text.len() > TRACESTATE_LEN_MAX {
        return None;
    }
    let mut keys = Vec::new();
    let mut state = String::with_capacity(text.len());
    let entries = text.split(',').map(|entry| entry.trim_matches([' ', '\t']));
    for entry in entries.filter(|entry| !entry.is_empty()) {
        let (key, value) = entry.split_once('=')?;
        let is_new = keys.len() < STATE_ENTRIES_MAX && !keys.contains(&key);
        if !is_new || !is_state_key(key) || !is_state_value(value) {
            return None;
        }
        keys.push(key);
        if !state.is_empty() {
            state.push(',');
        }
        state.push_str(entry);
    }
    (!state.is_empty()).then(|| state.into())
}

fn is_state_key(key: &str) -> bool {
    let is_start = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let may_follow = |byte: u8| is_start(byte) || b"_-*/@".contains(&byte);
    key.len() <= STATE_PART_LEN_MAX && key.bytes().next().is_some_and(is_start) && key.bytes().all(may_follow)
}

fn is_state_value(value: &str) -> bool {
    let is_allowed = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b',' && byte != b'=';
    (1..=STATE_PART_LEN_MAX).contains(&value.len()) && value.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_valid_traceparent_is_written_as_it_was_read() {
        let context = TraceContext::parse(PARENT, None).unwrap();
        assert_eq!(context.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!(context.span_id, 0xb7ad_6b71_6920_3331);
        assert!(context.is_sampled());
        assert_eq!(context.traceparent(), PARENT);
        let unsampled = TraceContext::parse(&PARENT.replace("-01", "-00"), None).unwrap();
        assert!(!unsampled.is_sampled());
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let later = PARENT.replacen("00", "cc", 1).replace("-01", "-ff");
        for text in [later.clone(), format!("{later}-what-comes-then")] {
            let context = TraceContext::parse(&text, None).unwrap();
            assert_eq!(context.traceparent(), PARENT.replace("-01", "-03"), "{text}");
        }
        assert_eq!(TraceContext::parse(&format!("{later}.more"), None), None);
    }

    #[test]
    fn an_invalid_traceparent_is_ignored() {
        for wrong in [
            "",
            "00",
            &PARENT[..54],
            &format!("{PARENT}-more"),
            &PARENT.to_uppercase(),
            &PARENT.replacen("00", "ff", 1),
            &PARENT.replacen("00", "0g", 1),
            &PARENT.replace('-', "_"),
            &PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            &PARENT.replace("-01", "-+1"),
            &PARENT.replace("b7ad", "b7é"),
        ] {
            assert_eq!(TraceContext::parse(wrong, Some("a=1")), None, "{wrong}");
        }
    }

    #[test]
    fn a_tracestate_is_normalised_and_an_invalid_one_is_ignored() {
        let state = |text: &str| {
            let context = TraceContext::parse(PARENT, Some(text)).unwrap();
            context.state().map(ToString::to_string)
        };
        assert_eq!(state("a=1"), Some("a=1".to_owned()));
        assert_eq!(
            state(" rojo=00f067 ,, t61@v=\"x\\y\" "),
            Some("rojo=00f067,t61@v=\"x\\y\"".to_owned())
        );
        let (long, many) = ("x".repeat(TRACESTATE_LEN_MAX - 1), vec!["k=1"; 33].join(","));
        for wrong in [
            "",
            ",",
            "a",
            "=1",
            "a=",
            "A=1",
            "a=1,a=2",
            "a=1=2",
            "a=\u{e9}",
            "a=\n",
            &format!("a={long}"),
            &many,
        ] {
            assert_eq!(state(wrong), None, "{wrong:?}");
        }
        assert_eq!(
            state(&format!("a={}", "x".repeat(256))).map(|state| state.len()),
            Some(258)
        );
    }

    #[test]
    fn a_text_of_a_caller_is_not_mistaken_for_a_context() {
        let mut meta = Vec::new();
        TraceContext::parse(PARENT, None).unwrap().write_meta(&mut meta);
        let quoted = serde_json::to_vec(&serde_json::json!({"reply_to": String::from_utf8(meta).unwrap()})).unwrap();
        assert_eq!(TraceContext::at_end(&quoted), None);
        assert_eq!(TraceContext::at_end(b"{}"), None);
    }

    proptest! {
        #[test]
        fn a_written_context_is_found_at_the_end(
            trace_id in 1..=u128::MAX,
            span_id in 1..=u64::MAX,
            state in proptest::option::of("[a-z]{1,9}=[ -+\\--<>-~]{0,240}[!-+]"),
            before in "\\PC{0,40}",
        ) {
            let parent = format!("00-{trace_id:032x}-{span_id:016x}-01");
            let context = TraceContext::parse(&parent, state.as_deref()).unwrap();
            prop_assert_eq!(context.state().map(|state| state.to_string()), state);
            let mut json = serde_json::to_vec(&before).unwrap();
            json.extend_from_slice(b",\"_meta\":");
            let at = json.len();
            context.write_meta(&mut json);
            prop_assert_eq!(TraceContext::meta_at_end(&json), Some(&json[at..]));
            prop_assert_eq!(TraceContext::at_end(&json), Some(context));
        }

        #[test]
        fn arbitrary_texts_are_refused_without_a_panic(parent in "\\PC{0,60}", state in "\\PC{0,40}", json: Vec<u8>) {
            let _ = TraceContext::parse(&parent, Some(&state));
            let _ = TraceContext::at_end(&json);
            let _ = TraceContext::at_end(&[&json[..], b",\"traceparent\":", &[b'x'; 56], b"\"}"].concat());
        }
    }
}
