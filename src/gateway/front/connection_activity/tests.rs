use super::*;

const DEADLINES: ConnectionDeadlines = ConnectionDeadlines {
    head: Duration::from_millis(10_000),
    idle: Duration::from_millis(75_000),
    write: Duration::from_millis(60_000),
    discard_idle: Duration::from_millis(10_000),
    discard: Duration::from_millis(30_000),
};

/// The time at which a poll ends, in milliseconds, and the function that records the events of the poll.
type TimedChange<'a> = (u64, &'a dyn Fn(&ConnectionActivity));

/// The activity of a connection after these polls.
fn activity_after(polls: &[TimedChange<'_>]) -> ConnectionActivity {
    let activity = ConnectionActivity::new(1);
    for (now, record_events) in polls {
        activity.begin_poll();
        record_events(&activity);
        activity.end_poll(*now);
    }
    activity
}

fn start_request(activity: &ConnectionActivity) {
    activity.record_read(100);
    activity.record_request_start();
}

fn complete_request(activity: &ConnectionActivity) {
    start_request(activity);
    activity.record_write();
    activity.record_request_end();
}

#[test]
fn the_first_head_deadline_runs_from_the_start_of_the_connection() {
    let activity = activity_after(&[(1, &|_| {}), (9_000, &|activity| activity.record_read(1))]);
    assert_eq!(activity.state(), (ConnectionState::ReadingHead, 1));
    assert_eq!(activity.next_deadline(&DEADLINES), Some((10_001, PassedDeadline::Head)));
}

#[test]
fn a_later_head_deadline_runs_from_its_first_byte() {
    let activity = activity_after(&[
        (5, &complete_request),
        (50_000, &|activity| activity.record_read(1)),
        (51_000, &|activity| activity.record_read(1)),
    ]);
    assert_eq!(activity.next_deadline(&DEADLINES), Some((60_000, PassedDeadline::Head)));
}

#[test]
fn an_idle_connection_has_a_deadline_and_a_busy_one_has_none() {
    let activity = activity_after(&[(5, &complete_request)]);
    assert_eq!(activity.next_deadline(&DEADLINES), Some((75_005, PassedDeadline::Idle)));
    let activity = activity_after(&[(5, &start_request)]);
    assert_eq!((activity.state().0, activity.next_deadline(&DEADLINES)), (ConnectionState::Busy, None));
    // Bytes that come during a request are not the head of the next one.
    let activity = activity_after(&[
        (5, &start_request),
        (6, &|activity| activity.record_read(9)),
        (7, &ConnectionActivity::record_request_end),
    ]);
    assert_eq!(activity.state(), (ConnectionState::Idle, 7));
}

#[test]
fn a_blocked_write_has_a_deadline_during_a_request() {
    let activity = activity_after(&[
        (5, &start_request),
        (10, &ConnectionActivity::record_blocked_write),
        (20, &|_| {}),
        (30, &ConnectionActivity::record_blocked_write),
    ]);
    assert_eq!(activity.next_deadline(&DEADLINES), Some((60_010, PassedDeadline::Write)));
    let write_some = |activity: &ConnectionActivity| {
        activity.record_write();
        activity.record_blocked_write();
    };
    let activity =
        activity_after(&[(5, &start_request), (10, &ConnectionActivity::record_blocked_write), (40, &write_some)]);
    assert_eq!(activity.next_deadline(&DEADLINES), Some((60_040, PassedDeadline::Write)));
    let activity = activity_after(&[
        (5, &start_request),
        (10, &ConnectionActivity::record_blocked_write),
        (40, &ConnectionActivity::record_write),
    ]);
    assert_eq!(activity.next_deadline(&DEADLINES), None);
}

#[test]
fn unused_connections_are_evicted_first_and_busy_ones_never() {
    let silent = activity_after(&[(1, &|_| {})]);
    let idle = activity_after(&[(1, &complete_request)]);
    let uploading = activity_after(&[(1, &start_request), (2, &ConnectionActivity::record_body_wait)]);
    let busy = activity_after(&[(1, &start_request)]);
    let writing = activity_after(&[(1, &start_request), (2, &ConnectionActivity::record_blocked_write)]);
    let rank = |activity: &ConnectionActivity, now| activity.eviction_rank(now).map(|(rank, _)| rank);
    assert_eq!(
        (rank(&silent, 50), rank(&silent, 200)),
        (Some(EvictionRank::NewConnection), Some(EvictionRank::Silent))
    );
    assert_eq!(
        (rank(&uploading, 200), rank(&uploading, 2_000)),
        (Some(EvictionRank::ActiveUpload), Some(EvictionRank::StalledUpload))
    );
    assert_eq!(rank(&idle, 200), Some(EvictionRank::Idle));
    assert_eq!((rank(&busy, u64::MAX), rank(&writing, u64::MAX)), (None, None));
    assert!(
        EvictionRank::Silent < EvictionRank::Idle
            && EvictionRank::Idle < EvictionRank::StalledUpload
            && EvictionRank::NewConnection < EvictionRank::ActiveUpload
    );
}

#[test]
fn an_upload_that_makes_progress_is_not_stalled() {
    let receive_more = |activity: &ConnectionActivity| {
        activity.record_read(10);
        activity.record_body_wait();
    };
    let activity =
        activity_after(&[(1, &start_request), (2, &ConnectionActivity::record_body_wait), (5_000, &receive_more)]);
    assert_eq!(activity.eviction_rank(5_500), Some((EvictionRank::ActiveUpload, 5_000)));
    assert_eq!(activity.eviction_rank(6_500), Some((EvictionRank::StalledUpload, 5_000)));
}

#[test]
fn an_unread_response_can_be_evicted_only_after_a_while() {
    let complete_then_block = |activity: &ConnectionActivity| {
        complete_request(activity);
        activity.record_blocked_write();
    };
    let activity = activity_after(&[(10, &complete_then_block)]);
    assert_eq!(
        (activity.eviction_rank(1_000), activity.eviction_rank(6_000)),
        (None, Some((EvictionRank::UnreadResponse, 10)))
    );
}
