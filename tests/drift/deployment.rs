//! The files of `docs/deploy` agree with the code: variables, settings, stop times, timeouts, and versions.
//!
//! `cargo xtask release-checks --only deploy` checks the form of these files with the programs that read them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use jsonschema::Validator;
use regex::Regex;
use serde_json::Value;

use crate::facts::{Facts, source_number};
use crate::{admin_document, assert_mentions, assert_no_difference, document, folder, json, root};

const FOLDER: &str = "docs/deploy";
const COMPOSE: &str = "compose/compose.yaml";
const COMPOSE_SETTINGS: &str = "compose/settings/imagate.toml";
const HAPROXY: &str = "compose/haproxy.cfg";
const NGINX: &str = "nginx.conf";
const UNIT: &str = "systemd/imagate.service";
const UNIT_SETTINGS: &str = "systemd/imagate.toml";
const VALUES: &str = "chart/values.yaml";
const HELPERS: &str = "chart/templates/_helpers.tpl";
const IGNORED: &str = "Dockerfile.dockerignore";

static VARIABLE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\bIMAGATE_[A-Z_]+\b"));
/// A variable in quotes, as the source declares it.
static DECLARED: LazyLock<Regex> = LazyLock::new(|| pattern(r#""(IMAGATE_[A-Z_]+)""#));
/// A line of an example that is a comment: `# name = …` or `# [[table]]`.
static COMMENTED: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?m)^# ([a-z_]+ = |\[\[)"));
static SETTING: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?m)^([a-z_]+) = "));
/// The route of a one-time link.
static LINK: LazyLock<Regex> = LazyLock::new(|| pattern(r#"\["([a-z]+)", _link\]"#));
static TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"([0-9]+) ?(h|min|m|s)"));
static DIGITS: LazyLock<Regex> = LazyLock::new(|| pattern(r"[0-9]+"));

/// The texts by their path in [`FOLDER`].
type Files = BTreeMap<String, String>;

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn read() -> Files {
    fn collect(folder: &Path, prefix: &str, files: &mut Files) {
        for entry in fs::read_dir(folder).expect("the folder exists") {
            let path = entry.expect("the folder can be listed").path();
            let name = format!("{prefix}{}", path.file_name().expect("a name").to_string_lossy());
            if path.is_dir() {
                collect(&path, &format!("{name}/"), files);
            } else {
                files.insert(name, fs::read_to_string(&path).expect("a text"));
            }
        }
    }
    let mut files = Files::new();
    collect(&folder().join(FOLDER), "", &mut files);
    files
}

/// The files with one change.
fn changed(path: &str, from: &str, to: &str) -> Files {
    let mut files = read();
    let text = files.get_mut(path).unwrap_or_else(|| panic!("no {path}"));
    assert!(text.contains(from), "{path}: no {from}");
    *text = text.replacen(from, to, 1);
    files
}

/// The text of a file behind the first `anchor`, up to the end of its line.
fn value<'a>(files: &'a Files, path: &str, section: &str, anchor: &str) -> &'a str {
    let text = files.get(path).unwrap_or_else(|| panic!("no {path}"));
    let tail = text.split_once(section).unwrap_or_else(|| panic!("{path}: no {section}")).1;
    let tail = tail.split_once(anchor).unwrap_or_else(|| panic!("{path}: no {anchor} behind {section}")).1;
    tail.lines().next().unwrap_or_default()
}

fn number(text: &str) -> u64 {
    DIGITS.find(text).and_then(|found| found.as_str().parse().ok()).unwrap_or_else(|| panic!("no number: {text}"))
}

/// A time such as `11m30s`, `11min 30s` or `"5s"`, in seconds.
fn seconds(text: &str) -> u64 {
    let factor = |unit: &str| match unit {
        "h" => 3600,
        "s" => 1,
        _ => 60,
    };
    let parts: Vec<u64> = TIME.captures_iter(text).map(|found| number(&found[1]) * factor(&found[2])).collect();
    assert!(!parts.is_empty(), "no time: {text}");
    parts.iter().sum()
}

fn limit(name: &str) -> u64 {
    Facts { public: &document(), admin: &admin_document(), schema: Value::Null }.limit(name)
}

