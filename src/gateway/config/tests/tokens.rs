//! OAuth accounts, the admin token, the master key, and the limits of stored answers.

use super::*;

const OAUTH_FILE: &str = r#"
[[accounts]]
name = "rotating"
kind = "oauth"
base_url = "https://api.example/v1"
token_url = "https://auth.example/oauth/token/"
grant = "refresh_token"
refresh_token = { file = "refresh.txt" }
client_id = "app"
client_secret = { env = "CLIENT_SECRET" }
client_auth = "body"
scope = "images.write offline_access"
audience = "https://api.example"

[[accounts]]
name = "service"
kind = "oauth"
protocol = "responses"
base_url = "http://127.0.0.1:9/v1"
token_url = "http://127.0.0.1:9/token"
grant = "client_credentials"
client_id = "svc"
client_secret = { env = "CLIENT_SECRET" }
"#;

fn host_with_secrets() -> FakeEnvironment {
    test_host().variable("CLIENT_SECRET", "cs-hidden").file("etc/refresh.txt", "rt-hidden\n")
}

fn oauth(account: &AccountConfig) -> &OauthConfig {
    let UpstreamConfig::Api(EndpointConfig { credentials: AccountCredentials::Oauth(oauth), .. }) = &account.upstream
    else {
        panic!("expected OAuth credentials")
    };
    oauth
}

#[test]
fn an_oauth_account_is_read() {
    let config = load_from(host_with_secrets(), OAUTH_FILE).unwrap();
    let [rotating, service] = &config.accounts[..] else { panic!("expected two accounts") };
    assert_eq!((rotating.upstream.kind(), rotating.upstream.protocol()), ("oauth", Some(AccountProtocol::Images)));
    let tokens = oauth(rotating);
    assert!(matches!(&tokens.grant, GrantConfig::RefreshToken(token) if token.expose() == "rt-hidden"));
    assert_eq!(tokens.token_url, "https://auth.example/oauth/token/");
    assert_eq!(tokens.client_id.as_deref(), Some("app"));
    assert_eq!(tokens.client_secret.as_ref().map(ConfigSecret::expose), Some("cs-hidden"));
    assert_eq!(
        (tokens.client_auth, tokens.scope.as_deref()),
        (OauthClientAuth::Body, Some("images.write offline_access"))
    );
    assert_eq!(tokens.audience.as_deref(), Some("https://api.example"));
    assert_eq!(service.upstream.protocol(), Some(AccountProtocol::Responses));
    assert!(matches!(oauth(service).grant, GrantConfig::ClientCredentials));
    assert_eq!(oauth(service).client_auth, OauthClientAuth::Basic);
}

#[test]
fn oauth_settings_are_printed_without_secrets() {
    let config = load_from(host_with_secrets(), OAUTH_FILE).unwrap();
    let shown = config.to_annotated_toml();
    for line in ["refresh_token = \"[redacted]\"", "client_secret = \"[redacted]\"", "grant = \"client_credentials\""] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let output = format!("{shown}{config:?}");
    assert!(!output.contains("-hidden"), "{output}");
}

/// Asserts the messages for an OAuth account with these settings, which begin in line 5.
#[track_caller]
fn check_oauth(lines: &str, expected: &[&str]) {
    check(
        &format!("[[accounts]]\nname = \"a\"\nkind = \"oauth\"\nbase_url = \"https://a.example\"\n{lines}"),
        expected,
    );
}

#[test]
fn all_problems_of_an_oauth_account_are_reported_at_once() {
    check_oauth(
        "",
        &[
            "1:1: `grant` is missing: \"refresh_token\" or \"client_credentials\"",
            "1:1: `token_url` is missing; it must be a URL, such as \"https://auth.example.com/oauth/token\"",
        ],
    );
    check_oauth(
        "token_url = \"http://auth.example/token\"\ngrant = \"refresh_token\"\nclient_auth = \"body\"\nscope = \" \"\naudience = \"a\\nb\"",
        &[
            "1:1: `refresh_token` is missing; set it, for example to { env = \"REFRESH_TOKEN\" }",
            "5:13: `token_url` must begin with `https://`, because plain http sends credentials unencrypted (`allow_http = true` accepts that)",
            "7:15: `client_auth` has no meaning without `client_secret`",
            "8:9: `scope` must consist of visible ASCII characters and spaces, and must not be blank",
            "9:12: `audience` must consist of visible ASCII characters and spaces, and must not be blank",
        ],
    );
    check_oauth(
        "token_url = \"https://auth.example/token\"\ngrant = \"client_credentials\"\nrefresh_token = { env = \"OPENAI_API_KEY\" }\napi_key = { env = \"OPENAI_API_KEY\" }",
        &[
            "1:1: `client_id` is missing for the grant \"client_credentials\"",
            "1:1: `client_secret` is missing for the grant \"client_credentials\"; set it, for example to { env = \"CLIENT_SECRET\" }",
            "7:17: `refresh_token` has no meaning for the grant \"client_credentials\"",
            "8:11: `api_key` has no meaning for an account of kind \"oauth\", which gets its tokens from `token_url`",
        ],
    );
    check_oauth(
        "token_url = \"https://auth.example/token\"\ngrant = \"password\"\nclient_secret = \"cs-hidden\"",
        &[
            "6:9: `grant` must be \"refresh_token\" or \"client_credentials\", not \"password\"",
            "7:17: `client_secret` is a string but must be { env = \"NAME\" } or { file = \"PATH\" }, because the file itself must not contain secrets",
        ],
    );
}

