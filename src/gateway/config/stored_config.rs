//! Accounts and groups of the store: the same settings as in the file, checked in the same way.
//!
//! The settings are printed as the TOML table that the file would contain, and then read like the file, so that there
//! is one reader and one list of settings.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::config_file::ConfigFile;
use super::host_environment::{HostEnvironment, Platform};
use super::problem::{ConfigLocation, ConfigProblem};
use super::raw::SecretSource;
use super::resolve::{ConfigResolver, WrittenConfig, resolve_part};
use super::{AccountConfig, Config, ConfigSecret, DEFAULT_GROUP, GroupConfig, RequestLimits, address, pattern};
use crate::tables::PATTERNS_MAX;

/// The settings that hold a secret.
const SECRETS: [&str; 3] = ["api_key", "client_secret", "refresh_token"];
/// The prefix of the setting of a secret header; the header name follows.
const HEADER: &str = "headers.";
/// The prefixes of the path of each setting in the generated table.
const ACCOUNT_TABLE: &str = "accounts[0].";
const GROUP_TABLE: &str = "groups[0].";
const LIMITS_TABLE: &str = "groups[0].limits.";

/// The name of a variable that a group of the store uses must contain this word, which marks the secret as meant for
/// this purpose. Without this rule, an admin could send any secret of the machine to an address of the admin's choice.
const MODERATION_VARIABLE: &str = "MODERATION";
/// The lists of a group, as JSON pointers. Forms show one entry per line, so an entry must not contain a line break.
const LISTS: [&str; 4] = ["/text_models", "/tools", "/filter/words", "/filter/patterns"];
const MODERATION_KEY: &str = "/filter/moderation/api_key";
const MODERATION_ADDRESS: &str = "/filter/moderation/base_url";
const PATTERNS: &str = "/filter/patterns";

/// Builds an account from its settings as JSON, named as in `[[accounts]]`, and from its secrets, each under the
/// setting that it belongs to.
///
/// The account may name groups that do not exist, because groups are added and removed independently of accounts. Its
/// addresses may be link-local only if `allow_link_local` is true, which is a setting of the file.
///
/// # Errors
///
/// Returns all problems with the settings and secrets.
pub(crate) fn account_from_json(
    name: &str,
    settings: &str,
    secrets: BTreeMap<String, String>,
    allow_link_local: bool,
) -> Result<AccountConfig, Vec<ConfigProblem>> {
    let location = ConfigLocation::Named(format!("account {name}"));
    let problem = |message: String| vec![ConfigProblem::new(location.clone(), message)];
    let fields = serde_json::from_str(settings);
    let mut fields: Map<String, Value> =
        fields.map_err(|error| problem(format!("the settings are not a JSON object: {error}")))?;
    if let Some(field) = misplaced_secret(&fields) {
        return Err(problem(format!("`{field}` is a secret and must not be part of the settings")));
    }
    fields.retain(|_, value| !value.is_null());
    fields.insert("name".to_owned(), name.into());
    for field in secrets.keys() {
        insert_secret_reference(&mut fields, field);
    }
    let tables = json!({ "allow_link_local": allow_link_local, "accounts": [fields] });
    resolve_tables(&location, &tables, ACCOUNT_TABLE, Some(&SecretEnvironment(secrets)), |resolver| {
        resolver.accounts(None).swap_remove(0)
    })
}

