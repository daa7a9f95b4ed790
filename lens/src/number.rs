//! Numbers as they are written: decimals of any length, calculated exactly.

#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "lengths and exponents are far below 2^63"
)]

use std::cmp::Ordering;

/// The most digits of an integer that is made from a text or from an exponent: as many as a double can have.
const INTEGER_DIGITS_MAX: usize = 308;
/// Digits of a quotient before it is rounded to a double.
const QUOTIENT_DIGITS: usize = 60;

/// A number: its digits times a power of ten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    negative: bool,
    /// 0 to 9, neither first nor last a 0; none for zero.
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    /// Reads a JSON number.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => {
                let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                let beyond = if exponent.starts_with('-') {
                    -1_000_000
                } else {
                    1_000_000
                };
                let small = digits.trim_start_matches('0').len() <= 6;
                let read = if small { exponent.parse().ok() } else { Some(beyond) };
                (mantissa, read.filter(|_| is_number)?)
            }
            None => (rest, 0_i64),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (mantissa, ""),
        };
        let is_canonical = whole == "0" || !whole.starts_with('0') && !whole.is_empty();
        if !is_canonical || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits = whole.bytes().chain(fraction.bytes()).map(|byte| byte - b'0').collect();
        let exponent = exponent - i64::try_from(fraction.len()).ok()?;
        Some(
            Self {
                negative,
                digits,
                exponent,
            }
            .normal(),
        )
    }

    fn normal(mut self) -> Self {
        let zeros = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..zeros);
        while self.digits.last() == Some(&0) {
            self.digits.pop();
            self.exponent += 1;
        }
        if self.digits.is_empty() {
            (self.negative, self.exponent) = (false, 0);
        }
        self
    }

    pub fn is_integer(&self) -> bool {
        self.exponent >= 0
    }

    /// The integer that is nearest to this number times `multiply / divide`, ties to even, in digits.
    pub fn scaled_to_integer(&self, multiply: u32, divide: u32) -> Option<String> {
        // The quotient has at least one digit after the point, and `rest` says whether more follow.
        let more = usize::try_from(self.exponent.max(0)).ok()? + 1;
        if self.digits.len() + more > INTEGER_DIGITS_MAX.max(self.digits.len() + 1) {
            return None;
        }
        let mut digits = self.times(multiply);
        digits.resize(digits.len() + more, 0);
        let rest = divide_by(&mut digits, divide);
        let fraction_len = usize::try_from(more as i64 - self.exponent).ok()?;
        let fraction = digits.split_off(digits.len().saturating_sub(fraction_len));
        let leads = fraction.len() == fraction_len;
        let first = if leads { fraction[0] } else { 0 };
        let is_beyond_half = rest || fraction.iter().skip(1).any(|digit| *digit != 0);
        let is_odd = digits.last().is_some_and(|digit| digit % 2 == 1);
        if first > 5 || first == 5 && (is_beyond_half || is_odd) {
            increment(&mut digits);
        }
        let number = Self {
            negative: self.negative,
            digits,
            exponent: 0,
        }
        .normal();
        let zeros = usize::try_from(number.exponent).ok()?;
        let sign = if number.negative { "-" } else { "" };
        let digits = text(&number.digits) + &"0".repeat(zeros);
        Some(if digits.is_empty() {
            "0".to_owned()
        } else {
            format!("{sign}{digits}")
        })
    }

    /// The double that is nearest to this number times `multiply / divide`; None if there is none.
    pub fn scaled_to_double(&self, multiply: u32, divide: u32) -> Option<f64> {
        let mut digits = self.times(multiply);
        let more = QUOTIENT_DIGITS.saturating_sub(digits.len()) + 10;
        digits.resize(digits.len() + more, 0);
        let rest = u8::from(divide_by(&mut digits, divide));
        let sign = if self.negative { "-" } else { "" };
        let exponent = self.exponent - more as i64 - 1;
        let written = format!("{sign}{}{rest}e{exponent}", text(&digits));
        written.parse().ok().filter(|double: &f64| double.is_finite())
    }

    fn times(&self, factor: u32) -> Vec<u8> {
        let (mut digits, mut carry) = (self.digits.clone(), 0);
        for digit in digits.iter_mut().rev() {
            carry += u64::from(*digit) * u64::from(factor);
            *digit = (carry % 10) as u8;
            carry /= 10;
        }
        while carry > 0 {
            digits.insert(0, (carry % 10) as u8);
            carry /= 10;
        }
        digits
    }

    /// Whether the other number, which is not 0, divides this one. False also where that takes long to find out.
    pub fn is_multiple_of(&self, other: &Self) -> bool {
        let lowest = self.exponent.min(other.exponent);
        let whole = |number: &Self| -> Option<u128> {
            let zeros = u32::try_from(number.exponent - lowest).ok()?;
            text(&number.digits)
                .parse::<u128>()
                .ok()?
                .checked_mul(10_u128.checked_pow(zeros)?)
        };
        match (whole(self), whole(other)) {
            (Some(number), Some(divisor)) if divisor > 0 => number % divisor == 0,
            _ => self.digits.is_empty(),
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |number: &Self| match (number.digits.is_empty(), number.negative) {
            (true, _) => 0,
            (_, true) => -1,
            (_, false) => 1,
        };
        let size = |number: &Self| number.digits.len() as i64 + number.exponent;
        sign(self).cmp(&sign(other)).then_with(|| {
            let larger = size(self)
                .cmp(&size(other))
                .then_with(|| self.digits.cmp(&other.digits));
            if self.negative { larger.reverse() } else { larger }
        })
    }
}

