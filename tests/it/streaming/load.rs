//! What streams cost: the time until an event is out, the memory of many slow readers, and lines of thirty megabytes.

use std::io::Read;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Operation, is_good};
use crate::kit::{Call, Events, FakeUpstream, Gateway, PEAK_BYTES, base64_filler, eventually, heavy_test_lock, pause};

/// Characters of base64 in one line, 30 MB.
const HUGE: usize = 30_000_000;
const READERS: usize = 100;

/// A stream with a huge final image; the filler begins like a picture of this size.
fn huge(gateway: &Gateway, script: &str, partials: u64) -> Call {
    let prompt = format!("a cube [[{script}]]");
    gateway.call(json!({"prompt": prompt, "stream": true, "partial_images": partials, "size": "3840x2160"}))
}

/// Reads a stream with one huge final image and holds every byte of it against what the upstream sent.
fn read_huge(mut events: Events, length: usize) {
    let mut head = Vec::new();
    while !head.ends_with(b"\"b64_json\":\"") {
        let mut byte = [0];
        events.read_exact(&mut byte).expect("a frame with an image");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"event: image_generation.completed\ndata: {"));
    let mut buffer = vec![0; 1 << 17];
    for piece in base64_filler(length) {
        let got = &mut buffer[..piece.len()];
        events.read_exact(got).expect("the image");
        assert!(got == piece.as_slice(), "the image was changed on its way");
    }
    let mut rest = String::new();
    events.read_to_string(&mut rest).expect("the rest");
    let line = String::from_utf8(head).expect("text") + &rest;
    let json = line.split_once("\ndata: ").expect("two lines").1;
    assert!(json.ends_with("}\n\n"));
    let json: Value = serde_json::from_str(json.trim_end()).expect("JSON around the image");
    assert_eq!((&json["b64_json"], &json["size"]), (&json!(""), &json!("3840x2160")));
    assert!(json["usage"]["total_tokens"].is_u64());
}

#[test]
fn a_line_of_thirty_megabytes_passes_unchanged_in_little_memory() {
    let _turn = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with_upstream(&upstream);
    gateway.generate(json!({})).ok_json();
    gateway.server().reset_peak();
    let mut asked = 1;
    for (length, how) in [
        (HUGE, "reads=65536"),
        (HUGE, "reads=65536 shape=usage-first"),
        (HUGE, "reads=1460"),
        (HUGE, "reads=65536 lines=crlf framing=close"),
        (400_000, "reads=7"),
        (40_000, "reads=1"),
        (40_000, "reads=1 lines=crlf frames=no-space,no-event,extra"),
    ] {
        let call = huge(&gateway, &format!("b64={length} {how}"), 0);
        read_huge(Events::from_reply(call.open(gateway.address()).expect("an answer")), length);
        asked += 1;
    }
    let peak = gateway.server().peak_bytes();
    println!("peak resident memory with lines of {HUGE} bytes: {:.1} MB", peak as f64 / 1e6);
    assert!(peak < PEAK_BYTES, "{peak} bytes");
    assert!(gateway.final_records(asked).iter().all(|record| record["state"] == "succeeded"));
}

#[test]
fn a_hundred_slow_readers_cost_little_memory_and_slow_their_upstream_down() {
    let _turn = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with("", &[crate::kit::Account::for_upstream("only", &upstream).with_slots(READERS)]);
    gateway.generate(json!({})).ok_json();
    gateway.server().reset_peak();
    let script = format!("events=p,c b64={HUGE}");
    let dial = |_| -> Call { huge(&gateway, &script, 1).with_small_window() };
    let readers: Vec<Events> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..READERS).map(dial).collect();
        let address = gateway.address();
        let callers: Vec<_> = calls
            .into_iter()
            .map(|call| {
                scope.spawn(move || {
                    let mut events = Events::from_reply(call.open(address).expect("an answer"));
                    events.next().expect("an event").expect("a partial image");
                    events
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().expect("a caller")).collect()
    });
    let written = standing_still(&upstream);
    let peak = gateway.server().peak_bytes();
    println!(
        "{READERS} streams of {HUGE} bytes: {:.1} MB resident, {:.1} MB written by the upstream while nobody read",
        peak as f64 / 1e6,
        written as f64 / 1e6
    );
    assert!(peak < PEAK_BYTES, "{peak} bytes");
    let ledger = upstream.ledger();
    assert!(ledger[1..].iter().all(|attempt| !attempt.completed), "the upstream could send without a reader");
    let mut readers = readers;
    for reader in readers.drain(..4) {
        read_huge(reader, HUGE);
    }
    drop(readers);
    let records = gateway.final_records(READERS + 1);
    let count = |state: &str| records.iter().filter(|record| record["state"] == state).count();
    assert_eq!((count("succeeded"), count("cancelled")), (5, READERS - 4));
    assert!(gateway.server().peak_bytes() < PEAK_BYTES);
}

/// Waits until the upstream gets no further; how many bytes it has written by then.
fn standing_still(upstream: &FakeUpstream) -> u64 {
    let written = || upstream.ledger().iter().map(|attempt| attempt.written).sum::<u64>();
    let mut last = (written(), Instant::now());
    eventually("the upstream is held back", || {
        let now = written();
        if now != last.0 {
            last = (now, Instant::now());
        }
        (last.1.elapsed() > Duration::from_millis(500)).then_some(now)
    })
}

#[test]
fn an_event_is_out_long_before_the_next_one_is_due() {
    let _turn = heavy_test_lock();
    const GAP: u64 = 100;
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let story = format!("p,~{GAP},p,~{GAP},p,~{GAP},c");
    let mut delays = Vec::new();
    for _ in 0..5 {
        let call = Operation::Generate.call(&gateway, &format!("events={story}"), 3);
        let mut events = Events::from_reply(call.open(gateway.address()).expect("an answer"));
        let mut seen = Vec::new();
        let mut all = Vec::new();
        while let Some(event) = events.next().expect("a stream") {
            seen.push(Instant::now());
            all.push(event);
        }
        let attempt = upstream.ledger().pop().expect("an attempt");
        is_good(Operation::Generate, &all, &attempt.images, 3);
        delays.extend(seen.iter().zip(&attempt.sent).map(|(seen, sent)| seen.saturating_duration_since(*sent)));
        pause(Duration::from_millis(10));
    }
    delays.sort();
    let median = delays[delays.len() / 2];
    println!(
        "from an event's last byte at the upstream to the whole event at the caller: median {median:?}, worst {:?}",
        delays[delays.len() - 1]
    );
    assert!(median < Duration::from_millis(GAP) / 4, "{median:?} of a gap of {GAP} ms");
}
