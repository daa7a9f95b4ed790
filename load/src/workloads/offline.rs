//! Messages to recipients that are away, and the drain when they return.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Measurement, MeasurementStart, RunContext, direct::PushOptions};
use crate::{
    error::{LoadError, Result},
    event_loop::{Nanos, Outbox},
    fleet::{ClientSpec, Fleet, LOGINS_IN_FLIGHT_MAX, NoWorkload, Push, Workload},
    messages::{self, Acknowledgement, ExpectedContent, Incoming, Template},
    report::{Latencies, Report},
    tracker::{Faults, MessageTracker},
};

#[derive(clap::Args)]
pub struct Options {
    /// Recipients that are away
    #[arg(long, default_value_t = 20, value_parser = crate::at_least_one)]
    recipients: usize,
    /// Messages for each recipient; at most the broker's queue capacity
    #[arg(long, default_value_t = 500, value_parser = crate::at_least_one)]
    each: usize,
    /// Connections that send
    #[arg(long, default_value_t = 20, value_parser = crate::at_least_one)]
    senders: usize,
    /// Messages of a sender in flight
    #[arg(long, default_value_t = 64, value_parser = crate::at_least_one)]
    window: usize,
    #[command(flatten)]
    push: PushOptions,
}

pub fn run(bench: &RunContext, options: &Options) -> Result<Report> {
    let Options {
        recipients,
        each,
        senders,
        window,
        push,
    } = *options;
    let plan = AbsencePlan {
        recipients,
        each,
        senders,
        window,
        push: push.push(),
        crash: false,
        at_once: LOGINS_IN_FLIGHT_MAX,
    };
    let absence = measure_absence(bench, &plan)?;

    let mut report = Report::new("offline");
    report.add("recipients", recipients);
    report.add("each", each);
    report.add("senders", senders);
    report.add("window", window);
    report.add("ack", push.ack_name());
    report.add("frame_bytes", absence.frame_bytes);
    report.add("messages", absence.total);
    report.add("enqueued_per_second", absence.enqueue.per_second(absence.total));
    report.add("acknowledgement_us", &absence.offline.answer);
    report.add_if_known(
        "server_cpu_us_per_enqueue",
        absence.enqueue.server_cpu_us_per(absence.total),
    );
    report.add_if_known("server_resident_kib_queued", absence.enqueue.resident_kib);
    report.add(
        "drained_per_second",
        absence.drain.per_second(absence.offline.delivered),
    );
    report.add("login_us", &absence.logins);
    report.add_if_known(
        "server_cpu_us_per_drain",
        absence.drain.server_cpu_us_per(absence.offline.delivered),
    );
    absence.offline.verdict(&mut report);
    Ok(report)
}

pub struct AbsencePlan {
    pub recipients: usize,
    pub each: usize,
    pub senders: usize,
    pub window: usize,
    pub push: Push,
    /// The recipients drop their connections without a close frame.
    pub crash: bool,
    /// Recipients that return at the same time.
    pub at_once: usize,
}

pub struct Absence {
    pub offline: Offline,
    pub total: u64,
    frame_bytes: usize,
    enqueue: Measurement,
    /// From the first recipient that returns until every message has been delivered.
    pub drain: Measurement,
    pub logins: Latencies,
}

/// The time in which the server notices a disconnect. What it writes to a dead connection before that proves nothing.
const DISCONNECT_NOTICE: Duration = Duration::from_millis(500);

/// Logs recipients in, disconnects them, sends messages to them, and lets them return.
pub fn measure_absence(bench: &RunContext, plan: &AbsencePlan) -> Result<Absence> {
    let total = (plan.recipients * plan.each) as u64;
    let mut fleet = bench.fleet(2 * plan.recipients + plan.senders)?;
    let mut offline = Offline::new(bench, plan);
    let links = fleet.open(offline.roles(plan.push), LOGINS_IN_FLIGHT_MAX, &mut NoWorkload)?;
    if plan.crash {
        fleet.abort(&links);
    } else {
        fleet.close(&links, &mut NoWorkload)?;
    }
    fleet.idle_for(DISCONNECT_NOTICE)?;
    offline.senders = bench.log_in(&mut fleet, "away-from", plan.senders, |role| role)?;

    let enqueue = MeasurementStart::start(&fleet, bench)?;
    offline.start(plan.window, &mut fleet);
    fleet.run_until("queueing messages", &mut offline, |offline| offline.answers == total)?;
    let enqueue = enqueue.stop(&fleet)?;

    fleet.take_login_latencies();
    let drain = MeasurementStart::start(&fleet, bench)?;
    offline.first_back = Some(fleet.next_connection());
    fleet.open(offline.roles(plan.push), plan.at_once, &mut offline)?;
    match fleet.run_until("draining queues", &mut offline, |offline| offline.delivered == total) {
        Err(LoadError::Stalled { .. }) => {}
        other => other?,
    }
    let drain = drain.stop(&fleet)?;
    let frame_bytes = offline.recipients[0].template.frame(0).len();
    Ok(Absence {
        offline,
        total,
        frame_bytes,
        enqueue,
        drain,
        logins: fleet.take_login_latencies(),
    })
}

/// One recipient and its messages. All come from one sender, so their order is known.
struct Recipient {
    name: String,
    sender: usize,
    template: Template,
    content: ExpectedContent,
    track: MessageTracker,
}

