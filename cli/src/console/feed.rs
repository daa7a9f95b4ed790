//! The threads that ask the broker: one follows its stream, one carries out commands in their order. They end with the
//! process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use actors::backoff::{Backoff, random};
use actors::locked::Locked;
use rest::desk::Desk;
use rest::messages::PersonsMessages;
use rest::questions::{Question, Questions};
use serde_json::{Value, json};
use ureq::http::Method;

use super::model::{Command, MESSAGES_LEN, Update};
use crate::access::{BrokerAccess, BrokerUrl};
use crate::client::{ApiRequest, Client, ClientError, parameter, parsed, percent_encoded, with_query};
use crate::operate::{EventStream, Frame, Pages, desk::person_of_key};
use common::user_broker::{
    LocalPaths, StartPolicy, attach,
    hello::{COMMAND, Hello, HelloKey},
};

/// The open questions that are read at once.
const PENDING_MAX: usize = 5_000;
/// Questions of one page.
const PAGE_LEN: usize = 200;
/// Earlier questions of one page.
const HISTORY_PAGE_LEN: usize = 50;
/// What the person and agents write to each other.
const MESSAGES: &str = "/api/v1/desk/messages";
/// How long one attempt to find or start the broker of the user takes at most.
const ATTACH_MAX: Duration = Duration::from_secs(10);
/// The pauses before another attempt to connect.
const BACKOFF: Backoff = Backoff {
    min: Duration::from_millis(250),
    max: Duration::from_secs(30),
};

/// Where the broker is.
#[derive(Debug, Clone)]
pub enum Place {
    /// The broker of this user, which is started where none runs. The key, if there is one, is for it.
    User {
        paths: Box<LocalPaths>,
        access: BrokerAccess,
    },
    Given(BrokerAccess),
}

impl Place {
    fn find(&self) -> Result<BrokerAccess, String> {
        let (paths, access) = match self {
            Self::Given(access) => return Ok(access.clone()),
            Self::User { paths, access } => (paths, access),
        };
        let hello = Hello {
            api_key: access.key.as_ref().map(|key| HelloKey(key.expose().to_owned())),
            ..Hello::of_this_process(COMMAND)
        };
        let attached = attach(paths, &hello, StartPolicy::Start, Instant::now() + ATTACH_MAX);
        let attached = attached.map_err(|error| error.to_string())?;
        let http = attached.hello.http;
        let http = http.ok_or("the broker of this user does not serve HTTP; name another with --url")?;
        let url = BrokerUrl::parse(&http, "broker.json")?;
        Ok(BrokerAccess { url, ..access.clone() })
    }
}

/// Who uses the console.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The name that was given.
    pub name: Option<String>,
    /// The name where neither a flag nor the key has one.
    pub user: String,
    pub roles: Vec<String>,
    pub project: Option<String>,
}

impl Caller {
    /// A client that acts for this person, and the name of the person.
    fn client(&self, access: BrokerAccess) -> Result<(Client, String), ClientError> {
        let mut client = Client::new(access);
        if let Some(project) = &self.project {
            client = client.with_header("x-project-id", project.as_str());
        }
        let mut human = self.name.clone();
        if human.is_none() {
            human = person_of_key(&client)?;
        }
        let human = human.unwrap_or_else(|| self.user.clone());
        client = client.with_header("x-human", human.as_str());
        if !self.roles.is_empty() {
            client = client.with_header("x-human-roles", self.roles.join(","));
        }
        Ok((client, human))
    }
}

/// The connection as both threads know it.
#[derive(Default)]
struct Link {
    client: Option<Client>,
    console: Option<String>,
}

type SharedLink = Arc<Locked<Link>>;

/// The way to the broker. Updates go to the function that [`Feed::start`] takes; dropping the feed ends the thread that
/// carries out commands, once all are carried out.
pub struct Feed {
    commands: Sender<Command>,
}

/// Takes what the threads bring. It returns whether the program still listens.
pub trait Take: Fn(Update) -> bool + Send + Clone + 'static {}
impl<F: Fn(Update) -> bool + Send + Clone + 'static> Take for F {}

impl Feed {
    /// Starts both threads by `spawn`. `ended` is called when the last command has been carried out.
    pub fn start(
        place: Place,
        caller: Caller,
        spawn: impl Fn(Box<dyn FnOnce() + Send>),
        take: impl Take,
        ended: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (commands, received) = mpsc::channel();
        let link = SharedLink::default();
        let stream_link = Arc::clone(&link);
        let stream_take = take.clone();
        spawn(Box::new(move || follow(&place, &caller, &stream_link, &stream_take)));
        spawn(Box::new(move || {
            carry_out(&received, &link, &take);
            ended();
        }));
        Self { commands }
    }

