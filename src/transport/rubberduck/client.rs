//! One rubberduck program: who it is, what it asks, and when it was last heard.

use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};

use actors::{
    clock::{millis, mono_ms, now},
    model::{MessageId, QuestionId, SessionId},
};
use tokio::{
    sync::{Notify, mpsc},
    time::{sleep, timeout},
};
use uuid::Uuid;

use super::{
    output::{Line, Output},
    wire::{Clarification, ClientKey, ClientType, IncomingYap, Response, Stamp},
};
use api::auth::Identity;

/// Requests of one program that may wait to be carried out, before no further line of it is read.
const COMMANDS_LEN_MAX: usize = 32;
/// Time without a line of a console after which its person counts as away. Programs send one each 5 s.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// The original console registers twice, some 30 ms apart, and shows nothing that comes before. It has its turn this long
/// after the second time.
const SETTLING: Duration = Duration::from_millis(200);
/// Longest wait for the second time: other programs register once.
const SECOND_TIME_MAX: Duration = Duration::from_secs(1);

/// What a program asks of the broker.
#[derive(Debug)]
pub enum Command {
    Clarification(Clarification),
    Yap(IncomingYap),
    Response(Response),
}

/// One program.
pub struct Client {
    pub key: ClientKey,
    pub identity: Arc<Identity>,
    pub commands: mpsc::Sender<Command>,
    /// Its connections and the lines for them.
    pub output: Output,
    last_sign_ms: Cell<u64>,
    signs: Notify,
    registrations: Cell<u64>,
    registered: Notify,
    /// The session of an asker.
    session: Cell<Option<SessionId>>,
}

impl Client {
    /// A program without connections, and what it will ask.
    pub fn new(key: ClientKey, identity: Arc<Identity>) -> (Rc<Self>, mpsc::Receiver<Command>) {
        let (commands, received) = mpsc::channel(COMMANDS_LEN_MAX);
        let client = Self {
            key,
            identity,
            commands,
            output: Output::default(),
            last_sign_ms: Cell::new(mono_ms()),
            signs: Notify::new(),
            registrations: Cell::default(),
            registered: Notify::new(),
            session: Cell::new(None),
        };
        (Rc::new(client), received)
    }

    /// Queues a line for the newest connection.
    pub fn send(&self, bytes: Vec<u8>) {
        self.send_line(bytes, None, None);
    }

    /// As [`Self::send`], for a line that shows a question.
    pub fn send_question(&self, bytes: Vec<u8>, question: QuestionId) {
        self.send_line(bytes, None, Some(question));
    }

    /// As [`Self::send`], for a line that shows a message of the inbox.
    pub fn send_for(&self, bytes: Vec<u8>, notice: Option<MessageId>) {
        self.send_line(bytes, notice, None);
    }

    fn send_line(&self, bytes: Vec<u8>, notice: Option<MessageId>, question: Option<QuestionId>) {
        self.output.send(Line {
            bytes,
            notice,
            question,
        });
    }

    /// The program has registered, maybe not for the first time.
    pub fn note_registration(&self) {
        self.registrations.set(self.registrations.get() + 1);
        self.registered.notify_waiters();
    }

    /// Waits until the program shows what it is sent.
    pub async fn settled(&self) {
        let again = async {
            loop {
                let registered = self.registered.notified();
                if self.registrations.get() > 1 {
                    return;
                }
                registered.await;
            }
        };
        if timeout(SECOND_TIME_MAX, again).await.is_ok() {
            sleep(SETTLING).await;
        }
    }

    /// The broker does not serve this program: its connections end once `why` has been written.
    pub fn refuse(&self, why: Vec<u8>) {
        self.send(why);
        self.output.refuse();
    }

    /// The session by which the program asks.
    pub fn set_session(&self, session: SessionId) {
        self.session.set(Some(session));
    }

    /// The program has sent a line.
    pub fn note_sign(&self) {
        let before = self.last_sign_ms.replace(mono_ms());
        if mono_ms().saturating_sub(before) >= millis(SILENCE_MAX) {
            self.signs.notify_waiters();
        }
    }

    /// The program says that it is alive: its session is active.
    pub fn note_heartbeat(&self) {
        let project = &self.identity.project;
        let session = self
            .session
            .get()
            .filter(|_| self.key.client_type == ClientType::McpServer);
        if let Some(member) = session.and_then(|session| project.session(session)) {
            member.touch(project.presence_timeouts(), now());
        }
    }

    fn silence(&self) -> Duration {
        Duration::from_millis(mono_ms().saturating_sub(self.last_sign_ms.get()))
    }

    /// Waits until the program has been silent for [`SILENCE_MAX`].
    pub async fn silent(&self) {
        while let Some(left) = SILENCE_MAX.checked_sub(self.silence()).filter(|left| !left.is_zero()) {
            sleep(left).await;
        }
    }

    /// Waits until a silent program sends a line again.
    pub async fn heard(&self) {
        let signs = self.signs.notified();
        if self.silence() >= SILENCE_MAX {
            signs.await;
        }
    }
}

/// The id and the time of the next line.
pub fn stamp() -> Stamp {
    Stamp {
        id: Uuid::new_v4(),
        now_ms: now().unix_ms,
    }
}
