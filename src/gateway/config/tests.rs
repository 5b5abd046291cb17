//! Loads settings as an operator writes them, from a file and an environment, and checks the result or the messages.

mod alerts;
mod commands;
mod filters;
mod groups;
mod models;
mod oidc;
mod reload;
mod service_settings;
mod tokens;

use super::host_environment::fake::FakeEnvironment;
use super::*;

const FILE: &str = "etc/config.toml";

/// A valid configuration file with accounts and a group.
const VALID_FILE: &str = r#"
listen = "0.0.0.0:9000"
metrics_listen = "127.0.0.1:9464"
data_dir = "./data"
drain_timeout = "1m 30s"
text_models = ["gpt-5.5", "gpt-5.5-mini"]
answer_deadline = "95s"

[deadlines]
image = "2m"

[[accounts]]
name = "primary"
kind = "api_key"
protocol = "images"
base_url = "https://api.openai.com/v1/"
api_key = { env = "OPENAI_API_KEY" }
tier = "free"
groups = ["default", "team"]
priority = -3
concurrency = 4
large_concurrency = 1
headers = { OpenAI-Project = "proj_1", api-key = { file = "key.txt" } }

[[accounts]]
name = "drawing"
kind = "simulator"

[[groups]]
name = "team"
delivery = "fail"
"#;

fn test_host() -> FakeEnvironment {
    FakeEnvironment::default()
        .variable("HOME", "/h/ada")
        .variable("OPENAI_API_KEY", "sk-upstream")
        .file("etc/key.txt", "hidden\n")
}

fn load_from(host: FakeEnvironment, text: &str) -> Result<Config, Vec<ConfigProblem>> {
    let overrides = ConfigOverrides { config: Some(PathBuf::from(FILE)), ..ConfigOverrides::default() };
    load(overrides, &host.file(FILE, text))
}

/// Asserts that loading the text fails with exactly these messages, in this order. The messages are compared without
/// the name of the file.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let problems = load_from(test_host(), text).map(|config| config.to_annotated_toml()).unwrap_err();
    let printed: Vec<String> =
        problems.iter().map(ToString::to_string).map(|line| line.replace("etc/config.toml:", "")).collect();
    assert_eq!(printed, expected, "{text}");
}

#[test]
fn empty_settings_start_a_local_simulator() {
    let config = load(ConfigOverrides::default(), &test_host()).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.metrics_listen, None);
    assert_eq!(config.data_dir, PathBuf::from("/h/ada/.local/share/imagate"));
    assert_eq!(config.drain_timeout, Duration::from_secs(630), "longer than the longest call");
    assert_eq!((config.text_models, config.image_models), (None, Vec::new()));
    assert_eq!((config.deadlines.image, config.answer_deadline), (Duration::from_secs(600), Duration::from_secs(299)));
    assert_eq!(
        config.groups,
        [GroupConfig {
            name: "default".to_owned(),
            delivery: DeliveryPolicy::Report,
            deadlines: config.deadlines,
            fallback: FallbackPolicy::Never,
            inject_image_tool: false,
            stored_context: None,
            response_budget: ResponseBudget::default(),
            dialects: DialectSet::default(),
            text_models: None,
            tools: None,
            filter: FilterConfig::default(),
            filter_files: FilterFilePolicy::Refuse,
            limits: std::sync::Arc::default(),
            implicit: true,
            policy: serde_json::Map::new(),
            problem: None,
        }]
    );
    let [account] = &config.accounts[..] else { panic!("expected one account") };
    assert!(account.implicit && matches!(account.upstream, UpstreamConfig::Simulator));
    assert_eq!(account.groups, ["default"]);
}

