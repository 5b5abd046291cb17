//! Resolves accounts: their names, the groups that they serve, and their concurrency.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use super::ConfigResolver;
use crate::gateway::config::problem::did_you_mean;
use crate::gateway::config::raw::RawAccount;
use crate::gateway::config::{AccountConfig, AccountTier, DEFAULT_GROUP, GroupConfig, UpstreamConfig};

/// The default numbers of slots (our choice): standard images are cheap for an upstream; the number for large images is
/// low, as the specification demands.
const DEFAULT_CONCURRENCY: u32 = 8;
const DEFAULT_LARGE_CONCURRENCY: u32 = 2;
/// The longest name of an account or group, in bytes (our choice).
const LONGEST_NAME: usize = 64;

impl ConfigResolver<'_> {
    /// Resolves the accounts of the file, or returns the simulator if it has none. If `groups` is `None`, accounts may
    /// name any group.
    pub(super) fn accounts(&mut self, groups: Option<&[GroupConfig]>) -> Vec<AccountConfig> {
        let raw = self.layers.file.raw.accounts.as_deref().unwrap_or_default();
        let mut used_names = BTreeSet::new();
        let mut accounts = Vec::new();
        for (index, account) in raw.iter().enumerate() {
            let path = format!("accounts[{index}]");
            let name = self.check_name(&format!("{path}.name"), account.name.as_deref(), &mut used_names);
            accounts.push(AccountConfig {
                name,
                groups: self.served_groups(&format!("{path}.groups"), account, groups),
                tier: account.tier.unwrap_or(AccountTier::Paid),
                priority: account.priority.unwrap_or_default(),
                concurrency: at_least_one(account.concurrency.unwrap_or(DEFAULT_CONCURRENCY)),
                large_concurrency: at_least_one(account.large_concurrency.unwrap_or(DEFAULT_LARGE_CONCURRENCY)),
                implicit: false,
                upstream: self.upstream(&path, account).unwrap_or(UpstreamConfig::Simulator),
            });
        }
        if accounts.is_empty() {
            accounts.push(implicit_simulator());
        }
        accounts
    }

    /// Checks that logs, records and headers can carry a name, and that no other account or group of the list has the
    /// same name.
    pub(super) fn check_name(
        &mut self,
        setting: &str,
        name: Option<&str>,
        used_names: &mut BTreeSet<String>,
    ) -> String {
        let name = name.unwrap_or_default();
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(fits) {
            self.report(setting, &format!("must be 1 to {LONGEST_NAME} letters, digits, `.`, `_` or `-`"));
        } else if !used_names.insert(name.to_owned()) {
            self.report(setting, &format!("`{name}` is already used"));
        }
        name.to_owned()
    }

    /// Resolves the groups that an account serves.
    fn served_groups(&mut self, setting: &str, account: &RawAccount, groups: Option<&[GroupConfig]>) -> Vec<String> {
        let Some(names) = &account.groups else { return vec![DEFAULT_GROUP.to_owned()] };
        if names.is_empty() {
            self.report(setting, "must name at least one group; otherwise no key can use the account");
        }
        if let Some(groups) = groups {
            self.check_groups(setting, names, groups);
        }
        names.clone()
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

/// Returns the account that is used if none is configured.
fn implicit_simulator() -> AccountConfig {
    AccountConfig {
        name: "simulator".to_owned(),
        upstream: UpstreamConfig::Simulator,
        tier: AccountTier::Paid,
        groups: vec![DEFAULT_GROUP.to_owned()],
        priority: 0,
        concurrency: at_least_one(DEFAULT_CONCURRENCY),
        large_concurrency: at_least_one(DEFAULT_LARGE_CONCURRENCY),
        implicit: true,
    }
}

/// Converts a count. The schema check has already reported a count of 0, so 1 takes its place.
fn at_least_one(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN)
}
