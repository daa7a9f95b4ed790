//! Servers over HTTP that do what they should not: they refuse, break off, redirect, forget, and answer with something else.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
    mpsc,
};

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan, tools_of},
    scripted_server::{Answer, ScriptedServer, done, event, legacy, method_of, modern, result, work},
    support::{Agent, Got, Redis, eventually},
};

/// A gateway with the backend `far` at a server.
fn with(server: &ScriptedServer, lines: &str) -> Gateway {
    Plan::new().url("far", &server.url(), lines).start()
}

/// A modern server whose calls are answered like this.
fn modern_server(answer: impl Fn(&Got) -> Answer + Send + Sync + 'static) -> ScriptedServer {
    ScriptedServer::start(move |request, _| match method_of(request).as_str() {
        "tools/call" => answer(request),
        _ => modern(request, &work()),
    })
}

fn reason_of(gateway: &Gateway) -> (String, String) {
    let shown = gateway.get("/api/v1/backends/far").json();
    let text = |member: &str| shown[member].as_str().unwrap_or_default().to_owned();
    (text("state"), text("reason"))
}

#[test]
fn an_error_of_http_is_the_error_of_the_call() {
    for (status, head, code, retryable, retry_after_ms) in [
        ("500 Internal Server Error", None, "backend_error", false, Value::Null),
        (
            "503 Service Unavailable",
            Some("Retry-After: 7"),
            "backend_error",
            false,
            json!(7_000),
        ),
        (
            "429 Too Many Requests",
            Some("Retry-After: 2"),
            "backend_error",
            true,
            json!(2_000),
        ),
        ("401 Unauthorized", None, "backend_error", true, Value::Null),
        ("200 OK", None, "backend_error", false, Value::Null),
    ] {
        let server = modern_server(move |_| {
            let lines = head.into_iter().chain(["Content-Type: text/html"]).map(str::to_owned);
            Answer::Http(status, lines.collect(), "<h1>Sorry</h1>".to_owned())
        });
        let gateway = with(&server, "");
        let error = gateway.legacy().fails_as(code, "far__work", json!({}));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&format!("HTTP {}", &status[..3])), "{message}");
        assert_eq!(error["detail"]["retryable"], retryable, "{status}: {error}");
        assert_eq!(
            error.get("retry_after_ms").unwrap_or(&Value::Null),
            &retry_after_ms,
            "{status}: {error}"
        );
    }
}

#[test]
fn a_connection_that_breaks_in_mid_answer_ends_the_call_at_once() {
    for half in [
        "",
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"jsonrpc\"",
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"jso",
    ] {
        let server = modern_server(|_| Answer::Raw(half.to_owned()));
        let gateway = with(&server, "");
        let error = gateway.legacy().fails_as("backend_died", "far__work", json!({}));
        assert_eq!(error["detail"]["retryable"], false, "{half}: {error}");
    }
}

#[test]
fn an_answer_to_another_call_is_no_answer() {
    let server = modern_server(|_| Answer::json(&json!({"jsonrpc": "2.0", "id": 1, "result": {}})));
    let error = with(&server, "")
        .legacy()
        .fails_as("backend_error", "far__work", json!({}));
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("not the answer to the call"),
        "{error}"
    );
}

#[test]
fn a_server_that_fails_again_and_again_is_left_alone_for_a_while() {
    let server = modern_server(|_| Answer::status("502 Bad Gateway", "no upstream"));
    let gateway = with(&server, "");
    let client = gateway.legacy();
    // It answers its handshake all the same, so that it is tried again after each rest.
    let mut codes = Vec::new();
    for _ in 0..40 {
        let result = client.result_of("far__work", json!({})).unwrap();
        codes.push(result["structuredContent"]["code"].as_str().unwrap().to_owned());
    }
    assert!(codes.iter().take(4).all(|code| code == "backend_error"), "{codes:?}");
    assert!(codes.iter().any(|code| code == "backend_unavailable"), "{codes:?}");
    let calls = server.requests("tools/call");
    assert!(calls < 40, "{calls} calls have reached it");
}

