//! Groups of the store, which have the settings of those in the file.

use serde_json::{Map, Value, json};

use super::*;

fn settings() -> Config {
    load_from(machine(), "text_models = [\"m\"]\n[deadlines]\nimage = \"2m\"\n[[groups]]\nname = \"written\"\n")
        .unwrap()
}

fn policy(value: Value) -> Map<String, Value> {
    let Value::Object(policy) = value else { panic!("an object") };
    policy
}

fn kept(value: Value) -> Result<Group, Vec<Problem>> {
    let machine = machine().variable("A_MODERATION_KEY", "sk-judge").variable("IMAGATE_MASTER_KEY", "hidden");
    group_from_json(&settings(), "Design team", &policy(value), &machine)
}

#[test]
fn a_group_of_the_store_has_the_settings_of_one_in_the_file() {
    let text = r#"
[[groups]]
name = "a"
delivery = "fail"
image_deadline = "90s"
inject_image_tool = true
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
    let mut of_file =
        load_from(machine().variable("A_MODERATION_KEY", "sk-judge"), text).unwrap().groups.swap_remove(0);
    let written = json!({
        "delivery": "fail", "image_deadline": "90s", "inject_image_tool": true, "text_models": ["gpt-5.5"],
        "tools": ["web_search"],
        "filter": {
            "words": [" nemo "], "patterns": ["x+"],
            "moderation": {
                "base_url": "https://judge.example/v1/", "api_key": {"env": "A_MODERATION_KEY"}, "on_error": "closed",
                "timeout": "2s", "model": null,
            },
        },
    });
    let of_store = kept(written).unwrap();
    assert_eq!(of_store.name, "Design team");
    of_file.name = "Design team".to_owned();
    assert_eq!(of_store, of_file, "what is written and what is used are the same");
    assert!(!format!("{of_store:?}").contains("sk-judge"));
    let plain = kept(json!({"filter": null})).unwrap();
    assert_eq!((plain.deadlines.image, plain.text_models), (Duration::from_secs(120), Some(vec!["m".to_owned()])));
    assert!(plain.policy.is_empty());
}

#[test]
fn a_group_of_the_store_names_no_other_secret_of_the_machine() {
    for (key, fault) in [
        (json!({"env": "IMAGATE_MASTER_KEY"}), "with `MODERATION` in its name"),
        (json!({"env": "OPENAI_API_KEY"}), "with `MODERATION` in its name"),
        (json!({"file": "etc/key.txt"}), "names a file of the server"),
        (json!({"file": "etc/key.txt", "env": "A_MODERATION_KEY"}), "names a file of the server"),
        (json!("literal-canary"), "must be { env"),
        (json!({"env": "B_MODERATION_KEY"}), "is not set"),
    ] {
        let service = json!({"base_url": "https://judge.example", "on_error": "open", "api_key": key});
        let problems = kept(json!({"filter": {"moderation": service}})).unwrap_err();
        assert_eq!(problems[0].setting(), Some("filter.moderation.api_key"), "{problems:?}");
        let said = problems[0].to_string();
        assert!(said.contains(fault) && !said.contains("literal-canary"), "{said}");
    }
}

#[test]
fn the_file_wins_and_the_time_to_finish_grows_with_the_deadlines() {
    let config = settings();
    assert_eq!((config.groups_of_file(), config.drain_timeout), (vec!["written".to_owned()], Duration::from_secs(150)));
    let group = |name: &str| {
        let policy = policy(json!({"delivery": "fail", "image_deadline": "1h"}));
        group_from_json(&config, name, &policy, &machine()).unwrap()
    };
    let both = config.with_groups_of_store(vec![group("written"), group("default"), group("new")]);
    let found: Vec<_> = both.groups.iter().map(|group| (group.name.as_str(), group.delivery)).collect();
    assert_eq!(found, [("written", Delivery::Report), ("default", Delivery::Fail), ("new", Delivery::Fail)]);
    assert_eq!(both.drain_timeout, Duration::from_secs(3630));
    let chosen = load_from(machine(), "drain_timeout = \"10s\"").unwrap();
    assert_eq!(chosen.with_groups_of_store(vec![group("new")]).drain_timeout, Duration::from_secs(10));
}

#[test]
fn the_words_of_a_setting_are_those_that_are_read() {
    assert_eq!(words_of("groups.delivery"), ["report", "fail"]);
    assert_eq!(words_of("groups.filter.moderation.on_error"), ["open", "closed"]);
    assert_eq!(words_of("accounts.kind"), ["api_key", "oauth", "simulator"]);
    assert!(words_of("groups.name").is_empty() && words_of("groups.nothing").is_empty());
}
