//! Properties of the order of yaps: it is that of a plain model, and holds for senders with any clock.

use proptest::{collection::vec, option, prelude::*};
use uuid::Uuid;

use super::*;

const DELAY: Duration = Duration::from_millis(200);
const START: Now = Now {
    unix_ms: 1_790_000_000_000,
    mono_ms: 50_000,
};

#[derive(Clone, Debug)]
enum Step {
    /// A yap of this sender, whose clock is off by so many milliseconds, arrives.
    Yap(u8, Option<i64>),
    /// Time passes.
    Pass(u64),
    /// The wall clock is set, by so many milliseconds.
    SetWall(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..4_u8, option::weighted(0.8, -7_000..7_000_i64)).prop_map(|(sender, off)| Step::Yap(sender, off)),
        4 => (0..4_u8, option::weighted(0.8, -60..60_i64)).prop_map(|(sender, off)| Step::Yap(sender, off)),
        6 => (0..130_u64).prop_map(Step::Pass),
        1 => (0..20_000_u64).prop_map(Step::Pass),
    ];
    vec(step, 0..120)
}

fn steps_with_jumps() -> impl Strategy<Value = Vec<Step>> {
    let jump = (-10_000_000..10_000_000_i64).prop_map(Step::SetWall);
    vec((steps(), option::weighted(0.5, jump)), 1..4).prop_map(|parts| {
        let parts = parts.into_iter();
        parts.flat_map(|(steps, jump)| steps.into_iter().chain(jump)).collect()
    })
}

fn yap_of(sender: u8, number: usize, sent_at_ms: Option<u64>) -> Yap {
    Yap {
        id: Uuid::from_u128(number as u128),
        sender: SessionId::from_uuid(Uuid::from_u128(u128::from(sender) << 64)),
        sender_name: None,
        message: number.to_string(),
        mode: None,
        category: None,
        task_context: None,
        sent_at_ms,
        folded: 0,
    }
}

/// What a run of the steps has shown: each yap with the monotonic time of its arrival and of its release.
struct Run {
    accepted: Vec<(Yap, u64, u64)>,
    shown: Vec<(Arc<ShownYap>, u64)>,
    late: usize,
}

/// Runs the steps. The timer of the desk is exact: it releases when the state says, and when a yap is late.
fn run(steps: &[Step], mut after_each: impl FnMut(&Yaps, Now)) -> Run {
    let (mut yaps, mut now) = (Yaps::default(), START);
    let (mut accepted, mut shown, mut late) = (Vec::new(), Vec::new(), 0);
    let mut next_at: Option<u64> = None;
    let mut release = |yaps: &mut Yaps, now: Now| {
        let released = yaps.release(DELAY, now, &mut ());
        shown.extend(released.released.into_iter().map(|shown| (shown, now.mono_ms)));
        released.next_in.map(|next_in| now.mono_ms + millis(next_in))
    };
    for step in steps.iter().chain([&Step::Pass(millis(DELAY))]) {
        match step {
            Step::Yap(sender, off) => {
                let sent_at_ms = off.map(|off| now.unix_ms.saturating_add_signed(off));
                let yap = yap_of(*sender, accepted.len(), sent_at_ms);
                let held = yaps.hold(Arc::new(yap.clone()), now, &mut ());
                assert_ne!(held, YapHeld::Full);
                accepted.push((yap, now.unix_ms, now.mono_ms));
                if held == YapHeld::Late {
                    late += 1;
                    next_at = release(&mut yaps, now);
                } else {
                    next_at = next_at.or(Some(now.mono_ms + millis(DELAY)));
                }
            }
            Step::Pass(ms) => {
                let end = now.mono_ms + ms;
                while let Some(at) = next_at.filter(|at| *at <= end) {
                    now.unix_ms += at.saturating_sub(now.mono_ms);
                    now.mono_ms = now.mono_ms.max(at);
                    next_at = release(&mut yaps, now);
                }
                now.unix_ms += end - now.mono_ms;
                now.mono_ms = end;
            }
            Step::SetWall(by) => now.unix_ms = now.unix_ms.saturating_add_signed(*by),
        }
        after_each(&yaps, now);
    }
    assert_eq!(yaps.held_bytes, 0);
    Run { accepted, shown, late }
}

/// The order by the text of the contract, one millisecond after the other.
fn model(accepted: &[(Yap, u64, u64)]) -> Vec<(u64, bool, String)> {
    struct Held {
        place: (u64, SessionId, usize),
        due_ms: u64,
        message: String,
    }
    let (mut held, mut shown): (Vec<Held>, Vec<(u64, bool, String)>) = (Vec::new(), Vec::new());
    let mut last_of: Vec<(SessionId, u64)> = Vec::new();
    // Releases what is due up to this time, each with everything before it.
    let release = |held: &mut Vec<Held>, shown: &mut Vec<(u64, bool, String)>, up_to_ms: u64| {
        loop {
            let last_shown_ms = shown.iter().map(|(at_ms, ..)| *at_ms).max().unwrap_or(0);
            let due_now = held.iter().filter(|held| held.due_ms <= up_to_ms);
            let earliest_ms = due_now.map(|held| held.due_ms).min();
            let due = held
                .iter()
                .filter(|held| Some(held.due_ms) == earliest_ms || held.place.0 < last_shown_ms);
            let Some(last) = due.map(|held| held.place).max() else {
                break;
            };
            let mut out: Vec<_> = held.extract_if(.., |held| held.place <= last).collect();
            out.sort_by_key(|held| held.place);
            for held in out {
                let last_shown_ms = shown.iter().map(|(at_ms, ..)| *at_ms).max().unwrap_or(0);
                shown.push((held.place.0, held.place.0 < last_shown_ms, held.message));
            }
        }
    };
    for (number, (yap, received_ms, arrived_ms)) in accepted.iter().enumerate() {
        release(&mut held, &mut shown, *arrived_ms);
        let sent_at_ms = yap.sent_at_ms.unwrap_or(*received_ms);
        let mut at_ms = sent_at_ms.min(*received_ms).max(received_ms - 5_000);
        match last_of.iter_mut().find(|(sender, _)| *sender == yap.sender) {
            Some((_, last_ms)) => {
                at_ms = at_ms.max(*last_ms);
                *last_ms = at_ms;
            }
            None => last_of.push((yap.sender, at_ms)),
        }
        held.push(Held {
            place: (at_ms, yap.sender, number),
            due_ms: arrived_ms + 200,
            message: yap.message.clone(),
        });
        let last_shown_ms = shown.iter().map(|(at_ms, ..)| *at_ms).max().unwrap_or(0);
        if at_ms < last_shown_ms {
            release(&mut held, &mut shown, *arrived_ms);
        }
    }
    release(&mut held, &mut shown, u64::MAX);
    shown
}

