//! The requests of the client that have no answer yet: which wait for a connection, which were sent, and what becomes of
//! them when the connection is lost. Pure.
//!
//! Requests are kept in the order of their arrival. The request of an answer is searched from the oldest on: answers mostly
//! come in that order, and a connection serves at most 256 calls at once.

use std::{
    collections::VecDeque,
    ops::Range,
    time::{Duration, Instant},
};

/// How long a request waits for a connection before it is refused.
pub const WAIT_MAX: Duration = Duration::from_secs(10);
/// Bytes of requests that are kept. With more, the front reads no further requests.
pub const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Connections on which a request is sent at most: the request itself may be what ends them.
const SENDINGS_MAX: u8 = 8;

/// Buffers of answered requests that are used again, and the longest of them in bytes.
const SPARE_LEN_MAX: usize = 4;
const SPARE_BYTES_MAX: usize = 4 * 1024;

/// What a request changes, as far as the front has to know it once the answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that the front repeats on a later connection.
    None,
    /// `initialize`, whose answer the client already has.
    Initialize,
    /// `register_session`.
    Register,
    /// `disconnect_session`.
    Leave,
    /// `logging/setLevel`.
    SetLogLevel,
    /// `resources/subscribe`.
    Subscribe,
    /// `resources/unsubscribe`.
    Unsubscribe,
    /// `subscriptions/listen`, which is answered when it ends. The flag says that the client got its beginning.
    Listen { is_acknowledged: bool },
}

/// Whether a request may be sent again when its answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// A repetition changes nothing.
    Always,
    /// It has an idempotency key, which belongs to the session: a repetition changes nothing in the same session.
    InSameSession,
    /// It may happen twice.
    Never,
}

/// How a request is answered when it cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// By a result that reports a failure: a call of a tool.
    ToolResult { is_modern: bool },
    /// By a JSON-RPC error.
    Error,
    /// By nothing: a notification, or a request whose answer the client has.
    None,
}

/// What the front knows of a frame before it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traits {
    pub effect: Effect,
    pub repeat: Repeat,
    pub answer: Answer,
    /// It acts as the session of its connection.
    pub acts_as_session: bool,
}

/// A frame of the client that has no answer yet.
#[derive(Debug)]
pub struct Request {
    /// The frame with its line break.
    frame: Vec<u8>,
    /// Where the ids of the requests are in the frame: one, or those of a batch, or none for a notification.
    ids: Ids,
    pub traits: Traits,
    state: State,
    /// Connections on which it was sent.
    sendings: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Ids {
    One(Range<usize>),
    Batch(Box<[Range<usize>]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting { since: Instant },
    Sent,
}

impl Request {
    /// The ids of its requests, as JSON.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        let ranges = match &self.ids {
            Ids::One(range) => std::slice::from_ref(range),
            Ids::Batch(ranges) => ranges,
        };
        let text = |range: &Range<usize>| self.frame.get(range.clone()).and_then(|id| str::from_utf8(id).ok());
        ranges.iter().filter_map(text).filter(|id| !id.is_empty())
    }

    /// Whether it is a batch, which is answered by an array.
    pub fn is_batch(&self) -> bool {
        matches!(self.ids, Ids::Batch(_))
    }

    /// The frame without its line break.
    pub fn text(&self) -> &str {
        let frame = self.frame.strip_suffix(b"\n").unwrap_or(&self.frame);
        str::from_utf8(frame).unwrap_or_default()
    }

    fn has_id(&self, id: &[u8]) -> bool {
        match &self.ids {
            Ids::One(range) => !range.is_empty() && self.frame.get(range.clone()) == Some(id),
            Ids::Batch(ranges) => ranges.iter().any(|range| self.frame.get(range.clone()) == Some(id)),
        }
    }

    /// Whether it is refused when it has waited too long. A subscription waits until it can be renewed.
    fn expires(&self) -> bool {
        !matches!(self.traits.effect, Effect::Listen { is_acknowledged: true })
    }
}

/// What became of a cancelled request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It was not sent and never will be.
    Withdrawn,
    /// The broker has it, or it is not known: the broker is notified.
    Sent,
}

/// The requests that have no answer yet.
#[derive(Debug, Default)]
pub struct Requests {
    kept: VecDeque<Request>,
    /// Bytes of the kept frames.
    bytes: usize,
    waiting_len: usize,
    spare: Vec<Vec<u8>>,
}

impl Requests {
    /// A buffer for the next frame, empty.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Keeps a request, which was sent, or waits from `waits_since`. `id` is its place in the frame; an empty one is that
    /// of a notification.
    pub fn keep(&mut self, frame: Vec<u8>, id: Range<usize>, traits: Traits, waits_since: Option<Instant>) {
        self.push(frame, Ids::One(id), traits, waits_since);
    }

