use super::*;

const DAY: u64 = 24 * 3600;

struct CooldownScenario {
    cooling: AccountCooldown,
    begin: Instant,
}

impl CooldownScenario {
    fn new() -> Self {
        Self { cooling: AccountCooldown::default(), begin: Instant::now() }
    }

    /// Returns the timing of a call that is granted and answered at that second.
    fn at(&self, seconds: u64) -> AttemptTiming {
        self.between(seconds, seconds)
    }

    fn between(&self, granted: u64, now: u64) -> AttemptTiming {
        let second = |seconds| self.begin + Duration::from_secs(seconds);
        AttemptTiming { granted_at: second(granted), now: second(now), jitter: 500 }
    }

    fn left(&self, now: u64) -> Option<f64> {
        let moment = self.at(now);
        self.cooling.current(moment.now).map(|rest| (rest.until - moment.now).as_secs_f64())
    }
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[track_caller]
fn check(stated: Option<Duration>, exhausted: f64, throttled: f64) {
    let mut story = CooldownScenario::new();
    story.cooling.note_exhausted(stated, story.at(0));
    assert_eq!(story.left(0), Some(exhausted), "exhausted, {stated:?} stated");
    let mut story = CooldownScenario::new();
    story.cooling.note_throttled(stated, story.at(0));
    assert_eq!(story.left(0), Some(throttled), "throttled, {stated:?} stated");
}

#[test]
fn a_stated_wait_is_kept_to_the_second_and_a_mad_one_is_not() {
    check(Some(seconds(5)), 5.0, 5.0);
    check(Some(seconds(354_089)), 354_089.0, 900.0);
    check(Some(seconds(20 * DAY)), 691_200.0, 900.0);
    for absurd in [None, Some(seconds(0)), Some(seconds(1_000_000_000_000_000_000)), Some(Duration::MAX)] {
        check(absurd, 1.0, 1.0);
    }
}

#[test]
fn a_rest_is_over_at_its_end_and_not_before() {
    let mut story = CooldownScenario::new();
    story.cooling.note_exhausted(Some(seconds(5)), story.at(0));
    assert!(story.left(4).is_some());
    assert_eq!(story.left(5), None);
}

#[test]
fn without_a_statement_the_pause_doubles_to_a_minute_and_one_image_resets_it() {
    let mut story = CooldownScenario::new();
    let (mut now, mut calls_in_the_first_minute) = (0, 0);
    for expected in [1_u32, 2, 4, 8, 16, 32, 60, 60, 60] {
        story.cooling.note_throttled(None, story.at(now));
        let left = story.left(now).unwrap();
        assert!((left - f64::from(expected)).abs() < 0.1, "{left} instead of {expected}");
        calls_in_the_first_minute += u32::from(now < 60);
        now += u64::from(expected) + 1;
    }
    assert!(calls_in_the_first_minute < 12);
    story.cooling.note_success(story.at(now).now);
    story.cooling.note_throttled(None, story.at(now));
    assert!(story.left(now).unwrap() < 1.1);
}

#[test]
fn chance_keeps_every_pause_between_one_second_and_a_minute() {
    for jitter in [0, 1, 250, 500, 998, 999, u32::MAX] {
        let mut story = CooldownScenario::new();
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..12 {
            story.cooling.note_throttled(None, AttemptTiming { jitter, ..story.at(now) });
            pauses.push(story.left(now).unwrap());
            now += 100;
        }
        assert!(pauses.iter().all(|pause| (1.0..=60.0).contains(pause)), "{pauses:?}");
        assert!(pauses.is_sorted());
    }
    let first = |jitter| {
        let mut story = CooldownScenario::new();
        story.cooling.note_throttled(None, story.at(0));
        story.cooling.note_throttled(None, AttemptTiming { jitter, ..story.at(10) });
        story.left(10).unwrap()
    };
    assert!(first(0) < first(999));
}

#[test]
fn calls_that_were_under_way_together_are_one_step() {
    let mut story = CooldownScenario::new();
    (0..8).for_each(|_| story.cooling.note_throttled(None, story.between(0, 1)));
    story.cooling.note_throttled(None, story.at(5));
    let left = story.left(5).unwrap();
    assert!(left < 2.1, "{left}");
    let refusals: Vec<u32> = (0..8).map(|_| story.cooling.note_unauthorized(401, story.between(0, 1))).collect();
    assert_eq!(refusals, [1; 8]);
}

#[test]
fn an_image_from_before_a_rest_changes_nothing() {
    let mut story = CooldownScenario::new();
    story.cooling.note_throttled(None, story.at(0));
    story.cooling.note_throttled(None, story.at(10));
    story.cooling.note_success(story.at(5).now);
    story.cooling.note_throttled(None, story.at(20));
    assert!(story.left(20).unwrap() > 3.0);
}

#[test]
fn a_shorter_rest_does_not_cut_a_longer_one() {
    let mut story = CooldownScenario::new();
    story.cooling.note_exhausted(Some(seconds(3600)), story.at(0));
    story.cooling.note_throttled(Some(seconds(1)), story.between(0, 1));
    story.cooling.note_success(story.at(0).now);
    let rest = story.cooling.current(story.at(2).now).unwrap();
    assert_eq!((rest.cause, story.left(2)), (CooldownCause::Exhausted, Some(3598.0)));
}

#[test]
fn refused_credentials_are_counted_in_a_row() {
    let mut story = CooldownScenario::new();
    assert_eq!(story.cooling.note_unauthorized(401, story.at(0)), 1);
    assert_eq!(story.left(0), Some(2.0));
    assert_eq!(story.cooling.note_unauthorized(401, story.at(10)), 2);
    assert_eq!(story.left(10), Some(4.0));
    story.cooling.note_success(story.at(20).now);
    assert_eq!(story.cooling.note_unauthorized(403, story.at(30)), 1);
    assert_eq!(story.left(30), Some(60.0));
    assert_eq!(story.cooling.note_unauthorized(403, story.at(100)), 2);
    assert_eq!(story.cooling.note_unauthorized(401, story.at(300)), REFUSALS_BEFORE_CHECK);
}

#[test]
fn a_rest_from_elsewhere_is_capped_by_its_cause() {
    let mut story = CooldownScenario::new();
    let now = story.at(0).now;
    for (cause, longest) in
        [(CooldownCause::Exhausted, 691_200.0), (CooldownCause::Throttled, 900.0), (CooldownCause::Token, 60.0)]
    {
        story.cooling.adopt(cause, Duration::MAX, now);
        assert_eq!(story.left(0), Some(longest));
    }
    story.cooling.adopt(CooldownCause::Exhausted, Duration::ZERO, now);
    assert_eq!(story.left(0), None);
}

#[test]
fn every_cause_is_read_back_as_it_was_stored() {
    for cause in [
        CooldownCause::Exhausted,
        CooldownCause::Throttled,
        CooldownCause::Unfit,
        CooldownCause::Unauthorized,
        CooldownCause::Token,
    ] {
        assert_eq!(CooldownCause::parse(Some(cause.as_str())), cause);
    }
    assert_eq!(CooldownCause::parse(None), CooldownCause::Throttled);
}
