//! What operators see of requests that are refused.

use crate::support::{Broker, Request, eventually};

#[test]
fn at_level_debug_the_log_names_each_refused_request_with_the_reason() {
    let broker = Broker::start_with(&["--log-level=debug", "--log-format=pretty"]);
    let quiet = Broker::start_with(&["--log-format=pretty"]);
    let requests = |broker: &Broker| {
        assert_eq!(broker.get("/no/such/path").status, 404);
        assert_eq!(Request::post(broker.address, "nonsense").answered().status, 400);
        assert_eq!(broker.upgrade(&[("Sec-WebSocket-Protocol", "other")]).status, 400);
    };
    requests(&broker);
    requests(&quiet);
    for (path, status, reason) in [
        ("/no/such/path", "404", "nothing exists at this path"),
        ("/mcp", "400", "the frame is not JSON"),
        ("/ws", "400", "offer the subprotocol mcp"),
    ] {
        eventually("the refusal is logged", || {
            let log = broker.log();
            let mut lines = log.lines().filter(|line| line.contains("a request is refused"));
            lines
                .any(|line| [path, status, reason].iter().all(|part| line.contains(part)))
                .then_some(())
        });
    }
    assert!(!quiet.log().contains("a request is refused"));
}
