//! What huge images cost that come out of responses.

use std::io::Read;

use serde_json::json;

use crate::kit::{Account, Call, FakeUpstream, Form, Gateway, heavy, stretched_png};

/// Characters of base64 in one image, 28 MB.
const HUGE: usize = 28_000_000;
const CALLERS: usize = 64;
/// The figure to stay under, as everywhere.
const PEAK_BYTES: u64 = 160 * 1000 * 1000;

/// Reads an answer to its end and keeps nothing of it but its last bytes.
fn drain(call: Call, gateway: &Gateway) -> (usize, String) {
    let mut reply = call.open(gateway.address()).expect("an answer");
    assert_eq!(reply.status, 200);
    let (mut length, mut last, mut buffer) = (0, Vec::new(), vec![0; 1 << 16]);
    loop {
        let read = reply.read(&mut buffer).expect("more of it");
        if read == 0 {
            return (length, String::from_utf8_lossy(&last).into_owned());
        }
        length += read;
        last.extend_from_slice(&buffer[..read]);
        last.drain(..last.len().saturating_sub(2_000));
    }
}

fn before(upstream: &FakeUpstream) -> Gateway {
    let mut gateway = Gateway::with("", &[Account::at("only", upstream).speaking_responses().with_places(CALLERS)]);
    gateway.generate(json!({})).good();
    gateway.server().reset_peak();
    gateway
}

#[test]
fn sixty_four_huge_images_pass_at_once_in_little_memory() {
    let _turn = heavy();
    let upstream = FakeUpstream::start();
    let mut gateway = before(&upstream);
    let script = format!("a cube [[b64={HUGE}]]");
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (gateway, script) = (&gateway, &script);
            scope.spawn(move || {
                let call = gateway.call(json!({"prompt": script, "stream": caller % 2 == 0}));
                let (length, last) = drain(call, gateway);
                assert!(length > HUGE && length < HUGE + 4_000, "{length}");
                assert!(last.contains("total_tokens"), "{last}");
            });
        }
    });
    let peak = gateway.server().peak_bytes();
    println!("{CALLERS} images of {HUGE} bytes out of responses: {:.1} MB resident at most", peak as f64 / 1e6);
    assert!(peak < PEAK_BYTES, "{peak} bytes");
    let records = gateway.settled(CALLERS + 1);
    assert!(records.iter().all(|record| record["state"] == "succeeded"));
}

#[test]
fn several_huge_images_and_huge_uploads_take_little_memory() {
    let _turn = heavy();
    let upstream = FakeUpstream::start();
    let mut gateway = before(&upstream);
    let script = format!("a cube [[b64={HUGE}]]");
    let (length, last) = drain(gateway.call(json!({"prompt": script, "n": 6})), &gateway);
    assert!(length > 6 * HUGE && last.contains("total_tokens"), "{length}");
    let file = stretched_png(256, 256, 30 << 20);
    let form = Form::minimum().big_file("image[]", file.clone()).big_file("mask", file);
    gateway.edit(form).good();
    let peak = gateway.server().peak_bytes();
    println!("six images of {HUGE} bytes, and an edit of 60 MB: {:.1} MB resident at most", peak as f64 / 1e6);
    assert!(peak < PEAK_BYTES, "{peak} bytes");
}
