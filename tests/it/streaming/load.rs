//! The delay of events, the memory that many slow readers take, and lines of thirty megabytes.

use std::io::Read;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Operation, assert_complete_stream};
use crate::kit::{Call, Events, FakeUpstream, Gateway, PEAK_BYTES, base64_filler, eventually, heavy_test_lock, pause};

/// The number of base64 characters in one line.
const IMAGE_CHARS: usize = 30_000_000;
const READERS: usize = 100;

/// A stream with a huge final image. The filler starts with the header of an image of this size.
fn huge_image_call(gateway: &Gateway, script: &str, partials: u64) -> Call {
    let prompt = format!("a cube [[{script}]]");
    gateway.call(json!({"prompt": prompt, "stream": true, "partial_images": partials, "size": "3840x2160"}))
}

/// Reads a stream with one huge final image, and compares every byte of the image with what the upstream sent.
fn read_huge(mut events: Events, length: usize) {
    let mut head = Vec::new();
    while !head.ends_with(b"\"b64_json\":\"") {
        let mut byte = [0];
        events.read_exact(&mut byte).expect("a frame with an image");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"event: image_generation.completed\ndata: {"));
    let mut buffer = vec![0; 1 << 17];
    for chunk in base64_filler(length) {
        let received = &mut buffer[..chunk.len()];
        events.read_exact(received).expect("the image");
        assert!(received == chunk.as_slice(), "the image was changed");
    }
    let mut remaining = String::new();
    events.read_to_string(&mut remaining).expect("the end of the stream");
    let line = String::from_utf8(head).expect("text") + &remaining;
    let json = line.split_once("\ndata: ").expect("two lines").1;
    assert!(json.ends_with("}\n\n"));
    let json: Value = serde_json::from_str(json.trim_end()).expect("JSON around the image");
    assert_eq!((&json["b64_json"], &json["size"]), (&json!(""), &json!("3840x2160")));
    assert!(json["usage"]["total_tokens"].is_u64());
}

#[test]
fn a_line_of_thirty_megabytes_passes_unchanged() {
    let _guard = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with_upstream(&upstream);
    gateway.generate(json!({})).ok_json();
    gateway.server().reset_peak();
    let mut requests = 1;
    for (length, options) in [
        (IMAGE_CHARS, "reads=65536"),
        (IMAGE_CHARS, "reads=65536 shape=usage-first"),
        (IMAGE_CHARS, "reads=1460"),
        (IMAGE_CHARS, "reads=65536 lines=crlf framing=close"),
        (400_000, "reads=7"),
        (40_000, "reads=1"),
        (40_000, "reads=1 lines=crlf frames=no-space,no-event,extra"),
    ] {
        let call = huge_image_call(&gateway, &format!("b64={length} {options}"), 0);
        read_huge(Events::from_reply(call.open(gateway.address()).expect("an answer")), length);
        requests += 1;
    }
    let peak = gateway.server().peak_bytes();
    println!("peak resident memory with lines of {IMAGE_CHARS} characters: {:.1} MB", peak as f64 / 1e6);
    assert!(peak < PEAK_BYTES, "{peak} bytes");
    assert!(gateway.final_records(requests).iter().all(|record| record["state"] == "succeeded"));
}

#[test]
fn a_hundred_slow_readers_take_little_memory() {
    let _guard = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with("", &[crate::kit::Account::for_upstream("only", &upstream).with_slots(READERS)]);
    gateway.generate(json!({})).ok_json();
    gateway.server().reset_peak();
    let script = format!("events=p,c b64={IMAGE_CHARS}");
    let slow_call = |_| -> Call { huge_image_call(&gateway, &script, 1).with_small_window() };
    let readers: Vec<Events> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..READERS).map(slow_call).collect();
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
    let written = wait_until_stalled(&upstream);
    let peak = gateway.server().peak_bytes();
    println!(
        "{READERS} streams of {IMAGE_CHARS} characters: {:.1} MB resident, \
         {:.1} MB written by the upstream without a reader",
        peak as f64 / 1e6,
        written as f64 / 1e6
    );
    assert!(peak < PEAK_BYTES, "{peak} bytes");
    let attempts = upstream.received_attempts();
    assert!(
        attempts[1..].iter().all(|attempt| !attempt.completed),
        "the upstream sent all of its answer without a reader"
    );
    let mut readers = readers;
    for reader in readers.drain(..4) {
        read_huge(reader, IMAGE_CHARS);
    }
    drop(readers);
    let records = gateway.final_records(READERS + 1);
    let count = |state: &str| records.iter().filter(|record| record["state"] == state).count();
    assert_eq!((count("succeeded"), count("cancelled")), (5, READERS - 4));
    assert!(gateway.server().peak_bytes() < PEAK_BYTES);
}

/// Waits until the upstream has written no bytes for half a second; returns the number of bytes that it has written.
fn wait_until_stalled(upstream: &FakeUpstream) -> u64 {
    let written = || upstream.received_attempts().iter().map(|attempt| attempt.written).sum::<u64>();
    let mut last = (written(), Instant::now());
    eventually("the upstream writes no more", || {
        let now = written();
        if now != last.0 {
            last = (now, Instant::now());
        }
        (last.1.elapsed() > Duration::from_millis(500)).then_some(now)
    })
}

#[test]
fn an_event_is_passed_on_long_before_the_next_one() {
    let _guard = heavy_test_lock();
    const GAP_MS: u64 = 100;
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let script = format!("p,~{GAP_MS},p,~{GAP_MS},p,~{GAP_MS},c");
    let mut delays = Vec::new();
    for _ in 0..5 {
        let call = Operation::Generate.call(&gateway, &format!("events={script}"), 3);
        let mut events = Events::from_reply(call.open(gateway.address()).expect("an answer"));
        let mut seen = Vec::new();
        let mut all = Vec::new();
        while let Some(event) = events.next().expect("a stream") {
            seen.push(Instant::now());
            all.push(event);
        }
        let attempt = upstream.received_attempts().pop().expect("an attempt");
        assert_complete_stream(Operation::Generate, &all, &attempt.images, 3);
        delays.extend(seen.iter().zip(&attempt.sent).map(|(seen, sent)| seen.saturating_duration_since(*sent)));
        pause(Duration::from_millis(10));
    }
    delays.sort();
    let median = delays[delays.len() / 2];
    println!(
        "from an event's last byte at the upstream to the whole event at the caller: median {median:?}, worst {:?}",
        delays[delays.len() - 1]
    );
    assert!(median < Duration::from_millis(GAP_MS) / 4, "{median:?} of a gap of {GAP_MS} ms");
}
