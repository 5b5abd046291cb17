use super::*;

const DAY: u64 = 24 * 3600;
const IMAGES: WorkKind = WorkKind::Images;

struct CooldownScenario {
    cooldown: AccountCooldown,
    started_at: Instant,
}

impl CooldownScenario {
    fn new() -> Self {
        Self { cooldown: AccountCooldown::default(), started_at: Instant::now() }
    }

    /// Returns the timing of a call that is granted and answered this many seconds after the start of the scenario.
    fn at(&self, seconds: u64) -> AttemptTiming {
        self.between(seconds, seconds)
    }

    fn between(&self, granted: u64, now: u64) -> AttemptTiming {
        let second = |seconds| self.started_at + Duration::from_secs(seconds);
        AttemptTiming { granted_at: second(granted), now: second(now), jitter: 500 }
    }

    fn remaining_seconds(&self, now: u64) -> Option<f64> {
        let moment = self.at(now);
        self.cooldown.current(IMAGES, moment.now).map(|period| (period.until - moment.now).as_secs_f64())
    }
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[track_caller]
fn check(stated: Option<Duration>, exhausted: f64, throttled: f64) {
    let mut scenario = CooldownScenario::new();
    scenario.cooldown.note_exhausted(IMAGES, stated, scenario.at(0));
    assert_eq!(scenario.remaining_seconds(0), Some(exhausted), "exhausted, {stated:?} stated");
    let mut scenario = CooldownScenario::new();
    scenario.cooldown.note_throttled(IMAGES, stated, scenario.at(0));
    assert_eq!(scenario.remaining_seconds(0), Some(throttled), "throttled, {stated:?} stated");
}

#[test]
fn a_stated_wait_is_used_unless_it_is_absurd() {
    check(Some(seconds(5)), 5.0, 5.0);
    check(Some(seconds(4000)), 4000.0, 4000.0);
    check(Some(seconds(354_089)), 354_089.0, 86_400.0);
    check(Some(seconds(30 * DAY)), 2_592_000.0, 86_400.0);
    for absurd in [None, Some(seconds(0)), Some(seconds(1_000_000_000_000_000_000)), Some(Duration::MAX)] {
        check(absurd, 1.0, 1.0);
    }
}

#[test]
fn a_cooldown_lasts_exactly_until_its_end() {
    let mut scenario = CooldownScenario::new();
    scenario.cooldown.note_exhausted(IMAGES, Some(seconds(5)), scenario.at(0));
    assert!(scenario.remaining_seconds(4).is_some());
    assert_eq!(scenario.remaining_seconds(5), None);
}

#[test]
fn without_a_stated_wait_the_pause_doubles_until_a_success() {
    let mut scenario = CooldownScenario::new();
    let (mut now, mut calls_in_first_minute) = (0, 0);
    for expected in [1_u32, 2, 4, 8, 16, 32, 60, 60, 60] {
        scenario.cooldown.note_throttled(IMAGES, None, scenario.at(now));
        let pause = scenario.remaining_seconds(now).unwrap();
        assert!((pause - f64::from(expected)).abs() < 0.1, "{pause} instead of {expected}");
        calls_in_first_minute += u32::from(now < 60);
        now += u64::from(expected) + 1;
    }
    assert!(calls_in_first_minute < 12);
    scenario.cooldown.note_success(IMAGES, scenario.at(now).now);
    scenario.cooldown.note_throttled(IMAGES, None, scenario.at(now));
    assert!(scenario.remaining_seconds(now).unwrap() < 1.1);
}

#[test]
fn jitter_keeps_every_pause_between_one_second_and_a_minute() {
    for jitter in [0, 1, 250, 500, 998, 999, u32::MAX] {
        let mut scenario = CooldownScenario::new();
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            scenario.cooldown.note_throttled(IMAGES, None, AttemptTiming { jitter, ..scenario.at(now) });
            pauses.push(scenario.remaining_seconds(now).unwrap());
            now += 100;
        }
        assert!(pauses.iter().all(|pause| (1.0..=60.0).contains(pause)), "{pauses:?}");
        assert!(pauses.is_sorted());
    }
    let first = |jitter| {
        let mut scenario = CooldownScenario::new();
        scenario.cooldown.note_throttled(IMAGES, None, scenario.at(0));
        scenario.cooldown.note_throttled(IMAGES, None, AttemptTiming { jitter, ..scenario.at(10) });
        scenario.remaining_seconds(10).unwrap()
    };
    assert!(first(0) < first(999));
}

#[test]
fn failures_of_concurrent_calls_count_as_one() {
    let mut scenario = CooldownScenario::new();
    (0..8).for_each(|_| scenario.cooldown.note_throttled(IMAGES, None, scenario.between(0, 1)));
    scenario.cooldown.note_throttled(IMAGES, None, scenario.at(5));
    let pause = scenario.remaining_seconds(5).unwrap();
    assert!(pause < 2.1, "{pause}");
    let refusals: Vec<u32> = (0..8).map(|_| scenario.cooldown.note_unauthorized(401, scenario.between(0, 1))).collect();
    assert_eq!(refusals, [1; 8]);
}