    /// As [`Self::keep`], for a batch of requests.
    pub fn keep_batch(&mut self, frame: Vec<u8>, ids: Vec<Range<usize>>, traits: Traits, waits_since: Option<Instant>) {
        self.push(frame, Ids::Batch(ids.into()), traits, waits_since);
    }

    fn push(&mut self, frame: Vec<u8>, ids: Ids, traits: Traits, waits_since: Option<Instant>) {
        self.bytes += frame.len();
        self.waiting_len += usize::from(waits_since.is_some());
        let state = waits_since.map_or(State::Sent, |since| State::Waiting { since });
        self.kept.push_back(Request {
            frame,
            ids,
            traits,
            sendings: u8::from(state == State::Sent),
            state,
        });
    }

    /// Whether further requests may be kept.
    pub fn has_room(&self) -> bool {
        self.bytes < KEPT_BYTES_MAX
    }

    /// Whether no request waits for a connection.
    pub fn none_waits(&self) -> bool {
        self.waiting_len == 0
    }

    /// Whether all requests have their answers, but for subscriptions, which are answered when they end.
    pub fn is_answered(&self) -> bool {
        self.kept
            .iter()
            .all(|request| matches!(request.traits.effect, Effect::Listen { .. }))
    }

    /// Takes out the request with this id, which is answered now.
    pub fn answered(&mut self, id: &[u8]) -> Option<Request> {
        let at = self.position(id)?;
        Some(self.remove(at))
    }

    /// The kept subscription with this id.
    pub fn listen(&mut self, id: &[u8]) -> Option<&mut Effect> {
        let at = self.position(id)?;
        let effect = &mut self.kept[at].traits.effect;
        matches!(effect, Effect::Listen { .. }).then_some(effect)
    }

    fn position(&self, id: &[u8]) -> Option<usize> {
        self.kept.iter().position(|request| request.has_id(id))
    }

    fn remove(&mut self, at: usize) -> Request {
        // The caller has found the request at this place.
        let request = self.kept.remove(at).unwrap_or_else(|| unreachable!("a found request"));
        self.bytes -= request.frame.len();
        self.waiting_len -= usize::from(request.state != State::Sent);
        request
    }

