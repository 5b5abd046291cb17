//! The settings in force as text: `config show` prints them as TOML, with the source of each value and without secrets.

use std::fmt::Write as _;

use super::config_file::{join_path, table_path};
use super::{Config, ConfigSecret, SettingSource};

/// The order in which tables are printed. The settings that are in no table come first.
const TABLES: [&str; 12] = [
    "connections",
    "deadlines",
    "replay",
    "uploads",
    "remote_images",
    "retention",
    "alerts",
    "oidc",
    "models",
    "prices",
    "accounts",
    "groups",
];

/// A setting with its value in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EffectiveSetting {
    /// The table, such as `accounts[0]`; empty at the top of the file.
    pub(super) table: String,
    pub(super) name: String,
    /// The value as TOML, without secrets.
    pub(super) value: String,
    /// The secret that the value does not show.
    pub(super) secret: Option<ConfigSecret>,
}

// === impl EffectiveSetting ===

impl EffectiveSetting {
    /// The path of the setting, such as `accounts[0].tier`.
    pub(super) fn path(&self) -> String {
        join_path(&self.table, &self.name)
    }

    /// The name at the top of the file: that of the outermost table, or of the setting itself.
    pub(super) fn top_name(&self) -> &str {
        let path = if self.table.is_empty() { &self.name } else { &self.table };
        path.split(['.', '[']).next().unwrap_or(path)
    }
}

// === impl Config ===

impl Config {
    /// Returns every setting with its value and source, in the form of the file.
    pub(crate) fn to_annotated_toml(&self) -> String {
        let mut settings: Vec<&EffectiveSetting> = self.settings.iter().collect();
        settings.sort_by_key(|setting| TABLES.iter().position(|table| *table == setting.top_name()));
        let (mut text, mut table) = (String::new(), "");
        for setting in settings {
            if setting.table != table {
                table = &setting.table;
                text.push_str(&header(table));
            }
            let source = match self.sources.get(&setting.path()).copied().unwrap_or_default() {
                SettingSource::Default => "default",
                SettingSource::File => "file",
                SettingSource::Named(name) => name,
            };
            // Writing into a string cannot fail.
            let _ = writeln!(text, "{:40} # {source}", format!("{} = {}", setting.name, setting.value));
        }
        text
    }
}

/// Returns the header of a table, after an empty line.
fn header(table: &str) -> String {
    let name = table_path(table);
    if table.ends_with(']') { format!("\n[[{name}]]\n") } else { format!("\n[{name}]\n") }
}