#[test]
fn a_whole_file_is_loaded() {
    let config = load_from(test_host(), VALID_FILE).unwrap();
    assert_eq!(config.listen, "0.0.0.0:9000".parse().unwrap());
    assert_eq!(config.data_dir, PathBuf::from("etc/./data"));
    assert_eq!(config.drain_timeout, Duration::from_secs(90));
    assert_eq!((config.deadlines.image, config.answer_deadline), (Duration::from_secs(120), Duration::from_secs(95)));
    let [primary, drawing] = &config.accounts[..] else { panic!("expected two accounts") };
    let UpstreamConfig::Api(endpoint) = &primary.upstream else { panic!("expected an endpoint") };
    assert_eq!(endpoint.base_url.to_string(), "https://api.openai.com/v1");
    assert!(matches!(&endpoint.credentials, AccountCredentials::ApiKey(key) if key.expose() == "sk-upstream"));
    assert_eq!(endpoint.headers["openai-project"], "proj_1");
    assert_eq!(endpoint.headers["api-key"], "hidden");
    assert_eq!((primary.tier, primary.priority), (AccountTier::Free, -3));
    assert_eq!((primary.concurrency.get(), primary.large_concurrency.get()), (4, 1));
    assert_eq!(primary.groups, ["default", "team"]);
    assert_eq!(
        (drawing.concurrency.get(), drawing.large_concurrency.get()),
        (8, 2),
        "the default for large images is low"
    );
    assert!(!drawing.implicit && matches!(drawing.upstream, UpstreamConfig::Simulator));
    let names: Vec<_> = config.groups.iter().map(|group| (group.name.as_str(), group.delivery)).collect();
    assert_eq!(names, [("team", DeliveryPolicy::Fail), ("default", DeliveryPolicy::Report)]);
}

#[test]
fn no_secret_is_printed_or_in_debug_output() {
    let config = load_from(test_host(), VALID_FILE).unwrap();
    let output = format!("{}{config:?}", config.to_annotated_toml());
    assert!(!output.contains("sk-upstream") && !output.contains("hidden"), "{output}");
}

#[test]
fn settings_are_printed_with_their_sources() {
    let host =
        test_host().variable("IMAGATE_DRAIN_TIMEOUT", "5s").file(FILE, VALID_FILE).variable("IMAGATE_CONFIG", FILE);
    let overrides = ConfigOverrides { listen: Some("localhost:1".to_owned()), ..ConfigOverrides::default() };
    let shown = load(overrides, &host).unwrap().to_annotated_toml();
    let shown: Vec<String> = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "listen = \"localhost:1\" # --listen",
        "drain_timeout = \"5s\" # IMAGATE_DRAIN_TIMEOUT",
        "log_format = \"text\" # default",
        "data_dir = \"etc/./data\" # file",
        "connect = \"5s\" # default",
        "image = \"2m\" # file",
        "answer_deadline = \"1m 35s\" # file",
        "api_key = \"[redacted]\" # file",
        "headers = { \"api-key\" = \"[redacted]\", \"openai-project\" = \"proj_1\" } # file",
    ] {
        assert!(shown.iter().any(|shown| shown == line), "{line} is not in {shown:#?}");
    }
}

#[test]
fn the_command_line_precedes_the_environment_and_the_file() {
    let text = "listen = \"f:1\"\ndata_dir = \"/f\"\ndrain_timeout = \"1s\"";
    let host = test_host().variable("IMAGATE_LISTEN", "e:1").variable("IMAGATE_DATA_DIR", "e").file(FILE, text);
    let overrides =
        ConfigOverrides { config: Some(PathBuf::from(FILE)), listen: Some("c:1".to_owned()), data_dir: None };
    let config = load(overrides, &host).unwrap();
    assert_eq!(config.listen.to_string(), "c:1");
    assert_eq!(config.data_dir, PathBuf::from("e"));
    assert_eq!(config.drain_timeout, Duration::from_secs(1));
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    let config = load(ConfigOverrides::default(), &test_host().variable("IMAGATE_LISTEN", "")).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
}

