//! Splits a multipart body that comes in pieces into the heads and the contents of its parts. A content is passed on as
//! slices of the pieces; heads are small and are copied.

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memchr_iter;
use memchr::memmem::{self, Finder};

/// The maximum number of bytes that are searched for a boundary or the end of a head (our choice): the headers of a part
/// and some padding.
pub(crate) const SEARCH_MAX: usize = 16 * 1024;

/// A body that is being split.
pub(crate) struct PartScanner {
    /// Finds the end of a content: a line end and the boundary.
    delimiter: Finder<'static>,
    place: Place,
    /// The bytes that have come and have not been read.
    unread: Bytes,
    /// The bytes before these that mean nothing without what follows them.
    held: BytesMut,
}

/// The next piece of a form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PartEvent {
    /// A part begins. The bytes are its headers, and the empty line after them.
    Head(Bytes),
    /// The next bytes of its content, at least one.
    Content(Bytes),
    /// Its content ends.
    ContentEnd,
    /// The last part has ended.
    FormEnd,
}

/// A boundary or the end of a head is not where it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PartError {
    #[error("the boundary or the end of a part's header section is missing")]
    Missing,
    #[error("a boundary is followed by other text")]
    BoundaryLine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Preamble,
    /// After a boundary, on the same line.
    BoundaryLine,
    Head,
    Content,
    End,
}

// === impl PartScanner ===

impl PartScanner {
    pub(crate) fn new(boundary: &str) -> Self {
        Self {
            delimiter: Finder::new(&format!("\r\n--{boundary}")).into_owned(),
            place: Place::Preamble,
            unread: Bytes::new(),
            // The first boundary may begin the body, without a line end before it.
            held: BytesMut::from(&b"\r\n"[..]),
        }
    }

    /// Adds the next bytes, when [`Self::next`] has returned `None`.
    pub(crate) fn push(&mut self, piece: Bytes) {
        self.unread = piece;
    }

    /// The number of bytes that have come and have not been read; after the end of the form, of those after it.
    pub(crate) fn surplus(&self) -> usize {
        self.held.len() + self.unread.len()
    }

    /// Returns the next event; `None` if more bytes must come first.
    pub(crate) fn next(&mut self) -> Result<Option<PartEvent>, PartError> {
        loop {
            match self.place {
                Place::Preamble => match self.take_until(None)? {
                    Some(_) => self.place = Place::BoundaryLine,
                    None => return Ok(None),
                },
                Place::BoundaryLine => match self.read_boundary_line()? {
                    Some(place) => self.place = place,
                    None => return Ok(None),
                },
                Place::Head => return self.read_head(),
                Place::Content => return Ok(self.read_content()),
                Place::End => return Ok(Some(PartEvent::FormEnd)),
            }
        }
    }

    fn read_head(&mut self) -> Result<Option<PartEvent>, PartError> {
        let head = self.take_until(Some(b"\r\n\r\n"))?;
        self.place = if head.is_some() { Place::Content } else { Place::Head };
        Ok(head.map(PartEvent::Head))
    }

    /// Takes the bytes up to and including `end`, or a delimiter if `end` is `None`.
    fn take_until(&mut self, end: Option<&[u8]>) -> Result<Option<Bytes>, PartError> {
        let (before, end) = (self.held.len(), end.unwrap_or_else(|| self.delimiter.needle()));
        let new = self.unread.len().min(SEARCH_MAX.saturating_sub(before));
        self.held.extend_from_slice(&self.unread[..new]);
        let searched = before.saturating_sub(end.len());
        if let Some(found) = memmem::find(&self.held[searched..], end) {
            let length = searched + found + end.len();
            self.unread.advance(length - before);
            self.held.truncate(length);
            return Ok(Some(self.held.split().freeze()));
        }
        self.unread.advance(new);
        if self.held.len() < SEARCH_MAX { Ok(None) } else { Err(PartError::Missing) }
    }

    /// Reads the rest of a line that begins with a boundary: the mark of the last boundary, or padding.
    fn read_boundary_line(&mut self) -> Result<Option<Place>, PartError> {
        let line = self.take_until(Some(b"\r\n"))?;
        if line.as_deref().unwrap_or(&self.held).starts_with(b"--") {
            return Ok(Some(Place::End));
        }
        let Some(line) = line else { return Ok(None) };
        let is_padding = line[..line.len() - 2].iter().all(|byte| matches!(byte, b' ' | b'\t'));
        if is_padding { Ok(Some(Place::Head)) } else { Err(PartError::BoundaryLine) }
    }

