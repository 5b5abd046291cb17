//! A limit of a key, a user or a group that is reached.

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
        let Self { scope, limit, value, wait_seconds, .. } = self;
        write!(f, "The limit '{limit}' of this {scope} is reached: {value}. Try again in {wait_seconds} seconds.")
    }
}
