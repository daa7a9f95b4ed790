//! Legacy backends that ask have an instance for each set of capabilities, and an instance runs one call at a time.

use std::thread;

use serde_json::{Value, json};

use super::{
    asking::{accepted, is_asked},
    harness::{Calls, Gateway, Plan, is_alive, tool_names, tools_of},
    support::{Agent, HttpAgent, eventually},
};

fn asking(flags: &[&str], lines: &str) -> Gateway {
    Plan::new()
        .backend_with("old", flags, &format!("asks = true\n{lines}"))
        .start()
}

fn client(gateway: &Gateway, capabilities: Value) -> Agent {
    Agent::legacy(gateway.wire(), "2025-11-25", &capabilities)
}

fn forms() -> Value {
    json!({"elicitation": {"form": {}}})
}

fn roots() -> Value {
    json!({"roots": {}})
}

/// The process that serves a client, and what it was told that its client can do.
fn told(client: &Agent) -> (u64, Value) {
    let told = client.gets("old__told", json!({}));
    (told["pid"].as_u64().unwrap(), told["capabilities"].clone())
}

/// A call of a client that waits for the answer of its person.
fn is_asking(client: &Agent) -> (Value, Value) {
    let call = client.begins_call("old__ask", &json!({"method": "elicitation/create"}));
    let question = client
        .wire
        .awaits_frame("the client is asked", |frame| frame["method"] == "elicitation/create");
    (call, question["id"].clone())
}

fn is_answered(client: &Agent, (call, question): (Value, Value)) {
    client
        .wire
        .sends(&json!({"jsonrpc": "2.0", "id": question, "result": accepted()}));
    client.wire.answer_to(&call).unwrap();
}

#[test]
fn callers_get_an_instance_that_was_told_what_they_can_answer() {
    let gateway = asking(&[], "");
    let all = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}});
    let (nothing, everything) = (client(&gateway, json!({})), client(&gateway, all.clone()));
    let (main, told_nothing) = told(&nothing);
    assert_eq!(told_nothing, json!({}));
    let (of_all, told_all) = told(&everything);
    assert_eq!(told_all, all);
    assert_ne!(main, of_all);
    // A form is what a client without modes can show.
    let some = client(&gateway, json!({"elicitation": {}, "roots": {"listChanged": true}}));
    let (of_some, told_some) = told(&some);
    assert_eq!(told_some, json!({"elicitation": {"form": {}}, "roots": {}}));
    assert!(![main, of_all].contains(&of_some));
    // Others with the same capabilities use the same instance, one after the other.
    let modern = HttpAgent::modern(gateway.address, json!({"elicitation": {"form": {}}, "roots": {}}));
    let result = modern
        .request("tools/call", json!({"name": "old__told", "arguments": {}}))
        .unwrap();
    assert_eq!(result["structuredContent"]["pid"], of_some);
    assert_eq!(told(&client(&gateway, json!({}))).0, main);
    assert_eq!(told(&everything).0, of_all);
}

#[test]
fn callers_are_asked_at_the_same_time_and_hold_up_no_others() {
    let gateway = asking(&[], "");
    let clients = [(); 3].map(|()| client(&gateway, forms()));
    let asked = clients.each_ref().map(is_asking);
    // A fourth waits; who cannot be asked does not.
    let fourth = client(&gateway, forms());
    let waiting = fourth.begins_call("old__ask", &json!({"method": "elicitation/create"}));
    let other = client(&gateway, json!({}));
    other.gets("old__echo", json!({"n": 1}));
    assert_eq!(fourth.wire.notifications_so_far("elicitation/create"), 0);
    eventually("the fourth waits, and each of the others has a process", || {
        let backend = gateway.asks_backends("GET", "/old", &Value::Null).json();
        let numbers = ["open_calls", "waiting_calls", "processes"].map(|member| backend[member].as_u64());
        (numbers == [Some(4), Some(1), Some(4)]).then_some(())
    });
    let [first, others @ ..] = asked;
    is_answered(&clients[0], first);
    is_asked(&fourth, "elicitation/create", &accepted());
    fourth.wire.answer_to(&waiting).unwrap();
    for (client, asked) in clients[1..].iter().zip(others) {
        is_answered(client, asked);
    }
}

