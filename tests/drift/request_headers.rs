//! The header parameters of the document are those that the gateway reads.
//!
//! `build.rs` makes a constant of each, so a name is written once. This test finds a constant that the gateway does not
//! use, and a header that it reads by another name.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::limits::source_files;
use crate::{assert_mentions, assert_no_difference, document};

/// The files that read headers of requests to the API.
const READERS: [&str; 4] = [
    "src/gateway/flow/request_options.rs",
    "src/gateway/flow/wait_preference.rs",
    "src/gateway/rules/response/agent.rs",
    "src/gateway/rules/response/forwarded_headers.rs",
];
/// Headers that are read or forwarded without a parameter: an older spelling of `session-id`, which generators cannot
/// tell from it, and headers that only pass through.
const UNDECLARED: [&str; 4] = ["session_id", "openai-beta", "version", "x-client-request-id"];

/// The code of a file before its tests.
fn code_of<'a>(sources: &'a [(String, String)], path: &str) -> &'a str {
    let (_, text) = sources.iter().find(|(name, _)| name == path).unwrap_or_else(|| panic!("{path}: no such file"));
    text.split("#[cfg(test)]").next().unwrap_or_default()
}

/// The texts in the code that are names of headers: lower case, and with a hyphen or an underscore or known.
fn names_in(code: &str) -> BTreeSet<&str> {
    let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let texts = code.flat_map(|line| line.split('"').skip(1).step_by(2));
    let is_name = |text: &&str| {
        let is_plain = text.chars().all(|letter| letter.is_ascii_lowercase() || "-_".contains(letter));
        is_plain && (text.contains(['-', '_']) && !text.ends_with('-') || UNDECLARED.contains(text))
    };
    texts.filter(is_name).collect()
}

/// One line for each header that only the document or only the code has.
fn differences(document: &Value, sources: &[(String, String)]) -> Vec<String> {
    let mut lines = Vec::new();
    let parameters = document["components"]["parameters"].as_object().into_iter().flatten();
    for (component, parameter) in parameters {
        let constant = format!("{}_HEADER", upper_snake(component));
        if !READERS.iter().any(|path| code_of(sources, path).contains(&constant)) {
            lines.push(format!("{}: no file reads {constant}", parameter["name"]));
        }
    }
    for path in READERS {
        let found = names_in(code_of(sources, path)).into_iter().filter(|name| !UNDECLARED.contains(name));
        lines.extend(found.map(|name| format!("{path}: '{name}' is not a parameter of the document")));
    }
    lines
}

fn upper_snake(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_uppercase());
    }
    out
}

#[test]
fn the_gateway_reads_the_headers_of_the_document() {
    assert_no_difference(&differences(&document(), &source_files()));
}

#[test]
fn the_longest_idempotency_key_is_that_of_the_limit() {
    let document = document();
    let limits = document["x-imagate-limits"].as_array().expect("rows");
    let row = limits.iter().find(|row| row["name"] == "idempotency_key_max_characters").expect("a limit");
    assert_eq!(document["components"]["parameters"]["IdempotencyKey"]["schema"]["maxLength"], row["value"]);
}

#[test]
fn a_header_on_one_side_only_is_reported() {
    let mut changed = document();
    changed["components"]["parameters"]["Mood"] = json!({ "name": "x-mood", "in": "header" });
    let mut sources = source_files();
    let (_, text) = sources.iter_mut().find(|(path, _)| path == READERS[2]).expect("a file");
    text.insert_str(0, "const WEATHER: &str = \"x-weather\";\n");
    let found = differences(&changed, &sources);
    assert_mentions(&found, "\"x-mood\": no file reads MOOD_HEADER");
    assert_mentions(&found, "src/gateway/rules/response/agent.rs: 'x-weather' is not a parameter of the document");
}