#[test]
fn retention_is_at_least_a_day_and_unlimited_by_default() {
    assert_eq!(load_from(test_host(), VALID_FILE).unwrap().retention, RetentionPeriods::default());
    let config = load_from(test_host(), "[retention]\nrecords = \"400d\"\nusage = \"36500d\"").unwrap();
    let days = |days: u64| Some(Duration::from_secs(days * 86_400));
    assert_eq!(config.retention, RetentionPeriods { records: days(400), audit: None, usage: days(36_500) });
    assert!(config.to_annotated_toml().contains("[retention]\nrecords = \"400d\""), "{}", config.to_annotated_toml());
    check("[retention]\naudit = \"23h\"", &["2:9: `audit` must be from 1d to 36500d"]);
}

#[test]
fn problems_outside_the_file_name_their_source() {
    let host = FakeEnvironment::default()
        .variable("IMAGATE_LISTEN", "8080")
        .variable("IMAGATE_DATABASE_URL", "mysql://u:p@h/d");
    let problems = load(ConfigOverrides { listen: None, ..ConfigOverrides::default() }, &host).unwrap_err();
    let printed: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        printed,
        [
            "IMAGATE_DATABASE_URL: `database_url` must be an address such as postgres://user:password@host:5432/database; without this setting, the data is kept in SQLite in `data_dir`",
            "IMAGATE_LISTEN: `listen` must be `host:port`, such as \"127.0.0.1:8080\"",
            "data_dir: `data_dir` must be set, because the environment does not name a home folder",
        ]
    );
    let format = load(ConfigOverrides::default(), &test_host().variable("IMAGATE_LOG_FORMAT", "xml")).unwrap_err();
    assert_eq!(format[0].to_string(), "IMAGATE_LOG_FORMAT: `log_format` must be \"text\" or \"json\"");
    let missing = load(ConfigOverrides { config: Some(PathBuf::from("no.toml")), ..ConfigOverrides::default() }, &host)
        .unwrap_err();
    assert_eq!(missing[0].to_string(), "no.toml: cannot be read: entity not found");
}

#[test]
fn every_problem_of_a_file_is_reported_at_once() {
    check(
        r#"listn = "127.0.0.1:8080"
drain_timeout = 30
[[accounts]]
name = "a"
kind = "apikey"
bas_url = "https://api.openai.com/v1"
concurrency = 0
[[accounts]]
kind = "api_key"
base_url = "http://api.openai.com/v1"
api_key = "sk-literal"
groups = ["defualt"]
drain_timeout = "1s"
"#,
        &[
            "1:1: unknown setting `listn`; did you mean `listen`?",
            "2:17: `drain_timeout` is a whole number but must be a duration such as \"30s\", \"5m\" or \"1h 30m\"",
            "5:8: `kind` must be \"api_key\" or \"oauth\" or \"simulator\", not \"apikey\"; did you mean `api_key`?",
            "6:1: unknown setting `bas_url` in `accounts`; did you mean `base_url`?",
            "7:15: `concurrency` must be from 1 to 10000",
            "8:1: `name` is missing in `accounts`",
            "10:12: `base_url` must begin with `https://`, because plain http sends credentials unencrypted (`allow_http = true` accepts that)",
            "11:11: `api_key` is a string but must be { env = \"NAME\" } or { file = \"PATH\" }, because the file itself must not contain secrets",
            "12:11: `groups[0]` names `defualt`, which is not a group; did you mean `default`?",
            "13:1: unknown setting `drain_timeout` in `accounts`; it belongs at the top of the file, above the first table",
        ],
    );
}

