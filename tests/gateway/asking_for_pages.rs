//! Backends that ask their caller to open a page (elicitation in URL mode): every pair of eras.

use serde_json::{Value, json};

use super::{
    harness::{Calls, Gateway, Plan},
    support::{Agent, HttpAgent},
};

fn asking() -> Gateway {
    Plan::new()
        .backend_with("old", &["--era", "legacy"], "asks = true")
        .backend("new", &["--era", "modern"])
        .start()
}

fn opens_pages() -> Value {
    json!({"elicitation": {"url": {}}})
}

fn legacy(gateway: &Gateway) -> Agent {
    Agent::legacy(gateway.wire(), "2025-11-25", &opens_pages())
}

fn accepted() -> Value {
    json!({"action": "accept"})
}

/// The arguments of a tool that asks its caller to open a page.
fn by_page() -> Value {
    json!({"method": "elicitation/create", "mode": "url"})
}

/// The params of the question for the page, as a legacy client gets it.
fn is_asked(client: &Agent) -> Value {
    let question = client
        .wire
        .awaits_frame("the client is asked", |frame| frame["method"] == "elicitation/create");
    client
        .wire
        .sends(&json!({"jsonrpc": "2.0", "id": question["id"], "result": accepted()}));
    question["params"].clone()
}

#[test]
fn a_legacy_client_is_asked_by_backends_of_both_eras() {
    let gateway = asking();
    let client = legacy(&gateway);
    let call = client.begins_call("old__ask", &by_page());
    let expected = json!({
        "mode": "url",
        "elicitationId": "page-1",
        "url": "https://example.com/page",
        "message": "old: Please sign in.",
    });
    assert_eq!(is_asked(&client), expected);
    let result = client.wire.answer_to(&call).unwrap();
    assert_eq!(result["structuredContent"]["response"], accepted());

    // A question of a modern backend has no id, which a legacy client needs.
    let call = client.begins_call("new__input_required", &by_page());
    let mut asked = is_asked(&client);
    let id = asked["elicitationId"].take();
    assert!(id.as_str().is_some_and(|id| id.len() == 36), "{id}");
    let expected = json!({
        "mode": "url",
        "elicitationId": null,
        "url": "https://example.com/page",
        "message": "new: Please sign in.",
    });
    assert_eq!(asked, expected);
    let result = client.wire.answer_to(&call).unwrap();
    assert_eq!(result["structuredContent"]["responses"], json!({"q": accepted()}));
}

#[test]
fn a_modern_client_is_asked_by_backends_of_both_eras() {
    let gateway = asking();
    let client = HttpAgent::modern(gateway.address, opens_pages());
    for (tool, key) in [("old__ask", "input"), ("new__input_required", "q")] {
        let mut params = json!({"name": tool, "arguments": by_page()});
        let asked = client.request("tools/call", params.clone()).unwrap();
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let (backend, _) = tool.split_once("__").unwrap();
        let page = json!({
            "mode": "url",
            "url": "https://example.com/page",
            "message": format!("{backend}: Please sign in."),
        });
        let question = json!({"method": "elicitation/create", "params": page});
        assert_eq!(asked["inputRequests"], json!({key: question}));
        params["inputResponses"] = json!({key: accepted()});
        params["requestState"] = asked["requestState"].clone();
        let result = client.request("tools/call", params).unwrap();
        let got = &result["structuredContent"];
        let response = if backend == "old" {
            &got["response"]
        } else {
            &got["responses"]["q"]
        };
        assert_eq!(*response, accepted());
    }
}

#[test]
fn a_client_that_shows_forms_alone_is_not_asked_to_open_a_page() {
    let gateway = asking();
    let forms = json!({"elicitation": {"form": {}}});
    let client = Agent::legacy(gateway.wire(), "2025-11-25", &forms);
    let answer = client.gets("old__ask", by_page());
    let message = "the caller of this call has not declared elicitation.url";
    assert_eq!(answer["response"]["message"], message);
    let error = client.fails_as("backend_protocol", "new__input_required", by_page());
    assert!(error["message"].as_str().unwrap().contains(message), "{error}");
    // And the other way round.
    let form = json!({"method": "elicitation/create"});
    let answer = legacy(&gateway).gets("old__ask", form);
    let message = "the caller of this call has not declared elicitation";
    assert_eq!(answer["response"]["message"], message);
}

