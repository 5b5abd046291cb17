//! Compares names with the words that docs/glossary.md says are not used: names of types, variants and fields in `src/`,
//! without tests, and the words that clients see: the documents, the schema of the settings, and the metrics.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Source;
use super::declarations::declared_names;
use super::tokens::tokens;
use super::vocabulary::{is_counted, without_tests};

/// The page with the words that are not used for a concept.
pub(super) const GLOSSARY: &str = "docs/glossary.md";
/// The heading above the table with the names that tidy accepts although a word in them is not used for a concept.
const EXCEPTIONS: &str = "## Names with another meaning";
/// The folders with the documents and the schemas of the settings.
const DOCUMENT_FOLDERS: [&str; 2] = ["openapi/", "schemas/"];
/// The folder whose files name the metrics, and the call that does it.
const METRICS: &str = "src/gateway/telemetry/";
const METRIC_CALL: &str = "registry.register";

/// The words and names of the page that matter for tidy.
struct Glossary<'a> {
    unused: BTreeSet<String>,
    exceptions: BTreeSet<&'a str>,
}

/// The names that contain a word that is not used: path, line and message.
pub(super) fn check_names(sources: &[Source]) -> Vec<(String, usize, String)> {
    let Some(page) = sources.iter().find(|source| source.path == GLOSSARY) else {
        return vec![(GLOSSARY.to_owned(), 1, "the page is missing".to_owned())];
    };
    let glossary = Glossary::parse(&page.text);
    let mut findings = Vec::new();
    for source in sources {
        let names = names(source);
        let found = names.iter().filter_map(|(name, line)| {
            let word = glossary.unused_word(name)?;
            Some((source.path.clone(), *line, format!("`{name}`: the glossary has another name for `{word}`")))
        });
        findings.extend(found);
    }
    findings
}

/// The names in a file that are checked, with their lines.
fn names(source: &Source) -> Vec<(String, usize)> {
    if is_document(&source.path) {
        let mut names = BTreeSet::new();
        add_wire_words(&serde_json::from_str(&source.text).unwrap_or_default(), &mut names);
        let line = |name: &str| source.text.lines().position(|line| line.contains(&format!("\"{name}\"")));
        return names.iter().map(|name| (name.clone(), line(name).map_or(1, |index| index + 1))).collect();
    }
    if !is_counted(&source.path) {
        return Vec::new();
    }
    let declared = declared_names(&without_tests(tokens(&source.text)));
    let mut names: Vec<(String, usize)> = declared.into_iter().map(|(name, line)| (name.to_owned(), line)).collect();
    if source.path.starts_with(METRICS) {
        let calls = source.text.match_indices(METRIC_CALL);
        names.extend(calls.filter_map(|(start, _)| {
            let (before, call) = source.text.split_at(start);
            Some((call.split('"').nth(1)?.to_owned(), before.matches('\n').count() + 1))
        }));
    }
    names
}

fn is_document(path: &str) -> bool {
    let name = DOCUMENT_FOLDERS.iter().find_map(|folder| path.strip_prefix(folder));
    name.is_some_and(|name| name.ends_with(".json") && !name.contains('/'))
}

