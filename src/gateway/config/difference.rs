//! Compares a configuration that was read while the gateway runs with the one in force.
//!
//! A difference holds names only and no values, so it can be logged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::Config;
use super::config_printer::EffectiveSetting;

/// The tables whose entries are compared one by one.
const LISTS: [&str; 3] = ["models", "accounts", "groups"];

/// The differences between a new configuration and the one in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfigDifference {
    accounts: NameDifference,
    groups: NameDifference,
    models: NameDifference,
    aliases: NameDifference,
    /// Changed settings outside of these tables that take effect without a restart.
    settings: Vec<String>,
    /// Settings that take effect only at the next start.
    restart: Vec<&'static str>,
}

/// The differences between two lists of named entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NameDifference {
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<String>,
}

/// Sets each of these settings back to the value in force, and lists the names of those that were different.
macro_rules! restore_settings {
    ($new:ident, $in_force:ident, $($field:ident),*) => {{
        let mut restored = Vec::new();
        $(if $new.$field != $in_force.$field {
            restored.push(stringify!($field));
            $new.$field.clone_from(&$in_force.$field);
        })*
        restored
    }};
}

// === impl Config ===

impl Config {
    /// Changes this new configuration so that it can come into force in the running process, and returns the
    /// differences. Settings that a running process cannot change are set back to the values in force.
    pub(crate) fn reconcile_with(&mut self, in_force: &Self) -> ConfigDifference {
        let new = self;
        let mut restart = restore_settings!(
            new,
            in_force,
            listen,
            metrics_listen,
            public_url,
            data_dir,
            skills_dir,
            durability,
            log_format,
            connections,
            replay,
            retention,
            uploads,
            database_url,
            master_key,
            allow_link_local
        );
        if new.deadlines.connect != in_force.deadlines.connect {
            restart.push("deadlines.connect");
            new.deadlines.connect = in_force.deadlines.connect;
            for group in &mut new.groups {
                group.deadlines.connect = in_force.deadlines.connect;
            }
        }
        let is_restored = |setting: &&EffectiveSetting| {
            restart.iter().any(|name| *name == setting.top_name() || *name == setting.path())
        };
        new.settings.retain(|setting| !is_restored(&setting));
        new.settings.extend(in_force.settings.iter().filter(is_restored).cloned());
        ConfigDifference {
            accounts: NameDifference::between(&in_force.accounts, &new.accounts, |account| &account.name),
            groups: NameDifference::between(&in_force.groups, &new.groups, |group| &group.name),
            models: NameDifference::between(&in_force.image_models, &new.image_models, |model| &model.id),
            aliases: NameDifference::between(&in_force.model_aliases, &new.model_aliases, |alias| &alias.alias),
            settings: new.changed_settings(in_force),
            restart,
        }
    }

    /// The names at the top of the file whose settings differ, without those of [`LISTS`].
    fn changed_settings(&self, in_force: &Self) -> Vec<String> {
        let values = |config: &Self, name: &str| -> BTreeMap<String, EffectiveSetting> {
            let settings = config.settings.iter().filter(|setting| setting.top_name() == name);
            settings.map(|setting| (setting.path(), setting.clone())).collect()
        };
        let names = self.settings.iter().chain(&in_force.settings).map(EffectiveSetting::top_name);
        let names: BTreeSet<&str> = names.filter(|name| !LISTS.contains(name)).collect();
        let changed = names.into_iter().filter(|name| values(self, name) != values(in_force, name));
        changed.map(str::to_owned).collect()
    }
}

// === impl ConfigDifference ===

impl ConfigDifference {
    /// The settings that take effect only at the next start.
    pub(crate) fn restart_settings(&self) -> &[&'static str] {
        &self.restart
    }
}

impl fmt::Display for ConfigDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for (kind, names) in [
            ("accounts", &self.accounts),
            ("groups", &self.groups),
            ("models", &self.models),
            ("aliases of models", &self.aliases),
        ] {
            let lists = [("added", &names.added), ("removed", &names.removed), ("changed", &names.changed)];
            let lists = lists.into_iter().filter(|(_, names)| !names.is_empty());
            parts.extend(lists.map(|(change, names)| format!("{kind} {change}: {}", names.join(", "))));
        }
        if !self.settings.is_empty() {
            parts.push(format!("settings changed: {}", self.settings.join(", ")));
        }
        if !self.restart.is_empty() {
            parts.push(format!("effective after a restart: {}", self.restart.join(", ")));
        }
        if parts.is_empty() { f.write_str("nothing has changed") } else { f.write_str(&parts.join("; ")) }
    }
}

// === impl NameDifference ===

impl NameDifference {
    fn between<T: PartialEq>(before: &[T], now: &[T], name: impl Fn(&T) -> &String) -> Self {
        let find = |entries: &[T], wanted: &T| entries.iter().position(|entry| name(entry) == name(wanted));
        let only_in = |first: &[T], second: &[T]| {
            first.iter().filter(|entry| find(second, entry).is_none()).map(|entry| name(entry).clone()).collect()
        };
        // Several entries may have the same name, and one of them may be gone.
        let differs = |others: &[T], entry: &T| find(others, entry).is_some() && !others.contains(entry);
        let changed = now.iter().filter(|entry| differs(before, entry));
        let changed = changed.chain(before.iter().filter(|entry| differs(now, entry)));
        let mut names: Vec<String> = Vec::new();
        for entry in changed {
            if !names.contains(name(entry)) {
                names.push(name(entry).clone());
            }
        }
        Self { added: only_in(now, before), removed: only_in(before, now), changed: names }
    }
}
