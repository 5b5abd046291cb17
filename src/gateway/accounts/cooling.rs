//! Rest, pure: how long an account is left alone after its upstream has turned it away. Time comes as an argument.
//!
//! Within the process a rest is held as a moment that no clock can move; the wall clock is only for what is stored.
//! It carries U14 to U18 of the failure catalogue.

use std::time::Duration;

use tokio::time::Instant;

/// No usage window is waited for longer than this: a week and a day.
const EXHAUSTED_MAX: Duration = Duration::from_secs(8 * 24 * 3600);
/// No throttling is believed for longer than this (ours).
const THROTTLED_MAX: Duration = Duration::from_secs(15 * 60);
/// A wait above this is no statement but nonsense (ours): no upstream has windows of more than a year.
const ABSURD: Duration = Duration::from_secs(400 * 24 * 3600);
/// Where nothing useful is stated (U15).
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// An account whose credentials are valid but not permitted rests for this long, and then each time twice as long.
const UNFIT_MIN: Duration = Duration::from_secs(60);
const UNFIT_MAX: Duration = Duration::from_secs(3600);
/// After 401, for each one so far (ours): time enough for a key that has just been made to be known everywhere.
const UNAUTHORIZED: Duration = Duration::from_secs(2);
/// So many refusals in a row, in requests that followed each other, and a human has to look (ours).
pub(super) const REFUSALS: u32 = 3;

/// Why an account rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its usage window is used up.
    Exhausted,
    /// It was asked too much too fast.
    Throttled,
    /// It is not permitted to do what was asked, or has not been paid for. Only earlier versions store this cause.
    Unfit,
    /// Its credentials were refused.
    Unauthorized,
    /// There is no token for it right now.
    Token,
}

/// The rest of one account, and what has led to it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cooling {
    rest: Option<Rest>,
    pauses: Steps,
    refusals: Steps,
}

/// A rest that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    pub(super) until: Instant,
    pub(super) cause: Cause,
}

/// When a lesson was learnt, and from which call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// When the call was granted.
    pub(super) granted: Instant,
    /// This moment.
    pub(super) now: Instant,
    /// Chance, from 0 to 999: nodes and accounts must not wake in step.
    pub(super) jitter: u32,
}

/// How often in a row. Calls that were under way together count as one: they tell the same thing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steps {
    count: u32,
    since: Option<Instant>,
}

// === impl Cooling ===

impl Cooling {
    /// The rest at this moment, if there is one.
    pub(super) fn rest(&self, now: Instant) -> Option<Rest> {
        self.rest.filter(|rest| now < rest.until)
    }

    /// The usage window is used up, until then if that was stated.
    pub(super) fn exhausted(&mut self, stated: Option<Duration>, moment: Moment) {
        self.turned_away(Cause::Exhausted, stated, EXHAUSTED_MAX, moment);
    }

    /// Asked too fast.
    pub(super) fn throttled(&mut self, stated: Option<Duration>, moment: Moment) {
        self.turned_away(Cause::Throttled, stated, THROTTLED_MAX, moment);
    }

    /// The credentials were refused; how often in a row, this time included. A key that is known but not allowed (403)
    /// rests as long as one that may not do this.
    pub(super) fn unauthorized(&mut self, status: u16, moment: Moment) -> u32 {
        let step = self.refusals.step(moment);
        let pause = if status == 403 { doubled(UNFIT_MIN, step) } else { UNAUTHORIZED.saturating_mul(step + 1) };
        self.rest_until(moment.now + pause.min(UNFIT_MAX), Cause::Unauthorized);
        self.refusals.count
    }

    /// No token is to be had right now.
    pub(super) fn tokenless(&mut self, moment: Moment) {
        let pause = self.pause(moment);
        self.rest_until(moment.now + pause, Cause::Token);
    }

    /// An image came from a call that was granted then.
    pub(super) fn good(&mut self, granted: Instant) {
        for steps in [&mut self.pauses, &mut self.refusals] {
            let _forgotten = steps.forget(granted);
        }
    }

    /// The credentials proved valid: earlier refusals no longer count.
    pub(super) fn acquit(&mut self) {
        self.refusals = Steps::default();
        self.rest = self.rest.filter(|rest| rest.cause != Cause::Unauthorized);
    }

    /// A rest that was learnt elsewhere, with so much left of it. Capped, because it went through two wall clocks.
    pub(super) fn adopt(&mut self, cause: Cause, left: Duration, now: Instant) {
        self.rest = (!left.is_zero()).then(|| Rest { until: now + left.min(cause.longest()), cause });
    }

    /// An operator says that it is good again.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    fn turned_away(&mut self, cause: Cause, stated: Option<Duration>, longest: Duration, moment: Moment) {
        let stated = stated.filter(|stated| !stated.is_zero() && *stated <= ABSURD);
        let pause = stated.map_or_else(|| self.pause(moment), |stated| stated.min(longest));
        self.rest_until(moment.now + pause, cause);
    }

    /// 1 s, 2 s, 4 s up to 60 s, give or take a fifth.
    fn pause(&mut self, moment: Moment) -> Duration {
        let pause = doubled(PAUSE_MIN, self.pauses.step(moment)).min(PAUSE_MAX);
        let scale = 800 + 400 * moment.jitter.min(999) / 999;
        (pause * scale / 1000).clamp(PAUSE_MIN, PAUSE_MAX)
    }

    /// Calls that end together may each tell their own; the longest holds.
    fn rest_until(&mut self, until: Instant, cause: Cause) {
        if self.rest.is_none_or(|rest| rest.until < until) {
            self.rest = Some(Rest { until, cause });
        }
    }
}

/// `first`, doubled with each step.
pub(super) fn doubled(first: Duration, step: u32) -> Duration {
    first.saturating_mul(1 << step.min(16))
}

// === impl Steps ===

impl Steps {
    /// How many came before, and one more from now on, unless this call was under way already at the last one.
    pub(super) fn step(&mut self, moment: Moment) -> u32 {
        if self.since.is_none_or(|since| moment.granted >= since) {
            self.count = self.count.saturating_add(1);
            self.since = Some(moment.now);
        }
        self.count - 1
    }

    /// Forgets the steps after a success of a call that was granted at this time; true if nothing is left.
    pub(super) fn forget(&mut self, granted: Instant) -> bool {
        let forgets = self.since.is_none_or(|since| granted >= since);
        if forgets {
            *self = Self::default();
        }
        forgets
    }
}

// === impl Cause ===

impl Cause {
    /// As it is stored.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Throttled => "throttled",
            Self::Unfit => "unfit",
            Self::Unauthorized => "unauthorized",
            Self::Token => "token",
        }
    }

    /// As it was stored, perhaps by another version of this program.
    pub(super) fn parse(text: Option<&str>) -> Self {
        let all = [Self::Exhausted, Self::Throttled, Self::Unfit, Self::Unauthorized, Self::Token];
        all.into_iter().find(|cause| Some(cause.as_str()) == text).unwrap_or(Self::Throttled)
    }

    const fn longest(self) -> Duration {
        match self {
            Self::Exhausted => EXHAUSTED_MAX,
            Self::Throttled => THROTTLED_MAX,
            Self::Unfit | Self::Unauthorized => UNFIT_MAX,
            Self::Token => PAUSE_MAX,
        }
    }
}

#[cfg(test)]
mod tests;