#[test]
fn requests_follow_a_redirect_within_the_server_and_no_other() {
    for status in [
        "301 Moved Permanently",
        "302 Found",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
    ] {
        let server = ScriptedServer::start(move |request, _| match request.path.as_str() {
            "/mcp" => Answer::Http(status, vec!["Location: ./v2/../mcp/".to_owned()], String::new()),
            "/mcp/" if method_of(request) == "tools/call" => Answer::json(&result(request, &done())),
            "/mcp/" => modern(request, &work()),
            _ => Answer::status("404 Not Found", ""),
        });
        with(&server, "").legacy().gets("far__work", json!({}));
    }

    let elsewhere = ScriptedServer::start(|request, _| modern(request, &work()));
    let target = format!("Location: {}", elsewhere.url());
    let server =
        ScriptedServer::start(move |_, _| Answer::Http("307 Temporary Redirect", vec![target.clone()], String::new()));
    let gateway = with(&server, "headers = { Authorization = \"Bearer secret\" }");
    let (_, reason) = eventually("it is refused", || {
        let (state, reason) = reason_of(&gateway);
        (state == "backoff").then_some((state, reason))
    });
    assert!(reason.contains("redirects to another server"), "{reason}");
    assert_eq!(elsewhere.with_http_method("POST"), 0, "no credentials went there");
}

#[test]
fn a_server_that_wants_other_credentials_is_not_asked_again_and_again() {
    let server = ScriptedServer::start(|_, _| Answer::status("401 Unauthorized", "no token"));
    let gateway = with(
        &server,
        "headers = { Authorization = \"Bearer ${PASSED}\", X-Key = \"k\" }",
    );
    let (_, reason) = eventually("it has failed", || {
        let (state, reason) = reason_of(&gateway);
        (state == "failed").then_some((state, reason))
    });
    assert_eq!(reason, "HTTP 401: no token");
    assert_eq!(server.with_http_method("POST"), 1);
    let sent = server.header_of("server/discover", "authorization");
    assert_eq!(sent.as_deref(), Some("Bearer passed"));
    let shown = gateway.get("/api/v1/backends/far").json().to_string();
    assert!(!shown.contains("Bearer"), "{shown}");
}

#[test]
fn a_session_that_the_server_has_forgotten_is_renewed_once_and_the_call_repeated_once() {
    for (status, body) in [
        ("404 Not Found", "gone"),
        ("400 Bad Request", "Bad Request: No valid session ID provided"),
        ("401 Unauthorized", "the session has expired"),
        ("403 Forbidden", "invalid Session"),
        ("410 Gone", "session closed"),
        ("422 Unprocessable Entity", "unknown session"),
        ("500 Internal Server Error", "KeyError: session"),
        ("200 OK", "Session not found"),
    ] {
        let sessions = Arc::new(AtomicUsize::new(0));
        let given = Arc::clone(&sessions);
        let server = ScriptedServer::start(move |request, _| match method_of(request).as_str() {
            "initialize" => {
                let number = given.fetch_add(1, Ordering::SeqCst);
                legacy(request, &format!("session-{number}"))
            }
            // The first session is forgotten after the lists.
            "tools/call" if request.header("mcp-session-id") == Some("session-0") && status == "200 OK" => {
                let error = json!({"code": -32001, "message": body});
                Answer::json(&json!({"jsonrpc": "2.0", "id": request.json()["id"], "error": error}))
            }
            "tools/call" if request.header("mcp-session-id") == Some("session-0") => Answer::status(status, body),
            "tools/call" => Answer::json(&result(request, &done())),
            _ => legacy(request, ""),
        });
        let gateway = with(&server, "");
        let client = gateway.legacy();
        assert_eq!(client.gets("far__work", json!({})), json!({"done": true}));
        assert_eq!(client.gets("far__work", json!({})), json!({"done": true}));
        assert_eq!((sessions.load(Ordering::SeqCst), server.requests("tools/call")), (2, 3));
        assert_eq!(
            server.header_of("tools/call", "mcp-protocol-version").as_deref(),
            Some("2025-11-25")
        );
        gateway.is_configured(|plan| plan);
        eventually("the session is ended with its backend", || {
            (server.with_http_method("DELETE") == 1).then_some(())
        });
    }
}

