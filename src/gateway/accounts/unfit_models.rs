//! The models for which an account is in cooldown, because its upstream does not offer them to the account or because
//! they are not paid for; and the tool that the gateway adds, if the upstream refuses it. No I/O; the time comes as an
//! argument.
//!
//! Implements U18 of the failure catalogue. The number of models is bounded, because callers choose the names of text
//! models.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::cooldown::{AttemptTiming, FailureStreak, doubled};

/// The first and the longest cooldown of a model (U18); each cooldown is twice as long as the one before.
const FIRST_COOLDOWN: Duration = Duration::from_secs(60);
const LONGEST_COOLDOWN: Duration = Duration::from_secs(3600);
/// The most models that are remembered for one account (our choice). Beyond it, the model whose
/// cooldown ends first is dropped.
const MODELS_MAX: usize = 64;

/// The models that were unavailable to an account, each with its cooldown.
#[derive(Clone, Debug, Default)]
pub(super) struct UnfitModels(HashMap<Arc<str>, ModelCooldown>);

/// The cooldown in which an account gets no requests with the tool that the gateway adds.
#[derive(Clone, Debug, Default)]
pub(super) struct AddedToolCooldown(Option<ModelCooldown>);

#[derive(Clone, Copy, Debug)]
struct ModelCooldown {
    until: Instant,
    failures: FailureStreak,
}

// === impl UnfitModels ===

impl UnfitModels {
    /// True if the account must not be asked for this model now.
    pub(super) fn is_cooling_down(&self, model: Option<&str>, now: Instant) -> bool {
        model.and_then(|model| self.0.get(model)).is_some_and(|cooldown| now < cooldown.until)
    }

    /// True if a cooldown of this model is remembered, even one that has ended.
    pub(super) fn contains(&self, model: &str) -> bool {
        self.0.contains_key(model)
    }

    /// Notes that the account does not have the model. If only a text of a model says so, the cooldown is the shortest
    /// one, because a caller can make a model write anything.
    pub(super) fn note_unavailable(&mut self, model: &Arc<str>, is_text: bool, timing: AttemptTiming) {
        if !self.0.contains_key(model) && self.0.len() >= MODELS_MAX {
            let first = self.0.iter().min_by_key(|(_, cooldown)| cooldown.until).map(|(model, _)| Arc::clone(model));
            let _forgotten = first.and_then(|model| self.0.remove(&model));
        }
        let longest = if is_text { FIRST_COOLDOWN } else { LONGEST_COOLDOWN };
        self.0.entry(Arc::clone(model)).or_insert_with(|| ModelCooldown::new(timing)).extend(longest, timing);
    }

    /// Notes that a call for this model, granted at this time, has succeeded.
    pub(super) fn note_success(&mut self, model: &str, granted: Instant) {
        let Some(cooldown) = self.0.get_mut(model) else { return };
        if cooldown.failures.clear_after_success(granted) {
            self.0.remove(model);
        }
    }

    /// Removes all cooldowns.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

// === impl AddedToolCooldown ===

impl AddedToolCooldown {
    /// True if the account must not get the tool now.
    pub(super) fn is_active(&self, now: Instant) -> bool {
        self.0.is_some_and(|cooldown| now < cooldown.until)
    }

    /// Notes that the account has refused a request with the tool, and has accepted it without the tool.
    pub(super) fn note_refusal(&mut self, timing: AttemptTiming) {
        self.0.get_or_insert_with(|| ModelCooldown::new(timing)).extend(LONGEST_COOLDOWN, timing);
    }

    /// Removes the cooldown.
    pub(super) const fn clear(&mut self) {
        self.0 = None;
    }
}

// === impl ModelCooldown ===

impl ModelCooldown {
    fn new(timing: AttemptTiming) -> Self {
        Self { until: timing.now, failures: FailureStreak::default() }
    }

    fn extend(&mut self, longest: Duration, timing: AttemptTiming) {
        let until = timing.now + doubled(FIRST_COOLDOWN, self.failures.record_failure(timing)).min(longest);
        self.until = self.until.max(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing_at(begin: Instant, granted: u64, now: u64) -> AttemptTiming {
        let at = |seconds| begin + Duration::from_secs(seconds);
        AttemptTiming { granted_at: at(granted), now: at(now), jitter: 0 }
    }

    #[test]
    fn a_cooldown_is_for_one_model_and_doubles_up_to_an_hour() {
        let (mut unfit, begin) = (UnfitModels::default(), Instant::now());
        let model: Arc<str> = "m".into();
        let mut now = 0;
        for expected in [60, 120, 240, 480, 960, 1920, 3600, 3600] {
            unfit.note_unavailable(&model, false, timing_at(begin, now, now));
            assert!(unfit.is_cooling_down(Some("m"), begin + Duration::from_secs(now + expected - 1)));
            assert!(!unfit.is_cooling_down(Some("m"), begin + Duration::from_secs(now + expected)));
            assert!(
                !unfit.is_cooling_down(Some("other"), begin + Duration::from_secs(now))
                    && !unfit.is_cooling_down(None, begin)
            );
            now += expected;
        }
        unfit.note_success("m", begin + Duration::from_secs(now));
        assert!(unfit.0.is_empty());
    }

    #[test]
    fn a_text_of_a_model_counts_for_a_minute_at_most() {
        let (mut unfit, begin, model) = (UnfitModels::default(), Instant::now(), Arc::<str>::from("m"));
        for now in [0, 60, 120, 180] {
            unfit.note_unavailable(&model, true, timing_at(begin, now, now));
            assert!(unfit.is_cooling_down(Some("m"), begin + Duration::from_secs(now + 59)));
            assert!(!unfit.is_cooling_down(Some("m"), begin + Duration::from_secs(now + 60)));
        }
    }

    #[test]
    fn failures_of_concurrent_calls_count_once() {
        let (mut unfit, begin) = (UnfitModels::default(), Instant::now());
        (0..8).for_each(|_| unfit.note_unavailable(&"m".into(), false, timing_at(begin, 0, 5)));
        assert!(!unfit.is_cooling_down(Some("m"), begin + Duration::from_secs(65)));
    }

    #[test]
    fn the_number_of_remembered_models_is_bounded() {
        let (mut unfit, begin) = (UnfitModels::default(), Instant::now());
        (0..1000).for_each(|number| {
            unfit.note_unavailable(&format!("m{number}").into(), false, timing_at(begin, number, number));
        });
        assert_eq!(unfit.0.len(), MODELS_MAX);
        assert!(
            unfit.is_cooling_down(Some("m999"), begin + Duration::from_secs(1000)),
            "the newest model is remembered"
        );
    }
}
