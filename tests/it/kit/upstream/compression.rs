//! Gzip bodies, made without a compressor: stored blocks, or, for the bomb, one match that is repeated.

use super::answer::UpstreamAnswer;
use super::events;

/// The head of every gzip file here: no name, no time.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// The length of the bomb. Every eight bytes of it decompress to more than a thousand.
const BOMB: usize = 10_000_000;

/// Compresses the whole answer into one body.
pub(super) fn compress(word: &str, made: UpstreamAnswer) -> UpstreamAnswer {
    let plain = match &made.events {
        Some(steps) => events::flatten(steps),
        None => [made.before, made.after].concat(),
    };
    let before = match word {
        "gzip" => gzip(&plain),
        "bomb" => bomb(),
        other => panic!("no such coding in a script: {other}"),
    };
    UpstreamAnswer { before, filler: 0, after: Vec::new(), events: None, ..made }
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut coded = HEAD.to_vec();
    let mut blocks = plain.chunks(usize::from(u16::MAX)).peekable();
    while let Some(block) = blocks.next() {
        let length = u16::try_from(block.len()).expect("a block");
        coded.push(u8::from(blocks.peek().is_none()));
        coded.extend_from_slice(&length.to_le_bytes());
        coded.extend_from_slice(&(!length).to_le_bytes());
        coded.extend_from_slice(block);
    }
    coded.extend_from_slice(&crc(plain).to_le_bytes());
    coded.extend_from_slice(&u32::try_from(plain.len()).expect("a length").to_le_bytes());
    coded
}

/// One literal, and then "258 bytes, one back" in thirteen bits until the body is full. It has no end marker; a reader
/// that bounds the decompressed length never gets that far.
fn bomb() -> Vec<u8> {
    const LONGEST_ONE_BACK: u32 = 0b0_0000_1010_0011;
    let mut bits = Bits { bytes: HEAD.to_vec(), held: 0, count: 0 };
    bits.push(0b011, 3); // the last block, with the fixed codes
    bits.push(0x91_u32.reverse_bits() >> 24, 8); // the letter `a`, whose code is sent from its highest bit
    while bits.bytes.len() < BOMB {
        bits.push(LONGEST_ONE_BACK, 13);
    }
    bits.bytes
}

struct Bits {
    bytes: Vec<u8>,
    held: u32,
    count: u32,
}

impl Bits {
    /// The lowest bit goes first.
    fn push(&mut self, bits: u32, count: u32) {
        self.held |= bits << self.count;
        self.count += count;
        while self.count >= 8 {
            self.bytes.push(self.held.to_le_bytes()[0]);
            self.held >>= 8;
            self.count -= 8;
        }
    }
}

fn crc(bytes: &[u8]) -> u32 {
    let step = |sum: u32| if sum & 1 == 1 { 0xedb8_8320 ^ (sum >> 1) } else { sum >> 1 };
    !bytes.iter().fold(!0_u32, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum)))
}
