//! A schema-driven fuzz test: schemathesis makes valid and invalid requests from the served document, and the document
//! must describe every answer.

use std::process::Command;

use super::install::{python, script};
use super::pictures;
use crate::kit::{Call, Gateway, env_setting};

const TOKEN: &str = "admin-token-canary-0123456789abcdef";

/// The default number of requests for each operation, and the default limit in seconds. `IMAGATE_FUZZ_EXAMPLES` and
/// `IMAGATE_FUZZ_SECONDS` change them.
const EXAMPLES: &str = "20";
const SECONDS: &str = "45";

/// Fuzzes the operations of a document, with this key. The command `words` prints the document.
#[track_caller]
fn fuzz(gateway: &Gateway, words: &[&str], key: &str) {
    let pictures = pictures();
    let printed = |words: &[&str], file: &str| {
        let path = gateway.home().join(file);
        std::fs::write(&path, gateway.program().args(words).run().ok_stdout()).expect("the served document");
        path
    };
    let document = printed(words, "fuzzed.json");
    // The admin API also answers with errors of the public API.
    let callers = printed(&["openapi"], "gateway.json");
    let interpreter = python("IMAGATE_PY_SCHEMATHESIS", "schemathesis", "schemathesis");
    let number = |name: &str, default: &str| env_setting(name).map_or(default.into(), |text| text);
    let output = Command::new(interpreter)
        .args(["-m", "schemathesis.cli", "run"])
        .arg(&document)
        .args(["--url", &gateway.base_url().replace("/v1", "")])
        .args(["-H", &format!("Authorization: Bearer {key}")])
        .args(["--checks", "every_status_stands_in_the_error_table,status_code_conformance,content_type_conformance"])
        // One worker, because CPython 3.11 may miscount its recursion depth with several (CPython issue 106905).
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
fn a_schema_driven_fuzz_finds_no_undocumented_answer() {
    let gateway = Gateway::simulated();
    fuzz(&gateway, &["openapi"], gateway.secret());
}

#[test]
fn a_schema_driven_fuzz_of_the_operators_api_finds_no_undocumented_answer() {
    let gateway = Gateway::with_secrets("admin_token = { env = \"IT_ADMIN\" }", &[], &[("IT_ADMIN", TOKEN)]);
    fuzz(&gateway, &["openapi", "admin"], TOKEN);
    // The fuzz test made, changed and deleted objects; the admin token must still work.
    Call::get("/admin/v1/me").key(TOKEN).send(gateway.address()).ok_json();
}
