//! Groups of the store, which have the same settings as those of the file, but may not name every secret.

use serde_json::{Map, Value, json};

use super::*;

fn base_config() -> Config {
    load_from(test_host(), "text_models = [\"m\"]\n[deadlines]\nimage = \"2m\"\n[[groups]]\nname = \"written\"\n")
        .unwrap()
}

fn policy(value: Value) -> Map<String, Value> {
    let Value::Object(policy) = value else { panic!("expected an object") };
    policy
}

fn stored_group(value: Value) -> Result<GroupConfig, Vec<ConfigProblem>> {
    let host = test_host().variable("A_MODERATION_KEY", "sk-judge").variable("IMAGATE_MASTER_KEY", "hidden");
    group_from_json(&base_config(), "Design team", &policy(value), Some(&host))
}

#[test]
fn a_group_of_the_store_has_the_same_settings_as_in_the_file() {
    let text = r#"
[[groups]]
name = "a"
delivery = "fail"
image_deadline = "90s"
inject_image_tool = true
stored_context = "own"
text_models = ["gpt-5.5"]
tools = ["web_search"]
[groups.filter]
words = [" nemo "]
patterns = ["x+"]
[groups.filter.moderation]
base_url = "https://judge.example/v1/"
api_key = { env = "A_MODERATION_KEY" }
on_error = "closed"
timeout = "2s"
"#;
    let mut from_file =
        load_from(test_host().variable("A_MODERATION_KEY", "sk-judge"), text).unwrap().groups.swap_remove(0);
    let written = json!({
        "delivery": "fail", "image_deadline": "90s", "inject_image_tool": true, "stored_context": "own", "text_models": ["gpt-5.5"],
        "tools": ["web_search"],
        "filter": {
            "words": [" nemo "], "patterns": ["x+"],
            "moderation": {
                "base_url": "https://judge.example/v1/", "api_key": {"env": "A_MODERATION_KEY"}, "on_error": "closed",
                "timeout": "2s", "model": null,
            },
        },
    });
    let from_store = stored_group(written).unwrap();
    assert_eq!(from_store.name, "Design team");
    from_file.name = "Design team".to_owned();
    assert_eq!(from_store, from_file, "the stored group and the group of the file are equal");
    assert!(!format!("{from_store:?}").contains("sk-judge"));
    let plain = stored_group(json!({"filter": null})).unwrap();
    assert_eq!((plain.deadlines.image, plain.text_models), (Duration::from_secs(120), Some(vec!["m".to_owned()])));
    assert!(plain.policy.is_empty());
}

#[test]
fn a_group_of_the_store_cannot_name_secrets_of_the_machine() {
    for (key, expected) in [
        (json!({"env": "IMAGATE_MASTER_KEY"}), "whose name contains `MODERATION`"),
        (json!({"env": "OPENAI_API_KEY"}), "whose name contains `MODERATION`"),
        (json!({"file": "etc/key.txt"}), "names a file of the gateway"),
        (json!({"file": "etc/key.txt", "env": "A_MODERATION_KEY"}), "names a file of the gateway"),
        (json!("literal-canary"), "must be { env"),
        (json!({"env": "B_MODERATION_KEY"}), "is not set"),
    ] {
        let service = json!({"base_url": "https://judge.example", "on_error": "open", "api_key": key});
        let problems = stored_group(json!({"filter": {"moderation": service}})).unwrap_err();
        assert_eq!(problems[0].setting(), Some("filter.moderation.api_key"), "{problems:?}");
        let message = problems[0].to_string();
        assert!(message.contains(expected) && !message.contains("literal-canary"), "{message}");
    }
}

#[test]
fn a_secret_for_another_address_is_refused_in_the_store() {
    let text = r#"
admin_token = { env = "MODERATION_ADMIN" }
master_key = { env = "MASTER_MODERATION" }
database_url = { env = "DATABASE_MODERATION" }
[[accounts]]
name = "tokens"
kind = "oauth"
base_url = "https://judge.example/v1"
token_url = "https://judge.example/v1"
grant = "refresh_token"
refresh_token = { env = "REFRESH_MODERATION" }
client_id = "app"
client_secret = { env = "CLIENT_MODERATION" }
[[accounts]]
name = "a"
kind = "api_key"
base_url = "https://judge.example/v1"
api_key = { env = "ACCOUNT_MODERATION" }
headers = { x-key = { env = "HEADER_MODERATION" } }
[[groups]]
name = "written"
[groups.filter.moderation]
base_url = "https://other.example/v1"
api_key = { env = "GROUP_MODERATION" }
on_error = "closed"
"#;
    let other_secrets =
        ["MODERATION_ADMIN", "MASTER_MODERATION", "DATABASE_MODERATION", "REFRESH_MODERATION", "CLIENT_MODERATION"];
    let names = ["ACCOUNT_MODERATION", "HEADER_MODERATION", "GROUP_MODERATION", "ONE_MODERATION"];
    let value = "0123456789abcdef".repeat(4);
    let host = other_secrets.into_iter().chain(names).fold(test_host(), |host, name| host.variable(name, &value));
    let host = host.variable("DATABASE_MODERATION", "sqlite:");
    let config = load_from(host.clone(), text).unwrap();
    let is_refused = |name: &str, address: &str| {
        let service = json!({"base_url": address, "on_error": "closed", "api_key": {"env": name}});
        let policy = policy(json!({"filter": {"moderation": service}}));
        match group_from_json(&config, "new", &policy, Some(&host.clone().variable("group_MODERATION", &value))) {
            Ok(_) => false,
            Err(problems) => {
                assert_eq!(problems[0].setting(), Some("filter.moderation.api_key"), "{problems:?}");
                assert!(problems[0].to_string().contains("for another address"), "{problems:?}");
                true
            }
        }
    };
    let refused = |address: &str| names.map(|name| is_refused(name, address));
    assert_eq!(refused("https://mine.example"), [true, true, true, false]);
    assert_eq!(refused("https://judge.example/v1/"), [false, false, true, false]);
    assert_eq!(refused("https://other.example/v1"), [true, true, false, false]);
    for name in other_secrets {
        assert!(is_refused(name, "https://judge.example/v1"), "{name} is not sent to a base URL");
    }
    assert!(is_refused("group_MODERATION", "https://mine.example"), "some platforms ignore the case of variable names");
}

