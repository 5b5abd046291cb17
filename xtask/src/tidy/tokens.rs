//! Cuts Rust source into words, marks, texts and comments, each with its line.
//!
//! Parsers of Rust drop comments or lines, and see nothing in the body of a macro; the checks need all three.

/// A piece of source, and the line on which it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) line: usize,
    pub(super) kind: Kind<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// An identifier, a keyword or a number.
    Word(&'a str),
    /// One character of punctuation.
    Mark(char),
    /// A string or a character.
    Text,
    /// A comment, with its marks.
    Comment(&'a str),
}

impl Token<'_> {
    pub(super) fn is_mark(&self, mark: char) -> bool {
        self.kind == Kind::Mark(mark)
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word(word)
    }

    pub(super) const fn is_comment(&self) -> bool {
        matches!(self.kind, Kind::Comment(_))
    }
}

/// The tokens of a source file in their order.
pub(super) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = source;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let (length, kind) = next(rest, first);
        let (piece, after) = rest.split_at(length);
        if let Some(kind) = kind {
            tokens.push(Token { line, kind });
        }
        line += piece.matches('\n').count();
        rest = after;
    }
    tokens
}

/// The length of the piece at the start, and what it is; whitespace is nothing.
fn next(rest: &str, first: char) -> (usize, Option<Kind<'_>>) {
    if first.is_whitespace() {
        return (first.len_utf8(), None);
    }
    if rest.starts_with("//") {
        let end = rest.find('\n').unwrap_or(rest.len());
        return (end, Some(Kind::Comment(&rest[..end])));
    }
    if rest.starts_with("/*") {
        let end = block_comment(rest);
        return (end, Some(Kind::Comment(&rest[..end])));
    }
    if let Some(end) = raw_string(rest).or_else(|| quoted(rest)) {
        return (end, Some(Kind::Text));
    }
    if let Some(end) = character(rest) {
        return (end, Some(Kind::Text));
    }
    if is_word(first) {
        let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
        return (end, Some(Kind::Word(&rest[..end])));
    }
    (first.len_utf8(), Some(Kind::Mark(first)))
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#` and the same after `b` or `c`.
fn raw_string(rest: &str) -> Option<usize> {
    let after = ["r", "br", "cr"].iter().find_map(|prefix| rest.strip_prefix(prefix))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(rest.len() - body.len() + length)
}

/// `"…"`, `b"…"` and `c"…"`.
fn quoted(rest: &str) -> Option<usize> {
    let body = ["\"", "b\"", "c\""].iter().find_map(|prefix| rest.strip_prefix(prefix))?;
    let mut escaped = false;
    let end = body.char_indices().find(|(_, letter)| {
        let ends = *letter == '"' && !escaped;
        escaped = *letter == '\\' && !escaped;
        ends
    });
    Some(rest.len() - body.len() + end.map_or(body.len(), |(at, _)| at + 1))
}

/// `'x'`, `'\n'` and `b'x'`, but not the lifetime `'a`.
fn character(rest: &str) -> Option<usize> {
    let body = ["'", "b'"].iter().find_map(|prefix| rest.strip_prefix(prefix))?;
    let first = body.chars().next()?;
    // Behind a backslash stands at least one more character, which can itself be a quote.
    let skip = if first == '\\' { body.chars().take(2).map(char::len_utf8).sum() } else { first.len_utf8() };
    let close = body.get(skip..)?.find('\'')?;
    let is_character = first == '\\' || close == 0;
    is_character.then_some(rest.len() - body.len() + skip + close + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<&str> {
        let words = tokens(source).into_iter().filter_map(|token| match token.kind {
            Kind::Word(word) => Some(word),
            Kind::Mark(_) | Kind::Text | Kind::Comment(_) => None,
        });
        words.collect()
    }

    #[test]
    fn texts_and_comments_hold_no_words() {
        assert_eq!(words("a /* b /* c */ d */ e // f\ng"), ["a", "e", "g"]);
        assert_eq!(words(r##"a "b \" c" r#"d " e"# b"f" 'g' '\'' '\u{41}' b'h' i"##), ["a", "i"]);
        assert_eq!(
            words("fn a<'b>(c: &'b str) -> &'static str {}"),
            ["fn", "a", "b", "c", "b", "str", "static", "str"]
        );
        assert_eq!(words("r#type r\"x\" ü"), ["r", "type", "ü"]);
    }

    #[test]
    fn lines_are_counted_through_everything() {
        let source = "a\n/* b\n */ c \"d\n\ne\" f\n// g\nh";
        let lines: Vec<(usize, bool)> = tokens(source).iter().map(|token| (token.line, token.is_comment())).collect();
        assert_eq!(lines, [(1, false), (2, true), (3, false), (3, false), (5, false), (6, true), (7, false)]);
    }

    #[test]
    fn what_never_ends_ends_with_the_file() {
        for source in ["\"a", "/* a", "r#\"a", "'", "'\\", "b'", "//"] {
            assert!(tokens(source).len() <= 2, "{source}");
        }
    }
}
