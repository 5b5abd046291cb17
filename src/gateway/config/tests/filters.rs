//! The content filter of a group, and its fallback policy.

use super::*;

const FILTERED: &str = r#"
[[groups]]
name = "default"
fallback = "unpaid"

[groups.filter]
words = ["  Acme Corp ", "nemo"]
patterns = ['\bred\b']

[groups.filter.moderation]
base_url = "https://judge.example/v1/"
api_key = { env = "JUDGE_KEY" }
on_error = "closed"
"#;

#[test]
fn the_filter_of_a_group_is_read_and_printed() {
    let config = load_from(test_host().variable("JUDGE_KEY", "sk-judge"), FILTERED).unwrap();
    let [group] = &config.groups[..] else { panic!("expected one group") };
    assert_eq!(group.fallback, FallbackPolicy::Unpaid);
    assert_eq!(group.filter.words, ["Acme Corp", "nemo"]);
    assert_eq!(group.filter.patterns, [r"\bred\b"]);
    let ModerationConfig { base_url, api_key, model, on_error, timeout } = group.filter.moderation.as_ref().unwrap();
    assert_eq!(base_url, "https://judge.example/v1");
    assert_eq!(api_key.as_ref().map(ConfigSecret::expose), Some("sk-judge"));
    assert_eq!((model.as_str(), *on_error), ("omni-moderation-latest", ModerationErrorPolicy::Closed));
    assert_eq!(*timeout, Duration::from_secs(5));
    let shown = config.to_annotated_toml();
    for line in ["fallback = \"unpaid\"", "[groups.filter.moderation]", "on_error = \"closed\"", "timeout = \"5s\""] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(!format!("{shown}{config:?}").contains("sk-judge"));
}

#[test]
fn a_group_has_no_filter_by_default() {
    let config = load_from(test_host(), "[[groups]]\nname = \"a\"").unwrap();
    for group in &config.groups {
        assert_eq!((group.fallback, &group.filter), (FallbackPolicy::Never, &FilterConfig::default()));
    }
    assert!(!config.to_annotated_toml().contains("filter"), "{}", config.to_annotated_toml());
}

#[test]
fn every_mistake_in_a_filter_is_reported_at_once() {
    check(
        r#"[[groups]]
name = "a"
fallback = "ladder"
[groups.filter]
words = ["", "fine"]
patterns = ["(", "x*", "fine"]
[groups.filter.moderation]
base_url = "http://judge.example/v1"
api_key = { env = "NOT_SET" }
model = "two words"
timeout = "1ms"
"#,
        &[
            "3:12: `fallback` must be \"never\" or \"unpaid\" or \"always\", not \"ladder\"",
            "5:10: `words[0]` is blank and therefore matches every prompt",
            "6:13: `patterns[0]` is not a regular expression: unclosed group",
            "6:18: `patterns[1]` matches the empty text and therefore every prompt",
            "7:1: `on_error` is missing in `groups.filter.moderation`",
            "8:12: `base_url` must begin with `https://`, because plain http sends credentials unencrypted (`allow_http = true` accepts that)",
            "9:11: `api_key` names the environment variable `NOT_SET`, which is not set",
            "10:9: `model` must be the id of a model, without spaces",
            "11:11: `timeout` must be from 100ms to 1d",
        ],
    );
    check(
        "[[groups]]\nname = \"a\"\n[groups.filter.moderation]\non_error = \"maybe\"",
        &[
            "3:1: `base_url` is missing in `groups.filter.moderation`",
            "4:12: `on_error` must be \"open\" or \"closed\", not \"maybe\"",
        ],
    );
}
