//! The methods that take single values: `value`, `text`, `number` and others. Each shows the value in force under its
//! setting, as TOML, for `imagate config show`, and returns it. A value that does not apply is returned without them.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::ConfigResolver;
use crate::gateway::config::config_file::join_path;
use crate::gateway::config::config_printer::EffectiveSetting;
use crate::gateway::config::problem::{ConfigLocation, ConfigProblem};
use crate::gateway::config::raw::RawDuration;
use crate::gateway::config::{ConfigSecret, SettingSource, duration};

/// The text in place of a secret.
pub(super) const REDACTED: &str = "[redacted]";

impl ConfigResolver<'_> {
    /// Reports a problem with a setting at the location where it was set, unless the reader of the file has already
    /// reported one.
    pub(super) fn report(&mut self, setting: &str, fault: &str) {
        if !self.written.file.has_reported_problem(setting) {
            self.problems.push(self.problem(setting, fault));
        }
    }

    pub(super) fn problem(&self, setting: &str, fault: &str) -> ConfigProblem {
        let location = match self.written.sources.get(setting) {
            Some(SettingSource::Named(name)) => ConfigLocation::Named((*name).to_owned()),
            _ => self.written.file.location(setting),
        };
        let name = setting.rsplit('.').next().unwrap_or(setting);
        ConfigProblem::new(location, format!("`{name}` {fault}")).with_setting(setting)
    }

    /// Returns a value that was parsed, or reports its fault.
    pub(super) fn accept<T>(&mut self, setting: &str, parsed: Result<T, impl AsRef<str>>) -> Option<T> {
        parsed.map_err(|fault| self.report(setting, fault.as_ref())).ok()
    }

    /// Parses each text of a list; an invalid one is reported with its place and left out.
    pub(super) fn each<T>(
        &mut self,
        setting: &str,
        texts: Option<&[String]>,
        parse: impl Fn(&str) -> Result<T, &'static str>,
    ) -> Vec<T> {
        let texts = texts.unwrap_or_default().iter().enumerate();
        texts.filter_map(|(index, text)| self.accept(&format!("{setting}[{index}]"), parse(text))).collect()
    }

    /// Notes the value of a setting, which is valid TOML.
    pub(super) fn show(&mut self, table: &str, name: &str, value: String) {
        let (table, name) = (table.to_owned(), name.to_owned());
        self.settings.push(EffectiveSetting { table, name, value, secret: None });
    }

    /// Takes a value. One that is absent is not shown.
    pub(super) fn value<T: Serialize>(&mut self, table: &str, name: &str, value: T) -> T {
        if let Ok(shown) = toml::Value::try_from(&value) {
            self.show(table, name, shown.to_string());
        }
        value
    }

    /// Notes all values of a table that are set. They were read from TOML or JSON, so each can be written as TOML.
    pub(super) fn table(&mut self, path: &str, table: &impl Serialize) {
        let entries = toml::Table::try_from(table).unwrap_or_default();
        entries.into_iter().for_each(|(name, value)| self.show(path, &name, value.to_string()));
    }

    /// Takes a written value, or else the default.
    pub(super) fn value_or<T: Serialize>(&mut self, table: &str, name: &str, written: Option<T>, default: T) -> T {
        self.value(table, name, written.unwrap_or(default))
    }

    /// Takes a written value, or else the default of its type.
    pub(super) fn value_or_default<T: Serialize + Default>(
        &mut self,
        table: &str,
        name: &str,
        written: Option<T>,
    ) -> T {
        self.value(table, name, written.unwrap_or_default())
    }

    /// Takes a value that is written as a text.
    pub(super) fn text<T: Display>(&mut self, table: &str, name: &str, value: T) -> T {
        self.show(table, name, quoted(&value.to_string()));
        value
    }

    /// Takes a list whose entries are written as texts. An empty list is not shown.
    pub(super) fn texts<T: Display>(&mut self, table: &str, name: &str, values: Vec<T>) -> Vec<T> {
        if !values.is_empty() {
            self.value(table, name, values.iter().map(ToString::to_string).collect::<Vec<_>>());
        }
        values
    }

    /// Takes an amount in dollars or another number that is written as it is displayed.
    pub(super) fn number<T: Display>(&mut self, table: &str, name: &str, value: Option<T>) -> Option<T> {
        if let Some(number) = &value {
            self.show(table, name, number.to_string());
        }
        value
    }

    /// Notes a table with names that somebody chooses, in one line. The values are valid TOML.
    pub(super) fn entries(
        &mut self,
        table: &str,
        name: &str,
        entries: impl Iterator<Item = (impl AsRef<str>, String)>,
    ) {
        let entries: Vec<_> = entries.map(|(key, value)| format!("{} = {value}", quoted(key.as_ref()))).collect();
        if !entries.is_empty() {
            self.show(table, name, format!("{{ {} }}", entries.join(", ")));
        }
    }

    /// Takes a secret, which is not shown.
    pub(super) fn secret(&mut self, table: &str, name: &str, secret: Option<ConfigSecret>) -> Option<ConfigSecret> {
        if secret.is_some() {
            let (table, name, secret) = (table.to_owned(), name.to_owned(), secret.clone());
            self.settings.push(EffectiveSetting { table, name, value: quoted(REDACTED), secret });
        }
        secret
    }

    /// Takes a number of megabytes as bytes.
    pub(super) fn megabytes(&mut self, table: &str, name: &str, count: Option<u32>, default: u64) -> u64 {
        let bytes = count.map_or(default, |count| u64::from(count) << 20);
        self.value(table, name, bytes >> 20);
        bytes
    }

    /// Takes a folder.
    pub(super) fn folder(&mut self, setting: &str, path: PathBuf) -> PathBuf {
        self.text("", setting, path.display());
        path
    }

    /// Resolves a path. A relative path in the file starts at the file's folder, so that every command finds the data.
    pub(super) fn resolve_path(&mut self, setting: &str, path: &Path) -> PathBuf {
        if path.starts_with("~") {
            self.report(setting, "begins with `~`, which only a shell expands; write the full path");
        }
        match self.written.sources.get(setting) {
            Some(SettingSource::File) => self.written.file.folder.join(path),
            _ => path.to_path_buf(),
        }
    }

    /// Takes a duration, or else the default. The default is not checked against the bounds.
    pub(super) fn duration(
        &mut self,
        (table, name): (&str, &str),
        written: Option<&RawDuration>,
        bounds: RangeInclusive<Duration>,
        default: Duration,
    ) -> Duration {
        let period = self.optional_duration(table, name, written, bounds);
        period.unwrap_or_else(|| self.show_duration(table, name, default))
    }

    /// Takes a duration that may be absent.
    pub(super) fn optional_duration(
        &mut self,
        table: &str,
        name: &str,
        written: Option<&RawDuration>,
        bounds: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let setting = join_path(table, name);
        let Some(period) = duration::parse(&written?.0) else {
            self.report(&setting, &format!("must be {}", duration::EXPECTED));
            return None;
        };
        if !bounds.contains(&period) {
            let (shortest, longest) = (duration::format(*bounds.start()), duration::format(*bounds.end()));
            self.report(&setting, &format!("must be from {shortest} to {longest}"));
        }
        Some(self.show_duration(table, name, period))
    }

    fn show_duration(&mut self, table: &str, name: &str, period: Duration) -> Duration {
        self.show(table, name, quoted(&duration::format(period)));
        period
    }
}

/// Returns a text as TOML.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