    fn read_content(&mut self) -> Option<PartEvent> {
        let delimiter = self.delimiter.needle();
        if !self.held.is_empty() {
            // The held bytes are the beginning of a delimiter, or of a content that is like one.
            let missing = &delimiter[self.held.len()..];
            let known = missing.len().min(self.unread.len());
            if self.unread[..known] != missing[..known] {
                return Some(PartEvent::Content(self.held.split().freeze()));
            }
            if known < missing.len() {
                self.held.extend_from_slice(&self.unread.split_to(known));
                return None;
            }
            self.held.clear();
            self.unread.advance(known);
            self.place = Place::BoundaryLine;
            return Some(PartEvent::ContentEnd);
        }
        if let Some(length) = self.delimiter.find(&self.unread) {
            // At the next call, the held bytes are a whole delimiter.
            let content = self.unread.split_to(length);
            self.held.extend_from_slice(&self.unread.split_to(delimiter.len()));
            return if content.is_empty() { self.read_content() } else { Some(PartEvent::Content(content)) };
        }
        let tail = self.unread.len().saturating_sub(delimiter.len() - 1);
        let begins_delimiter = |at: &usize| delimiter.starts_with(&self.unread[tail + at..]);
        let cut = memchr_iter(b'\r', &self.unread[tail..]).find(begins_delimiter);
        let content = self.unread.split_to(cut.map_or(self.unread.len(), |at| tail + at));
        self.held.extend_from_slice(&std::mem::take(&mut self.unread));
        (!content.is_empty()).then_some(PartEvent::Content(content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a form: the head and the content of each.
    type Parts = Vec<(String, String)>;

    /// Adds what the next piece has to the parts. Returns true at the end of the form.
    fn add(scanner: &mut PartScanner, piece: &[u8], parts: &mut Parts) -> Result<bool, PartError> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        scanner.push(Bytes::copy_from_slice(piece));
        while let Some(event) = scanner.next()? {
            match event {
                PartEvent::Head(head) => parts.push((text(&head), String::new())),
                PartEvent::Content(content) => parts.last_mut().expect("a part").1.push_str(&text(&content)),
                PartEvent::ContentEnd => parts.last_mut().expect("a part").1.push('|'),
                PartEvent::FormEnd => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Returns the parts of a form that comes in these pieces. Each content ends with a bar.
    fn split<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Parts, Option<PartError>> {
        let (mut scanner, mut parts) = (PartScanner::new("xx"), Parts::new());
        for piece in pieces {
            if add(&mut scanner, piece, &mut parts).map_err(Some)? {
                return Ok(parts);
            }
        }
        Err(None)
    }

    #[test]
    fn a_form_is_split_wherever_it_is_cut() {
        let contents = ["", "a", "--xx", "\r\n--x", "\r\n--x\r\n--", "\r\r\n\r", "\r\n-\r\n-", "\n--xx--\n", "\r"];
        let parts: String =
            contents.iter().map(|content| format!("--xx \t\r\nA: {content:?}\r\n\r\n{content}\r\n")).collect();
        let expected: Vec<_> =
            contents.iter().map(|content| (format!("A: {content:?}\r\n\r\n"), format!("{content}|"))).collect();
        for (preamble, end) in [("", ""), ("\r\n", "\r\n"), ("preamble --xx\r\n", "--epilogue\r\n--xx\r\n")] {
            let form = format!("{preamble}{parts}--xx--{end}");
            let found =
                |pieces: &[&[u8]]| split(pieces.iter().copied()).unwrap_or_else(|error| panic!("{error:?}: {form}"));
            assert_eq!(found(&[form.as_bytes()]), expected);
            assert_eq!(found(&form.as_bytes().chunks(1).collect::<Vec<_>>()), expected);
            for cut in 0..form.len() {
                let (first, second) = form.as_bytes().split_at(cut);
                assert_eq!(found(&[first, second]), expected, "cut at {cut}");
                let is_whole = cut >= form.len() - end.len();
                assert_eq!(split([first].into_iter()).map(drop), is_whole.then_some(()).ok_or(None), "ends at {cut}");
            }
        }
    }

    #[test]
    fn a_search_has_a_limit() {
        let long = |length: usize| "a".repeat(length);
        for (form, fits) in [
            (format!("{}\r\n--xx--", long(SEARCH_MAX - 10)), true),
            (format!("{}\r\n--xx--", long(SEARCH_MAX)), false),
            (format!("--xx\r\nA: {}\r\n\r\n\r\n--xx--", long(SEARCH_MAX - 20)), true),
            (format!("--xx\r\nA: {}\r\n\r\n\r\n--xx--", long(SEARCH_MAX)), false),
            (format!("--xx{}\r\nA: 1\r\n\r\n\r\n--xx--", " ".repeat(SEARCH_MAX)), false),
            (format!("--xx\r\nA: 1\r\n\r\n{}\r\n--xx--", long(SEARCH_MAX * 2)), true),
        ] {
            for size in [1, 1000, form.len()] {
                let result = split(form.as_bytes().chunks(size));
                assert_eq!(result.map(drop), fits.then_some(()).ok_or(Some(PartError::Missing)), "{size}");
            }
        }
        assert_eq!(split(["--xx\r\nA: 1\r\n\r\n\r\n--xxx"].map(str::as_bytes).into_iter()), Err(None));
        assert_eq!(
            split(["--xx\r\nA: 1\r\n\r\n\r\n--xxx\r\n"].map(str::as_bytes).into_iter()),
            Err(Some(PartError::BoundaryLine))
        );
    }
}