#[test]
fn each_mistake_has_its_own_message() {
    let duration_message = "must be a duration such as \"30s\", \"5m\" or \"1h 30m\"";
    check("listen = true", &["1:10: `listen` is true but must be a string"]);
    check("listen = \"8080\"", &["1:10: `listen` must be `host:port`, such as \"127.0.0.1:8080\""]);
    check("drain_timeout = \"30\"", &[&format!("1:17: `drain_timeout` {duration_message}")]);
    check("drain_timeout = \"25h\"", &["1:17: `drain_timeout` must be from 0s to 1d"]);
    check("deadlines = { connect = \"1ms\" }", &["1:25: `connect` must be from 100ms to 1d"]);
    check("deadlines = { image = \"2h\" }", &["1:23: `image` must be from 100ms to 1h"]);
    check("deadlines = 3", &["1:13: `deadlines` is a whole number but must be a table"]);
    let price = |line| format!("[[prices]]\nmodel = \"m\"\nfrom = 2026-01-01\n{line}");
    check(&price("image_output = \"5\""), &["4:16: `image_output` is a string but must be a number"]);
    check(&price("image_output = -5"), &["4:16: `image_output` must be from 0 to 1000000"]);
    let too_small = "4:16: `image_output` is below a billionth of a dollar and would count as 0";
    check(&price("image_output = 1e-10"), &[too_small]);
    let twice = format!("{0}{0}", price("image_output = 5\n"));
    check(&twice, &["7:8: `from` is the day of an earlier price of this model"]);
    check("listen = \"h:1\"\nmetrics_listen = \"h:1\"", &["2:18: `metrics_listen` is the same as `listen`"]);
    check(
        "data_dir = \"~/data\"",
        &["1:12: `data_dir` begins with `~`, which only a shell expands; write the full path"],
    );
    check("[groups]\nname = \"a\"", &["1:1: `groups` is a table with other names but must be a list"]);
    check("[[groups]]\nname = \"a\"\n[[groups]]\nname = \"a\"", &["4:8: `name` `a` is already used"]);
    check("[[groups]]\nname = \"a b\"", &["2:8: `name` must be 1 to 64 letters, digits, `.`, `_` or `-`"]);
    check(
        "[[groups]]\nname = \"a\"\ndelivery = \"maybe\"",
        &["3:12: `delivery` must be \"report\" or \"fail\" or \"convert\", not \"maybe\""],
    );
}

#[test]
fn a_syntax_error_is_reported_with_its_position() {
    check(
        "listen = \nmodels = [",
        &["1:10: string values must be quoted, expected literal string", "2:11: unclosed array, expected `]`"],
    );
    check("listen = \"a:1\"\nlisten = \"b:1\"", &["2:1: duplicate key"]);
}

/// Asserts the messages for an account with these settings, which begin in line 4.
#[track_caller]
fn check_account(lines: &str, expected: &[&str]) {
    check(&format!("[[accounts]]\nname = \"a\"\nkind = \"api_key\"\n{lines}"), expected);
}

#[test]
fn missing_and_forbidden_account_settings_are_reported() {
    let address = "base_url = \"https://a.example/v1\"";
    check_account(
        "",
        &[
            "1:1: `api_key` is missing; set it, for example to { env = \"OPENAI_API_KEY\" }",
            "1:1: `base_url` is missing; it must be a URL, such as \"https://api.openai.com/v1\"",
        ],
    );
    check(
        "[[accounts]]\nname = \"a\"\nkind = \"simulator\"\nbase_url = \"https://a.example\"",
        &["4:12: `base_url` has no meaning for a simulator, which calls no upstream"],
    );
    check_account(
        &format!(
            "{address}\napi_key = {{ env = \"OPENAI_API_KEY\" }}\ngroups = []\n[accounts.headers]\nHost = \"x\"\nx-api-key = \"k\"\nauthorization = {{ env = \"OPENAI_API_KEY\" }}"
        ),
        &[
            "6:10: `groups` must name at least one group; otherwise no key can use the account",
            "8:8: `Host` cannot be sent: the header `host` is set by the gateway itself",
            "9:13: `x-api-key` carries a credential and must be { env = \"NAME\" } or { file = \"PATH\" }",
            "10:17: `authorization` cannot be sent: the header `authorization` is set by the gateway itself; put the key into `api_key`",
        ],
    );
}

