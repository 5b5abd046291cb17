//! Functions with which templates format values: numbers, times and states. They are methods of the layout, because
//! every template has the layout. Functions whose names end with `tone` return CSS classes; the other functions for
//! words of the API, such as states, roles and reasons, return keys of texts.

use std::borrow::Borrow;

use chrono::Utc;
use serde_json::Value;

use super::format::{self, CountValue, DateTimeValue, OptionalCountValue};
use super::language::{Language, word_key};
use super::limit_bars::{self, LimitBar};
use super::page_context::last_valid_day;
use super::page_layout::{PageLayout, Theme};
use crate::gateway::names;
use crate::gateway::store::UserId;
use crate::gateway::usage::RecordColumn;
use crate::wire::admin::types;

/// The text for an absent number.
fn absent_value() -> String {
    "–".to_owned()
}

// === impl PageLayout ===

#[expect(clippy::unused_self, reason = "a template can call functions only on its fields")]
impl PageLayout {
    pub(super) fn number(&self, number: impl CountValue) -> String {
        format::with_thousands_separators(number.count())
    }

    /// True if the user with this id has a page. The id [`UserId::NOBODY`] stands for no user, so it has no page.
    pub(super) fn has_user_page(&self, user: &str) -> bool {
        user != UserId::NOBODY
    }

    /// The name with its hidden characters escaped.
    pub(super) fn visible_name(&self, name: impl AsRef<str>) -> String {
        names::escape_hidden(name.as_ref()).into_owned()
    }

    /// Two numbers of pixels as a range.
    pub(super) fn pixel_range(&self, min: &u32, max: &u32) -> String {
        format!("{}–{}", self.number(i64::from(*min)), self.number(i64::from(*max)))
    }

    /// The number, or a dash if it is absent.
    pub(super) fn number_or_dash(&self, number: impl OptionalCountValue) -> String {
        number.optional_count().map_or_else(absent_value, format::with_thousands_separators)
    }

    /// The bars of limits.
    pub(super) fn limit_bars(&self, limits: &[types::LimitUsage]) -> Vec<LimitBar> {
        limit_bars::limit_bars(self.texts, limits, Utc::now())
    }

    /// The bar of the limit of which most is used.
    pub(super) fn tightest_limit(&self, limits: &[types::LimitUsage]) -> Option<LimitBar> {
        limit_bars::tightest_bar(self.texts, limits, Utc::now())
    }

    /// The number; zero if it is absent.
    pub(super) fn or_zero(&self, number: impl OptionalCountValue) -> i64 {
        number.optional_count().unwrap_or(0)
    }

    /// True if the number is positive.
    pub(super) fn is_positive(&self, number: impl CountValue) -> bool {
        number.count() > 0
    }

    /// The number, if it is known and positive.
    pub(super) fn positive(&self, number: impl OptionalCountValue) -> Option<i64> {
        number.optional_count().filter(|number| *number > 0)
    }

