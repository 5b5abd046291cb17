//! The vocabulary of `src/`: names of types, first words of comments, and lines of code, without tests.
//!
//! `cargo xtask vocabulary` prints the counts; `cargo xtask tidy` compares them with the bounds below. A type is a
//! `struct`, `enum`, `union`, `trait` or `type` outside of braces; a comment is a sequence of comment lines.

use std::collections::BTreeMap;
use std::fmt;

use super::Source;
use super::tokens::{Token, TokenKind, tokens};

/// The maximum number of types with the same name (our choice).
const MAX_TYPES_PER_NAME: usize = 2;
/// Names that any number of modules may use, because code always names them together with their module.
const SHARED_NAMES: [&str; 3] = ["Error", "Result", "Args"];
/// The maximum share of comments, in percent, that may begin with a clause in place of a subject (our choice).
const MAX_HEADLESS_PERCENT: usize = 2;
/// The first words of a headless clause. A question, which ends with a question mark, is not headless.
const CLAUSE_OPENINGS: [&str; 10] = ["What", "Whether", "Where", "When", "How", "Who", "Whom", "Whose", "Which", "Why"];
/// Irregular participles, verbs and adverbs that are not names for types.
const NON_NOUNS: [&str; 48] = [
    "Again",
    "Ahead",
    "Alone",
    "Arriving",
    "Ask",
    "Away",
    "Back",
    "Before",
    "Begun",
    "Broken",
    "Brought",
    "Built",
    "Came",
    "Caught",
    "Drawn",
    "Done",
    "Found",
    "Given",
    "Gone",
    "Held",
    "Kept",
    "Known",
    "Left",
    "Look",
    "Lost",
    "Made",
    "Met",
    "Now",
    "Once",
    "Opened",
    "Returning",
    "Said",
    "Seen",
    "Sent",
    "Shown",
    "Spent",
    "Taken",
    "Told",
    "Took",
    "Unkept",
    "Unmade",
    "Unread",
    "Unseen",
    "Waiting",
    "Want",
    "Without",
    "Won",
    "Written",
];
/// Nouns that end like a participle.
const NOUNS: [&str; 4] = ["Embed", "Feed", "Seed", "Speed"];

/// The definition of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TypeDefinition<'a> {
    name: &'a str,
    path: &'a str,
    line: usize,
}

/// A comment that begins with a clause in place of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HeadlessComment<'a> {
    path: &'a str,
    line: usize,
    text: &'a str,
}

/// The counts of all sources below `src/`.
#[derive(Clone, Debug, Default)]
pub struct Vocabulary<'a> {
    types: Vec<TypeDefinition<'a>>,
    headless: Vec<HeadlessComment<'a>>,
    comments: usize,
    lines: usize,
}

/// The findings about names and comments: path, line and message.
pub(super) fn check_vocabulary(sources: &[Source]) -> Vec<(String, usize, String)> {
    let vocabulary = Vocabulary::from_sources(sources);
    let mut found = vocabulary.repeated_names();
    found.extend(vocabulary.headless_comments());
    found
}

/// The words of a name in camel case.
fn words(name: &str) -> Vec<&str> {
    let starts = name.char_indices().filter(|(_, letter)| letter.is_uppercase()).map(|(index, _)| index);
    let starts: Vec<usize> = starts.collect();
    let ends = starts.iter().skip(1).copied().chain([name.len()]);
    starts.iter().zip(ends).map(|(start, end)| &name[*start..end]).collect()
}

/// Returns whether the name ends with a participle, verb or adverb in place of a noun.
fn is_non_noun(name: &str) -> bool {
    words(name).last().is_some_and(|word| NON_NOUNS.contains(word) || (word.ends_with("ed") && !NOUNS.contains(word)))
}

/// The text of a comment line without its delimiters.
fn text_of(comment: &str) -> &str {
    comment.trim_start_matches(['/', '!', '*']).trim_start()
}

