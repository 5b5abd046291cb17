//! A schema-driven fuzz: schemathesis makes requests from the served document, good and bad ones, and every answer must
//! be one that the document knows.

use std::process::Command;

use super::install::{python, script};
use super::pictures;
use crate::kit::{Call, Gateway, env_setting};

const TOKEN: &str = "admin-token-canary-0123456789abcdef";

/// How many requests for each operation, and how many seconds at most; more with `IMAGATE_FUZZ_EXAMPLES` and
/// `IMAGATE_FUZZ_SECONDS`.
const EXAMPLES: &str = "60";
const SECONDS: &str = "45";

/// Fuzzes what a document describes, with this key; `words` print the document.
#[track_caller]
fn fuzz(gateway: &Gateway, words: &[&str], key: &str) {
    let pictures = pictures();
    let printed = |words: &[&str], file: &str| {
        let place = gateway.home().join(file);
        std::fs::write(&place, gateway.program().args(words).run().ok_stdout()).expect("the served document");
        place
    };
    let document = printed(words, "fuzzed.json");
    // An error of the operators' API may be one of the callers' too.
    let callers = printed(&["openapi"], "gateway.json");
    let interpreter = python("IMAGATE_PY_SCHEMATHESIS", "schemathesis", "schemathesis");
    let number = |name: &str, usual: &str| env_setting(name).map_or(usual.into(), |text| text);
    let output = Command::new(interpreter)
        .args(["-m", "schemathesis.cli", "run"])
        .arg(&document)
        .args(["--url", &gateway.base_url().replace("/v1", "")])
        .args(["-H", &format!("Authorization: Bearer {key}")])
        .args(["--checks", "every_status_stands_in_the_error_table,status_code_conformance,content_type_conformance"])
        // With more workers, CPython 3.11 may lose count of its own recursion: its issue 106905.
        .args(["--phases", "examples,coverage,fuzzing", "--workers", "1", "--continue-on-failure", "--no-shrink"])
        .args(["--suppress-health-check", "all", "--warnings", "off", "--seed", "1", "--request-timeout", "60"])
        .arg("--max-examples")
        .arg(number("IMAGATE_FUZZ_EXAMPLES", EXAMPLES))
        .arg("--max-time")
        .arg(number("IMAGATE_FUZZ_SECONDS", SECONDS))
        .env("SCHEMATHESIS_HOOKS", script("fuzz_hooks.py"))
        .env("FUZZ_DOCUMENT", &document)
        .env("FUZZ_CALLERS", &callers)
        .env("PICTURES", pictures.path())
        .current_dir(gateway.home())
        .output()
        .expect("schemathesis starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}");
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_schema_driven_fuzz_finds_no_answer_that_the_document_does_not_know() {
    let gateway = Gateway::simulated();
    fuzz(&gateway, &["openapi"], gateway.secret());
}

#[test]
fn a_schema_driven_fuzz_of_the_operators_api_finds_none_either() {
    let gateway = Gateway::with_secrets("admin_token = { env = \"IT_ADMIN\" }", &[], &[("IT_ADMIN", TOKEN)]);
    fuzz(&gateway, &["openapi", "admin"], TOKEN);
    // Whatever it has made, changed and deleted.
    Call::get("/admin/v1/me").key(TOKEN).send(gateway.address()).ok_json();
}