#[test]
fn a_server_that_was_away_may_have_lost_the_session_whatever_it_says() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let server = ScriptedServer::start(move |request, _| match method_of(request).as_str() {
        "initialize" => legacy(request, &format!("session-{}", counted.load(Ordering::SeqCst))),
        "tools/call" if request.header("mcp-session-id") == Some("session-0") => {
            match counted.fetch_add(1, Ordering::SeqCst) {
                0 => Answer::Raw(String::new()),
                _ => Answer::status("400 Bad Request", "no"),
            }
        }
        "tools/call" => Answer::json(&result(request, &done())),
        _ => legacy(request, ""),
    });
    let gateway = with(&server, "");
    let client = gateway.legacy();
    client.fails_as("backend_died", "far__work", json!({}));
    assert_eq!(client.gets("far__work", json!({})), json!({"done": true}));
    assert_eq!(server.requests("initialize"), 2);
}

#[test]
fn a_server_that_was_away_and_gives_no_other_session_keeps_the_one_it_has() {
    let (calls, openings) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let server = ScriptedServer::start(move |request, _| match method_of(request).as_str() {
        "initialize" if openings.fetch_add(1, Ordering::SeqCst) > 0 => Answer::status("400 Bad Request", "one session"),
        "tools/call" => match calls.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::Raw(String::new()),
            1 => Answer::status("400 Bad Request", "no"),
            _ => Answer::json(&result(request, &done())),
        },
        _ => legacy(request, "s"),
    });
    let gateway = with(&server, "");
    let client = gateway.legacy();
    client.fails_as("backend_died", "far__work", json!({}));
    client.fails_as("backend_error", "far__work", json!({}));
    assert_eq!(client.gets("far__work", json!({})), json!({"done": true}));
}

#[test]
fn a_refusal_that_names_no_session_or_may_come_after_the_call_is_not_about_one() {
    for (status, body) in [
        ("401 Unauthorized", "no"),
        ("403 Forbidden", "no"),
        ("422 Unprocessable Entity", "no"),
        ("500 Internal Server Error", "no"),
        ("409 Conflict", "the session is busy"),
        ("503 Service Unavailable", "too many sessions"),
        ("504 Gateway Timeout", "the session did not answer"),
    ] {
        let server = ScriptedServer::start(move |request, _| match method_of(request).as_str() {
            "tools/call" => Answer::status(status, body),
            _ => legacy(request, "s"),
        });
        let gateway = with(&server, "");
        gateway.legacy().fails_as("backend_error", "far__work", json!({}));
        assert_eq!(server.requests("tools/call"), 1, "{status}");
        assert_eq!(server.requests("initialize"), 1, "{status}");
    }
}

#[test]
fn a_gateway_that_loses_patience_with_one_call_says_nothing_of_the_session() {
    let calls = AtomicUsize::new(0);
    let server = ScriptedServer::start(move |request, _| match method_of(request).as_str() {
        "tools/call" => match calls.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::status("504 Gateway Timeout", "slow"),
            _ => Answer::status("403 Forbidden", "no"),
        },
        _ => legacy(request, "s"),
    });
    let gateway = with(&server, "");
    let client = gateway.legacy();
    for _ in 0..2 {
        client.fails_as("backend_error", "far__work", json!({}));
    }
    assert_eq!(server.requests("initialize"), 1);
}

