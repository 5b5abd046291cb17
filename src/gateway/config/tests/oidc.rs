//! The provider of OpenID Connect.

use super::*;

const PROVIDER: &str = "[oidc]\nissuer = \"https://login.example.com/realms/studio\"\nclient_id = \"imagate\"\n\
    client_secret = { env = \"OIDC\" }\n";

fn load(text: &str) -> Result<Config, Vec<ConfigProblem>> {
    load_from(test_host().variable("OIDC", "hidden"), text)
}

#[track_caller]
fn assert_refused(text: &str, words: &str) {
    let problems = load(text).unwrap_err();
    assert!(problems.iter().any(|problem| problem.to_string().contains(words)), "{text}: {problems:?}");
}

#[test]
fn a_provider_is_read_and_printed_without_its_secret() {
    let config = load(PROVIDER).unwrap();
    let oidc = config.oidc.as_ref().unwrap();
    assert_eq!((oidc.label.as_str(), oidc.name_claim.as_str()), ("login.example.com", "preferred_username"));
    assert_eq!(oidc.scopes, ["openid", "profile", "email"]);
    assert!(!oidc.create_users && oidc.required_claim.is_none() && !oidc.allow_link_local);
    let more = "label = \"Example\"\nrequired_claim = { name = \"groups\", value = \"painters\" }\n";
    let config = load(&format!("{PROVIDER}{more}")).unwrap();
    let printed = config.to_annotated_toml();
    assert!(printed.contains("https://login.example.com/realms/studio") && printed.contains("painters"), "{printed}");
    assert!(!printed.contains("hidden"), "{printed}");
    assert_eq!(load("").unwrap().oidc, None);
}

#[test]
fn a_provider_with_a_wrong_setting_is_refused() {
    assert_refused(&PROVIDER.replace("https://login", "http://login"), "https://");
    assert_refused(&PROVIDER.replace("/realms/studio", "?tenant=1"), "query");
    assert_refused(&PROVIDER.replace("\"imagate\"", "\"\""), "must not be empty");
    assert_refused(&PROVIDER.replace("client_id = \"imagate\"\n", ""), "client_id");
    assert_refused(&PROVIDER.replace("OIDC", "ABSENT"), "ABSENT");
    for (line, words) in [
        ("scopes = [\"profile\"]", "openid"),
        ("scopes = [\"openid profile\"]", "without spaces"),
        ("label = \"\"", "name of the provider"),
        ("required_claim = { name = \"groups\" }", "value"),
        ("required_claim = { name = \"\", value = \"a\" }", "must not be empty"),
        ("create_user = true", "create_users"),
    ] {
        assert_refused(&format!("{PROVIDER}{line}\n"), words);
    }
    assert!(load(&format!("{}allow_http = true\n", PROVIDER.replace("https://login", "http://login"))).is_ok());
    assert!(load(&PROVIDER.replace("https://login.example.com/realms/studio", "http://127.0.0.1:9")).is_ok());
}

#[test]
fn an_endpoint_of_the_provider_must_be_encrypted() {
    let config = load(PROVIDER).unwrap().oidc.unwrap();
    for endpoint in ["https://login.example.com/token?tenant=1", "http://127.0.0.1:9/token"] {
        assert!(config.parse_endpoint(endpoint).is_some(), "{endpoint}");
    }
    for endpoint in ["http://login.example.com/token", "ftp://login.example.com/token", "/token", "", "https://"] {
        assert!(config.parse_endpoint(endpoint).is_none(), "{endpoint}");
    }
}
