//! The messages in answers that are not yet with their callers, and the marks by which a transport completes them.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use actors::{
    model::{MessageId, Question, QuestionId},
    project::ProjectHandle,
    session::{Member, ReceiveCall, WriteInProgress},
    storage::Acknowledge,
};

/// Messages that an answer hands over. The transport that writes the answer reports what becomes of it, on any thread.
#[derive(Clone)]
pub enum HandedOver {
    /// What a call of `receive_messages` returned.
    Received(PendingReceive),
    /// The messages about the ends of questions, which the answer tells.
    Notices(Arc<PendingNotices>),
}

impl HandedOver {
    /// Begins to hand the last bytes of the answer to the operating system. Hold it for one call that does not block.
    pub fn begin_write(&self) -> AnswerInProgress<'_> {
        let of_call = match self {
            Self::Received(receive) => Some(receive.call.begin_write()),
            Self::Notices(_) => None,
        };
        AnswerInProgress { answer: self, of_call }
    }

    /// A transport takes the answer: its caller may get it from now on.
    pub fn mark_taken(&self) {
        if let Self::Received(receive) = self {
            receive.call.mark_taken();
        }
    }

    /// Whether both are of one answer.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Received(one), Self::Received(other)) => one.call.is_same_call(&other.call),
            (Self::Notices(one), Self::Notices(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// The last byte of the answer is with the operating system.
    pub fn mark_written(&self) {
        self.begin_write().complete();
    }

    /// The caller cannot or does not want to have the answer, although it may be written.
    pub fn release(&self) {
        match self {
            Self::Received(receive) => receive.release(),
            Self::Notices(notices) => notices.is_released.store(true, Ordering::SeqCst),
        }
    }

    /// As [`Self::release`], for an answer that is not written: what was written is delivered. Written notices are
    /// acknowledged already, which nothing undoes.
    pub fn release_unless_written(&self) {
        match self {
            Self::Received(receive) if receive.call.is_written() => {}
            unwritten => unwritten.release(),
        }
    }
}

/// The operating system takes the last bytes of an answer.
pub struct AnswerInProgress<'a> {
    answer: &'a HandedOver,
    of_call: Option<WriteInProgress<'a>>,
}

impl AnswerInProgress<'_> {
    /// The operating system has taken the last byte.
    pub fn complete(self) {
        if let Some(write) = self.of_call {
            write.complete();
        }
        match self.answer {
            HandedOver::Received(receive) => receive.note_written(),
            HandedOver::Notices(notices) => notices.note_written(),
        }
    }
}

/// The ends of questions: the messages about them stay in the inbox of their asker until an answer that tells the same is
/// written, and so long answers to sensitive questions are kept.
pub struct PendingNotices {
    /// The project of the session.
    pub project: ProjectHandle,
    /// The asker.
    pub member: Arc<Member>,
    messages: Vec<MessageId>,
    /// Sensitive questions whose answers are deleted.
    secrets: Vec<QuestionId>,
    /// The caller has cancelled: it ignores the answer.
    is_released: AtomicBool,
}

impl PendingNotices {
    /// What the ends of these questions leave behind for their asker `member`; None if nothing. Questions of others count
    /// not.
    pub fn of<'a>(
        project: &ProjectHandle,
        member: &Arc<Member>,
        questions: impl IntoIterator<Item = &'a Arc<Question>>,
    ) -> Option<Self> {
        let (mut messages, mut secrets) = (Vec::new(), Vec::new());
        for question in questions {
            if question.asker.session == member.record.id {
                messages.extend(question.notice);
                // An answer that cannot be decrypted now is not handed over.
                let is_told = question.has_secret() && project.opened(question).sealed_answer.is_none();
                secrets.extend(is_told.then_some(question.id));
            }
        }
        (!messages.is_empty() || !secrets.is_empty()).then(|| Self {
            project: project.clone(),
            member: Arc::clone(member),
            messages,
            secrets,
            is_released: AtomicBool::new(false),
        })
    }

    fn note_written(&self) {
        if self.is_released.load(Ordering::SeqCst) {
            return;
        }
        for secret in &self.secrets {
            self.project.answer_read(*secret);
        }
        if !self.messages.is_empty() {
            let which = Acknowledge::Seen(self.messages.clone());
            self.project.acknowledge_without_reply(&self.member, which);
        }
    }
}

/// A call of `receive_messages` and the inbox that it reads. The transport that writes the answer reports its fate, on
/// any thread.
#[derive(Clone)]
pub struct PendingReceive {
    /// The project of the session.
    pub project: ProjectHandle,
    /// The session whose inbox it reads.
    pub member: Arc<Member>,
    /// The state of the call, shared with the session.
    pub call: ReceiveCall,
    /// The session is that of the connection, so closing the connection releases all its leases.
    pub is_connection_session: bool,
}

impl PendingReceive {
    /// The call is marked as written: the next one acknowledges its messages.
    fn note_written(&self) {
        if !self.is_connection_session {
            self.project.note_answered(&self.member, &self.call);
        }
    }

    /// The caller cannot or does not want to have the answer: its messages return to the inbox.
    pub fn release(&self) {
        self.project.return_unclaimed(&self.member, &self.call);
    }
}

/// Positions in the output of an outbox. When the bytes before one have been written, its message or receive is
/// complete.
#[derive(Default)]
pub struct WriteMarks {
    /// Pushed messages, by the position of their last byte.
    pub messages: VecDeque<(u64, MessageId)>,
    /// What answers hand over, in the order of their answers.
    pub receives: VecDeque<AnswerMark>,
}

/// The position of an answer that hands messages over.
pub struct AnswerMark {
    /// The position of its first byte, and behind its last.
    pub range: Range<u64>,
    /// What it hands over.
    pub receive: HandedOver,
}

impl WriteMarks {
    /// Moves the marks of `other` behind these.
    pub fn append(&mut self, other: &mut Self) {
        self.messages.append(&mut other.messages);
        self.receives.append(&mut other.receives);
    }

    /// Frees unused capacity.
    pub fn shrink(&mut self) {
        self.messages.shrink_to_fit();
        self.receives.shrink_to_fit();
    }

    /// Completes the receives whose answers end at or before `end`.
    pub fn mark_receives_written(&mut self, end: u64) {
        let done = self.receives.iter().take_while(|mark| mark.range.end <= end).count();
        for mark in self.receives.drain(..done) {
            mark.receive.mark_written();
        }
    }

    /// Removes the answer that hands this over and begins at `first` or later, and moves what follows ahead. Returns where
    /// it was; None for another one, and for one that hands more over, as that of a batch.
    pub fn withdraw(&mut self, receive: &HandedOver, first: u64) -> Option<Range<u64>> {
        let is_meant = |mark: &AnswerMark| mark.range.start >= first && mark.receive.is_same(receive);
        let at = self.receives.iter().position(is_meant)?;
        let range = self.receives[at].range.clone();
        if self.receives.iter().filter(|mark| mark.range == range).count() > 1 {
            return None;
        }
        self.receives.remove(at);
        let len = range.end - range.start;
        for mark in self.receives.iter_mut().skip(at) {
            mark.range = mark.range.start - len..mark.range.end - len;
        }
        for (end, _) in self.messages.iter_mut().filter(|(end, _)| *end > range.start) {
            *end -= len;
        }
        Some(range)
    }
}
