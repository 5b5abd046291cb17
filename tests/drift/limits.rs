//! The code enforces every limit of the document, and repeats the number of none.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::difference::differences;
use crate::{assert_mentions, assert_no_difference, document, folder, root, tables};

/// Limits that this version does not enforce, with the reason.
const OPEN: &[(&str, &str)] = &[];

/// The smallest limit that is looked for in code: smaller numbers also occur with other meanings.
const SMALLEST_DISTINCT: u64 = 100_000;

/// A file of the source: its path, and its code without comments and tests.
pub(crate) type SourceFile = (String, String);

/// All files under `src/`, except tests.
pub(crate) fn source_files() -> Vec<SourceFile> {
    let mut files = Vec::new();
    collect(&root().join("src"), &mut files);
    files
}

fn collect(folder: &Path, files: &mut Vec<SourceFile>) {
    for entry in fs::read_dir(folder).expect("the source folder exists") {
        let path = entry.expect("the source can be listed").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name == "tests") {
            // Tests may repeat numbers.
        } else if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("the source can be read");
            let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
            files.push((name, code_of(&text)));
        }
    }
}

/// The text without comments and tests: both may repeat the number of a limit.
fn code_of(text: &str) -> String {
    let code = text.split_once("#[cfg(test)]\nmod tests {").map_or(text, |(code, _)| code);
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

fn limits(document: &Value) -> Vec<(String, u64)> {
    let rows = document["x-imagate-limits"].as_array().into_iter().flatten();
    rows.map(|row| (row["name"].as_str().unwrap_or_default().to_owned(), row["value"].as_u64().unwrap_or_default()))
        .collect()
}

/// One line for each limit that no code enforces and `open` does not list, and for each limit of `open` that code
/// enforces.
fn unenforced(document: &Value, source: &[SourceFile], open: &[(&str, &str)]) -> Vec<String> {
    let server = fs::read_to_string(folder().join("generated/server.rs")).unwrap_or_default();
    let mut lines = Vec::new();
    for (name, value) in limits(document) {
        let constant = name.to_uppercase();
        let named = source.iter().any(|(_, code)| words(code).any(|word| word == constant));
        let served = server.contains(&format!("request_body_max_bytes = {value},"));
        match (named || served, open.iter().find(|(open, _)| *open == name)) {
            (false, None) => lines.push(format!("{name}: the document has this limit, and no code names {constant}")),
            (true, Some(_)) => lines.push(format!("{name}: is held now, so it is no longer open")),
            (true, None) | (false, Some(_)) => {}
        }
    }
    lines
}

/// One line for each number in the code that is a limit of the document.
fn repeated(document: &Value, source: &[SourceFile]) -> Vec<String> {
    let sizes = document["components"]["schemas"]["ImageSize"]["x-imagate-size"].as_object().into_iter().flatten();
    let sizes = sizes.map(|(name, value)| (name.clone(), value.as_u64().unwrap_or_default()));
    let known: Vec<_> =
        limits(document).into_iter().chain(sizes).filter(|(_, value)| *value >= SMALLEST_DISTINCT).collect();
    let mut lines = Vec::new();
    for (path, code) in source {
        for word in words(code).filter(|word| word.starts_with(|first: char| first.is_ascii_digit())) {
            let Ok(number) = word.replace('_', "").parse::<u64>() else { continue };
            for (name, _) in known.iter().filter(|(_, value)| *value == number) {
                lines.push(format!("{path}: {number} is the limit {name}, which is in the document"));
            }
        }
    }
    lines
}

/// The identifiers and numbers of the code.
fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}

/// The limits that are compiled in, by name.
fn compiled() -> Value {
    tables::LIMITS
        .iter()
        .map(|limit| (limit.name.to_owned(), json!({ "value": limit.value, "unit": limit.unit })))
        .collect()
}

/// The limits of the document, by name.
fn documented(document: &Value) -> Value {
    let rows = document["x-imagate-limits"].as_array().into_iter().flatten();
    let name = |row: &Value| row["name"].as_str().unwrap_or_default().to_owned();
    rows.map(|row| (name(row), json!({ "value": row["value"], "unit": row["unit"] }))).collect()
}

#[test]
fn the_limits_compiled_in_are_those_of_the_document() {
    assert_no_difference(&differences(&documented(&document()), &compiled()));
}

#[test]
fn every_limit_of_the_document_is_held_by_code() {
    assert_no_difference(&unenforced(&document(), &source_files(), OPEN));
}

#[test]
fn no_limit_is_written_a_second_time_in_code() {
    assert_no_difference(&repeated(&document(), &source_files()));
}

#[test]
fn a_changed_limit_value_is_reported() {
    let mut changed = document();
    changed["x-imagate-limits"][0]["value"] = json!(5);
    assert_mentions(&differences(&documented(&changed), &compiled()), "value: document=5 code=");
}

#[test]
fn a_limit_without_code_is_reported_unless_it_is_listed_as_open() {
    let mut changed = document();
    let limits = changed["x-imagate-limits"].as_array_mut().unwrap();
    limits.push(
        json!({ "name": "max_wishes", "value": 3, "unit": "wishes", "applies_to": "a bottle", "source": "a tale" }),
    );
    assert_mentions(&unenforced(&changed, &source_files(), OPEN), "max_wishes: the document has this limit");
    let named = [("src/wish.rs".to_owned(), "const LEFT: u64 = MAX_WISHES - 1;".to_owned())];
    assert_mentions(&unenforced(&changed, &named, &[("max_wishes", "later")]), "max_wishes: is held now");
}

#[test]
fn a_limit_repeated_in_code_is_reported() {
    let copied = [("src/copy.rs".to_owned(), code_of("// 52_428_800 is fine here\nconst CAP: usize = 52_428_800;"))];
    assert_mentions(&repeated(&document(), &copied), "src/copy.rs: 52428800 is the limit max_upload_image_bytes");
    assert_eq!(repeated(&document(), &copied).len(), 1);
}
