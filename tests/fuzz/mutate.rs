//! Mutations of bytes, determined by a seed.

/// Tokens that parsers look for, and numbers at the bounds of their types.
const WORDS: &[&[u8]] = &[
    b"PK\x03\x04",
    b"PK\x01\x02",
    b"PK\x05\x06",
    b"PK\x07\x08",
    b"PK\x06\x07",
    b"\x1f\x8b\x08",
    b"ustar\x0000",
    b"ustar  \0",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\xff\xff",
    b"\x00\x80",
    b"\xfe\xff",
    b"../",
    b"/",
    b"\\",
    b"\0",
    b"\xc0\xaf",
    b"---\n",
    b"\n---\n",
    b": ",
    b"- ",
    b"&a ",
    b"*a",
    b"<<: ",
    b"!!",
    b"|\n",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"'",
    b"\\u0000",
    b"\\ud800",
    b"1e999",
    b"-0",
    b"null",
    b"\xef\xbb\xbf",
    b"sha256",
    b"skills",
    b"version",
    b"2.0.0",
    b"https://",
    b"\xe2\x80\xae",
    b"99999999999999999999",
    b"77777777777\0",
    b"30 path=../x\n",
    b"\r\n",
    b"\r\n\r\n",
    b"0\r\n\r\n",
    b"content-length: ",
    b"transfer-encoding: chunked\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
];

/// A pseudorandom generator (xorshift64*) and the mutations that it chooses.
pub(crate) struct Mutator {
    state: u64,
}

impl Mutator {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below the bound, or 0 if the bound is 0.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 16).expect("48 bits") % bound.max(1)
    }

    /// A copy of one input of the pool, with one to four mutations.
    pub(crate) fn change(&mut self, pool: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = pool[self.below(pool.len())].clone();
        for _ in 0..=self.below(4) {
            self.mutate_once(&mut bytes, pool);
        }
        bytes
    }

    fn mutate_once(&mut self, bytes: &mut Vec<u8>, pool: &[Vec<u8>]) {
        let at = self.below(bytes.len() + 1);
        let length = self.below(32).min(bytes.len() - at);
        match self.below(9) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            1 if at < bytes.len() => bytes[at] = u8::try_from(self.below(256)).expect("a byte"),
            2 if at < bytes.len() => bytes[at] = bytes[at].wrapping_add(if self.below(2) == 0 { 1 } else { 255 }),
            3 => drop(bytes.drain(at..at + length)),
            4 => {
                let part = bytes[at..at + length].to_vec();
                let to = self.below(bytes.len() + 1);
                bytes.splice(to..to, part);
            }
            5 => {
                let word = WORDS[self.below(WORDS.len())];
                bytes.splice(at..at, word.iter().copied());
            }
            6 => {
                let word = WORDS[self.below(WORDS.len())];
                let end = (at + word.len()).min(bytes.len());
                bytes.splice(at..end, word.iter().copied());
            }
            7 => bytes.truncate(at),
            _ => {
                let tail = &pool[self.below(pool.len())];
                let from = self.below(tail.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&tail[from..]);
            }
        }
    }
}
