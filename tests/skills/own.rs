//! The skills and the API reference that this repository ships are valid, up to date, and agree with the public API
//! document.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

fn root() -> PathBuf {
    crate::corpus::documents().join("schemas/skills")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn manifest() -> Value {
    serde_json::from_str(&text("skills.json")).expect("JSON")
}

#[test]
fn the_skills_of_this_repository_are_built_and_valid() {
    for arguments in [&["build", "--check"][..], &["validate", "skills.json", "--root", ".", "--strict"], &["verify"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_imagate"));
        let output = command.current_dir(root()).arg("skills").args(arguments).output().expect("the program starts");
        let output_text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output_text));
    }
}

#[test]
fn our_own_api_is_among_the_api_references() {
    let manifest = manifest();
    let entry = manifest["apis"].as_array().expect("a list").iter().find(|api| api["id"] == "imagate-http");
    let entry = entry.expect("our own API");
    assert_eq!((&entry["product"], &entry["language"]), (&json!("imagate"), &json!("http")));
    let urls = entry["source_urls"].as_array().expect("addresses");
    assert!(urls.iter().any(|url| url.as_str().is_some_and(|url| url.ends_with("/openapi/gateway.json"))), "{urls:?}");
    let skill = manifest["skills"].as_array().expect("a list").iter().find(|skill| skill["name"] == "image-generation");
    assert_eq!(skill.expect("the skill")["api_docs"], json!(["imagate-http"]));
    let document = text(entry["path"].as_str().expect("a path"));
    for (path, operations) in api_document()["paths"].as_object().expect("paths") {
        for method in operations.as_object().expect("operations").keys().filter(|key| *key != "parameters") {
            let request = format!("| `{} {path}` |", method.to_uppercase());
            assert!(document.contains(&request), "{request}");
        }
    }
}

fn api_document() -> Value {
    let text = std::fs::read_to_string(crate::corpus::documents().join("openapi/gateway.json")).expect("the document");
    serde_json::from_str(&text).expect("JSON")
}

/// The rows of error tables in a text, as `STATUS CODE`.
fn errors(text: &str) -> Vec<String> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (status, code) = (cells.next()?, cells.next()?);
        let code = code.strip_prefix('`')?.strip_suffix('`')?;
        status.parse::<u16>().is_ok().then(|| format!("{status} {code}"))
    };
    let mut rows: Vec<String> = text.lines().filter_map(row).collect();
    rows.sort();
    rows
}

#[test]
fn the_error_tables_list_every_error_of_the_api_document() {
    let document = api_document();
    let rows = document["x-imagate-errors"].as_array().expect("errors").iter();
    let mut expected: Vec<String> =
        rows.map(|row| format!("{} {}", row["status"], row["code"].as_str().expect("a code"))).collect();
    expected.sort();
    for path in ["apis/imagate-http.md", "skills/image-generation/references/errors.md"] {
        assert_eq!(errors(&text(path)), expected, "{path}");
    }
}

/// Returns whether a line of advice says to send the same request again.
fn advises_retry(advice: &str) -> bool {
    let advice = advice.to_lowercase();
    ["send it again", "send the same request again"].iter().any(|words| advice.contains(words))
}

#[test]
fn the_retry_advice_agrees_with_the_api_document() {
    let text = text("skills/image-generation/references/errors.md");
    for row in api_document()["x-imagate-errors"].as_array().expect("errors") {
        let code = row["code"].as_str().expect("a code");
        let line = text.lines().find(|line| line.contains(&format!("`{code}`"))).expect("a row");
        let advice = line.rsplit(" | ").next().expect("a cell");
        // If the advice depends on the answer, the skill names the header with the advice.
        let expected =
            row["should_retry"].as_bool().unwrap_or_else(|| advice.contains("Only if `x-should-retry` is `true`"));
        assert_eq!(advises_retry(advice), expected, "{code}: {advice}");
    }
}
