//! The checksum that zip and gzip share.

/// The CRC-32 of each byte, for the polynomial 0xedb88320.
const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    let mut byte: u32 = 0;
    while index < table.len() {
        let mut remainder = byte;
        let mut bit = 0;
        while bit < 8 {
            remainder = if remainder & 1 == 1 { (remainder >> 1) ^ 0xedb8_8320 } else { remainder >> 1 };
            bit += 1;
        }
        table[index] = remainder;
        index += 1;
        byte += 1;
    }
    table
}

/// CRC-32 according to ISO 3309, computed in pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crc32(u32);

impl Crc32 {
    pub(crate) fn new() -> Self {
        Self(u32::MAX)
    }

    pub(crate) fn checksum(bytes: &[u8]) -> u32 {
        let mut crc = Self::new();
        crc.update(bytes);
        crc.value()
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let [low, ..] = self.0.to_le_bytes();
            self.0 = TABLE[usize::from(low ^ byte)] ^ (self.0 >> 8);
        }
    }

    pub(crate) fn value(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_standard_does_not_depend_on_pieces() {
        let mut crc = Crc32::new();
        crc.update(b"1234");
        crc.update(b"");
        crc.update(b"56789");
        assert_eq!((crc.value(), Crc32::checksum(b"123456789")), (0xcbf4_3926, 0xcbf4_3926));
    }
}
