//! The admin tokens of users: each has the permissions of its user, and does nothing that outlasts it.

use serde_json::{Value, json};

use super::{TOKENS, USERS, ask, good, open, refused, text, user};
use crate::kit::{Call, request};

#[test]
fn a_token_has_the_current_permissions_of_its_user() {
    let (upstream, gateway) = open();
    let kim = user(&gateway, "kim", "member");
    assert_eq!(refused(&ask(&gateway, &kim, Call::get(USERS)), 403).0, "permission_denied");
    good(&gateway, Call::patch(&format!("{USERS}/kim")).json(&json!({"role": "admin"})));
    ask(&gateway, &kim, Call::get(USERS)).ok_json();
    good(&gateway, Call::patch(&format!("{USERS}/kim")).json(&json!({"enabled": false})));
    assert_eq!(refused(&ask(&gateway, &kim, Call::get("/admin/v1/me")), 401).0, "INVALID_API_KEY");
    good(&gateway, Call::patch(&format!("{USERS}/kim")).json(&json!({"enabled": true})));
    for call in [Call::generation().json(&request(json!({}))), Call::get("/v1/models")] {
        assert_eq!(call.key(&kim).send(gateway.address()).error_object(401)["code"], "INVALID_API_KEY");
    }
    assert_eq!(upstream.attempt_count(), 0);
    let token = text(&good(&gateway, Call::get(&format!("{TOKENS}?user=kim"))), "/data/0/id");
    good(&gateway, Call::delete(&format!("{TOKENS}/{token}")));
    assert_eq!(refused(&ask(&gateway, &kim, Call::get("/admin/v1/me")), 401).0, "INVALID_API_KEY");
    let bare = Call::get("/admin/v1/me").header("cookie", "imagate_session=x; __Host-imagate=x");
    assert_eq!(bare.send(gateway.address()).error_object(401)["code"], "INVALID_API_KEY");
}

#[test]
fn what_a_token_makes_lasts_no_longer_than_the_token() {
    let (_upstream, gateway) = open();
    let kim = user(&gateway, "kim", "member");
    let soon =
        json!({"name": "short", "expires_at": (chrono::Utc::now() + chrono::TimeDelta::minutes(10)).to_rfc3339()});
    let short = ask(&gateway, &kim, Call::post(TOKENS).json(&soon)).ok_json();
    let (id, secret) = (text(&short, "/token/id"), text(&short, "/secret"));
    for end in [Value::Null, json!("2099-01-01T00:00:00Z")] {
        let call = Call::post(TOKENS).json(&json!({"name": "for ever", "expires_at": end}));
        assert_eq!(refused(&ask(&gateway, &secret, call), 400).1.as_deref(), Some("expires_at"));
    }
    let child = Call::post(TOKENS).json(&json!({"name": "child", "expires_at": short["token"]["expires_at"]}));
    let child = text(&ask(&gateway, &secret, child).ok_json(), "/secret");
    ask(&gateway, &child, Call::get("/admin/v1/me")).ok_json();
    ask(&gateway, &kim, Call::delete(&format!("{TOKENS}/{id}"))).ok_json();
    for ended in [&secret, &child] {
        assert_eq!(refused(&ask(&gateway, ended, Call::get("/admin/v1/me")), 401).0, "INVALID_API_KEY");
    }
    for number in 0..49 {
        good(&gateway, Call::post(TOKENS).json(&json!({"name": format!("t{number}"), "user": "kim"})));
    }
    let one_more = ask(&gateway, &kim, Call::post(TOKENS).json(&json!({"name": "one more"})));
    assert_eq!(refused(&one_more, 409).0, "token_limit_reached");
}

#[test]
fn a_token_does_nothing_lasting_to_its_own_user_or_beyond_its_end() {
    let (_upstream, gateway) = open();
    let ada = user(&gateway, "ada", "admin");
    user(&gateway, "kim", "member");
    let soon = (chrono::Utc::now() + chrono::TimeDelta::minutes(10)).to_rfc3339();
    let short = Call::post(TOKENS).json(&json!({"name": "short", "user": "ada", "expires_at": soon}));
    let short = text(&good(&gateway, short), "/secret");
    for (token, target, is_allowed) in [(&ada, "ada", false), (&ada, "kim", true), (&short, "kim", false)] {
        let status = |call: Call| ask(&gateway, token, call).status;
        let reset = status(Call::post(&format!("{USERS}/{target}/reset")));
        assert_eq!(reset, if is_allowed { 200 } else { 403 }, "{target}");
        // The user has no factor that could be reset.
        let factor = status(Call::post(&format!("{USERS}/{target}/reset-factor")));
        assert_eq!(factor, if is_allowed { 400 } else { 403 }, "{target}");
    }
    let promote = || Call::patch(&format!("{USERS}/kim")).json(&json!({"role": "admin"}));
    assert_eq!(refused(&ask(&gateway, &short, promote()), 403).0, "permission_denied");
    let invite = |name: &str| Call::post(USERS).json(&json!({"name": name, "role": "admin"}));
    assert_eq!(refused(&ask(&gateway, &short, invite("eve")), 403).0, "permission_denied");
    ask(&gateway, &ada, promote()).ok_json();
    ask(&gateway, &ada, invite("eve")).ok_json();
    let disabled = Call::patch(&format!("{USERS}/kim")).json(&json!({"enabled": false}));
    ask(&gateway, &short, disabled).ok_json();
    let enabled = || Call::patch(&format!("{USERS}/kim")).json(&json!({"enabled": true}));
    assert_eq!(refused(&ask(&gateway, &short, enabled()), 403).0, "permission_denied");
    ask(&gateway, &ada, enabled()).ok_json();
}
