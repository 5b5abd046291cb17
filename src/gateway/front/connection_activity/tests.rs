use super::*;

const DEADLINES: ConnectionDeadlines = ConnectionDeadlines {
    head: Duration::from_millis(10_000),
    idle: Duration::from_millis(75_000),
    write: Duration::from_millis(60_000),
};

/// The time at which a poll ends, and the events in it.
type TimedChange<'a> = (u64, &'a dyn Fn(&ConnectionActivity));

/// A connection that is polled at these times, with these events in each poll.
fn polled(steps: &[TimedChange<'_>]) -> ConnectionActivity {
    let activity = ConnectionActivity::new(1);
    for (now, happens) in steps {
        activity.begin_poll();
        happens(&activity);
        activity.end_poll(*now);
    }
    activity
}

fn request(activity: &ConnectionActivity) {
    activity.record_read(100);
    activity.record_request_start();
}

fn whole(activity: &ConnectionActivity) {
    request(activity);
    activity.record_write();
    activity.record_request_end();
}

#[test]
fn the_first_head_has_one_deadline_from_the_start_on() {
    let activity = polled(&[(1, &|_| {}), (9_000, &|activity| activity.record_read(1))]);
    assert_eq!(activity.state(), (ConnectionState::ReadingHead, 1));
    assert_eq!(activity.next_deadline(&DEADLINES), Some((10_001, PassedDeadline::Head)));
}

#[test]
fn a_later_head_has_its_deadline_from_its_first_byte_on() {
    let activity = polled(&[
        (5, &whole),
        (50_000, &|activity| activity.record_read(1)),
        (51_000, &|activity| activity.record_read(1)),
    ]);
    assert_eq!(activity.next_deadline(&DEADLINES), Some((60_000, PassedDeadline::Head)));
}

#[test]
fn without_a_request_it_is_idle_and_during_one_it_has_no_deadline() {
    let activity = polled(&[(5, &whole)]);
    assert_eq!(activity.next_deadline(&DEADLINES), Some((75_005, PassedDeadline::Idle)));
    let activity = polled(&[(5, &request)]);
    assert_eq!((activity.state().0, activity.next_deadline(&DEADLINES)), (ConnectionState::Busy, None));
    // Bytes that come during a request are not the head of the next one.
    let activity = polled(&[
        (5, &request),
        (6, &|activity| activity.record_read(9)),
        (7, &ConnectionActivity::record_request_end),
    ]);
    assert_eq!(activity.state(), (ConnectionState::Idle, 7));
}

#[test]
fn a_write_that_takes_nothing_has_a_deadline_whatever_the_state_is() {
    let activity = polled(&[
        (5, &request),
        (10, &ConnectionActivity::record_blocked_write),
        (20, &|_| {}),
        (30, &ConnectionActivity::record_blocked_write),
    ]);
    assert_eq!(activity.next_deadline(&DEADLINES), Some((60_010, PassedDeadline::Write)));
    let goes_on = |activity: &ConnectionActivity| {
        activity.record_write();
        activity.record_blocked_write();
    };
    let activity = polled(&[(5, &request), (10, &ConnectionActivity::record_blocked_write), (40, &goes_on)]);
    assert_eq!(activity.next_deadline(&DEADLINES), Some((60_040, PassedDeadline::Write)));
    let activity = polled(&[
        (5, &request),
        (10, &ConnectionActivity::record_blocked_write),
        (40, &ConnectionActivity::record_write),
    ]);
    assert_eq!(activity.next_deadline(&DEADLINES), None);
}

#[test]
fn what_does_nothing_goes_first_and_what_is_served_never() {
    let silent = polled(&[(1, &|_| {})]);
    let idle = polled(&[(1, &whole)]);
    let uploads = polled(&[(1, &request), (2, &ConnectionActivity::record_body_wait)]);
    let served = polled(&[(1, &request)]);
    let written = polled(&[(1, &request), (2, &ConnectionActivity::record_blocked_write)]);
    let rank = |activity: &ConnectionActivity, now| activity.eviction_rank(now).map(|(rank, _)| rank);
    assert_eq!(
        (rank(&silent, 50), rank(&silent, 200)),
        (Some(EvictionRank::NewConnection), Some(EvictionRank::Silent))
    );
    assert_eq!(
        (rank(&uploads, 200), rank(&uploads, 2_000)),
        (Some(EvictionRank::ActiveUpload), Some(EvictionRank::StalledUpload))
    );
    assert_eq!(rank(&idle, 200), Some(EvictionRank::Idle));
    assert_eq!((rank(&served, u64::MAX), rank(&written, u64::MAX)), (None, None));
    assert!(
        EvictionRank::Silent < EvictionRank::Idle
            && EvictionRank::Idle < EvictionRank::StalledUpload
            && EvictionRank::NewConnection < EvictionRank::ActiveUpload
    );
}

#[test]
fn an_upload_that_goes_on_is_not_stalled() {
    let more = |activity: &ConnectionActivity| {
        activity.record_read(10);
        activity.record_body_wait();
    };
    let activity = polled(&[(1, &request), (2, &ConnectionActivity::record_body_wait), (5_000, &more)]);
    assert_eq!(activity.eviction_rank(5_500), Some((EvictionRank::ActiveUpload, 5_000)));
    assert_eq!(activity.eviction_rank(6_500), Some((EvictionRank::StalledUpload, 5_000)));
}

#[test]
fn who_takes_nothing_of_the_last_answer_goes_last() {
    let unread = |activity: &ConnectionActivity| {
        whole(activity);
        activity.record_blocked_write();
    };
    let activity = polled(&[(10, &unread)]);
    assert_eq!(
        (activity.eviction_rank(1_000), activity.eviction_rank(6_000)),
        (None, Some((EvictionRank::UnreadResponse, 10)))
    );
}