/// The default of `drain_timeout`.
fn drain() -> u64 {
    let margin = source_number("src/gateway/config/resolve.rs", "const DRAIN_MARGIN: Duration = Duration::from_secs(");
    limit("request_total_seconds") + margin
}

/// The longest time from the end of the drain to the end of the process.
fn last_writes() -> u64 {
    let seconds = |name: &str| {
        source_number("src/gateway/serve/shutdown.rs", &format!("const {name}: Duration = Duration::from_secs("))
    };
    seconds("CUTOFF_TIMEOUT") + seconds("STORE_CLOSE_TIMEOUT")
}

/// One line for each variable that the program does not read.
fn unknown_variables(files: &Files) -> Vec<String> {
    let sources = ["src/gateway/config/resolve/written.rs", "src/gateway/config.rs", "src/cli/serve.rs"];
    let text: String = sources.map(|path| fs::read_to_string(root().join(path)).expect("the source")).concat();
    let known: BTreeSet<&str> = DECLARED.captures_iter(&text).map(|found| found.extract::<1>().1[0]).collect();
    assert!(known.contains("IMAGATE_CONFIG") && known.contains("IMAGATE_LISTEN"), "{known:?}");
    let used = files.iter().flat_map(|(path, text)| VARIABLE.find_iter(text).map(move |found| (path, found.as_str())));
    let unknown = used.filter(|(_, name)| !known.contains(name));
    unknown.map(|(path, name)| format!("{path}: the program does not read {name}")).collect()
}

/// One line for each problem of a file with settings, as it is and with its examples in force.
fn invalid_settings(files: &Files) -> Vec<String> {
    let schema = json("schemas/config.schema.json");
    let validator = jsonschema::draft7::new(&schema).expect("a schema");
    let mut lines = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".toml")) {
        lines.extend(problems(&validator, path, text));
        lines.extend(problems(&validator, path, &COMMENTED.replace_all(text, "$1")));
    }
    for (path, text) in files.iter().filter(|(path, _)| path.starts_with("chart/ci/")) {
        if let Some((_, block)) = text.split_once("\nconfig: |\n") {
            let settings = block.lines().take_while(|line| line.is_empty() || line.starts_with("  "));
            lines.extend(problems(&validator, path, &settings.collect::<Vec<_>>().join("\n")));
        }
    }
    let settings: Vec<&str> = SETTING.captures_iter(&files[HELPERS]).map(|found| found.extract::<1>().1[0]).collect();
    assert!(settings.contains(&"shutdown_delay"), "{settings:?}");
    let unknown = settings.iter().filter(|name| schema["properties"].get(**name).is_none());
    lines.extend(unknown.map(|name| format!("{HELPERS}: there is no setting {name}")));
    lines
}

fn problems(validator: &Validator, path: &str, text: &str) -> Vec<String> {
    match toml::from_str::<Value>(text) {
        Ok(settings) => validator.iter_errors(&settings).map(|error| format!("{path}: {error}")).collect(),
        Err(error) => vec![format!("{path}: {error}")],
    }
}

/// One line for each program that would be killed before it has ended by itself.
fn short_stops(files: &Files) -> Vec<String> {
    let delay = seconds(value(files, COMPOSE_SETTINGS, "", "shutdown_delay = "));
    let chart = ["shutdownDelaySeconds: ", "drainSeconds: "].map(|name| number(value(files, VALUES, "", name)));
    let reserve = number(value(files, HELPERS, "", "add .Values.shutdownDelaySeconds .Values.drainSeconds "));
    let times = [
        ("the nodes in compose.yaml", seconds(value(files, COMPOSE, "&node", "stop_grace_period: ")), delay),
        ("the proxy in compose.yaml", seconds(value(files, COMPOSE, "\n  proxy:", "stop_grace_period: ")), delay),
        ("imagate.service", seconds(value(files, UNIT, "", "\nTimeoutStopSec=")), 0),
        ("the chart", chart.iter().sum::<u64>() + reserve, chart[0]),
    ];
    let needed = drain() + last_writes();
    let short = times.iter().filter(|(_, time, delay)| *time < delay + needed);
    short.map(|(what, time, delay)| format!("{what}: {time} s, needed {}", delay + needed)).collect()
}