    /// Has a command carried out after all earlier ones.
    pub fn ask(&self, command: Command) {
        // The thread ends after this sender.
        let _ = self.commands.send(command);
    }
}

/// Follows the stream of the broker, and opens it again when it ends.
fn follow(place: &Place, caller: &Caller, link: &SharedLink, take: &impl Take) {
    let mut attempt = 0;
    loop {
        let outcome = place
            .find()
            .and_then(|access| stream(access, caller, link, take, &mut attempt).map_err(|error| error.line));
        // The last commands are still carried out after the program has ended.
        let Err(reason) = outcome else { return };
        *link.lock() = Link::default();
        attempt += 1;
        if !take(Update::Lost { reason, attempt }) {
            return;
        }
        std::thread::sleep(BACKOFF.wait(attempt, random()));
    }
}

/// Follows one stream. Returns without an error when the program has ended.
fn stream(
    access: BrokerAccess,
    caller: &Caller,
    link: &SharedLink,
    take: &impl Take,
    attempt: &mut u32,
) -> Result<(), ClientError> {
    let (client, human) = caller.client(access)?;
    let client = &client;
    let roles = Some(caller.roles.join(",")).filter(|roles| !roles.is_empty());
    let mut stream = EventStream::new(client, Some("questions,yaps,desk"), None)
        .with_parameter(parameter("console", Some(human)))
        .with_parameter(parameter("roles", roles));
    let desk = loop {
        match stream.next()? {
            Frame::Event { topic, data, .. } if topic == "desk" => break parsed::<Desk>(&data)?,
            _ => {}
        }
    };
    *link.lock() = Link {
        client: Some(client.clone()),
        console: desk.console.clone(),
    };
    *attempt = 0;
    let is_over =
        !take(Update::Connected(desk.console.clone())) || !take(Update::Desk(desk)) || !take(pending(client)?);
    if is_over {
        return Ok(());
    }
    loop {
        let Frame::Event { topic, data, .. } = stream.next()? else {
            continue;
        };
        let update = match topic.as_str() {
            "question" => Update::Question(Box::new(parsed(&data)?)),
            "yap" => Update::Yap(Box::new(parsed(&data)?)),
            "desk" => Update::Desk(parsed(&data)?),
            "gap" => pending(client)?,
            _ => continue,
        };
        if !take(update) {
            return Ok(());
        }
    }
}

/// All open questions.
fn pending(client: &Client) -> Result<Update, ClientError> {
    let path = "/api/v1/questions?state=pending".to_owned();
    let pages = Pages::new(client, path, "questions", PAGE_LEN, PENDING_MAX);
    pages.all().map(Update::Pending)
}

/// Carries out commands until their sender is gone.
fn carry_out(commands: &Receiver<Command>, link: &SharedLink, take: &impl Take) {
    let mut waiting = VecDeque::new();
    loop {
        if waiting.is_empty() {
            match commands.recv() {
                Ok(command) => waiting.push_back(command),
                Err(mpsc::RecvError) => return,
            }
        }
        waiting.extend(commands.try_iter());
        let Some(command) = waiting.pop_front() else { continue };
        if is_superseded(&command, &waiting) {
            continue;
        }
        let (client, console) = {
            let link = link.lock();
            (link.client.clone(), link.console.clone())
        };
        let outcome = match client {
            Some(client) => carry_out_one(&client, console.as_deref(), &command),
            None => Err(ClientError::new("the broker cannot be reached now".to_owned())),
        };
        let update = outcome.unwrap_or_else(|error| Update::Refused {
            is_gone: error.has_code("question_not_found"),
            is_closed: error.has_code("question_closed"),
            command,
            line: error.line,
        });
        take(update);
    }
}

/// Whether a later command makes this one needless.
fn is_superseded(command: &Command, later: &VecDeque<Command>) -> bool {
    match command {
        Command::Messages => later.contains(&Command::Messages),
        Command::Read(_) => later.iter().any(|command| matches!(command, Command::Read(_))),
        Command::SaveDraft { question, .. } => later.iter().any(|command| match command {
            Command::SaveDraft { question: other, .. } => other == question,
            _ => false,
        }),
        _ => false,
    }
}

fn carry_out_one(client: &Client, console: Option<&str>, command: &Command) -> Result<Update, ClientError> {
    let Some(request) = request(command, console) else {
        return Ok(Update::Done(command.clone()));
    };
    let body = client.send(&request)?;
    Ok(match command {
        Command::Read(id) => {
            let mut question: Question = parsed(&body)?;
            // They are not shown here.
            for image in question.images.iter_mut().flatten() {
                image.data = String::new();
            }
            let path = format!("{}/draft", path_of(id));
            // A question may have no draft.
            let draft = client.get::<Value>(path).ok();
            let draft = draft.and_then(|draft| draft["text"].as_str().map(str::to_owned));
            Update::Whole {
                question: Box::new(question),
                draft,
            }
        }
        Command::History { cursor } => {
            let page: Questions = parsed(&body)?;
            Update::History {
                questions: page.questions,
                cursor: page.next_cursor,
                is_first: cursor.is_none(),
            }
        }
        Command::Messages => {
            let page: PersonsMessages = parsed(&body)?;
            Update::Messages {
                session_id: page.session_id,
                messages: page.messages,
                waiting: page.waiting,
            }
        }
        _ => Update::Done(command.clone()),
    })
}

