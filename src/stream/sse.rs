//! Finds the data, the names and the ends of server-sent events, in a stream that comes in pieces cut anywhere.
//!
//! The framer keeps nothing but the name of the current event, so an event of 30 MB needs no more memory than one of 30
//! bytes. Its caller takes the data from the pieces, as slices or as copies.

use memchr::memchr2;

/// The number of bytes of a line in which a field name is searched for, so that a line of megabytes without a colon is
/// not kept. No known name is longer, even after a byte order mark.
const FIELD_MAX: usize = 12;
/// The number of bytes at which the name of an event is cut. No known name is longer.
const EVENT_NAME_MAX: usize = 256;
/// The byte order mark, which may come before the first line and states that the text is UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The framer of one stream.
#[derive(Debug, Default)]
pub(crate) struct SseFramer {
    line: LineState,
    /// The name of the field in the current line, cut at [`FIELD_MAX`].
    field: Vec<u8>,
    event_name: Vec<u8>,
    /// True after the end of the first line.
    has_begun: bool,
    /// True if a line feed here belongs to the line end before it.
    is_after_carriage_return: bool,
    /// True if the current event contains anything but comments.
    has_fields: bool,
    /// True directly after the end of an event.
    has_ended: bool,
}

/// The place in the current line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LineState {
    /// Before the colon.
    #[default]
    Field,
    /// Directly after the colon: one space may follow.
    Colon(Field),
    Value(Field),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Data,
    EventName,
    Other,
}

/// The meaning of a part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SseSpan {
    /// Data of an event.
    Data,
    /// The end of a line of data, which may be empty. If another one follows, it begins after a line feed.
    DataLineEnd,
    /// The end of an event, with or without data.
    EventEnd,
    /// The end of comments between two events.
    CommentEnd,
    /// Everything else.
    Other,
}

// === impl SseFramer ===

impl SseFramer {
    /// Returns the length of the next part of `rest`, and its meaning. `rest` must not be empty.
    pub(crate) fn next(&mut self, rest: &[u8]) -> (usize, SseSpan) {
        let Some(&first) = rest.first() else { return (0, SseSpan::Other) };
        if std::mem::take(&mut self.is_after_carriage_return) && first == b'\n' {
            return (1, SseSpan::Other);
        }
        if std::mem::take(&mut self.has_ended) {
            self.event_name.clear();
        }
        match (first, self.line) {
            (b'\r' | b'\n', _) => {
                self.is_after_carriage_return = first == b'\r';
                (1, self.end_line())
            }
            (_, LineState::Field) => (self.read_field(rest), SseSpan::Other),
            (b' ', LineState::Colon(field)) => {
                self.line = LineState::Value(field);
                (1, SseSpan::Other)
            }
            (_, LineState::Colon(field) | LineState::Value(field)) => self.read_value(rest, field),
        }
    }

    /// The name of the current event as far as it has come, or of the event that has just ended; empty without one.
    pub(crate) fn event_name(&self) -> &[u8] {
        &self.event_name
    }

    /// Ends the stream, which may break off within a line. Returns true if that line is one of data.
    pub(crate) fn finish(&mut self) -> bool {
        self.end_line() == SseSpan::DataLineEnd
    }

    fn read_field(&mut self, rest: &[u8]) -> usize {
        let head = &rest[..rest.len().min(FIELD_MAX - self.field.len())];
        let length = head.iter().position(|byte| matches!(byte, b':' | b'\r' | b'\n')).unwrap_or(head.len());
        self.field.extend_from_slice(&head[..length]);
        if length == 0 {
            self.line = LineState::Colon(self.end_field());
            return 1;
        }
        if self.field.len() == FIELD_MAX {
            self.line = LineState::Value(Field::Other);
        }
        length
    }

    fn read_value(&mut self, rest: &[u8], field: Field) -> (usize, SseSpan) {
        self.line = LineState::Value(field);
        let length = memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
        if field == Field::EventName {
            self.event_name.extend_from_slice(&rest[..length.min(EVENT_NAME_MAX - self.event_name.len())]);
        }
        (length, if field == Field::Data { SseSpan::Data } else { SseSpan::Other })
    }

    /// Returns the name of the field, without the mark that may come before the first line.
    fn field_name(&self) -> &[u8] {
        let name = self.field.as_slice();
        if self.has_begun { name } else { name.strip_prefix(BYTE_ORDER_MARK).unwrap_or(name) }
    }

    /// Returns the field that begins here. Of two event names, the last counts.
    fn end_field(&mut self) -> Field {
        match self.field_name() {
            b"data" => Field::Data,
            b"event" => {
                self.event_name.clear();
                Field::EventName
            }
            _ => Field::Other,
        }
    }

