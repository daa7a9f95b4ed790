//! A console at the rubberduck port: shows questions and yaps to its person, and takes the answers.

use std::sync::Arc;

use actors::{
    desk::{ConsoleGuard, DeskEvent, Human, QuestionFilter, Reader},
    model::{BrokerError, Question, QuestionContent, QuestionId, SessionName, SessionStatus, Via},
    project::ProjectHandle,
    storage::OPEN_MAX,
};
use tokio::sync::mpsc;

use super::{
    answering::{answer_of, read_part, shown_text},
    board::Board,
    client::{Client, Command, stamp},
    wire::{self, Response, Shown},
};

/// Yaps that a new console gets from before its time.
const EARLIER_YAPS_LEN: usize = 50;
/// Questions of one page of the list of open ones.
const PAGE_LEN: usize = 200;

/// The console with its person.
struct Console<'a> {
    client: &'a Client,
    project: ProjectHandle,
    human: Human,
    guard: ConsoleGuard,
    board: Board,
    /// The number of the last yap that was shown.
    last_yap: u64,
}

/// Shows and answers for one program until its last connection has closed.
pub async fn run(client: &Client, mut commands: mpsc::Receiver<Command>, name: SessionName) {
    tokio::select! {
        () = client.settled() => {}
        () = client.output.gone() => return,
    }
    let project = client.identity.project.clone();
    let human = Human {
        name,
        roles: Vec::new(),
        owner: client.identity.owner().clone(),
        is_name_fixed: true,
        is_agent: false,
        via: Via::Rubberduck,
    };
    let guard = match project.attach_console(human.clone()).await {
        Ok(guard) => guard,
        Err(error) => return client.refuse(wire::error(stamp(), &error.to_string())),
    };
    // The original broker has a client that registers as a console and shows nothing.
    guard.set_unproven();
    let mut console = Console {
        client,
        project,
        human,
        guard,
        board: Board::default(),
        last_yap: 0,
    };
    console.show_earlier_yaps().await;
    console.read_again().await;
    let mut is_away = false;
    loop {
        let changed = client.output.changed();
        console.board.lost(&client.output.take_lost());
        console.push().await;
        let has_room = client.output.has_room();
        tokio::select! {
            () = client.output.gone() => return,
            Some(command) = commands.recv() => console.carry_out(command).await,
            event = console.guard.events.next(), if has_room => match event {
                Some(event) => console.on_event(event).await,
                None => return client.refuse(wire::error(stamp(), "the project has ended")),
            },
            () = client.silent(), if !is_away => {
                is_away = true;
                console.guard.set_away(true);
            }
            () = client.heard(), if is_away => {
                is_away = false;
                console.guard.set_away(false);
            }
            () = changed => {}
        }
    }
}

