//! What an operator should look at: one list for `/health`, the statistics, `status`, `top` and `doctor`.

use rest::stats::{Stats, Warning};

/// What a replica knows besides its figures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Problems<'a> {
    /// Why the storage does not work as it should.
    pub storage: Option<&'a str>,
    /// Why the configuration file is not in force.
    pub configuration: Option<&'a str>,
    /// Replicas that do not answer.
    pub silent_replicas: usize,
}

/// The list, most urgent first.
pub fn warnings(stats: &Stats, problems: Problems) -> Vec<Warning> {
    let mut list = Vec::new();
    let mut add = |code: &str, count: u64, text: String, cure: &str| {
        if count > 0 {
            list.push(Warning {
                code: code.to_owned(),
                count,
                text,
                cure: cure.to_owned(),
            });
        }
    };
    if let Some(why) = problems.storage {
        add(
            "storage",
            1,
            format!("the storage has a problem: {why}"),
            "see the log of the broker",
        );
    }
    if let Some(why) = problems.configuration {
        let text = format!("the configuration file cannot be used, and the previous one is in force: {why}");
        add("configuration", 1, text, "correct the file: the broker reads it again");
    }
    let counts: [(&str, u64, [&str; 2], &str); 4] = [
        (
            "replica_silent",
            problems.silent_replicas as u64,
            ["replica does not answer", "replicas do not answer"],
            "see its log; mcp-broker top shows the replicas that answer",
        ),
        (
            "backend_failed",
            stats.backends.failed,
            ["backend has failed", "backends have failed"],
            "mcp-broker gateway list shows why",
        ),
        (
            "questions_unseen",
            stats.desk.unseen,
            [
                "question waits for an answer, and no person is at the desk",
                "questions wait for an answer, and no person is at the desk",
            ],
            "answer with mcp-broker console or on the page /desk",
        ),
        (
            "inbox_nearly_full",
            stats.inboxes.over_warning,
            ["inbox is nearly full", "inboxes are nearly full"],
            "mcp-broker sessions --status all shows which",
        ),
    ];
    for (code, count, [one, many], cure) in counts {
        add(
            code,
            count,
            format!("{count} {}", if count == 1 { one } else { many }),
            cure,
        );
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_without_problems_has_no_warnings() {
        assert_eq!(warnings(&Stats::default(), Problems::default()), []);
    }

    #[test]
    fn each_problem_is_one_warning_with_its_count() {
        let mut stats = Stats::default();
        (stats.backends.failed, stats.desk.unseen, stats.inboxes.over_warning) = (1, 10, 2);
        let problems = Problems {
            storage: Some("the disk is full"),
            configuration: Some("line 3: unknown key"),
            silent_replicas: 1,
        };
        let list = warnings(&stats, problems);
        let codes: Vec<_> = list.iter().map(|one| (one.code.as_str(), one.count)).collect();
        assert_eq!(
            codes,
            [
                ("storage", 1),
                ("configuration", 1),
                ("replica_silent", 1),
                ("backend_failed", 1),
                ("questions_unseen", 10),
                ("inbox_nearly_full", 2)
            ]
        );
        assert_eq!(list[3].text, "1 backend has failed");
        assert!(
            list[4].text.starts_with("10 questions wait for an answer"),
            "{}",
            list[4].text
        );
    }
}