/// One line for each bound of a proxy that is lower than that of the gateway.
fn low_proxy_bounds(files: &Files) -> Vec<String> {
    let mut lines = Vec::new();
    let mut check = |what: &str, actual: u64, needed: u64| {
        if actual <= needed {
            lines.push(format!("{what}: {actual}, must be above {needed}"));
        }
    };
    let longest_answer = limit("request_total_seconds");
    for (path, name) in [(HAPROXY, "timeout client "), (HAPROXY, "timeout server "), (NGINX, "proxy_read_timeout ")] {
        check(name, seconds(value(files, path, "", name)), longest_answer);
    }
    let body = number(value(files, NGINX, "", "client_max_body_size ")) << 20;
    check("client_max_body_size", body, limit("max_edit_form_body_bytes"));
    let idle = source_number("src/gateway/front/connection_activity.rs", " idle: Duration::from_secs(");
    check("idle time of the gateway", idle, seconds(value(files, HAPROXY, "", "timeout http-keep-alive ")));
    lines
}

/// One line for each version, address and path that has another value in another file.
fn disagreements(files: &Files) -> Vec<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let field = |name: &str| {
        let tail = manifest.split_once(&format!("\n{name} = \"")).expect("the field").1;
        tail.split_once('"').expect("the end of the field").0.to_owned()
    };
    let (version, rust) = (field("version"), field("rust-version"));
    let proxy = value(files, COMPOSE, "", "ipv4_address: ").to_owned();
    let expected = [
        ("chart/Chart.yaml", format!("\nversion: {version}\n")),
        ("chart/Chart.yaml", format!("\nappVersion: \"{version}\"\n")),
        (COMPOSE, format!("image: imagate:{version}\n")),
        ("Dockerfile", format!("imagate:{version} .\n")),
        (COMPOSE_SETTINGS, format!("trusted_proxies = [\"{proxy}\"]")),
        (UNIT_SETTINGS, format!("data_dir = \"/var/lib/{}\"", value(files, UNIT, "", "\nStateDirectory="))),
    ];
    let absent = expected.iter().filter(|(path, text)| !files[*path].contains(text));
    let mut lines: Vec<String> = absent.map(|(path, text)| format!("{path}: no {text:?}")).collect();
    let minor = |version: &str| version.split('.').nth(1).and_then(|part| part.parse::<u32>().ok());
    let compiler = value(files, "Dockerfile", "", "RUST_IMAGE=rust:");
    if minor(compiler) < minor(&rust) {
        lines.push(format!("Dockerfile: {compiler} is older than {rust}"));
    }
    let sources = files[IGNORED].lines().filter_map(|line| line.strip_prefix("!/"));
    lines.extend(sources.filter(|path| !root().join(path).exists()).map(|path| format!("{IGNORED}: no {path}")));
    lines
}

/// One line for each one-time link whose path a proxy would write to its log.
fn logged_links(files: &Files) -> Vec<String> {
    let routes = fs::read_to_string(root().join("src/gateway/pages/routes.rs")).expect("the source");
    let names: BTreeSet<&str> = LINK.captures_iter(&routes).map(|found| found.extract::<1>().1[0]).collect();
    assert!(!names.is_empty(), "no one-time link is found in the source");
    let silent = [
        (HAPROXY, value(files, HAPROXY, "", "set-log-level silent if { path_beg ")),
        (NGINX, value(files, NGINX, "$is_logged {", "~^")),
    ];
    let absent = silent.iter().flat_map(|(path, text)| names.iter().map(move |name| (path, text, name)));
    let absent = absent.filter(|(_, text, name)| !text.contains(*name));
    absent.map(|(path, _, name)| format!("{path}: the links of /{name}/ are in the log")).collect()
}

/// One line for each credential that the settings name and the unit does not load.
fn absent_credentials(files: &Files) -> Vec<String> {
    let path = "/run/credentials/imagate.service/";
    let names = files[UNIT_SETTINGS].split(path).skip(1).map(|tail| tail.split('"').next().unwrap_or_default());
    let absent = names.filter(|name| !files[UNIT].contains(&format!("\nLoadCredential={name}:")));
    absent.map(|name| format!("{UNIT}: no credential {name}")).collect()
}

