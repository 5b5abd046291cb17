//! What huge images in responses cost.

use std::io::Read;

use super::{call, drawing};
use crate::kit::{Account, Call, FakeUpstream, Gateway, heavy};

/// Characters of base64 in one image.
const HUGE: usize = 28_000_000;
const CALLERS: usize = 24;
/// The figure to stay under, as everywhere.
const PEAK_BYTES: u64 = 160 * 1000 * 1000;

/// Reads an answer to its end and keeps nothing but its last bytes.
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

#[test]
fn many_huge_images_pass_at_once_in_little_memory() {
    let _turn = heavy();
    let upstream = FakeUpstream::start();
    let account = Account::at("only", &upstream).speaking_responses().with_places(CALLERS);
    let mut gateway = Gateway::with("", &[account]);
    call(&gateway).json(&drawing("", true)).send(gateway.address());
    gateway.server().reset_peak();
    let script = format!("b64={HUGE} events=created,added,item,c");
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (gateway, script) = (&gateway, &script);
            scope.spawn(move || {
                let stream = caller % 2 == 0;
                let (length, last) = drain(call(gateway).json(&drawing(script, stream)), gateway);
                // A stream has its image twice.
                assert!(length > HUGE * (1 + usize::from(stream)), "{length}");
                assert!(last.contains("total_tokens"), "{last}");
            });
        }
    });
    let peak = gateway.server().peak_bytes();
    println!("{CALLERS} responses with images of {HUGE} bytes: {:.1} MB resident at most", peak as f64 / 1e6);
    assert!(peak < PEAK_BYTES, "{peak} bytes");
    let records = gateway.settled(CALLERS + 1);
    assert!(
        records
            .iter()
            .all(|record| record["state"] == "succeeded" && record["delivered"].as_array().map(Vec::len) == Some(1))
    );
}
