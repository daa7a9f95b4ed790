//! Random headers, claims, keys and texts: no input causes a panic, and no forged token is accepted.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use proptest::prelude::*;

use super::*;
use crate::auth::jwt::{issuer::unsigned, keys::JwkSet};

/// JSON in which significant names are frequent.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        "[A-Za-z0-9_-]{0,90}".prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(word(), inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn word() -> impl Strategy<Value = String> {
    let words = [
        "alg", "kid", "typ", "crit", "iss", "aud", "sub", "exp", "nbf", "project", "scope", "kty", "crv", "use",
        "key_ops", "n", "e", "x", "y", "OKP", "Ed25519", "EC", "P-256", "P-384", "RSA", "sig", "verify", "EdDSA",
        "ES256", "RS256", "PS512", "none", ISSUER, AUDIENCE, "AQAB",
    ];
    prop::sample::select(words.map(str::to_owned).to_vec())
}

fn members(names: &'static [&'static str]) -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    prop::collection::vec((prop::sample::select(names), json_value()), 0..5)
}

proptest! {
    #[test]
    fn random_text_is_not_a_valid_token(text in "\\PC{0,200}", parts in prop::array::uniform3("[A-Za-z0-9_-]{0,80}")) {
        let jwt = verifier(&[issuer().jwk()]);
        for token in [text, parts.join(".")] {
            JwtVerifier::is_jwt_shaped(&token);
            prop_assert!(verdict(&jwt, &token, NOW).is_err());
        }
    }

    #[test]
    fn a_token_without_a_valid_signature_is_refused(header in json_value(), claims in json_value(), signature: Vec<u8>) {
        let issuer = issuer();
        let jwt = verifier(&[issuer.jwk()]);
        for (header, claims) in [
            (header.clone(), claims.clone()),
            (header, issuer.claims("alice", NOW)),
            (issuer.header(), claims),
            (issuer.header(), issuer.claims("alice", NOW)),
        ] {
            let token = format!("{}.{}", unsigned(&header, &claims), URL_SAFE_NO_PAD.encode(&signature));
            JwtVerifier::is_jwt_shaped(&token);
            prop_assert!(verdict(&jwt, &token, NOW).is_err());
        }
    }

    #[test]
    fn any_change_to_a_token_makes_it_invalid(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8, "[A-Za-z0-9_.=-]"), 1..4),
    ) {
        let issuer = issuer();
        let jwt = verifier(&[issuer.jwk()]);
        let token = issuer.signs(&issuer.claims("alice", NOW));
        prop_assert!(verdict(&jwt, &token, NOW).is_ok());
        let mut changed = token.clone();
        for (at, kind, by) in changes {
            let at = at.index(changed.len());
            match kind {
                0 => changed.insert_str(at, &by),
                1 => drop(changed.remove(at)),
                _ => changed.replace_range(at..=at, &by),
            }
        }
        prop_assume!(changed != token);
        JwtVerifier::is_jwt_shaped(&changed);
        prop_assert!(verdict(&jwt, &changed, NOW).is_err());
    }

    #[test]
    fn a_signed_token_never_causes_a_panic(
        header in members(&["alg", "kid", "typ", "crit", "jwk", "b64"]),
        claims in members(&["iss", "aud", "sub", "exp", "nbf", "project", "scope"]),
        // Times of which the milliseconds can be counted.
        now_s in 0..u64::MAX / 1000,
    ) {
        let issuer = issuer();
        let jwt = verifier(&[issuer.jwk()]);
        let edit = |object, members| {
            let edit = |object, (name, value): (_, _)| with(object, name, value);
            Vec::into_iter(members).fold(object, edit)
        };
        let token = issuer.signs_with(&edit(issuer.header(), header), &edit(issuer.claims("alice", NOW), claims));
        for now_s in [NOW, now_s] {
            if let Ok(claims) = verdict(&jwt, &token, now_s) {
                prop_assert!(!claims.subject.is_empty() && claims.subject.len() <= 256);
                prop_assert!(now_s < (claims.expires_at_ms / 1000).saturating_add(LEEWAY_S));
            }
        }
    }

    #[test]
    fn a_key_set_never_causes_a_panic(
        jwks in prop::collection::vec(members(&["kty", "crv", "use", "key_ops", "alg", "kid", "n", "e", "x", "y"]), 1..4),
        text: Vec<u8>,
    ) {
        let issuer = issuer();
        let _ = JwkSet::parse(&text);
        for of in [issuer.jwk(), issuer.p256().jwk(), json!({"kty": "RSA", "n": "_".repeat(342), "e": "AQAB"})] {
            let edit = |jwk: Vec<_>| jwk.into_iter().fold(of.clone(), |jwk, (name, value)| with(jwk, name, value));
            let set = json!({"keys": jwks.iter().cloned().map(edit).collect::<Vec<_>>()}).to_string();
            let keys = JwkSet::parse(set.as_bytes()).unwrap();
            prop_assert!(keys.len() <= jwks.len());
        }
    }
}
