//! Numbers, statuses and defaults in the prose of descriptions, pages and our skills are true.

use std::fs;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

use crate::facts::{Facts, rows};
use crate::phrases::{Phrase, phrases};
use crate::{admin_document, assert_names, assert_none, document, folder};

/// The members of a document whose text somebody reads.
const MEMBERS: [&str; 6] = ["description", "summary", "cause", "action", "message", "applies_to"];
/// The pages beside the documents, and beside those of [`FOLDER`].
const PAGES: [&str; 4] = [
    "README.md",
    "schemas/skills/skills/image-generation/SKILL.md",
    "schemas/skills/skills/imagate-operation/SKILL.md",
    "schemas/skills/apis/imagate-http.md",
];
/// The folder of the pages of reference.
const FOLDER: &str = "docs";
/// Pages of that folder whose numbers are no facts of the program: demands of the specification with their tests, promises
/// to users, and words.
const UNCHECKED: [&str; 3] = ["docs/specification.md", "docs/compatibility.md", "docs/glossary.md"];

/// `409 image_in_progress`, `a 502 with code upstream_error`, the codes in backticks.
static STATUS_AND_CODE: LazyLock<Regex> = LazyLock::new(|| {
    let reason = r"(?:, reason `([a-z_]+)` and `x-should-retry: (true|false)`)?";
    pattern(&format!(r"\b([1-5][0-9]{{2}})(?:\s+with\s+code)?\s+`([A-Za-z_]+)`{reason}"))
});
static CODE: LazyLock<Regex> = LazyLock::new(|| pattern("`[^`]*`"));
/// Versions, dates, addresses and the numbers of a list.
static NO_NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"HTTP/[0-9.]+|Apache-2\.0|1970-01-01T00:00:00Z|November 20[0-9]{2}|https://[^\s)]+|(?m)^[0-9]+\. ")
});
static NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b[0-9][0-9,]*"));
static DEFAULT: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[0-9,]+ when absent"));

/// A text with its place, and the schema that it describes.
struct Text {
    place: String,
    text: String,
    schema: Value,
}

/// Everything that is said, in both documents and on the pages.
struct Prose {
    public: Value,
    admin: Value,
    pages: Vec<(String, String)>,
}

// === impl Prose ===

impl Prose {
    fn read() -> Self {
        let page = |path: String| {
            let text = fs::read_to_string(folder().join(&path)).expect("the page is there");
            (path, text)
        };
        let paths = PAGES.map(str::to_owned).into_iter().chain(reference());
        Self { public: document(), admin: admin_document(), pages: paths.map(page).collect() }
    }

    fn texts(&self) -> Vec<Text> {
        let mut texts = Vec::new();
        for (name, document) in [("gateway", &self.public), ("admin", &self.admin)] {
            collect(name, document, document, &mut texts);
        }
        let generated =
            pattern(r"(?s)<!-- table:.*?<!-- /table -->|<!-- checked:.*?<!-- /checked -->|```.*?```|\A---\n.*?\n---\n");
        texts.extend(self.pages.iter().map(|(path, text)| Text {
            place: path.clone(),
            text: generated.replace_all(text, "").into_owned(),
            schema: Value::Null,
        }));
        texts
    }

    fn facts(&self, schema: Value) -> Facts<'_> {
        Facts { public: &self.public, admin: &self.admin, schema }
    }
}

