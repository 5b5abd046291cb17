//! Settings for a command beside the gateway, which calls no upstream.

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

fn of_command(fake: Fake, text: &str) -> Result<Config, Vec<ConfigProblem>> {
    let overrides = ConfigOverrides { config: Some(PathBuf::from(FILE)), ..ConfigOverrides::default() };
    load_for_command(overrides, &fake.file(FILE, text))
}

fn said(problems: &[ConfigProblem]) -> Vec<&str> {
    problems.iter().map(ConfigProblem::message).collect()
}

#[test]
fn a_command_needs_no_secret_of_an_upstream_and_the_gateway_needs_all() {
    let config = of_command(machine(), SECRETS).unwrap();
    assert_eq!(config.accounts.len(), 2);
    assert!(config.admin_token.is_none(), "nobody is let in with nothing");
    assert_eq!(
        said(&config.absent_secrets_of("key")),
        [
            "`api_key` names the environment variable `A_KEY`, which is not set",
            "`x-api-key` names a file that cannot be read: entity not found",
        ]
    );
    let tokens = config.absent_secrets_of("tokens");
    assert_eq!(tokens.len(), 2, "{tokens:?}");
    assert!(config.absent_secrets_of("judge").is_empty());
    let all = load_from(machine(), SECRETS).map(|config| config.to_annotated_toml()).unwrap_err();
    assert_eq!(all.len(), 6, "{all:?}");

    let with_its_own = machine().variable("B_SECRET", "s").variable("B_TOKEN", "t");
    let config = of_command(with_its_own, SECRETS).unwrap();
    assert_eq!((config.absent_secrets_of("tokens"), config.absent_secrets_of("key").len()), (Vec::new(), 2));
}

#[test]
fn what_opens_the_store_is_needed_and_what_is_wrong_is_said_with_all_that_is_absent() {
    for setting in ["master_key", "database_url"] {
        let problems = of_command(machine(), &format!("{setting} = {{ env = \"NOT_SET\" }}{SECRETS}")).unwrap_err();
        assert_eq!(problems.len(), 7, "{problems:?}");
        assert!(
            problems[0].to_string().contains(&format!("`{setting}` names the environment variable")),
            "{problems:?}"
        );
    }
    // A secret that is present must be valid.
    let problems = of_command(machine().variable("A_KEY", "line\nbreak"), SECRETS).unwrap_err();
    assert!(said(&problems).iter().any(|text| text.contains("is not allowed in a header")), "{problems:?}");
}
