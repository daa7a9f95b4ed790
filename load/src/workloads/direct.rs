//! Messages from senders to one recipient each.

use std::time::Duration;

use serde_json::json;

use super::{MeasuredWorkload, Measurement, RunContext, measure};
use crate::{
    error::{LoadError, Result},
    event_loop::{Nanos, Outbox, nanos},
    fleet::{Fleet, Push, Workload},
    messages::{self, Acknowledgement, ExpectedContent, Incoming, Template},
    report::{Latencies, Report},
    tracker::{Faults, MessageProgress, MessageTracker},
};

/// An open loop gives up at this many messages in flight: the server is too slow, and memory is limited.
const IN_FLIGHT_MAX: usize = 100_000;

#[derive(clap::Args)]
pub struct Options {
    /// Senders, each with a recipient of its own
    #[arg(long, default_value_t = 50, value_parser = crate::at_least_one)]
    pub pairs: usize,
    /// Messages of a pair in flight: not yet both delivered and answered. Not used with --rate
    #[arg(long, default_value_t = 64, value_parser = crate::at_least_one)]
    pub window: usize,
    /// Messages per second of all pairs together, sent on time even if the server falls behind (open loop). Latency
    /// counts from when a message was due
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rate: Option<u64>,
    #[command(flatten)]
    pub push: PushOptions,
}

#[derive(clap::Args, Clone, Copy)]
pub struct PushOptions {
    /// How deliveries are acknowledged: by the broker when written, or by the recipient, once per read
    #[arg(long, value_enum, default_value_t = Ack::Auto)]
    pub ack: Ack,
    /// Pushed messages of a recipient that may be unacknowledged
    #[arg(long, default_value_t = 64, value_parser = crate::at_least_one)]
    pub push_window: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Ack {
    Auto,
    Manual,
}

impl PushOptions {
    pub fn push(self) -> Push {
        Push {
            window: self.push_window,
            manual: self.ack == Ack::Manual,
        }
    }

    pub fn ack_name(self) -> &'static str {
        if self.ack == Ack::Manual { "manual" } else { "auto" }
    }
}

/// The rule for when the next message is sent.
#[derive(Clone, Copy)]
pub enum Pace {
    Window(usize),
    Rate(u64),
}

pub fn run(bench: &RunContext, options: &Options) -> Result<Report> {
    let mut fleet = bench.fleet(2 * options.pairs)?;
    let pairs = Pairs::open(bench, &mut fleet, options.pairs, options.push.push())?;
    let pace = options.rate.map_or(Pace::Window(options.window), Pace::Rate);
    let mut direct = Direct::new(bench, &pairs, pace);
    let span = measure(&mut fleet, bench, &mut direct)?;

    let mut report = Report::new("direct");
    report.add("pairs", options.pairs);
    match pace {
        Pace::Window(window) => report.add("window", window),
        Pace::Rate(rate) => report.add("rate", rate),
    }
    report.add("ack", options.push.ack_name());
    report.add("frame_bytes", direct.frame_bytes());
    direct.describe(&span, &mut report);
    direct.faults().describe(&mut report);
    Ok(report)
}

/// The connections of senders and recipients.
pub struct Pairs {
    senders: Vec<usize>,
    recipients: Vec<usize>,
    manual: bool,
}

impl Pairs {
    pub fn open(bench: &RunContext, fleet: &mut Fleet, count: usize, push: Push) -> Result<Self> {
        let recipients = bench.log_in(fleet, "to", count, |role| role.pushed(push))?;
        let senders = bench.log_in(fleet, "from", count, |role| role)?;
        Ok(Self {
            senders,
            recipients,
            manual: push.manual,
        })
    }
}

struct Pair {
    sender: usize,
    template: Template,
    content: ExpectedContent,
    track: MessageTracker,
}

#[derive(Clone, Copy)]
enum ConnectionRole {
    Sends(usize),
    Receives(usize),
    Neither,
}

pub struct Direct {
    pairs: Vec<Pair>,
    /// By number of the connection.
    sides: Vec<ConnectionRole>,
    pace: Pace,
    began: Nanos,
    /// Messages that the open loop has sent.
    sent: u64,
    sending: bool,
    measuring: bool,
    manual: bool,
    acknowledgement: Acknowledgement,
    corrupt: u64,
    steps: u64,
    pub delivered: u64,
    pub delivery: Latencies,
    answer: Latencies,
}

impl Direct {
    pub fn new(bench: &RunContext, pairs: &Pairs, pace: Pace) -> Self {
        let last = pairs
            .senders
            .iter()
            .chain(&pairs.recipients)
            .max()
            .copied()
            .unwrap_or(0);
        let mut sides = vec![ConnectionRole::Neither; last + 1];
        let run = messages::fresh_tag();
        let mut streams = vec![];
        for (stream, (&sender, &recipient)) in pairs.senders.iter().zip(&pairs.recipients).enumerate() {
            sides[sender] = ConnectionRole::Sends(stream);
            sides[recipient] = ConnectionRole::Receives(stream);
            let to = json!({"recipient_id": bench.name("to", stream)});
            let (template, content) = bench.template("send_message", to, &run, stream);
            streams.push(Pair {
                sender,
                template,
                content,
                track: MessageTracker::default(),
            });
        }
        Self {
            pairs: streams,
            sides,
            pace,
            began: 0,
            sent: 0,
            sending: true,
            measuring: false,
            manual: pairs.manual,
            acknowledgement: Acknowledgement::default(),
            corrupt: 0,
            steps: 0,
            delivered: 0,
            delivery: Latencies::default(),
            answer: Latencies::default(),
        }
    }

