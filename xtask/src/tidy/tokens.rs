//! Splits Rust source into words, punctuation, literals and comments, each with its line.
//!
//! Rust parsers drop comments or line numbers, and do not parse the bodies of macros; the checks need all three.

/// A token, and the line on which it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) line: usize,
    pub(super) kind: TokenKind<'a>,
}

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind<'a> {
    /// An identifier, a keyword or a number.
    Word(&'a str),
    /// One character of punctuation.
    Punctuation(char),
    /// A string or character literal.
    Literal,
    /// A comment, with its delimiters.
    Comment(&'a str),
}

impl Token<'_> {
    pub(super) fn is_punctuation(&self, mark: char) -> bool {
        self.kind == TokenKind::Punctuation(mark)
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        self.kind == TokenKind::Word(word)
    }

    pub(super) const fn is_comment(&self) -> bool {
        matches!(self.kind, TokenKind::Comment(_))
    }
}

/// The tokens of a source file, in order.
pub(super) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut remaining = source;
    let mut line = 1;
    while let Some(first) = remaining.chars().next() {
        let (length, kind) = next(remaining, first);
        let (piece, after) = remaining.split_at(length);
        if let Some(kind) = kind {
            tokens.push(Token { line, kind });
        }
        line += piece.matches('\n').count();
        remaining = after;
    }
    tokens
}

/// The length and the kind of the first token, in bytes; whitespace has no kind.
fn next(remaining: &str, first: char) -> (usize, Option<TokenKind<'_>>) {
    if first.is_whitespace() {
        return (first.len_utf8(), None);
    }
    if remaining.starts_with("//") {
        let end = remaining.find('\n').unwrap_or(remaining.len());
        return (end, Some(TokenKind::Comment(&remaining[..end])));
    }
    if remaining.starts_with("/*") {
        let end = block_comment(remaining);
        return (end, Some(TokenKind::Comment(&remaining[..end])));
    }
    if let Some(end) = raw_string(remaining).or_else(|| quoted(remaining)) {
        return (end, Some(TokenKind::Literal));
    }
    if let Some(end) = character(remaining) {
        return (end, Some(TokenKind::Literal));
    }
    if is_word(first) {
        let end = remaining.find(|letter| !is_word(letter)).unwrap_or(remaining.len());
        return (end, Some(TokenKind::Word(&remaining[..end])));
    }
    (first.len_utf8(), Some(TokenKind::Punctuation(first)))
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The length of a block comment; block comments nest.
fn block_comment(remaining: &str) -> usize {
    let mut depth = 0_usize;
    let mut offset = 0;
    while offset < remaining.len() {
        if remaining[offset..].starts_with("/*") {
            depth += 1;
            offset += 2;
        } else if remaining[offset..].starts_with("*/") {
            depth -= 1;
            offset += 2;
            if depth == 0 {
                return offset;
            }
        } else {
            offset += remaining[offset..].chars().next().map_or(1, char::len_utf8);
        }
    }
    remaining.len()
}

/// The length of a raw string: `r"…"` or `r#"…"#`, also after `b` or `c`.
fn raw_string(remaining: &str) -> Option<usize> {
    let after = ["r", "br", "cr"].iter().find_map(|prefix| remaining.strip_prefix(prefix))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = body.find(&end).map_or(body.len(), |offset| offset + end.len());
    Some(remaining.len() - body.len() + length)
}

/// The length of a string: `"…"`, `b"…"` or `c"…"`.
fn quoted(remaining: &str) -> Option<usize> {
    let body = ["\"", "b\"", "c\""].iter().find_map(|prefix| remaining.strip_prefix(prefix))?;
    let mut escaped = false;
    let end = body.char_indices().find(|(_, letter)| {
        let ends = *letter == '"' && !escaped;
        escaped = *letter == '\\' && !escaped;
        ends
    });
    Some(remaining.len() - body.len() + end.map_or(body.len(), |(offset, _)| offset + 1))
}

/// The length of a character literal: `'x'`, `'\n'` or `b'x'`, but not a lifetime such as `'a`.
fn character(remaining: &str) -> Option<usize> {
    let body = ["'", "b'"].iter().find_map(|prefix| remaining.strip_prefix(prefix))?;
    let first = body.chars().next()?;
    // At least one character follows a backslash; it can be a quote.
    let skip = if first == '\\' { body.chars().take(2).map(char::len_utf8).sum() } else { first.len_utf8() };
    let close = body.get(skip..)?.find('\'')?;
    let is_character = first == '\\' || close == 0;
    is_character.then_some(remaining.len() - body.len() + skip + close + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<&str> {
        let words = tokens(source).into_iter().filter_map(|token| match token.kind {
            TokenKind::Word(word) => Some(word),
            TokenKind::Punctuation(_) | TokenKind::Literal | TokenKind::Comment(_) => None,
        });
        words.collect()
    }

    #[test]
    fn literals_and_comments_contain_no_words() {
        assert_eq!(words("a /* b /* c */ d */ e // f\ng"), ["a", "e", "g"]);
        assert_eq!(words(r##"a "b \" c" r#"d " e"# b"f" 'g' '\'' '\u{41}' b'h' i"##), ["a", "i"]);
        assert_eq!(
            words("fn a<'b>(c: &'b str) -> &'static str {}"),
            ["fn", "a", "b", "c", "b", "str", "static", "str"]
        );
        assert_eq!(words("r#type r\"x\" ü"), ["r", "type", "ü"]);
    }

    #[test]
    fn lines_in_comments_and_literals_count() {
        let source = "a\n/* b\n */ c \"d\n\ne\" f\n// g\nh";
        let lines: Vec<(usize, bool)> = tokens(source).iter().map(|token| (token.line, token.is_comment())).collect();
        assert_eq!(lines, [(1, false), (2, true), (3, false), (3, false), (5, false), (6, true), (7, false)]);
    }

    #[test]
    fn an_unterminated_token_ends_with_the_file() {
        for source in ["\"a", "/* a", "r#\"a", "'", "'\\", "b'", "//"] {
            assert!(tokens(source).len() <= 2, "{source}");
        }
    }
}
