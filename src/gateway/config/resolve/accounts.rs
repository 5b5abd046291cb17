//! Resolves accounts: their names, the groups that they serve, and their concurrency.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use super::ConfigResolver;
use crate::gateway::config::problem::did_you_mean;
use crate::gateway::config::raw::{AccountKind, RawAccount};
use crate::gateway::config::{AccountConfig, AccountTier, DEFAULT_GROUP, GroupConfig};

/// The default numbers of slots (our choice): standard images are cheap for an upstream; the number for large images is
/// low, as the specification demands.
const DEFAULT_CONCURRENCY: u32 = 8;
const DEFAULT_LARGE_CONCURRENCY: u32 = 2;
/// The longest name of an account or group, in bytes (our choice).
const LONGEST_NAME: usize = 64;

impl ConfigResolver<'_> {
    /// Resolves the accounts of the file, or returns the simulator if it has none. If `groups` is `None`, accounts may
    /// name any group.
    pub(crate) fn accounts(&mut self, groups: Option<&[GroupConfig]>) -> Vec<AccountConfig> {
        let mut used_names = BTreeSet::new();
        let mut accounts = Vec::new();
        for (index, account) in self.raw.accounts.iter().flatten().enumerate() {
            accounts.push(self.account(&format!("accounts[{index}]"), account, groups, &mut used_names));
        }
        if accounts.is_empty() {
            let (name, kind) = (Some("simulator".to_owned()), Some(AccountKind::Simulator));
            let simulator = RawAccount { name, kind, ..RawAccount::default() };
            let account = self.account("accounts[0]", &simulator, None, &mut used_names);
            accounts.push(AccountConfig { implicit: true, ..account });
        }
        accounts
    }

    fn account(
        &mut self,
        path: &str,
        raw: &RawAccount,
        groups: Option<&[GroupConfig]>,
        used_names: &mut BTreeSet<String>,
    ) -> AccountConfig {
        let name = self.check_name(path, raw.name.as_deref(), used_names);
        let target = self.call_target(path, raw);
        let concurrency = raw.concurrency.unwrap_or(DEFAULT_CONCURRENCY);
        let large_concurrency = raw.large_concurrency.unwrap_or(DEFAULT_LARGE_CONCURRENCY);
        AccountConfig {
            name,
            tier: self.value_or(path, "tier", raw.tier, AccountTier::Paid),
            groups: self.served_groups(path, raw, groups),
            priority: self.value_or_default(path, "priority", raw.priority),
            concurrency: self.value(path, "concurrency", at_least_one(concurrency)),
            large_concurrency: self.value(path, "large_concurrency", at_least_one(large_concurrency)),
            implicit: false,
            upstream: self.upstream(path, raw, target),
        }
    }

    /// Checks that logs, records and headers can carry a name, and that no other account or group of the list has the
    /// same name.
    pub(super) fn check_name(&mut self, path: &str, name: Option<&str>, used_names: &mut BTreeSet<String>) -> String {
        let (setting, name) = (&format!("{path}.name"), name.unwrap_or_default());
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(fits) {
            self.report(setting, &format!("must be 1 to {LONGEST_NAME} letters, digits, `.`, `_` or `-`"));
        } else if !used_names.insert(name.to_owned()) {
            self.report(setting, &format!("`{name}` is already used"));
        }
        self.text(path, "name", name.to_owned())
    }

    /// Resolves the groups that an account serves.
    fn served_groups(&mut self, path: &str, raw: &RawAccount, groups: Option<&[GroupConfig]>) -> Vec<String> {
        let setting = &format!("{path}.groups");
        if raw.groups.as_ref().is_some_and(Vec::is_empty) {
            self.report(setting, "must name at least one group; otherwise no key can use the account");
        }
        if let (Some(names), Some(groups)) = (&raw.groups, groups) {
            self.check_groups(setting, names, groups);
        }
        self.texts(path, "groups", raw.groups.clone().unwrap_or_else(|| vec![DEFAULT_GROUP.to_owned()]))
    }

    /// Checks that each name is that of a group.
    pub(super) fn check_groups(&mut self, setting: &str, names: &[String], groups: &[GroupConfig]) {
        let group_names = || groups.iter().map(|group| group.name.as_str());
        for (index, name) in names.iter().enumerate() {
            if !group_names().any(|group| group == name) {
                let advice = did_you_mean(name, group_names());
                self.report(
                    &format!("{setting}[{index}]"),
                    &format!("names `{}`, which is not a group{advice}", name.escape_debug()),
                );
            }
        }
    }
}

/// Converts a count. The schema check has already reported a count of 0, so 1 takes its place.
fn at_least_one(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN)
}