    /// Uses the buffer of a request again.
    pub fn recycle(&mut self, request: Request) {
        let mut buffer = request.frame;
        if self.spare.len() < SPARE_LEN_MAX && buffer.capacity() <= SPARE_BYTES_MAX {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// The client wants no answer to this request.
    pub fn cancel(&mut self, id: &[u8]) -> Cancelled {
        let Some(at) = self.position(id).filter(|at| !self.kept[*at].is_batch()) else {
            return Cancelled::Sent;
        };
        match self.remove(at).state {
            State::Waiting { .. } => Cancelled::Withdrawn,
            State::Sent => Cancelled::Sent,
        }
    }

    /// The connection was lost: takes out the requests whose answer was lost and that must not be repeated. All others
    /// wait from now on. `has_name` says that the next connection will have the same session.
    pub fn lose_connection(&mut self, now: Instant, has_name: bool) -> Vec<Request> {
        let (mut lost, mut at) = (Vec::new(), 0);
        while let Some(request) = self.kept.get_mut(at) {
            let may_repeat = request.sendings < SENDINGS_MAX
                && match request.traits.repeat {
                    Repeat::Always => true,
                    Repeat::InSameSession => has_name,
                    Repeat::Never => false,
                };
            match request.state {
                State::Sent if may_repeat => {
                    request.state = State::Waiting { since: now };
                    self.waiting_len += 1;
                    at += 1;
                }
                State::Sent => lost.push(self.remove(at)),
                State::Waiting { .. } => at += 1,
            }
        }
        lost
    }

    /// Takes out the waiting requests that act as the session of their connection. On a connection without one the broker
    /// would make a session without a name for them.
    pub fn take_acts_as_session(&mut self) -> Vec<Request> {
        self.take(|request| request.traits.acts_as_session && request.state != State::Sent)
    }

    /// Takes out the requests that are owed an answer, because none will come. A subscription is owed none before its end.
    pub fn take_unanswered(&mut self) -> Vec<Request> {
        self.take(|request| !matches!(request.traits.effect, Effect::Listen { .. }))
    }

    fn take(&mut self, is_taken: impl Fn(&Request) -> bool) -> Vec<Request> {
        let (mut taken, mut at) = (Vec::new(), 0);
        while let Some(request) = self.kept.get(at) {
            if is_taken(request) {
                taken.push(self.remove(at));
            } else {
                at += 1;
            }
        }
        taken
    }

    /// Takes out the requests that have waited too long.
    pub fn expired(&mut self, now: Instant) -> Vec<Request> {
        let is_over = |request: &Request| match request.state {
            State::Waiting { since } => request.expires() && now.saturating_duration_since(since) >= WAIT_MAX,
            State::Sent => false,
        };
        self.take(is_over)
    }

    /// When the next waiting request has waited too long.
    pub fn next_expiry(&self) -> Option<Instant> {
        let expiry = |request: &Request| match request.state {
            State::Waiting { since } if request.expires() => Some(since + WAIT_MAX),
            _ => None,
        };
        self.kept.iter().filter_map(expiry).min()
    }

    /// Appends the frames of waiting requests to `out`, in their order and until it has `len_max` bytes or one frame
    /// more. They count as sent. Notifications need no answer and are no longer kept.
    pub fn send_waiting(&mut self, out: &mut Vec<u8>, len_max: usize) {
        let mut at = 0;
        while self.waiting_len > 0 && out.len() < len_max {
            let Some(request) = self.kept.get_mut(at) else { return };
            if request.state == State::Sent {
                at += 1;
                continue;
            }
            out.extend_from_slice(&request.frame);
            if request.ids().next().is_none() {
                let request = self.remove(at);
                self.recycle(request);
            } else {
                request.state = State::Sent;
                request.sendings += 1;
                self.waiting_len -= 1;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CALL: Traits = Traits {
        effect: Effect::None,
        repeat: Repeat::Never,
        answer: Answer::ToolResult { is_modern: false },
        acts_as_session: false,
    };

    fn repeated(repeat: Repeat) -> Traits {
        Traits { repeat, ..CALL }
    }

    fn keep(requests: &mut Requests, id: &str, traits: Traits, waits_since: Option<Instant>) {
        let mut frame = requests.buffer();
        frame.extend_from_slice(id.as_bytes());
        frame.push(b'\n');
        requests.keep(frame, 0..id.len(), traits, waits_since);
    }

    fn ids(requests: &[Request]) -> Vec<String> {
        requests.iter().flat_map(Request::ids).map(str::to_owned).collect()
    }

    fn sent(requests: &mut Requests) -> String {
        let mut out = Vec::new();
        requests.send_waiting(&mut out, usize::MAX);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_lost_connection_refuses_what_may_have_happened_and_keeps_the_order_of_the_rest() {
        let now = Instant::now();
        for (has_name, refused, kept) in [(true, vec!["2"], "1\n3\n4\n"), (false, vec!["2", "3"], "1\n4\n")] {
            let mut requests = Requests::default();
            keep(&mut requests, "1", repeated(Repeat::Always), None);
            keep(&mut requests, "2", CALL, None);
            keep(&mut requests, "3", repeated(Repeat::InSameSession), None);
            keep(&mut requests, "4", CALL, Some(now));
            assert_eq!(ids(&requests.lose_connection(now, has_name)), refused);
            assert_eq!(sent(&mut requests), kept);
            assert!(requests.none_waits() && !requests.is_answered());
        }
    }

    #[test]
    fn a_waiting_request_expires_but_a_subscription_that_has_begun_does_not() {
        let mut requests = Requests::default();
        let start = Instant::now();
        let listen = |is_acknowledged| Traits {
            effect: Effect::Listen { is_acknowledged },
            repeat: Repeat::Always,
            answer: Answer::Error,
            acts_as_session: true,
        };
        keep(&mut requests, "1", listen(true), Some(start));
        keep(&mut requests, "2", listen(false), Some(start));
        keep(&mut requests, "3", CALL, Some(start + WAIT_MAX));
        assert_eq!(requests.next_expiry(), Some(start + WAIT_MAX));
        assert!(requests.expired(start + WAIT_MAX / 2).is_empty());
        assert_eq!(ids(&requests.expired(start + WAIT_MAX)), ["2"]);
        assert_eq!(requests.next_expiry(), Some(start + 2 * WAIT_MAX));
    }

    #[test]
    fn only_waiting_requests_that_act_as_the_session_are_taken_out() {
        let mut requests = Requests::default();
        let acts = Traits {
            acts_as_session: true,
            ..CALL
        };
        keep(&mut requests, "1", acts.clone(), Some(Instant::now()));
        keep(&mut requests, "2", CALL, Some(Instant::now()));
        keep(&mut requests, "3", acts, None);
        assert_eq!(ids(&requests.take_acts_as_session()), ["1"]);
        assert_eq!(sent(&mut requests), "2\n");
        assert!(requests.none_waits());
        assert!(requests.answered(b"3").is_some());
    }

    #[test]
    fn a_cancelled_request_that_waits_is_never_sent() {
        let mut requests = Requests::default();
        keep(&mut requests, "1", CALL, Some(Instant::now()));
        keep(&mut requests, "2", CALL, None);
        assert_eq!(requests.cancel(b"1"), Cancelled::Withdrawn);
        assert_eq!(requests.cancel(b"2"), Cancelled::Sent);
        assert_eq!(requests.cancel(b"3"), Cancelled::Sent);
        assert_eq!(sent(&mut requests), "");
        assert!(requests.is_answered() && requests.has_room() && requests.bytes == 0);
    }

    #[test]
    fn a_notification_is_sent_once_and_not_kept() {
        let mut requests = Requests::default();
        let notification = Traits {
            answer: Answer::None,
            ..repeated(Repeat::Never)
        };
        requests.keep(b"{}\n".to_vec(), 0..0, notification, Some(Instant::now()));
        assert!(requests.answered(b"").is_none());
        assert_eq!(sent(&mut requests), "{}\n");
        assert!(requests.kept.is_empty() && requests.bytes == 0);
    }

    #[test]
    fn a_request_that_ends_every_connection_is_refused_at_last() {
        let (mut requests, now) = (Requests::default(), Instant::now());
        keep(&mut requests, "1", repeated(Repeat::Always), None);
        for _ in 1..SENDINGS_MAX {
            assert!(requests.lose_connection(now, true).is_empty());
            assert_eq!(sent(&mut requests), "1\n");
        }
        assert_eq!(ids(&requests.lose_connection(now, true)), ["1"]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Ask(u8),
        Answer(usize),
        Cancel(usize),
        Lose(bool),
        Attach,
        Wait,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u8..3).prop_map(Step::Ask),
            3 => (0usize..8).prop_map(Step::Answer),
            1 => (0usize..8).prop_map(Step::Cancel),
            1 => any::<bool>().prop_map(Step::Lose),
            2 => Just(Step::Attach),
            1 => Just(Step::Wait),
        ]
    }

    proptest! {
        /// Each request ends exactly once: answered, refused or cancelled. What must not be repeated is sent once at most,
        /// and requests that wait are sent in the order in which they arrived.
        #[test]
        fn every_request_ends_exactly_once(steps in proptest::collection::vec(step(), 0..80)) {
            let (mut requests, mut now) = (Requests::default(), Instant::now());
            let (mut open, mut ended, mut sendings) = (Vec::new(), Vec::new(), Vec::<usize>::new());
            let (mut is_attached, mut last, mut kinds) = (false, 0, Vec::new());
            for step in steps {
                match step {
                    Step::Ask(kind) => {
                        let repeat = [Repeat::Always, Repeat::InSameSession, Repeat::Never][usize::from(kind)];
                        let id = last.to_string();
                        keep(&mut requests, &id, repeated(repeat), (!is_attached).then_some(now));
                        open.push(last);
                        kinds.push(repeat);
                        sendings.push(usize::from(is_attached));
                        last += 1;
                    }
                    Step::Answer(at) if is_attached => {
                        let Some(id) = open.get(at).copied() else { continue };
                        let request = requests.answered(id.to_string().as_bytes());
                        prop_assert!(request.is_some());
                        requests.recycle(request.unwrap());
                        open.remove(at);
                        ended.push(id);
                    }
                    Step::Cancel(at) => {
                        let Some(id) = open.get(at).copied() else { continue };
                        let cancelled = requests.cancel(id.to_string().as_bytes());
                        prop_assert_eq!(cancelled == Cancelled::Sent, is_attached);
                        open.remove(at);
                        ended.push(id);
                    }
                    Step::Lose(has_name) if is_attached => {
                        is_attached = false;
                        for id in ids(&requests.lose_connection(now, has_name)) {
                            let id: usize = id.parse().unwrap();
                            open.retain(|other| *other != id);
                            ended.push(id);
                        }
                    }
                    Step::Attach if !is_attached => {
                        let text = sent(&mut requests);
                        let order: Vec<usize> = text.lines().map(|line| line.parse().unwrap()).collect();
                        prop_assert_eq!(&order, &open);
                        for id in order {
                            sendings[id] += 1;
                        }
                        is_attached = true;
                    }
                    Step::Wait if !is_attached => {
                        now += WAIT_MAX;
                        prop_assert_eq!(requests.expired(now).len(), open.len());
                        ended.append(&mut open);
                    }
                    _ => {}
                }
                prop_assert_eq!(requests.kept.len(), open.len());
                prop_assert_eq!(requests.none_waits(), is_attached || open.is_empty());
            }
            let mut once = ended.clone();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), ended.len());
            for (id, kind) in kinds.iter().enumerate() {
                prop_assert!(*kind != Repeat::Never || sendings[id] <= 1);
            }
        }
    }
}
