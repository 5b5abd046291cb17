//! Numbers, statuses and defaults are correct in the prose of descriptions, pages and the project's own skills.

use std::fs;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

use crate::facts::{Facts, rows};
use crate::phrases::{Phrase, phrases};
use crate::{admin_document, assert_mentions, assert_no_difference, document, folder};

/// The members of a document that contain prose.
const MEMBERS: [&str; 6] = ["description", "summary", "cause", "action", "message", "applies_to"];
/// The pages outside of [`FOLDERS`].
const PAGES: [&str; 4] = [
    "README.md",
    "schemas/skills/skills/image-generation/SKILL.md",
    "schemas/skills/skills/imagate-operation/SKILL.md",
    "schemas/skills/apis/imagate-http.md",
];
/// The folders of the reference pages and of the guide.
const FOLDERS: [&str; 2] = ["docs", "src/guide"];
/// Pages of these folders whose numbers are not facts of the program: the specification, the compatibility policy, the
/// glossary, the measurements, and the pages for maintainers.
const UNCHECKED: [&str; 7] = [
    "docs/specification.md",
    "docs/compatibility.md",
    "docs/glossary.md",
    "docs/performance.md",
    "docs/releasing.md",
    "docs/sdk-comparison.md",
    "docs/testing.md",
];

/// A status with its error code in backticks: ``409 `image_in_progress` ``, ``502 with code `upstream_error` ``.
static STATUS_AND_CODE: LazyLock<Regex> = LazyLock::new(|| {
    let reason = r"(?:, reason `([a-z_]+)` and `x-should-retry: (true|false)`)?";
    pattern(&format!(r"\b([1-5][0-9]{{2}})(?:\s+with\s+code)?\s+`([A-Za-z_]+)`{reason}"))
});
static CODE: LazyLock<Regex> = LazyLock::new(|| pattern("`[^`]*`"));
/// Versions, standards, dates, addresses and the numbers of a list, which are not checked.
static IGNORED_NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"HTTP/[0-9.]+|RFC [0-9]+|Apache-2\.0|1970-01-01T00:00:00Z|November 20[0-9]{2}|https://[^\s)]+|(?m)^[0-9]+\. ",
    )
});
static NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b[0-9][0-9,]*"));
static DEFAULT: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[0-9,]+ when absent"));

/// A text with its place, and the schema that it describes or `null`.
struct Text {
    place: String,
    text: String,
    schema: Value,
}

/// The prose of both documents and of the pages.
struct Prose {
    public: Value,
    admin: Value,
    pages: Vec<(String, String)>,
}

// === impl Prose ===

impl Prose {
    fn read() -> Self {
        let page = |path: String| {
            let text = fs::read_to_string(folder().join(&path)).expect("the page exists");
            (path, text)
        };
        let paths = PAGES.map(str::to_owned).into_iter().chain(reference_pages());
        Self { public: document(), admin: admin_document(), pages: paths.map(page).collect() }
    }

    fn texts(&self) -> Vec<Text> {
        let mut texts = Vec::new();
        for (name, document) in [("gateway", &self.public), ("admin", &self.admin)] {
            collect(name, document, document, &mut texts);
        }
        let unchecked =
            pattern(r"(?s)<!-- table:.*?<!-- /table -->|<!-- checked:.*?<!-- /checked -->|```.*?```|\A---\n.*?\n---\n");
        texts.extend(self.pages.iter().map(|(path, text)| Text {
            place: path.clone(),
            text: unchecked.replace_all(text, "").into_owned(),
            schema: Value::Null,
        }));
        texts
    }

    fn facts(&self, schema: Value) -> Facts<'_> {
        Facts { public: &self.public, admin: &self.admin, schema }
    }
}

/// The text of each page, also of those with other numbers.
#[cfg(feature = "cli")]
pub(crate) fn page_texts() -> Vec<(String, String)> {
    let paths = PAGES.map(str::to_owned).into_iter().chain(FOLDERS.iter().flat_map(|name| pages_in(name)));
    let pages = paths.filter(|path| path.ends_with(".md"));
    pages.map(|path| (path.clone(), fs::read_to_string(folder().join(path)).expect("the page exists"))).collect()
}

