//! Computes how long an account is not asked after its upstream has refused it. No I/O; the time is an argument.
//!
//! Within the process the end of a cooldown is a monotonic instant; the wall clock is used only for stored values.
//! Upstreams count images and texts apart, so a limit stops only the kind of work that has met it. The module implements
//! U14 to U18 of the failure catalogue.

use std::time::Duration;

use tokio::time::Instant;

use crate::words::word_enum;

/// The longest cooldown for a usage window (our choice): as long as any wait that is valid, because the upstream knows
/// when the window opens. An operator can enable the account earlier.
const EXHAUSTED_MAX: Duration = STATED_WAIT_MAX;
/// The longest cooldown for throttling (our choice): a day, the longest period in which upstreams count requests.
const THROTTLED_MAX: Duration = Duration::from_secs(24 * 3600);
/// A stated wait above this limit is ignored as invalid (our choice): no upstream has windows of more than a year.
const STATED_WAIT_MAX: Duration = Duration::from_secs(400 * 24 * 3600);
/// The shortest and the longest cooldown if the upstream states no usable wait (U15).
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The first and the longest cooldown after a 403, which refuses known credentials; each one is twice as long as the
/// one before. A cooldown after 401s is not longer either.
const FORBIDDEN_MIN: Duration = Duration::from_secs(60);
const UNAUTHORIZED_MAX: Duration = Duration::from_secs(3600);
/// The cooldown after a 401, multiplied by the number of refusals in a row (our choice). It gives the upstream time to
/// distribute a new key.
const UNAUTHORIZED_STEP: Duration = Duration::from_secs(2);
/// The number of consecutive refusals after which the credentials are checked separately (our choice).
pub(super) const REFUSALS_BEFORE_CHECK: u32 = 3;

word_enum! {
    /// The reason for a cooldown.
    pub(crate) enum CooldownCause {
        /// The usage window of the account is used up.
        Exhausted = "exhausted",
        /// The account received too many requests in a short time.
        Throttled = "throttled",
        /// The usage window of the account for texts is used up.
        TextExhausted = "text_exhausted",
        /// The account received too many requests for texts in a short time.
        TextThrottled = "text_throttled",
        /// The credentials were refused.
        Unauthorized = "unauthorized",
        /// No token can be fetched at present.
        Token = "token",
    }
}

/// The kinds of work that an upstream limits apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum WorkKind {
    /// Requests to the image endpoints.
    #[default]
    Images,
    /// Responses of text models, which may use the image tool.
    Text,
}

/// The cooldowns of one account, and the failures that led to them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AccountCooldown {
    /// The cooldown of the whole account, because of its credentials.
    whole: CooldownWindow,
    images: CooldownWindow,
    text: CooldownWindow,
    refusals: FailureStreak,
}

/// The cooldown of one kind of work or of the whole account.
#[derive(Clone, Copy, Debug, Default)]
struct CooldownWindow {
    period: Option<CooldownPeriod>,
    failures: FailureStreak,
}

/// A cooldown that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CooldownPeriod {
    pub(super) until: Instant,
    pub(super) cause: CooldownCause,
}

/// The times of one attempt result.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptTiming {
    /// The time at which the call was granted.
    pub(super) granted_at: Instant,
    /// The current time.
    pub(super) now: Instant,
    /// A random number from 0 to 999, which varies the cooldown so that nodes and accounts do not become active at the
    /// same moment.
    pub(super) jitter: u32,
}

/// The number of failures in a row. Calls that were in flight together count as one, because they report the same
/// condition.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FailureStreak {
    count: u32,
    counted_at: Option<Instant>,
}

// === impl AccountCooldown ===

impl AccountCooldown {
    /// Returns the current cooldown that stops this kind of work, if there is one.
    pub(super) fn current(&self, work: WorkKind, now: Instant) -> Option<CooldownPeriod> {
        let window = match work {
            WorkKind::Images => &self.images,
            WorkKind::Text => &self.text,
        };
        last_period([&self.whole, window], now)
    }