#[test]
fn every_variable_and_setting_of_the_deployment_files_exists() {
    assert_no_difference(&unknown_variables(&read()));
    assert_no_difference(&invalid_settings(&read()));
    assert_no_difference(&absent_credentials(&read()));
}

#[test]
fn every_deployment_waits_until_the_gateway_has_stopped() {
    assert_no_difference(&short_stops(&read()));
}

#[test]
fn no_proxy_writes_one_time_links_to_its_log() {
    assert_no_difference(&logged_links(&read()));
    assert_mentions(&logged_links(&changed(HAPROXY, " /invitation/", "")), "the links of /invitation/ are in the log");
    assert_mentions(&logged_links(&changed(NGINX, "setup|", "")), "nginx.conf: the links of /setup/");
}

#[test]
fn every_proxy_is_more_patient_than_the_gateway() {
    assert_no_difference(&low_proxy_bounds(&read()));
}

#[test]
fn the_deployment_files_agree_with_the_package_and_each_other() {
    assert_no_difference(&disagreements(&read()));
}

#[test]
fn a_wrong_variable_or_setting_is_reported() {
    let files = changed("Dockerfile", "IMAGATE_LISTEN", "IMAGATE_ADDRESS");
    assert_mentions(&unknown_variables(&files), "Dockerfile: the program does not read IMAGATE_ADDRESS");
    let files = changed(COMPOSE_SETTINGS, "shutdown_delay", "stop_delay");
    assert_mentions(&invalid_settings(&files), "compose/settings/imagate.toml: Additional properties");
    let files = changed(COMPOSE_SETTINGS, "# base_url", "# base_uri");
    assert_mentions(&invalid_settings(&files), "base_uri");
    let files = changed("chart/ci/postgres.yaml", "text_models", "text_model");
    assert_mentions(&invalid_settings(&files), "chart/ci/postgres.yaml: Additional properties");
    let files = changed(HELPERS, "trusted_proxies =", "trusted_proxy =");
    assert_mentions(&invalid_settings(&files), "there is no setting trusted_proxy");
    let files = changed(UNIT, "LoadCredential=master_key", "LoadCredential=key");
    assert_mentions(&absent_credentials(&files), "no credential master_key");
}

#[test]
fn a_stop_time_that_is_too_short_is_reported() {
    for (path, from, to, line) in [
        (COMPOSE, "11m30s", "90s", "the nodes in compose.yaml: 90 s, needed 655"),
        (COMPOSE_SETTINGS, "\"5s\"", "\"2m\"", "the proxy in compose.yaml: 690 s, needed 770"),
        (UNIT, "11min 30s", "90s", "imagate.service: 90 s, needed 650"),
        (VALUES, "drainSeconds: 630", "drainSeconds: 30", "the chart: 75 s, needed 665"),
        (HELPERS, "drainSeconds 30", "drainSeconds 3", "the chart: 648 s, needed 665"),
    ] {
        assert_mentions(&short_stops(&changed(path, from, to)), line);
    }
}

#[test]
fn an_impatient_proxy_is_reported() {
    for (path, from, to, line) in [
        (HAPROXY, "timeout server 11m", "timeout server 50s", "timeout server : 50, must be above 600"),
        (NGINX, "proxy_read_timeout 11m", "proxy_read_timeout 60s", "proxy_read_timeout : 60"),
        (NGINX, "900m", "50m", "client_max_body_size: 52428800"),
        (HAPROXY, "timeout http-keep-alive 60s", "timeout http-keep-alive 90s", "idle time of the gateway: 75"),
    ] {
        assert_mentions(&low_proxy_bounds(&changed(path, from, to)), line);
    }
}

#[test]
fn files_that_disagree_are_reported() {
    for (path, from, to, line) in [
        ("chart/Chart.yaml", "version: 0", "version: 9", "chart/Chart.yaml: no"),
        ("Dockerfile", "rust:1.", "rust:1.1.", "is older than"),
        (COMPOSE, "ipv4_address: 172.30.85.10", "ipv4_address: 172.30.85.11", "172.30.85.11"),
        (UNIT, "StateDirectory=imagate", "StateDirectory=other", "/var/lib/other"),
        (IGNORED, "!/build.rs", "!/gone.rs", "no gone.rs"),
    ] {
        assert_mentions(&disagreements(&changed(path, from, to)), line);
    }
}
