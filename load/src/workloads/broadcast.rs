//! One publisher to many subscribers.

use std::collections::VecDeque;

use serde_json::json;

use super::{MeasuredWorkload, Measurement, RunContext, direct::PushOptions, measure};
use crate::{
    error::{LoadError, Result},
    event_loop::{Nanos, Outbox},
    fleet::{Fleet, Push, Workload},
    messages::{self, Acknowledgement, ExpectedContent, Incoming, Template},
    report::{Latencies, Report},
    tracker::Faults,
};

#[derive(clap::Args)]
pub struct Options {
    /// Subscribers, all of them connected
    #[arg(long, default_value_t = 100, value_parser = crate::at_least_one)]
    subscribers: usize,
    /// Broadcasts in flight: not yet received by every subscriber
    #[arg(long, default_value_t = 1, value_parser = crate::at_least_one)]
    window: usize,
    #[command(flatten)]
    push: PushOptions,
}

pub fn run(bench: &RunContext, options: &Options) -> Result<Report> {
    let mut fleet = bench.fleet(options.subscribers + 1)?;
    let mut broadcast = Broadcast::open(
        bench,
        &mut fleet,
        options.subscribers,
        options.window,
        options.push.push(),
    )?;
    let span = measure(&mut fleet, bench, &mut broadcast)?;

    let mut report = Report::new("broadcast");
    report.add("subscribers", options.subscribers);
    report.add("window", options.window);
    report.add("ack", options.push.ack_name());
    report.add("frame_bytes", broadcast.template.frame(0).len());
    broadcast.describe(&span, &mut report);
    broadcast.faults().describe(&mut report);
    Ok(report)
}

/// One broadcast in flight.
struct InFlightBroadcast {
    at: Nanos,
    deliveries: usize,
    answered: bool,
}

pub struct Broadcast {
    publisher: usize,
    /// By number of the connection: the next number that a subscriber must receive.
    expected: Vec<Option<u64>>,
    subscribers: usize,
    window: usize,
    template: Template,
    content: ExpectedContent,
    /// The number of the oldest broadcast in `in_flight`.
    first: u64,
    in_flight: VecDeque<InFlightBroadcast>,
    sending: bool,
    measuring: bool,
    manual: bool,
    acknowledgement: Acknowledgement,
    steps: u64,
    faults: Faults,
    messages: u64,
    delivered: u64,
    answer: Latencies,
    first_delivery: Latencies,
    pub last_delivery: Latencies,
}

impl Broadcast {
    /// Logs in the publisher and the subscribers. A feature that only this run has selects the audience: otherwise the
    /// queues of sessions of earlier runs, which are away, would fill.
    pub fn open(bench: &RunContext, fleet: &mut Fleet, subscribers: usize, window: usize, push: Push) -> Result<Self> {
        let run = messages::fresh_tag();
        let links = bench.log_in(fleet, "sub", subscribers, |role| role.pushed(push).with_feature(&run))?;
        let publisher = bench.log_in(fleet, "pub", 1, |role| role)?[0];
        let mut expected = vec![None; publisher + 1];
        for link in links {
            expected[link] = Some(0);
        }
        let filter = json!({"capability_filter": {"features": [&run]}});
        let (template, content) = bench.template("broadcast_message", filter, &run, 0);
        Ok(Self {
            publisher,
            expected,
            subscribers,
            window,
            template,
            content,
            first: 0,
            in_flight: VecDeque::new(),
            sending: true,
            measuring: false,
            manual: push.manual,
            acknowledgement: Acknowledgement::default(),
            steps: 0,
            faults: Faults::default(),
            messages: 0,
            delivered: 0,
            answer: Latencies::default(),
            first_delivery: Latencies::default(),
            last_delivery: Latencies::default(),
        })
    }

    fn send(&mut self, now: Nanos, out: &mut Outbox) {
        let seq = self.first + self.in_flight.len() as u64;
        self.in_flight.push_back(InFlightBroadcast {
            at: now,
            deliveries: 0,
            answered: false,
        });
        out.text(self.publisher, self.template.frame(seq));
    }

    fn in_flight_mut(&mut self, seq: u64) -> Option<&mut InFlightBroadcast> {
        self.in_flight
            .get_mut(usize::try_from(seq.checked_sub(self.first)?).ok()?)
    }

