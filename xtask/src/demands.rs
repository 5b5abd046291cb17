//! Compares the demands of `docs/specification.md` with the text of the specification: each demand is a quotation, and
//! each word of the text is quoted, so that no demand can be softened or left out.
//!
//! If the demands hold is not decided here: [`crate::tidy`] looks for the tests that a row names, and
//! [`crate::statements`] records each row with its verdict.

use crate::fingerprint::digest;

/// The page with a row for each demand.
pub(crate) const PAGE: &str = "docs/specification.md";
/// The text of the specification, letter by letter.
pub(crate) const TEXT: &str = "tests/specification/text.md";
/// The digest of the text, which is not the project's to change.
const TEXT_DIGEST: &str = "a1ef6c04796bac8c";
/// Stands between two columns of a table of the text.
const COLUMN: &str = " · ";
/// Stands between two quotations of one row.
const QUOTATION: &str = " / ";

/// A sentence, a list item or a row of the text, and for each of its bytes if a row quotes it.
struct TextPassage {
    text: String,
    quoted: Vec<bool>,
}

/// The text of the specification, and the place at which the search for the next quotation begins.
struct SpecificationText {
    passages: Vec<TextPassage>,
    position: (usize, usize),
}

/// One line for each demand that is no quotation, each passage that no row quotes, and a changed text.
pub(crate) fn differences(page: &str, text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if digest(text) != TEXT_DIGEST {
        lines.push(format!("{TEXT}: the text of the specification was changed"));
    }
    lines.extend(quotation_differences(page, text));
    lines
}

fn quotation_differences(page: &str, text: &str) -> Vec<String> {
    let mut passages = SpecificationText::read(text);
    let mut lines = Vec::new();
    for (place, quotation) in quotations(page) {
        if !passages.mark(quotation) {
            lines.push(format!("{PAGE}: {place} does not quote the specification: '{quotation}'"));
        }
    }
    lines.extend(passages.unquoted().map(|words| format!("{PAGE}: no row quotes '{words}'")));
    lines
}

/// The quotations of the rows, and then those of the sentences without a row, each with its place.
fn quotations(page: &str) -> impl Iterator<Item = (String, &str)> {
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let number: usize = cells.next()?.parse().ok()?;
        Some((number, cells.next()?))
    });
    let rows = rows.flat_map(|(number, cell)| cell.split(QUOTATION).map(move |text| (format!("row {number}"), text)));
    let without_row = page.lines().filter_map(|line| line.strip_prefix("- \"")?.split_once("\" "));
    rows.chain(without_row.map(|(text, _)| ("a sentence without a row".to_owned(), text)))
}

// === impl SpecificationText ===

impl SpecificationText {
    /// Reads the paragraphs, list items and rows, without headings and the heads of tables.
    fn read(text: &str) -> Self {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let is_rule = |line: Option<&&str>| line.is_some_and(|line| line.starts_with("|--"));
        let mut passages = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let is_head = is_rule(Some(line)) || is_rule(lines.get(index + 1));
            if !line.is_empty() && !line.starts_with('#') && !is_head {
                passages.push(TextPassage::new(line));
            }
        }
        Self { passages, position: (0, 0) }
    }

    /// Marks the quotation at its first place from the beginning of the former quotation on, or from the beginning of
    /// the text. Returns whether it has a place.
    fn mark(&mut self, quotation: &str) -> bool {
        let Some((index, start)) = self.find(quotation, self.position).or_else(|| self.find(quotation, (0, 0))) else {
            return false;
        };
        self.position = (index, start);
        self.passages[index].quoted[start..start + quotation.len()].fill(true);
        true
    }

    /// The first place of the quotation that is not before `from`, and where it begins and ends with whole words.
    fn find(&self, quotation: &str, from: (usize, usize)) -> Option<(usize, usize)> {
        let passages = self.passages.iter().enumerate().skip(from.0);
        let places = passages.flat_map(|(index, passage)| {
            passage.text.match_indices(quotation).map(move |(start, _)| (index, start, passage))
        });
        let is_whole = |start: usize, passage: &TextPassage| {
            let before = passage.text[..start].chars().next_back();
            let after = passage.text[start + quotation.len()..].chars().next();
            !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
        };
        let mut places = places.filter(|(index, start, passage)| (*index, *start) >= from && is_whole(*start, passage));
        places.next().map(|(index, start, _)| (index, start))
    }

    /// The words that are not quoted, in sequences. Marks between two quotations do not count.
    fn unquoted(&self) -> impl Iterator<Item = String> {
        self.passages.iter().flat_map(TextPassage::unquoted)
    }
}

// === impl TextPassage ===

impl TextPassage {
    fn new(line: &str) -> Self {
        let cells = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')).map(|line| line.split('|'));
        let text = match cells {
            Some(cells) => cells.map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(COLUMN),
            None => without_mark(line).to_owned(),
        };
        Self { quoted: vec![false; text.len()], text }
    }

    fn unquoted(&self) -> Vec<String> {
        let letters = self.text.char_indices();
        let rest: String = letters.map(|(at, letter)| if self.quoted[at] { '\0' } else { letter }).collect();
        let sequences = rest.split('\0').filter(|words| words.chars().any(char::is_alphanumeric));
        sequences.map(|words| words.trim().to_owned()).collect()
    }
}

/// A line without the number or dash of a list item.
fn without_mark(line: &str) -> &str {
    let numbered = line.trim_start_matches(|letter: char| letter.is_ascii_digit()).strip_prefix(". ");
    line.strip_prefix("- ").or(numbered).unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECIFIED: &str = "\
# Title

1. An edge has at most 3840 px; it is a multiple of 16 px.

| Field | Bounds |
|---|---|
| `n` | 1 to 10 |
";

    const ROWS: &str = "\
| 1 | An edge has at most 3840 px | files | tests | yes |
| 2 | it is a multiple of 16 px. / `n` · 1 to 10 | files | tests | yes |
";

    #[test]
    fn quotations_of_the_whole_text_are_no_difference() {
        assert_eq!(quotation_differences(ROWS, SPECIFIED), Vec::<String>::new());
        let without_row = "| 1 | An edge has at most 3840 px | f |\n| 2 | `n` · 1 to 10 | f |\n\
            - \"it is a multiple of 16 px.\" Why.\n";
        assert_eq!(quotation_differences(without_row, SPECIFIED), Vec::<String>::new());
    }

    #[test]
    fn a_softened_demand_is_reported_from_both_sides() {
        let found = quotation_differences(&ROWS.replace("1 to 10", "1 to 8"), SPECIFIED);
        assert_eq!(
            found,
            [
                "docs/specification.md: row 2 does not quote the specification: '`n` · 1 to 8'",
                "docs/specification.md: no row quotes '`n` · 1 to 10'",
            ]
        );
        let cut = quotation_differences(&ROWS.replace("at most 3840 px", "at most 384"), SPECIFIED);
        assert!(cut[0].contains("row 1 does not quote"), "{cut:?}");
    }

    #[test]
    fn an_omitted_clause_is_reported() {
        let found = quotation_differences(&ROWS.replace("it is a multiple of 16 px. / ", ""), SPECIFIED);
        assert_eq!(found, ["docs/specification.md: no row quotes '; it is a multiple of 16 px.'"]);
    }

    #[test]
    fn a_changed_text_is_reported() {
        let found = differences(&ROWS.replace("3840", "4096"), &SPECIFIED.replace("3840", "4096"));
        assert_eq!(found, ["tests/specification/text.md: the text of the specification was changed"]);
    }
}
