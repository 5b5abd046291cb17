//! The error tables agree with the code in the status, type, reason, retry advice and headers of every error.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::facts::{rows, words};
use crate::{admin_document, assert_mentions, assert_no_difference, document};

/// Headers that another part of the code adds to errors, so the samples of this test lack them. The kit of the
/// end-to-end tests checks them in live answers.
const ADDED: [&str; 6] =
    ["x-request-id", "cache-control", "allow", "x-imagate-adapted", "x-imagate-replayed", "preference-applied"];

/// The code and the reason of an error.
type ErrorKey = (String, Option<String>);

fn error_key(answer: &Value) -> ErrorKey {
    let detail = &answer["body"]["error"];
    (text(&detail["code"]), detail["reason"].as_str().map(str::to_owned))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The retry advice that the code gives for each error.
fn coded_advice(answers: &[Value]) -> BTreeMap<ErrorKey, BTreeSet<bool>> {
    let mut given = BTreeMap::<ErrorKey, BTreeSet<bool>>::new();
    for answer in answers {
        let advice = answer["headers"]["x-should-retry"] == "true";
        given.entry(error_key(answer)).or_default().insert(advice);
    }
    given
}

/// The retry advice of a row of the tables; `null` means that both occur.
fn advised(row: &Value) -> BTreeSet<bool> {
    row["should_retry"].as_bool().map_or_else(|| BTreeSet::from([false, true]), |advice| BTreeSet::from([advice]))
}

/// The retry advice that the tables state for each error, with or without a reason.
fn documented_advice<'a>(rows: impl Iterator<Item = &'a Value>) -> BTreeMap<ErrorKey, BTreeSet<bool>> {
    let mut documented = BTreeMap::new();
    for row in rows {
        let code = text(&row["code"]);
        let reasons: Vec<&Value> = row["reasons"].as_array().into_iter().flatten().collect();
        if reasons.is_empty() {
            documented.insert((code, None), advised(row));
            continue;
        }
        let entries = reasons.iter().map(|reason| ((code.clone(), Some(text(&reason["reason"]))), advised(reason)));
        documented.extend(entries);
    }
    documented
}

/// One line for each difference between the tables of the documents and the code.
fn differences(public: &Value, admin: &Value, answers: &[Value]) -> Vec<String> {
    let all = || rows(public).chain(rows(admin));
    let mut lines = Vec::new();
    for answer in answers {
        let code = &answer["body"]["error"]["code"];
        let found = all().find(|row| row["code"] == *code).cloned().unwrap_or_default();
        let documented = json!([found["status"], found["type"]]);
        let coded = json!([answer["status"], answer["body"]["error"]["type"]]);
        if documented != coded {
            lines.push(format!("{code}: status and type document={documented} code={coded}"));
        }
    }
    let (documented, coded) = (documented_advice(all()), coded_advice(answers));
    for key in documented.keys().chain(coded.keys()).collect::<BTreeSet<_>>() {
        if documented.get(key) != coded.get(key) {
            lines.push(format!("{key:?}: should_retry document={:?} code={:?}", documented.get(key), coded.get(key)));
        }
    }
    for row in all().filter(|row| row["reasons"].is_array()) {
        let reasons = row["reasons"].as_array().into_iter().flatten();
        let of_reasons: BTreeSet<bool> = reasons.flat_map(advised).collect();
        if of_reasons != advised(row) {
            lines.push(format!("{}: should_retry is not that of its reasons", row["code"]));
        }
    }
    lines
}