/// The pages of the folders, sorted by path.
fn reference_pages() -> Vec<String> {
    let mut paths: Vec<String> = FOLDERS.iter().flat_map(|name| pages_in(name)).collect();
    paths.retain(|path| path.ends_with(".md") && !UNCHECKED.contains(&path.as_str()));
    paths.sort();
    paths
}

fn pages_in(name: &str) -> Vec<String> {
    let entries = fs::read_dir(folder().join(name)).expect("the folder exists");
    let path = |entry: fs::DirEntry| format!("{name}/{}", entry.file_name().to_string_lossy());
    entries.map(|entry| path(entry.expect("the folder can be listed"))).collect()
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn collect(place: &str, document: &Value, value: &Value, texts: &mut Vec<Text>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter().filter(|(name, _)| *name != "example") {
                let place = format!("{place}/{name}");
                match member.as_str().filter(|_| MEMBERS.contains(&name.as_str())) {
                    Some(text) => {
                        texts.push(Text { place, text: text.to_owned(), schema: described_schema(document, value) });
                    }
                    None => collect(&place, document, member, texts),
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(&format!("{place}/{index}"), document, item, texts);
            }
        }
        _ => {}
    }
}

/// The schema that a description belongs to. References and the `schema` of a parameter are followed.
fn described_schema(document: &Value, holder: &Value) -> Value {
    let schema = holder.get("schema").unwrap_or(holder);
    let inner = ["allOf", "anyOf"].iter().find_map(|key| schema[*key].get(0)).unwrap_or(schema);
    let target = inner["$ref"].as_str().and_then(|reference| document.pointer(reference.trim_start_matches('#')));
    target.unwrap_or(inner).clone()
}

/// The value of a number as prose writes it: digits with commas, or a word up to five.
fn number(text: &str) -> u64 {
    let words = ["zero", "one", "two", "three", "four", "five"];
    let word = words.iter().position(|word| *word == text).map(|index| index as u64);
    word.unwrap_or_else(|| text.replace(',', "").parse().expect("a number"))
}

/// A phrase as a pattern, in which a line may break at any space.
fn expression((phrase, _): &Phrase) -> Regex {
    let escaped = regex::escape(phrase).replace(' ', r"\s+");
    pattern(&escaped.replace(r"\{\}", r"(\b(?:[0-9][0-9,]*|zero|one|two|three|four|five)\b)"))
}

/// One line for each number that differs from its origin, each number in no known phrase, and each unused phrase.
fn numbers(prose: &Prose) -> Vec<String> {
    let phrases: Vec<(Regex, &Phrase)> = phrases().map(|phrase| (expression(phrase), phrase)).collect();
    let mut used = vec![false; phrases.len()];
    let mut lines = Vec::new();
    for text in prose.texts() {
        let facts = prose.facts(text.schema.clone());
        let mut remaining = without_ignored(&text);
        for ((expression, (phrase, origins)), used) in phrases.iter().zip(&mut used) {
            let check_numbers = |found: &Captures<'_>| {
                *used = true;
                let pairs = found.iter().skip(1).flatten().zip(*origins);
                let pairs = pairs.map(|(group, origin)| (number(group.as_str()), origin(&facts)));
                let wrong = pairs.filter(|(written, expected)| written != expected);
                let line =
                    |(written, expected)| format!("{}: '{phrase}' has {written}, expected {expected}", text.place);
                lines.extend(wrong.map(line));
                "…".to_owned()
            };
            remaining = expression.replace_all(&remaining, check_numbers).into_owned();
        }
        lines.extend(unexplained(prose, &text.place, &remaining));
    }
    let unused = phrases.iter().zip(used).filter(|(_, used)| !used);
    lines.extend(unused.map(|((_, (phrase, _)), _)| format!("no text contains '{phrase}'")));
    lines
}

/// The text without the numbers that other rules check or that are ignored: code, dates, versions, tables of errors,
/// and the numbers of a list.
fn without_ignored(text: &Text) -> String {
    let mut remaining = text.text.clone();
    if text.place.ends_with("ErrorCode/description") {
        remaining = remaining.lines().filter(|line| !line.starts_with('|')).collect::<Vec<_>>().join("\n");
    }
    // `statuses` checks a status that has its code beside it.
    remaining = STATUS_AND_CODE.replace_all(&remaining, "…").into_owned();
    remaining = CODE.replace_all(&remaining, "`…`").into_owned();
    remaining = IGNORED_NUMBER.replace_all(&remaining, "…").into_owned();
    remaining
}

