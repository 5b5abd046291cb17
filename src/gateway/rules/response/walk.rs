//! A walk through a body of JSON where it lies, in memory or on disk: forwards, piece by piece, holding next to nothing.
//!
//! Whatever is walked over is read strictly, texts and numbers too, and no deeper than parsers in general go: so what
//! goes upstream is JSON, whoever looks at it there. Decides nothing about what it says.

use bytes::{Buf as _, BytesMut};
use memchr::memchr2;

use super::json::{Part, Shape};
use crate::error::{Error, Reason, Rejection};
use crate::gateway::spool::Kept;
use crate::image::Source as _;

/// So much is read at once.
const PIECE: usize = 64 * 1024;
/// As deep as `serde_json` reads.
const DEPTH_MAX: usize = 127;
/// A larger value is not kept as text.
const CAPTURE_MAX: usize = 64 * 1024;

/// A walk. It is at one place, and only goes on from there.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    body: &'a Kept,
    /// What has been read and not walked over.
    piece: BytesMut,
    /// Where it has been read to.
    read: u64,
    /// Where the walk ends.
    end: u64,
    depth: usize,
    /// What has been walked over since the capture began, while it is small.
    captured: Option<Vec<u8>>,
}

/// Does something with a member or an element, which has a name or a number. The walk stands before its value and must be
/// taken over it.
type Member<'s, 'a> = &'s mut dyn FnMut(&mut Walk<'a>, &str) -> Result<(), Error>;
type Element<'s, 'a> = &'s mut dyn FnMut(&mut Walk<'a>, usize) -> Result<(), Error>;

// === impl Walk ===

impl<'a> Walk<'a> {
    pub(super) fn new(body: &'a Kept) -> Self {
        Self::between(body, 0, body.len())
    }

    /// Through one value of the body.
    pub(super) fn through(body: &'a Kept, part: Part) -> Self {
        Self::between(body, part.from, part.to)
    }

    pub(super) fn between(body: &'a Kept, from: u64, end: u64) -> Self {
        Self { body, piece: BytesMut::new(), read: from, end, depth: 0, captured: None }
    }

    /// Where the walk is.
    pub(super) fn place(&self) -> u64 {
        self.read - self.piece.len() as u64
    }

    /// The first byte of what comes next; nothing at the end. White space is walked over.
    pub(super) fn ahead(&mut self) -> Result<Option<u8>, Error> {
        loop {
            match self.piece.first().copied() {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.pass(1),
                None if self.fill()? => {}
                found => return Ok(found),
            }
        }
    }

    /// Walks over a value, whatever it is.
    pub(super) fn value(&mut self) -> Result<Part, Error> {
        let first = self.needed()?;
        let from = self.place();
        let shape = match first {
            b'{' => {
                self.object(&mut |walk, _| walk.value().map(drop))?;
                Shape::Object
            }
            b'[' => {
                self.array(&mut |walk, _| walk.value().map(drop))?;
                Shape::Array
            }
            b'"' => {
                self.text(&mut |_| {})?;
                Shape::Text
            }
            b't' => self.word(b"true", Shape::Boolean)?,
            b'f' => self.word(b"false", Shape::Boolean)?,
            b'n' => self.word(b"null", Shape::Null)?,
            b'-' | b'0'..=b'9' => self.number()?,
            _ => return Err(self.malformed("a value was expected")),
        };
        Ok(Part { from, to: self.place(), shape })
    }

    /// The same, and its text as it stands there, if that is small.
    pub(super) fn capture(&mut self) -> Result<(Part, Option<Vec<u8>>), Error> {
        self.needed()?;
        self.captured = Some(Vec::new());
        let part = self.value()?;
        Ok((part, self.captured.take()))
    }

    /// Walks through an object, which must be ahead. Of the names those that are long are cut.
    pub(super) fn object(&mut self, member: Member<'_, 'a>) -> Result<(), Error> {
        self.enter(b'{')?;
        let mut name = String::new();
        let mut more = self.needed()? != b'}';
        while more {
            name.clear();
            self.text(&mut |text| add(&mut name, text))?;
            self.colon()?;
            member(self, &name)?;
            more = self.goes_on(b'}')?;
        }
        self.leave();
        Ok(())
    }

    /// Walks through an array, which must be ahead.
    pub(super) fn array(&mut self, element: Element<'_, 'a>) -> Result<(), Error> {
        self.enter(b'[')?;
        let (mut index, mut more) = (0, self.needed()? != b']');
        while more {
            element(self, index)?;
            index += 1;
            more = self.goes_on(b']')?;
        }
        self.leave();
        Ok(())
    }