proptest! {
    #[test]
    fn yaps_are_shown_as_the_contract_says(steps in steps()) {
        let run = run(&steps, |_, _| {});
        let shown: Vec<_> = run.shown.iter().map(|(shown, _)| (shown.at_ms, shown.is_late, shown.yap.message.clone())).collect();
        prop_assert_eq!(shown, model(&run.accepted));
    }

    #[test]
    fn no_yap_is_dropped_or_held_too_long_or_moved_behind_a_later_one_of_its_sender(steps in steps_with_jumps()) {
        let run = run(&steps, |_, _| {});
        prop_assert_eq!(run.shown.len(), run.accepted.len());
        let mut last_of = std::collections::HashMap::new();
        let (mut last_at_ms, mut late) = (0, 0);
        for (place, (shown, released_ms)) in run.shown.iter().enumerate() {
            prop_assert_eq!(shown.seq, place as u64 + 1);
            let number: usize = shown.yap.message.parse().unwrap();
            let (yap, _, arrived_ms) = &run.accepted[number];
            prop_assert_eq!(&shown.yap, yap);
            prop_assert!(released_ms - arrived_ms <= 200, "held for {} ms", released_ms - arrived_ms);
            if let Some((before, before_ms)) = last_of.insert(yap.sender, (number, shown.at_ms)) {
                prop_assert!(before < number, "{before} and {number}");
                prop_assert!(before_ms <= shown.at_ms);
            }
            prop_assert_eq!(shown.is_late, shown.at_ms < last_at_ms);
            late += usize::from(shown.is_late);
            last_at_ms = last_at_ms.max(shown.at_ms);
        }
        prop_assert_eq!(late, run.late);
    }

    #[test]
    fn a_sender_is_forgotten_when_its_last_yap_no_longer_matters(steps in steps()) {
        run(&steps, |yaps, now| {
            let earliest_ms = now.unix_ms - 5_000;
            // Those of before the last release remain until the next.
            let needed = yaps.last_at_ms_of.values().filter(|at_ms| **at_ms > earliest_ms);
            assert!(needed.count() <= 4 && yaps.last_at_ms_of.len() <= 4);
        });
        let mut yaps = Yaps::default();
        for sender in 0..9 {
            yaps.hold(Arc::new(yap_of(sender, 0, None)), START, &mut ());
        }
        let later = Now { unix_ms: START.unix_ms + 5_001, mono_ms: START.mono_ms + 5_001 };
        yaps.release(DELAY, later, &mut ());
        prop_assert_eq!(yaps.last_at_ms_of.len(), 0);
    }
}

#[test]
fn yaps_are_forgotten_after_a_day_and_their_numbers_go_on() {
    let mut yaps = Yaps::default();
    let hold = |yaps: &mut Yaps, now| {
        yaps.hold(Arc::new(yap_of(1, 0, None)), now, &mut ());
        yaps.release(Duration::ZERO, now, &mut ()).released[0].seq
    };
    assert_eq!(hold(&mut yaps, START), 1);
    let day_ms = millis(YAPS_RETENTION);
    let later = |ms| Now {
        unix_ms: START.unix_ms + ms,
        mono_ms: START.mono_ms + ms,
    };
    yaps.forget_old(later(day_ms - 1), &mut ());
    assert_eq!(yaps.list(None, 9).len(), 1);
    yaps.forget_old(later(day_ms), &mut ());
    assert_eq!((yaps.list(None, 9).len(), yaps.shown_bytes), (0, 0));
    assert_eq!(hold(&mut yaps, later(day_ms)), 2);
}

#[test]
fn a_wall_clock_that_is_set_back_does_not_move_a_yap_before_its_senders_last() {
    let steps = [
        Step::Yap(0, Some(-4_782)),
        Step::Pass(18),
        Step::Yap(1, None),
        // The release at the end of this time forgets the first sender.
        Step::Pass(200),
        Step::SetWall(-402),
        Step::Yap(0, Some(-4_599)),
    ];
    let run = run(&steps, |_, _| {});
    let of_first = run.shown.iter().map(|(shown, _)| shown).filter(|shown| {
        let sender = SessionId::from_uuid(Uuid::from_u128(0));
        shown.yap.sender == sender
    });
    let times: Vec<u64> = of_first.map(|shown| shown.at_ms).collect();
    assert_eq!(times.len(), 2);
    assert!(times[0] <= times[1], "{times:?}");
}