#[test]
fn a_client_secret_needs_a_client_id() {
    let base = "token_url = \"https://auth.example/token\"\ngrant = \"refresh_token\"\nrefresh_token = { env = \"OPENAI_API_KEY\" }";
    check_oauth(
        &format!("{base}\nclient_secret = {{ env = \"OPENAI_API_KEY\" }}"),
        &["1:1: `client_id` is missing although `client_secret` is set"],
    );
    let text = format!("[[accounts]]\nname = \"a\"\nkind = \"oauth\"\nbase_url = \"https://a.example\"\n{base}");
    assert!(load_from(test_host(), &text).is_ok());
    let host = test_host().variable("OPENAI_API_KEY", "one\ntwo");
    let problems = load_from(host, &text).map(|config| config.to_annotated_toml()).unwrap_err();
    assert_eq!(
        problems[0].to_string(),
        "etc/config.toml:7:17: `refresh_token` contains a character that is not allowed in a token request (environment variable `OPENAI_API_KEY`)"
    );
}

#[test]
fn oauth_settings_are_refused_for_other_kinds() {
    let message = "has no meaning for an account of kind \"api_key\", only for \"oauth\"";
    check_account(
        "base_url = \"https://a.example\"\napi_key = { env = \"OPENAI_API_KEY\" }\ntoken_url = \"https://a\"\nscope = \"s\"",
        &[&format!("6:13: `token_url` {message}"), &format!("7:9: `scope` {message}")],
    );
    check(
        "[[accounts]]\nname = \"a\"\nkind = \"simulator\"\ngrant = \"refresh_token\"",
        &["4:9: `grant` has no meaning for a simulator, which calls no upstream"],
    );
}

#[test]
fn an_admin_token_is_long_and_fits_into_a_header() {
    let valid_token = "0123456789abcdef".repeat(2);
    let config = load_from(test_host().variable("ADMIN", &valid_token), "admin_token = { env = \"ADMIN\" }").unwrap();
    assert_eq!(config.admin_token.as_ref().map(ConfigSecret::expose), Some(valid_token.as_str()));
    assert!(!format!("{}{config:?}", config.to_annotated_toml()).contains(&valid_token));
    assert!(config.to_annotated_toml().contains("admin_token = \"[redacted]\""));
    let problem = |token: &str| {
        let problems =
            load(ConfigOverrides::default(), &test_host().variable("IMAGATE_ADMIN_TOKEN", token)).unwrap_err();
        problems[0].to_string()
    };
    assert_eq!(
        problem(&valid_token[1..]),
        "IMAGATE_ADMIN_TOKEN: `admin_token` must have at least 32 characters, as `openssl rand -hex 32` makes them (environment variable `IMAGATE_ADMIN_TOKEN`)"
    );
    assert_eq!(
        problem(&format!("{valid_token} {valid_token}")),
        "IMAGATE_ADMIN_TOKEN: `admin_token` contains a character that is not allowed in a bearer token (environment variable `IMAGATE_ADMIN_TOKEN`)"
    );
    assert!(load(ConfigOverrides::default(), &test_host()).unwrap().admin_token.is_none());
}

#[test]
fn a_master_key_is_32_bytes_in_hex_or_base64() {
    let hex = "0123456789abcdef".repeat(4);
    let base64 = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=";
    for key in [hex.as_str(), base64, base64.trim_end_matches('=')] {
        let config = load_from(test_host().variable("MASTER", key), "master_key = { env = \"MASTER\" }").unwrap();
        assert_eq!(config.master_key.as_ref().map(ConfigSecret::expose), Some(key));
        assert!(!format!("{}{config:?}", config.to_annotated_toml()).contains(key));
        assert!(config.to_annotated_toml().contains("master_key = \"[redacted]\""));
    }
    for key in [&hex[1..], "correct horse battery staple", "QUFB"] {
        let problems = load(ConfigOverrides::default(), &test_host().variable("IMAGATE_MASTER_KEY", key)).unwrap_err();
        assert_eq!(
            problems[0].to_string(),
            "IMAGATE_MASTER_KEY: `master_key` must contain 64 hexadecimal digits or 32 bytes in base64, as `openssl rand -hex 32` makes them (environment variable `IMAGATE_MASTER_KEY`)"
        );
    }
    assert!(load(ConfigOverrides::default(), &test_host()).unwrap().master_key.is_none());
}

#[test]
fn the_limits_of_stored_answers_are_read_and_checked() {
    let replay = load(ConfigOverrides::default(), &test_host()).unwrap().replay;
    let day = Duration::from_secs(86_400);
    assert_eq!((replay.orphans, replay.orphan_window.as_secs()), (true, 300));
    assert_eq!((replay.idempotency_window, replay.max_bytes), (day, 1 << 30));
    let text = "[replay]\norphans = false\norphan_window = \"90s\"\nidempotency_window = \"1h\"\nmax_megabytes = 5";
    let config = load_from(test_host(), text).unwrap();
    let (orphan_window, idempotency_window) = (Duration::from_secs(90), Duration::from_secs(3600));
    assert_eq!(config.replay, ReplayConfig { orphans: false, orphan_window, idempotency_window, max_bytes: 5 << 20 });
    assert!(config.to_annotated_toml().contains("max_megabytes = 5 "), "{}", config.to_annotated_toml());
    check(
        "[replay]\norphans = \"no\"\norphan_window = \"0s\"\nidempotency_window = \"2d\"\nmax_megabytes = 0\nmax_bytes = 1",
        &[
            "2:11: `orphans` is a string but must be true or false",
            "3:17: `orphan_window` must be from 1s to 1d",
            "4:22: `idempotency_window` must be from 1s to 1d",
            "5:17: `max_megabytes` must be from 1 to 1000000",
            "6:1: unknown setting `max_bytes` in `replay`",
        ],
    );
}