/// One line for each number that is neither a status of the error tables nor a default.
fn unexplained(prose: &Prose, place: &str, remaining: &str) -> Vec<String> {
    let facts = prose.facts(Value::Null);
    let statuses: Vec<u64> =
        rows(facts.public).chain(rows(facts.admin)).filter_map(|row| row["status"].as_u64()).collect();
    let mut lines = Vec::new();
    for found in NUMBER.find_iter(remaining) {
        let tail = &remaining[found.start()..];
        let is_status = tail.len() >= 3 && statuses.contains(&number(found.as_str().trim_end_matches(',')));
        if !is_status && !DEFAULT.is_match(tail) {
            let shown: String = tail.chars().take(40).collect();
            lines.push(format!("{place}: no phrase of the table explains '{shown}'"));
        }
    }
    lines
}

/// One line for each status that is not that of the error code beside it.
fn statuses(prose: &Prose) -> Vec<String> {
    let mut lines = Vec::new();
    for text in prose.texts() {
        for found in STATUS_AND_CODE.captures_iter(&text.text) {
            let (status, code) = (&found[1], &found[2]);
            let Some(row) = rows(&prose.public).chain(rows(&prose.admin)).find(|row| row["code"] == code) else {
                lines.push(format!("{}: there is no error code '{code}'", text.place));
                continue;
            };
            // The only exception: `method_not_allowed` with 426 tells agents to go on without WebSocket.
            let is_upgrade = status == "426" && code == "method_not_allowed";
            if row["status"].as_u64() != status.parse().ok() && !is_upgrade {
                lines.push(format!("{}: {status} `{code}`, but the table has {}", text.place, row["status"]));
            }
            if let (Some(reason), Some(retry)) = (found.get(3), found.get(4)) {
                let mut reasons = row["reasons"].as_array().into_iter().flatten();
                let row = reasons.find(|row| row["reason"] == reason.as_str());
                let differs = row.is_none_or(|row| row["should_retry"].as_bool() != retry.as_str().parse().ok());
                let line = format!("{}: `{}` has another retry advice in the table", text.place, reason.as_str());
                lines.extend(differs.then_some(line));
            }
        }
    }
    lines
}

/// One line for each default that is not that of the schema.
fn defaults(prose: &Prose) -> Vec<String> {
    let written = pattern("(?:`([^`]*)`|([0-9]+)) when absent");
    let mut lines = Vec::new();
    for text in prose.texts() {
        for found in written.captures_iter(&text.text) {
            let Some(default) = text.schema.get("default") else { continue };
            let written = found.get(1).or(found.get(2)).map_or("", |group| group.as_str());
            if default.as_str().map_or_else(|| default.to_string(), str::to_owned) != written {
                lines.push(format!("{}: {written} when absent, but the schema has {default}", text.place));
            }
        }
    }
    lines
}

/// One line for each size that a text gives as the bound of large images and that is not the bound.
fn large(prose: &Prose) -> Vec<String> {
    let large = prose.facts(Value::Null).size("large_above_pixels");
    let above = pattern("(?:above|pixels than|up to) `([0-9]+)x([0-9]+)`");
    let mut lines = Vec::new();
    for text in prose.texts() {
        let pixels = above.captures_iter(&text.text).map(|found| number(&found[1]) * number(&found[2]));
        lines.extend(pixels.filter(|pixels| *pixels != large).map(|pixels| format!("{}: {pixels} pixels", text.place)));
    }
    lines
}

/// One line for each row of the error table that the descriptions of `ErrorCode` and `ErrorReason` lack.
fn tables(document: &Value) -> Vec<String> {
    let description =
        |component: &str| document["components"]["schemas"][component]["description"].as_str().unwrap_or("");
    let (codes, reasons) = (description("ErrorCode"), description("ErrorReason").to_lowercase());
    let mut lines = Vec::new();
    for row in rows(document) {
        let code = row["code"].as_str().unwrap_or_default();
        let start = format!("| `{code}` | {} | ", row["status"]);
        let described =
            codes.lines().find_map(|line| line.strip_prefix(&start)).map(|cell| cell.trim_end_matches(". |"));
        let cause = row["cause"].as_str().unwrap_or_default();
        if described.is_none_or(|described| !cause.starts_with(described)) {
            lines.push(format!("ErrorCode: the description has no row '{start}{cause}'"));
        }
        for reason in row["reasons"].as_array().into_iter().flatten() {
            let word = format!("| `{}` | ", reason["reason"].as_str().unwrap_or_default());
            let line = reasons.lines().find(|line| line.starts_with(&word)).unwrap_or_default();
            let cause = reason["cause"].as_str().unwrap_or_default().to_lowercase();
            if !line.contains(&format!("`{}`", code.to_lowercase())) || !line.contains(&cause) {
                lines.push(format!("ErrorReason: the description has no row '{word}`{code}` | {cause}'"));
            }
        }
    }
    lines
}

