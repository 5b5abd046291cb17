//! Checks `docs/specification.md` against the repository: each demand has its row, and every file, test, case and
//! decision that a row names exists.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Source;
use super::tokens::{Token, TokenKind, tokens};

/// The page with a row for each demand of the specification.
pub(super) const PAGE: &str = "docs/specification.md";
/// The number of demands of the specification.
pub(super) const DEMANDS: usize = 122;
/// The text in place of files or tests, for a sentence that demands nothing of the program.
const NOTHING: &str = "none";
/// The number of cells of a row: number, demand, files, tests, verdict.
const CELLS: usize = 5;
/// The prefixes of unit tests, and the folders of their modules.
const UNITS: [(&str, &str); 2] = [("unit ", "src/"), ("xtask ", "xtask/src/")];
/// The prefixes of all other tests; their modules are below `tests/`.
const SUITES: [&str; 3] = ["it::", "drift::", "skills::"];

/// The files of the repository, by their paths.
struct Repository<'a> {
    texts: BTreeMap<&'a str, &'a str>,
}

/// A row of the table.
struct Row<'a> {
    line: usize,
    number: &'a str,
    files: &'a str,
    tests: &'a str,
    verdict: &'a str,
}

/// The faults of the page, with their lines.
pub(super) fn check_page(sources: &[Source]) -> Vec<(usize, String)> {
    let texts = sources.iter().map(|source| (&*source.path, &*source.text)).collect();
    let repository = Repository { texts };
    let Some(page) = repository.text(PAGE) else {
        return vec![(1, "the page is missing".to_owned())];
    };
    let (rows, mut found) = rows(page);
    let numbers: Vec<&str> = rows.iter().map(|row| row.number).collect();
    let expected: Vec<String> = (1..=DEMANDS).map(|number| number.to_string()).collect();
    if let Some(index) = (0..numbers.len().max(DEMANDS))
        .find(|index| numbers.get(*index).copied() != expected.get(*index).map(|number| &**number))
    {
        let line = rows.get(index).map_or(1, |row| row.line);
        found.push((
            line,
            format!("the rows are not numbered from 1 to {DEMANDS} without a gap: see row {}", index + 1),
        ));
    }
    for row in &rows {
        found.extend(repository.faults(row).into_iter().map(|fault| (row.line, fault)));
    }
    found.extend(decisions(page, &rows));
    found
}

/// The rows of every table of the page, and the malformed rows as faults.
fn rows(page: &str) -> (Vec<Row<'_>>, Vec<(usize, String)>) {
    let (mut rows, mut found) = (Vec::new(), Vec::new());
    for (index, text) in page.lines().enumerate() {
        if !text.starts_with('|') || text.starts_with("| #") || text.starts_with("|-") || text.starts_with("| -") {
            continue;
        }
        let cells: Vec<&str> = text.trim().trim_matches('|').split('|').map(str::trim).collect();
        let line = index + 1;
        match <[&str; CELLS]>::try_from(cells) {
            Ok([number, _, files, tests, verdict]) => rows.push(Row { line, number, files, tests, verdict }),
            Err(cells) => found.push((line, format!("a row has {CELLS} cells, not {}", cells.len()))),
        }
    }
    (rows, found)
}

