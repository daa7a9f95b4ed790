//! Repeats of a cross-project message with an idempotency key.

use actors::{model::Headers, project::SendRequest};

use super::{end_session, try_send, two_projects_in_memory};
use crate::world::{envelope, run};

fn once(headers: &Headers) -> SendRequest<'_> {
    SendRequest {
        headers,
        ..envelope(false)
    }
}

fn keyed(key: &str) -> Headers {
    Headers {
        idempotency_key: Some(key.to_owned()),
        ..Headers::default()
    }
}

#[test]
fn a_cross_project_repeat_returns_the_first_answer_and_sends_nothing() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        let bob = there.register("bob", None).await;
        let (headers, unused) = (keyed("once"), keyed("unused"));
        let first = try_send(&here, &alice, "bob@there", &once(&headers)).await.unwrap();
        let again = try_send(&here, &alice, "bob@there", &once(&headers)).await.unwrap();
        assert!(!first.is_repeat && again.is_repeat);
        assert_eq!(again.result.message, first.result.message);
        assert_eq!(there.read_inbox(&bob).await, [first.result.message]);
        // The same key of another sender is another key.
        let zoe = here.register("zoe", None).await;
        assert!(
            !try_send(&here, &zoe, "bob@there", &once(&headers))
                .await
                .unwrap()
                .is_repeat
        );
        end_session(&there, &bob).await;
        let late = try_send(&here, &alice, "bob@there", &once(&headers)).await.unwrap();
        assert_eq!((late.is_repeat, late.result.message), (true, first.result.message));
        let refused = try_send(&here, &alice, "bob@there", &once(&unused)).await;
        assert_eq!(refused.err().map(|error| error.code()), Some("session_not_found"));
    });
}

#[test]
fn a_repeat_to_another_project_sends_nothing() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        let (near, far) = (here.register("bob", None).await, there.register("bob", None).await);
        let headers = keyed("once");
        let first = try_send(&here, &alice, "bob", &once(&headers)).await.unwrap();
        let again = try_send(&here, &alice, "bob@there", &once(&headers)).await.unwrap();
        assert_eq!((again.is_repeat, again.result.message), (true, first.result.message));
        assert_eq!(
            (here.read_inbox(&near).await.len(), there.read_inbox(&far).await.len()),
            (1, 0)
        );
    });
}
