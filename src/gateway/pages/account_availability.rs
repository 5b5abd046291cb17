//! The time at which the accounts of a group can be asked again, for the explanation of a failure. Pure.

use chrono::{DateTime, Utc};

use crate::wire::admin::types::{Account, AccountState};

/// The time at which the accounts of a group can be asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccountAvailability {
    /// At least one account can be asked now.
    Now,
    /// The first account can be asked again at this time.
    From(DateTime<Utc>),
    /// No account can be asked before an operator changes one.
    Never,
}

// === impl AccountAvailability ===

impl AccountAvailability {
    /// Returns the time at which the accounts of the group can be asked again, if such a time matters for the failure;
    /// `None` if the group has no accounts.
    pub(super) fn of_group(group: &str, accounts: &[Account], now: DateTime<Utc>) -> Option<Self> {
        let serves_group = |account: &&Account| account.groups.iter().any(|name| name == group);
        let availabilities = accounts.iter().filter(serves_group).map(|account| match account.state {
            AccountState::Enabled => Self::Now,
            AccountState::CoolingDown | AccountState::Failing => match account.cooling_until {
                Some(until) if until > now => Self::From(until),
                _ => Self::Now,
            },
            AccountState::Disabled | AccountState::Unusable => Self::Never,
        });
        availabilities.reduce(Self::earlier)
    }

    fn earlier(self, other: Self) -> Self {
        match (self, other) {
            (Self::Now, _) | (_, Self::Now) => Self::Now,
            (Self::From(one), Self::From(other)) => Self::From(one.min(other)),
            (Self::From(at), Self::Never) | (Self::Never, Self::From(at)) => Self::From(at),
            (Self::Never, Self::Never) => Self::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_account_that_can_be_asked_decides_the_time() {
        let now: DateTime<Utc> = "2026-11-21T03:00:00Z".parse().unwrap();
        let at = |minute: u32| format!("2026-11-21T03:{minute:02}:00Z");
        let account = |state: &str, group: &str, until: Option<String>| -> Account {
            let account = json!({
                "id": "acc_1", "name": "a", "kind": "api_key", "base_url": "http://a.example", "tier": "paid",
                "groups": [group], "priority": 0, "concurrency": 1, "source": "file", "state": state,
                "cooling_until": until, "protocol": "images", "created_at": now, "object": "account",
            });
            serde_json::from_value(account).unwrap()
        };
        let of = |accounts: &[Account]| AccountAvailability::of_group("default", accounts, now);
        let (off, elsewhere) = (account("disabled", "default", None), account("enabled", "other", None));
        let (later, soon) =
            (account("cooling_down", "default", Some(at(9))), account("failing", "default", Some(at(5))));
        assert_eq!(of(std::slice::from_ref(&elsewhere)), None);
        assert_eq!(of(&[off.clone(), elsewhere]), Some(AccountAvailability::Never));
        assert_eq!(of(&[off, later.clone(), soon.clone()]), Some(AccountAvailability::From(at(5).parse().unwrap())));
        assert_eq!(of(&[later, soon, account("enabled", "default", None)]), Some(AccountAvailability::Now));
        assert_eq!(
            of(&[account("cooling_down", "default", Some("2026-11-21T02:00:00Z".to_owned()))]),
            Some(AccountAvailability::Now)
        );
    }
}