/// The pages of reference, sorted by path.
fn reference() -> Vec<String> {
    let entries = fs::read_dir(folder().join(FOLDER)).expect("the folder is there");
    let name = |entry: fs::DirEntry| format!("{FOLDER}/{}", entry.file_name().to_string_lossy());
    let mut paths: Vec<String> = entries.map(|entry| name(entry.expect("the folder can be listed"))).collect();
    paths.retain(|path| path.ends_with(".md") && !UNCHECKED.contains(&path.as_str()));
    paths.sort();
    paths
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
                    Some(text) => texts.push(Text { place, text: text.to_owned(), schema: described(document, value) }),
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

/// The schema beside a description, through a reference and that of a parameter.
fn described(document: &Value, holder: &Value) -> Value {
    let schema = holder.get("schema").unwrap_or(holder);
    let inner = schema["allOf"].get(0).unwrap_or(schema);
    let target = inner["$ref"].as_str().and_then(|reference| document.pointer(reference.trim_start_matches('#')));
    target.unwrap_or(inner).clone()
}

/// A number as prose writes it.
fn number(text: &str) -> u64 {
    let words = ["zero", "one", "two", "three", "four", "five"];
    let word = words.iter().position(|word| *word == text).map(|at| at as u64);
    word.unwrap_or_else(|| text.replace(',', "").parse().expect("a number"))
}

/// A phrase as a pattern. Lines may break anywhere in it.
fn expression((phrase, _): &Phrase) -> Regex {
    let blank = regex::escape(phrase).replace(' ', r"\s+");
    pattern(&blank.replace(r"\{\}", r"(\b(?:[0-9][0-9,]*|zero|one|two|three|four|five)\b)"))
}

/// The numbers that differ from those of their origin, and the numbers in no known phrase, a line each.
fn numbers(prose: &Prose) -> Vec<String> {
    let phrases: Vec<(Regex, &Phrase)> = phrases().map(|phrase| (expression(phrase), phrase)).collect();
    let mut used = vec![false; phrases.len()];
    let mut lines = Vec::new();
    for text in prose.texts() {
        let facts = prose.facts(text.schema.clone());
        let mut rest = without_words(&text);
        for ((expression, (phrase, origins)), used) in phrases.iter().zip(&mut used) {
            let whole = |found: &Captures<'_>| {
                *used = true;
                let pairs = found.iter().skip(1).flatten().zip(*origins);
                let pairs = pairs.map(|(group, origin)| (number(group.as_str()), origin(&facts)));
                let untrue = pairs.filter(|(said, meant)| said != meant);
                lines.extend(
                    untrue.map(|(said, meant)| format!("{}: '{phrase}' says {said} and means {meant}", text.place)),
                );
                "…".to_owned()
            };
            rest = expression.replace_all(&rest, whole).into_owned();
        }
        lines.extend(unknown(prose, &text.place, &rest));
    }
    let unused = phrases.iter().zip(used).filter(|(_, used)| !used);
    lines.extend(unused.map(|((_, (phrase, _)), _)| format!("nobody says '{phrase}' any more")));
    lines
}

/// The text without what is no number of ours: code, dates, versions, tables of errors, and the numbers of a list.
fn without_words(text: &Text) -> String {
    let mut kept = text.text.clone();
    if text.place.ends_with("ErrorCode/description") {
        kept = kept.lines().filter(|line| !line.starts_with('|')).collect::<Vec<_>>().join("\n");
    }
    // A status with its code, and a default, are looked at by rules of their own.
    kept = STATUS_AND_CODE.replace_all(&kept, "…").into_owned();
    kept = CODE.replace_all(&kept, "`…`").into_owned();
    kept = NO_NUMBER.replace_all(&kept, "…").into_owned();
    kept
}

fn unknown(prose: &Prose, place: &str, rest: &str) -> Vec<String> {
    let facts = prose.facts(Value::Null);
    let statuses: Vec<u64> =
        rows(facts.public).chain(rows(facts.admin)).filter_map(|row| row["status"].as_u64()).collect();
    let mut lines = Vec::new();
    for found in NUMBER.find_iter(rest) {
        let after = &rest[found.start()..];
        let is_status = after.len() >= 3 && statuses.contains(&number(found.as_str().trim_end_matches(',')));
        if !is_status && !DEFAULT.is_match(after) {
            let shown: String = after.chars().take(40).collect();
            lines.push(format!("{place}: no phrase of the table explains '{shown}'"));
        }
    }
    lines
}

/// Statuses that do not go with the code beside them.
fn statuses(prose: &Prose) -> Vec<String> {
    let mut lines = Vec::new();
    for text in prose.texts() {
        for found in STATUS_AND_CODE.captures_iter(&text.text) {
            let (status, code) = (&found[1], &found[2]);
            let Some(row) = rows(&prose.public).chain(rows(&prose.admin)).find(|row| row["code"] == code) else {
                lines.push(format!("{}: there is no error code '{code}'", text.place));
                continue;
            };
            // The one status that a code has beside its own: it tells agents to go on without WebSocket.
            let is_upgrade = status == "426" && code == "method_not_allowed";
            if row["status"].as_u64() != status.parse().ok() && !is_upgrade {
                lines.push(format!("{}: {status} `{code}`, and the table says {}", text.place, row["status"]));
            }
            if let (Some(reason), Some(retry)) = (found.get(3), found.get(4)) {
                let mut reasons = row["reasons"].as_array().into_iter().flatten();
                let row = reasons.find(|row| row["reason"] == reason.as_str());
                let is_other = row.is_none_or(|row| row["should_retry"].as_bool() != retry.as_str().parse().ok());
                let told = format!("{}: `{}` is told with another advice", text.place, reason.as_str());
                lines.extend(is_other.then_some(told));
            }
        }
    }
    lines
}