    fn end_line(&mut self) -> SseSpan {
        let (line, has_name) = (std::mem::take(&mut self.line), !self.field_name().is_empty());
        let field = match line {
            LineState::Field if has_name => self.end_field(),
            LineState::Field => {
                self.begin_line();
                self.has_ended = true;
                return if std::mem::take(&mut self.has_fields) { SseSpan::EventEnd } else { SseSpan::CommentEnd };
            }
            LineState::Colon(field) | LineState::Value(field) => field,
        };
        self.has_fields |= has_name;
        self.begin_line();
        if field == Field::Data { SseSpan::DataLineEnd } else { SseSpan::Other }
    }

    fn begin_line(&mut self) {
        self.field.clear();
        self.has_begun = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes one line of text for each part that is not [`SseSpan::Other`]: the data, and the ends with their names.
    #[derive(Default)]
    struct SpanLog {
        framer: SseFramer,
        data: String,
        lines: Vec<String>,
    }

    impl SpanLog {
        fn read(&mut self, mut piece: &[u8]) {
            while !piece.is_empty() {
                let (length, span) = self.framer.next(piece);
                self.note(span, str::from_utf8(&piece[..length]).unwrap_or("?"));
                piece = &piece[length..];
            }
        }

        fn note(&mut self, span: SseSpan, text: &str) {
            let name = str::from_utf8(self.framer.event_name()).unwrap();
            match span {
                SseSpan::Data => self.data.push_str(text),
                SseSpan::DataLineEnd => self.lines.push(format!("data {}", std::mem::take(&mut self.data))),
                SseSpan::EventEnd => self.lines.push(format!("end {name}")),
                SseSpan::CommentEnd => self.lines.push("comments".to_owned()),
                SseSpan::Other => {}
            }
        }
    }

    fn read(stream: &str, cut: usize) -> Vec<String> {
        let mut log = SpanLog::default();
        stream.as_bytes().chunks(cut).for_each(|piece| log.read(piece));
        if log.framer.finish() {
            log.lines.push(format!("data {}, cut", log.data));
        }
        log.lines
    }

    #[track_caller]
    fn check(stream: &str, expected: &[&str]) {
        for end in ["\n", "\r\n", "\r"] {
            for cut in 1..=stream.len() {
                assert_eq!(read(&stream.replace('\n', end), cut), expected, "{end:?} cut into {cut}: {stream:?}");
            }
        }
    }

    #[test]
    fn events_end_at_an_empty_line_in_every_spelling() {
        check(
            "event: a\ndata: {\"x\":\ndata:1}\n\n: alone\n\nretry: 5\ndata: y\nid: 7\n\nretry: 5\n\n",
            &["data {\"x\":", "data 1}", "end a", "comments", "data y", "end ", "end "],
        );
    }

    #[test]
    fn only_the_exact_names_of_fields_are_read() {
        check("data\ndata:\nevent\ndatabase: 1\nDATA: 2\n data: 3\n:data: 4\n\n", &["data ", "data ", "end "]);
        let long = "x".repeat(40);
        check(&format!("{long}data: 1\n{long}\nevent: {long}\ndata: 2\n\n"), &["data 2", &format!("end {long}")]);
        assert_eq!(read(&format!("event: {}\n\n", "n".repeat(1000)), 7), [format!("end {}", "n".repeat(256))]);
    }

    #[test]
    fn a_byte_order_mark_counts_only_at_the_beginning() {
        check("\u{feff}data: 1\n\n\u{feff}data: 2\n\n", &["data 1", "end ", "end "]);
        check("\u{feff}\n\u{feff}event: a\n\n", &["comments", "end "]);
    }

    #[test]
    fn a_line_that_is_cut_off_is_reported() {
        check("event: a\ndata: 1", &["data 1, cut"]);
        check("data", &["data , cut"]);
        check("data: 1\n", &["data 1"]);
        check("event: a", &[]);
    }

    #[test]
    fn the_framer_takes_each_chunk_of_a_long_line_in_one_call_and_keeps_nothing_of_it() {
        // This is why the time is linear in the size of an image. A measured time would depend on the machine.
        let stream = [b"data: ".to_vec(), vec![b'x'; 1 << 20], b"\n\n".to_vec()].concat();
        let (mut framer, mut calls) = (SseFramer::default(), 0);
        for mut chunk in stream.chunks(1 << 10) {
            while !chunk.is_empty() {
                chunk = &chunk[framer.next(chunk).0..];
                calls += 1;
            }
            assert!(framer.field.len() <= FIELD_MAX && framer.event_name.is_empty());
        }
        // The name, the colon, the space and each of the two line ends are parts of their own.
        assert_eq!(calls, (1 << 10) + 1 + 5);
    }
}
