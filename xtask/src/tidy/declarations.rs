//! Finds the types, variants and fields that a Rust file declares, also in the body of a macro, which parsers do not read.

use super::tokens::{Token, TokenKind};

/// The names of types, variants and fields, with their lines, in the order of the file; other words may be among them
/// twice.
pub(super) fn declared_names<'a>(tokens: &[Token<'a>]) -> Vec<(&'a str, usize)> {
    let tokens: Vec<Token<'a>> = tokens.iter().filter(|token| !token.is_comment()).copied().collect();
    let mut names = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let TokenKind::Word(keyword @ ("struct" | "enum" | "union" | "trait" | "type")) = token.kind else { continue };
        names.extend(tokens.get(index + 1).and_then(word));
        if matches!(keyword, "struct" | "enum" | "union") {
            add_members(&tokens[index..], keyword == "enum", &mut names);
        }
    }
    names
}

/// Adds the variants and fields of the type whose keyword is the first of these tokens.
fn add_members<'a>(tokens: &[Token<'a>], is_enum: bool, names: &mut Vec<(&'a str, usize)>) {
    let mut brackets: Vec<char> = Vec::new();
    for (before, rest) in (1..tokens.len()).map(|index| (&tokens[index - 1], &tokens[index..])) {
        match rest[0].kind {
            TokenKind::Punctuation(mark @ ('{' | '(' | '[')) => brackets.push(mark),
            TokenKind::Punctuation('}' | ')' | ']') => {
                let closed = brackets.pop();
                if closed.is_none_or(|mark| mark == '{' && brackets.is_empty()) {
                    return;
                }
            }
            TokenKind::Punctuation(';') if brackets.is_empty() => return,
            TokenKind::Word(_) if !brackets.is_empty() && brackets.iter().all(|mark| *mark == '{') => {
                let is_first = ['{', ',', ']'].iter().any(|mark| before.is_punctuation(*mark));
                let is_variant = is_enum && brackets.len() == 1 && is_first;
                names.extend(word(&rest[0]).filter(|_| is_variant || is_field(before, rest)));
            }
            TokenKind::Punctuation(_) | TokenKind::Word(_) | TokenKind::Literal | TokenKind::Comment(_) => {}
        }
    }
}

/// Returns whether one colon follows the first word; a path has two, before or after it.
fn is_field(before: &Token<'_>, rest: &[Token<'_>]) -> bool {
    let is_colon = |index: usize| rest.get(index).is_some_and(|token| token.is_punctuation(':'));
    !before.is_punctuation(':') && is_colon(1) && !is_colon(2)
}

fn word<'a>(token: &Token<'a>) -> Option<(&'a str, usize)> {
    match token.kind {
        TokenKind::Word(word) => Some((word, token.line)),
        TokenKind::Punctuation(_) | TokenKind::Literal | TokenKind::Comment(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens;
    use super::*;

    fn names(code: &str) -> Vec<&str> {
        declared_names(&tokens(code)).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn types_variants_and_fields_are_declared_names() {
        let fields =
            "#[derive(A)]\npub struct B<'c, D: E> { #[f(g = \"h\")] pub(crate) i: j::K<L, M>, n: [u8; 4], r#o: P }";
        assert_eq!(names(fields), ["B", "i", "n", "o"]);
        let variants = "enum B { #[c] D, /* e: F */ G(h::I), J { k: l::M, n: O }, P = 3 }\nfn q(r: S) { t.u }";
        assert_eq!(names(variants), ["B", "D", "G", "J", "k", "n", "P"]);
        assert_eq!(
            names("struct A(B);\nstruct C;\ntrait D { type E: F; }\nimpl D for A { fn g(h: I) {} }"),
            ["A", "C", "D", "E"]
        );
        assert_eq!(names("word_enum! {\n pub(crate) enum A { B = \"c\", } }\nlet d = E { f: g };"), ["A", "B"]);
        assert_eq!(declared_names(&tokens("struct A {\n\n b: C,\n}")), [("A", 1), ("b", 3)]);
    }
}
