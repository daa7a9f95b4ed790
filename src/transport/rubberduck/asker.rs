//! The MCP server of an agent, at the rubberduck port: its session, its questions and its yaps.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use actors::{
    desk::{NewQuestion, NewYap},
    model::{
        BrokerError, CONTEXT_BYTES_MAX, Closed, Closing, QUESTION_CHARACTERS_MAX, Question, QuestionContent,
        QuestionId, QuestionItem, SessionName, YAP_CHARACTERS_MAX,
    },
    project::{ProjectHandle, Registration},
    session::{AcknowledgeMessages, Member},
    storage::Acknowledge,
};
use futures_util::{StreamExt, future::LocalBoxFuture, stream::FuturesUnordered};
use serde_json::json;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{
    answering::text_of,
    client::{Client, Command, stamp},
    programs::Programs,
    wire::{self, Clarification, IncomingYap},
};

/// How long an asker waits for an answer.
const PATIENCE: Duration = Duration::from_secs(300);
/// Pause after a failure to wait.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The start of the name of a session.
const NAME: &str = "rubberduck-";

type Closes = FuturesUnordered<LocalBoxFuture<'static, (String, Option<Arc<Question>>)>>;

/// The asker with what it waits for.
struct Asker<'a> {
    client: &'a Client,
    project: ProjectHandle,
    member: Arc<Member>,
    /// Questions whose end is awaited.
    awaited: BTreeSet<QuestionId>,
    closes: Closes,
}

/// Serves the requests of one program until its last connection has closed.
pub async fn run(client: &Client, mut commands: mpsc::Receiver<Command>, programs: &Programs) {
    let project = client.identity.project.clone();
    let member = match register(client, &project).await {
        Ok(member) => member,
        Err(error) => return client.refuse(wire::error(stamp(), &error.to_string())),
    };
    client.set_session(member.record.id);
    let mut asker = Asker {
        client,
        project,
        member,
        awaited: BTreeSet::new(),
        closes: FuturesUnordered::new(),
    };
    asker.resume().await;
    loop {
        let changed = client.output.changed();
        asker.acknowledge();
        tokio::select! {
            () = client.output.gone() => break,
            Some(command) = commands.recv() => asker.carry_out(command).await,
            Some((request_id, question)) = asker.closes.next() => asker.close(&request_id, question),
            () = changed => {}
        }
    }
    asker.acknowledge();
    if !programs.is_connected(&client.key) {
        // Its questions stay, and its answers wait in the inbox.
        let _ = asker.project.disconnect(&asker.member).await;
    }
}

/// The session of a program: one of the same id finds its earlier one.
async fn register(client: &Client, project: &ProjectHandle) -> Result<Arc<Member>, BrokerError> {
    let metadata = json!({"kind": "agent", "product": "rubberduck", "client_id": client.key.id});
    let registration = Registration {
        name: Some(SessionName::parse(&session_name(&client.key.id))?),
        metadata: metadata.as_object().cloned(),
        owner: client.identity.owner().clone(),
        ..Registration::default()
    };
    Ok(project.register(registration).await?.member)
}

/// The name of the session of a program: the first group of a UUID, or the whole id.
fn session_name(client_id: &str) -> String {
    let own = match Uuid::try_parse(client_id) {
        Ok(id) => format!("{:08x}", id.as_fields().0),
        Err(_) => client_id.replace('@', "_").chars().take(100).collect(),
    };
    format!("{NAME}{}", own.trim())
}

