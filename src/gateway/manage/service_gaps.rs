//! The groups that no enabled account could serve if an account were disabled or deleted.

use super::{AccountStatus, ManagedAccount};
use crate::gateway::config::{AccountProtocol, UpstreamConfig};
use crate::gateway::store::Timestamp;

/// A group that would be left without some of its service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceGap {
    /// The name of the group.
    pub(crate) group: String,
    /// The number of keys in the group.
    pub(crate) keys: u64,
    /// True if no other enabled account can make images for the group.
    pub(crate) lacks_images: bool,
    /// True if the account offers the Responses API, and no other enabled account of the group does.
    pub(crate) lacks_responses: bool,
}

/// Returns the groups that the account with this name serves now, and that no other enabled account could serve without
/// it. `groups` are the existing groups with the numbers of their keys. Accounts in a cooldown count as enabled.
pub(crate) fn service_gaps(
    accounts: &[ManagedAccount],
    groups: &[(String, u64)],
    name: &str,
    now: Timestamp,
) -> Vec<ServiceGap> {
    let serves = |managed: &ManagedAccount, group: &str, needs_text: bool| {
        let is_enabled = !matches!(managed.status(now), AccountStatus::Disabled(..) | AccountStatus::Unusable(_));
        let account = managed.account.as_ref().ok().filter(|_| is_enabled);
        account.is_some_and(|account| {
            account.groups.iter().any(|name| name == group) && (!needs_text || serves_text(&account.upstream))
        })
    };
    let is_lost = |group: &str, needs_text: bool| {
        let mut serving = accounts.iter().filter(|managed| serves(managed, group, needs_text)).peekable();
        serving.peek().is_some() && serving.all(|managed| managed.name == name)
    };
    let gaps = groups.iter().map(|(group, keys)| ServiceGap {
        lacks_images: is_lost(group, false),
        lacks_responses: is_lost(group, true),
        group: group.clone(),
        keys: *keys,
    });
    gaps.filter(|gap| gap.lacks_images || gap.lacks_responses).collect()
}

/// True if an upstream offers the Responses API. Every upstream can make images.
const fn serves_text(upstream: &UpstreamConfig) -> bool {
    match upstream {
        UpstreamConfig::Simulator => true,
        UpstreamConfig::Api(endpoint) => matches!(endpoint.protocol, AccountProtocol::Responses),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::gateway::config;
    use crate::gateway::manage::AccountSource;

    fn account(name: &str, protocol: &str, groups: &str) -> ManagedAccount {
        let settings = format!(
            r#"{{"kind": "api_key", "base_url": "https://a.example", "protocol": "{protocol}", "groups": {groups}}}"#
        );
        let secrets = BTreeMap::from([("api_key".to_owned(), "k".to_owned())]);
        let account = config::account_from_json(name, &settings, secrets, true).map_err(|_| String::new());
        assert!(account.is_ok(), "{settings}");
        ManagedAccount { name: name.to_owned(), origin: AccountSource::Store, account, row: None }
    }

    fn gap(group: &str, keys: u64, lacks_images: bool, lacks_responses: bool) -> ServiceGap {
        ServiceGap { group: group.to_owned(), keys, lacks_images, lacks_responses }
    }

    #[test]
    fn a_group_that_only_this_account_serves_is_a_gap() {
        let accounts = [
            account("both", "responses", r#"["default", "art", "empty", "gone"]"#),
            account("images", "images", r#"["default"]"#),
            ManagedAccount { account: Err("broken".to_owned()), ..account("broken", "images", r#"["art"]"#) },
        ];
        let groups =
            [("default", 3), ("art", 2), ("empty", 0), ("other", 7)].map(|(name, keys)| (name.to_owned(), keys));
        let gaps = |name: &str| service_gaps(&accounts, &groups, name, Timestamp::now());
        let expected = [gap("default", 3, false, true), gap("art", 2, true, true), gap("empty", 0, true, true)];
        assert_eq!(gaps("both"), expected);
        assert_eq!(gaps("images"), []);
        assert_eq!(gaps("broken"), [], "it serves nobody now");
    }
}
