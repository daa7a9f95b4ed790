//! The rules for tokens and keys, each with its accepted and refused cases.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use rsa::{RsaPrivateKey, pkcs1::EncodeRsaPrivateKey, rand_core::OsRng};

use super::*;
use crate::auth::jwt::issuer::unsigned;

const NO_KEY: &str = "no key of the issuer fits";
const NO_SIGNATURE: &str = "its signature is invalid";

#[test]
fn a_valid_token_yields_its_claims() {
    let issuer = issuer();
    let jwt = verifier(&[issuer.jwk()]);
    let mut claims = issuer.claims("alice", NOW);
    claims["project"] = json!("red");
    claims["scope"] = json!("broker:send  broker:read");
    claims["roles"] = json!(["oncall"]);
    let taken = Claims {
        subject: "alice".to_owned(),
        project: Some("red".to_owned()),
        scopes: vec!["broker:send".to_owned(), "broker:read".to_owned()],
        human: "alice".to_owned(),
        roles: vec!["oncall".to_owned()],
        expires_at_ms: (NOW + 3600) * 1000,
    };
    assert_eq!(verdict(&jwt, &issuer.signs(&claims), NOW), Ok(taken));
    assert_eq!((jwt.issuer(), jwt.audience()), (ISSUER, AUDIENCE));
}

#[test]
fn every_claim_that_the_broker_relies_on_is_checked() {
    let issuer = issuer();
    let jwt = verifier(&[issuer.jwk()]);
    let claims = issuer.claims("alice", NOW);
    for (name, value, why) in [
        ("iss", json!(null), "it is from another issuer"),
        (
            "iss",
            json!("https://login.example/realm/"),
            "it is from another issuer",
        ),
        ("iss", json!([ISSUER]), "it is from another issuer"),
        ("aud", json!(null), "it is for another audience"),
        ("aud", json!("https://broker.example"), "it is for another audience"),
        ("aud", json!([]), "it is for another audience"),
        ("aud", json!(["https://other.example", 7]), "it is for another audience"),
        ("aud", json!({AUDIENCE: true}), "it is for another audience"),
        ("exp", json!(null), "it has no expiry time"),
        ("exp", json!("2000000000"), "it has no expiry time"),
        ("exp", json!(-1), "it has expired"),
        ("nbf", json!("0"), "its nbf is not a time"),
        ("sub", json!(null), "it has no subject"),
        ("sub", json!(""), "it has no subject"),
        ("sub", json!(7), "it has no subject"),
        ("sub", json!("é".repeat(129)), "its subject is too long"),
        ("sub", json!("alice\n"), "its subject has control characters"),
        ("sub", json!("al\u{9b}ice"), "its subject has control characters"),
        ("project", json!(7), "its project is not a string"),
        ("project", json!(["red"]), "its project is not a string"),
        ("scope", json!(7), "its scopes are not strings"),
        ("scope", json!(["a", 7]), "its scopes are not strings"),
    ] {
        let token = issuer.signs(&with(claims.clone(), name, value.clone()));
        assert_eq!(refusal(&jwt, &token), why, "{name} {value}");
    }
    for (name, value) in [
        ("aud", json!(["https://other.example", AUDIENCE])),
        ("nbf", json!(null)),
        ("iat", json!(NOW + 9999)),
        ("sub", json!("é".repeat(128))),
    ] {
        let token = issuer.signs(&with(claims.clone(), name, value.clone()));
        assert!(verdict(&jwt, &token, NOW).is_ok(), "{name} {value}");
    }
}

#[test]
fn a_null_project_claim_is_refused() {
    let issuer = issuer();
    let jwt = verifier(&[issuer.jwk()]);
    let mut claims = issuer.claims("alice", NOW);
    assert_eq!(verdict(&jwt, &issuer.signs(&claims), NOW).unwrap().project, None);
    claims["project"] = json!(null);
    assert_eq!(refusal(&jwt, &issuer.signs(&claims)), "its project is not a string");
}