#[test]
fn a_success_granted_before_the_last_failure_changes_nothing() {
    let mut scenario = CooldownScenario::new();
    scenario.cooldown.note_throttled(IMAGES, None, scenario.at(0));
    scenario.cooldown.note_throttled(IMAGES, None, scenario.at(10));
    scenario.cooldown.note_success(IMAGES, scenario.at(5).now);
    scenario.cooldown.note_throttled(IMAGES, None, scenario.at(20));
    assert!(scenario.remaining_seconds(20).unwrap() > 3.0);
}

#[test]
fn a_shorter_cooldown_does_not_shorten_a_longer_one() {
    let mut scenario = CooldownScenario::new();
    scenario.cooldown.note_exhausted(IMAGES, Some(seconds(3600)), scenario.at(0));
    scenario.cooldown.note_throttled(IMAGES, Some(seconds(1)), scenario.between(0, 1));
    scenario.cooldown.note_success(IMAGES, scenario.at(0).now);
    let period = scenario.cooldown.current(IMAGES, scenario.at(2).now).unwrap();
    assert_eq!((period.cause, scenario.remaining_seconds(2)), (CooldownCause::Exhausted, Some(3598.0)));
}

#[test]
fn consecutive_refusals_of_credentials_are_counted() {
    let mut scenario = CooldownScenario::new();
    assert_eq!(scenario.cooldown.note_unauthorized(401, scenario.at(0)), 1);
    assert_eq!(scenario.remaining_seconds(0), Some(2.0));
    assert_eq!(scenario.cooldown.note_unauthorized(401, scenario.at(10)), 2);
    assert_eq!(scenario.remaining_seconds(10), Some(4.0));
    scenario.cooldown.note_success(IMAGES, scenario.at(20).now);
    assert_eq!(scenario.cooldown.note_unauthorized(403, scenario.at(30)), 1);
    assert_eq!(scenario.remaining_seconds(30), Some(60.0));
    assert_eq!(scenario.cooldown.note_unauthorized(403, scenario.at(100)), 2);
    assert_eq!(scenario.cooldown.note_unauthorized(401, scenario.at(300)), REFUSALS_BEFORE_CHECK);
}

#[test]
fn an_adopted_cooldown_is_capped_by_its_cause() {
    let mut scenario = CooldownScenario::new();
    let now = scenario.at(0).now;
    for (cause, longest) in
        [(CooldownCause::Token, 60.0), (CooldownCause::Throttled, 86_400.0), (CooldownCause::Exhausted, 34_560_000.0)]
    {
        scenario.cooldown.adopt(cause, Duration::MAX, now);
        assert_eq!(scenario.remaining_seconds(0), Some(longest));
    }
    scenario.cooldown = AccountCooldown::default();
    scenario.cooldown.adopt(CooldownCause::Exhausted, seconds(9), now);
    scenario.cooldown.adopt(CooldownCause::Exhausted, Duration::ZERO, now);
    assert_eq!(scenario.remaining_seconds(0), None);
}

#[test]
fn every_cause_is_read_back_as_it_was_stored() {
    for cause in [
        CooldownCause::Exhausted,
        CooldownCause::Throttled,
        CooldownCause::TextExhausted,
        CooldownCause::TextThrottled,
        CooldownCause::Unauthorized,
        CooldownCause::Token,
    ] {
        assert_eq!(CooldownCause::parse(Some(cause.as_str())), cause);
    }
    assert_eq!(CooldownCause::parse(None), CooldownCause::Throttled);
}

#[test]
fn images_and_texts_cool_apart_and_credentials_stop_both() {
    let mut scenario = CooldownScenario::new();
    let (first, now) = (scenario.at(0), scenario.at(1).now);
    let both = |scenario: &CooldownScenario| {
        [WorkKind::Images, WorkKind::Text].map(|work| scenario.cooldown.current(work, now).map(|period| period.cause))
    };
    scenario.cooldown.note_exhausted(WorkKind::Text, Some(seconds(3600)), first);
    assert_eq!(both(&scenario), [None, Some(CooldownCause::TextExhausted)]);
    scenario.cooldown.note_throttled(WorkKind::Images, Some(seconds(5)), first);
    assert_eq!(both(&scenario), [Some(CooldownCause::Throttled), Some(CooldownCause::TextExhausted)]);
    assert_eq!(scenario.cooldown.last(now).map(|period| period.cause), Some(CooldownCause::TextExhausted));
    // A success of images says nothing about texts.
    let mut scenario = CooldownScenario::new();
    scenario.cooldown.note_throttled(WorkKind::Text, None, scenario.at(0));
    scenario.cooldown.note_success(WorkKind::Images, scenario.at(5).now);
    scenario.cooldown.note_throttled(WorkKind::Text, None, scenario.at(10));
    let pause = scenario.cooldown.current(WorkKind::Text, scenario.at(10).now).unwrap().until - scenario.at(10).now;
    assert!(pause > seconds(1), "{pause:?}");
    let mut scenario = CooldownScenario::new();
    scenario.cooldown.note_unauthorized(403, first);
    assert_eq!(both(&scenario), [Some(CooldownCause::Unauthorized); 2]);
    scenario.cooldown.adopt(CooldownCause::TextThrottled, seconds(100), now);
    scenario.cooldown.clear_unauthorized();
    assert_eq!(both(&scenario), [None, Some(CooldownCause::TextThrottled)]);
}