    pub fn frame_bytes(&mut self) -> usize {
        self.pairs
            .first_mut()
            .map_or(0, |stream| stream.template.frame(0).len())
    }

    fn send(&mut self, stream: usize, at: Nanos, out: &mut Outbox) {
        let stream = &mut self.pairs[stream];
        let seq = stream.track.send(at);
        out.text(stream.sender, stream.template.frame(seq));
    }

    fn advance(&mut self, stream: usize, step: MessageProgress, now: Nanos, out: &mut Outbox) {
        self.steps += 1;
        if step.finished && self.sending && matches!(self.pace, Pace::Window(_)) {
            self.send(stream, now, out);
        }
    }

    fn receive(&mut self, stream: usize, frame: &[u8], now: Nanos, out: &mut Outbox) {
        let incoming = self.pairs[stream].content.read(frame);
        if self.manual && incoming != Incoming::Other {
            self.acknowledgement.add(frame);
        }
        match incoming {
            Incoming::Message(seq) => {
                let Some(step) = self.pairs[stream].track.deliver(seq) else {
                    return;
                };
                if self.measuring {
                    self.delivered += 1;
                    self.delivery.record(now.saturating_sub(step.sent_at));
                }
                self.advance(stream, step, now, out);
            }
            Incoming::Corrupt => self.corrupt += 1,
            Incoming::Foreign | Incoming::Other => {}
        }
    }

    fn answered(&mut self, stream: usize, frame: &[u8], now: Nanos, out: &mut Outbox) -> Result<()> {
        let Some(reply) = messages::read_reply(frame) else {
            return Ok(());
        };
        if reply.failed {
            return Err(LoadError::refused("a message", frame));
        }
        if let Some(step) = reply.seq().and_then(|seq| self.pairs[stream].track.answer(seq)) {
            if self.measuring {
                self.answer.record(now.saturating_sub(step.sent_at));
            }
            self.advance(stream, step, now, out);
        }
        Ok(())
    }

    fn describe(&self, span: &Measurement, report: &mut Report) {
        report.add("seconds", span.time.as_secs_f64());
        report.add("messages", self.delivered);
        report.add("messages_per_second", span.per_second(self.delivered));
        report.add("delivery_us", &self.delivery);
        report.add("acknowledgement_us", &self.answer);
        span.costs(report, self.delivered);
    }

    pub fn faults(&self) -> Faults {
        let mut faults = Faults {
            corrupt: self.corrupt,
            ..Faults::default()
        };
        self.pairs.iter().for_each(|stream| faults.add(stream.track.faults()));
        faults
    }

    fn due_at(&self, message: u64, rate: u64) -> Nanos {
        let after = u128::from(message) * u128::from(nanos(Duration::from_secs(1))) / u128::from(rate);
        self.began + u64::try_from(after).unwrap_or(Nanos::MAX)
    }
}

impl Workload for Direct {
    fn frame(&mut self, link: usize, frame: &[u8], now: Nanos, out: &mut Outbox) -> Result<()> {
        match self.sides.get(link).copied().unwrap_or(ConnectionRole::Neither) {
            ConnectionRole::Receives(stream) => self.receive(stream, frame, now, out),
            ConnectionRole::Sends(stream) => self.answered(stream, frame, now, out)?,
            ConnectionRole::Neither => {}
        }
        Ok(())
    }

    fn drained(&mut self, link: usize, out: &mut Outbox) {
        self.acknowledgement.send(link, out);
    }

    fn due(&mut self, now: Nanos, out: &mut Outbox) -> Result<Option<Nanos>> {
        let Pace::Rate(rate) = self.pace else { return Ok(None) };
        if !self.sending {
            return Ok(None);
        }
        loop {
            let at = self.due_at(self.sent, rate);
            if at > now {
                return Ok(Some(at));
            }
            let stream = (self.sent % self.pairs.len() as u64) as usize;
            let in_flight = self.pairs[stream].track.in_flight() * self.pairs.len();
            if in_flight > IN_FLIGHT_MAX {
                return Err(LoadError::Behind { rate, in_flight });
            }
            self.send(stream, at, out);
            self.sent += 1;
        }
    }

    fn progress(&self) -> u64 {
        self.steps
    }
}

impl MeasuredWorkload for Direct {
    fn start(&mut self, now: Nanos, out: &mut Outbox) -> Result<()> {
        self.began = now;
        if let Pace::Window(window) = self.pace {
            for stream in (0..self.pairs.len()).cycle().take(window * self.pairs.len()) {
                self.send(stream, now, out);
            }
        }
        Ok(())
    }

    fn begin(&mut self) {
        self.measuring = true;
    }

    fn stop(&mut self) {
        self.measuring = false;
        self.sending = false;
    }

    fn is_drained(&self) -> bool {
        self.pairs.iter().all(|stream| stream.track.is_settled())
    }
}
