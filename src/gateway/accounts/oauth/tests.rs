use super::*;

fn oauth(grant: GrantConfig, client: Option<(&str, Option<&str>)>, client_auth: OauthClientAuth) -> OauthConfig {
    OauthConfig {
        token_url: "https://login.example/token".parse().unwrap(),
        grant,
        client_id: client.map(|(id, _)| id.to_owned()),
        client_secret: client.and_then(|(_, secret)| secret).map(|secret| ConfigSecret::new(secret.to_owned(), "here")),
        client_auth,
        scope: None,
        audience: None,
    }
}

fn refresh(token: &str) -> GrantConfig {
    GrantConfig::RefreshToken(ConfigSecret::new(token.to_owned(), "here"))
}

fn answer(status: u16, body: &str) -> TokenResponse {
    TokenResponse { status, body: Bytes::copy_from_slice(body.as_bytes()) }
}

#[track_caller]
fn check_lifetime(expires_in: &str, seconds: u64) {
    let body = format!(r#"{{"access_token":"a"{expires_in}}}"#);
    assert_eq!(parse_response(&answer(200, &body)).map(|granted| granted.lifetime.as_secs()), Ok(seconds), "{body}");
}

#[track_caller]
fn check_refused(status: u16, body: &str, expected: GrantRefusal) {
    assert_eq!(parse_response(&answer(status, body)), Err(expected), "{status} {body}");
}

#[test]
fn the_newest_refresh_token_is_sent_and_everything_is_encoded() {
    let mut oauth = oauth(refresh("first/+ ü"), Some(("client one", None)), OauthClientAuth::Body);
    let request = token_request(&oauth, None);
    assert_eq!(request.form, "grant_type=refresh_token&refresh_token=first%2F%2B+%C3%BC&client_id=client+one");
    assert!(request.authorization.is_none());
    oauth.scope = Some("images read".to_owned());
    oauth.audience = Some("https://api.example".to_owned());
    assert_eq!(
        token_request(&oauth, Some("second")).form,
        "grant_type=refresh_token&refresh_token=second&scope=images+read&audience=https%3A%2F%2Fapi.example&client_id=client+one"
    );
}

#[test]
fn client_credentials_are_sent_as_configured() {
    let client = Some(("a:b", Some("s&t")));
    let body = oauth(GrantConfig::ClientCredentials, client, OauthClientAuth::Body);
    assert_eq!(token_request(&body, None).form, "grant_type=client_credentials&client_id=a%3Ab&client_secret=s%26t");
    let basic = oauth(GrantConfig::ClientCredentials, client, OauthClientAuth::Basic);
    let request = token_request(&basic, None);
    assert_eq!(request.form, "grant_type=client_credentials");
    let header = request.authorization.unwrap();
    assert!(header.is_sensitive());
    let encoded = header.to_str().unwrap().strip_prefix("Basic ").unwrap();
    assert_eq!(STANDARD.decode(encoded).unwrap(), b"a%3Ab:s%26t");
    let public = oauth(refresh("r"), Some(("public", None)), OauthClientAuth::Basic);
    let request = token_request(&public, None);
    assert_eq!(
        (request.form.as_str(), request.authorization),
        ("grant_type=refresh_token&refresh_token=r&client_id=public", None)
    );
}

#[test]
fn a_grant_is_read_leniently() {
    let full = r#"{"access_token":"a.b-c","token_type":"bearer","expires_in":3600,"refresh_token":"r2","scope":"x"}"#;
    let granted = parse_response(&answer(200, full)).unwrap();
    assert_eq!((granted.access_token.as_str(), granted.refresh_token.as_deref()), ("a.b-c", Some("r2")));
    assert_eq!(granted.lifetime, Duration::from_secs(3600));
    check_lifetime("", 300);
    check_lifetime(r#","expires_in":null"#, 300);
    check_lifetime(r#","expires_in":"7200""#, 7200);
    check_lifetime(r#","expires_in":59.9"#, 59);
    check_lifetime(r#","expires_in":0"#, 300);
    check_lifetime(r#","expires_in":-5"#, 300);
    check_lifetime(r#","expires_in":"soon""#, 300);
    check_lifetime(r#","expires_in":1e300"#, 2_592_000);
}

#[test]
fn an_unreadable_token_answer_is_a_transient_refusal() {
    for body in [
        "",
        "<html>",
        "[]",
        "{}",
        r#"{"access_token":""}"#,
        r#"{"access_token":7}"#,
        r#"{"access_token":"two words"}"#,
        "{\"access_token\":\"a\\nb\"}",
        r#"{"access_token":"a","token_type":"mac"}"#,
    ] {
        check_refused(200, body, GrantRefusal::Transient);
    }
    check_refused(200, &format!(r#"{{"access_token":"{}"}}"#, "a".repeat(MAX_ANSWER_BYTES)), GrantRefusal::Transient);
}

#[test]
fn only_a_known_code_is_permanent() {
    for code in PERMANENT_ERROR_CODES {
        check_refused(400, &format!(r#"{{"error":"{code}"}}"#), GrantRefusal::Permanent(code));
    }
    check_refused(
        401,
        r#"{"error":{"code":"refresh_token_expired"}}"#,
        GrantRefusal::Permanent("refresh_token_expired"),
    );
    check_refused(401, r#"{"error":{"type":"invalid_client","code":null}}"#, GrantRefusal::Permanent("invalid_client"));
    for (status, body) in [
        (400, r#"{"error":"slow_down"}"#),
        (403, "<html>blocked</html>"),
        (429, "{}"),
        (500, r#"{"error":"invalid_grant"}"#),
        (302, r#"{"access_token":"a"}"#),
    ] {
        check_refused(status, body, GrantRefusal::Transient);
    }
}

#[test]
fn debug_shows_no_secret() {
    let canary = "canary";
    let oauth = oauth(refresh(canary), Some(("id", Some(canary))), OauthClientAuth::Basic);
    let body = r#"{"access_token":"canary","refresh_token":"canary"}"#;
    let output = format!(
        "{oauth:?} {:?} {:?} {:?} {:?}",
        token_request(&oauth, Some(canary)),
        answer(200, body),
        parse_response(&answer(200, body)),
        bearer_header(canary)
    );
    assert!(!output.contains(canary), "{output}");
    let encoded = STANDARD.encode("id:canary");
    assert!(!output.contains(&encoded), "{output}");
}
