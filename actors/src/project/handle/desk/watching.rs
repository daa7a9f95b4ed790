//! Who is at the desk, the events of consoles, and yaps.

use std::{sync::Arc, time::Duration};

use uuid::Uuid;

use crate::{
    clock::now,
    desk::{CONSOLES_MAX, ConsoleChange, ConsoleGuard, DeskFeed, DeskSummary, Human, NewYap, YapAccepted},
    model::{BrokerError, ConsoleId, QuestionBudget, SessionName, ShownYap, Yap},
    project::ProjectHandle,
    session::Member,
    storage::{HELD_YAPS_MAX, YapHeld},
};

impl ProjectHandle {
    /// Shows a remark of an agent to the people who watch. Its place in the order is decided 200 ms later (`YAP_DELAY`).
    ///
    /// # Errors
    /// `invalid_argument`; `queue_full`; `forbidden` when the desk is off; `unavailable`.
    pub async fn yap(&self, sender: &Arc<Member>, yap: NewYap) -> Result<YapAccepted, BrokerError> {
        self.check_desk_is_on()?;
        yap.check()?;
        let (id, now) = (Uuid::now_v7(), now());
        let desk = self.0.questions.shared();
        let yap = Yap {
            id,
            sender: sender.record.id,
            sender_name: sender.record.name.clone(),
            message: yap.message,
            mode: yap.mode,
            category: yap.category,
            task_context: yap.task_context,
            sent_at_ms: yap.sent_at_ms,
            folded: 0,
        };
        // Before anything else is waited for, so that the calls of one sender keep their order.
        if let Some(yap) = desk.admit_yap(yap, now) {
            match self.0.store.hold_yap(Arc::new(yap), now).await? {
                YapHeld::Held => desk.yap_held(desk.settings().yap_delay, now),
                YapHeld::Late => desk.yap_held(Duration::ZERO, now),
                YapHeld::Full => {
                    return Err(BrokerError::QuestionsFull {
                        which: QuestionBudget::Yaps,
                        limit: HELD_YAPS_MAX,
                    });
                }
            }
        }
        // The yap is kept, also when the consoles of other replicas cannot be read.
        let shown_to = self.desk().await.map_or(0, |desk| desk.consoles.len());
        Ok(YapAccepted { id, shown_to })
    }

    /// The yaps behind this number, the oldest first; without a number the last ones. At most `limit`.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn yaps(&self, after: Option<u64>, limit: usize) -> Result<Vec<Arc<ShownYap>>, BrokerError> {
        Ok(self.0.store.yaps(after, limit).await?)
    }

    /// The consoles of all replicas, and the number of open questions.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn desk(&self) -> Result<Arc<DeskSummary>, BrokerError> {
        Ok(self.0.questions.summary().await?)
    }

    /// Connects a console of this person. Questions are offered to it until the guard is dropped.
    ///
    /// # Errors
    /// `forbidden` when the project has its maximum of consoles, or the desk is off; `invalid_argument` when a name that the
    /// person chose belongs to an agent; `unavailable`.
    pub async fn attach_console(&self, human: Human) -> Result<ConsoleGuard, BrokerError> {
        self.check_desk_is_on()?;
        let member = self.session_of(&human).await?;
        // Before the console: it gets everything that is offered to it.
        let events = self.watch_desk()?;
        let (desk, now) = (self.0.questions.shared(), now());
        if let Some(member) = &member {
            member.touch(self.0.settings.presence, now);
        }
        let console = desk.attach(human.name, human.roles, now).ok_or_else(|| {
            BrokerError::forbidden(format!("{CONSOLES_MAX} consoles are connected already: close one"))
        })?;
        Ok(ConsoleGuard::new(console, Arc::clone(desk), member, events))
    }

    /// Changes a console that is connected to this replica. With `human`, only one of this person.
    ///
    /// # Errors
    /// `invalid_argument` for a console that is not here, or is another person's.
    pub fn change_console(
        &self,
        console: ConsoleId,
        human: Option<&SessionName>,
        change: ConsoleChange,
    ) -> Result<(), BrokerError> {
        let desk = self.0.questions.shared();
        let is_theirs = human.is_none_or(|human| desk.human_at(console).as_ref() == Some(human));
        if is_theirs && desk.change_console(console, change, now()) {
            Ok(())
        } else {
            Err(BrokerError::invalid(
                "console",
                "no console of yours with this id at this replica: connect again",
            ))
        }
    }

    /// Watches the desk without being offered questions. Lists that are read after this call miss nothing.
    ///
    /// # Errors
    /// `unavailable` when the project has ended.
    pub fn watch_desk(&self) -> Result<DeskFeed, BrokerError> {
        self.0.questions.shared().feed().ok_or(BrokerError::unavailable())
    }
}
