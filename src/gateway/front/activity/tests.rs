use super::*;

const DEADLINES: Deadlines = Deadlines {
    head: Duration::from_millis(10_000),
    idle: Duration::from_millis(75_000),
    write: Duration::from_millis(60_000),
};

/// The time at which a poll ends, and the events in it.
type Step<'a> = (u64, &'a dyn Fn(&Activity));

/// A connection that is polled at these times, with these events in each poll.
fn polled(steps: &[Step<'_>]) -> Activity {
    let activity = Activity::new(1);
    for (now, happens) in steps {
        activity.poll_begins();
        happens(&activity);
        activity.poll_ends(*now);
    }
    activity
}

fn request(activity: &Activity) {
    activity.read(100);
    activity.request_begins();
}

fn whole(activity: &Activity) {
    request(activity);
    activity.wrote();
    activity.request_ends();
}

#[test]
fn the_first_head_has_one_deadline_from_the_start_on() {
    let activity = polled(&[(1, &|_| {}), (9_000, &|activity| activity.read(1))]);
    assert_eq!(activity.state(), (State::ReadingHead, 1));
    assert_eq!(activity.deadline(&DEADLINES), Some((10_001, Expired::Head)));
}

#[test]
fn a_later_head_has_its_deadline_from_its_first_byte_on() {
    let activity =
        polled(&[(5, &whole), (50_000, &|activity| activity.read(1)), (51_000, &|activity| activity.read(1))]);
    assert_eq!(activity.deadline(&DEADLINES), Some((60_000, Expired::Head)));
}

#[test]
fn without_a_request_it_is_idle_and_during_one_it_has_no_deadline() {
    let activity = polled(&[(5, &whole)]);
    assert_eq!(activity.deadline(&DEADLINES), Some((75_005, Expired::Idle)));
    let activity = polled(&[(5, &request)]);
    assert_eq!((activity.state().0, activity.deadline(&DEADLINES)), (State::Busy, None));
    // Bytes that come during a request are not the head of the next one.
    let activity = polled(&[(5, &request), (6, &|activity| activity.read(9)), (7, &Activity::request_ends)]);
    assert_eq!(activity.state(), (State::Idle, 7));
}

#[test]
fn a_write_that_takes_nothing_has_a_deadline_whatever_the_state_is() {
    let activity = polled(&[(5, &request), (10, &Activity::blocked), (20, &|_| {}), (30, &Activity::blocked)]);
    assert_eq!(activity.deadline(&DEADLINES), Some((60_010, Expired::Write)));
    let goes_on = |activity: &Activity| {
        activity.wrote();
        activity.blocked();
    };
    let activity = polled(&[(5, &request), (10, &Activity::blocked), (40, &goes_on)]);
    assert_eq!(activity.deadline(&DEADLINES), Some((60_040, Expired::Write)));
    let activity = polled(&[(5, &request), (10, &Activity::blocked), (40, &Activity::wrote)]);
    assert_eq!(activity.deadline(&DEADLINES), None);
}

#[test]
fn what_does_nothing_goes_first_and_what_is_served_never() {
    let silent = polled(&[(1, &|_| {})]);
    let idle = polled(&[(1, &whole)]);
    let uploads = polled(&[(1, &request), (2, &Activity::awaits_body)]);
    let served = polled(&[(1, &request)]);
    let written = polled(&[(1, &request), (2, &Activity::blocked)]);
    let rank = |activity: &Activity, now| activity.rank(now).map(|(rank, _)| rank);
    assert_eq!((rank(&silent, 50), rank(&silent, 200)), (Some(Rank::Young), Some(Rank::Silent)));
    assert_eq!((rank(&uploads, 200), rank(&uploads, 2_000)), (Some(Rank::Upload), Some(Rank::StalledUpload)));
    assert_eq!(rank(&idle, 200), Some(Rank::Idle));
    assert_eq!((rank(&served, u64::MAX), rank(&written, u64::MAX)), (None, None));
    assert!(Rank::Silent < Rank::Idle && Rank::Idle < Rank::StalledUpload && Rank::Young < Rank::Upload);
}

#[test]
fn an_upload_that_goes_on_is_not_stalled() {
    let more = |activity: &Activity| {
        activity.read(10);
        activity.awaits_body();
    };
    let activity = polled(&[(1, &request), (2, &Activity::awaits_body), (5_000, &more)]);
    assert_eq!(activity.rank(5_500), Some((Rank::Upload, 5_000)));
    assert_eq!(activity.rank(6_500), Some((Rank::StalledUpload, 5_000)));
}

#[test]
fn who_takes_nothing_of_the_last_answer_goes_last() {
    let unread = |activity: &Activity| {
        whole(activity);
        activity.blocked();
    };
    let activity = polled(&[(10, &unread)]);
    assert_eq!((activity.rank(1_000), activity.rank(6_000)), (None, Some((Rank::Unread, 10))));
}