    /// True if a cooldown stops this kind of work.
    pub(super) fn stops(&self, work: WorkKind, now: Instant) -> bool {
        let window = match work {
            WorkKind::Images => &self.images,
            WorkKind::Text => &self.text,
        };
        self.whole.is_current(now) || window.is_current(now)
    }

    /// Returns the current cooldown of any kind that ends last, if there is one.
    pub(super) fn last(&self, now: Instant) -> Option<CooldownPeriod> {
        last_period([&self.whole, &self.images, &self.text], now)
    }

    /// Records that the usage window for this kind of work is used up; `stated` is the wait that the upstream has stated.
    pub(super) fn note_exhausted(&mut self, work: WorkKind, stated: Option<Duration>, timing: AttemptTiming) {
        let cause = match work {
            WorkKind::Images => CooldownCause::Exhausted,
            WorkKind::Text => CooldownCause::TextExhausted,
        };
        self.window(cause).begin_with_stated_wait(cause, stated, timing);
    }

    /// Records that the account received requests for this kind of work too fast.
    pub(super) fn note_throttled(&mut self, work: WorkKind, stated: Option<Duration>, timing: AttemptTiming) {
        let cause = match work {
            WorkKind::Images => CooldownCause::Throttled,
            WorkKind::Text => CooldownCause::TextThrottled,
        };
        self.window(cause).begin_with_stated_wait(cause, stated, timing);
    }

    /// Records that the credentials were refused, and returns the number of refusals in a row, including this refusal.
    /// The cooldown after a 403, which refuses known credentials, is longer than after a 401.
    pub(super) fn note_unauthorized(&mut self, status: u16, timing: AttemptTiming) -> u32 {
        let step = self.refusals.record_failure(timing);
        let pause =
            if status == 403 { doubled(FORBIDDEN_MIN, step) } else { UNAUTHORIZED_STEP.saturating_mul(step + 1) };
        self.whole.extend_until(timing.now + pause.min(UNAUTHORIZED_MAX), CooldownCause::Unauthorized);
        self.refusals.count
    }

    /// Records that no token is available at present.
    pub(super) fn note_missing_token(&mut self, timing: AttemptTiming) {
        let pause = self.whole.next_pause(timing);
        self.whole.extend_until(timing.now + pause, CooldownCause::Token);
    }

    /// Records the success of a call of this kind of work that was granted at this time. Failures that were counted later
    /// stay.
    pub(super) fn note_success(&mut self, work: WorkKind, granted_at: Instant) {
        let window = match work {
            WorkKind::Images => &mut self.images,
            WorkKind::Text => &mut self.text,
        };
        for streak in [&mut self.whole.failures, &mut window.failures, &mut self.refusals] {
            let _is_cleared = streak.clear_after_success(granted_at);
        }
    }

    /// Records that the credentials are valid: earlier refusals no longer count.
    pub(super) fn clear_unauthorized(&mut self) {
        self.refusals = FailureStreak::default();
        self.whole.period = self.whole.period.filter(|period| period.cause != CooldownCause::Unauthorized);
    }

    /// Adopts a cooldown that the store holds, such as one of another node, with its remaining time. The time is
    /// capped, because it was computed with two wall clocks.
    pub(super) fn adopt(&mut self, cause: CooldownCause, remaining: Duration, now: Instant) {
        self.window(cause).period =
            (!remaining.is_zero()).then(|| CooldownPeriod { until: now + remaining.min(cause.max_duration()), cause });
    }

    /// Clears everything, because the account was enabled again or its cooldown was ended in the store.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    const fn window(&mut self, cause: CooldownCause) -> &mut CooldownWindow {
        match cause {
            CooldownCause::Exhausted | CooldownCause::Throttled => &mut self.images,
            CooldownCause::TextExhausted | CooldownCause::TextThrottled => &mut self.text,
            CooldownCause::Unauthorized | CooldownCause::Token => &mut self.whole,
        }
    }
}

