//! The cost of a regular expression for each byte of the text that it searches.
//!
//! The engine runs an expression in linear time, but the factor does not show in the length of the expression: one step
//! of `[ab]*a[ab]{2500}c` follows up to 2500 states at once. The factor is found by exploring the sets of states that
//! any text can lead to (the subset construction), within a budget. An expression with more sets than that is charged
//! as if it followed all of its states at once.

use std::collections::HashSet;

use regex_automata::{
    nfa::thompson::{Compiler, Config, NFA, State},
    util::{look::Look, primitives::StateID},
};

use crate::model::BrokerError;

use super::{error::refuse, pointer};

/// Compiled size of one regular expression, in bytes; Unicode classes take tens of KiB.
pub(super) const REGEX_BYTES_MAX: usize = 256 * 1024;
/// The budget, in states, for exploring the expressions of one schema.
pub(super) const WALK_MAX: u64 = 2_000_000;
/// An expression whose sets of states take at most this many bytes runs as a table: half of what the engine may cache.
const TABLE_BYTES_MAX: usize = REGEX_BYTES_MAX / 2;
/// Work for each byte of text, by table. Measured: 2.3 ns.
const TABLE_BYTE: u64 = 2;
/// Work for each byte of text and each state followed at once, without a table. Measured: `[ab]*a[ab]{2500}c` took 17
/// µs for a byte.
const STATE_BYTE: u64 = 6;

/// The cost of a compiled expression.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expression {
    /// Work for each byte of text.
    pub per_byte: u64,
    /// Bytes of the compiled expression.
    pub len: usize,
}

impl Expression {
    /// Compiles an expression and explores it within the budget, in states.
    ///
    /// # Errors
    /// `invalid_schema` for a text that is no regular expression, needs more than linear time, or is too large.
    pub fn of(pattern: &str, budget: &mut u64) -> Result<Self, BrokerError> {
        let shown = pointer::bounded(pattern);
        let Ok(translated) = jsonschema_regex::to_rust_regex(pattern) else {
            return refuse(format!("not a regular expression: {shown}"));
        };
        let config = Config::new().nfa_size_limit(Some(REGEX_BYTES_MAX));
        let nfa = Compiler::new().configure(config).build(&translated);
        let nfa = match nfa {
            Ok(nfa) => nfa,
            Err(error) if error.size_limit().is_some() => {
                return refuse(format!(
                    "a regular expression compiles to more than {REGEX_BYTES_MAX} bytes: {shown}"
                ));
            }
            Err(_) => {
                return refuse(format!(
                    "a regular expression that is not understood, or takes more than linear time (look-around, \
                     back-references): {shown}"
                ));
            }
        };
        let walk = SubsetWalk::explore(&nfa, budget);
        let per_byte = if walk.fits_a_table {
            TABLE_BYTE
        } else {
            STATE_BYTE * walk.followed_max as u64
        };
        Ok(Self {
            per_byte,
            len: nfa.memory_usage(),
        })
    }
}

/// Explores the sets of states that texts lead to.
struct SubsetWalk<'a> {
    nfa: &'a NFA,
    budget: &'a mut u64,
    seen: HashSet<Box<[StateID]>>,
    open: Vec<Box<[StateID]>>,
    /// The number of the closure that reached each state last.
    reached_by: Vec<u32>,
    closures: u32,
    /// Bytes of the table of all sets.
    table_len: usize,
    followed_max: usize,
    fits_a_table: bool,
}

impl<'a> SubsetWalk<'a> {
    fn explore(nfa: &'a NFA, budget: &'a mut u64) -> Self {
        let mut walk = Self {
            nfa,
            budget,
            seen: HashSet::new(),
            open: Vec::new(),
            reached_by: vec![0; nfa.states().len()],
            closures: 0,
            table_len: 0,
            followed_max: 1,
            fits_a_table: false,
        };
        let all = nfa.states().len();
        match walk.run() {
            // The table cannot represent Unicode word boundaries.
            Some(()) => {
                walk.fits_a_table = walk.table_len <= TABLE_BYTES_MAX && !nfa.look_set_any().contains_word_unicode();
            }
            None => walk.followed_max = all,
        }
        walk
    }

    /// None if the budget is spent.
    fn run(&mut self) -> Option<()> {
        let start = self.closure([self.nfa.start_unanchored()], true)?;
        self.visit(start);
        let classes = self.nfa.byte_classes();
        let bytes: Vec<u8> = classes
            .representatives(0..=255)
            .filter_map(|unit| unit.as_u8())
            .collect();
        while let Some(set) = self.open.pop() {
            for &byte in &bytes {
                self.spend(set.len() as u64)?;
                let next: Vec<_> = set.iter().filter_map(|&state| self.step(state, byte)).collect();
                let next = self.closure(next, false)?;
                self.visit(next);
            }
        }
        Some(())
    }