pub struct Offline {
    recipients: Vec<Recipient>,
    senders: Vec<usize>,
    /// The connection of the first recipient that returned.
    first_back: Option<usize>,
    manual: bool,
    acknowledgement: Acknowledgement,
    /// By sender: the recipients that it serves in turn, and how many messages it has sent.
    turns: Vec<(Vec<usize>, usize)>,
    /// Recipients that resumed their session.
    pub resumed: u64,
    each: usize,
    answers: u64,
    pub delivered: u64,
    corrupt: u64,
    answer: Latencies,
}

impl Offline {
    fn new(bench: &RunContext, plan: &AbsencePlan) -> Self {
        let run = messages::fresh_tag();
        let stream = |index: usize| {
            // A name per run: the queue of an interrupted run would take the capacity of this one.
            let name = format!("{}-{run}", bench.name("away", index));
            let to = json!({"recipient_id": &name});
            let (template, content) = bench.template("send_message", to, &run, index);
            Recipient {
                name,
                sender: index % plan.senders,
                template,
                content,
                track: MessageTracker::default(),
            }
        };
        let streams: Vec<Recipient> = (0..plan.recipients).map(stream).collect();
        let of = |sender| {
            (0..streams.len())
                .filter(|&stream| streams[stream].sender == sender)
                .collect()
        };
        Self {
            turns: (0..plan.senders).map(|sender| (of(sender), 0)).collect(),
            recipients: streams,
            senders: vec![],
            first_back: None,
            manual: plan.push.manual,
            acknowledgement: Acknowledgement::default(),
            resumed: 0,
            each: plan.each,
            answers: 0,
            delivered: 0,
            corrupt: 0,
            answer: Latencies::default(),
        }
    }

    fn roles(&self, push: Push) -> Vec<ClientSpec> {
        self.recipients
            .iter()
            .map(|stream| ClientSpec::named(stream.name.clone()).pushed(push))
            .collect()
    }

    fn start(&mut self, window: usize, fleet: &mut Fleet) {
        let now = fleet.now();
        for _ in 0..window {
            (0..self.senders.len()).for_each(|sender| self.send(sender, now, fleet.outbox()));
        }
    }

    /// Sends the next message of a sender, unless it has sent all.
    fn send(&mut self, sender: usize, now: Nanos, out: &mut Outbox) {
        let (streams, sent) = &mut self.turns[sender];
        if *sent == streams.len() * self.each {
            return;
        }
        let stream = &mut self.recipients[streams[*sent % streams.len()]];
        let seq = stream.track.send(now);
        out.text(self.senders[sender], stream.template.frame_answered(*sent as u64, seq));
        *sent += 1;
    }

    fn answered(&mut self, sender: usize, frame: &[u8], now: Nanos, out: &mut Outbox) -> Result<()> {
        let Some(reply) = messages::read_reply(frame) else {
            return Ok(());
        };
        if reply.failed {
            return Err(LoadError::refused("a message for an absent recipient", frame));
        }
        let (streams, sent) = &self.turns[sender];
        let request = reply
            .seq()
            .and_then(|request| usize::try_from(request).ok())
            .filter(|request| request < sent);
        let step = request.and_then(|request| {
            let track = &mut self.recipients[streams[request % streams.len()]].track;
            track.answer((request / streams.len()) as u64)
        });
        if let Some(step) = step {
            self.answers += 1;
            self.answer.record(now.saturating_sub(step.sent_at));
            self.send(sender, now, out);
        }
        Ok(())
    }

    fn receive(&mut self, stream: usize, frame: &[u8]) {
        let stream = &mut self.recipients[stream];
        let incoming = stream.content.read(frame);
        if self.manual && incoming != Incoming::Other {
            self.acknowledgement.add(frame);
        }
        match incoming {
            Incoming::Message(seq) => self.delivered += u64::from(stream.track.deliver(seq).is_some()),
            Incoming::Corrupt => self.corrupt += 1,
            Incoming::Foreign | Incoming::Other => {}
        }
    }

    pub fn verdict(&self, report: &mut Report) {
        let mut faults = Faults {
            corrupt: self.corrupt,
            ..Faults::default()
        };
        self.recipients
            .iter()
            .for_each(|stream| faults.add(stream.track.faults()));
        let away = self.recipients.len() as u64;
        report.add_fault("not_resumed", away - self.resumed.min(away));
        faults.describe(report);
    }
}

impl Workload for Offline {
    fn ready(&mut self, _: usize, registered: &Value, _: Nanos, _: &mut Outbox) -> Result<()> {
        self.resumed += u64::from(registered["resumed"] == true);
        Ok(())
    }

    fn frame(&mut self, link: usize, frame: &[u8], now: Nanos, out: &mut Outbox) -> Result<()> {
        // Connections that were opened together have consecutive numbers.
        let index = |first: Option<usize>, count| link.checked_sub(first?).filter(|&index| index < count);
        if let Some(sender) = index(self.senders.first().copied(), self.senders.len()) {
            return self.answered(sender, frame, now, out);
        }
        if let Some(stream) = index(self.first_back, self.recipients.len()) {
            self.receive(stream, frame);
        }
        Ok(())
    }

    fn drained(&mut self, link: usize, out: &mut Outbox) {
        self.acknowledgement.send(link, out);
    }

    fn progress(&self) -> u64 {
        self.answers + self.delivered
    }
}
