//! Random numbers that a seed reproduces.

/// xorshift64*: good enough to choose mutations.
pub struct Random(u64);

impl Random {
    /// Takes the seed from `ORACLE_SEED`, or a constant one.
    pub fn seeded() -> Self {
        let seed = std::env::var("ORACLE_SEED").map_or(2026, |seed| seed.parse().expect("ORACLE_SEED is a number"));
        eprintln!("ORACLE_SEED={seed}");
        // A state of zero would stay zero.
        Self(seed | 1 << 63)
    }

    /// Below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        (high as usize) % bound
    }

    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// A body with one to three random edits.
pub fn edited(random: &mut Random, body: &[u8]) -> Vec<u8> {
    const LIKELY: &[u8] = b"{}[]\",:\\0123456789.eE+-truefalsn \n\0\x7f\x80\xc3\xff";
    let mut body = body.to_vec();
    for _ in 0..=random.below(3) {
        if body.is_empty() {
            break;
        }
        let at = random.below(body.len());
        match random.below(5) {
            0 => body[at] = *random.one_of(LIKELY),
            1 => body.insert(at, *random.one_of(LIKELY)),
            2 => _ = body.remove(at),
            3 => {
                let other = random.below(body.len());
                body.swap(at, other);
            }
            _ => {
                let end = at + random.below(12.min(body.len() - at) + 1);
                let piece = body[at..end].to_vec();
                body.splice(at..at, piece);
            }
        }
    }
    body
}