#[test]
fn an_unreadable_secret_is_reported_by_its_setting_only() {
    let key = |source: &str| format!("base_url = \"https://a.example/v1\"\napi_key = {source}");
    let expected_form = "{ env = \"NAME\" } or { file = \"PATH\" }, because the file itself must not contain secrets";
    check_account(
        &key("{ env = \"NOT_SET\" }"),
        &["5:11: `api_key` names the environment variable `NOT_SET`, which is not set"],
    );
    check_account(
        &key("{ env = \"sk-pasted\" }"),
        &["5:11: `api_key` names the environment variable of that name, which is not set"],
    );
    check_account(&key("{ file = \"none\" }"), &["5:11: `api_key` names a file that cannot be read: entity not found"]);
    check_account(
        &key("{ env = \"A\", file = \"b\" }"),
        &[&format!("5:11: `api_key` is a table with other names but must be {expected_form}")],
    );
    check_account(
        &key("{ var = \"A\" }"),
        &[&format!("5:11: `api_key` is a table with other names but must be {expected_form}")],
    );
    let host = test_host().file("etc/blank", " \n").file("etc/two", "one\ntwo\n");
    for (file, expected) in
        [("blank", "is empty (file)"), ("two", "contains a character that is not allowed in a header (file)")]
    {
        let text =
            format!("[[accounts]]\nname = \"a\"\nkind = \"api_key\"\n{}", key(&format!("{{ file = \"{file}\" }}")));
        let problems = load_from(host.clone(), &text).map(|config| config.to_annotated_toml()).unwrap_err();
        assert_eq!(
            problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [format!("etc/config.toml:5:11: `api_key` {expected}")]
        );
    }
}

#[test]
fn the_database_is_sqlite_in_the_data_folder_or_postgresql() {
    let load = |url: &str| load(ConfigOverrides::default(), &test_host().variable("IMAGATE_DATABASE_URL", url));
    assert!(load("sqlite:").unwrap().database_url.is_none());
    for url in ["postgres://u:p@h:5432/d", "postgresql:///d?host=/run/postgresql"] {
        let config = load(url).unwrap();
        assert_eq!(config.database_url.as_ref().map(ConfigSecret::expose), Some(url));
        assert!(config.to_annotated_toml().contains("database_url = \"[redacted]\""));
    }
    let cases = [
        ("sqlite:///var/lib/images.db", "set `data_dir` instead"),
        ("postgres:h/d", "must be an address"),
        ("mysql://u:secret@h/d", "must be an address"),
        ("h/d", "must be an address"),
    ];
    for (url, expected) in cases {
        let problem = load(url).unwrap_err().remove(0).to_string();
        assert!(problem.starts_with("IMAGATE_DATABASE_URL: ") && problem.contains(expected), "{problem}");
        assert!(!problem.contains("secret"), "{problem}");
    }
}

#[test]
fn the_committed_schema_matches_the_types() {
    let written = include_str!("../../../schemas/config.schema.json").replace("\r\n", "\n");
    assert!(written == schema_json(), "run `cargo run --features cli -- config schema > schemas/config.schema.json`");
}

#[test]
fn a_group_can_have_its_own_deadline() {
    let text = "deadlines = { image = \"10s\" }\n[[groups]]\nname = \"quick\"\nimage_deadline = \"1s\"\n\
                [[groups]]\nname = \"patient\"\nimage_deadline = \"10m\"\n";
    let config = load_from(test_host(), text).unwrap();
    let deadlines: Vec<_> =
        config.groups.iter().map(|group| (group.name.as_str(), group.deadlines.image.as_secs())).collect();
    assert_eq!(deadlines, [("quick", 1), ("patient", 600), ("default", 10)]);
}

#[test]
fn connection_limits_are_read_and_checked() {
    let config = load(ConfigOverrides::default(), &test_host()).unwrap();
    assert_eq!(config.connections, ConnectionLimits::default());
    assert!(!config.to_annotated_toml().contains("[connections]"));
    let config = load_from(test_host(), "[connections]\nmax = 500\nmax_per_address = 50").unwrap();
    assert_eq!(config.connections, ConnectionLimits { max: Some(500), max_per_address: Some(50) });
    assert!(config.to_annotated_toml().contains("\n[connections]\nmax = 500 "), "{}", config.to_annotated_toml());
    check("[connections]\nmax = 5\nmax_per_address = 6", &["3:19: `max_per_address` must not be above `max`"]);
}