/// Decisions to which a row refers and that the page does not list, and listed decisions to which no row refers.
fn decisions(page: &str, rows: &[Row<'_>]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut listed = BTreeSet::new();
    for (index, line) in page.lines().enumerate() {
        let Some((name, _)) = line.strip_prefix("- **").and_then(|line| line.split_once("**")) else { continue };
        if !rows.iter().any(|row| decisions_of(row.verdict).any(|decision| decision == name)) {
            found.push((index + 1, format!("no row refers to the decision {name}")));
        }
        listed.insert(name);
    }
    for row in rows {
        let unknown = decisions_of(row.verdict).filter(|name| !listed.contains(name));
        found.extend(unknown.map(|name| (row.line, format!("the decision {name} is not listed"))));
        if row.verdict != "yes" && decisions_of(row.verdict).next().is_none() {
            found.push((row.line, "the last cell must be `yes` or `decision D-1`".to_owned()));
        }
    }
    found
}

/// The decisions that a verdict names.
fn decisions_of(verdict: &str) -> impl Iterator<Item = &str> {
    verdict.strip_prefix("decision ").into_iter().flat_map(|names| names.split(", "))
}

/// The words between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

// === impl Repository ===

impl Repository<'_> {
    /// The faults of a row: cells without files or tests, and files and tests that do not exist or do not run.
    fn faults(&self, row: &Row<'_>) -> Vec<String> {
        let mut faults = Vec::new();
        for (cell, kind) in [(row.files, "file"), (row.tests, "test")] {
            if quoted(cell).next().is_none() && cell != NOTHING {
                faults.push(format!("the row names no {kind}; a row without a {kind} has `{NOTHING}`"));
            }
        }
        let missing = quoted(row.files).filter(|path| self.text(path).is_none());
        faults.extend(missing.map(|path| format!("there is no file `{path}`")));
        faults.extend(quoted(row.tests).filter_map(|test| self.test_fault(test)));
        faults
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).copied()
    }

    /// The fault of a test, if there is one: it does not exist, or is ignored.
    fn test_fault(&self, test: &str) -> Option<String> {
        if let Some((path, case)) = test.split_once(".json: ") {
            let table = self.text(&format!("{path}.json")).and_then(|text| serde_json::from_str::<Value>(text).ok());
            let mut cases = table.as_ref().and_then(Value::as_array).into_iter().flatten();
            return (!cases.any(|row| row["name"] == case)).then(|| format!("there is no case `{test}`"));
        }
        let unit = UNITS.iter().find_map(|(kind, folder)| Some((*folder, test.strip_prefix(kind)?)));
        let suite = SUITES.iter().any(|suite| test.starts_with(suite)).then_some(("tests/", test));
        let Some((folder, path)) = unit.or(suite) else {
            return self.text(test).is_none().then(|| format!("there is no test `{test}`"));
        };
        let mut modules: Vec<&str> = path.split("::").collect();
        let name = modules.pop()?;
        let found = (1..=modules.len()).rev().find_map(|depth| {
            let text = self.text(&format!("{folder}{}.rs", modules[..depth].join("/")))?;
            Some((text, &modules[depth..]))
        });
        match found.and_then(|(text, inner)| is_ignored(text, inner, name)) {
            None => Some(format!("there is no test `{test}`")),
            Some(true) => Some(format!("the test `{test}` is ignored")),
            Some(false) => None,
        }
    }
}

/// Returns whether the test with this name is ignored; `None` if a source with these inner modules has no such test.
fn is_ignored(source: &str, modules: &[&str], name: &str) -> Option<bool> {
    let tokens: Vec<Token<'_>> = tokens(source).into_iter().filter(|token| !token.is_comment()).collect();
    let pair_positions = |first: &'static str, second: &str| {
        let pairs = tokens.windows(2).enumerate();
        let found = pairs.filter(|(_, pair)| pair[0].is_word(first) && pair[1].is_word(second));
        found.map(|(index, _)| index).collect::<Vec<_>>()
    };
    if modules.iter().any(|module| pair_positions("mod", module).is_empty()) {
        return None;
    }
    let functions = pair_positions("fn", name).into_iter().map(|index| attributes(&tokens[..index]));
    let test = functions.into_iter().find(|attributes| attributes.contains("test"));
    test.map(|attributes| attributes.contains("ignore"))
}

