//! Every rule of generations and edits: the one table in `tests/cases/images.json`, row by row against the server.
//!
//! A row is laid over a legal minimum: fields of JSON (`with`) for `create` and `edit`, text parts (`parts`) and files
//! (`files`) for `form`. A refused request must name its parameter and must not have opened an upstream connection; an
//! accepted one must reach the upstream with the values that the caller wrote.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::edits::data_url;
use crate::kit::{Answer, Attempt, Call, FakeUpstream, Form, Gateway, image_specimen, request, sha256};

const TABLE: &str = include_str!("../cases/images.json");

/// One row of the table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    on: Operations,
    name: String,
    field: String,
    /// Fields of JSON over the minimum; `@png` in an address is that file as a data URL.
    #[serde(default)]
    with: Map<String, Value>,
    /// Text parts over the minimum.
    #[serde(default)]
    parts: Vec<(String, String)>,
    /// The files of a form, by part name and kind, in place of one image.
    files: Option<Vec<(String, String)>>,
    /// Fields of the minimum that are left out.
    #[serde(default)]
    without: Vec<String>,
    /// The whole body as sent, in place of the fields.
    raw: Option<String>,
    /// As `raw`, for bytes that are no text.
    raw_bytes: Option<Vec<u8>>,
    /// The prompt: a character, and how often it is repeated.
    prompt: Option<(String, usize)>,
    verdict: Verdict,
    status: u16,
    code: Option<String>,
    param: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Operations {
    One(Operation),
    Several(Vec<Operation>),
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Operation {
    /// A generation.
    Create,
    /// An edit as JSON.
    Edit,
    /// An edit as a form.
    Form,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Accepted,
    Refused,
}

// === impl Row ===

impl Row {
    fn operations(&self) -> Vec<Operation> {
        match &self.on {
            Operations::One(one) => vec![*one],
            Operations::Several(several) => several.clone(),
        }
    }

    fn send(&self, operation: Operation, gateway: &Gateway) -> Answer {
        let call = match operation {
            Operation::Form => self.form().call(),
            Operation::Create | Operation::Edit => {
                let call = if operation == Operation::Create { Call::generation() } else { Call::edit() };
                call.header("content-type", "application/json").bytes(self.body(operation))
            }
        };
        call.key(gateway.secret()).send(gateway.address())
    }

    fn body(&self, operation: Operation) -> Vec<u8> {
        if let Some(bytes) = &self.raw_bytes {
            return bytes.clone();
        }
        if let Some(raw) = &self.raw {
            return raw.clone().into_bytes();
        }
        self.fields(operation).to_string().into_bytes()
    }

    /// The fields as the caller writes them, of any operation.
    fn fields(&self, operation: Operation) -> Value {
        if let Some(raw) = &self.raw {
            return serde_json::from_str(raw).unwrap_or_default();
        }
        let mut body = request(json!({}));
        if operation == Operation::Edit {
            body["images"] = json!([{"image_url": "@png"}]);
        }
        for (name, value) in &self.with {
            body[name] = value.clone();
        }
        if let Some((character, count)) = &self.prompt {
            body["prompt"] = json!(character.repeat(*count));
        }
        for name in &self.without {
            body.as_object_mut().expect("an object").remove(name);
        }
        for (name, text) in &self.parts {
            body[name] = json!(text);
        }
        inline_files(&mut body);
        body
    }

    fn form(&self) -> Form {
        let minimum = [("model", "gpt-image-2"), ("prompt", "a red cube")];
        let mut form = Form::new();
        for (name, text) in minimum {
            let long =
                self.prompt.as_ref().filter(|_| name == "prompt").map(|(character, count)| character.repeat(*count));
            if !self.without.iter().any(|without| without == name) {
                form = form.text(name, long.as_deref().unwrap_or(text));
            }
        }
        form = self.parts.iter().fold(form, |form, (name, text)| form.text(name, text));
        self.chosen().iter().fold(form, |form, (name, kind)| form.file(name, &image_specimen(kind)))
    }

    fn chosen(&self) -> Vec<(String, String)> {
        self.files.clone().unwrap_or_else(|| vec![("image".to_owned(), "png".to_owned())])
    }

    /// Describes what is wrong with the answer, if anything.
    fn fault(&self, answer: &Answer) -> Option<String> {
        if answer.status != self.status || !answer.complete {
            return Some(format!("status {}: {:.200}", answer.status, answer.text()));
        }
        if self.verdict == Verdict::Accepted {
            return unresolved(answer);
        }
        let error = answer.error_object(self.status);
        let expected = json!({"type": "invalid_request_error", "code": self.code, "param": self.param});
        let found = json!({"type": error["type"], "code": error["code"], "param": error["param"]});
        if found != expected {
            return Some(format!("expected {expected}, found {error}"));
        }
        (answer.should_retry() != Some("false"))
            .then(|| format!("`x-should-retry` must be false, because a retry cannot help: {:?}", answer.headers))
    }
}

/// Replaces `@kind` by the file of this kind as a data URL, everywhere in the value.
fn inline_files(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(kind) = text.strip_prefix('@') {
                *text = data_url(&image_specimen(kind));
            }
        }
        Value::Array(list) => list.iter_mut().for_each(inline_files),
        Value::Object(object) => object.values_mut().for_each(inline_files),
        _ => {}
    }
}

fn table() -> Vec<Row> {
    serde_json::from_str(TABLE).expect("a table of cases")
}

/// Each row of this verdict with each of its operations.
fn checks(rows: &[Row], verdict: Verdict) -> impl Iterator<Item = (&Row, Operation)> {
    let rows = rows.iter().filter(move |row| row.verdict == verdict);
    rows.flat_map(|row| row.operations().into_iter().map(move |operation| (row, operation)))
}