#[test]
fn a_refusal_until_a_page_is_opened_reaches_a_legacy_client_as_it_is() {
    let gateway = asking();
    let client = legacy(&gateway);
    let page = json!({
        "mode": "url",
        "elicitationId": "page-1",
        "url": "https://example.com/page",
        "message": "old: Please sign in.",
    });
    let expected = json!({
        "code": -32042,
        "message": "A page has to be opened first",
        "data": {"elicitations": [page], "x": 1},
    });
    assert_eq!(client.result_of("old__needs_page", json!({})), Err(expected));
}

#[test]
fn a_refusal_until_a_page_is_opened_is_a_question_for_a_modern_client() {
    let gateway = asking();
    let client = HttpAgent::modern(gateway.address, opens_pages());
    let mut params = json!({"name": "old__needs_page", "arguments": {}});
    let asked = client.request("tools/call", params.clone()).unwrap();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let question = &asked["inputRequests"]["url-1"];
    assert_eq!(question["params"]["url"], "https://example.com/page");
    assert_eq!(question["params"]["message"], "old: Please sign in.");
    assert!(question["params"].get("elicitationId").is_none(), "{question}");

    params["inputResponses"] = json!({"url-1": {"action": "decline"}});
    let error = client.request("tools/call", params.clone()).unwrap_err();
    let message = "the URL that the backend old needs was not opened";
    assert_eq!((&error["code"], &error["message"]), (&json!(-32600), &json!(message)));
    params["inputResponses"] = json!({"url-1": accepted()});
    let again = client.request("tools/call", params.clone()).unwrap();
    assert_eq!(again["resultType"], "input_required", "the page is not complete yet");
    client.gets("old__complete", json!({"id": "page-1"}));
    let result = client.request("tools/call", params).unwrap();
    assert_eq!(result["structuredContent"], json!({"done": true}));
}

#[test]
fn a_modern_client_that_opens_no_pages_is_told_that_it_should() {
    let gateway = asking();
    let error = gateway
        .modern_http()
        .result_of("old__needs_page", json!({}))
        .unwrap_err();
    assert_eq!(error["code"], -32021);
    assert_eq!(error["data"]["requiredCapabilities"], opens_pages());
}

#[test]
fn a_backend_that_may_not_ask_cannot_require_a_page() {
    let gateway = Gateway::with_fake(&["--era", "legacy"]);
    for client in [legacy(&gateway), Agent::modern(gateway.wire(), opens_pages())] {
        let error = client.fails_as("backend_protocol", "fake__needs_page", json!({}));
        assert!(error["message"].as_str().unwrap().contains("-32042"), "{error}");
    }
}

#[test]
fn legacy_clients_that_were_asked_are_told_that_the_page_is_complete() {
    const COMPLETE: &str = "notifications/elicitation/complete";
    let gateway = asking();
    let (refused, asked, other) = (legacy(&gateway), legacy(&gateway), legacy(&gateway));
    let modern = Agent::modern(gateway.wire(), opens_pages());
    refused.result_of("old__needs_page", json!({})).unwrap_err();
    modern.result_of("old__needs_page", json!({})).unwrap();
    let call = asked.begins_call("old__ask", &by_page());
    is_asked(&asked);
    asked.wire.answer_to(&call).unwrap();
    other.gets("old__complete", json!({"id": "page-2"}));
    other.gets("old__complete", json!({"id": "page-1"}));
    for client in [&refused, &asked] {
        let params = client.wire.next_notification(COMPLETE);
        assert_eq!(params, json!({"elicitationId": "page-1"}));
    }
    other.gets("old__complete", json!({"id": "page-1"}));
    for client in [&refused, &asked, &other, &modern] {
        client.wire.syncs();
        assert_eq!(client.wire.notifications_so_far(COMPLETE), 0);
    }
}