    /// Removes the completed broadcasts, and sends as many new ones.
    fn advance(&mut self, now: Nanos, out: &mut Outbox) {
        self.steps += 1;
        let subscribers = self.subscribers;
        while self
            .in_flight
            .front()
            .is_some_and(|cast| cast.answered && cast.deliveries == subscribers)
        {
            self.in_flight.pop_front();
            self.first += 1;
            if self.sending {
                self.send(now, out);
            }
        }
    }

    /// Checks the order at one subscriber. Returns whether the delivery is new.
    fn in_order(&mut self, link: usize, seq: u64) -> bool {
        let Some(Some(expected)) = self.expected.get_mut(link) else {
            return false;
        };
        if seq < *expected {
            self.faults.repeated += 1;
            return false;
        }
        self.faults.out_of_order += u64::from(seq > *expected);
        *expected = seq + 1;
        true
    }

    fn receive(&mut self, link: usize, seq: u64, now: Nanos, out: &mut Outbox) {
        if !self.in_order(link, seq) {
            return;
        }
        let subscribers = self.subscribers;
        let Some(cast) = self.in_flight_mut(seq) else { return };
        cast.deliveries += 1;
        let (nth, took) = (cast.deliveries, now.saturating_sub(cast.at));
        if self.measuring {
            self.delivered += 1;
            if nth == 1 {
                self.first_delivery.record(took);
            }
            if nth == subscribers {
                self.messages += 1;
                self.last_delivery.record(took);
            }
        }
        self.advance(now, out);
    }

    fn answered(&mut self, frame: &[u8], now: Nanos, out: &mut Outbox) -> Result<()> {
        let Some(reply) = messages::read_reply(frame) else {
            return Ok(());
        };
        if reply.failed {
            return Err(LoadError::refused("a broadcast", frame));
        }
        let measuring = self.measuring;
        if let Some(cast) = reply.seq().and_then(|seq| self.in_flight_mut(seq)) {
            cast.answered = true;
            let took = now.saturating_sub(cast.at);
            if measuring {
                self.answer.record(took);
            }
            self.advance(now, out);
        }
        Ok(())
    }

    fn describe(&self, span: &Measurement, report: &mut Report) {
        report.add("seconds", span.time.as_secs_f64());
        report.add("messages", self.messages);
        report.add("messages_per_second", span.per_second(self.messages));
        report.add("deliveries", self.delivered);
        report.add("deliveries_per_second", span.per_second(self.delivered));
        report.add("first_delivery_us", &self.first_delivery);
        report.add("last_delivery_us", &self.last_delivery);
        report.add("acknowledgement_us", &self.answer);
        report.add_if_known("server_cpu_us_per_delivery", span.server_cpu_us_per(self.delivered));
        report.add_if_known("store_cpu_us_per_delivery", span.store_cpu_us_per(self.delivered));
        span.costs(report, self.messages);
    }

    pub fn faults(&self) -> Faults {
        let missing = |cast: &InFlightBroadcast| (self.subscribers - cast.deliveries) as u64;
        let unanswered = self.in_flight.iter().filter(|cast| !cast.answered).count() as u64;
        Faults {
            lost: self.in_flight.iter().map(missing).sum(),
            unanswered,
            ..self.faults
        }
    }
}

impl Workload for Broadcast {
    fn frame(&mut self, link: usize, frame: &[u8], now: Nanos, out: &mut Outbox) -> Result<()> {
        if link == self.publisher {
            return self.answered(frame, now, out);
        }
        let incoming = self.content.read(frame);
        if self.manual && incoming != Incoming::Other {
            self.acknowledgement.add(frame);
        }
        match incoming {
            Incoming::Message(seq) => self.receive(link, seq, now, out),
            Incoming::Corrupt => self.faults.corrupt += 1,
            Incoming::Foreign | Incoming::Other => {}
        }
        Ok(())
    }

    fn drained(&mut self, link: usize, out: &mut Outbox) {
        self.acknowledgement.send(link, out);
    }

    fn progress(&self) -> u64 {
        self.steps
    }
}

impl MeasuredWorkload for Broadcast {
    fn start(&mut self, now: Nanos, out: &mut Outbox) -> Result<()> {
        (0..self.window).for_each(|_| self.send(now, out));
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
        self.in_flight.is_empty()
    }
}