#[test]
fn an_unused_instance_makes_room_for_other_capabilities() {
    let gateway = asking(&[], "instances_max = 2");
    let (with_forms, with_roots) = (client(&gateway, forms()), client(&gateway, roots()));
    let (first, _) = told(&with_forms);
    let (_, told_roots) = told(&with_roots);
    assert_eq!(told_roots, roots());
    eventually("the unused instance has ended", || (!is_alive(first)).then_some(()));
    // As long as it has a call, the others wait.
    let asked = is_asking(&with_forms);
    let waiting = with_roots.begins_call("old__told", &json!({}));
    with_roots.wire.syncs();
    assert!(!with_roots.wire.has_received(&waiting));
    is_answered(&with_forms, asked);
    let told = with_roots.wire.answer_to(&waiting).unwrap();
    assert_eq!(told["structuredContent"]["capabilities"], roots());
}

#[test]
fn calls_with_different_capabilities_take_turns_with_one_instance() {
    let gateway = asking(&[], "instances_max = 2");
    let (first, second) = (client(&gateway, forms()), client(&gateway, forms()));
    let with_roots = client(&gateway, roots());
    let asked = is_asking(&first);
    let of_roots = with_roots.begins_call("old__told", &json!({}));
    with_roots.wire.syncs();
    let of_second = second.begins_call("old__told", &json!({}));
    second.wire.syncs();
    is_answered(&first, asked);
    for (client, call, capabilities) in [(&with_roots, of_roots, roots()), (&second, of_second, forms())] {
        let told = client.wire.answer_to(&call).unwrap();
        assert_eq!(told["structuredContent"]["capabilities"], capabilities);
    }
}

#[test]
fn all_callers_are_served_where_instances_are_fewer_than_sets_of_capabilities() {
    let gateway = asking(&[], "instances_max = 3");
    let sets = [forms(), roots(), json!({"sampling": {}}), json!({})];
    thread::scope(|scope| {
        for capabilities in sets.iter().chain(&sets) {
            let client = client(&gateway, capabilities.clone());
            scope.spawn(move || {
                for _ in 0..20 {
                    assert_eq!(told(&client).1, *capabilities);
                }
            });
        }
    });
    eventually("no call is open", || {
        let backend = gateway.asks_backends("GET", "/old", &Value::Null).json();
        let numbers = ["open_calls", "waiting_calls", "failures"].map(|member| backend[member].as_u64());
        (numbers == [Some(0); 3]).then_some(())
    });
}

#[test]
fn a_single_instance_is_told_everything_and_serves_all_callers_in_turn() {
    let gateway = asking(&[], "instances_max = 1");
    let (first, second) = (client(&gateway, forms()), client(&gateway, roots()));
    let asked = is_asking(&first);
    let waiting = second.begins_call("old__ask", &json!({"method": "roots/list"}));
    let plain = client(&gateway, json!({}));
    let also_waiting = plain.begins_call("old__told", &json!({}));
    second.wire.syncs();
    plain.wire.syncs();
    assert_eq!(second.wire.notifications_so_far("roots/list"), 0);
    assert!(!plain.wire.has_received(&also_waiting));
    is_answered(&first, asked);
    is_asked(&second, "roots/list", &json!({"roots": []}));
    second.wire.answer_to(&waiting).unwrap();
    let told_plain = plain.wire.answer_to(&also_waiting).unwrap();
    let told_plain = &told_plain["structuredContent"];
    assert!(told_plain["capabilities"]["sampling"].is_object(), "{told_plain}");
    assert_eq!(told(&first).0, told_plain["pid"]);
    assert_eq!(gateway.programs().len(), 1);
}

