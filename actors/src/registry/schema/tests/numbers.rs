//! Numbers at the edges of their types: the fast path decides as JSON Schema says, and as the complete validator does.

use serde_json::json;

use super::super::*;

/// A payload longer than this is checked with its work counted.
const PADDING_LEN: usize = 1024;

/// Asserts that the fast path admits the numbers of `fitting` under this rule and refuses `others`, and that the
/// complete validator agrees.
fn assert_fits(rule: &Value, fitting: &[&str], others: &[&str]) {
    let schema = Schema::compile(&json!({"properties": {"n": rule}})).unwrap();
    let node = schema.fast.as_ref().expect("the schema is of the common part");
    let padding = "x".repeat(PADDING_LEN);
    let cases = fitting.iter().map(|text| (text, true));
    for (number, fits) in cases.chain(others.iter().map(|text| (text, false))) {
        for payload in [
            format!("{{\"n\":{number}}}"),
            format!("{{\"n\":{number},\"padding\":\"{padding}\"}}"),
        ] {
            let verdict = fast::check(node, &payload, &Cell::new(WORK_MAX));
            let is_expected = matches!((&verdict, fits), (Verdict::Valid, true) | (Verdict::Invalid, false));
            assert!(is_expected, "{rule} and {number}: {verdict:?}");
            let read: Value = serde_json::from_str(&payload).unwrap();
            assert_eq!(schema.full.is_valid(&read), fits, "{rule} and {number}");
        }
    }
}

#[test]
fn a_number_without_a_fraction_is_an_integer_however_it_is_spelled() {
    let integers = [
        "0",
        "1",
        "-1",
        "1.0",
        "-1.0",
        "-0",
        "-0.0",
        "1e2",
        "1.5e1",
        "1E+2",
        "1e21",
        "1e300",
        "-1e300",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775808",
        "-9223372036854775809",
    ];
    let fractions = ["1.5", "-1.5", "0.1", "1e-1", "15e-1", "1e-300", "-1e-300"];
    assert_fits(&json!({"type": "integer"}), &integers, &fractions);
    let all = [&integers[..], &fractions].concat();
    assert_fits(&json!({"type": "number"}), &all, &[]);
    assert_fits(&json!({"type": ["integer", "string"]}), &integers, &fractions);
    assert_fits(&json!({"type": "string"}), &[], &all);
}

#[test]
fn negative_zero_equals_zero() {
    let zeros = ["0", "-0", "0.0", "-0.0", "0e10"];
    let tiny = ["1e-300", "-1e-300"];
    assert_fits(&json!({"const": 0}), &zeros, &tiny);
    assert_fits(&json!({"enum": [-1, -0.0, 1]}), &zeros, &tiny);
    assert_fits(&json!({"minimum": 0, "maximum": 0}), &zeros, &tiny);
    assert_fits(
        &json!({"exclusiveMinimum": 0}),
        &["1e-300"],
        &[&zeros[..], &["-1e-300"]].concat(),
    );
    assert_fits(
        &json!({"exclusiveMaximum": 0}),
        &["-1e-300"],
        &[&zeros[..], &["1e-300"]].concat(),
    );
}

#[test]
fn a_fraction_counts_in_a_comparison_with_an_integer() {
    assert_fits(&json!({"minimum": 1}), &["1", "1.0", "1.5"], &["0", "0.5", "-1.5"]);
    assert_fits(&json!({"maximum": 1}), &["1", "1.0", "0.5", "-1.5"], &["2", "1.5"]);
    assert_fits(&json!({"exclusiveMinimum": 1}), &["2", "1.5"], &["1", "1.0", "0.5"]);
    assert_fits(&json!({"exclusiveMaximum": 2}), &["1", "1.5"], &["2", "2.0", "2.5"]);
    assert_fits(&json!({"minimum": -1}), &["-1", "-1.0", "-0.5"], &["-2", "-1.5"]);
    assert_fits(&json!({"maximum": -1}), &["-1", "-1.0", "-1.5"], &["-0.5", "0"]);
    assert_fits(&json!({"minimum": 1.5}), &["2", "1.5"], &["1", "1.0", "1.25"]);
    assert_fits(&json!({"maximum": 1.5}), &["1", "1.0", "1.5"], &["2", "1.75"]);
    assert_fits(&json!({"exclusiveMinimum": 1.5}), &["2"], &["1", "1.5"]);
    assert_fits(&json!({"exclusiveMaximum": 1.5}), &["1"], &["2", "1.5"]);
    assert_fits(&json!({"minimum": -1.5}), &["-1", "-1.5"], &["-2"]);
    assert_fits(&json!({"const": 1}), &["1", "1.0", "10e-1"], &["1.5", "2", "-1"]);
    assert_fits(&json!({"const": 1.5}), &["1.5", "15e-1"], &["1", "2", "-1.5"]);
    assert_fits(
        &json!({"enum": [2.5, 1, -1.5]}),
        &["1", "1.0", "2.5", "-1.5"],
        &["2", "-1", "1.5"],
    );
}

#[test]
fn large_numbers_are_compared_exactly() {
    // 2^53 + 1 has no float of its own.
    assert_fits(
        &json!({"const": 9_007_199_254_740_993_u64}),
        &["9007199254740993"],
        &["9007199254740992", "9007199254740992.0", "9007199254740994.0"],
    );
    assert_fits(
        &json!({"maximum": 9_007_199_254_740_992_u64}),
        &["9007199254740992", "9007199254740992.0", "-1e300"],
        &["9007199254740993", "9007199254740994.0", "1e300"],
    );
    assert_fits(
        &json!({"exclusiveMaximum": 9_007_199_254_740_993_u64}),
        &["9007199254740992.0"],
        &["9007199254740993", "9007199254740994.0"],
    );
    assert_fits(
        &json!({"maximum": u64::MAX}),
        &["18446744073709551615", "1e19", "-1e300"],
        &["18446744073709551616", "1e20", "1e300"],
    );
    assert_fits(
        &json!({"minimum": i64::MIN}),
        &["-9223372036854775808", "-9223372036854775808.0", "1e300"],
        &["-1e19", "-1e300"],
    );
    assert_fits(
        &json!({"minimum": 1e300}),
        &["1e300", "1.5e300"],
        &["18446744073709551615", "1e299"],
    );
    assert_fits(
        &json!({"maximum": -1e300}),
        &["-1e300", "-1e301"],
        &["-9223372036854775808", "0"],
    );
}