/// Adds the names of properties and parameters, and the values of enumerations.
fn add_wire_words(value: &Value, names: &mut BTreeSet<String>) {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(properties) = value.get("properties").and_then(Value::as_object) {
        names.extend(properties.keys().cloned());
    }
    if value.get("in").is_some_and(Value::is_string) {
        names.extend(value.get("name").and_then(text));
    }
    for keyword in ["enum", "x-extensible-enum"] {
        names.extend(value.get(keyword).and_then(Value::as_array).into_iter().flatten().filter_map(text));
    }
    names.extend(value.get("const").and_then(text));
    match value {
        Value::Object(members) => members.values().for_each(|member| add_wire_words(member, names)),
        Value::Array(elements) => elements.iter().for_each(|element| add_wire_words(element, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The words of a name, in lower case: `usedSlots`, `UsedSlots`, `used_slots` and `used-slots` have the same ones.
fn words(name: &str) -> Vec<String> {
    let mut spaced = String::new();
    for letter in name.chars() {
        if !letter.is_alphanumeric() || letter.is_uppercase() {
            spaced.push(' ');
        }
        spaced.extend(letter.to_lowercase().filter(|letter| letter.is_alphanumeric()));
    }
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// The words in backticks of a cell.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

// === impl Glossary ===

impl<'a> Glossary<'a> {
    fn parse(page: &'a str) -> Self {
        let (concepts, exceptions) = page.split_once(EXCEPTIONS).unwrap_or((page, ""));
        let cells = |page: &'a str| {
            let rows = page.lines().filter(|line| line.starts_with('|'));
            rows.map(|row| row.trim().trim_matches('|').split('|').collect::<Vec<&str>>())
        };
        let unused = cells(concepts).filter_map(|cells| cells.last().copied()).flat_map(quoted);
        let exceptions = cells(exceptions).filter_map(|cells| cells.first().copied()).flat_map(quoted);
        Self { unused: unused.map(str::to_lowercase).collect(), exceptions: exceptions.collect() }
    }

    /// A word of the name that is not used, also if the name has its plural.
    fn unused_word(&self, name: &str) -> Option<String> {
        let is_unused = |word: &String| {
            self.unused.contains(word) || word.strip_suffix('s').is_some_and(|word| self.unused.contains(word))
        };
        if self.exceptions.contains(name) { None } else { words(name).into_iter().find(is_unused) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "| word | meaning | where | not |\n|---|---|---|---|\n| slot | x | `y` | `Seat`, place |\n\
        ## Names with another meaning\n\n| Name | Meaning |\n|---|---|\n| `seat`, `CarSeat` | In a car, not a `slot`. |\n";

    fn check(path: &str, text: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        let found = check_names(&[source(GLOSSARY, PAGE), source(path, text)]);
        found.into_iter().map(|(path, line, message)| format!("{path}:{line}: {message}")).collect()
    }

    #[test]
    fn a_type_a_variant_and_a_field_with_an_unused_word_are_found() {
        let code = "struct FreeSeat {\n  taken_seats: u8,\n  seat: u8,\n  seating: u8,\n}\nenum CarSeat {\n  NoSeat,\n  Place { back_seat: u8 },\n}\n\
            #[cfg(test)]\nmod tests { struct Seat; }\n";
        let name = |line: usize, name: &str, word: &str| {
            format!("src/a.rs:{line}: `{name}`: the glossary has another name for `{word}`")
        };
        let expected = [
            name(1, "FreeSeat", "seat"),
            name(2, "taken_seats", "seats"),
            name(7, "NoSeat", "seat"),
            name(8, "back_seat", "seat"),
        ];
        assert_eq!(check("src/a.rs", code), expected);
        assert_eq!(check("src/a/tests.rs", code), [""; 0]);
        assert_eq!(check("xtask/src/a.rs", code), [""; 0]);
    }

    #[test]
    fn wire_words_and_metrics_with_an_unused_word_are_found() {
        let found = |text: &str| check("openapi/a.json", text).len();
        assert_eq!(found(r#"{"seats": {"description": "a seat", "example": "seat-1"}}"#), 0);
        assert_eq!(found(r#"{"a": [{"properties": {"free_seats": {"type": "integer"}, "seat": {}}}]}"#), 1);
        assert_eq!(found(r#"{"parameters": [{"name": "x-seat", "in": "header"}]}"#), 1);
        assert_eq!(found(r#"{"enum": ["no-seat", null], "x-extensible-enum": ["seat_2"]}"#), 2);
        let message = "schemas/a.json:2: `seat_1`: the glossary has another name for `seat`";
        assert_eq!(check("schemas/a.json", "{\"const\":\n \"seat_1\"}"), [message]);
        assert_eq!(check("schemas/a/b.json", "{\"const\": \"seat_1\"}"), [""; 0]);
        let code = "fn a(b: C) {\n  registry.register_with_unit(\n    \"account_seats\", \"Seats\", d);\n}\n";
        let message = "src/gateway/telemetry/a.rs:2: `account_seats`: the glossary has another name for `seats`";
        assert_eq!(check("src/gateway/telemetry/a.rs", code), [message]);
    }

    #[test]
    fn a_missing_page_is_found() {
        assert_eq!(check_names(&[])[0].0, GLOSSARY);
    }
}