#[test]
fn a_level_of_log_messages_that_waits_for_a_session_holds_up_none_of_those_that_renew_it() {
    let (level_came, awaits_level) = mpsc::channel();
    let (level_came, awaits_level) = (Mutex::new(level_came), Mutex::new(awaits_level));
    let openings = AtomicUsize::new(0);
    let server = ScriptedServer::start(move |request, _| match method_of(request).as_str() {
        "initialize" => {
            let number = openings.fetch_add(1, Ordering::SeqCst);
            if number == 1 {
                let _ = awaits_level.lock().unwrap().recv();
            }
            let opened = json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "logging": {}},
                "serverInfo": {"name": "scripted", "version": "1"},
            });
            Answer::json_with(&result(request, &opened), &[&format!("Mcp-Session-Id: {number}")])
        }
        "logging/setLevel" if request.header("mcp-session-id") == Some("0") => {
            let _ = level_came.lock().unwrap().send(());
            Answer::status("404 Not Found", "gone")
        }
        "tools/call" if request.header("mcp-session-id") == Some("0") => Answer::status("404 Not Found", "gone"),
        "tools/call" | "logging/setLevel" => Answer::json(&result(request, &done())),
        _ => legacy(request, ""),
    });
    let gateway = with(&server, "");
    let (quiet, loud) = (gateway.legacy(), gateway.legacy());
    loud.request("logging/setLevel", json!({"level": "info"})).unwrap();
    let first = quiet.begins_call("far__work", &json!({}));
    eventually("the session is being renewed", || {
        (server.requests("tools/call") == 1).then_some(())
    });
    assert_eq!(loud.gets("far__work", json!({})), json!({"done": true}));
    quiet.wire.answer_to(&first).unwrap();
    assert_eq!(server.requests("initialize"), 2);
}

#[test]
fn a_stream_of_notifications_that_fails_renews_no_session_and_another_session_has_its_own() {
    let streams = Arc::new(Mutex::new(Vec::new()));
    let opened = Arc::clone(&streams);
    let openings = AtomicUsize::new(0);
    let server =
        ScriptedServer::start(
            move |request, _| match (request.method.as_str(), method_of(request).as_str()) {
                ("GET", _) => {
                    let mut streams = opened.lock().unwrap();
                    streams.push(request.header("mcp-session-id").unwrap().to_owned());
                    match streams.len() {
                        1 => Answer::status("500 Internal Server Error", "no stream for this session"),
                        _ => Answer::Events(Vec::new()),
                    }
                }
                (_, "initialize") => legacy(request, &openings.fetch_add(1, Ordering::SeqCst).to_string()),
                (_, "tools/call") if request.header("mcp-session-id") == Some("0") => {
                    Answer::status("404 Not Found", "gone")
                }
                (_, "tools/call") => Answer::json(&result(request, &done())),
                _ => legacy(request, ""),
            },
        );
    let gateway = with(&server, "");
    let client = gateway.legacy();
    eventually("the stream was opened again", || {
        (streams.lock().unwrap().len() == 2).then_some(())
    });
    assert_eq!(server.requests("initialize"), 1);
    client.gets("far__work", json!({}));
    eventually("the other session has a stream", || {
        (streams.lock().unwrap()[..] == ["0", "0", "1"]).then_some(())
    });
}

#[test]
fn answers_over_http_that_are_written_in_another_way_are_answers() {
    fn answer(request: &Got, form: &str) -> String {
        let id = request.json()["id"].to_string();
        form.replace("ID", &id).replace("RESULT", &done().to_string())
    }
    let stream = |text: String| Answer::EventsThenEnd(vec![format!("data: {text}\n\n")]);
    for form in [
        r#"{"jsonrpc":"2.0","id":"ID","error":null,"result":RESULT}"#,
        r#"{"jsonrpc":"2.0","result":RESULT,"id":ID.0,"error":null}"#,
        "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":RESULT}",
    ] {
        for is_stream in [false, true] {
            let server = ScriptedServer::start(move |request, _| match method_of(request).as_str() {
                "tools/call" if is_stream => stream(answer(request, form)),
                "tools/call" => {
                    let head = vec!["Content-Type: application/json".to_owned()];
                    Answer::Http("200 OK", head, answer(request, form))
                }
                _ => legacy(request, "s"),
            });
            let gateway = with(&server, "");
            let got = gateway.legacy().gets("far__work", json!({}));
            assert_eq!(got, json!({"done": true}), "{form}, as a stream: {is_stream}");
        }
    }
}

