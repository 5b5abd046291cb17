//! The memory that huge images in responses take.

use super::{call, image_response_body};
use crate::kit::{Account, FakeUpstream, Gateway, PEAK_BYTES, Reply, heavy_test_lock};

/// The number of base64 characters of one image.
const IMAGE_CHARS: usize = 28_000_000;
const CALLERS: usize = 24;

#[test]
fn many_parallel_huge_images_take_little_memory() {
    let _guard = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let account = Account::for_upstream("only", &upstream).with_responses_protocol().with_slots(CALLERS);
    let mut gateway = Gateway::with("", &[account]);
    call(&gateway).json(&image_response_body("", true)).send(gateway.address());
    gateway.server().reset_peak();
    let script = format!("b64={IMAGE_CHARS} events=created,added,item,c");
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (gateway, script) = (&gateway, &script);
            scope.spawn(move || {
                let stream = caller % 2 == 0;
                let call = call(gateway).json(&image_response_body(script, stream));
                let (length, last) = call.open(gateway.address()).map(Reply::drain).expect("an answer");
                // A stream has the image twice: in `output_item.done` and in the completed response.
                assert!(length > IMAGE_CHARS * (1 + usize::from(stream)), "{length}");
                assert!(last.contains("total_tokens"), "{last}");
            });
        }
    });
    let peak = gateway.server().peak_bytes();
    println!(
        "{CALLERS} responses with images of {IMAGE_CHARS} characters: {:.1} MB resident at most",
        peak as f64 / 1e6
    );
    assert!(peak < PEAK_BYTES, "{peak} bytes");
    let records = gateway.final_records(CALLERS + 1);
    assert!(
        records
            .iter()
            .all(|record| record["state"] == "succeeded" && record["delivered"].as_array().map(Vec::len) == Some(1))
    );
}