fn is_headless(text: &str) -> bool {
    let first = text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
    CLAUSE_OPENINGS.contains(&first) && !text.trim_end().ends_with('?')
}

pub(super) fn is_counted(path: &str) -> bool {
    let inside = path.strip_prefix("src/").is_some_and(|path| path.ends_with(".rs"));
    inside && !path.split('/').any(|part| part == "tests" || part == "tests.rs")
}

/// The tokens before the unit tests, which are at the end of their file.
pub(super) fn without_tests(all: Vec<Token<'_>>) -> Vec<Token<'_>> {
    let is_start = |window: &[Token<'_>]| {
        window[0].is_word("cfg")
            && window[1].is_punctuation('(')
            && window[2].is_word("test")
            && window[5].is_word("mod")
    };
    let end = all.windows(8).position(|window| is_start(window) && window[7].is_punctuation('{'));
    let mut all = all;
    // `#` and `[` come before `cfg`.
    all.truncate(end.map_or(all.len(), |index| index.saturating_sub(2)));
    all
}

// === impl Vocabulary ===

impl<'a> Vocabulary<'a> {
    /// Counts these sources, except those outside of `src/` and tests.
    #[must_use]
    pub fn from_sources(sources: &'a [Source]) -> Self {
        let mut vocabulary = Self::default();
        for source in sources.iter().filter(|source| is_counted(&source.path)) {
            vocabulary.add(&source.path, &without_tests(tokens(&source.text)));
        }
        vocabulary
    }

    fn add(&mut self, path: &'a str, tokens: &[Token<'a>]) {
        let mut depth = 0_usize;
        let (mut last_comment, mut last_line) = (0, 0);
        for (index, token) in tokens.iter().enumerate() {
            self.lines += usize::from(token.line != last_line);
            last_line = token.line;
            // A line directly below a comment continues it.
            let continues = last_comment > 0 && last_comment + 1 == token.line;
            if token.is_comment() {
                last_comment = token.line;
            }
            match token.kind {
                TokenKind::Comment(comment) if !continues => self.add_comment(path, token.line, text_of(comment)),
                TokenKind::Punctuation('{') => depth += 1,
                TokenKind::Punctuation('}') => depth = depth.saturating_sub(1),
                TokenKind::Word("struct" | "enum" | "union" | "trait" | "type") if depth == 0 => {
                    self.add_type(path, tokens.get(index + 1));
                }
                TokenKind::Punctuation(_) | TokenKind::Word(_) | TokenKind::Literal | TokenKind::Comment(_) => {}
            }
        }
    }

    fn add_comment(&mut self, path: &'a str, line: usize, text: &'a str) {
        self.comments += 1;
        if is_headless(text) {
            self.headless.push(HeadlessComment { path, line, text });
        }
    }

    fn add_type(&mut self, path: &'a str, name: Option<&Token<'a>>) {
        if let Some(Token { line, kind: TokenKind::Word(name) }) = name {
            self.types.push(TypeDefinition { name, path, line: *line });
        }
    }

    fn types_by_name(&self) -> BTreeMap<&'a str, Vec<&TypeDefinition<'a>>> {
        let mut names: BTreeMap<&str, Vec<&TypeDefinition<'_>>> = BTreeMap::new();
        for definition in &self.types {
            names.entry(definition.name).or_default().push(definition);
        }
        names.retain(|name, _| !SHARED_NAMES.contains(name));
        names
    }

    fn repeated_names(&self) -> Vec<(String, usize, String)> {
        let names = self.types_by_name().into_iter().filter(|(_, all)| all.len() > MAX_TYPES_PER_NAME);
        let findings = names.flat_map(|(name, all)| {
            let message = format!("{} types are called `{name}`; at most {MAX_TYPES_PER_NAME} may be", all.len());
            all.into_iter().map(move |definition| (definition.path.to_owned(), definition.line, message.clone()))
        });
        findings.collect()
    }

    fn headless_comments(&self) -> Vec<(String, usize, String)> {
        if self.headless.len() * 100 <= self.comments * MAX_HEADLESS_PERCENT {
            return Vec::new();
        }
        let findings = self.headless.iter().map(|comment| {
            let opening = comment.text.split(' ').next().unwrap_or_default();
            let message = format!("the comment begins with \"{opening}\"; more than {MAX_HEADLESS_PERCENT} % do");
            (comment.path.to_owned(), comment.line, message)
        });
        findings.collect()
    }
}