#[test]
fn an_answer_over_http_that_cannot_be_read_ends_its_call() {
    for (text, reason) in [
        (r#"{"jsonrpc":"2.0","id":ID,"result":{"x":NaN}}"#, "no JSON"),
        (r#"{"id":ID,"result":{}}"#, "jsonrpc"),
    ] {
        let server = ScriptedServer::start(move |request, _| match method_of(request).as_str() {
            "tools/call" => {
                let text = text.replace("ID", &request.json()["id"].to_string());
                Answer::EventsThenEnd(vec![format!("data: {text}\n\n")])
            }
            _ => legacy(request, "s"),
        });
        let gateway = with(&server, "");
        let error = gateway.legacy().fails_as("backend_protocol", "far__work", json!({}));
        assert!(error["message"].as_str().unwrap().contains(reason), "{error}");
    }
}

#[test]
fn a_stream_of_notifications_that_breaks_is_opened_again_and_nothing_is_listed_anew() {
    let streams = Arc::new(AtomicUsize::new(0));
    let opened = Arc::clone(&streams);
    let server = ScriptedServer::start(move |request, _| match request.method.as_str() {
        "GET" => match opened.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::EventsThenEnd(vec!["id: 41\ndata:\n\n".to_owned()]),
            1 if request.header("last-event-id") == Some("41") => Answer::EventsThenEnd(Vec::new()),
            2 => Answer::Events(vec![event(&json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}))]),
            at => panic!("stream {at}: the second one was asked for without the last id, or the third has ended"),
        },
        _ => legacy(request, "s"),
    });
    let gateway = with(&server, "");
    tools_of(&gateway.legacy(), "far");
    eventually("the stream was opened a third time", || {
        (streams.load(Ordering::SeqCst) == 3).then_some(())
    });
    eventually("the request in the stream was answered", || {
        (server.requests("") > 3).then_some(())
    });
    assert_eq!(server.requests("tools/list"), 1);
}

#[test]
fn a_server_without_a_stream_of_notifications_is_asked_for_it_once() {
    let server = ScriptedServer::start(|request, _| match method_of(request).as_str() {
        "tools/call" => Answer::json(&result(request, &done())),
        _ => legacy(request, "s"),
    });
    let gateway = with(&server, "");
    let client = gateway.legacy();
    for _ in 0..10 {
        client.gets("far__work", json!({}));
    }
    assert_eq!(server.with_http_method("GET"), 1);
}

#[test]
fn a_stream_that_ends_before_the_answer_is_resumed_where_the_server_can() {
    let called = Arc::new(Mutex::new(None));
    let of_call = Arc::clone(&called);
    let server =
        ScriptedServer::start(
            move |request, _| match (request.method.as_str(), method_of(request).as_str()) {
                ("GET", _) => match (request.header("last-event-id"), &*of_call.lock().unwrap()) {
                    (Some("7"), Some(id)) => {
                        let message = json!({"jsonrpc": "2.0", "id": id, "result": done()});
                        Answer::EventsThenEnd(vec![event(&message)])
                    }
                    _ => Answer::status("405 Method Not Allowed", ""),
                },
                (_, "tools/call") => {
                    *of_call.lock().unwrap() = Some(request.json()["id"].clone());
                    Answer::EventsThenEnd(vec!["retry: 10\nid: 7\ndata:\n\n".to_owned()])
                }
                _ => legacy(request, "s"),
            },
        );
    let gateway = with(&server, "");
    assert_eq!(gateway.legacy().gets("far__work", json!({})), json!({"done": true}));
    assert_eq!(server.requests("tools/call"), 1);
}