    /// Walks over a text, which must be ahead, and says what it says, piece by piece.
    pub(super) fn text(&mut self, hear: &mut dyn FnMut(&str)) -> Result<(), Error> {
        if self.needed()? != b'"' {
            return Err(self.malformed("a text was expected"));
        }
        self.pass(1);
        while self.text_piece(hear)? {}
        Ok(())
    }

    /// Walks over a piece of a text: either as it stands there, or one escape. Whether the text goes on.
    pub(super) fn text_piece(&mut self, hear: &mut dyn FnMut(&str)) -> Result<bool, Error> {
        self.least(1)?;
        let end = memchr2(b'"', b'\\', &self.piece);
        let plain = &self.piece[..end.unwrap_or(self.piece.len())];
        let known = match std::str::from_utf8(plain) {
            Ok(text) => text,
            // The rest of a character is still to come.
            Err(error) if end.is_none() && error.error_len().is_none() => {
                let valid = error.valid_up_to();
                if valid == 0 {
                    let length = plain.len();
                    self.least(length + 1)?;
                    return Ok(true);
                }
                std::str::from_utf8(&plain[..valid]).unwrap_or_default()
            }
            Err(_) => return Err(self.malformed("a text is not UTF-8")),
        };
        if has_control(known.as_bytes()) {
            return Err(self.malformed("a control character stands in a text"));
        }
        let length = known.len();
        if length > 0 {
            hear(known);
            self.pass(length);
            return Ok(true);
        }
        if self.piece[0] == b'"' {
            self.pass(1);
            return Ok(false);
        }
        self.escape(hear).map(|()| true)
    }