#[test]
fn a_token_is_valid_with_a_minute_of_leeway_at_both_ends() {
    let issuer = issuer();
    for (nbf, exp) in [
        (json!(NOW), json!(NOW + 100)),
        (json!(1_800_000_000.9), json!(1_800_000_100.9)),
    ] {
        let jwt = verifier(&[issuer.jwk()]);
        let mut claims = issuer.claims("alice", NOW);
        (claims["nbf"], claims["exp"]) = (nbf, exp);
        let token = issuer.signs(&claims);
        let early = Err(JwtError::Invalid("it is not valid yet"));
        let late = Err(JwtError::Invalid("it has expired"));
        assert_eq!(verdict(&jwt, &token, NOW - 61), early);
        assert!(verdict(&jwt, &token, NOW - 60).is_ok());
        // The token is cached now; the time limits still hold.
        assert_eq!(verdict(&jwt, &token, NOW - 61), early);
        assert!(verdict(&jwt, &token, NOW + 99).is_ok());
        assert!(verdict(&jwt, &token, NOW + 159).is_ok());
        assert_eq!(verdict(&jwt, &token, NOW + 160), late);
    }
    let for_ever = with(issuer.claims("alice", NOW), "exp", json!(u64::MAX));
    let taken = verdict(&verifier(&[issuer.jwk()]), &issuer.signs(&for_ever), NOW);
    assert_eq!(taken.unwrap().expires_at_ms, u64::MAX);
}

#[test]
fn a_dotted_claim_name_is_a_path_unless_a_claim_has_the_full_name() {
    let issuer = issuer();
    let file = TempFile::new(&issuer.jwks());
    let mut settings = settings(KeySource::File(file.0.clone()));
    settings.project_claim = "https://broker.example/project".to_owned();
    settings.scope_claim = "realm_access.roles".to_owned();
    let jwt = JwtVerifier::open_with(NO_TIMERS, settings).unwrap();
    let taken = |project: Value, scopes: [(&str, Value); 2]| {
        let mut claims = issuer.claims("alice", NOW);
        claims["https://broker.example/project"] = project;
        for (name, value) in scopes {
            claims = with(claims, name, value);
        }
        verdict(&jwt, &issuer.signs(&claims), NOW).map(|claims| (claims.project.unwrap(), claims.scopes))
    };
    let path = ("realm_access", json!({"roles": ["a", "b c"]}));
    let whole = ("realm_access.roles", json!("d e"));
    let red = || "red".to_owned();
    let [a, bc, d, e] = ["a", "b c", "d", "e"].map(str::to_owned);
    assert_eq!(
        taken(json!("red"), [path.clone(), ("x", json!(1))]),
        Ok((red(), vec![a, bc]))
    );
    assert_eq!(taken(json!("red"), [path.clone(), whole]), Ok((red(), vec![d, e])));
    // A claim with the full name wins, even when its value is unusable.
    let useless = ("realm_access.roles", json!(7));
    let refused = Err(JwtError::Invalid("its scopes are not strings"));
    assert_eq!(taken(json!("red"), [path, useless]), refused);
    for nowhere in [json!({"roles2": "a"}), json!("a"), json!([{"roles": "a"}])] {
        let taken = taken(json!("red"), [("realm_access", nowhere), ("x", json!(1))]);
        assert_eq!(taken, Ok((red(), vec![])));
    }
}

#[test]
fn every_signature_on_a_curve_is_verified() {
    let issuer = issuer();
    let issuers = [issuer.clone(), issuer.p256(), issuer.p384()];
    let jwt = verifier(&issuers.each_ref().map(Issuer::jwk));
    for issuer in issuers {
        let token = issuer.signs(&issuer.claims("alice", NOW));
        assert!(verdict(&jwt, &token, NOW).is_ok(), "{token}");
        // Each key is the only one of its type.
        let nameless = with(issuer.header(), "kid", json!(null));
        let token = issuer.signs_with(&nameless, &issuer.claims("alice", NOW));
        assert!(verdict(&jwt, &token, NOW).is_ok(), "{token}");
        // The same key with another id.
        let other = issuer
            .rotated()
            .signs_with(&issuer.header(), &issuer.claims("alice", NOW));
        assert_eq!(refusal(&jwt, &other), NO_SIGNATURE);
    }
}