#[test]
fn lists_have_what_is_offered_to_callers_that_can_be_asked() {
    let gateway = asking(&["--list-by-capability"], "");
    let plain = client(&gateway, json!({}));
    let of_capabilities = |client: &Agent| {
        let names = tools_of(client, "old");
        let mut names: Vec<String> = names.into_iter().filter(|name| name.starts_with("for_")).collect();
        names.sort_unstable();
        names
    };
    let all = ["for_elicitation", "for_roots", "for_sampling"];
    eventually("the lists are complete", || {
        (of_capabilities(&plain) == all).then_some(())
    });
    let gateway_of_two = asking(&["--list-by-capability"], "instances_max = 2");
    // A caller with other capabilities does not end the instance that tells them.
    client(&gateway_of_two, roots()).gets("old__for_roots", json!({}));
    let plain_of_two = client(&gateway_of_two, json!({}));
    eventually("the lists are complete", || {
        (of_capabilities(&plain_of_two) == all).then_some(())
    });
    client(&gateway, roots()).gets("old__for_roots", json!({}));
    let error = plain
        .request("tools/call", json!({"name": "old__for_roots"}))
        .unwrap_err();
    assert_eq!(
        error["message"], "Unknown tool: for_roots",
        "its instance has no such tool"
    );
    // A further tool of the main instance does not hide them.
    plain.gets("old__add_tool", json!({"name": "further"}));
    eventually("the tool is listed", || {
        tool_names(&plain).contains(&"old__further".to_owned()).then_some(())
    });
    assert_eq!(of_capabilities(&plain), all);
}

#[test]
fn a_cancelled_call_that_goes_on_asks_nobody_else() {
    let gateway = asking(&[], "instances_max = 2");
    let (first, second) = (client(&gateway, forms()), client(&gateway, forms()));
    let (pid, _) = told(&first);
    let cancelled = first.begins_call("old__ask_when_cancelled", &json!({"method": "elicitation/create"}));
    let waiting = second.begins_call("old__told", &json!({}));
    gateway.awaits_line("old", "waits to be cancelled");
    first.wire.cancels(&cancelled);
    // Its late answer frees the instance.
    let told = second.wire.answer_to(&waiting).unwrap();
    assert_eq!(told["structuredContent"]["pid"], pid);
    for client in [&first, &second] {
        client.wire.syncs();
        assert_eq!(client.wire.notifications_so_far("elicitation/create"), 0);
    }
    let received = second.gets("old__received", json!({}))["lines"].to_string();
    assert!(
        received.contains("the client has not declared this capability"),
        "{received}"
    );
}

#[test]
fn an_instance_whose_cancelled_call_does_not_end_is_ended() {
    for (lines, is_main) in [("instances_max = 2", false), ("instances_max = 1", true)] {
        let gateway = asking(&[], lines);
        let (first, second) = (client(&gateway, forms()), client(&gateway, forms()));
        let (pid, _) = told(&first);
        let cancelled = first.begins_call("old__never", &json!({}));
        gateway.awaits_line("old", "never answers");
        first.wire.cancels(&cancelled);
        let (other, _) = told(&second);
        assert_ne!(other, pid);
        eventually("it has ended", || (!is_alive(pid)).then_some(()));
        let (of_plain, _) = told(&client(&gateway, json!({})));
        assert_eq!(of_plain == other, is_main);
    }
}

#[test]
fn the_end_of_an_instance_reaches_its_caller_alone() {
    let gateway = asking(&[], "");
    let (first, second, plain) = (
        client(&gateway, forms()),
        client(&gateway, forms()),
        client(&gateway, json!({})),
    );
    let asked = is_asking(&first);
    let (main, _) = told(&plain);
    let failure = second.fails_as("backend_died", "old__die", json!({"code": 3}));
    assert!(failure.to_string().contains("exited with code 3"), "{failure}");
    is_answered(&first, asked);
    assert_eq!(told(&plain).0, main);
    told(&second);
    // The main instance ends beside a call that goes on.
    let asked = is_asking(&first);
    plain.fails_as("backend_died", "old__die", json!({}));
    is_answered(&first, asked);
    eventually("it runs again", || {
        let result = plain.result_of("old__told", json!({})).unwrap();
        (result["isError"] != true).then_some(())
    });
    told(&first);
}

#[test]
fn an_instance_that_does_not_start_fails_the_calls_that_need_it() {
    let gateway = asking(&["--exit-when-told", "roots"], "");
    let (with_forms, with_roots) = (client(&gateway, forms()), client(&gateway, roots()));
    let failure = with_roots.fails_as("backend_unavailable", "old__echo", json!({}));
    assert!(
        failure["message"]
            .as_str()
            .unwrap()
            .contains("a client with roots is not served"),
        "{failure}"
    );
    assert!(failure["retry_after_ms"].as_u64().is_some(), "{failure}");
    with_forms.gets("old__echo", json!({}));
    // Nor does the one that tells the lists, so the main instance does.
    let plain = client(&gateway, json!({}));
    plain.gets("old__echo", json!({}));
    assert!(tools_of(&plain, "old").contains(&"echo".to_owned()));
}