/// Divides, and returns whether a remainder is left.
fn divide_by(digits: &mut [u8], divisor: u32) -> bool {
    let mut rest = 0_u64;
    for digit in digits {
        rest = rest * 10 + u64::from(*digit);
        *digit = (rest / u64::from(divisor)) as u8;
        rest %= u64::from(divisor);
    }
    rest > 0
}

fn increment(digits: &mut Vec<u8>) {
    for digit in digits.iter_mut().rev() {
        *digit = (*digit + 1) % 10;
        if *digit != 0 {
            return;
        }
    }
    digits.insert(0, 1);
}

fn text(digits: &[u8]) -> String {
    digits.iter().map(|digit| char::from(b'0' + digit)).collect()
}

/// Whether two numbers are one value to a reader of JSON: the same integer, or the same double.
pub(crate) fn equal(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    let (Some(left), Some(right)) = (Decimal::parse(a), Decimal::parse(b)) else {
        return false;
    };
    if left.is_integer() && right.is_integer() {
        return left == right;
    }
    matches!((a.parse::<f64>(), b.parse::<f64>()), (Ok(a), Ok(b)) if (a - b).abs() == 0.0)
}

/// An integer without fraction and exponent, of a length that a double can have.
pub(crate) fn is_plain_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.len() <= INTEGER_DIGITS_MAX
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && Decimal::parse(text).is_some()
}

