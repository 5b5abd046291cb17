//! The memory that huge images from accounts of the protocol `responses` take.

use serde_json::json;

use crate::kit::{Account, FakeUpstream, Form, Gateway, PEAK_BYTES, Reply, heavy_test_lock, stretched_png};

/// The number of base64 characters of one image.
const IMAGE_CHARS: usize = 14_000_000;
const CALLERS: usize = 64;

fn start_gateway(upstream: &FakeUpstream) -> Gateway {
    let mut gateway =
        Gateway::with("", &[Account::for_upstream("only", upstream).with_responses_protocol().with_slots(CALLERS)]);
    gateway.generate(json!({})).ok_json();
    gateway.server().reset_peak();
    gateway
}

#[test]
fn sixty_four_huge_images_pass_at_once_in_little_memory() {
    let _guard = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let mut gateway = start_gateway(&upstream);
    let script = format!("a cube [[b64={IMAGE_CHARS}]]");
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (gateway, script) = (&gateway, &script);
            scope.spawn(move || {
                let call = gateway.call(json!({"prompt": script, "stream": caller % 2 == 0}));
                let (length, last) = call.open(gateway.address()).map(Reply::drain).expect("an answer");
                assert!(length > IMAGE_CHARS && length < IMAGE_CHARS + 4_000, "{length}");
                assert!(last.contains("total_tokens"), "{last}");
            });
        }
    });
    let peak = gateway.server().peak_bytes();
    println!(
        "{CALLERS} images of {IMAGE_CHARS} characters from responses: {:.1} MB resident at most",
        peak as f64 / 1e6
    );
    assert!(peak < PEAK_BYTES, "{peak} bytes");
    let records = gateway.final_records(CALLERS + 1);
    assert!(records.iter().all(|record| record["state"] == "succeeded"));
}

#[test]
fn several_huge_images_and_huge_uploads_take_little_memory() {
    let _guard = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let mut gateway = start_gateway(&upstream);
    let script = format!("a cube [[b64={IMAGE_CHARS}]]");
    let (length, last) =
        gateway.call(json!({"prompt": script, "n": 6})).open(gateway.address()).map(Reply::drain).expect("an answer");
    assert!(length > 6 * IMAGE_CHARS && last.contains("total_tokens"), "{length}");
    let file = stretched_png(256, 256, 30 << 20);
    let form = Form::with_required_fields().big_file("image[]", file.clone()).big_file("mask", file);
    gateway.edit(form).ok_json();
    let peak = gateway.server().peak_bytes();
    println!(
        "six images of {IMAGE_CHARS} characters, and an edit of 60 MB: {:.1} MB resident at most",
        peak as f64 / 1e6
    );
    assert!(peak < PEAK_BYTES, "{peak} bytes");
}
