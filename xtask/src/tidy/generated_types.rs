//! Finds generated types of which no value ever exists: they look like a contract that nothing keeps.
//!
//! A type is used if code reads or writes it, or if a used type has it as a part. The schema of a body that passes in
//! pieces is named by an empty enumeration, which needs no use; neither does an alias.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;
use super::tokens::{Token, TokenKind, tokens};
use super::vocabulary::without_tests;

/// The files with generated types.
const TYPES: [&str; 3] = ["generated/types.rs", "generated/admin_types.rs", "generated/admin_open_types.rs"];
/// Types that only say which schema a body has: to name a type as their argument is no use of it.
const DESCRIPTIONS: [&str; 5] = ["JsonBody", "JsonRequestBody", "TypedResponse", "HandlerResponse", "ApiError"];

/// A generated type: its line, and the words of its definition.
struct GeneratedType<'a> {
    line: usize,
    parts: BTreeSet<&'a str>,
    has_values: bool,
}

/// The types that nothing reads or writes, with their file and line.
pub(super) fn unused(sources: &[Source]) -> Vec<(&'static str, usize, String)> {
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for source in sources.iter().filter(|source| is_user(&source.path)) {
        add_named_types(&without_tests(code(&source.text)), &mut used);
    }
    let mut findings = Vec::new();
    for file in TYPES {
        let Some(source) = sources.iter().find(|source| source.path == file) else { continue };
        let types = definitions(&code(&source.text));
        let reached = reach(&types, &used);
        let unused = types.iter().filter(|(name, found)| found.has_values && !reached.contains(*name));
        findings.extend(unused.map(|(name, found)| (file, found.line, format!("nothing reads or writes a `{name}`"))));
    }
    findings
}

/// Returns whether a file may use generated types: code of the package without tests, and generated code.
fn is_user(path: &str) -> bool {
    let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
    let is_code = path.starts_with("src/") || path.starts_with("generated/");
    is_code && path.ends_with(".rs") && !is_test && !TYPES.contains(&path)
}

fn code(text: &str) -> Vec<Token<'_>> {
    tokens(text).into_iter().filter(|token| !token.is_comment()).collect()
}

/// Adds the names that follow `types::`, unless they only describe a body.
fn add_named_types<'a>(tokens: &[Token<'a>], used: &mut BTreeSet<&'a str>) {
    for index in 0..tokens.len() {
        let is_path = tokens[index].is_word("types")
            && tokens[index + 1..].iter().take(2).filter(|token| token.is_punctuation(':')).count() == 2;
        if !is_path || describes(&tokens[..index]) {
            continue;
        }
        let rest = &tokens[index + 3..];
        let is_list = rest.first().is_some_and(|token| token.is_punctuation('{'));
        let length = if is_list { rest.iter().position(|token| token.is_punctuation('}')).unwrap_or(0) } else { 1 };
        used.extend(rest.iter().take(length).filter_map(word));
    }
}

/// Returns whether these tokens end with the beginning of a description, such as `JsonBody<` or `JsonBody<front::`.
fn describes(before: &[Token<'_>]) -> bool {
    let is_path = |token: &&Token<'_>| token.is_punctuation(':') || word(token).is_some_and(|word| word != "mut");
    let mut rest = before.iter().rev().skip_while(is_path);
    let begins = rest.next().is_some_and(|token| token.is_punctuation('<'));
    begins && rest.next().and_then(word).is_some_and(|name| DESCRIPTIONS.contains(&name))
}

/// The types that a file of generated types defines.
fn definitions<'a>(tokens: &[Token<'a>]) -> BTreeMap<&'a str, GeneratedType<'a>> {
    let mut types = BTreeMap::new();
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Punctuation('{') => depth += 1,
            TokenKind::Punctuation('}') => depth = depth.saturating_sub(1),
            TokenKind::Word("struct" | "enum" | "type") if depth == 0 => {
                let rest = &tokens[index + 1..];
                let Some(name) = rest.first().and_then(word) else { continue };
                let body = &rest[1..end(rest)];
                let has_values = !(token.is_word("type") || (token.is_word("enum") && body.len() <= 1));
                let parts = body.iter().filter_map(word).collect();
                types.insert(name, GeneratedType { line: token.line, parts, has_values });
            }
            TokenKind::Punctuation(_) | TokenKind::Word(_) | TokenKind::Literal | TokenKind::Comment(_) => {}
        }
    }
    types
}

/// The index of the last token of a definition: the `}` or the `;` outside of all braces.
fn end(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0_usize;
    let is_end = |token: &Token<'_>| {
        if token.is_punctuation('{') {
            depth += 1;
        } else if token.is_punctuation('}') {
            depth = depth.saturating_sub(1);
            return depth == 0;
        }
        depth == 0 && token.is_punctuation(';')
    };
    tokens.iter().position(is_end).unwrap_or(tokens.len())
}

/// The used types, and all that are parts of them.
fn reach<'a>(types: &BTreeMap<&'a str, GeneratedType<'a>>, used: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut pending: Vec<&str> = used.iter().copied().filter(|name| types.contains_key(name)).collect();
    while let Some(name) = pending.pop() {
        if let Some(found) = types.get(name)
            && reached.insert(name)
        {
            pending.extend(&found.parts);
        }
    }
    reached
}

fn word<'a>(token: &Token<'a>) -> Option<&'a str> {
    match token.kind {
        TokenKind::Word(word) => Some(word),
        TokenKind::Punctuation(_) | TokenKind::Literal | TokenKind::Comment(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(user: &str) -> Vec<String> {
        let types = "pub struct Basket { pub fox: ::std::option::Option<Fox> }\n#[serde(tag = \"x\")]\npub enum Fox { Red }\n\
                     pub type Egg = Fox;\npub enum Passed {}\nimpl Basket { fn hen() -> Hen {} }\npub struct Hen(u8);\n";
        let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        let all = [source(TYPES[0], types), source("src/user.rs", user), source("src/user/tests.rs", "types::Hen;")];
        unused(&all).into_iter().map(|(_, line, message)| format!("{line}: {message}")).collect()
    }

    #[test]
    fn a_type_that_nothing_reads_or_writes_is_reported() {
        assert_eq!(check("use crate::wire::types::{Basket, Egg};"), ["7: nothing reads or writes a `Hen`"]);
        assert_eq!(check("fn f() { types::Egg::Red; x::types::Hen(1) }"), ["1: nothing reads or writes a `Basket`"]);
        let described = "fn f(b: JsonBody<types::Basket>) -> front::TypedResponse<crate::wire::types::Hen> {}";
        assert_eq!(check(described).len(), 3);
        assert_eq!(check("type A = ResponseValue<types::Basket>;").len(), 1);
        assert_eq!(check("#[cfg(test)]\nmod tests { use types::{Basket, Egg, Hen}; }").len(), 3);
    }
}
