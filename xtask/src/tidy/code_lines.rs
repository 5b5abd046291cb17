//! `cargo xtask lines`: the lines of code in `src/` by module, without blank lines, comments and tests.
//!
//! Tests are the files below a folder `tests`, the files `tests.rs`, and the modules under `#[cfg(test)]`, also those in
//! a file of their own. A line in a literal counts unless it is blank.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::Source;
use super::tokens::{Token, TokenKind, tokens};
use super::vocabulary::is_counted;

/// The module whose parts have rows of their own, because it is most of the crate.
const DIVIDED_MODULE: &str = "gateway";

/// The lines of code by module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeLines(BTreeMap<String, usize>);

// === impl CodeLines ===

impl CodeLines {
    /// Counts these sources, except those outside of `src/` and tests.
    #[must_use]
    pub fn from_sources(sources: &[Source]) -> Self {
        let mut test_files = BTreeSet::new();
        let mut counts = BTreeMap::new();
        for source in sources.iter().filter(|source| is_counted(&source.path)) {
            let (lines, test_modules) = count(&source.text);
            test_files.extend(test_modules.into_iter().map(|module| file_of(&source.path, module)));
            counts.insert(source.path.as_str(), lines);
        }
        let mut modules = BTreeMap::new();
        for (path, lines) in counts.into_iter().filter(|(path, _)| !test_files.contains(*path)) {
            *modules.entry(module_of(path)).or_default() += lines;
        }
        Self(modules)
    }

    /// The lines of all modules.
    #[must_use]
    pub fn total(&self) -> usize {
        self.0.values().sum()
    }
}

impl fmt::Display for CodeLines {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (module, lines) in &self.0 {
            writeln!(formatter, "{lines:>7} {module}")?;
        }
        writeln!(formatter, "{:>7} lines of code in src/", self.total())
    }
}

/// The row that a file belongs to.
fn module_of(path: &str) -> String {
    let module = path.trim_start_matches("src/").trim_end_matches(".rs");
    let mut names = module.split('/');
    let top = names.next().unwrap_or_default();
    match names.next() {
        Some(part) if top == DIVIDED_MODULE => format!("{top}::{part}"),
        _ => top.to_owned(),
    }
}

/// The file of a module that the file at `path` declares.
fn file_of(path: &str, module: &str) -> String {
    let is_root = ["src/lib.rs", "src/main.rs"].contains(&path);
    let folder = if is_root { "src" } else { path.trim_end_matches(".rs") };
    format!("{folder}/{module}.rs")
}

/// The number of lines of code, and the test modules that are in files of their own.
fn count(text: &str) -> (usize, Vec<&str>) {
    let tokens = tokens(text);
    let code: Vec<&Token<'_>> = tokens.iter().filter(|token| !token.is_comment()).collect();
    let mut excluded = BTreeSet::new();
    for token in &tokens {
        if let TokenKind::Comment(comment) = token.kind {
            excluded.extend(token.line..=token.line + comment.matches('\n').count());
        }
    }
    // A comment may be beside code.
    for token in &code {
        excluded.remove(&token.line);
    }
    let mut test_files = Vec::new();
    for (index, token) in code.iter().enumerate() {
        let Some(module) = TestModule::beginning(&code[index..]) else { continue };
        excluded.extend(token.line..=module.last_line);
        test_files.extend(module.file);
    }
    let lines =
        text.lines().enumerate().filter(|(index, line)| !line.trim().is_empty() && !excluded.contains(&(index + 1)));
    (lines.count(), test_files)
}

/// A module that only tests have.
struct TestModule<'a> {
    last_line: usize,
    /// The name of a module that is in a file of its own.
    file: Option<&'a str>,
}

/// The attribute `#[cfg(test)]`.
const TEST_ATTRIBUTE: [TokenKind<'_>; 7] = [
    TokenKind::Punctuation('#'),
    TokenKind::Punctuation('['),
    TokenKind::Word("cfg"),
    TokenKind::Punctuation('('),
    TokenKind::Word("test"),
    TokenKind::Punctuation(')'),
    TokenKind::Punctuation(']'),
];

impl<'a> TestModule<'a> {
    /// The module whose attribute `#[cfg(test)]` begins with the first of these tokens.
    fn beginning(code: &[&Token<'a>]) -> Option<Self> {
        if !code.iter().map(|token| token.kind).take(TEST_ATTRIBUTE.len()).eq(TEST_ATTRIBUTE) {
            return None;
        }
        // Further attributes and the visibility may be in between. Another item has a brace or a semicolon first.
        let item = code
            .iter()
            .position(|token| token.is_word("mod") || token.is_punctuation('{') || token.is_punctuation(';'))?;
        let [keyword, name, opening, ..] = &code[item..] else { return None };
        let TokenKind::Word(name) = name.kind else { return None };
        if !keyword.is_word("mod") {
            return None;
        }
        if opening.is_punctuation(';') {
            return Some(Self { last_line: opening.line, file: Some(name) });
        }
        let mut depth = 0_usize;
        let end = code[item + 2..].iter().find(|token| {
            depth += usize::from(token.is_punctuation('{'));
            depth -= usize::from(token.is_punctuation('}'));
            depth == 0
        })?;
        Some(Self { last_line: end.line, file: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "//! A module.\n\nuse a::b; // beside code\n\n/* two\nlines */\nconst C: &str = \"d\n\ne\";\n\
        #[cfg(test)]\nmod samples;\n#[cfg(test)]\nfn f() {}\n\
        #[cfg(test)]\n#[path = \"g.rs\"]\npub(crate) mod g {\n    mod h {}\n}\nfn i() {\n    j();\n}\n\
        #[cfg(test)]\nmod tests {\n    fn k() {}\n}\n";

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn blank_lines_comments_and_test_modules_do_not_count() {
        // The use, two lines of the literal, the function for tests with its attribute, and the last function.
        assert_eq!(count(CODE), (8, vec!["samples"]));
        assert_eq!(count("// only a comment\n"), (0, Vec::new()));
    }

    #[test]
    fn lines_are_added_up_by_module_without_the_files_of_tests() {
        let lines = CodeLines::from_sources(&[
            source("src/lib.rs", "mod a;\n#[cfg(test)]\nmod checks;\n"),
            source("src/checks.rs", "fn check() {}\n"),
            source("src/gateway/flow.rs", CODE),
            source("src/gateway/flow/part.rs", "fn part() {}\n"),
            source("src/gateway/flow/samples.rs", "fn sample() {}\n"),
            source("src/gateway/flow/tests/one.rs", "fn one() {}\n"),
            source("src/gateway/flow/tests.rs", "mod one;\n"),
            source("src/client/part.rs", "fn part() {}\n"),
            source("xtask/src/lib.rs", "fn task() {}\n"),
        ]);
        assert_eq!(
            lines.to_string(),
            "      1 client\n      9 gateway::flow\n      1 lib\n     11 lines of code in src/\n"
        );
    }
}