#[test]
fn the_patterns_of_a_group_of_the_store_are_bounded() {
    let problem = |patterns: Vec<String>| {
        let problems = stored_group(json!({"filter": {"patterns": patterns}})).err()?;
        Some((problems[0].setting().unwrap_or_default().to_owned(), problems[0].message().to_owned()))
    };
    let many = |count: usize| (0..count).map(|index| format!("word{index}")).collect::<Vec<_>>();
    assert_eq!(problem(many(256)), None);
    let (setting, message) = problem(many(257)).expect("too many patterns are refused");
    assert!(setting == "filter.patterns" && message.contains("at most 256"), "{setting}: {message}");
    let large = |count: usize| (0..count).map(|index| format!(r"{index}\w{{20}}")).collect::<Vec<_>>();
    assert_eq!(problem(large(2)), None);
    let (setting, message) = problem(large(100)).expect("patterns that are too large are refused");
    assert!(setting == "filter.patterns" && message.contains("together too large"), "{setting}: {message}");
}

#[test]
fn without_a_host_environment_a_secret_may_be_absent() {
    let check = |key: Value| {
        let service = json!({"base_url": "https://judge.example", "on_error": "open", "api_key": key});
        group_from_json(&base_config(), "new", &policy(json!({"filter": {"moderation": service}})), None)
    };
    assert_eq!(check(json!({"env": "B_MODERATION_KEY"})).map(|group| group.name), Ok("new".to_owned()));
    assert!(check(json!({"env": "OPENAI_API_KEY"})).is_err());
}

#[test]
fn the_file_takes_precedence_and_the_drain_timeout_grows() {
    let config = base_config();
    assert_eq!((config.file_groups(), config.drain_timeout), (vec!["written".to_owned()], Duration::from_secs(150)));
    let group = |name: &str| {
        let policy = policy(json!({"delivery": "fail", "image_deadline": "1h"}));
        group_from_json(&config, name, &policy, Some(&test_host())).unwrap()
    };
    let both = config.with_store_groups(vec![group("written"), group("default"), group("new")]);
    let groups: Vec<_> = both.groups.iter().map(|group| (group.name.as_str(), group.delivery)).collect();
    assert_eq!(
        groups,
        [("written", DeliveryPolicy::Report), ("default", DeliveryPolicy::Fail), ("new", DeliveryPolicy::Fail)]
    );
    assert_eq!(both.drain_timeout, Duration::from_secs(3630));
    let chosen = load_from(test_host(), "drain_timeout = \"10s\"").unwrap();
    assert_eq!(chosen.with_store_groups(vec![group("new")]).drain_timeout, Duration::from_secs(10));
}

#[test]
fn the_allowed_words_are_those_of_the_schema() {
    assert_eq!(allowed_words("groups.delivery"), ["report", "fail", "convert"]);
    assert_eq!(allowed_words("groups.filter.moderation.on_error"), ["open", "closed"]);
    assert_eq!(allowed_words("accounts.kind"), ["api_key", "oauth", "simulator"]);
    assert!(allowed_words("groups.name").is_empty() && allowed_words("groups.nothing").is_empty());
}

#[test]
fn limits_out_of_range_are_problems_and_never_no_limit() {
    for value in [json!(-1), json!(-0.5), json!(1e12), json!(9_000_001)] {
        let limits = policy(json!({"budget_usd": value, "budget_period": "day"}));
        let problems = limits_from_json(&limits).unwrap_err();
        let found: Vec<_> = problems.iter().map(|problem| (problem.setting(), problem.message())).collect();
        assert_eq!(found, [(Some("budget_usd"), "`budget_usd` must be from 0 to 9000000")], "{value}");
    }
    let problems = limits_from_json(&policy(json!({"budget_usd": 1, "budget_alert": 1.5}))).unwrap_err();
    assert_eq!(problems[0].message(), "`budget_alert` must be from 0 to 1");
    let check = |value| check_limits(&policy(value)).unwrap();
    assert_eq!(check(json!({"images_per_day": 5, "max_size": null})).as_deref(), Some(r#"{"images_per_day":5}"#));
    assert_eq!((check(json!({})), check(json!({"models": null}))), (None, None));
}