fn path_of(question: &str) -> String {
    format!("/api/v1/questions/{}", percent_encoded(question))
}

/// The request of a command; none for a change of a console that the broker does not know.
fn request(command: &Command, console: Option<&str>) -> Option<ApiRequest> {
    let post = |question: &str, verb: &str, body: Value| {
        Some(ApiRequest::new(Method::POST, format!("{}/{verb}", path_of(question))).with_body(body))
    };
    let here = || console.map_or_else(|| json!({}), |console| json!({"console": console}));
    match command {
        Command::Read(question) => Some(ApiRequest::get(path_of(question))),
        Command::Claim(question) => post(question, "claim", here()),
        Command::Release(question) => post(question, "release", json!({})),
        Command::Typed(question) => post(question, "typed", here()),
        Command::SaveDraft { question, text } => {
            let path = format!("{}/draft", path_of(question));
            Some(ApiRequest::new(Method::PUT, path).with_body(json!({"text": text})))
        }
        Command::Answer { question, body } => post(question, "answer", body.clone()),
        Command::Decline { question, reason } => post(question, "decline", without_nulls(json!({"reason": reason}))),
        Command::HandOver { question, to, note } => {
            post(question, "handover", without_nulls(json!({"to": to, "note": note})))
        }
        Command::Console(change) => {
            let path = format!("/api/v1/desk/consoles/{}", percent_encoded(console?));
            Some(ApiRequest::new(Method::PUT, path).with_body(change.clone()))
        }
        Command::Messages => Some(ApiRequest::get(format!("{MESSAGES}?limit={MESSAGES_LEN}"))),
        Command::Write { to, text, thread } => {
            let body = without_nulls(json!({"to": to, "text": text, "thread_id": thread}));
            Some(ApiRequest::new(Method::POST, MESSAGES.to_owned()).with_body(body))
        }
        Command::MarkRead(messages) => {
            let body = json!({"message_ids": messages});
            Some(ApiRequest::new(Method::POST, format!("{MESSAGES}/read")).with_body(body))
        }
        Command::History { cursor } => {
            let path = format!("/api/v1/questions?state=all&limit={HISTORY_PAGE_LEN}");
            Some(ApiRequest::get(with_query(
                &path,
                [parameter("cursor", cursor.as_ref())],
            )))
        }
    }
}

fn without_nulls(mut body: Value) -> Value {
    if let Some(members) = body.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_the_requests_of_the_contract() {
        let of = |command: Command| {
            let request = request(&command, Some("c-1")).unwrap();
            format!(
                "{} {} {}",
                request.method,
                request.path,
                request.body.unwrap_or_default()
            )
        };
        let id = || "q/1".to_owned();
        assert_eq!(of(Command::Read(id())), "GET /api/v1/questions/q%2F1 ");
        assert_eq!(
            of(Command::Claim(id())),
            r#"POST /api/v1/questions/q%2F1/claim {"console":"c-1"}"#
        );
        let decline = Command::Decline {
            question: id(),
            reason: None,
        };
        assert_eq!(of(decline), "POST /api/v1/questions/q%2F1/decline {}");
        let draft = Command::SaveDraft {
            question: id(),
            text: "a".to_owned(),
        };
        assert_eq!(of(draft), r#"PUT /api/v1/questions/q%2F1/draft {"text":"a"}"#);
        assert_eq!(
            of(Command::Console(json!({"active": true}))),
            r#"PUT /api/v1/desk/consoles/c-1 {"active":true}"#
        );
        let next = Command::History {
            cursor: Some("a b".to_owned()),
        };
        assert_eq!(of(next), "GET /api/v1/questions?state=all&limit=50&cursor=a%20b ");
        assert_eq!(request(&Command::Console(json!({})), None), None);
    }

    #[test]
    fn the_last_draft_of_a_question_counts() {
        let draft = |question: &str| Command::SaveDraft {
            question: question.to_owned(),
            text: String::new(),
        };
        let later = VecDeque::from([draft("a"), Command::Claim("b".to_owned())]);
        assert!(is_superseded(&draft("a"), &later) && !is_superseded(&draft("b"), &later));
        assert!(!is_superseded(&Command::Claim("b".to_owned()), &later));
    }
}
