//! What huge images in responses cost.

use super::{call, drawing};
use crate::kit::{Account, FakeUpstream, Gateway, PEAK_BYTES, Reply, heavy_test_lock};

/// Characters of base64 in one image.
const HUGE: usize = 28_000_000;
const CALLERS: usize = 24;

#[test]
fn many_huge_images_pass_at_once_in_little_memory() {
    let _turn = heavy_test_lock();
    let upstream = FakeUpstream::start();
    let account = Account::for_upstream("only", &upstream).with_responses_protocol().with_slots(CALLERS);
    let mut gateway = Gateway::with("", &[account]);
    call(&gateway).json(&drawing("", true)).send(gateway.address());
    gateway.server().reset_peak();
    let script = format!("b64={HUGE} events=created,added,item,c");
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (gateway, script) = (&gateway, &script);
            scope.spawn(move || {
                let stream = caller % 2 == 0;
                let call = call(gateway).json(&drawing(script, stream));
                let (length, last) = call.open(gateway.address()).map(Reply::drain).expect("an answer");
                // A stream has its image twice.
                assert!(length > HUGE * (1 + usize::from(stream)), "{length}");
                assert!(last.contains("total_tokens"), "{last}");
            });
        }
    });
    let peak = gateway.server().peak_bytes();
    println!("{CALLERS} responses with images of {HUGE} bytes: {:.1} MB resident at most", peak as f64 / 1e6);
    assert!(peak < PEAK_BYTES, "{peak} bytes");
    let records = gateway.final_records(CALLERS + 1);
    assert!(
        records
            .iter()
            .all(|record| record["state"] == "succeeded" && record["delivered"].as_array().map(Vec::len) == Some(1))
    );
}
