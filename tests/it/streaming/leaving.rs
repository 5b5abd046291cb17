//! A caller that leaves a stream: the gateway closes the upstream call at once, and the record is `cancelled`.

use std::io::Read;
use std::time::{Duration, Instant};

use serde_json::json;

use super::Operation;
use crate::kit::{Events, FakeUpstream, Gateway, pause};

/// The time within which the upstream connection must be closed.
const MAX_CLOSE_TIME: Duration = Duration::from_secs(1);

/// When a caller leaves.
#[derive(Clone, Copy, Debug)]
enum LeaveMoment {
    BeforeTheHead,
    BeforeTheFirstEvent,
    AfterOnePartial,
    InTheFinalImage,
}

impl LeaveMoment {
    const ALL: [Self; 4] =
        [Self::BeforeTheHead, Self::BeforeTheFirstEvent, Self::AfterOnePartial, Self::InTheFinalImage];

    fn script(self) -> &'static str {
        match self {
            Self::BeforeTheHead => "stall=head",
            Self::BeforeTheFirstEvent => "events=murmur",
            Self::AfterOnePartial => "events=p,murmur",
            Self::InTheFinalImage => "events=p,half,stall b64=4000000",
        }
    }

    /// The bytes of the answer that the caller reads before it leaves; 1 means one event.
    fn bytes_read(self) -> usize {
        match self {
            Self::BeforeTheHead | Self::BeforeTheFirstEvent => 0,
            Self::AfterOnePartial => 1,
            Self::InTheFinalImage => 1_500_000,
        }
    }
}

/// Leaves at this moment; returns the time until the upstream connection was closed.
fn leave(gateway: &Gateway, upstream: &FakeUpstream, operation: Operation, moment: LeaveMoment) -> Duration {
    let before = upstream.attempt_count();
    let call = operation.call(gateway, moment.script(), 1);
    let stream = call.dispatch(gateway.address()).expect("a connection");
    upstream.wait_until("the attempt", |attempts| attempts.len() > before);
    if moment.bytes_read() == 0 {
        // The fake upstream reads the body of the request before its script starts.
        upstream.wait_until("the request", |attempts| {
            !attempts[before].body.is_empty() || !attempts[before].parts.is_empty()
        });
        drop(stream);
    } else {
        let mut events = Events::from_reply(crate::kit::Reply::read(stream).expect("an answer"));
        events.next().expect("an event").expect("a partial image");
        if moment.bytes_read() > 1 {
            events.read_exact(&mut vec![0; moment.bytes_read()]).expect("half of an image");
        }
        drop(events);
    }
    let left = Instant::now();
    // The wait ends after five times the allowed time, so that the test cannot hang.
    while !upstream.received_attempts()[before].peer_left && left.elapsed() < MAX_CLOSE_TIME * 5 {
        pause(Duration::from_millis(10));
    }
    left.elapsed()
}

#[test]
fn a_caller_that_leaves_closes_the_upstream_call_at_once() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let mut times = Vec::new();
    for operation in [Operation::Generate, Operation::Edit] {
        for moment in LeaveMoment::ALL {
            let mut durations: Vec<Duration> = (0..3).map(|_| leave(&gateway, &upstream, operation, moment)).collect();
            println!("{operation:?} {moment:?}: {durations:?}");
            // The median counts, because a busy machine may delay one measurement.
            durations.sort();
            times.push((operation, moment, durations[1]));
        }
    }
    times.retain(|(_, _, time)| *time >= MAX_CLOSE_TIME);
    assert!(times.is_empty(), "too late: {times:?}");
    let records = gateway.final_records(24);
    assert_eq!(records.len(), 24);
    for record in &records {
        assert_eq!((&record["state"], &record["stream"]), (&json!("cancelled"), &json!(true)), "{record}");
    }
    // Every slot is free again.
    assert_eq!(Operation::Generate.events(&gateway, "", 1).len(), 2);
}

#[test]
fn a_caller_that_leaves_after_the_last_event_is_recorded_with_usage() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for _ in 0..20 {
        let call = Operation::Generate.call(&gateway, "", 0);
        let mut events = Events::from_reply(call.open(gateway.address()).expect("an answer"));
        events.next().expect("an event").expect("the final image");
        drop(events);
    }
    let records = gateway.final_records(20);
    assert_eq!(records.len(), 20);
    for (record, attempt) in records.iter().zip(upstream.received_attempts()) {
        assert!(["succeeded", "cancelled"].contains(&record["state"].as_str().unwrap_or_default()), "{record}");
        assert_eq!(Some(&record["usage"]), attempt.usage.as_ref(), "{record}");
    }
}