#[test]
fn the_table_is_well_formed() {
    let rows = table();
    assert!(rows.len() >= 250, "{} rows", rows.len());
    let mut names = std::collections::BTreeSet::new();
    for row in &rows {
        assert!(!row.field.is_empty() || row.param.as_deref() == Some(""), "{}: no field", row.name);
        let accepted = row.verdict == Verdict::Accepted;
        assert_eq!((accepted, accepted), (row.status == 200, row.code.is_none()), "{}", row.name);
        for operation in row.operations() {
            assert!(
                names.insert((row.name.clone(), format!("{operation:?}"))),
                "{operation:?} {} occurs twice",
                row.name
            );
        }
    }
    println!("{} rows, {} checks", rows.len(), names.len());
}

#[test]
fn every_bad_request_names_its_parameter_and_costs_the_upstream_nothing() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let rows = table();
    let mut faults = Vec::new();
    let mut count = 0;
    for (row, operation) in checks(&rows, Verdict::Refused) {
        let answer = row.send(operation, &gateway);
        faults.extend(row.fault(&answer).map(|fault| format!("{operation:?}, {}: {fault}", row.name)));
        count += 1;
    }
    assert!(faults.is_empty(), "{} of {count} refusals:\n{}", faults.len(), faults.join("\n"));
    assert_eq!(upstream.accepted(), 0, "a refused request opened an upstream connection");
    assert_eq!(gateway.records().len(), 0, "a refused request is no job");
}

#[test]
fn every_good_request_reaches_the_upstream_as_written() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let rows = table();
    let (mut faults, mut count) = (Vec::new(), 0);
    for (row, operation) in checks(&rows, Verdict::Accepted) {
        let before = upstream.attempt_count();
        let answer = row.send(operation, &gateway);
        count += 1;
        let fault = row.fault(&answer).or_else(|| match upstream.received_attempts().get(before) {
            None => Some("no attempt".to_owned()),
            Some(attempt) => changed(row, operation, attempt),
        });
        faults.extend(fault.map(|fault| format!("{operation:?}, {}: {fault}", row.name)));
    }
    assert!(faults.is_empty(), "{} of {count} requests:\n{}", faults.len(), faults.join("\n"));
    assert_eq!(upstream.attempt_count(), count, "one attempt each");
    assert_eq!(gateway.final_records(count).len(), count);
}

/// Describes the first field that the upstream did not get as the caller wrote it, or else the files, if they differ.
fn changed(row: &Row, operation: Operation, attempt: &Attempt) -> Option<String> {
    let (written, sent) = (row.fields(operation), attempt.fields());
    for field in
        ["model", "prompt", "n", "size", "quality", "output_format", "output_compression", "moderation", "user"]
    {
        let newer = &written["safety_identifier"];
        let wrote = if field == "user" && !newer.is_null() { newer } else { &written[field] };
        let got = &sent[field];
        // A default may be left out on the way, and an absent value may be filled in.
        let left_out = got.is_null() && !["model", "prompt"].contains(&field) && is_default(field, wrote);
        if !wrote.is_null() && !left_out && !same(wrote, got) {
            return Some(format!("{field}: wrote {:.60}, the upstream got {:.60}", wrote.to_string(), got.to_string()));
        }
    }
    let expected = files(row, operation, &written);
    let found: Vec<_> = attempt.files().into_iter().chain(attempt.mask()).map(|part| part.digest.clone()).collect();
    (found != expected).then(|| format!("{} of {} files are as written", found.len(), expected.len()))
}

/// True if the values are equal; a number may be spelt differently, also as a text.
fn same(wrote: &Value, got: &Value) -> bool {
    let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.parse().ok());
    wrote == got || number(wrote).is_some() && number(wrote) == number(got)
}

fn is_default(field: &str, value: &Value) -> bool {
    // An empty text of a form is an absent one.
    if value == "" {
        return true;
    }
    match field {
        "n" => same(value, &json!(1)),
        "output_compression" => same(value, &json!(100)),
        "output_format" => value == "png",
        _ => value == "auto",
    }
}

/// The digests of the files of a request, the mask last.
fn files(row: &Row, operation: Operation, written: &Value) -> Vec<Vec<u8>> {
    let decode = |reference: &Value| {
        use base64::Engine as _;
        let url = reference["image_url"].as_str().and_then(|url| url.split_once(',')).expect("a data URL").1;
        sha256(&base64::engine::general_purpose::STANDARD.decode(url).expect("base64"))
    };
    match operation {
        Operation::Create => Vec::new(),
        Operation::Edit => {
            let images = written["images"].as_array().expect("images").iter();
            images.chain(written.get("mask").filter(|mask| mask.is_object())).map(decode).collect()
        }
        Operation::Form => {
            let (masks, images): (Vec<_>, Vec<_>) = row.chosen().into_iter().partition(|(name, _)| name == "mask");
            images.into_iter().chain(masks).map(|(_, kind)| sha256(&image_specimen(&kind))).collect()
        }
    }
}

/// Describes what the answer does not state: a stream must have a final event, and any other answer the values of what
/// was made, never `auto`.
fn unresolved(answer: &Answer) -> Option<String> {
    if answer.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
        let text = answer.text();
        return (!text.contains(".completed\n")).then(|| format!("no final event: {text:.200}"));
    }
    let answer = answer.json();
    let fields = ["size", "quality", "background", "output_format", "model"];
    let auto = fields.into_iter().find(|field| answer[*field] == "auto" || !answer[*field].is_string());
    auto.map(|field| format!("the answer's {field} is {}", answer[field]))
}