/// Builds a group from its settings as JSON, named as in `[[groups]]`, on the basis of `config`. The group names the
/// variables of its secrets. If `host` is `None`, the variables need not be set.
///
/// # Errors
///
/// Returns all problems with the settings.
pub(crate) fn group_from_json(
    config: &Config,
    name: &str,
    policy: &Map<String, Value>,
    host: Option<&dyn HostEnvironment>,
) -> Result<GroupConfig, Vec<ConfigProblem>> {
    let location = ConfigLocation::Named(format!("group {name}"));
    let mut fields = policy.clone();
    without_nulls(&mut fields);
    let mut problems = store_restrictions(config, &fields);
    // A fixed name takes the place of the group's own name, because the store allows names that the file does not.
    if fields.insert("name".to_owned(), DEFAULT_GROUP.into()).is_some() {
        problems.push(ConfigProblem::for_setting("name", "is not a setting of a policy"));
    }
    if !problems.is_empty() {
        return Err(relocate_problems(problems, &location, ""));
    }
    let tables = json!({ "allow_link_local": config.allow_link_local, "groups": [fields] });
    let group = resolve_tables(&location, &tables, GROUP_TABLE, host, |resolver| {
        resolver.groups(config.deadlines, config.text_models.as_deref()).swap_remove(0)
    });
    Ok(GroupConfig { name: name.to_owned(), ..group? })
}

/// Builds limits from JSON, with the fields of `[groups.limits]`.
///
/// # Errors
///
/// Returns all problems with the limits. Their settings are named without a prefix.
pub(crate) fn limits_from_json(limits: &Map<String, Value>) -> Result<RequestLimits, Vec<ConfigProblem>> {
    let location = ConfigLocation::Named("limits".to_owned());
    let mut fields = limits.clone();
    without_nulls(&mut fields);
    let tables = json!({ "groups": [{ "name": DEFAULT_GROUP, "limits": fields }] });
    resolve_tables(&location, &tables, LIMITS_TABLE, None, |resolver| resolver.limits_of_group(0))
}

/// Checks limits, and returns them as text in the form in which they are stored; `None` if no limit is set.
///
/// # Errors
///
/// Returns the problems of [`limits_from_json`].
pub(crate) fn check_limits(limits: &Map<String, Value>) -> Result<Option<String>, Vec<ConfigProblem>> {
    limits_from_json(limits)?;
    let mut set_limits = limits.clone();
    without_nulls(&mut set_limits);
    Ok((!set_limits.is_empty()).then(|| Value::Object(set_limits).to_string()))
}

/// Removes every field that is `null`, which stands for an absent field.
pub(super) fn without_nulls(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| !value.is_null());
    fields.values_mut().filter_map(Value::as_object_mut).for_each(without_nulls);
}

/// Returns a problem for each setting of a group that is allowed in the file, which the operator writes, but not in the
/// store.
fn store_restrictions(config: &Config, policy: &Map<String, Value>) -> Vec<ConfigProblem> {
    let policy = Value::Object(policy.clone());
    let mut problems = Vec::new();
    for list in LISTS {
        let items = policy.pointer(list).and_then(Value::as_array).into_iter().flatten().enumerate();
        for (index, _) in items.filter(|(_, item)| item.as_str().is_some_and(|text| text.contains(['\n', '\r']))) {
            let setting = format!("{}[{index}]", list.trim_start_matches('/').replace('/', "."));
            problems.push(ConfigProblem::for_setting(&setting, "contains a line break"));
        }
    }
    problems.extend(pattern_limit_problem(&policy));
    let source = policy.pointer(MODERATION_KEY).and_then(Value::as_object);
    let fault = match source.map(|source| (source.get("env").and_then(Value::as_str), source.contains_key("file"))) {
        Some((_, true)) => Some("names a file of the gateway, which is allowed only in the settings file"),
        Some((Some(variable), _)) if !variable.contains(MODERATION_VARIABLE) => Some(
            "must name a variable whose name contains `MODERATION`, so that no other secret of the gateway is sent",
        ),
        Some((Some(variable), _)) => {
            let address = policy.pointer(MODERATION_ADDRESS).and_then(Value::as_str);
            let address = address.and_then(|text| address::base_url(text, true).ok());
            let is_of_other_address = config.is_secret_of_other_address(variable, address.as_ref());
            is_of_other_address.then_some("names a secret that the settings file uses for another address")
        }
        _ => None,
    };
    problems.extend(fault.map(|fault| ConfigProblem::for_setting("filter.moderation.api_key", fault)));
    problems
}

