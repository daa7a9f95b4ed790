//! What a link brings to which call.

use futures_util::FutureExt;

use super::*;

fn open(link: &Arc<FrameLink>, text: &str) -> Call {
    let link = Arc::clone(link);
    let mut write = |number: CallNumber, out: &mut Vec<u8>| {
        out.extend_from_slice(format!("{text}{}", number.0).as_bytes());
    };
    link.open(CallPurpose::Caller, &mut write).unwrap()
}

fn end_of(call: &mut Call) -> CallEnd {
    match call.next().now_or_never() {
        Some(CallEvent::Ended(end)) => end,
        other => panic!("the call has ended: {other:?}"),
    }
}

#[test]
fn answers_reach_their_calls_and_late_ones_reach_none() {
    let link = FrameLink::new();
    let (mut first, second) = (open(&link, "a"), open(&link, "b"));
    let mut sent = Vec::new();
    link.take_outgoing(&mut sent);
    let text = format!("a{}\nb{}\n", first.number().0, second.number().0);
    assert_eq!(sent, text.as_bytes());

    let result = || CallEnd::Result(Bytes::from_static(b"{}"));
    assert_eq!(link.end(first.number(), result()), Belongs::ToCall);
    assert_eq!(link.end(first.number(), result()), Belongs::ToEndedCall);
    assert!(matches!(end_of(&mut first), CallEnd::Result(_)));

    let number = second.number();
    drop(second);
    assert_eq!(link.end(number, result()), Belongs::ToEndedCall);
    assert_eq!(link.in_flight(), 0);
    sent.clear();
    link.take_outgoing(&mut sent);
    let cancelled = format!("\"requestId\":{}", number.0);
    assert!(String::from_utf8(sent).unwrap().contains(&cancelled));
}

#[test]
fn calls_of_which_no_byte_was_written_can_be_sent_again() {
    let link = FrameLink::new();
    let mut calls = [open(&link, "a"), open(&link, "b"), open(&link, "c")];
    let mut sent = Vec::new();
    link.take_outgoing(&mut sent);
    let first_len = sent.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    link.note_written(first_len + 1);
    link.close(&Arc::default());
    let ends = calls.each_mut().map(end_of);
    assert!(matches!(ends[0], CallEnd::Died(_)));
    assert!(matches!(ends[1], CallEnd::Died(_)), "one byte of it was written");
    assert!(matches!(ends[2], CallEnd::NotSent));
    let refused = Arc::clone(&link).open(CallPurpose::Own, &mut |_, _| {});
    assert_eq!(refused.unwrap_err(), LinkRefusal::Closed);
}

#[test]
fn a_backend_that_does_not_read_is_busy() {
    let link = FrameLink::new();
    let calls: Vec<_> = (0..OUTGOING_LEN_MAX).map(|_| open(&link, "x")).collect();
    let refused = || Arc::clone(&link).open(CallPurpose::Own, &mut |_, _| {}).unwrap_err();
    assert_eq!(refused(), LinkRefusal::Busy);
    let mut sent = Vec::new();
    link.take_outgoing(&mut sent);
    let large = open(&link, &"x".repeat(OUTGOING_BYTES_MAX));
    assert_eq!(refused(), LinkRefusal::Busy);
    assert_eq!(link.in_flight(), calls.len() + 1);
    drop(large);
}

#[test]
fn a_question_reaches_the_call_that_is_named_or_the_only_one() {
    let link = FrameLink::new();
    let question = || InputRequest {
        id: "\"q\"".into(),
        method: "roots/list".into(),
        params: "{}".into(),
    };
    let asks = |number| link.ask(number, vec![question()]).is_empty();
    assert!(!asks(None), "no call is open");
    let own = Arc::clone(&link).open(CallPurpose::Own, &mut |_, _| {}).unwrap();
    let mut first = open(&link, "a");
    assert!(!asks(Some(own.number())), "the broker asks itself nothing");
    assert!(asks(None));
    let second = open(&link, "b");
    assert!(!asks(None), "of two calls it may belong to either");
    assert!(asks(Some(first.number())));
    link.progress(first.number(), Bytes::from_static(b"{}"));
    let (questions, mut sent) = (first.take_questions(), Vec::new());
    for question in &questions {
        link.answer(question, Ok("{\"roots\":[]}"));
    }
    assert_eq!(questions.len(), 2);
    assert!(matches!(first.next().now_or_never(), Some(CallEvent::Progress(_))));
    link.take_outgoing(&mut sent);
    let answer = "{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"result\":{\"roots\":[]}}\n";
    assert_eq!(String::from_utf8(sent).unwrap().matches(answer).count(), 2);
    let number = second.number();
    drop(second);
    assert!(!asks(None), "the cancelled call may still run");
    assert!(Arc::clone(&link).wait_until_answered(number).now_or_never().is_none());
    link.end(number, CallEnd::NotSent);
    let refused = link.ask(None, (0..40).map(|_| question()).collect());
    assert_eq!(refused.len(), 8, "questions that nobody reads are bounded");
}

#[test]
fn a_question_before_a_call_is_for_its_caller_and_the_call_is_sent_after_the_answer() {
    let link = FrameLink::new();
    link.keep_questions();
    let question = InputRequest {
        id: "0".into(),
        method: "roots/list".into(),
        params: "{}".into(),
    };
    assert!(link.ask(None, vec![question.clone()]).is_empty());
    let taken = || {
        let mut sent = Vec::new();
        link.take_outgoing(&mut sent);
        String::from_utf8(sent).unwrap()
    };
    let cancelled = open(&link, "cancelled");
    drop(cancelled);
    assert_eq!(taken(), "", "it was not sent");
    let mut call = open(&link, "call");
    assert_eq!((taken().as_str(), call.take_questions()), ("", vec![question.clone()]));
    link.answer(&question, Ok("{}"));
    let sent = taken();
    let (answer, call_frame) = sent.split_once('\n').unwrap();
    assert!(
        answer.contains("\"result\":{}") && call_frame.starts_with("call"),
        "{sent}"
    );
    assert!(!link.has_learnt(), "the caller has not been asked yet");
    link.end(call.number(), CallEnd::NotSent);
    assert!(link.ask(None, vec![question]).is_empty());
    assert!(link.has_learnt(), "it may be about the last caller");
}

#[test]
fn the_lowest_level_of_log_messages_is_asked_for_once() {
    let link = FrameLink::new();
    link.want_log_level(3, "info");
    link.enable_log_levels();
    for (rank, level) in [(5, "warning"), (5, "warning"), (3, "info"), (5, "warning")] {
        link.want_log_level(rank, level);
    }
    let mut sent = Vec::new();
    link.take_outgoing(&mut sent);
    let sent = String::from_utf8(sent).unwrap();
    let levels: Vec<_> = sent.lines().map(|line| line.rsplit('"').nth(1).unwrap()).collect();
    assert_eq!(levels, ["warning", "info"]);
}

#[test]
fn of_many_progress_notifications_the_last_ones_reach_a_slow_caller() {
    let link = FrameLink::new();
    let mut call = open(&link, "a");
    for at in 0..100 {
        link.progress(call.number(), Bytes::from(format!("{at}")));
    }
    link.end(call.number(), CallEnd::NotSent);
    let mut seen = Vec::new();
    while let Some(CallEvent::Progress(params)) = call.next().now_or_never() {
        seen.push(String::from_utf8(params.to_vec()).unwrap());
    }
    assert_eq!(seen.len(), 32);
    assert_eq!(seen.last().map(String::as_str), Some("99"));
}