/// One line for each header that only one side has, and for a maximum of `retry-after` that differs.
fn header_differences(document: &Value, answers: &[Value]) -> Vec<String> {
    let codes: Vec<&Value> = words(document, "ErrorCode").collect();
    let declared = document["components"]["responses"]["Error"]["headers"].as_object().cloned().unwrap_or_default();
    let declared: BTreeSet<String> = declared.into_iter().map(|(name, _)| name).collect();
    let answers: Vec<&Value> =
        answers.iter().filter(|answer| codes.contains(&&answer["body"]["error"]["code"])).collect();
    let sent = answers.iter().flat_map(|answer| answer["headers"].as_object().into_iter().flatten());
    let mut sent: BTreeSet<String> = sent.map(|(name, _)| name.clone()).collect();
    sent.remove("content-type");
    let mut lines: Vec<String> = sent.difference(&declared).map(|name| format!("{name}: only in the code")).collect();
    let unsent = declared.difference(&sent).filter(|name| !ADDED.contains(&name.as_str()));
    lines.extend(unsent.map(|name| format!("{name}: only in the document")));
    for name in &sent {
        let is_always_sent = answers.iter().all(|answer| answer["headers"].get(name).is_some());
        let header = document["components"]["responses"]["Error"]["headers"][name]["$ref"].as_str();
        let is_required = header.and_then(|reference| document.pointer(reference.trim_start_matches('#')));
        if is_always_sent != is_required.is_some_and(|header| header["required"] == true) {
            lines.push(format!(
                "{name}: always sent by the code ({is_always_sent}), and required by the document, or neither"
            ));
        }
    }
    let longest = answers.iter().filter_map(|answer| text(&answer["headers"]["retry-after"]).parse::<u64>().ok()).max();
    let allowed = document["components"]["headers"]["RetryAfter"]["schema"]["maximum"].as_u64();
    if longest != allowed {
        lines.push(format!("retry-after: at most {allowed:?} in the document, {longest:?} in the code"));
    }
    for answer in answers {
        let has_challenge = answer["headers"].get("www-authenticate").is_some();
        if has_challenge != (answer["status"] == 401) {
            lines.push(format!("www-authenticate: not with 401 only: {answer}"));
        }
    }
    lines
}

#[test]
fn every_error_is_answered_as_the_tables_say() {
    assert_no_difference(&differences(&document(), &admin_document(), &imagate::served_errors()));
}

#[test]
fn the_declared_error_headers_are_those_of_the_code() {
    assert_no_difference(&header_differences(&document(), &imagate::served_errors()));
    assert_no_difference(&header_differences(&admin_document(), &imagate::served_errors()));
}

#[test]
fn a_changed_retry_advice_or_reason_is_reported() {
    let mut changed = document();
    let rows = changed["x-imagate-errors"].as_array_mut().expect("rows");
    rows.iter_mut().find(|row| row["code"] == "internal_error").expect("a row")["should_retry"] = json!(true);
    let upstream = rows.iter_mut().find(|row| row["code"] == "upstream_error").expect("a row");
    upstream["should_retry"] = json!(true);
    upstream["reasons"][1]["reason"] = json!("refused_content");
    let found = differences(&changed, &admin_document(), &imagate::served_errors());
    assert_mentions(&found, r#"("internal_error", None): should_retry document=Some({true}) code=Some({false})"#);
    assert_mentions(
        &found,
        r#"("upstream_error", Some("refused_content")): should_retry document=Some({false}) code=None"#,
    );
    assert_mentions(&found, r#"("upstream_error", Some("content_refused")): should_retry document=None"#);
    assert_mentions(&found, r#""upstream_error": should_retry is not that of its reasons"#);
}

#[test]
fn a_changed_header_of_an_error_is_reported() {
    let mut changed = document();
    let headers_of = changed["components"]["responses"]["Error"]["headers"].as_object_mut().expect("headers");
    let retry = headers_of.remove("x-should-retry").expect("a header");
    headers_of.insert("x-retry".to_owned(), retry);
    changed["components"]["headers"]["RetryAfter"]["schema"]["maximum"] = json!(90);
    changed["components"]["headers"]["WwwAuthenticate"]["required"] = json!(true);
    let found = header_differences(&changed, &imagate::served_errors());
    assert_mentions(&found, "x-should-retry: only in the code");
    assert_mentions(&found, "x-retry: only in the document");
    assert_mentions(&found, "www-authenticate: always sent by the code (false)");
    assert_mentions(&found, "retry-after: at most Some(90) in the document, Some(60) in the code");
}