impl Asker<'_> {
    /// Awaits the questions that an earlier connection of the same program has asked.
    async fn resume(&mut self) {
        let prefix = format!("{}/", self.client.key.id);
        let known = self.project.open_questions_of(&self.member).await.unwrap_or_default();
        for question in known {
            let key = question.idempotency_key.as_deref();
            if let Some(request_id) = key.and_then(|key| key.strip_prefix(&prefix)) {
                self.wait_for(request_id.to_owned(), &question);
            }
        }
    }

    async fn carry_out(&mut self, command: Command) {
        match command {
            Command::Clarification(asked) => self.ask(asked).await,
            Command::Yap(yap) => self.yap(yap).await,
            Command::Response(_) => {}
        }
    }

    async fn ask(&mut self, asked: Clarification) {
        let item = QuestionItem {
            id: String::new(),
            question: cut(asked.question, QUESTION_CHARACTERS_MAX, usize::MAX),
            options: Vec::new(),
            multi_select: false,
            allow_other: true,
            required: false,
        };
        let new = NewQuestion {
            content: QuestionContent {
                items: vec![item],
                context: asked
                    .context
                    .filter(|context| !context.is_empty())
                    .map(|context| cut(context, usize::MAX, CONTEXT_BYTES_MAX)),
                ..QuestionContent::default()
            },
            urgency: asked.urgency.unwrap_or_default(),
            expires_in: Some(PATIENCE),
            idempotency_key: Some(format!("{}/{}", self.client.key.id, asked.id)),
            ..NewQuestion::default()
        };
        match self.project.ask(&self.member, new).await {
            Ok(new) => self.wait_for(asked.id, &new.question),
            // The program says of an error that the time is over, so the reason comes as the answer.
            Err(error) => {
                let why = format!("(the question was not asked: {error})");
                self.client.send(wire::response(stamp(), &asked.id, &why, wire::BROKER));
            }
        }
    }

    fn wait_for(&mut self, request_id: String, question: &Arc<Question>) {
        if self.awaited.insert(question.id) {
            let (project, question) = (self.project.clone(), Arc::clone(question));
            self.closes
                .push(Box::pin(async move { (request_id, closed(&project, question).await) }));
        }
    }

    /// A question has ended; None if it was removed.
    fn close(&mut self, request_id: &str, question: Option<Arc<Question>>) {
        let stamp = stamp();
        let Some(question) = question else {
            return self
                .client
                .send(wire::no_response(stamp, request_id, "the question was removed"));
        };
        self.awaited.remove(&question.id);
        let Some(Closed { how, .. }) = question.closed() else {
            return;
        };
        let line = match how {
            Closing::Answered { by, answer } => wire::response(stamp, request_id, &text_of(answer), by.human.as_str()),
            // The program of the asker says of an error that the time is over, and that the agent may continue.
            Closing::Declined { by, reason } => {
                let why = reason
                    .as_deref()
                    .map(|reason| format!(": {reason}"))
                    .unwrap_or_default();
                let text = format!("{} declined to answer{why}", by.human);
                wire::response(stamp, request_id, &text, by.human.as_str())
            }
            Closing::Expired => wire::no_response(stamp, request_id, "the time is over, and no person has answered"),
            Closing::Cancelled { .. } => wire::no_response(stamp, request_id, "the question was cancelled"),
        };
        self.client.send_for(line, question.notice);
    }

    /// Acknowledges the messages of the inbox whose answers the program has got.
    fn acknowledge(&self) {
        let written = self.client.output.take_written();
        if !written.is_empty() {
            let which = Acknowledge::Ids(written);
            let _ = self.member.address.tell(AcknowledgeMessages { which, reply: None });
        }
    }

    async fn yap(&self, yap: IncomingYap) {
        let known = |value: Option<String>, known: &[&str]| value.filter(|value| known.contains(&value.as_str()));
        let new = NewYap {
            message: cut(yap.message, YAP_CHARACTERS_MAX, usize::MAX),
            mode: known(yap.mode, NewYap::MODES),
            category: known(yap.category, wire::CATEGORIES),
            task_context: yap
                .task_context
                .filter(|context| !context.is_empty())
                .map(|context| cut(context, NewYap::TASK_CONTEXT_CHARACTERS_MAX, usize::MAX)),
            sent_at_ms: yap.sent_at_ms,
        };
        if let Err(error) = self.project.yap(&self.member, new).await {
            self.client.send(wire::error(stamp(), &error.to_string()));
        }
    }
}

/// A text of at most so many characters and bytes. A longer one ends with a mark, because the programs know no limits.
fn cut(mut text: String, characters_max: usize, bytes_max: usize) -> String {
    const MARK: &str = "\u{2026} (cut: the text was too long)";
    let has_room = |text: &str| text.len() <= bytes_max && text.chars().count() <= characters_max;
    if has_room(&text) {
        return text;
    }
    let characters = characters_max.saturating_sub(MARK.chars().count());
    let end = text.char_indices().nth(characters).map_or(text.len(), |(at, _)| at);
    let bytes = text.floor_char_boundary(bytes_max.saturating_sub(MARK.len()));
    text.truncate(end.min(bytes));
    text + MARK
}

/// Waits until a question is closed; None if it is removed, or its project ends.
async fn closed(project: &ProjectHandle, mut question: Arc<Question>) -> Option<Arc<Question>> {
    let mut watch = project.watch_question(&question);
    while question.is_open() {
        match watch.changed().await {
            Ok(changed) => question = changed,
            Err(BrokerError::Unavailable { .. }) if !project.is_closed() => tokio::time::sleep(RETRY_PAUSE).await,
            Err(_) => return None,
        }
    }
    Some(question)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_ends_with_a_mark() {
        assert_eq!(cut("ä".repeat(100), 100, usize::MAX), "ä".repeat(100));
        let by_characters = cut("ä".repeat(101), 100, usize::MAX);
        assert_eq!(by_characters.chars().count(), 100);
        assert!(by_characters.starts_with("ää") && by_characters.ends_with("(cut: the text was too long)"));
        let by_bytes = cut("ä".repeat(51), usize::MAX, 101);
        assert!(by_bytes.len() <= 101 && by_bytes.ends_with("too long)"), "{by_bytes}");
    }

    #[test]
    fn the_session_is_named_after_the_client() {
        assert_eq!(
            session_name("0b1f6a52-8c47-4f3a-9d51-1f0a3a9f7c02"),
            "rubberduck-0b1f6a52"
        );
        assert_eq!(session_name("alice"), "rubberduck-alice");
        assert_eq!(session_name("alice@home "), "rubberduck-alice_home");
        assert!(SessionName::parse(&session_name(&"ä".repeat(128))).is_ok());
    }
}
