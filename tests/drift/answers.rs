//! The error tables say what the code answers: status, type, reason, retry advice and headers, of every kind of error.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::facts::rows;
use crate::{admin_document, assert_names, assert_none, document};

/// Headers that are added to every error, or by another part of the code: live answers are held against the document by
/// the kit of the end-to-end tests.
const ADDED: [&str; 4] = ["x-request-id", "cache-control", "allow", "x-imagate-replayed"];

/// Code and reason of an error.
type Word = (String, Option<String>);

fn word(answer: &Value) -> Word {
    let detail = &answer["body"]["error"];
    (text(&detail["code"]), detail["reason"].as_str().map(str::to_owned))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The advice that the code gives.
fn given(answers: &[Value]) -> BTreeMap<Word, BTreeSet<bool>> {
    let mut given = BTreeMap::<Word, BTreeSet<bool>>::new();
    for answer in answers {
        let advice = answer["headers"]["x-should-retry"] == "true";
        given.entry(word(answer)).or_default().insert(advice);
    }
    given
}

/// The advice of a row; `null` is both.
fn advised(row: &Value) -> BTreeSet<bool> {
    row["should_retry"].as_bool().map_or_else(|| BTreeSet::from([false, true]), |advice| BTreeSet::from([advice]))
}

/// The words of the tables with their advice, those without a reason too.
fn documented<'a>(all: impl Iterator<Item = &'a Value>) -> BTreeMap<Word, BTreeSet<bool>> {
    let mut documented = BTreeMap::new();
    for row in all {
        let code = text(&row["code"]);
        let reasons: Vec<&Value> = row["reasons"].as_array().into_iter().flatten().collect();
        if reasons.is_empty() {
            documented.insert((code, None), advised(row));
            continue;
        }
        let words = reasons.iter().map(|reason| ((code.clone(), Some(text(&reason["reason"]))), advised(reason)));
        documented.extend(words);
    }
    documented
}

/// The differences between the tables of the documents and the code, a line each.
fn apart(public: &Value, admin: &Value, answers: &[Value]) -> Vec<String> {
    let all = || rows(public).chain(rows(admin));
    let mut lines = Vec::new();
    for answer in answers {
        let code = &answer["body"]["error"]["code"];
        let found = all().find(|row| row["code"] == *code).cloned().unwrap_or_default();
        let said = json!([found["status"], found["type"]]);
        let done = json!([answer["status"], answer["body"]["error"]["type"]]);
        if said != done {
            lines.push(format!("{code}: status and type document={said} code={done}"));
        }
    }
    let (said, done) = (documented(all()), given(answers));
    for word in said.keys().chain(done.keys()).collect::<BTreeSet<_>>() {
        if said.get(word) != done.get(word) {
            lines.push(format!("{word:?}: should_retry document={:?} code={:?}", said.get(word), done.get(word)));
        }
    }
    for row in all().filter(|row| row["reasons"].is_array()) {
        let reasons = row["reasons"].as_array().into_iter().flatten();
        let together: BTreeSet<bool> = reasons.flat_map(advised).collect();
        if together != advised(row) {
            lines.push(format!("{}: should_retry is not that of its reasons", row["code"]));
        }
    }
    lines
}

/// Headers that only one side knows, and a wait longer than the document allows.
fn headers(document: &Value, answers: &[Value]) -> Vec<String> {
    let codes = document["components"]["schemas"]["ErrorCode"]["enum"].as_array().cloned().unwrap_or_default();
    let declared = document["components"]["responses"]["Error"]["headers"].as_object().cloned().unwrap_or_default();
    let declared: BTreeSet<String> = declared.into_iter().map(|(name, _)| name).collect();
    let own: Vec<&Value> = answers.iter().filter(|answer| codes.contains(&answer["body"]["error"]["code"])).collect();
    let sent = own.iter().flat_map(|answer| answer["headers"].as_object().into_iter().flatten());
    let mut sent: BTreeSet<String> = sent.map(|(name, _)| name.clone()).collect();
    sent.remove("content-type");
    let mut lines: Vec<String> = sent.difference(&declared).map(|name| format!("{name}: only in the code")).collect();
    let unsent = declared.difference(&sent).filter(|name| !ADDED.contains(&name.as_str()));
    lines.extend(unsent.map(|name| format!("{name}: only in the document")));
    let longest = own.iter().filter_map(|answer| text(&answer["headers"]["retry-after"]).parse::<u64>().ok()).max();
    let allowed = document["components"]["headers"]["RetryAfter"]["schema"]["maximum"].as_u64();
    if longest != allowed {
        lines.push(format!("retry-after: at most {allowed:?} in the document, {longest:?} in the code"));
    }
    for answer in own {
        let is_asked = answer["headers"].get("www-authenticate").is_some();
        if is_asked != (answer["status"] == 401) {
            lines.push(format!("www-authenticate: not with 401 only: {answer}"));
        }
    }
    lines
}

#[test]
fn every_error_is_answered_as_the_tables_say() {
    assert_none(&apart(&document(), &admin_document(), &imagate::served_errors()));
}

#[test]
fn every_header_of_an_error_is_declared_and_the_other_way_round() {
    assert_none(&headers(&document(), &imagate::served_errors()));
    assert_none(&headers(&admin_document(), &imagate::served_errors()));
}

#[test]
fn another_advice_or_word_is_seen() {
    let mut changed = document();
    let rows = changed["x-imagate-errors"].as_array_mut().expect("rows");
    rows.iter_mut().find(|row| row["code"] == "internal_error").expect("a row")["should_retry"] = json!(true);
    let upstream = rows.iter_mut().find(|row| row["code"] == "upstream_error").expect("a row");
    upstream["should_retry"] = json!(true);
    upstream["reasons"][1]["reason"] = json!("refused_content");
    let found = apart(&changed, &admin_document(), &imagate::served_errors());
    assert_names(&found, r#"("internal_error", None): should_retry document=Some({true}) code=Some({false})"#);
    assert_names(
        &found,
        r#"("upstream_error", Some("refused_content")): should_retry document=Some({false}) code=None"#,
    );
    assert_names(&found, r#"("upstream_error", Some("content_refused")): should_retry document=None"#);
    assert_names(&found, r#""upstream_error": should_retry is not that of its reasons"#);
}

#[test]
fn another_header_of_an_error_is_seen() {
    let mut changed = document();
    let headers_of = changed["components"]["responses"]["Error"]["headers"].as_object_mut().expect("headers");
    let retry = headers_of.remove("x-should-retry").expect("a header");
    headers_of.insert("x-retry".to_owned(), retry);
    changed["components"]["headers"]["RetryAfter"]["schema"]["maximum"] = json!(90);
    let found = headers(&changed, &imagate::served_errors());
    assert_names(&found, "x-should-retry: only in the code");
    assert_names(&found, "x-retry: only in the document");
    assert_names(&found, "retry-after: at most Some(90) in the document, Some(60) in the code");
}