/// A double as RFC 8785 writes it, which is as ECMAScript does.
pub(crate) fn rfc8785(double: f64) -> String {
    if double == 0.0 {
        return "0".to_owned();
    }
    let written = format!("{:e}", double.abs());
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let digits = mantissa.replace('.', "");
    // The position of the point, from the first digit.
    let point = exponent.parse::<i64>().unwrap_or(0) + 1;
    let len = digits.len() as i64;
    let sign = if double < 0.0 { "-" } else { "" };
    match point {
        1..=21 if len <= point => format!("{sign}{digits}{}", "0".repeat((point - len) as usize)),
        1..=21 => format!("{sign}{}.{}", &digits[..point as usize], &digits[point as usize..]),
        -5..=0 => format!("{sign}0.{}{digits}", "0".repeat(-point as usize)),
        _ => {
            let fraction = if len > 1 {
                format!(".{}", &digits[1..])
            } else {
                String::new()
            };
            format!("{sign}{}{fraction}e{:+}", &digits[..1], point - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn only_json_numbers_are_numbers() {
        for bad in [
            "", "-", "01", "1.", ".5", "+1", "1e", "1e+", "0x1", "1 ", "NaN", "1e5.0", "--1", "1_0",
        ] {
            assert_eq!(Decimal::parse(bad), None, "{bad}");
        }
        for same in [
            ["1.50", "15e-1"],
            ["-0", "0.000"],
            ["1E+2", "100"],
            ["0e99999999999999999999", "0"],
        ] {
            assert_eq!(decimal(same[0]), decimal(same[1]));
        }
    }

    #[test]
    fn integers_round_ties_to_even() {
        for (number, multiply, divide, expected) in [
            ("25", 1, 10, "2"),
            ("35", 1, 10, "4"),
            ("-25", 1, 10, "-2"),
            ("2.5000000000000000000000001", 1, 1, "3"),
            ("0.5", 1, 1, "0"),
            ("1.5", 1, 1, "2"),
            ("99.5", 1, 1, "100"),
            ("0.05", 1, 1, "0"),
            ("7", 1, 3, "2"),
            ("1e3", 1, 8, "125"),
            ("1e3", 1, 16, "62"),
            ("0", 5, 3, "0"),
            ("-0.4", 1, 1, "0"),
            (
                "123456789012345678901234567890",
                1_000_000_000,
                1,
                "123456789012345678901234567890000000000",
            ),
        ] {
            let scaled = decimal(number).scaled_to_integer(multiply, divide);
            assert_eq!(scaled.as_deref(), Some(expected), "{number} * {multiply} / {divide}");
        }
        assert_eq!(decimal("1e999").scaled_to_integer(1, 1), None);
        assert_eq!(decimal("1e-999999").scaled_to_integer(1, 1).as_deref(), Some("0"));
    }

    #[test]
    fn doubles_are_the_nearest() {
        for (number, multiply, divide, expected) in [
            ("0.07", 100, 1, 7.0),
            ("19.99", 100, 1, 1999.0),
            ("1", 1, 3, 1.0 / 3.0),
            ("9007199254740993", 1, 1, 9_007_199_254_740_992.0),
            (
                "9007199254740993.0000000000000000000000001",
                1,
                1,
                9_007_199_254_740_994.0,
            ),
            ("-2", 1, 7, -2.0 / 7.0),
            ("0", 3, 7, 0.0),
        ] {
            let scaled = decimal(number).scaled_to_double(multiply, divide).unwrap();
            assert_eq!(
                scaled.to_bits(),
                f64::to_bits(expected),
                "{number} * {multiply} / {divide}"
            );
        }
        assert_eq!(decimal("1e308").scaled_to_double(10, 1), None);
    }

    #[test]
    fn numbers_are_ordered_and_divided_exactly() {
        let ordered = [
            "-1e400",
            "-2",
            "-1.5",
            "0",
            "1e-9",
            "0.5",
            "1",
            "1.0000000000000000000000001",
            "2",
            "10",
            "1e400",
        ];
        for pair in ordered.windows(2) {
            assert!(decimal(pair[0]) < decimal(pair[1]), "{pair:?}");
        }
        assert!(decimal("0.3").is_multiple_of(&decimal("0.1")) && !decimal("0.3").is_multiple_of(&decimal("0.2")));
        assert!(decimal("6").is_multiple_of(&decimal("-3")) && decimal("0").is_multiple_of(&decimal("1e-300")));
    }

    #[test]
    fn equality_is_that_of_readers() {
        for (a, b, same) in [
            ("1", "1.0", true),
            ("1e2", "100", true),
            ("0.1", "0.10000000000000000001", true),
            ("9007199254740993", "9007199254740992", false),
            ("1", "2", false),
            ("-0", "0", true),
        ] {
            assert_eq!(equal(a, b), same, "{a} {b}");
        }
    }

    #[test]
    fn doubles_are_written_as_rfc_8785_says() {
        for (double, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (1e21, "1e+21"),
            (123_456_789_012_345_680_000.0, "123456789012345680000"),
            (0.000_001, "0.000001"),
            (1e-7, "1e-7"),
            (1.25e-9, "1.25e-9"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
        ] {
            assert_eq!(rfc8785(double), expected);
        }
    }
}