/// Defaults that are not those of the schema.
fn defaults(prose: &Prose) -> Vec<String> {
    let said = pattern("(?:`([^`]*)`|([0-9]+)) when absent");
    let mut lines = Vec::new();
    for text in prose.texts() {
        for found in said.captures_iter(&text.text) {
            let Some(default) = text.schema.get("default") else { continue };
            let (said, meant) = (found.get(1).or(found.get(2)).map_or("", |said| said.as_str()), default);
            if meant.as_str().map_or_else(|| meant.to_string(), str::to_owned) != said {
                lines.push(format!("{}: {said} when absent, and the schema says {meant}", text.place));
            }
        }
    }
    lines
}

/// Sizes that stand for the one above which an image is large, and are not it.
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

/// The rows that the descriptions of code and reason show, against the error table.
fn tables(document: &Value) -> Vec<String> {
    let about = |component: &str| document["components"]["schemas"][component]["description"].as_str().unwrap_or("");
    let (codes, reasons) = (about("ErrorCode"), about("ErrorReason").to_lowercase());
    let mut lines = Vec::new();
    for row in rows(document) {
        let code = row["code"].as_str().unwrap_or_default();
        let start = format!("| `{code}` | {} | ", row["status"]);
        let said = codes.lines().find_map(|line| line.strip_prefix(&start)).map(|rest| rest.trim_end_matches(". |"));
        let cause = row["cause"].as_str().unwrap_or_default();
        if said.is_none_or(|said| !cause.starts_with(said)) {
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
    assert_none(&numbers(&Prose::read()));
}

#[test]
fn every_status_in_prose_goes_with_its_code() {
    assert_none(&statuses(&Prose::read()));
}

#[test]
fn every_default_in_prose_is_that_of_the_schema() {
    assert_none(&defaults(&Prose::read()));
}

#[test]
fn every_text_states_the_same_bound_of_large_images() {
    assert_none(&large(&Prose::read()));
}

#[test]
fn the_descriptions_of_code_and_reason_show_the_error_table() {
    assert_none(&tables(&document()));
}

#[test]
fn a_wrong_or_unexplained_number_is_reported() {
    let mut prose = Prose::read();
    prose.public["components"]["headers"]["RetryAfter"]["description"] = "Never waits: never above 90 seconds.".into();
    prose.public["info"]["description"] = "It takes 7 bananas. A 503 with code `upstream_error`.".into();
    prose.pages[1].1.push_str("Each smaller than 20 MiB.");
    let found = numbers(&prose);
    assert_names(&found, "gateway/components/headers/RetryAfter/description: 'never above {}' says 90 and means 60");
    assert_names(&found, "gateway/info/description: no phrase of the table explains '7 bananas");
    assert_names(&found, "nobody says 'every {} seconds; every reader' any more");
    assert_names(&statuses(&prose), "gateway/info/description: 503 `upstream_error`, and the table says 502");
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
    assert_names(&found, "docs/limits.md: 'sends no request within {} seconds, or none for {} seconds' says 11");
    assert_names(&found, "docs/operating.md: 'A {} of `…` names what does not' says 500 and means 503");
    assert_names(&found, "docs/models.md: no phrase of the table explains '7 models");
}

#[test]
fn a_wrong_default_or_large_size_is_reported() {
    let mut prose = Prose::read();
    let schemas = &mut prose.public["components"]["schemas"];
    schemas["ImageGenerationRequest"]["properties"]["n"]["description"] = "How many. 2 when absent.".into();
    schemas["ImageSize"]["description"] = "One above `1920x1080` takes long.".into();
    assert_names(&defaults(&prose), "properties/n/description: 2 when absent, and the schema says 1");
    assert_names(&large(&prose), "ImageSize/description: 2073600 pixels");
}

#[test]
fn a_changed_row_of_the_error_table_is_reported() {
    let mut changed = document();
    let rows = changed["x-imagate-errors"].as_array_mut().expect("rows");
    let row = rows.iter_mut().find(|row| row["code"] == "upstream_error").expect("a row");
    row["status"] = 500.into();
    row["reasons"][1]["cause"] = "Somebody refused.".into();
    let found = tables(&changed);
    assert_names(&found, "no row '| `upstream_error` | 500 |");
    assert_names(&found, "ErrorReason: the description has no row '| `content_refused` |");
}
