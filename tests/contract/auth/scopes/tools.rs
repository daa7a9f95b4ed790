//! Every tool, with the scope it needs.

use super::{
    Level::{self, Admin, Member, Observer, Operator},
    NO_ERROR,
};

/// A tool, the scope it needs, its arguments, and the code of its error for a caller with that scope. `$N` is a new
/// number in each call, `$MESSAGE` the id of a message that was sent.
pub(super) const TOOLS: [(&str, Level, &str, &str); 30] = [
    ("register_session", Member, "{}", NO_ERROR),
    ("heartbeat", Member, "{}", NO_ERROR),
    ("list_sessions", Observer, "{}", NO_ERROR),
    (
        "register_protocol",
        Member,
        r#"{"name": "p$N", "version": "1.0.0", "schema": {}}"#,
        NO_ERROR,
    ),
    ("discover_protocols", Observer, "{}", NO_ERROR),
    (
        "transform_message",
        Observer,
        r#"{"protocol_name": "note", "from_version": "1.0.0", "to_version": "1.0.0", "payload": {"text": ""}}"#,
        NO_ERROR,
    ),
    (
        "negotiate_capabilities",
        Member,
        r#"{"target_session_id": "peer"}"#,
        NO_ERROR,
    ),
    (
        "compatibility_matrix",
        Observer,
        r#"{"session_ids": ["peer"]}"#,
        NO_ERROR,
    ),
    (
        "send_message",
        Member,
        r#"{"recipient_id": "peer", "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": ""}}"#,
        NO_ERROR,
    ),
    (
        "broadcast_message",
        Member,
        r#"{"protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": ""}}"#,
        NO_ERROR,
    ),
    ("receive_messages", Member, "{}", NO_ERROR),
    ("acknowledge_messages", Member, r#"{"message_ids": []}"#, NO_ERROR),
    (
        "get_message_status",
        Observer,
        r#"{"message_id": "$MESSAGE"}"#,
        NO_ERROR,
    ),
    ("get_thread", Member, r#"{"thread_id": "t"}"#, NO_ERROR),
    ("search_messages", Member, r#"{"query": "a"}"#, NO_ERROR),
    ("list_dead_letters", Observer, "{}", NO_ERROR),
    ("redrive_dead_letters", Member, r#"{"message_ids": []}"#, NO_ERROR),
    (
        "create_project",
        Operator,
        r#"{"project_id": "made-$N", "name": "made"}"#,
        NO_ERROR,
    ),
    ("list_projects", Observer, "{}", NO_ERROR),
    ("get_project_info", Observer, "{}", NO_ERROR),
    (
        "grant_project_access",
        Admin,
        r#"{"target_project_id": "other"}"#,
        NO_ERROR,
    ),
    (
        "revoke_project_access",
        Admin,
        r#"{"target_project_id": "other"}"#,
        NO_ERROR,
    ),
    (
        "rotate_project_keys",
        Admin,
        r#"{"key_id": "nosuchkey"}"#,
        "invalid_argument",
    ),
    (
        "add_backend",
        Admin,
        r#"{"name": "docs", "command": "sh"}"#,
        "command_not_allowed",
    ),
    (
        "clarify",
        Member,
        r#"{"question": "Go on?", "wait_seconds": 0, "idempotency_key": "go-on"}"#,
        NO_ERROR,
    ),
    ("get_answer", Member, "{}", NO_ERROR),
    (
        "cancel_question",
        Member,
        r#"{"question_id": "0198f3a0-0000-7000-8000-000000000000"}"#,
        "question_not_found",
    ),
    ("yap", Member, r#"{"message": "going on"}"#, NO_ERROR),
    (
        "permission_prompt",
        Member,
        r#"{"tool_name": "Bash", "input": 1, "tool_use_id": "t"}"#,
        "invalid_argument",
    ),
    ("disconnect_session", Member, "{}", NO_ERROR),
];
