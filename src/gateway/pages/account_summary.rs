//! An account as the pages show it: its state, its load and its calls, in a form that the templates can print.

use chrono::{DateTime, Utc};

use super::language::word_key;
use crate::gateway::console::DEFAULT_DISABLED_REASON;
use crate::wire::admin::types;

/// The cause of a cooldown for which the usage window of the account is used up.
const EXHAUSTED: &str = "exhausted";
/// The word for a usage window of texts that is used up.
const TEXT_EXHAUSTED: &str = "text_exhausted";

/// An account with everything that a page says about its state.
pub(super) struct AccountSummary {
    pub(super) account: types::Account,
    /// The path of the page of the account.
    pub(super) path: String,
    pub(super) state: StateText,
    pub(super) load: Option<AccountLoad>,
    pub(super) calls: Option<AccountCalls>,
    /// True if the account gets requests.
    pub(super) is_serving: bool,
    /// True if the settings file defines the account.
    pub(super) is_of_file: bool,
}

/// The state of an account in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StateText {
    /// The CSS class.
    pub(super) tone: &'static str,
    /// The key of the text for the state.
    pub(super) label: &'static str,
    /// The key of the text for the cause or the consequence.
    pub(super) note: Option<&'static str>,
    /// The reason as the gateway or an operator has given it.
    pub(super) detail: Option<String>,
    /// The end of the state.
    pub(super) until: Option<DateTime<Utc>>,
}

/// The slots of an account.
pub(super) struct AccountLoad {
    pub(super) used: u64,
    pub(super) slots: i64,
    pub(super) used_large: u64,
    pub(super) large_slots: i64,
}

/// The calls of an account in the last hour.
pub(super) struct AccountCalls {
    pub(super) total: u64,
    pub(super) failed: u64,
    /// The share of failed calls in percent: neither 0 nor 100 if there are calls of both kinds.
    pub(super) failed_percent: u64,
    pub(super) median_ms: Option<u64>,
    pub(super) p95_ms: Option<u64>,
    pub(super) last_failure: Option<types::AccountFailure>,
}

// === impl AccountSummary ===

impl AccountSummary {
    pub(super) fn new(account: types::Account) -> Self {
        Self {
            path: format!("/accounts/{}", account.id),
            state: state_text(&account),
            load: load(&account),
            calls: calls(&account),
            is_serving: account.state == types::AccountState::Enabled,
            is_of_file: account.source == types::AccountSource::File,
            account,
        }
    }

    /// True if the account serves this group.
    pub(super) fn serves(&self, group: &str) -> bool {
        self.account.groups.iter().any(|name| name == group)
    }

    /// True if the account has an upstream.
    pub(super) fn has_upstream(&self) -> bool {
        self.account.kind != types::AccountKind::Simulator
    }

    /// True if an admin has disabled the account, or the gateway has.
    pub(super) fn is_disabled(&self) -> bool {
        self.account.disabled_at.is_some()
    }

    /// True if enabling the account ends its state.
    pub(super) fn can_be_enabled(&self) -> bool {
        use types::AccountState::{CoolingDown, Disabled, Failing};
        self.is_disabled() || matches!(self.account.state, Disabled | Failing | CoolingDown)
    }
}

fn load(account: &types::Account) -> Option<AccountLoad> {
    let activity = account.activity.as_ref()?;
    Some(AccountLoad {
        used: activity.slots_in_use,
        slots: account.concurrency.as_ref()?.get(),
        used_large: activity.large_slots_in_use,
        large_slots: account.large_concurrency.as_ref()?.get(),
    })
}

fn calls(account: &types::Account) -> Option<AccountCalls> {
    let activity = account.activity.as_ref()?;
    let total = activity.succeeded.saturating_add(activity.failed);
    Some(AccountCalls {
        total,
        failed: activity.failed,
        failed_percent: percent(activity.failed, total),
        median_ms: activity.latency_p50_ms,
        p95_ms: activity.latency_p95_ms,
        last_failure: activity.last_failure.clone(),
    })
}

/// The share in percent, rounded. A part is shown neither as nothing nor as the whole.
fn percent(part: u64, whole: u64) -> u64 {
    let rounded = part.saturating_mul(200).saturating_add(whole) / whole.saturating_mul(2).max(1);
    if part == 0 || part == whole { rounded } else { rounded.clamp(1, 99) }
}