/// The words of the attributes directly before the end of the tokens.
fn attributes<'a>(tokens: &[Token<'a>]) -> BTreeSet<&'a str> {
    let words = tokens.iter().rev().scan(0_usize, |depth, token| {
        match token.kind {
            TokenKind::Punctuation(']') => *depth += 1,
            TokenKind::Punctuation('[') => *depth = depth.checked_sub(1)?,
            // Between the attributes and `fn` there are only words such as `async`.
            TokenKind::Punctuation(mark) if *depth == 0 && mark != '#' => return None,
            TokenKind::Punctuation(_) | TokenKind::Word(_) | TokenKind::Literal | TokenKind::Comment(_) => {}
        }
        Some((*depth, token))
    });
    let inside = words.filter(|(depth, _)| *depth > 0);
    inside.filter_map(|(_, token)| if let TokenKind::Word(word) = token.kind { Some(word) } else { None }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str =
        "`src/image.rs` | `unit image::tests::edges_end`, `it::slow::waits`, `tests/cases.json: size 'x'`";

    /// A page without faults, but with this text in the row `number`.
    fn page(number: usize, row: &str) -> String {
        let rows = (1..=DEMANDS).map(|index| {
            format!("| {index} | A demand. | {} |\n", if index == number { row } else { "`src/image.rs` | none | yes" })
        });
        format!("# Title\n\n| # | Demand |\n|---|---|\n{}\n- **D-1** Because.\n", rows.collect::<String>())
    }

    fn found(page: String) -> Vec<String> {
        let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        let sources = [
            source(PAGE, &page),
            source(
                "src/image.rs",
                "fn edges_end() {}\nmod tests {\n    /// Why.\n    #[test]\n    fn edges_end_not() {}\n\n    #[test]\n    fn edges_end() {}\n}\n",
            ),
            source("tests/cases.json", r#"[{"name": "size 'x'"}]"#),
            source("tests/drift/limits.rs", "#[test]\n#[should_panic(expected = \"x\")]\nfn is_seen() {}\n"),
            source(
                "tests/it/slow.rs",
                "#[tokio::test(start_paused = true)]\nasync fn waits() {}\n#[test]\n#[ignore = \"long\"]\nfn rests() {}\nfn helps() {}\n",
            ),
        ];
        check_page(&sources).into_iter().map(|(line, message)| format!("{line}: {message}")).collect()
    }

    fn with(row: &str) -> Vec<String> {
        found(page(DEMANDS, row))
    }

    #[test]
    fn existing_files_and_tests_are_no_findings() {
        assert_eq!(with(&format!("{ROW}, `drift::limits::is_seen` | decision D-1")), Vec::<String>::new());
    }

    #[test]
    fn missing_files_tests_and_decisions_are_found() {
        for (row, expected) in [
            ("`src/gone.rs` | `it::slow::waits` | decision D-1", "there is no file `src/gone.rs`"),
            ("`src/image.rs` | `it::slow::gone` | decision D-1", "there is no test `it::slow::gone`"),
            ("`src/image.rs` | `it::slow::helps` | decision D-1", "there is no test `it::slow::helps`"),
            ("`src/image.rs` | `it::slow::rests` | decision D-1", "the test `it::slow::rests` is ignored"),
            ("`src/image.rs` | `it::fast::waits` | decision D-1", "there is no test `it::fast::waits`"),
            (
                "`src/image.rs` | `unit image::other::edges_end` | decision D-1",
                "there is no test `unit image::other::edges_end`",
            ),
            ("`src/image.rs` | `drift::limits::waits` | decision D-1", "there is no test `drift::limits::waits`"),
            (
                "`src/image.rs` | `tests/cases.json: size 'y'` | decision D-1",
                "there is no case `tests/cases.json: size 'y'`",
            ),
            (
                "`src/image.rs` | `tests/gone.json: size 'x'` | decision D-1",
                "there is no case `tests/gone.json: size 'x'`",
            ),
            ("`src/image.rs` | somewhere | decision D-1", "the row names no test; a row without a test has `none`"),
            ("`src/image.rs` | none | decision D-1, D-2", "the decision D-2 is not listed"),
            ("`src/image.rs` | none | nearly | decision D-1", "a row has 5 cells, not 6"),
        ] {
            let found = with(row);
            assert!(found.contains(&format!("126: {expected}")), "{row}: {found:?}");
        }
    }

    #[test]
    fn a_verdict_is_yes_or_a_listed_decision() {
        let found = with("`src/image.rs` | none | nearly");
        assert_eq!(
            found,
            ["128: no row refers to the decision D-1", "126: the last cell must be `yes` or `decision D-1`"]
        );
    }

    #[test]
    fn missing_and_repeated_rows_are_found() {
        let good = page(DEMANDS, "`src/image.rs` | none | decision D-1");
        let seventh = "| 7 | A demand. | `src/image.rs` | none | yes |\n";
        let gap = |line: usize, row: usize| {
            format!("{line}: the rows are not numbered from 1 to {DEMANDS} without a gap: see row {row}")
        };
        assert_eq!(found(good.clone()), Vec::<String>::new());
        assert_eq!(found(good.replace(seventh, "")), [gap(11, 7)]);
        assert_eq!(found(good.replace(seventh, &seventh.repeat(2))), [gap(12, 8)]);
        assert_eq!(found(good.replace("| 122 |", "| 123 |")), [gap(126, 122)]);
        assert_eq!(check_page(&[]), [(1, "the page is missing".to_owned())]);
    }
}