#[test]
fn every_signature_with_rsa_is_verified_by_a_key_for_it() {
    use Algorithm::{PS256, PS384, PS512, RS256, RS384, RS512};
    let key = RsaPrivateKey::new(&mut OsRng, 2048).unwrap();
    let key = EncodingKey::from_rsa_der(key.to_pkcs1_der().unwrap().as_bytes());
    let issuer = issuer();
    let all = [RS256, RS384, RS512, PS256, PS384, PS512];
    let sign = |algorithm| {
        let issuer = issuer.clone().with_key(algorithm, key.clone());
        (issuer.jwk(), issuer.signs(&issuer.claims("alice", NOW)))
    };
    let of_any = verifier(&[with(sign(RS256).0, "alg", json!(null))]);
    let of_one = verifier(&[sign(PS384).0]);
    for algorithm in all {
        let token = sign(algorithm).1;
        assert!(verdict(&of_any, &token, NOW).is_ok(), "{algorithm:?}");
        if algorithm == PS384 {
            assert!(verdict(&of_one, &token, NOW).is_ok());
        } else {
            assert_eq!(refusal(&of_one, &token), NO_KEY, "{algorithm:?}");
        }
    }
    // Leading zeros of a modulus are ignored. A short modulus and these exponents make a key unusable.
    let jwk = sign(RS256).0;
    let mut modulus = URL_SAFE_NO_PAD.decode(jwk["n"].as_str().unwrap()).unwrap();
    modulus.insert(0, 0);
    let jwk = with(jwk, "n", json!(URL_SAFE_NO_PAD.encode(&modulus)));
    assert_eq!(usable(&jwk), 1);
    for e in ["AQ", "AAE", "Ag", "AA", ""] {
        assert_eq!(usable(&with(jwk.clone(), "e", json!(e))), 0, "{e}");
    }
    for (first, len, is_usable) in [
        (0x7f, 256, 0),
        (0x80, 256, 1),
        (0xff, 512, 1),
        (1, 513, 0),
        (0xff, 1, 0),
        (0, 1, 0),
    ] {
        let mut modulus = vec![0xff; len];
        modulus[0] = first;
        let jwk = with(jwk.clone(), "n", json!(URL_SAFE_NO_PAD.encode(&modulus)));
        assert_eq!(usable(&jwk), is_usable, "{first} {len}");
    }
}

#[test]
fn an_algorithm_of_another_key_type_is_refused() {
    let issuer = issuer();
    let jwt = verifier(&[issuer.jwk()]);
    let claims = issuer.claims("alice", NOW);
    for (name, why) in [
        (json!("none"), "its algorithm is not accepted"),
        (json!("None"), "its algorithm is not accepted"),
        (json!("HS256"), "its algorithm is not accepted"),
        (json!("HS512"), "its algorithm is not accepted"),
        (json!("ES512"), "its algorithm is not accepted"),
        (json!("eddsa"), "its algorithm is not accepted"),
        (json!(["EdDSA"]), "its algorithm is not accepted"),
        (json!(null), "its algorithm is not accepted"),
        (json!("ES256"), NO_KEY),
        (json!("RS256"), NO_KEY),
    ] {
        let header = with(issuer.header(), "alg", name);
        assert_eq!(refusal(&jwt, &issuer.signs_with(&header, &claims)), why, "{header}");
        let unsigned = unsigned(&header, &claims);
        assert_eq!(refusal(&jwt, &format!("{unsigned}.")), why, "{header}");
    }
    // A key on a curve is for the algorithm of that curve.
    let p256 = issuer.p256();
    let jwt = verifier(&[with(p256.jwk(), "alg", json!(null))]);
    let header = with(p256.header(), "alg", json!("ES384"));
    assert_eq!(refusal(&jwt, &p256.signs_with(&header, &claims)), NO_KEY);
}

