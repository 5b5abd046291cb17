//! Accounts that are kept in the store: the same settings as in the file, checked the same way.
//!
//! They are written as the table of the file that they would be, so that there is one reader and one list of settings.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::problem::{Place, Problem};
use super::raw::SecretSource;
use super::resolve::{Layers, resolve_account};
use super::surroundings::{Platform, Surroundings};
use super::written::Written;
use super::{Account, Secret};

/// The settings that hold a secret. So does every secret header, under `headers.` and its name.
const SECRETS: [&str; 3] = ["api_key", "client_secret", "refresh_token"];
const HEADER: &str = "headers.";
/// What the path of each setting begins with in the table that is written.
const TABLE: &str = "accounts[0].";

/// An account from its settings as JSON, with the names of `[[accounts]]`, and its secrets by the setting they belong to.
///
/// Groups may be named that do not exist, or not yet: they come and go without the account.
///
/// # Errors
///
/// Everything that is wrong with it.
pub(crate) fn account_from_json(
    name: &str,
    settings: &str,
    secrets: BTreeMap<String, String>,
) -> Result<Account, Vec<Problem>> {
    let place = Place::Named(format!("account {name}"));
    let wrong = |message: String| vec![Problem::new(place.clone(), message)];
    let fields = serde_json::from_str(settings);
    let mut fields: Map<String, Value> =
        fields.map_err(|error| wrong(format!("the settings are no JSON object: {error}")))?;
    if let Some(field) = misplaced(&fields) {
        return Err(wrong(format!("`{field}` is a secret, which must not stand among the settings")));
    }
    fields.retain(|_, value| !value.is_null());
    fields.insert("name".to_owned(), name.into());
    for field in secrets.keys() {
        refer(&mut fields, field);
    }
    let text = toml::to_string(&json!({ "accounts": [fields] }));
    let text = text.map_err(|error| wrong(format!("the settings cannot be read: {error}")))?;
    let layers = Layers::default().with_written(Written::parse("", &text));
    let account = resolve_account(&layers, &Kept(secrets));
    // The lines of that table are nothing that anybody has seen.
    account.map_err(|problems| {
        let mut problems: Vec<Problem> =
            problems.into_iter().map(|problem| problem.at(place.clone()).within(TABLE)).collect();
        problems.sort();
        problems
    })
}

/// A secret or a reference to one: what the settings name, they could make the server read and send.
fn misplaced(fields: &Map<String, Value>) -> Option<String> {
    let secret = SECRETS.into_iter().find(|field| fields.contains_key(*field)).map(str::to_owned);
    let header = || {
        let headers = fields.get("headers")?.as_object()?;
        headers.iter().find(|(_, value)| value.is_object()).map(|(name, _)| format!("{HEADER}{name}"))
    };
    secret.or_else(header)
}

/// Puts a reference to the secret where the setting stands in the file.
fn refer(fields: &mut Map<String, Value>, field: &str) {
    let source = json!({ "env": field });
    let Some(header) = field.strip_prefix(HEADER) else {
        fields.insert(field.to_owned(), source);
        return;
    };
    let headers = fields.entry("headers").or_insert_with(|| json!({}));
    // Headers that are no table are reported as such.
    if let Some(headers) = headers.as_object_mut() {
        headers.insert(header.to_owned(), source);
    }
}

/// Secrets that were handed over, in the place of an environment; there is nothing else in it.
struct Kept(BTreeMap<String, String>);

impl Surroundings for Kept {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.0.get(name).map(OsString::from)
    }

    fn read(&self, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn platform(&self) -> Platform {
        Platform::Unix
    }

    fn found(&self, _: &SecretSource) -> String {
        Secret::KEPT.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::config::{Credentials, Grant, Upstream};

    fn secrets(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[track_caller]
    fn check(settings: &str, secrets_given: &[(&str, &str)], expected: &[&str]) {
        let problems = account_from_json("kept", settings, secrets(secrets_given)).map(|account| account.name);
        let printed: Vec<String> = problems.unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(printed, expected, "{settings}");
    }

    #[test]
    fn a_kept_account_has_the_settings_of_one_in_the_file() {
        let settings = r#"{"kind": "api_key", "base_url": "https://a.example/v1/", "tier": "free", "priority": 3,
            "groups": ["not-there-yet"], "headers": {"x-project": "p"}, "protocol": null}"#;
        let account =
            account_from_json("kept", settings, secrets(&[("api_key", "sk-kept"), ("headers.x-api-key", "hidden")]));
        let account = account.unwrap();
        let Upstream::Api(endpoint) = &account.upstream else { panic!("an endpoint") };
        assert!(matches!(&endpoint.credentials, Credentials::ApiKey(key) if key.expose() == "sk-kept"));
        assert_eq!(endpoint.base_url.to_string(), "https://a.example/v1");
        assert_eq!(
            (&endpoint.headers["x-project"], &endpoint.headers["x-api-key"]),
            (&"p".parse().unwrap(), &"hidden".parse().unwrap())
        );
        assert_eq!((account.name.as_str(), account.priority, account.implicit), ("kept", 3, false));
        assert_eq!(account.groups, ["not-there-yet"]);
        let seen = format!("{account:?}");
        assert!(!seen.contains("sk-kept") && !seen.contains("hidden"), "{seen}");
    }

    #[test]
    fn a_kept_account_can_fetch_tokens() {
        let settings = r#"{"kind": "oauth", "base_url": "https://a.example", "token_url": "https://a.example/token",
            "grant": "refresh_token"}"#;
        let account = account_from_json("kept", settings, secrets(&[("refresh_token", "r1")])).unwrap();
        let Upstream::Api(endpoint) = &account.upstream else { panic!("an endpoint") };
        let Credentials::Oauth(oauth) = &endpoint.credentials else { panic!("tokens") };
        assert!(matches!(&oauth.grant, Grant::RefreshToken(token) if token.expose() == "r1"));
    }

    #[test]
    fn every_problem_of_a_kept_account_is_reported_without_places_nobody_has_seen() {
        check(
            r#"{"kind": "api_key", "base_url": "http://a.example", "concurrency": 0, "bas": 1}"#,
            &[("api_key", "line\nbreak"), ("token", "t")],
            &[
                "account kept: `api_key` holds a character that cannot stand in a header (store)",
                "account kept: `base_url` must begin with `https://`, because plain http shows credentials on the way (`allow_http = true` accepts that)",
                "account kept: `concurrency` must be from 1 to 10000",
                "account kept: unknown setting `bas` in `accounts`",
                "account kept: unknown setting `token` in `accounts`",
            ],
        );
        check(
            "[]",
            &[],
            &[
                "account kept: the settings are no JSON object: invalid type: sequence, expected a map at line 1 column 0",
            ],
        );
    }

    #[test]
    fn settings_of_a_kept_account_cannot_make_the_server_read_its_own_secrets() {
        let secret =
            |field: &str| format!("account kept: `{field}` is a secret, which must not stand among the settings");
        let base = r#""kind": "api_key", "base_url": "https://a.example""#;
        check(&format!(r#"{{{base}, "api_key": {{"env": "HOME"}}}}"#), &[], &[&secret("api_key")]);
        check(&format!(r#"{{{base}, "refresh_token": "literal"}}"#), &[], &[&secret("refresh_token")]);
        let header = format!(r#"{{{base}, "headers": {{"x-key": {{"file": "/etc/passwd"}}}}}}"#);
        check(&header, &[("api_key", "k")], &[&secret("headers.x-key")]);
    }
}
