//! The bounds on the messages that a store keeps, and the error that names the bound that was reached.

words! {
    /// A bound on the messages that a store keeps.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Budget {
        /// Messages that wait for one session or are leased to it.
        QueueMessages = "queue_messages",
        /// Bytes of the messages that wait for one session or are leased to it.
        QueueBytes = "queue_bytes",
        /// Bytes of all messages of a project that wait or are leased.
        ProjectBytes = "project_bytes",
        /// Bytes of the messages of all projects, where they share the memory of the broker.
        BrokerBytes = "broker_bytes",
    }
}

impl Budget {
    /// The unit of the limit.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::QueueMessages => "messages",
            Self::QueueBytes | Self::ProjectBytes | Self::BrokerBytes => "bytes",
        }
    }

    const fn holder(self) -> &'static str {
        match self {
            Self::QueueMessages | Self::QueueBytes => "the recipient's queue",
            Self::ProjectBytes => "the project's budget for waiting messages",
            Self::BrokerBytes => "the broker's budget for the messages of all projects",
        }
    }
}

/// A budget has no room for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error(
    "{} is full ({limit} {}): send again when recipients have acknowledged some",
    budget.holder(),
    budget.unit()
)]
pub struct BudgetFull {
    /// The budget that is full.
    pub budget: Budget,
    /// In the unit of the budget.
    pub limit: usize,
}

impl BudgetFull {
    /// The recipient's queue holds its maximum of messages.
    pub const fn queue_messages(limit: usize) -> Self {
        Self {
            budget: Budget::QueueMessages,
            limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_budget_says_what_is_full_and_its_limit() {
        for (budget, name, text) in [
            (
                Budget::QueueMessages,
                "queue_messages",
                "the recipient's queue is full (7 messages)",
            ),
            (
                Budget::QueueBytes,
                "queue_bytes",
                "the recipient's queue is full (7 bytes)",
            ),
            (
                Budget::ProjectBytes,
                "project_bytes",
                "the project's budget for waiting messages is full (7 bytes)",
            ),
            (
                Budget::BrokerBytes,
                "broker_bytes",
                "the broker's budget for the messages of all projects is full (7 bytes)",
            ),
        ] {
            let shown = BudgetFull { budget, limit: 7 }.to_string();
            assert!(shown.starts_with(&format!("{text}: ")), "{shown}");
            assert_eq!(budget.as_str(), name);
        }
    }
}
