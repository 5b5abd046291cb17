//! The statements of the documents and pages as digests in `tests/golden/statements.txt`, each with the reason for
//! which it was accepted.
//!
//! The drift tests compare numbers, words and types with the code. Nothing can compare a sentence, the code span or the
//! example in it, or the verdict of a demand. So each change of one needs a reason, which a review sees in the list.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::api::{ADMIN, GATEWAY};
use crate::fingerprint::digest;
use crate::{MANIFEST_SCHEMA, SETTINGS_SCHEMA, demands};

/// The list.
pub const LIST: &str = "tests/golden/statements.txt";
/// The first lines of the list.
const HEAD: &str = "\
# The digest of each section, row, decision and description, and the reason for which it was accepted.
# `cargo xtask statements REASON` writes the lines of what has changed.
";
/// The documents whose descriptions are statements.
const DOCUMENTS: [&str; 4] = [GATEWAY.document, ADMIN.document, MANIFEST_SCHEMA, SETTINGS_SCHEMA];
/// The members of a document that contain prose.
const MEMBERS: [&str; 7] = ["action", "applies_to", "cause", "description", "message", "summary", "title"];
/// The members that name an item of a list.
const NAMES: [&str; 4] = ["code", "id", "name", "url"];
/// The folders and files with pages.
const PAGES: [&str; 4] = ["README.md", "docs", "schemas", "src/guide"];
/// Tables that are generated, or that a test compares with the code. Each begins and ends with its marks.
const TABLES: [(&str, &str); 2] = [("<!-- table:", "<!-- /table -->"), ("<!-- checked:", "<!-- /checked -->")];

/// The text of each statement, by its place.
type StatementTexts = BTreeMap<String, String>;

/// A line of the list, which a place names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AcceptedStatement {
    digest: String,
    reason: String,
}

/// One line for each statement below `folder` that differs from the list below `root`.
///
/// # Errors
///
/// A document, a page or the list cannot be read.
pub fn differences(root: &Path, folder: &Path) -> Result<Vec<String>> {
    Ok(changes(&read_list(root)?, &read(folder)?).iter().map(|place| format!("{place}: not as accepted")).collect())
}

/// Compares the statements of the repository with its list, and its demands with the specification.
///
/// # Errors
///
/// A difference, or a file that cannot be read.
pub fn check(root: &Path) -> Result<()> {
    let found = [differences(root, root)?, demand_differences(root)?].concat();
    ensure!(found.is_empty(), "{}\nIf that is intended: `cargo xtask statements REASON`", found.join("\n"));
    Ok(())
}

/// One line for each demand that does not quote the specification, and each sentence of it that no row quotes.
///
/// # Errors
///
/// The page or the text cannot be read.
pub fn demand_differences(folder: &Path) -> Result<Vec<String>> {
    let text = |path: &str| fs::read_to_string(folder.join(path)).with_context(|| path.to_owned());
    Ok(demands::differences(&text(demands::PAGE)?, &text(demands::TEXT)?))
}

/// Writes the list, with this reason for each statement that has changed, and returns the places of these.
///
/// # Errors
///
/// A file cannot be read or written, or the reason is empty.
pub fn write(root: &Path, reason: &str) -> Result<Vec<String>> {
    ensure!(!reason.trim().is_empty() && !reason.contains('\n'), "the reason is one line of text");
    let accepted = if root.join(LIST).exists() { read_list(root)? } else { BTreeMap::new() };
    let statements = read(root)?;
    let lines = statements.iter().map(|(place, text)| {
        let unchanged = accepted.get(place).filter(|entry| entry.digest == digest(text));
        let reason = unchanged.map_or(reason.trim(), |entry| &entry.reason);
        format!("{place} = {} ({reason})\n", digest(text))
    });
    fs::write(root.join(LIST), format!("{HEAD}{}", lines.collect::<String>())).context(LIST)?;
    Ok(changes(&accepted, &statements))
}

/// The places at which statements and list differ.
fn changes(accepted: &BTreeMap<String, AcceptedStatement>, statements: &StatementTexts) -> Vec<String> {
    let places: BTreeSet<&String> = accepted.keys().chain(statements.keys()).collect();
    let is_same = |place: &&String| match (accepted.get(*place), statements.get(*place)) {
        (Some(entry), Some(text)) => entry.digest == digest(text),
        _ => false,
    };
    places.into_iter().filter(|place| !is_same(place)).cloned().collect()
}