impl Console<'_> {
    async fn show_earlier_yaps(&mut self) {
        for yap in self.project.yaps(None, EARLIER_YAPS_LEN).await.unwrap_or_default() {
            self.last_yap = yap.seq;
            self.client.send(wire::yap(stamp(), &yap));
        }
    }

    /// Reads all open questions: at the start, and after changes were missed.
    async fn read_again(&mut self) {
        let reader = Reader::Human(&self.human);
        let filter = QuestionFilter::default();
        let (mut open, mut after) = (Vec::new(), None);
        while open.len() < OPEN_MAX {
            // What cannot be read now comes with the next change of each question.
            let page = self.project.list_questions(&reader, &filter, PAGE_LEN, after).await;
            let Ok(page) = page else { break };
            open.extend(page.questions);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        self.board
            .replace(open.iter().map(|question| &**question), self.guard.id());
    }

    async fn on_event(&mut self, event: DeskEvent) {
        match event {
            DeskEvent::Question(question) => self.board.update(&question, self.guard.id()),
            DeskEvent::Yap(yap) => {
                if yap.seq > self.last_yap {
                    self.last_yap = yap.seq;
                    self.client.send(wire::yap(stamp(), &yap));
                }
            }
            DeskEvent::Desk(_) => {}
            DeskEvent::Missed(_) => {
                for yap in self
                    .project
                    .yaps(Some(self.last_yap), EARLIER_YAPS_LEN)
                    .await
                    .unwrap_or_default()
                {
                    self.last_yap = yap.seq;
                    self.client.send(wire::yap(stamp(), &yap));
                }
                self.read_again().await;
            }
        }
    }

    /// Sends the questions that the console may get now.
    async fn push(&mut self) {
        while self.client.output.has_room()
            && let Some(id) = self.board.next()
        {
            let read = self.project.question(id, &Reader::Human(&self.human)).await;
            let is_shown = match &read {
                Ok((question, content)) if question.is_open() => self.show(question, content),
                // The next change tries again.
                Err(BrokerError::Unavailable { .. }) => return,
                // It was closed, or handed over, while this console did not look.
                _ => false,
            };
            self.board.take(id, is_shown);
        }
    }

    /// Sends one question, or the next one of a form. Returns false if it has none.
    fn show(&self, question: &Question, content: &QuestionContent) -> bool {
        let asker = asker_name(question);
        if question.is_sensitive {
            let text = format!("{asker} asks something whose answer may not be typed here: open the page /desk");
            self.client.send(wire::notice(stamp(), &text));
            return true;
        }
        let at = self.board.begun(question.id).len();
        let Some((text, context)) = shown_text(content, at) else {
            return false;
        };
        let shown = Shown {
            request_id: &question.id.to_string(),
            question: &text,
            context: context.as_deref(),
            urgency: question.urgency,
            asked_at_ms: question.asked_at_ms(),
            asker: &asker,
        };
        self.client
            .send_question(wire::clarification(stamp(), &shown), question.id);
        true
    }

    async fn carry_out(&mut self, command: Command) {
        if let Command::Response(response) = command {
            self.guard.keystroke();
            self.answer(response).await;
        }
    }

    /// Takes the answer of the person.
    async fn answer(&mut self, response: Response) {
        let Some(id) = QuestionId::parse(&response.request_id) else {
            return self.tell("there is no such question");
        };
        let read = self.project.question(id, &Reader::Human(&self.human)).await;
        let (question, content) = match read {
            Ok(read) => read,
            Err(error) => return self.not_taken(id, None, &error),
        };
        if question.is_sensitive {
            return self.tell("this question is answered on the page /desk");
        }
        if let Some(closed) = question.closed() {
            let error = BrokerError::QuestionClosed {
                state: closed.how.as_str(),
                by: closed.how.by().map(|by| by.human.to_string()),
                at_ms: closed.at_ms,
            };
            return self.not_taken(id, Some(&question), &error);
        }
        let mut parts = self.board.begun(id).to_vec();
        let Some(item) = content.items.get(parts.len()) else {
            return;
        };
        let part = match read_part(item, &response.response) {
            Ok(part) => part,
            Err(why) => return self.ask_again(&question, &why),
        };
        parts.push(part.clone());
        if parts.len() < content.items.len() {
            self.board.begin(id, part);
            self.show(&question, &content);
            return;
        }
        let answer = answer_of(&content, parts);
        match self.project.answer_question(id, &self.human, answer, None).await {
            Ok(_) => {
                self.board.answered(id, question.urgency, false);
                self.tell_if_asker_left(&question);
            }
            Err(error) => self.not_taken(id, Some(&question), &error),
        }
    }

    /// An answer was not taken: the person learns why, and is asked again where another answer may be.
    fn not_taken(&mut self, id: QuestionId, question: Option<&Arc<Question>>, error: &BrokerError) {
        match error {
            BrokerError::QuestionClosed { state, by, .. } => {
                if let Some(question) = question {
                    self.board.answered(id, question.urgency, false);
                }
                let asker = question.map_or_else(|| "the agent".to_owned(), |question| asker_name(question));
                self.tell(&match (*state, by) {
                    ("expired", _) => format!("{asker} has stopped waiting"),
                    (state, Some(by)) => format!("already {state} by {by}"),
                    (state, None) => format!("already {state}"),
                });
            }
            error => match question {
                Some(question) => self.ask_again(question, &error.to_string()),
                None => self.tell(&error.to_string()),
            },
        }
    }

    fn ask_again(&mut self, question: &Question, why: &str) {
        self.tell(why);
        self.board.answered(question.id, question.urgency, true);
    }

    /// The answer is kept, but an asker of this port that has left does not come back for it.
    fn tell_if_asker_left(&self, question: &Question) {
        let asker = self.project.session(question.asker.session);
        let has_left = asker.is_none_or(|asker| {
            let product = asker
                .record
                .metadata
                .get("product")
                .and_then(|product| product.as_str());
            product == Some("rubberduck") && self.project.status(&asker) == SessionStatus::Disconnected
        });
        if has_left {
            self.tell(&format!(
                "{} has stopped waiting; your answer is kept",
                asker_name(question)
            ));
        }
    }

    /// Tells the person. The original console writes an error to its log only, so the text comes as a yap as well.
    fn tell(&self, text: &str) {
        self.client.send(wire::error(stamp(), text));
        self.client.send(wire::notice(stamp(), text));
    }
}

/// The name of the agent, or the id of its session.
fn asker_name(question: &Question) -> String {
    let asker = &question.asker;
    asker
        .name
        .as_ref()
        .map_or_else(|| asker.session.to_string(), ToString::to_string)
}
