//! What huge images cost that come out of responses.

use serde_json::json;

use crate::kit::{Account, FakeUpstream, Form, Gateway, PEAK_BYTES, Reply, heavy_test_lock, stretched_png};

/// Characters of base64 in one image, 28 MB.
const HUGE: usize = 28_000_000;
const CALLERS: usize = 64;

fn before(upstream: &FakeUpstream) -> Gateway {
    let mut gateway =
        Gateway::with("", &[Account::for_upstream("only", upstream).with_responses_protocol().with_slots(CALLERS)]);
    gateway.generate(json!({})).ok_json();
    gateway.server().reset_peak();
    gateway
}

#[test]
fn sixty_four_huge_images_pass_at_once_in_little_memory() {
    let _turn = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let mut gateway = before(&upstream);
    let script = format!("a cube [[b64={HUGE}]]");
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (gateway, script) = (&gateway, &script);
            scope.spawn(move || {
                let call = gateway.call(json!({"prompt": script, "stream": caller % 2 == 0}));
                let (length, last) = call.open(gateway.address()).map(Reply::drain).expect("an answer");
                assert!(length > HUGE && length < HUGE + 4_000, "{length}");
                assert!(last.contains("total_tokens"), "{last}");
            });
        }
    });
    let peak = gateway.server().peak_bytes();
    println!("{CALLERS} images of {HUGE} bytes out of responses: {:.1} MB resident at most", peak as f64 / 1e6);
    assert!(peak < PEAK_BYTES, "{peak} bytes");
    let records = gateway.final_records(CALLERS + 1);
    assert!(records.iter().all(|record| record["state"] == "succeeded"));
}

#[test]
fn several_huge_images_and_huge_uploads_take_little_memory() {
    let _turn = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let mut gateway = before(&upstream);
    let script = format!("a cube [[b64={HUGE}]]");
    let (length, last) =
        gateway.call(json!({"prompt": script, "n": 6})).open(gateway.address()).map(Reply::drain).expect("an answer");
    assert!(length > 6 * HUGE && last.contains("total_tokens"), "{length}");
    let file = stretched_png(256, 256, 30 << 20);
    let form = Form::with_required_fields().big_file("image[]", file.clone()).big_file("mask", file);
    gateway.edit(form).ok_json();
    let peak = gateway.server().peak_bytes();
    println!("six images of {HUGE} bytes, and an edit of 60 MB: {:.1} MB resident at most", peak as f64 / 1e6);
    assert!(peak < PEAK_BYTES, "{peak} bytes");
}