fn read_list(root: &Path) -> Result<BTreeMap<String, AcceptedStatement>> {
    let text = fs::read_to_string(root.join(LIST)).context(LIST)?;
    let lines = text.lines().filter(|line| !line.starts_with("# "));
    lines.map(|line| parse_entry(line).with_context(|| format!("{LIST}: '{line}'"))).collect()
}

/// `place = digest (reason)`
fn parse_entry(line: &str) -> Option<(String, AcceptedStatement)> {
    let (place, entry) = line.rsplit_once(" = ")?;
    let (digest, reason) = entry.split_once(" (")?;
    Some((
        place.to_owned(),
        AcceptedStatement { digest: digest.to_owned(), reason: reason.strip_suffix(')')?.to_owned() },
    ))
}

/// The statements of all documents and pages.
fn read(folder: &Path) -> Result<StatementTexts> {
    let mut statements = StatementTexts::new();
    for path in DOCUMENTS {
        let text = fs::read_to_string(folder.join(path)).context(path)?;
        let document: Value = serde_json::from_str(&text).context(path)?;
        collect_members(&document, &mut vec![path.to_owned()], &mut statements);
    }
    for path in PAGES {
        collect_pages(folder, path, &mut statements)?;
    }
    Ok(statements)
}

fn collect_pages(folder: &Path, path: &str, statements: &mut StatementTexts) -> Result<()> {
    let full = folder.join(path);
    if full.is_dir() {
        for entry in fs::read_dir(&full).with_context(|| path.to_owned())? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            collect_pages(folder, &format!("{path}/{name}"), statements)?;
        }
    } else if path.ends_with(".md") {
        collect_sections(path, &fs::read_to_string(&full).with_context(|| path.to_owned())?, statements);
    }
    Ok(())
}

/// Adds the sections of a page, without its tables of [`TABLES`]; of the specification page, also each row and each
/// decision.
fn collect_sections(path: &str, text: &str, statements: &mut StatementTexts) {
    let (mut heading, mut table_end, mut is_fence) = (path.to_owned(), None, false);
    for line in text.lines() {
        is_fence ^= line.starts_with("```");
        table_end = table_end.or_else(|| TABLES.iter().find(|(start, _)| line.contains(start)).map(|(_, end)| *end));
        if let Some(end) = table_end {
            table_end = Some(end).filter(|end| !line.contains(end));
            continue;
        }
        if line.starts_with('#') && !is_fence {
            heading = unused_place(format!("{path} {line}"), statements);
        }
        let place = Some(path).filter(|path| *path == demands::PAGE).and_then(|path| claim_place(path, line));
        append(statements, place.unwrap_or_else(|| heading.clone()), line);
    }
}

/// The place, or the place with a number if another section has the same heading.
fn unused_place(place: String, statements: &StatementTexts) -> String {
    let numbered = (2..).map(|number| format!("{place} {number}"));
    std::iter::once(place.clone()).chain(numbered).find(|place| !statements.contains_key(place)).unwrap_or(place)
}

/// The place of a row, with its verdict, or of a decision of the specification page.
fn claim_place(path: &str, line: &str) -> Option<String> {
    if let Some((name, _)) = line.strip_prefix("- **").and_then(|line| line.split_once("**")) {
        return Some(format!("{path} {name}"));
    }
    let cells = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let number: usize = cells.split(" | ").next()?.parse().ok()?;
    Some(format!("{path} row {number}: {}", cells.rsplit(" | ").next()?))
}

fn append(statements: &mut StatementTexts, place: String, text: &str) {
    let statement = statements.entry(place).or_default();
    text.split_whitespace().for_each(|word| *statement += &format!("{word} "));
}

