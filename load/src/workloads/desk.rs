//! The desk: the time from the answer of a person until the agent that waits has it, lists of many questions, and the order
//! and delay of yaps.
//!
//! Everything runs in a folder of its own with a broker of its own; the options for the address of a broker do not apply.

use std::{
    cell::RefCell,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use test_client::http::{Connection, Request};

use super::own_broker::{OwnBroker, SocketWay};
use crate::{
    error::{LoadError, Result},
    report::{Latencies, Report},
};

#[derive(clap::Args)]
pub struct Options {
    /// The binary of the broker
    #[arg(long, default_value = "mcp-broker")]
    binary: PathBuf,
    /// Questions that are answered while their agent waits
    #[arg(long, default_value_t = 500, value_parser = crate::at_least_one)]
    answers: usize,
    /// Questions that are kept while lists are read; 2,000 of them at most are open
    #[arg(long, default_value_t = 10_000, value_parser = crate::at_least_one)]
    questions: usize,
    /// Lists that are read
    #[arg(long, default_value_t = 200, value_parser = crate::at_least_one)]
    lists: usize,
    /// Agents that yap at once, 40 times each
    #[arg(long, default_value_t = 20, value_parser = crate::at_least_one)]
    yapping: usize,
}

/// Open questions of a project, and of one session, at most.
const OPEN_MAX: usize = 2_000;
const OPEN_OF_SESSION_MAX: usize = 100;
/// Questions of one page of a list.
const PAGE: usize = 100;
/// Yaps of one agent: the broker folds those beyond 50 at once.
const YAPS_OF_AGENT: usize = 40;
/// How long a yap is held for the order.
const YAP_DELAY: Duration = Duration::from_millis(200);
/// Longest time of one answer of the broker.
const PATIENCE: Duration = Duration::from_secs(30);

/// A broker with a rubberduck port, and a client of its REST.
struct Broker {
    process: OwnBroker,
    port: SocketAddr,
    http: RefCell<Connection>,
}

impl Broker {
    fn start(binary: &Path) -> Result<Self> {
        let broker = OwnBroker::start(binary, "", &["--rubberduck-port", "0"])?;
        Ok(Self {
            http: RefCell::new(Connection::open(broker.address, PATIENCE)?),
            port: broker.address_after("rubberduck programs are served at ")?,
            process: broker,
        })
    }

    /// An agent with a session of this name.
    fn agent(&self, name: &str) -> Result<SocketWay> {
        let mut agent = self.process.client()?;
        agent.call("register_session", &json!({"name": name}))?;
        Ok(agent)
    }

    fn get(&self, path: &str) -> Result<Value> {
        self.ask("GET", path, &Value::Null)
    }

    fn answer(&self, id: &str, text: &str) -> Result<()> {
        let path = format!("questions/{id}/answer");
        self.ask("POST", &path, &json!({"text": text})).map(drop)
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let mut request = Request::with_json(method, &format!("/api/v1/{path}"), body);
        if method == "POST" {
            request.add("X-Human", "mara");
        }
        let answer = self.http.borrow_mut().request(&request)?;
        match answer.status {
            200 => Ok(serde_json::from_str(&answer.body).unwrap_or_default()),
            _ => Err(LoadError::refused(path, answer.body.as_bytes())),
        }
    }
}

pub fn run(options: &Options) -> Result<Report> {
    let broker = Broker::start(&options.binary)?;
    let mut report = Report::new("desk");
    report_answers(&broker, options, &mut report)?;
    report_yaps(&broker, options, &mut report)?;
    report_lists(&broker, options, &mut report)?;
    Ok(report)
}

/// The id of a question in an object of the broker.
fn id_of(question: &Value) -> Result<String> {
    let id = question["question_id"].as_str().map(str::to_owned);
    id.ok_or_else(|| LoadError::refused("a question", question.to_string().as_bytes()))
}

/// The result of a tool.
fn result_of(call: &Value) -> Value {
    let text = call["content"][0]["text"].as_str().unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

/// From the start of the request that answers until the agent whose `clarify` waits has the answer.
fn report_answers(broker: &Broker, options: &Options, report: &mut Report) -> Result<()> {
    let mut agent = broker.agent("asker")?;
    let count = options.answers;
    let (told, answered) = mpsc::channel();
    let asking = thread::spawn(move || -> Result<()> {
        for number in 0..count {
            let question = json!({"question": format!("Question {number}?"), "wait_seconds": 100});
            let call = agent.call("clarify", &question)?;
            if told.send((Instant::now(), result_of(&call))).is_err() {
                break;
            }
        }
        Ok(())
    });
    let (mut latencies, mut wrong) = (Latencies::default(), 0);
    for number in 0..count {
        let id = loop {
            let open = broker.get("questions?state=pending&limit=1")?;
            match open["questions"].get(0) {
                Some(question) => break id_of(question)?,
                None if asking.is_finished() => return Err(LoadError::Arguments("the agent has ended".to_owned())),
                None => thread::sleep(Duration::from_millis(1)),
            }
        };
        let text = format!("Answer {number}");
        let begun = Instant::now();
        broker.answer(&id, &text)?;
        let (at, result) = answered.recv_timeout(PATIENCE).map_err(|_| LoadError::Stalled {
            phase: "an agent waits for an answer",
            quiet: PATIENCE,
        })?;
        record(&mut latencies, at.saturating_duration_since(begun));
        wrong += u64::from(result["answer"]["text"] != text || result["question_id"] != id);
    }
    asking.join().unwrap_or_else(|_| unreachable!())?;
    report.add("answer_to_agent_us", &latencies);
    report.add_fault("wrong_answers", wrong);
    Ok(())
}

/// Many agents yap at once; one console reads.
fn report_yaps(broker: &Broker, options: &Options, report: &mut Report) -> Result<()> {
    let expected = options.yapping * YAPS_OF_AGENT;
    let mut console = TcpStream::connect(broker.port)?;
    console.set_read_timeout(Some(PATIENCE))?;
    let register =
        json!({"id": "1", "type": "register", "clientId": "load", "clientType": "cli", "timestamp": 0, "data": {}});
    console.write_all(format!("{register}\n").as_bytes())?;
    let mut lines = BufReader::new(console).lines();
    // The broker waits a second whether a console registers again, and then shows the newest yaps.
    broker.agent("first")?.call("yap", &json!({"message": "first"}))?;
    for line in lines.by_ref() {
        if line?.contains(r#""message":"first""#) {
            break;
        }
    }
    let mut senders = Vec::new();
    for sender in 0..options.yapping {
        let mut agent = broker.agent(&format!("yapping-{sender}"))?;
        senders.push(thread::spawn(move || -> Result<Vec<Instant>> {
            let mut begun = Vec::new();
            for number in 0..YAPS_OF_AGENT {
                begun.push(Instant::now());
                agent.call("yap", &json!({"message": format!("{sender} {number}")}))?;
            }
            Ok(begun)
        }));
    }
    let mut shown: Vec<(Instant, usize, usize)> = Vec::new();
    while shown.len() < expected {
        let Some(line) = lines.next().transpose()? else { break };
        let line: Value = serde_json::from_str(&line).unwrap_or_default();
        let message = line["data"]["message"].as_str().unwrap_or_default();
        let numbers = message.split_once(' ');
        let numbers = numbers.and_then(|(sender, number)| Some((sender.parse().ok()?, number.parse().ok()?)));
        if let Some((sender, number)) = numbers {
            shown.push((Instant::now(), sender, number));
        }
    }
    let mut begun = Vec::new();
    for sender in senders {
        begun.push(sender.join().unwrap_or_else(|_| unreachable!())?);
    }
    let (mut delays, mut disordered) = (Latencies::default(), 0);
    let mut next: Vec<usize> = vec![0; options.yapping];
    for (at, sender, number) in shown {
        disordered += u64::from(next[sender] != number);
        next[sender] = number + 1;
        let delay = at.saturating_duration_since(begun[sender][number]);
        record(&mut delays, delay.saturating_sub(YAP_DELAY));
    }
    let missing = expected - next.iter().sum::<usize>().min(expected);
    report.add("yap_after_delay_us", &delays);
    report.add_fault("yaps_out_of_order", disordered);
    report.add_fault("yaps_missing", missing as u64);
    Ok(())
}

/// A page of many questions, and all pages.
fn report_lists(broker: &Broker, options: &Options, report: &mut Report) -> Result<()> {
    let open = options.questions.min(OPEN_MAX);
    let mut asked = 0;
    let mut sessions = 0;
    while asked < options.questions {
        let keeps_open = asked + open >= options.questions;
        let mut agent = broker.agent(&format!("asking-{sessions}"))?;
        sessions += 1;
        for _ in 0..OPEN_OF_SESSION_MAX.min(options.questions - asked) {
            let question = json!({"question": format!("Question {asked}?"), "wait_seconds": 0});
            let id = id_of(&result_of(&agent.call("clarify", &question)?))?;
            if !keeps_open {
                broker.answer(&id, "yes")?;
            }
            asked += 1;
        }
    }
    for (key, state) in [("list_page_all_us", "all"), ("list_page_pending_us", "pending")] {
        let mut latencies = Latencies::default();
        for _ in 0..options.lists {
            let begun = Instant::now();
            let page = broker.get(&format!("questions?state={state}&limit={PAGE}"))?;
            record(&mut latencies, begun.elapsed());
            if page["questions"]
                .as_array()
                .is_none_or(|page| page.len() < PAGE.min(open))
            {
                return Err(LoadError::refused("a page of questions", page.to_string().as_bytes()));
            }
        }
        report.add(key, &latencies);
    }
    let begun = Instant::now();
    let (mut listed, mut cursor) = (0, String::new());
    loop {
        let page = broker.get(&format!("questions?state=all&limit={PAGE}{cursor}"))?;
        listed += page["questions"].as_array().map_or(0, Vec::len);
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    report.add("questions_listed", listed);
    report.add("list_all_pages_ms", begun.elapsed().as_secs_f64() * 1000.0);
    report.add_fault("questions_not_listed", options.questions.saturating_sub(listed) as u64);
    Ok(())
}

fn record(latencies: &mut Latencies, time: Duration) {
    latencies.record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}
