//! Leaves out the Base64 data of a string, and nothing else: any text in front of it or after it is passed on.

/// The longest beginning of a string by which data is recognized, in bytes (our choice): no prefix of a data URL is longer.
/// A shorter string is a text, whatever its characters are.
const HEAD_MAX: usize = 128;
const SCHEME: &str = "data:";
const MARK: &str = ";base64,";

/// The filter of one string, which comes in pieces.
#[derive(Debug)]
pub(super) struct DataFilter {
    /// True if the string may be data without a prefix.
    may_be_bare: bool,
    /// The beginning of the string, until it is known to be data or text.
    head: Option<String>,
    is_in_data: bool,
}

// === impl DataFilter ===

impl DataFilter {
    pub(super) const fn new(may_be_bare: bool) -> Self {
        Self { may_be_bare, head: Some(String::new()), is_in_data: false }
    }

    /// Takes the next piece, and passes on what is not data.
    pub(super) fn push(&mut self, mut piece: &str, mut visit: impl FnMut(&str)) {
        if let Some(head) = &mut self.head {
            let (now, later) = piece.split_at(piece.floor_char_boundary(HEAD_MAX - head.len()));
            head.push_str(now);
            if later.is_empty() && head.len() < HEAD_MAX {
                return;
            }
            self.end_head(&mut visit);
            piece = later;
        }
        if self.is_in_data {
            piece = &piece[data_length(piece)..];
            self.is_in_data = piece.is_empty();
        }
        if !piece.is_empty() {
            visit(piece);
        }
    }

    /// Ends the string.
    pub(super) fn finish(mut self, mut visit: impl FnMut(&str)) {
        self.may_be_bare = false;
        self.end_head(&mut visit);
    }

    /// Decides on the beginning of the string, and passes on what is not data.
    fn end_head(&mut self, visit: &mut impl FnMut(&str)) {
        let Some(head) = self.head.take() else { return };
        let is_url = head.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME));
        let mark = if is_url { head.to_ascii_lowercase().find(MARK) } else { None };
        let data_start = match mark {
            Some(mark) => mark + MARK.len(),
            None if self.may_be_bare && data_length(&head) == head.len() => 0,
            None => head.len(),
        };
        let (before, data) = head.split_at(data_start);
        let after = &data[data_length(data)..];
        self.is_in_data = data_start < head.len() && after.is_empty() || mark.is_some() && data.is_empty();
        [before, after].into_iter().filter(|text| !text.is_empty()).for_each(visit);
    }
}

/// Returns the number of bytes at the beginning of a text that Base64 may have, with line ends.
fn data_length(text: &str) -> usize {
    let is_data =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=' | b'\r' | b'\n');
    text.as_bytes().iter().position(|byte| !is_data(byte)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Filters a string that is cut into pieces of this many characters.
    fn filter(text: &str, may_be_bare: bool, length: usize) -> String {
        let (mut filter, mut passed) = (DataFilter::new(may_be_bare), String::new());
        let characters: Vec<char> = text.chars().collect();
        for piece in characters.chunks(length) {
            filter.push(&piece.iter().collect::<String>(), |text| passed.push_str(text));
        }
        filter.finish(|text| passed.push_str(text));
        passed
    }

    #[test]
    fn only_base64_data_is_left_out() {
        let data = "QUJD".repeat(500);
        for (text, may_be_bare, expected) in [
            ("a short text".to_owned(), true, "a short text".to_owned()),
            ("forbidden".to_owned(), true, "forbidden".to_owned()),
            ("ä ".repeat(300), false, "ä ".repeat(300)),
            (data.clone(), false, data.clone()),
            (data.clone(), true, String::new()),
            (format!("{data} a forbidden thing, {data}"), true, format!(" a forbidden thing, {data}")),
            (format!("a forbidden thing {data}"), true, format!("a forbidden thing {data}")),
            (format!("data:image/png;base64,{data}"), false, "data:image/png;base64,".to_owned()),
            ("data:image/png;base64,".to_owned(), false, "data:image/png;base64,".to_owned()),
            (
                format!("DATA:image/png;name=a forbidden thing;BASE64,{data}!"),
                false,
                "DATA:image/png;name=a forbidden thing;BASE64,!".to_owned(),
            ),
            ("data:text/plain,a forbidden thing".to_owned(), true, "data:text/plain,a forbidden thing".to_owned()),
            ("data:image/png;base64,AAAA forbidden".to_owned(), true, "data:image/png;base64, forbidden".to_owned()),
        ] {
            for length in [1, 3, 127, 128, 129, 10_000] {
                assert_eq!(filter(&text, may_be_bare, length), expected, "{length}: {text:.60}");
            }
        }
    }
}