#[test]
fn a_public_key_is_not_accepted_as_a_shared_secret() {
    let issuer = issuer();
    let jwk = issuer.jwk();
    let jwt = verifier(std::slice::from_ref(&jwk));
    let public = jwk["x"].as_str().unwrap();
    for secret in [
        public.as_bytes(),
        &URL_SAFE_NO_PAD.decode(public).unwrap(),
        issuer.jwks().as_bytes(),
    ] {
        let header = with(issuer.header(), "alg", json!("HS256"));
        let signed = unsigned(&header, &issuer.claims("alice", NOW));
        let secret = EncodingKey::from_secret(secret);
        let signature = crypto::sign(signed.as_bytes(), &secret, Algorithm::HS256).unwrap();
        let token = format!("{signed}.{signature}");
        assert_eq!(refusal(&jwt, &token), "its algorithm is not accepted");
    }
}

#[test]
fn a_key_in_the_header_is_ignored() {
    let (issuer, thief) = (issuer(), issuer());
    let jwt = verifier(&[issuer.jwk()]);
    let claims = issuer.claims("alice", NOW);
    for (name, value) in [
        ("jwk", thief.jwk()),
        ("jku", json!("https://thief.example/jwks.json")),
        ("x5u", json!("https://thief.example/chain.pem")),
        ("x5c", json!(["MIIB"])),
    ] {
        let header = with(issuer.header(), name, value.clone());
        assert!(verdict(&jwt, &issuer.signs_with(&header, &claims), NOW).is_ok());
        assert_eq!(refusal(&jwt, &thief.signs_with(&header, &claims)), NO_SIGNATURE);
        let header = with(thief.header(), name, value);
        assert_eq!(refusal(&jwt, &thief.signs_with(&header, &claims)), NO_KEY);
    }
}

#[test]
fn critical_parameters_and_other_token_types_are_refused() {
    let issuer = issuer();
    let jwt = verifier(&[issuer.jwk()]);
    let claims = issuer.claims("alice", NOW);
    let critical = "its header has critical parameters";
    let other = "it is a token of another type";
    for (name, value, why) in [
        ("crit", json!(["b64"]), critical),
        ("crit", json!([]), critical),
        ("crit", json!(false), critical),
        ("typ", json!("logout+jwt"), other),
        ("typ", json!("application/dpop+jwt"), other),
        ("typ", json!(7), other),
        ("kid", json!(7), "its kid is not a string"),
    ] {
        let header = with(issuer.header(), name, value);
        assert_eq!(refusal(&jwt, &issuer.signs_with(&header, &claims)), why, "{header}");
    }
    let mut header = issuer.header();
    header["crit"] = json!(null);
    assert_eq!(refusal(&jwt, &issuer.signs_with(&header, &claims)), critical);
    for kind in [json!("JWT"), json!("at+jwt"), json!("Application/AT+JWT"), json!(null)] {
        let header = with(issuer.header(), "typ", kind);
        assert!(
            verdict(&jwt, &issuer.signs_with(&header, &claims), NOW).is_ok(),
            "{header}"
        );
    }
}

#[test]
fn the_named_key_is_used_or_else_the_only_fitting_one() {
    let (one, two) = (issuer(), issuer());
    let jwt = verifier(&[one.jwk(), two.jwk()]);
    let claims = one.claims("alice", NOW);
    for (header, why) in [
        (two.header(), NO_SIGNATURE),
        (with(one.header(), "kid", json!("")), NO_KEY),
        (with(one.header(), "kid", json!(null)), "several keys of the issuer fit"),
    ] {
        assert_eq!(refusal(&jwt, &one.signs_with(&header, &claims)), why, "{header}");
    }
    let twins = verifier(&[one.jwk(), with(two.jwk(), "kid", json!(one.key_id))]);
    assert_eq!(refusal(&twins, &one.signs(&claims)), "several keys of the issuer fit");
    // Keys of different types may share an id (RFC 7517, section 4.5).
    let twins = verifier(&[one.jwk(), with(one.p256().jwk(), "kid", json!(one.key_id))]);
    assert!(verdict(&twins, &one.signs(&claims), NOW).is_ok());
}