/// Adds the prose of a document, by operation, component and item of its tables.
fn collect_members(value: &Value, place: &mut Vec<String>, statements: &mut StatementTexts) {
    // The document, then `components/schemas/NAME`, `paths/PATH/METHOD`, or two names in all other parts.
    let depth = if place.get(1).is_some_and(|part| ["components", "paths"].contains(&part.as_str())) { 4 } else { 3 };
    let mut collect_member = |name: String, member: &Value| {
        if let Some(text) = member.as_str().filter(|_| MEMBERS.contains(&name.as_str())) {
            let rest = place.iter().skip(depth).map(|part| format!("{part}/")).collect::<String>();
            let unit = place.iter().take(depth).cloned().collect::<Vec<_>>().join(" ");
            append(statements, unit, &format!("{rest}{name}: {text}"));
        } else if name != "example" {
            place.push(name);
            collect_members(member, place, statements);
            place.pop();
        }
    };
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                collect_member(name.clone(), member);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let name = NAMES.iter().find_map(|name| item[name].as_str());
                collect_member(name.map_or_else(|| index.to_string(), str::to_owned), item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sections(path: &str, text: &str) -> StatementTexts {
        let mut statements = StatementTexts::new();
        collect_sections(path, text, &mut statements);
        statements
    }

    fn members(document: &Value) -> StatementTexts {
        let mut statements = StatementTexts::new();
        collect_members(document, &mut vec!["a.json".to_owned()], &mut statements);
        statements
    }

    fn accepted(statements: &StatementTexts) -> BTreeMap<String, AcceptedStatement> {
        let entry = |text: &String| AcceptedStatement { digest: digest(text), reason: "new".to_owned() };
        statements.iter().map(|(place, text)| (place.clone(), entry(text))).collect()
    }

    #[test]
    fn a_changed_sentence_code_span_or_fence_is_a_change_of_its_section() {
        let page = "# Page\n\nOne `1088`.\n\n## Part\n\nA rule.\n\n```toml\n# 1\ndialect = []\n```\n";
        let recorded = accepted(&sections("docs/page.md", page));
        let changed = |from: &str, to: &str| changes(&recorded, &sections("docs/page.md", &page.replace(from, to)));
        assert_eq!(changed("\n\n", "\n\n\n"), Vec::<String>::new());
        assert_eq!(changed("1088", "1072"), ["docs/page.md # Page"]);
        assert_eq!(changed("dialect =", "dialects ="), ["docs/page.md ## Part"]);
        assert_eq!(changed("## Part", "## Parts"), ["docs/page.md ## Part", "docs/page.md ## Parts"]);
    }

    #[test]
    fn a_generated_table_is_no_statement() {
        let page = |cell: &str| format!("# A\n<!-- table:limits -->\n| {cell} |\n<!-- /table -->\nEnd.\n");
        let recorded = accepted(&sections("docs/page.md", &page("1")));
        assert_eq!(changes(&recorded, &sections("docs/page.md", &page("2"))), Vec::<String>::new());
        assert_eq!(changes(&recorded, &sections("docs/page.md", &page("2").replace("End", "Ends"))).len(), 1);
    }

    #[test]
    fn a_verdict_a_test_and_a_decision_are_statements_of_their_own() {
        let page = "# A\n| 7 | `n` | `f` | `it::a` | decision D-1 |\n- **D-1** Because.\n";
        let recorded = accepted(&sections(demands::PAGE, page));
        let changed = |from: &str, to: &str| changes(&recorded, &sections(demands::PAGE, &page.replace(from, to)));
        let row = "docs/specification.md row 7: decision D-1";
        assert_eq!(changed("decision D-1", "yes"), [row, "docs/specification.md row 7: yes"]);
        assert_eq!(changed("it::a", "it::b"), [row]);
        assert_eq!(changed("Because", "Never because"), ["docs/specification.md D-1"]);
    }

    #[test]
    fn a_changed_description_is_a_change_of_its_component_operation_or_row() {
        let document = json!({
            "components": { "schemas": { "Image": { "properties": { "description": { "description": "Text." } } } } },
            "paths": { "/v1/a": { "get": { "parameters": [{ "name": "a", "description": "One." }] } } },
            "x-rows": [{ "code": "denied", "message": "No." }],
        });
        let recorded = accepted(&members(&document));
        for (pointer, place) in [
            ("/components/schemas/Image/properties/description/description", "a.json components schemas Image"),
            ("/paths/~1v1~1a/get/parameters/0/description", "a.json paths /v1/a get"),
            ("/x-rows/0/message", "a.json x-rows denied"),
        ] {
            let mut changed = document.clone();
            *changed.pointer_mut(pointer).unwrap() = "Other.".into();
            assert_eq!(changes(&recorded, &members(&changed)), [place]);
        }
    }

    #[test]
    fn an_entry_is_read_as_it_is_written() {
        let (place, entry) = parse_entry("docs/a.md ## `a = b` = 0f (issue 46 (all of it))").unwrap();
        assert_eq!((place.as_str(), entry.digest.as_str()), ("docs/a.md ## `a = b`", "0f"));
        assert_eq!(entry.reason, "issue 46 (all of it)");
        assert!(parse_entry("docs/a.md").is_none());
    }
}
