//! A limit of a key, a user or a group that is reached.

use chrono::DateTime;

/// The longest wait in seconds that a message states as such (our choice). People would have to convert a longer one, so
/// the message states the time at which it ends.
const LONGEST_WAIT_IN_SECONDS: u64 = 120;

/// The refusal of a request because of a limit that an operator or an admin has set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitRefusal {
    /// The owner of the limit: `group`, `user` or `key`.
    pub(crate) scope: &'static str,
    /// The name of the limit in settings.
    pub(crate) limit: &'static str,
    /// The value of the limit.
    pub(crate) value: String,
    /// The time in Unix seconds at which the limit allows more, if it is known.
    pub(crate) resets_at: Option<i64>,
    /// The seconds until then, or until another try is worthwhile.
    pub(crate) wait_seconds: u64,
    /// True for a limit by the day or a budget: a short wait does not help.
    pub(crate) is_quota: bool,
}

impl std::fmt::Display for LimitRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { scope, limit, value, resets_at, wait_seconds, .. } = self;
        write!(f, "The limit '{limit}' of this {scope} is reached: {value}.")?;
        match resets_at.and_then(|at| DateTime::from_timestamp(at, 0)) {
            Some(at) if *wait_seconds > LONGEST_WAIT_IN_SECONDS => {
                write!(f, " It is free again at {} UTC.", at.format("%Y-%m-%d %H:%M:%S"))
            }
            _ => write!(f, " Try again in {wait_seconds} seconds."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_is_stated_as_the_time_of_its_end() {
        let message = |wait_seconds, resets_at| {
            let (scope, limit, value, is_quota) = ("key", "budget_usd", "5.00".to_owned(), true);
            LimitRefusal { scope, limit, value, resets_at, wait_seconds, is_quota }.to_string()
        };
        let end = Some(1_796_083_200);
        assert_eq!(
            message(392_019, end),
            "The limit 'budget_usd' of this key is reached: 5.00. It is free again at 2026-12-01 00:00:00 UTC."
        );
        let in_seconds = "The limit 'budget_usd' of this key is reached: 5.00. Try again in 120 seconds.";
        assert_eq!((message(120, end).as_str(), message(120, None).as_str()), (in_seconds, in_seconds));
    }
}
