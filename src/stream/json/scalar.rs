//! The places inside scalars at which a piece may end: within a number or word, or within an escape.

/// The part of a number or word that has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    Begun,
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
    /// A word of which these bytes are missing.
    Word(&'static [u8]),
    /// Neither a number nor a word of JSON.
    Invalid,
    /// Not checked.
    Skipped,
}

/// The part of an escape that has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escape {
    /// The backslash.
    Begun,
    /// The digits of an escape such as `\u0041`: how many have been read, and their value.
    Hex { digits: u8, unit: u16 },
}

/// The state of an escape after one more byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EscapeStep {
    /// More bytes follow.
    Open(Escape),
    /// The escape stands for this UTF-16 code unit.
    Complete(u16),
}

// === impl Literal ===

impl Literal {
    /// Returns the place after this byte.
    pub(super) fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Skipped, _) => self,
            (Self::Word([next, missing @ ..]), _) if *next == byte => Self::Word(missing),
            (Self::Begun, b't') => Self::Word(b"rue"),
            (Self::Begun, b'f') => Self::Word(b"alse"),
            (Self::Begun, b'n') => Self::Word(b"ull"),
            (Self::Begun, b'-') => Self::Minus,
            (Self::Begun | Self::Minus, b'0') => Self::Zero,
            (Self::Begun | Self::Minus | Self::Integer, b'0'..=b'9') => Self::Integer,
            (Self::Zero | Self::Integer, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Integer | Self::Fraction, b'e' | b'E') => Self::Exponent,
            (Self::Exponent, b'+' | b'-') => Self::ExponentSign,
            (Self::Exponent | Self::ExponentSign | Self::ExponentDigits, b'0'..=b'9') => Self::ExponentDigits,
            _ => Self::Invalid,
        }
    }

    /// True if the number or word may end here.
    pub(super) const fn is_complete(self) -> bool {
        use Literal::{ExponentDigits, Fraction, Integer, Skipped, Word, Zero};
        matches!(self, Zero | Integer | Fraction | ExponentDigits | Word([]) | Skipped)
    }
}

/// True for bytes of numbers and of `true`, `false` and `null`.
pub(super) const fn is_literal_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

// === impl Escape ===

impl Escape {
    /// Reads one byte. Returns `None` if this is not a valid escape.
    pub(super) fn after(self, byte: u8) -> Option<EscapeStep> {
        use EscapeStep::{Complete, Open};
        Some(match (self, byte) {
            (Self::Begun, b'u') => Open(Self::Hex { digits: 0, unit: 0 }),
            (Self::Begun, b'"' | b'\\' | b'/') => Complete(byte.into()),
            (Self::Begun, b'b') => Complete(8),
            (Self::Begun, b't') => Complete(9),
            (Self::Begun, b'n') => Complete(10),
            (Self::Begun, b'f') => Complete(12),
            (Self::Begun, b'r') => Complete(13),
            (Self::Hex { digits, unit }, _) => {
                let digit = u16::try_from(char::from(byte).to_digit(16)?).ok()?;
                let unit = unit << 4 | digit;
                if digits == 3 { Complete(unit) } else { Open(Self::Hex { digits: digits + 1, unit }) }
            }
            _ => return None,
        })
    }
}