#[test]
fn marked_arguments_are_repeated_in_headers_and_a_mismatch_reads_the_tool_again() {
    let marked = |header: &str| {
        json!({"name": "work", "inputSchema": {"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": header},
        }}})
    };
    let lists = Arc::new(AtomicUsize::new(0));
    let read = Arc::clone(&lists);
    let server = ScriptedServer::start(move |request, _| match method_of(request).as_str() {
        "tools/list" => {
            let header = if read.fetch_add(1, Ordering::SeqCst) == 0 {
                "Old"
            } else {
                "New"
            };
            modern(request, &marked(header))
        }
        "tools/call" if request.header("mcp-param-new").is_some() => Answer::json(&result(request, &done())),
        "tools/call" => {
            let error = json!({"code": -32020, "message": "Header mismatch"});
            let answer = json!({"jsonrpc": "2.0", "id": request.json()["id"], "error": error});
            let json = vec!["Content-Type: application/json".to_owned()];
            Answer::Http("400 Bad Request", json, answer.to_string())
        }
        _ => modern(request, &work()),
    });
    let gateway = with(&server, "");
    let client = gateway.legacy();
    assert_eq!(
        client.gets("far__work", json!({"region": "zürich"})),
        json!({"done": true})
    );
    assert_eq!((lists.load(Ordering::SeqCst), server.requests("tools/call")), (2, 2));
    let header = |name: &str| server.header_of("tools/call", name);
    assert_eq!(header("mcp-param-new").as_deref(), Some("=?base64?esO8cmljaA==?="));
    assert_eq!(header("mcp-name").as_deref(), Some("work"));
    assert_eq!(header("mcp-method").as_deref(), Some("tools/call"));
    // Without the argument there is no header, and the error is the call's.
    client.fails_as("backend_protocol", "far__work", json!({}));
}

#[test]
fn a_tool_whose_marks_are_wrong_is_not_offered_and_the_log_says_why() {
    let wrong = json!({"name": "work", "inputSchema": {"type": "object", "properties": {
        "a": {"type": "array", "x-mcp-header": "A"},
    }}});
    let server = ScriptedServer::start(move |request, _| modern(request, &wrong));
    let gateway = with(&server, "");
    let client: Agent = gateway.legacy();
    assert_eq!(tools_of(&client, "far"), Vec::<String>::new());
    let log = gateway.get("/api/v1/backends/far/log").json().to_string();
    assert!(log.contains("the tool work is not offered"), "{log}");
}

#[test]
fn a_url_that_is_no_server_of_mcp_says_so() {
    let server = ScriptedServer::start(|_, _| Answer::status("200 OK", "<h1>Welcome</h1>"));
    let gateway = with(&server, "");
    let (_, reason) = eventually("it is refused", || {
        let (state, reason) = reason_of(&gateway);
        (state == "backoff").then_some((state, reason))
    });
    assert!(reason.starts_with("no MCP is spoken at this url"), "{reason}");
    assert!(
        reason.contains("server/discover: it answers with HTTP 200 and text/html"),
        "{reason}"
    );

    let tls = Plan::new()
        .url("far", &server.url().replace("http:", "https:"), "")
        .start();
    let (_, reason) = eventually("it is refused", || {
        let (state, reason) = reason_of(&tls);
        (state == "backoff").then_some((state, reason))
    });
    assert!(reason.contains("no connection"), "{reason}");
}

#[test]
fn a_backend_that_leads_back_to_its_own_broker_is_refused() {
    let gateway = Plan::new().start();
    let url = format!("http://{}/mcp", gateway.address);
    gateway.is_configured(|plan| plan.url("far", &url, ""));
    eventually("the backend is known", || {
        let shown = gateway.get("/api/v1/backends").json();
        (shown["backends"].as_array().unwrap().len() == 1).then_some(())
    });
    leads_back(&gateway);
}

/// Waits until the backend `far` is refused because it leads back to its broker.
fn leads_back(gateway: &Gateway) {
    let (_, reason) = eventually("it is refused", || {
        let (state, reason) = reason_of(gateway);
        (state == "failed").then_some((state, reason))
    });
    assert!(reason.contains("must not be the broker that calls it"), "{reason}");
}

#[test]
fn a_backend_that_leads_to_another_replica_of_its_broker_is_refused() {
    let redis = Redis::start();
    let plan = |redis: &Redis| {
        let url = format!("--redis-url=redis://{}", redis.address);
        Plan::new().flag("--storage=redis").flag(&url)
    };
    let (first, second) = (plan(&redis).start(), plan(&redis).start());
    let url = format!("http://{}/mcp", second.address);
    first.adds("far", json!({"url": url}));
    leads_back(&first);
    leads_back(&second);

    let others = Redis::start();
    let other = plan(&others).start();
    other.adds("far", json!({"url": url}));
    eventually("another broker may use it", || {
        (reason_of(&other).0 == "ready").then_some(())
    });
}