/// Returns the current period of these windows that ends last.
fn last_period<'a>(windows: impl IntoIterator<Item = &'a CooldownWindow>, now: Instant) -> Option<CooldownPeriod> {
    let periods = windows.into_iter().filter_map(|window| window.period).filter(|period| now < period.until);
    periods.max_by_key(|period| period.until)
}

// === impl CooldownWindow ===

impl CooldownWindow {
    fn is_current(&self, now: Instant) -> bool {
        self.period.is_some_and(|period| now < period.until)
    }

    fn begin_with_stated_wait(&mut self, cause: CooldownCause, stated: Option<Duration>, timing: AttemptTiming) {
        let stated = stated.filter(|stated| !stated.is_zero() && *stated <= STATED_WAIT_MAX);
        let pause = stated.map_or_else(|| self.next_pause(timing), |stated| stated.min(cause.max_duration()));
        self.extend_until(timing.now + pause, cause);
    }

    /// Counts a failure, and returns 1 s, 2 s, 4 s and so on up to 60 s, varied by up to a fifth.
    fn next_pause(&mut self, timing: AttemptTiming) -> Duration {
        let pause = doubled(PAUSE_MIN, self.failures.record_failure(timing)).min(PAUSE_MAX);
        let scale = 800 + 400 * timing.jitter.min(999) / 999;
        (pause * scale / 1000).clamp(PAUSE_MIN, PAUSE_MAX)
    }

    /// Begins a cooldown. If calls that end together state different waits, the longest applies.
    fn extend_until(&mut self, until: Instant, cause: CooldownCause) {
        if self.period.is_none_or(|period| period.until < until) {
            self.period = Some(CooldownPeriod { until, cause });
        }
    }
}

/// Returns `first`, doubled with each step, at most 16 times: that exceeds every maximum that callers apply.
pub(super) fn doubled(first: Duration, step: u32) -> Duration {
    first.saturating_mul(1 << step.min(16))
}

// === impl FailureStreak ===

impl FailureStreak {
    /// Counts a failure, unless the call was already in flight when the last failure was counted. Returns the number of
    /// failures before the last counted failure.
    pub(super) fn record_failure(&mut self, timing: AttemptTiming) -> u32 {
        if self.counted_at.is_none_or(|since| timing.granted_at >= since) {
            self.count = self.count.saturating_add(1);
            self.counted_at = Some(timing.now);
        }
        self.count - 1
    }

    /// Clears the streak after the success of a call, unless a failure was counted after the call had been granted.
    /// Returns true if the streak is empty then.
    pub(super) fn clear_after_success(&mut self, granted_at: Instant) -> bool {
        let is_cleared = self.counted_at.is_none_or(|since| granted_at >= since);
        if is_cleared {
            *self = Self::default();
        }
        is_cleared
    }
}

// === impl CooldownCause ===

impl CooldownCause {
    /// True if a usage window is used up.
    pub(super) const fn is_exhausted(self) -> bool {
        matches!(self, Self::Exhausted | Self::TextExhausted)
    }

    /// True if a limit of the upstream is the cause.
    pub(super) const fn is_limit(self) -> bool {
        self.is_exhausted() || matches!(self, Self::Throttled | Self::TextThrottled)
    }

    /// Parses a stored value, which another version of this program may have written.
    pub(super) fn parse(text: Option<&str>) -> Self {
        text.and_then(|text| text.parse().ok()).unwrap_or(Self::Throttled)
    }

    const fn max_duration(self) -> Duration {
        match self {
            Self::Exhausted | Self::TextExhausted => EXHAUSTED_MAX,
            Self::Throttled | Self::TextThrottled => THROTTLED_MAX,
            Self::Unauthorized => UNAUTHORIZED_MAX,
            Self::Token => PAUSE_MAX,
        }
    }
}

#[cfg(test)]
mod tests;
