//! The written settings: those of the file, with the values of the environment and the command line in their places.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::Uri;
use serde::Serialize;
use serde::de::{DeserializeOwned, IntoDeserializer, value};
use serde_json::{Map, Value};

use crate::gateway::config::config_file::{ConfigFile, allowed_words, one_of};
use crate::gateway::config::host_environment::HostEnvironment;
use crate::gateway::config::problem::{ConfigLocation, ConfigProblem};
use crate::gateway::config::raw::{RawConfig, SecretSource};
use crate::gateway::config::stored_config::without_nulls;
use crate::gateway::config::{CONFIG_VARIABLE, ConfigOverrides, SettingSource, address};

/// The secrets that are sent to a token endpoint, and not to the base URL of their account.
const TOKEN_SECRETS: [&str; 2] = ["client_secret", "refresh_token"];

/// The written settings and their sources.
#[derive(Debug, Default)]
pub(crate) struct WrittenConfig {
    pub(super) file: ConfigFile,
    /// The source of each setting that is written somewhere.
    pub(super) sources: BTreeMap<String, SettingSource>,
    /// The variables that the file names as sources of secrets.
    pub(super) named_secrets: Vec<(String, Option<Uri>)>,
}

impl WrittenConfig {
    /// Reads the command line, the environment, and the file that one of them names. The command line takes precedence
    /// over the environment, and the environment over the file.
    pub(crate) fn read(overrides: ConfigOverrides, host: &dyn HostEnvironment) -> Result<Self, ConfigProblem> {
        let named = host.variable(CONFIG_VARIABLE).map(PathBuf::from);
        let mut written = Self::from_file(match overrides.config.or(named) {
            Some(path) => read_file(&path, host)?,
            None => ConfigFile::default(),
        });
        written.read_variables(host);
        written.set("listen", "--listen", overrides.listen, |raw| &mut raw.listen);
        written.set("data_dir", "--data-dir", overrides.data_dir, |raw| &mut raw.data_dir);
        Ok(written)
    }

    /// The settings of a file alone.
    pub(crate) fn from_file(file: ConfigFile) -> Self {
        let sources = file.settings().map(|setting| (setting.to_owned(), SettingSource::File)).collect();
        Self { sources, named_secrets: named_secrets(&file.raw), file }
    }

    fn read_variables(&mut self, host: &dyn HostEnvironment) {
        self.read_text(host, "listen", "IMAGATE_LISTEN", |raw| &mut raw.listen);
        self.read_text(host, "metrics_listen", "IMAGATE_METRICS_LISTEN", |raw| &mut raw.metrics_listen);
        self.read_text(host, "public_url", "IMAGATE_PUBLIC_URL", |raw| &mut raw.public_url);
        self.read_text(host, "drain_timeout", "IMAGATE_DRAIN_TIMEOUT", |raw| &mut raw.drain_timeout);
        self.read_text(host, "answer_deadline", "IMAGATE_ANSWER_DEADLINE", |raw| &mut raw.answer_deadline);
        self.read_text(host, "log_format", "IMAGATE_LOG_FORMAT", |raw| &mut raw.log_format);
        let data_dir = host.variable("IMAGATE_DATA_DIR").map(PathBuf::from);
        self.set("data_dir", "IMAGATE_DATA_DIR", data_dir, |raw| &mut raw.data_dir);
        // The address can carry a password, so it is read like every other secret.
        self.name_secret(host, "database_url", "IMAGATE_DATABASE_URL", |raw| &mut raw.database_url);
        self.name_secret(host, "master_key", "IMAGATE_MASTER_KEY", |raw| &mut raw.master_key);
        self.name_secret(host, "admin_token", "IMAGATE_ADMIN_TOKEN", |raw| &mut raw.admin_token);
    }

    /// Reads a setting from a variable. A wrong value is a problem, and the setting keeps its value of the file.
    fn read_text<T: DeserializeOwned>(
        &mut self,
        host: &dyn HostEnvironment,
        setting: &str,
        variable: &'static str,
        field: impl FnOnce(&mut RawConfig) -> &mut Option<T>,
    ) {
        let Some(text) = host.variable(variable) else { return };
        let value = text.into_string().map_err(|_| "must be text in UTF-8".to_owned()).and_then(|text| {
            let fault = || format!("`{setting}` must be {}", one_of(&allowed_words(setting)));
            T::deserialize(text.into_deserializer()).map_err(|_: value::Error| fault())
        });
        match value {
            Ok(value) => self.set(setting, variable, Some(value), field),
            Err(fault) => {
                self.file.problems.push(ConfigProblem::new(ConfigLocation::Named(variable.to_owned()), fault));
            }
        }
    }

    /// Makes a variable the source of a secret if it is set.
    fn name_secret(
        &mut self,
        host: &dyn HostEnvironment,
        setting: &str,
        variable: &'static str,
        field: impl FnOnce(&mut RawConfig) -> &mut Option<SecretSource>,
    ) {
        let source = host.variable(variable).map(|_| SecretSource::Env(variable.to_owned()));
        self.set(setting, variable, source, field);
    }

    /// Replaces the value of a setting, if another source has one.
    fn set<T>(
        &mut self,
        setting: &str,
        source: &'static str,
        value: Option<T>,
        field: impl FnOnce(&mut RawConfig) -> &mut Option<T>,
    ) {
        if value.is_some() {
            *field(&mut self.file.raw) = value;
            self.sources.insert(setting.to_owned(), SettingSource::Named(source));
        }
    }
}

fn read_file(path: &Path, host: &dyn HostEnvironment) -> Result<ConfigFile, ConfigProblem> {
    let name = path.display().to_string();
    let text = host
        .read(path)
        .map_err(|error| ConfigProblem::new(ConfigLocation::Named(name.clone()), format!("cannot be read: {error}")))?;
    let mut file = ConfigFile::parse(&name, &text);
    file.folder = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    Ok(file)
}

/// Returns the settings that a table contains, as written. They name secrets, but do not contain them.
pub(super) fn written_settings(raw: &impl Serialize) -> Map<String, Value> {
    let Ok(Value::Object(mut settings)) = serde_json::to_value(raw) else { return Map::new() };
    without_nulls(&mut settings);
    settings
}

/// Returns the variables of all secrets that the settings name, each with the base URL that its secret is sent to;
/// `None` if the secret is not sent to a base URL.
fn named_secrets(raw: &RawConfig) -> Vec<(String, Option<Uri>)> {
    let mut secrets = Vec::new();
    note_secrets(&Value::Object(written_settings(raw)), None, &mut secrets);
    secrets
}

/// Notes the secrets of a value of the settings; `base_url` is that of the tables around it.
fn note_secrets(value: &Value, base_url: Option<&Uri>, secrets: &mut Vec<(String, Option<Uri>)>) {
    match value {
        Value::Array(items) => {
            for item in items {
                note_secrets(item, base_url, secrets);
            }
        }
        Value::Object(table) => {
            let url = ["base_url", "url"].iter().find_map(|name| table.get(*name)?.as_str());
            let url = url.and_then(|text| address::base_url(text, true).ok());
            let base_url = url.as_ref().or(base_url);
            for (name, value) in table {
                match value["env"].as_str() {
                    Some(variable) => {
                        let base_url = base_url.filter(|_| !TOKEN_SECRETS.contains(&name.as_str()));
                        secrets.push((variable.to_owned(), base_url.cloned()));
                    }
                    None => note_secrets(value, base_url, secrets),
                }
            }
        }
        _ => {}
    }
}
