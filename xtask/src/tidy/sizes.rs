//! The maximum lengths of files and functions (our choice).

use super::tokens::{Token, TokenKind};

/// Lines of a file, with its unit tests.
const MAX_FILE_LINES: usize = 450;
/// Lines of code in the body of a function; blank lines and comments are free.
const MAX_FUNCTION_LINES: usize = 60;

pub(super) fn long_file(text: &str) -> Option<(usize, String)> {
    let lines = text.lines().count();
    (lines > MAX_FILE_LINES).then(|| (1, format!("the file has {lines} lines, more than {MAX_FILE_LINES}")))
}

pub(super) fn long_functions(tokens: &[Token<'_>]) -> Vec<(usize, String)> {
    let tokens: Vec<&Token<'_>> = tokens.iter().filter(|token| !token.is_comment()).collect();
    let mut found = Vec::new();
    for (index, pair) in tokens.windows(2).enumerate() {
        let [keyword, name] = pair else { continue };
        let TokenKind::Word(name) = name.kind else { continue };
        if !keyword.is_word("fn") {
            continue;
        }
        let lines = body_lines(&tokens[index..]);
        if lines > MAX_FUNCTION_LINES {
            found.push((keyword.line, format!("`{name}` has {lines} lines, more than {MAX_FUNCTION_LINES}")));
        }
    }
    found
}

/// The number of lines of code in the body of a function; 0 if it has no body.
fn body_lines(tokens: &[&Token<'_>]) -> usize {
    let mut depth = 0_usize;
    let mut brackets = 0_usize;
    let mut lines: Vec<usize> = Vec::new();
    for token in tokens {
        match token.kind {
            TokenKind::Punctuation('(' | '[') if depth == 0 => brackets += 1,
            TokenKind::Punctuation(')' | ']') if depth == 0 => brackets -= 1,
            TokenKind::Punctuation(';') if depth == 0 && brackets == 0 => return 0,
            TokenKind::Punctuation('{') => depth += 1,
            TokenKind::Punctuation('}') if depth <= 1 => return lines.len(),
            TokenKind::Punctuation('}') => depth -= 1,
            TokenKind::Punctuation(_) | TokenKind::Word(_) | TokenKind::Literal | TokenKind::Comment(_) => {}
        }
        let is_opening = depth == 1 && lines.is_empty() && token.is_punctuation('{');
        if depth > 0 && !is_opening && lines.last() != Some(&token.line) {
            lines.push(token.line);
        }
    }
    lines.len()
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens;
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn long(a: [u8; 4]) {{\n    // why\n\n{}}}\nfn next() {{}}\n", "    a();\n".repeat(lines))
    }

    #[test]
    fn a_function_may_have_60_lines() {
        assert_eq!(long_functions(&tokens(&function(60))), []);
        assert_eq!(long_functions(&tokens(&function(61))), [(1, "`long` has 61 lines, more than 60".to_owned())]);
    }

    #[test]
    fn a_declaration_has_no_body() {
        let source = format!("trait A {{ fn a(&self, b: fn(u8) -> [u8; 2]);\n{} }}", "const B: u8 = 1;\n".repeat(90));
        assert_eq!(long_functions(&tokens(&source)), []);
    }

    #[test]
    fn a_file_may_have_450_lines() {
        assert_eq!(long_file(&"a\n".repeat(450)), None);
        assert_eq!(long_file(&"a\n".repeat(451)), Some((1, "the file has 451 lines, more than 450".to_owned())));
    }
}