#[test]
fn every_number_in_prose_is_that_of_the_code() {
    assert_no_difference(&numbers(&Prose::read()));
}

#[test]
fn every_status_in_prose_goes_with_its_code() {
    assert_no_difference(&statuses(&Prose::read()));
}

#[test]
fn every_default_in_prose_is_that_of_the_schema() {
    assert_no_difference(&defaults(&Prose::read()));
}

#[test]
fn every_text_states_the_same_bound_of_large_images() {
    assert_no_difference(&large(&Prose::read()));
}

#[test]
fn the_descriptions_of_code_and_reason_show_the_error_table() {
    assert_no_difference(&tables(&document()));
}

#[test]
fn a_wrong_or_unexplained_number_is_reported() {
    let mut prose = Prose::read();
    prose.public["components"]["headers"]["RetryAfter"]["description"] = "Never waits: never above 90 seconds.".into();
    prose.public["info"]["description"] = "It takes 7 bananas. A 503 with code `upstream_error`.".into();
    prose.pages[1].1.push_str("Each smaller than 20 MiB.");
    let found = numbers(&prose);
    assert_mentions(&found, "gateway/components/headers/RetryAfter/description: 'never above {}' has 90, expected 60");
    assert_mentions(&found, "gateway/info/description: no phrase of the table explains '7 bananas");
    assert_mentions(&found, "no text contains 'every {} seconds; every reader'");
    assert_mentions(&statuses(&prose), "gateway/info/description: 503 `upstream_error`, but the table has 502");
}

#[test]
fn a_wrong_number_on_a_reference_page_is_reported() {
    let mut prose = Prose::read();
    let page = |prose: &mut Prose, path: &str, from: &str, to: &str| {
        let (_, text) = prose.pages.iter_mut().find(|(name, _)| name == path).expect("the page");
        assert!(text.contains(from), "{path}: no '{from}'");
        *text = text.replacen(from, to, 1);
    };
    page(&mut prose, "docs/limits.md", "within 10 seconds", "within 11 seconds");
    page(&mut prose, "docs/operating.md", "A 503 of", "A 500 of");
    page(&mut prose, "docs/models.md", "## Text models", "At most 7 models.");
    let found = numbers(&prose);
    assert_mentions(&found, "docs/limits.md: 'sends no request within {} seconds, or none for {} seconds' has 11");
    assert_mentions(&found, "docs/operating.md: 'A {} of `…` names what does not' has 500, expected 503");
    assert_mentions(&found, "docs/models.md: no phrase of the table explains '7 models");
}

#[test]
fn a_wrong_default_or_large_size_is_reported() {
    let mut prose = Prose::read();
    let schemas = &mut prose.public["components"]["schemas"];
    schemas["ImageGenerationRequest"]["properties"]["n"]["description"] = "How many. 2 when absent.".into();
    schemas["ImageSize"]["description"] = "One above `1920x1080` takes long.".into();
    assert_mentions(&defaults(&prose), "properties/n/description: 2 when absent, but the schema has 1");
    assert_mentions(&large(&prose), "ImageSize/description: 2073600 pixels");
}

#[test]
fn a_changed_row_of_the_error_table_is_reported() {
    let mut changed = document();
    let rows = changed["x-imagate-errors"].as_array_mut().expect("rows");
    let row = rows.iter_mut().find(|row| row["code"] == "upstream_error").expect("a row");
    row["status"] = 500.into();
    row["reasons"][1]["cause"] = "Somebody refused.".into();
    let found = tables(&changed);
    assert_mentions(&found, "no row '| `upstream_error` | 500 |");
    assert_mentions(&found, "ErrorReason: the description has no row '| `content_refused` |");
}