#[test]
fn unusable_keys_are_skipped() {
    let issuer = issuer();
    let (jwk, p256) = (issuer.jwk(), issuer.p256().jwk());
    let long = URL_SAFE_NO_PAD.encode([1; 33]);
    let short = URL_SAFE_NO_PAD.encode([1; 31]);
    let unusable = [
        with(jwk.clone(), "use", json!("enc")),
        with(jwk.clone(), "use", json!("SIG")),
        with(jwk.clone(), "use", json!(7)),
        with(jwk.clone(), "key_ops", json!(["sign"])),
        with(jwk.clone(), "key_ops", json!([])),
        with(jwk.clone(), "alg", json!("ES256")),
        with(jwk.clone(), "alg", json!("ECDH-ES")),
        with(jwk.clone(), "alg", json!("HS256")),
        with(jwk.clone(), "kty", json!("EC")),
        with(jwk.clone(), "kty", json!("AKP")),
        with(jwk.clone(), "kty", json!(null)),
        with(jwk.clone(), "crv", json!("Ed448")),
        with(jwk.clone(), "crv", json!("X25519")),
        with(jwk.clone(), "kid", json!(7)),
        with(jwk.clone(), "x", json!(null)),
        with(jwk.clone(), "x", json!("")),
        with(jwk.clone(), "x", json!("?")),
        with(jwk.clone(), "x", json!(long)),
        with(jwk.clone(), "x", json!(short)),
        with(p256.clone(), "y", json!(null)),
        with(p256.clone(), "y", json!(long)),
        with(p256.clone(), "y", json!(short)),
        with(p256.clone(), "y", p256["x"].clone()),
        with(p256.clone(), "crv", json!("P-384")),
        with(p256.clone(), "crv", json!("P-521")),
        with(p256.clone(), "crv", json!("secp256k1")),
        json!({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}),
        json!({"kty": "RSA", "n": "AQAB", "e": "AQAB"}),
        json!([]),
        json!(null),
    ];
    for jwk in &unusable {
        assert_eq!(usable(jwk), 0, "{jwk}");
    }
    let jwt = verifier(&[&unusable[..], std::slice::from_ref(&jwk)].concat());
    assert!(verdict(&jwt, &issuer.signs(&issuer.claims("alice", NOW)), NOW).is_ok());
    for (name, value) in [
        ("use", json!(null)),
        ("alg", json!(null)),
        ("kid", json!(null)),
        ("key_ops", json!(["sign", "verify"])),
        ("d", json!("c2VjcmV0")),
    ] {
        assert_eq!(usable(&with(jwk.clone(), name, value)), 1, "{name}");
    }
    assert_eq!(usable(&p256), 1);
}

#[test]
fn a_token_that_is_too_long_is_not_read() {
    let issuer = issuer();
    let jwt = verifier(&[issuer.jwk()]);
    let token = |len: usize| {
        let claims = with(issuer.claims("alice", NOW), "padding", json!("x".repeat(len)));
        issuer.signs(&claims)
    };
    let padding = (TOKEN_LEN_MAX - token(0).len()) / 4 * 3;
    let (longest, longer) = (token(padding), token(padding + 3));
    assert!(longest.len() <= TOKEN_LEN_MAX && longer.len() > TOKEN_LEN_MAX);
    assert!(verdict(&jwt, &longest, NOW).is_ok());
    assert_eq!(refusal(&jwt, &longer), "it is too long");
    assert!(JwtVerifier::is_jwt_shaped(&longest) && !JwtVerifier::is_jwt_shaped(&longer));
}