    /// The value of a column that has no form of its own: the text of its JSON, or nothing.
    pub(super) fn plain_cell(&self, column: &RecordColumn, record: &types::Record) -> String {
        // The record was made for JSON, so this cannot fail; without a value, the cell is empty.
        let record = serde_json::to_value(record).unwrap_or_default();
        match column.value(&record) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(items)) => items.len().to_string(),
            Some(value) if !value.is_null() => value.to_string(),
            _ => String::new(),
        }
    }

    /// The cost of a record.
    pub(super) fn exact_cost(&self, usd: &f64) -> String {
        format::dollars(*usd, 2..=6)
    }

    /// The cost of a record in a column of costs.
    pub(super) fn rounded_cost(&self, usd: &f64) -> String {
        format::dollars(*usd, if *usd > 0.0 { 4..=4 } else { 2..=4 })
    }

    /// A sum of known costs; a dash if nothing is known of the cost.
    pub(super) fn cost_sum(&self, usd: impl Borrow<Option<f64>>, unknown: impl OptionalCountValue) -> String {
        let has_unknown = self.positive(unknown).is_some();
        let sum = usd.borrow().filter(|sum| *sum > 0.0 || !has_unknown);
        sum.map_or_else(absent_value, |sum| format::dollars(sum, 2..=2))
    }

    /// A price of a model; a dash if it is unknown.
    pub(super) fn price_or_dash(&self, usd: impl Borrow<Option<f64>>) -> String {
        usd.borrow().map_or_else(absent_value, |usd| format::dollars(usd, 2..=9))
    }

    pub(super) fn latency(&self, milliseconds: impl OptionalCountValue) -> String {
        milliseconds.optional_count().map_or_else(absent_value, format::latency)
    }

    pub(super) fn machine_time(&self, at: impl DateTimeValue) -> String {
        format::machine_time(at.date_time())
    }

    pub(super) fn time_to_minute(&self, at: impl DateTimeValue) -> String {
        format::time_to_minute(at.date_time())
    }

    /// The time to the second.
    pub(super) fn time_to_second(&self, at: impl DateTimeValue) -> String {
        format::time_to_second(at.date_time())
    }

    /// The time since then, in words.
    pub(super) fn ago(&self, at: impl DateTimeValue) -> String {
        match format::elapsed(at.date_time(), Utc::now()) {
            Some((text, count)) => self.count(text, count),
            None => self.text("time.now").to_owned(),
        }
    }

    /// The last valid day of a key or token with this expiry.
    pub(super) fn last_day(&self, at: impl DateTimeValue) -> String {
        last_valid_day(at.date_time())
    }

    /// The name of a browser and its system, if they are known.
    pub(super) fn browser(&self, agent: &str) -> Option<String> {
        format::browser(agent)
    }

    pub(super) fn day(&self, at: impl DateTimeValue) -> String {
        at.date_time().date_naive().to_string()
    }

    pub(super) fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    pub(super) fn languages(&self) -> &'static [Language] {
        &Language::ALL
    }

    pub(super) fn themes(&self) -> &'static [Theme] {
        &Theme::ALL
    }

    pub(super) fn key_state(&self, state: &types::KeyState) -> &'static str {
        word_key("state", state)
    }

    /// The key of the text for the state of an API key. Keys that only an admin can enable have texts of their own.
    pub(super) fn key_state_text(&self, key: &types::Key) -> &'static str {
        match (&key.state, &key.locked) {
            (types::KeyState::Disabled, Some(types::KeyLock::Admin)) => "state.locked",
            (types::KeyState::Disabled, Some(types::KeyLock::LeftGroup)) => "state.left_group",
            (state, _) => self.key_state(state),
        }
    }

    pub(super) fn key_lock(&self, lock: &types::KeyLock) -> &'static str {
        match lock {
            types::KeyLock::Admin => "key.locked",
            types::KeyLock::LeftGroup => "key.left_group",
        }
    }

    pub(super) fn key_tone(&self, state: &types::KeyState) -> &'static str {
        match state {
            types::KeyState::Active => "good",
            types::KeyState::Disabled | types::KeyState::UserDisabled => "bad",
            types::KeyState::Expired => "warn",
        }
    }

    pub(super) fn record_state(&self, state: &types::RecordState) -> &'static str {
        word_key("state", state)
    }

    pub(super) fn record_tone(&self, state: &types::RecordState) -> &'static str {
        match state {
            types::RecordState::Succeeded => "good",
            types::RecordState::Running => "",
            types::RecordState::Refused | types::RecordState::Cancelled => "warn",
            types::RecordState::Failed | types::RecordState::Interrupted => "bad",
        }
    }

    pub(super) fn record_class(&self, class: &types::AttemptClass) -> &'static str {
        match class {
            types::AttemptClass::NothingDone => "class.none",
            types::AttemptClass::ReportedFailed => "class.failed",
            types::AttemptClass::MaybePaid => "class.unclear",
            types::AttemptClass::Refused => "class.refused",
            types::AttemptClass::OutputBegun => "class.begun",
        }
    }

    pub(super) fn record_reason(&self, reason: &types::RecordReason) -> &'static str {
        word_key("reason", reason)
    }

    /// The key of the text for the error of a record; `None` if it has none, or only a code.
    pub(super) fn record_error(&self, record: &types::Record) -> Option<&'static str> {
        match (record.error_reason, record.state) {
            (Some(reason), _) => Some(self.record_reason(&reason)),
            (None, types::RecordState::Cancelled) => Some("reason.caller_left"),
            (None, types::RecordState::Interrupted) if record.error_code.is_none() => Some("reason.stopped"),
            (None, _) => None,
        }
    }

    /// True if the record has an error that its state does not name.
    pub(super) fn has_further_error(&self, record: &types::Record) -> bool {
        let is_named = record.error_reason == Some(types::RecordReason::ContentRefused);
        !is_named && (self.record_error(record).is_some() || record.error_code.is_some())
    }

    pub(super) fn is_estimate(&self, basis: impl Borrow<Option<types::CostBasis>>) -> bool {
        *basis.borrow() == Some(types::CostBasis::Estimated)
    }

    pub(super) fn cost_basis(&self, basis: &types::CostBasis) -> &'static str {
        word_key("cost", basis)
    }

    pub(super) fn cost_reason(&self, reason: &types::CostReason) -> &'static str {
        word_key("cost", reason)
    }

    pub(super) fn price_origin(&self, origin: &types::PriceOrigin) -> &'static str {
        match origin {
            types::PriceOrigin::File => "groups.of_file",
            types::PriceOrigin::Store => "prices.of_store",
            types::PriceOrigin::Default => "prices.built_in",
        }
    }

    pub(super) fn role(&self, role: &types::Role) -> &'static str {
        word_key("role", role)
    }

    /// The key of the text for the kind of an account.
    pub(super) fn account_kind(&self, kind: impl AsRef<str>) -> &'static str {
        match kind.as_ref() {
            "oauth" => "accounts.kind_oauth",
            "simulator" => "accounts.kind_simulator",
            _ => "accounts.kind_api_key",
        }
    }

    pub(super) fn actor_kind(&self, kind: &types::ActorKind) -> &'static str {
        word_key("actor", kind)
    }

    /// The details of an entry of the audit trail; empty if there are none.
    pub(super) fn details(&self, entry: &types::AuditEntry) -> String {
        let non_null = entry.details.iter().filter(|(_, value)| !value.is_null());
        let texts = non_null.map(|(name, value)| match value {
            Value::String(text) => format!("{name}: {text}"),
            Value::Array(items) => {
                let items = items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned));
                format!("{name}: {}", items.collect::<Vec<_>>().join(" "))
            }
            value => format!("{name}: {value}"),
        });
        texts.collect::<Vec<_>>().join(", ")
    }
}
