//! The inbox of a session: receive, acknowledge, give back.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::ProjectHandle;
use crate::{
    clock::now,
    model::{BrokerError, CallReceipt, PAGE_BYTES_MAX},
    session::{
        AcknowledgeMessages, AnswerWritten, CancelReceive, Member, MessagesWritten, ReadAt, ReadBudget, ReceiveCall,
        ReceiveMessages, ReceiveMode, ReceiveOutcome, ReceivedMessages, UnboundedReads,
    },
    storage::{Acknowledge, Acknowledged},
};

/// The parameters of a receive call.
#[derive(Default)]
pub struct ReceiveRequest {
    /// Messages to return, at most.
    pub limit: usize,
    /// How long to wait for the first message.
    pub wait: Duration,
    /// When the messages count as acknowledged.
    pub mode: ReceiveMode,
    /// A receipt of an earlier call: exactly the messages that it names are acknowledged.
    pub receipt: Option<CallReceipt>,
    /// When the call was read from its connection.
    pub read_at: ReadAt,
}

impl ProjectHandle {
    /// Takes messages out of an inbox, for a caller in this process, which has them when this returns. Dropping the
    /// future ends the wait and loses nothing.
    ///
    /// # Errors
    /// As of [`Self::receive_for_call`].
    pub async fn receive(&self, member: &Member, request: ReceiveRequest) -> Result<ReceivedMessages, BrokerError> {
        let call = ReceiveCall::default();
        let read_at = ReadAt::now();
        let received = self
            .receive_for_call(
                &call,
                member,
                ReceiveRequest { read_at, ..request },
                Arc::new(UnboundedReads),
            )
            .await;
        call.mark_written();
        received
    }

    /// As [`Self::receive`], for a caller that has the messages when their answer is written
    /// ([`ReceiveCall::mark_written`]) and may give the call up even later ([`Self::return_unclaimed`]). Messages are read
    /// when `room` has room for a page, or for one larger message.
    ///
    /// # Errors
    /// `session_taken_over`, `invalid_argument` for a receipt that is unknown, `unavailable`.
    pub async fn receive_for_call(
        &self,
        call: &ReceiveCall,
        member: &Member,
        request: ReceiveRequest,
        room: Arc<dyn ReadBudget>,
    ) -> Result<ReceivedMessages, BrokerError> {
        let ReceiveRequest {
            limit,
            wait,
            mode,
            receipt,
            read_at,
        } = request;
        let until_ms = (!wait.is_zero()).then(|| now().mono_after(wait));
        let (mut bytes_max, mut asks_again) = (PAGE_BYTES_MAX, false);
        loop {
            let (reply, answer) = oneshot::channel();
            member.address.tell(ReceiveMessages {
                call: call.clone(),
                limit,
                bytes_max,
                budget: Arc::clone(&room),
                until_ms,
                is_retry: asks_again,
                mode,
                receipt,
                read_at,
                incarnation: member.record.holder.incarnation,
                reply,
            })?;
            let mut unanswered = ReturnOnDrop {
                project: self,
                member,
                call: Some(call),
            };
            let served = answer.await.unwrap_or(Err(BrokerError::unavailable()));
            unanswered.call = None;
            match served? {
                ReceiveOutcome::Messages(received) => return Ok(received),
                ReceiveOutcome::NeedsReservation(bytes) => {
                    bytes_max = bytes.max(PAGE_BYTES_MAX);
                    room.reserve(bytes_max).await;
                    asks_again = true;
                }
            }
        }
    }

    /// Gives a receive call up: its messages wait again, unless they were acknowledged. Later commands to the session
    /// see them in the inbox.
    pub fn return_unclaimed(&self, member: &Member, call: &ReceiveCall) {
        call.cancel();
        self.tell(member, member.address.tell(CancelReceive { call: call.clone() }));
    }

    /// Reports that the answer of a receive call is written, for a caller without a lasting connection: its next call
    /// may reach another replica.
    pub fn note_answered(&self, member: &Member, call: &ReceiveCall) {
        if self.is_shared() {
            self.tell(member, member.address.tell(AnswerWritten { call: call.clone() }));
        }
    }

    /// Acknowledges delivered messages, and tells their senders if the recipient is blocked.
    ///
    /// # Errors
    /// `session_taken_over`, `unavailable`.
    pub async fn acknowledge(&self, member: &Member, which: Acknowledge) -> Result<Acknowledged, BrokerError> {
        let blocked = self.fates_of_blocked(member, &which).await?;
        let command = |reply| AcknowledgeMessages {
            which,
            reply: Some(reply),
        };
        let done = member.address.request(command).await?;
        self.report_blocked(blocked, &done).await;
        Ok(done)
    }

    /// As [`Self::acknowledge`], without an answer.
    pub fn acknowledge_without_reply(&self, member: &Member, which: Acknowledge) {
        self.tell(member, member.address.tell(AcknowledgeMessages { which, reply: None }));
    }

    /// Reports that these messages were written to the socket of the live connection. For `ack: auto` the session
    /// acknowledges them.
    pub fn messages_written(&self, member: &Member, message: MessagesWritten) {
        self.tell(member, member.address.tell(message));
    }
}

/// Gives a receive call up when its future is dropped while the session's answer is on its way.
struct ReturnOnDrop<'a> {
    project: &'a ProjectHandle,
    member: &'a Member,
    call: Option<&'a ReceiveCall>,
}

impl Drop for ReturnOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call {
            self.project.return_unclaimed(self.member, call);
        }
    }
}