    fn spend(&mut self, states: u64) -> Option<()> {
        *self.budget = self.budget.checked_sub(states + 1)?;
        Some(())
    }

    fn visit(&mut self, set: Box<[StateID]>) {
        self.followed_max = self.followed_max.max(set.len());
        if self.seen.contains(&set) {
            return;
        }
        // A row of the table, and the set itself.
        let row = self.nfa.byte_classes().alphabet_len().next_power_of_two() * size_of::<StateID>();
        self.table_len += row + size_of_val(&*set);
        self.open.push(set.clone());
        self.seen.insert(set);
    }

    /// All states that are reached without reading a byte. Only the start of the text satisfies a start assertion;
    /// every other assertion is assumed to hold, which follows more states than the engine does.
    fn closure(&mut self, from: impl IntoIterator<Item = StateID>, at_start: bool) -> Option<Box<[StateID]>> {
        self.closures += 1;
        let mut set = Vec::new();
        let mut open: Vec<_> = from.into_iter().collect();
        while let Some(id) = open.pop() {
            if std::mem::replace(&mut self.reached_by[id], self.closures) == self.closures {
                continue;
            }
            set.push(id);
            self.spend(1)?;
            match self.nfa.state(id) {
                State::Look { look: Look::Start, .. } if !at_start => {}
                State::Look { next, .. } | State::Capture { next, .. } => open.push(*next),
                State::Union { alternates } => open.extend(alternates.iter().copied()),
                State::BinaryUnion { alt1, alt2 } => open.extend([*alt1, *alt2]),
                State::ByteRange { .. } | State::Sparse(_) | State::Dense(_) | State::Fail | State::Match { .. } => {}
            }
        }
        set.sort_unstable();
        Some(set.into())
    }

    fn step(&self, state: StateID, byte: u8) -> Option<StateID> {
        match self.nfa.state(state) {
            State::ByteRange { trans } => trans.matches_byte(byte).then_some(trans.next),
            State::Sparse(transitions) => transitions.matches_byte(byte),
            State::Dense(transitions) => transitions.matches_byte(byte),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn per_byte(pattern: &str) -> u64 {
        let mut budget = WALK_MAX;
        Expression::of(pattern, &mut budget).unwrap().per_byte
    }

    #[test]
    fn common_expressions_are_cheap() {
        for pattern in [
            "^[a-z][a-z0-9_-]{0,62}[a-z0-9]$",
            "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
            "^[^@\\s]+@[^@\\s]+\\.[a-z]{2,}$",
            "^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}(\\.\\d+)?(Z|[+-]\\d{2}:\\d{2})$",
            "a|bc|[d-f]+",
        ] {
            assert_eq!(per_byte(pattern), TABLE_BYTE, "{pattern}");
        }
        for pattern in ["^.{1,300}$", "^\\p{L}+$"] {
            assert!(
                per_byte(pattern) <= 30 * STATE_BYTE,
                "few of its many states at once: {pattern}"
            );
        }
    }

    #[test]
    fn an_expression_that_follows_many_states_at_once_costs_as_many() {
        for (pattern, states) in [
            ("[ab]*a[ab]{2500}c", 2500),
            ("^[ab]*a[ab]{2500}c", 2500),
            ("(.*a){20}.{500}b", 500),
            ("\\b(a|aa){300}b", 300),
        ] {
            assert!(
                per_byte(pattern) >= STATE_BYTE * states,
                "{pattern}: {}",
                per_byte(pattern)
            );
        }
    }

    #[test]
    fn a_word_boundary_keeps_an_expression_from_running_as_a_table() {
        assert!(per_byte(r"\bab\b") >= STATE_BYTE);
    }

    #[test]
    fn a_refusal_says_whether_an_expression_is_too_large_or_unsupported() {
        let refusal = |pattern: &str| {
            Expression::of(pattern, &mut { WALK_MAX })
                .err()
                .map(|error| error.to_string())
        };
        let large = refusal("(((a{1,100}){1,100}){1,100}){1,100}");
        assert!(large.is_some_and(|text| text.contains("compiles to more than 262144 bytes")));
        let look_around = refusal("(?=a)b");
        assert!(look_around.is_some_and(|text| text.contains("look-around")));
    }

    #[test]
    fn all_expressions_share_the_budget() {
        let mut budget = WALK_MAX;
        for _ in 0..3 {
            Expression::of("[ab]*a[ab]{2500}c", &mut budget).unwrap();
        }
        assert!(budget < WALK_MAX / 100, "{budget}");
        assert!(Expression::of("^[a-z]+$", &mut 0).unwrap().per_byte > TABLE_BYTE);
    }
}