#[test]
fn a_token_that_was_changed_anywhere_is_refused() {
    let issuer = issuer();
    let jwt = verifier(&[issuer.jwk()]);
    let token = issuer.signs(&issuer.claims("alice", NOW));
    assert!(verdict(&jwt, &token, NOW).is_ok());
    for at in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        refusal(&jwt, &String::from_utf8(changed).unwrap());
    }
    let [header, payload, signature] = token.split('.').collect::<Vec<_>>()[..] else {
        panic!("{token}")
    };
    for bad in [
        "",
        ".",
        "..",
        "...",
        &format!("{header}.{payload}"),
        &format!("{header}.{payload}."),
        &format!("{header}..{signature}"),
        &format!(".{payload}.{signature}"),
        &format!("{token}."),
        &format!("{token}="),
        &format!("{token}.{signature}"),
        &format!("{header}.{payload}.{payload}.{signature}.{signature}"),
        &format!(" {token}"),
        &format!("{token}\n"),
    ] {
        refusal(&jwt, bad);
    }
    let thief = Issuer::new(ISSUER, AUDIENCE).signs(&json!({"iss": ISSUER}));
    let (_, foreign) = thief.rsplit_once('.').unwrap();
    assert_eq!(refusal(&jwt, &format!("{header}.{payload}.{foreign}")), NO_SIGNATURE);
}

#[test]
fn jwts_and_api_keys_are_told_apart() {
    let issuer = issuer();
    let token = issuer.signs(&json!({}));
    let (signed, _) = token.rsplit_once('.').unwrap();
    assert!(JwtVerifier::is_jwt_shaped(&token));
    assert!(JwtVerifier::is_jwt_shaped(&format!("{signed}.")));
    for other in [
        "",
        "..",
        "a.b.c",
        "mcpb_default_0123456789abcdef",
        signed,
        &format!("{token}.a.b"),
        &format!("{signed}.a+b"),
        &format!("{signed}.a b"),
        &format!("{}.a.b", URL_SAFE_NO_PAD.encode("[]")),
        &format!("{}.a.b", URL_SAFE_NO_PAD.encode("{")),
    ] {
        assert!(!JwtVerifier::is_jwt_shaped(other), "{other}");
    }
}

#[test]
fn invalid_jwt_settings_are_an_error_at_the_start() {
    let file = TempFile::new(&issuer().jwks());
    for change in [
        |settings: &mut JwtSettings| settings.issuer.clear(),
        |settings: &mut JwtSettings| settings.audience.clear(),
    ] {
        let mut settings = settings(KeySource::File(file.0.clone()));
        assert!(JwtVerifier::open(settings.clone()).is_ok());
        change(&mut settings);
        assert!(JwtVerifier::open(settings).is_err());
    }
}

#[test]
fn claims_are_cached_until_the_token_expires() {
    let issuer = issuer();
    let jwt = verifier(&[issuer.jwk()]);
    let token = issuer.signs(&issuer.claims("alice", NOW));
    let digest = Sha256::digest(&token).into();
    assert!(jwt.key_cache.cached_claims(&digest, NOW).is_none());
    let claims = verdict(&jwt, &token, NOW).unwrap();
    assert_eq!(jwt.key_cache.cached_claims(&digest, NOW + 3599), Some(claims.clone()));
    assert_eq!(jwt.key_cache.cached_claims(&digest, NOW + 3600), None);
    assert_eq!(
        jwt.key_cache.cached_claims(&digest, NOW),
        None,
        "an expired token is not cached"
    );
    assert_eq!(verdict(&jwt, &token, NOW + 3600), Ok(claims));
    assert_eq!(jwt.key_cache.cached_claims(&digest, NOW + 3600), None);
    let refused = issuer.signs(&with(issuer.claims("alice", NOW), "aud", json!("other")));
    refusal(&jwt, &refused);
    assert_eq!(jwt.key_cache.cached_claims(&Sha256::digest(&refused).into(), NOW), None);
}

/// The number of usable keys of a set with this key alone.
fn usable(jwk: &Value) -> usize {
    let set = json!({"keys": [jwk]}).to_string();
    keys::JwkSet::parse(set.as_bytes()).unwrap().len()
}
