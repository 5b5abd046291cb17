//! Settings as a command loads them: the admin token and the secrets of accounts and moderation services may be absent.

use super::*;

const SECRETS: &str = r#"
admin_token = { env = "TOKEN" }
[[accounts]]
name = "key"
kind = "api_key"
base_url = "https://a.example/v1"
api_key = { env = "A_KEY" }
headers = { x-api-key = { file = "gone.txt" } }

[[accounts]]
name = "tokens"
kind = "oauth"
base_url = "https://b.example/v1"
token_url = "https://b.example/token"
grant = "refresh_token"
client_id = "c"
client_secret = { env = "B_SECRET" }
refresh_token = { env = "B_TOKEN" }

[[groups]]
name = "default"
[groups.filter.moderation]
base_url = "https://judge.example/v1"
api_key = { env = "JUDGE_KEY" }
on_error = "closed"
"#;

fn load_for_test_command(host: FakeEnvironment, text: &str) -> Result<Config, Vec<ConfigProblem>> {
    let overrides = ConfigOverrides { config: Some(PathBuf::from(FILE)), ..ConfigOverrides::default() };
    load_for_command(overrides, &host.file(FILE, text))
}

fn messages(problems: &[ConfigProblem]) -> Vec<&str> {
    problems.iter().map(ConfigProblem::message).collect()
}

#[test]
fn only_the_gateway_needs_the_secrets_of_upstreams() {
    let config = load_for_test_command(test_host(), SECRETS).unwrap();
    assert_eq!(config.accounts.len(), 2);
    assert!(config.admin_token.is_none(), "an absent secret does not become an empty token");
    assert_eq!(
        messages(&config.absent_secrets_of("key")),
        [
            "`api_key` names the environment variable `A_KEY`, which is not set",
            "`x-api-key` names a file that cannot be read: entity not found",
        ]
    );
    let tokens = config.absent_secrets_of("tokens");
    assert_eq!(tokens.len(), 2, "{tokens:?}");
    assert!(config.absent_secrets_of("judge").is_empty());
    let all = load_from(test_host(), SECRETS).map(|config| config.to_annotated_toml()).unwrap_err();
    assert_eq!(all.len(), 6, "{all:?}");

    let host = test_host().variable("B_SECRET", "s").variable("B_TOKEN", "t");
    let config = load_for_test_command(host, SECRETS).unwrap();
    assert_eq!((config.absent_secrets_of("tokens"), config.absent_secrets_of("key").len()), (Vec::new(), 2));
}

#[test]
fn a_command_needs_the_secrets_of_the_store() {
    for setting in ["master_key", "database_url"] {
        let problems =
            load_for_test_command(test_host(), &format!("{setting} = {{ env = \"NOT_SET\" }}{SECRETS}")).unwrap_err();
        assert_eq!(problems.len(), 7, "{problems:?}");
        assert!(
            problems[0].to_string().contains(&format!("`{setting}` names the environment variable")),
            "{problems:?}"
        );
    }
    // The secret of an account may be absent, but a secret that is present must be valid.
    let problems = load_for_test_command(test_host().variable("A_KEY", "line\nbreak"), SECRETS).unwrap_err();
    assert!(messages(&problems).iter().any(|text| text.contains("is not allowed in a header")), "{problems:?}");
}