/// Returns the problem if the patterns would take too long to compile. Each reload of a policy compiles the patterns of
/// all groups.
fn pattern_limit_problem(policy: &Value) -> Option<ConfigProblem> {
    let patterns = policy.pointer(PATTERNS).and_then(Value::as_array)?;
    let fault = if patterns.len() > PATTERNS_MAX as usize {
        format!("may contain at most {PATTERNS_MAX} patterns")
    } else if !pattern::fit_together(patterns.iter().filter_map(Value::as_str)) {
        "are together too large when compiled; use fewer patterns or smaller repetitions".to_owned()
    } else {
        return None;
    };
    Some(ConfigProblem::for_setting("filter.patterns", &fault))
}

/// Resolves a part of a file that contains these tables. The problems name settings relative to `table`. If `host` is
/// `None`, secrets may be absent.
fn resolve_tables<T>(
    location: &ConfigLocation,
    tables: &Value,
    table: &str,
    host: Option<&dyn HostEnvironment>,
    read: impl FnOnce(&mut ConfigResolver<'_>) -> T,
) -> Result<T, Vec<ConfigProblem>> {
    let unreadable = |error| ConfigProblem::new(location.clone(), format!("the settings cannot be read: {error}"));
    let text = toml::to_string(tables).map_err(|error| vec![unreadable(error)])?;
    let written = WrittenConfig::from_file(ConfigFile::parse("", &text));
    let no_secrets = SecretEnvironment(BTreeMap::new());
    let part = resolve_part(&written, host.unwrap_or(&no_secrets), host.is_none(), read);
    part.map_err(|problems| relocate_problems(problems, location, table))
}

/// Replaces the locations of the problems, because users do not see the lines of the generated table.
fn relocate_problems(problems: Vec<ConfigProblem>, location: &ConfigLocation, table: &str) -> Vec<ConfigProblem> {
    let mut problems: Vec<ConfigProblem> = problems
        .into_iter()
        .map(|problem| problem.with_location(location.clone()).with_relative_setting(table))
        .collect();
    problems.sort();
    problems
}

/// Returns the name of a setting that contains a secret or names a source of one. Such a setting could make the gateway
/// read and send any secret of the machine.
fn misplaced_secret(fields: &Map<String, Value>) -> Option<String> {
    let secret = SECRETS.into_iter().find(|field| fields.contains_key(*field)).map(str::to_owned);
    let header = || {
        let headers = fields.get("headers")?.as_object()?;
        headers.iter().find(|(_, value)| value.is_object()).map(|(name, _)| format!("{HEADER}{name}"))
    };
    secret.or_else(header)
}

/// Inserts a reference to the secret where the file would have the setting.
fn insert_secret_reference(fields: &mut Map<String, Value>, field: &str) {
    let source = json!({ "env": field });
    let Some(header) = field.strip_prefix(HEADER) else {
        fields.insert(field.to_owned(), source);
        return;
    };
    let headers = fields.entry("headers").or_insert_with(|| json!({}));
    // If `headers` is not a table, the reader reports it.
    if let Some(headers) = headers.as_object_mut() {
        headers.insert(header.to_owned(), source);
    }
}

/// A host environment that contains only the given secrets, as variables named after their settings.
struct SecretEnvironment(BTreeMap<String, String>);

impl HostEnvironment for SecretEnvironment {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.0.get(name).map(OsString::from)
    }

    fn read(&self, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn platform(&self) -> Platform {
        Platform::Unix
    }

    fn describe_source(&self, _: &SecretSource) -> String {
        ConfigSecret::STORE_SOURCE.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::config::{AccountCredentials, GrantConfig, UpstreamConfig};

    fn secrets(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[track_caller]
    fn check(settings: &str, secrets_given: &[(&str, &str)], expected: &[&str]) {
        let problems = account_from_json("stored", settings, secrets(secrets_given), false).map(|account| account.name);
        let printed: Vec<String> = problems.unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(printed, expected, "{settings}");
    }

    #[test]
    fn a_stored_account_has_the_same_settings_as_in_the_file() {
        let settings = r#"{"kind": "api_key", "base_url": "https://a.example/v1/", "tier": "free", "priority": 3,
            "groups": ["not-there-yet"], "headers": {"x-project": "p"}, "protocol": null}"#;
        let account = account_from_json(
            "stored",
            settings,
            secrets(&[("api_key", "sk-stored"), ("headers.x-api-key", "hidden")]),
            false,
        );
        let account = account.unwrap();
        let UpstreamConfig::Api(endpoint) = &account.upstream else { panic!("the account has no endpoint") };
        assert!(matches!(&endpoint.credentials, AccountCredentials::ApiKey(key) if key.expose() == "sk-stored"));
        assert_eq!(endpoint.base_url.to_string(), "https://a.example/v1");
        assert_eq!(
            (&endpoint.headers["x-project"], &endpoint.headers["x-api-key"]),
            (&"p".parse().unwrap(), &"hidden".parse().unwrap())
        );
        assert_eq!((account.name.as_str(), account.priority, account.implicit), ("stored", 3, false));
        assert_eq!(account.groups, ["not-there-yet"]);
        let output = format!("{account:?}");
        assert!(!output.contains("sk-stored") && !output.contains("hidden"), "{output}");
    }

    #[test]
    fn a_stored_account_can_use_oauth() {
        let settings = r#"{"kind": "oauth", "base_url": "https://a.example", "token_url": "https://a.example/token",
            "grant": "refresh_token"}"#;
        let account = account_from_json("stored", settings, secrets(&[("refresh_token", "r1")]), false).unwrap();
        let UpstreamConfig::Api(endpoint) = &account.upstream else { panic!("the account has no endpoint") };
        let AccountCredentials::Oauth(oauth) = &endpoint.credentials else {
            panic!("the account has no OAuth credentials")
        };
        assert!(matches!(&oauth.grant, GrantConfig::RefreshToken(token) if token.expose() == "r1"));
    }

    #[test]
    fn every_problem_of_a_stored_account_is_reported_without_lines() {
        check(
            r#"{"kind": "api_key", "base_url": "http://a.example", "concurrency": 0, "bas": 1}"#,
            &[("api_key", "line\nbreak"), ("token", "t")],
            &[
                "account stored: `api_key` contains a character that is not allowed in a header (store)",
                "account stored: `base_url` must begin with `https://`, because plain http sends credentials unencrypted (`allow_http = true` accepts that)",
                "account stored: `concurrency` must be from 1 to 10000",
                "account stored: unknown setting `bas` in `accounts`",
                "account stored: unknown setting `token` in `accounts`",
            ],
        );
        check(
            r#"{"kind": "api_key", "base_url": "https://a.example/v1/responses"}"#,
            &[("api_key", "Bearer sk-hidden"), ("headers.x-key", "\"hidden\"")],
            &[
                "account stored: `api_key` begins with `Bearer`, which is added when it is sent: write the key alone (store)",
                "account stored: `base_url` must end before `/responses`, which the gateway adds: write \"https://a.example/v1\"",
                "account stored: `x-key` stands in quotes: write it without them (store)",
            ],
        );
        check(
            "[]",
            &[],
            &[
                "account stored: the settings are not a JSON object: invalid type: sequence, expected a map at line 1 column 0",
            ],
        );
    }

    #[test]
    fn stored_settings_cannot_name_secrets_of_the_gateway() {
        let secret =
            |field: &str| format!("account stored: `{field}` is a secret and must not be part of the settings");
        let base = r#""kind": "api_key", "base_url": "https://a.example""#;
        check(&format!(r#"{{{base}, "api_key": {{"env": "HOME"}}}}"#), &[], &[&secret("api_key")]);
        check(&format!(r#"{{{base}, "refresh_token": "literal"}}"#), &[], &[&secret("refresh_token")]);
        let header = format!(r#"{{{base}, "headers": {{"x-key": {{"file": "/etc/passwd"}}}}}}"#);
        check(&header, &[("api_key", "k")], &[&secret("headers.x-key")]);
    }
}