fn state_text(account: &types::Account) -> StateText {
    let text = |tone, label| StateText { tone, label, note: None, detail: None, until: account.cooling_until };
    match account.state {
        types::AccountState::Enabled => serving_text(account),
        types::AccountState::Disabled => {
            let reason = account.disabled_reason.clone().filter(|reason| reason != DEFAULT_DISABLED_REASON);
            StateText { detail: reason, ..text("bad", "state.disabled") }
        }
        types::AccountState::CoolingDown => {
            let cause = account.cooling_cause.as_deref().unwrap_or_default();
            let note = Some(word_key("cause", cause)).filter(|key| !key.is_empty());
            let label =
                if [EXHAUSTED, TEXT_EXHAUSTED].contains(&cause) { "accounts.quota_used" } else { "state.cooling_down" };
            let detail = account.cooling_cause.clone().filter(|_| note.is_none());
            StateText { note, detail, ..text("warn", label) }
        }
        types::AccountState::Failing => {
            let is_testing = account.cooling_until.is_none();
            let note = if is_testing { "accounts.ejection_ends" } else { "accounts.ejection" };
            StateText { note: Some(note), detail: account.cooling_cause.clone(), ..text("bad", "accounts.ejected") }
        }
        types::AccountState::Unusable => StateText { detail: account.problem.clone(), ..text("bad", "state.unusable") },
    }
}

/// The text for an account that gets requests. An account that fails them must not look healthy.
fn serving_text(account: &types::Account) -> StateText {
    let (succeeded, failed) = account.activity.as_ref().map_or((0, 0), |calls| (calls.succeeded, calls.failed));
    let (tone, label) = match (succeeded, failed) {
        (_, 0) => ("good", "accounts.serving"),
        (0, _) => ("bad", "accounts.all_fail"),
        _ if failed >= succeeded => ("warn", "accounts.many_fail"),
        _ => ("good", "accounts.serving"),
    };
    StateText { tone, label, note: None, detail: None, until: None }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn account(fields: &Value) -> types::Account {
        let mut account = json!({
            "id": "acc_1", "name": "a", "source": "store", "kind": "api_key", "tier": "paid", "state": "enabled",
            "concurrency": 8, "large_concurrency": 2, "created_at": "2026-11-21T03:00:00Z",
        });
        let fields = fields.as_object().unwrap().clone();
        account.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(account).unwrap()
    }

    fn calls_of(succeeded: u64, failed: u64) -> types::Account {
        account(&json!({"activity": {
            "slots_in_use": 3, "large_slots_in_use": 1, "succeeded": succeeded, "failed": failed,
            "counted_since": "2026-11-21T03:00:00Z",
        }}))
    }

    #[test]
    fn an_account_that_fails_its_calls_does_not_look_healthy() {
        for (succeeded, failed, tone, percent) in
            [(0, 0, "good", 0), (0, 17, "bad", 100), (5, 5, "warn", 50), (999, 1, "good", 1), (1, 999, "warn", 99)]
        {
            let summary = AccountSummary::new(calls_of(succeeded, failed));
            assert_eq!(summary.state.tone, tone, "{succeeded} {failed}");
            assert_eq!(summary.calls.map(|calls| calls.failed_percent), Some(percent));
        }
    }

    #[test]
    fn every_temporary_state_states_its_cause_and_its_end() {
        let until = json!("2026-11-21T03:30:00Z");
        let text = |fields: Value| AccountSummary::new(account(&fields)).state;
        let quota = text(json!({"state": "cooling_down", "cooling_cause": "exhausted", "cooling_until": until}));
        assert_eq!((quota.label, quota.until.is_some()), ("accounts.quota_used", true));
        for cause in ["throttled", "text_exhausted", "text_throttled", "unauthorized", "token"] {
            let state = text(json!({"state": "cooling_down", "cooling_cause": cause, "cooling_until": until}));
            assert!(state.note.is_some() && state.detail.is_none(), "{cause}");
        }
        let unknown = text(json!({"state": "cooling_down", "cooling_cause": "new", "cooling_until": until}));
        assert_eq!((unknown.note, unknown.detail.as_deref()), (None, Some("new")));
        let ejected = text(json!({"state": "failing", "cooling_cause": "3 failed", "cooling_until": until}));
        let testing = text(json!({"state": "failing"}));
        assert_eq!((ejected.note, testing.note), (Some("accounts.ejection"), Some("accounts.ejection_ends")));
    }
}
