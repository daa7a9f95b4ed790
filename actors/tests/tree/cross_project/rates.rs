//! The rate limit of a grant.

use actors::model::{BrokerError, ProjectChanges};

use super::{cross_project_config, envelope_with, grant_sending, refusal, refused, two_projects_in_memory};
use crate::world::{CHAT, envelope, run};

#[test]
fn the_rate_limit_of_a_grant_bounds_cross_project_messages() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        let further = here.other_project("further", cross_project_config()).await;
        for world in [&there, &further] {
            world.register("bob", None).await;
        }
        grant_sending(&here, "there", &[CHAT], 3).await;
        grant_sending(&here, "further", &[CHAT], 2).await;
        let crosses = |to: &str, count: usize| {
            let send = |_: &usize| {
                here.project
                    .prepare_direct(&alice, to, &envelope(false))
                    .known()
                    .is_ok()
            };
            (0..count).filter(send).count()
        };
        // A message that another check refuses does not count.
        assert!(matches!(
            refused(&here, &alice, "bob@there", &envelope_with("other", "{}")),
            BrokerError::CrossProjectForbidden { .. }
        ));
        assert_eq!(crosses("bob@there", 9), 3);
        assert_eq!(crosses("bob@further", 9), 2, "each grant has its own count");
        let error = refusal(&here, &alice, "bob@there");
        assert!(error.retry_after().is_some_and(|wait| !wait.is_zero()), "{error:?}");
        assert_eq!(crosses("alice", 100), 100, "messages inside a project are not limited");
    });
}

#[test]
fn a_changed_grant_with_an_unchanged_rate_limit_keeps_its_count() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        there.register("bob", None).await;
        let crosses = |count: usize| {
            let send = |_: &usize| {
                here.project
                    .prepare_direct(&alice, "bob@there", &envelope(false))
                    .known()
                    .is_ok()
            };
            (0..count).filter(send).count()
        };
        grant_sending(&here, "there", &[], 3).await;
        assert_eq!(crosses(2), 2);
        grant_sending(&here, "there", &[CHAT, "other"], 3).await;
        grant_sending(&here, "further", &[], 9).await;
        let renamed = ProjectChanges {
            name: Some("Renamed".to_owned()),
            ..ProjectChanges::default()
        };
        here.broker.change_project(here.project.id(), renamed).await.unwrap();
        assert_eq!(crosses(9), 1);
        grant_sending(&here, "there", &[], 4).await;
        assert_eq!(crosses(9), 4);
        grant_sending(&here, "there", &[], 0).await;
        assert_eq!(crosses(100), 100);
    });
}