impl fmt::Display for Vocabulary<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |count: usize, total: usize| {
            format!("{count} of {total} ({:.1} %)", 100.0 * count as f64 / total.max(1) as f64)
        };
        let types = self.types.len();
        let one_word = self.types.iter().filter(|definition| words(definition.name).len() == 1).count();
        let no_nouns = self.types.iter().filter(|definition| is_non_noun(definition.name)).count();
        let repeated = self.types_by_name().into_values().filter(|all| all.len() > MAX_TYPES_PER_NAME).count();
        writeln!(formatter, "lines with code or comments     {}", self.lines)?;
        writeln!(formatter, "type names of one word          {}", percent(one_word, types))?;
        writeln!(formatter, "participles, verbs and adverbs  {}", percent(no_nouns, types))?;
        writeln!(formatter, "names of three types or more    {repeated}")?;
        writeln!(formatter, "headless comments               {}", percent(self.headless.len(), self.comments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(texts: &[(&str, &str)]) -> Vec<Source> {
        texts.iter().map(|(path, text)| Source { path: (*path).to_owned(), text: (*text).to_owned() }).collect()
    }

    #[test]
    fn types_and_comments_are_counted_without_tests() {
        let code = "//! Why a module is.\n//! What more.\nstruct Told;\nimpl A for Told {\n    type Item = u8;\n}\n\
            /// Where is it?\nenum ModelCache {}\n#[cfg(test)]\nmod tests {\n    struct State;\n}\n";
        let all =
            sources(&[("src/a.rs", code), ("src/a/tests.rs", "struct Kept;\n"), ("xtask/src/b.rs", "struct B;\n")]);
        let text = Vocabulary::from_sources(&all).to_string();
        assert_eq!(
            text,
            "lines with code or comments     8\n\
             type names of one word          1 of 2 (50.0 %)\n\
             participles, verbs and adverbs  1 of 2 (50.0 %)\n\
             names of three types or more    0\n\
             headless comments               1 of 2 (50.0 %)\n"
        );
    }

    #[test]
    fn a_name_of_three_types_is_found() {
        let state = "struct State;\nenum Error {}\n";
        let all = sources(&[("src/a.rs", state), ("src/b.rs", state), ("src/c.rs", state)]);
        let found = check_vocabulary(&all);
        assert_eq!(found.len(), 3);
        assert_eq!(found[2], ("src/c.rs".to_owned(), 1, "3 types are called `State`; at most 2 may be".to_owned()));
        assert_eq!(check_vocabulary(&all[..2]), []);
    }

    #[test]
    fn more_than_two_percent_of_headless_comments_are_found() {
        let good = "/// A subject.\nconst A: u8 = 1;\n".repeat(98);
        let two = format!("{good}{}", "/// Whether it is.\nconst B: u8 = 1;\n".repeat(2));
        let three = format!("{good}{}", "/// Whether it is.\nconst B: u8 = 1;\n".repeat(3));
        assert_eq!(check_vocabulary(&sources(&[("src/a.rs", &two)])), []);
        let all = sources(&[("src/a.rs", &three)]);
        let message = "the comment begins with \"Whether\"; more than 2 % do".to_owned();
        assert_eq!(check_vocabulary(&all)[0], ("src/a.rs".to_owned(), 197, message));
    }
}