    /// Nothing but white space is left.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        match self.ahead()? {
            None => Ok(()),
            Some(_) => Err(self.malformed("something follows its end")),
        }
    }

    fn escape(&mut self, hear: &mut dyn FnMut(&str)) -> Result<(), Error> {
        self.least(2)?;
        let plain = match self.piece[1] {
            byte @ (b'"' | b'\\' | b'/') => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(hear),
            _ => return Err(self.malformed("an escape is wrong")),
        };
        hear(plain.encode_utf8(&mut [0; 4]));
        self.pass(2);
        Ok(())
    }

    /// `\u0061`, or two of them for one character.
    fn unicode(&mut self, hear: &mut dyn FnMut(&str)) -> Result<(), Error> {
        self.least(6)?;
        let high = self.unit(0)?;
        let (length, plain) = if (0xd800..0xdc00).contains(&high) {
            self.least(12)?;
            let low = if self.piece[6..8] == *b"\\u" { self.unit(6)? } else { 0 };
            let low = low.checked_sub(0xdc00).filter(|low| *low < 0x400);
            (12, low.and_then(|low| char::from_u32(0x10000 + ((high - 0xd800) << 10) + low)))
        } else {
            (6, char::from_u32(high))
        };
        let plain = plain.ok_or_else(|| self.malformed("half of a character is escaped"))?;
        hear(plain.encode_utf8(&mut [0; 4]));
        self.pass(length);
        Ok(())
    }

    /// The number of the escape that begins there.
    fn unit(&self, at: usize) -> Result<u32, Error> {
        self.piece[at + 2..at + 6].iter().try_fold(0, |unit, byte| match char::from(*byte).to_digit(16) {
            Some(digit) => Ok(unit << 4 | digit),
            None => Err(self.malformed("an escape is wrong")),
        })
    }

    fn word(&mut self, word: &[u8], shape: Shape) -> Result<Shape, Error> {
        self.least(word.len())?;
        if !self.piece.starts_with(word) {
            return Err(self.malformed("a value was expected"));
        }
        self.pass(word.len());
        Ok(shape)
    }

    fn number(&mut self) -> Result<Shape, Error> {
        let mut shape = Shape::Integer;
        if self.follows(b"-")? {
            self.pass(1);
        }
        match self.digits()? {
            (0, _) => return Err(self.malformed("a digit was expected")),
            (1, _) | (_, b'1'..=b'9') => {}
            _ => return Err(self.malformed("a number begins with 0")),
        }
        if self.follows(b".")? {
            self.pass(1);
            shape = Shape::Decimal;
            self.some_digits()?;
        }
        if self.follows(b"eE")? {
            self.pass(1);
            shape = Shape::Decimal;
            if self.follows(b"+-")? {
                self.pass(1);
            }
            self.some_digits()?;
        }
        Ok(shape)
    }

    fn some_digits(&mut self) -> Result<(), Error> {
        if self.digits()?.0 == 0 { Err(self.malformed("a digit was expected")) } else { Ok(()) }
    }

    /// How many digits follow, and the first of them.
    fn digits(&mut self) -> Result<(usize, u8), Error> {
        let (mut count, mut first) = (0, 0);
        while self.follows(b"0123456789")? {
            first = if count == 0 { self.piece[0] } else { first };
            count += 1;
            self.pass(1);
        }
        Ok((count, first))
    }

    /// Whether the very next byte is one of these.
    fn follows(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        if self.piece.is_empty() && !self.fill()? {
            return Ok(false);
        }
        Ok(self.piece.first().is_some_and(|byte| bytes.contains(byte)))
    }

    fn enter(&mut self, bracket: u8) -> Result<(), Error> {
        if self.needed()? != bracket {
            return Err(self.malformed("another value was expected"));
        }
        if self.depth == DEPTH_MAX {
            return Err(self.malformed("it is nested too deep"));
        }
        self.depth += 1;
        self.pass(1);
        Ok(())
    }

    fn colon(&mut self) -> Result<(), Error> {
        if self.needed()? != b':' {
            return Err(self.malformed("a colon was expected"));
        }
        self.pass(1);
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
        self.pass(1);
    }

    /// After a member or element: whether another one follows, or the end, which is not passed.
    fn goes_on(&mut self, end: u8) -> Result<bool, Error> {
        match self.needed()? {
            b',' => {
                self.pass(1);
                Ok(true)
            }
            byte if byte == end => Ok(false),
            _ => Err(self.malformed("a comma or an end was expected")),
        }
    }

    fn needed(&mut self) -> Result<u8, Error> {
        match self.ahead()? {
            Some(byte) => Ok(byte),
            None => Err(self.malformed("it ends too early")),
        }
    }

    /// So many bytes are there.
    fn least(&mut self, count: usize) -> Result<(), Error> {
        while self.piece.len() < count {
            if !self.fill()? {
                return Err(self.malformed("it ends too early"));
            }
        }
        Ok(())
    }

    /// Walks over bytes that are there.
    fn pass(&mut self, count: usize) {
        if let Some(captured) = &mut self.captured {
            if captured.len() + count <= CAPTURE_MAX {
                captured.extend_from_slice(&self.piece[..count]);
            } else {
                self.captured = None;
            }
        }
        self.piece.advance(count);
    }

    /// Reads on; whether there was anything.
    fn fill(&mut self) -> Result<bool, Error> {
        let held = self.piece.len();
        let count = usize::try_from(self.end - self.read).map_or(PIECE, |left| left.min(PIECE));
        if count == 0 {
            return Ok(false);
        }
        // All of it at once also for the last piece, so that one allocation is taken again and again.
        self.piece.reserve(if self.piece.capacity() == 0 { count } else { PIECE });
        self.piece.resize(held + count, 0);
        let read = self.body.read_at(self.read, &mut self.piece[held..]).map_err(|error| unreadable(&error))?;
        if read == 0 {
            return Err(unreadable(&std::io::ErrorKind::UnexpectedEof.into()));
        }
        self.piece.truncate(held + read);
        self.read += read as u64;
        Ok(true)
    }

    fn malformed(&self, what: &str) -> Error {
        let message = format!("The request body is not valid JSON: {what}, at byte {}.", self.place());
        Rejection::whole(Reason::InvalidJson, message).into()
    }
}

/// Names longer than this are nobody's.
const NAME_MAX: usize = 256;

fn add(name: &mut String, text: &str) {
    let room = NAME_MAX.saturating_sub(name.len());
    name.push_str(&text[..text.floor_char_boundary(room)]);
}

/// Whether a byte below 0x20 is among them, sixteen at a time: this is done for every byte of megabytes.
fn has_control(bytes: &[u8]) -> bool {
    const ONES: u128 = u128::MAX / 0xff;
    let (chunks, rest) = bytes.as_chunks::<16>();
    let below = |chunk: &[u8; 16]| {
        let word = u128::from_ne_bytes(*chunk);
        word.wrapping_sub(ONES * 0x20) & !word & (ONES * 0x80) != 0
    };
    chunks.iter().any(below) || rest.iter().any(|byte| *byte < 0x20)
}

/// Nothing is wrong with the request: the disk does not give back what it took.
fn unreadable(error: &std::io::Error) -> Error {
    tracing::error!(%error, "a request body could not be read back from the spool");
    Error::Unavailable
}

#[cfg(test)]
mod tests;
