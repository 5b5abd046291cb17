//! The image files and answers that the server sends.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The begin of a PNG file of 1024 by 1024 pixels: the signature and the chunk `IHDR`.
const PNG_BEGIN: [u8; 33] = [
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 13, b'I', b'H', b'D', b'R', 0, 0, 4, 0, 0, 0, 4, 0, 8, 2,
    0, 0, 0, 0xf0, 0x7f, 0xbc, 0xd4,
];

/// A file that begins like a PNG file. The libraries do not decode pixels, so the rest is pseudo-random.
pub fn picture(length: usize) -> Vec<u8> {
    let mut file = PNG_BEGIN.to_vec();
    let mut random = SeededRandom::new(1);
    while file.len() < length {
        file.extend(random.next().to_le_bytes());
    }
    file.truncate(length);
    file
}

/// The answer of the Images API with this file.
pub fn json_answer(file: &[u8]) -> Vec<u8> {
    let mut answer = properties();
    answer["created"] = json!(1_790_000_000);
    answer["data"] = json!([{ "b64_json": STANDARD.encode(file) }]);
    answer.to_string().into_bytes()
}

/// A stream with one event, the completed image. The text of the image has this number of characters.
pub fn completed_event(characters: usize) -> Vec<u8> {
    let mut event = properties();
    event["type"] = json!("image_generation.completed");
    event["created_at"] = json!(1_790_000_000);
    event["b64_json"] = json!(STANDARD.encode(picture(characters / 4 * 3)));
    format!("event: image_generation.completed\ndata: {event}\n\n").into_bytes()
}

fn properties() -> Value {
    json!({
        "background": "opaque",
        "output_format": "png",
        "quality": "high",
        "size": "1024x1024",
        "usage": {
            "input_tokens": 10,
            "output_tokens": 100,
            "total_tokens": 110,
            "input_tokens_details": { "image_tokens": 0, "text_tokens": 10 },
        },
    })
}

/// SplitMix64: the same seed gives the same numbers on every machine.
pub struct SeededRandom(u64);

// === impl SeededRandom ===

impl SeededRandom {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
