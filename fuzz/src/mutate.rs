//! Generates inputs that are nearly valid: mutated and crossed inputs of the corpus, and words of a dictionary.

/// Random numbers that a seed reproduces (`SplitMix64`).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.roll() % end as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A random position in a sequence of this length, its end included.
    fn cut(&mut self, len: usize) -> usize {
        self.below(len + 1)
    }
}

/// A new input of at most `len_max` bytes.
pub fn mutate(corpus: &[Vec<u8>], dictionary: &[&str], len_max: usize, dice: &mut Dice) -> Vec<u8> {
    let mut input = dice.pick(corpus).clone();
    for _ in 0..=dice.below(6) {
        step(&mut input, corpus, dictionary, dice);
    }
    input.truncate(len_max);
    input
}

fn step(input: &mut Vec<u8>, corpus: &[Vec<u8>], dictionary: &[&str], dice: &mut Dice) {
    let at = dice.cut(input.len());
    match dice.below(10) {
        0 if at < input.len() => input[at] ^= 1 << dice.below(8),
        1 if at < input.len() => input[at] = *dice.pick(&[0, 1, 0x20, b'"', b'\\', 0x7f, 0x80, 0xff, dice_byte(at)]),
        2 => insert(input, at, &[dice.roll() as u8]),
        3 => drop(input.drain(at..(at + 1 + dice.below(8)).min(input.len()).max(at))),
        4 | 5 => insert(input, at, dice.pick(dictionary).as_bytes()),
        6 => {
            // Repeats a piece a few times: this makes nesting deeper.
            let end = (at + dice.below(24)).min(input.len());
            let piece = input[at..end].repeat(1 + dice.below(8));
            insert(input, at, &piece);
        }
        7 => {
            let other = dice.pick(corpus);
            let cut = dice.cut(other.len());
            input.truncate(at);
            input.extend_from_slice(&other[cut..]);
        }
        8 => {
            let other = dice.pick(corpus);
            let from = dice.cut(other.len());
            let to = (from + dice.below(64)).min(other.len());
            insert(input, at, &other[from..to]);
        }
        _ => {
            let noise: Vec<_> = (0..dice.below(32)).map(|_| dice.roll() as u8).collect();
            insert(input, at, &noise);
        }
    }
}

fn dice_byte(at: usize) -> u8 {
    (at % 251) as u8
}

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    input.splice(at..at, piece.iter().copied());
}

/// Reads an input as a series of choices; a used-up input chooses 0.
pub struct Choices<'a>(pub &'a [u8]);

impl Choices<'_> {
    pub fn byte(&mut self) -> u8 {
        match self.0 {
            [first, rest @ ..] => {
                self.0 = rest;
                *first
            }
            [] => 0,
        }
    }

    pub fn is_used_up(&self) -> bool {
        self.0.is_empty()
    }

    /// Less than `end`, which is at most 256 and not 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }
}

/// Gives the bytes to a decoder in pieces of these sizes, of which the first follows the last.
pub fn in_pieces(bytes: &[u8], sizes: &[usize], mut decode: impl FnMut(&[u8])) {
    let mut sizes = sizes.iter().cycle();
    let mut rest = bytes;
    while !rest.is_empty() {
        let size = sizes.next().map_or(1, |&size| size.min(rest.len()));
        let (piece, after) = rest.split_at(size);
        decode(piece);
        rest = after;
    }
}
