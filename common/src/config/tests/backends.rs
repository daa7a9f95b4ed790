//! Tables of backends with mistakes.

use super::*;

#[test]
fn a_wrong_key_of_a_backend_is_named_with_its_table() {
    let refusal = |lines: &str| {
        Start::new()
            .file("b.toml", &format!("[backends.docs]\n{lines}"))
            .refusal()
    };
    for (lines, key, reason) in [
        (
            "comand = 'x'",
            "backends.docs.comand",
            "no such key; did you mean command?",
        ),
        (
            "zzz = 'x'",
            "backends.docs.zzz",
            "no such key; known: command, args, env, ",
        ),
        (
            "command = 'x'\nargs = 'y'",
            "backends.docs.args",
            "must be a list, not a string",
        ),
        (
            "command = 'x'\nargs = { a = 1 }",
            "backends.docs.args",
            "must be a list, not an object",
        ),
        (
            "command = 'x'\nenv = ['A=1']",
            "backends.docs.env",
            "must be an object, not a list",
        ),
        (
            "command = 'x'\ncall_timeout = 'soon'",
            "backends.docs.call_timeout",
            "must be a time from 100ms",
        ),
        (
            "command = 'x'\nsharing = 'user'",
            "backends.docs.sharing",
            "`user` is not allowed; allowed: `project`, `key`, `session`",
        ),
        (
            "command = 'x'\nlimits = { memoy = 1 }",
            "backends.docs.limits",
            "`memoy` is not known; known: `memory`, ",
        ),
    ] {
        let line = refusal(lines);
        assert!(line.contains(key) && line.contains(reason), "{lines}: {line}");
        assert!(!line.contains("sequence") && !line.contains("for key"), "{line}");
    }
    let elsewhere = Start::new()
        .file("b.toml", "[projects.team.backends.docs]\ncomand = 'x'")
        .refusal();
    assert!(elsewhere.contains("projects.team.backends.docs.comand"), "{elsewhere}");
}