#[test]
fn a_parked_call_whose_instance_has_ended_holds_up_no_other() {
    let gateway = asking(&[], "instances_max = 1");
    let modern = HttpAgent::modern(gateway.address, json!({"elicitation": {}}));
    let call = json!({"name": "old__ask", "arguments": {"method": "elicitation/create"}});
    let asked = modern.request("tools/call", call.clone()).unwrap();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert_eq!(gateway.asks_backends("POST", "/old/restart", &Value::Null).status, 200);
    told(&client(&gateway, json!({})));
    // Its caller is told when it comes back.
    let mut answered = call;
    answered["inputResponses"] = json!({"input": accepted()});
    answered["requestState"] = asked["requestState"].clone();
    let result = modern.request("tools/call", answered).unwrap();
    assert!(result.to_string().contains("backend_died"), "{result}");
}

#[test]
fn a_broken_table_leaves_the_instances_as_they_were() {
    let gateway = asking(&[], "");
    let plain = client(&gateway, json!({}));
    let (main, _) = told(&plain);
    gateway.is_configured(|plan| plan.backend_with("old", &["--exit-at-start", "3"], "asks = true"));
    eventually("the change has failed", || {
        let backend = gateway.asks_backends("GET", "/old", &Value::Null).json();
        backend["reason"].is_string().then_some(())
    });
    assert_eq!(told(&client(&gateway, roots())).1, roots());
    assert_eq!(told(&plain).0, main);
}

#[test]
fn a_changed_backend_lets_the_calls_of_its_instances_end() {
    let gateway = asking(&[], "");
    let (first, second) = (client(&gateway, forms()), client(&gateway, forms()));
    let (before, _) = told(&first);
    let asked = is_asking(&first);
    gateway.is_configured(|plan| plan.backend_with("old", &["--description", "other"], "asks = true"));
    eventually("another instance serves", || {
        let (pid, _) = told(&second);
        (pid != before).then_some(())
    });
    is_answered(&first, asked);
    eventually("the earlier one has ended", || (!is_alive(before)).then_some(()));
    // Without `asks` they are not needed.
    gateway.is_configured(|plan| plan.backend("old", &[]));
    eventually("one instance serves all", || {
        let (pid, capabilities) = told(&first);
        (capabilities == json!({}) && gateway.programs() == [u32::try_from(pid).unwrap()]).then_some(())
    });
}

#[test]
fn a_backend_that_is_removed_lets_the_calls_of_its_instances_end() {
    let gateway = asking(&[], "");
    let asked = client(&gateway, forms());
    let question = is_asking(&asked);
    let plain = client(&gateway, json!({}));
    gateway.is_configured(|plan| plan);
    eventually("the backend is not offered", || {
        tools_of(&plain, "old").is_empty().then_some(())
    });
    is_answered(&asked, question);
    gateway.awaits_no_processes();
}

#[test]
fn a_backend_that_is_stopped_has_no_instance_left() {
    let gateway = asking(&[], "");
    let asked = client(&gateway, forms());
    let (call, _) = is_asking(&asked);
    let stopped = gateway.asks_backends("POST", "/old/stop", &Value::Null);
    assert_eq!(stopped.status, 200, "{stopped:?}");
    let result = asked.wire.answer_to(&call).unwrap();
    assert!(result.to_string().contains("backend_died"), "{result}");
    gateway.awaits_no_processes();
}

#[test]
fn connections_to_a_server_elsewhere_are_lent_in_the_same_way() {
    let server = asking(&[], "instances_max = 2");
    let at = server.address;
    let gateway = Plan::new()
        .url("old", &format!("ws://{at}/ws/old"), "era = \"legacy\"\nasks = true")
        .start();
    let (with_forms, plain) = (client(&gateway, forms()), client(&gateway, json!({})));
    let asked = is_asking(&with_forms);
    assert_eq!(told(&plain).1, json!({}));
    is_answered(&with_forms, asked);
    assert_eq!(told(&with_forms).1, forms());
}
