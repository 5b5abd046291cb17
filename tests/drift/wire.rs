//! The documents state what the program does on the wire: the key, the content types, the headers and the members of
//! answers. The other side of each comparison is a recording of the program.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::descriptions::validator_of;
use crate::recording::{RecordedAnswer, SERVED_ANSWERS, ServedAnswers};
use crate::{admin_document, assert_mentions, assert_no_difference, document, json};

/// Operations whose answers are passed on as the upstream writes them, so the document cannot know their members.
const PASSED_ON: [&str; 1] = ["create_response"];
/// Headers of the transport, which no document lists.
const TRANSPORT: [&str; 6] = ["connection", "content-length", "content-type", "date", "transfer-encoding", "vary"];
/// A header of every answer, also of errors.
const ALWAYS: &str = "x-request-id";

/// The declared headers of an answer, by name.
type DeclaredHeaders<'a> = BTreeMap<&'a str, &'a Value>;

/// An operation of a document: method, path, and the operation itself.
struct DocumentOperation<'a> {
    document: &'a Value,
    route: String,
    value: &'a Value,
}

fn operations(document: &Value) -> impl Iterator<Item = DocumentOperation<'_>> {
    let paths = document["paths"].as_object().into_iter().flatten();
    paths.flat_map(move |(path, item)| {
        let methods = item.as_object().into_iter().flatten();
        methods.map(move |(method, value)| DocumentOperation {
            document,
            route: format!("{} {path}", method.to_uppercase()),
            value,
        })
    })
}

// === impl DocumentOperation ===

impl<'a> DocumentOperation<'a> {
    fn id(&self) -> &'a str {
        self.value["operationId"].as_str().unwrap_or_default()
    }

    /// The recorded answers of this operation.
    fn answers<'r>(&self, recording: &'r ServedAnswers) -> impl Iterator<Item = &'r RecordedAnswer> {
        let id = self.id().to_owned();
        recording.answers.iter().filter(move |(operation, _)| *operation == id).map(|(_, answer)| answer)
    }

    /// The answer 200 of the document.
    fn declared_answer(&self) -> &'a Value {
        target(self.document, &self.value["responses"]["200"])
    }

    /// The schemes of the keys that the operation requires.
    fn schemes(&self) -> Vec<&'a Value> {
        let own = self.value.get("security").unwrap_or(&self.document["security"]);
        let names = own.as_array().into_iter().flatten().filter_map(Value::as_object).flat_map(Map::keys);
        names.map(|name| &self.document["components"]["securitySchemes"][name]).collect()
    }
}

/// The target of a reference, or the value itself.
fn target<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let reference = value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    reference.and_then(|pointer| document.pointer(pointer)).map_or(value, |found| target(document, found))
}

/// One line for each operation whose key is not the one that the program demands: a bearer token.
fn key_differences(document: &Value, recording: &ServedAnswers) -> Vec<String> {
    let mut lines = Vec::new();
    for operation in operations(document) {
        let demands_key = recording.statuses_without_key.get(&operation.route) == Some(&401);
        let schemes = operation.schemes();
        if demands_key == schemes.is_empty() {
            lines.push(format!("{}: a key is demanded by one side only", operation.id()));
        }
        let is_bearer = |scheme: &&&Value| scheme["type"] == "http" && scheme["scheme"] == "bearer";
        if !schemes.iter().all(|scheme| is_bearer(&scheme)) {
            lines.push(format!("{}: the key is a bearer token", operation.id()));
        }
    }
    lines
}

/// One line for each content type that only the document or only the program has.
fn content_type_differences(document: &Value, recording: &ServedAnswers) -> Vec<String> {
    let mut lines = Vec::new();
    for operation in operations(document) {
        let keys = |holder: &Value| {
            let content = holder["content"].as_object().into_iter().flat_map(Map::keys);
            content.cloned().collect::<BTreeSet<String>>()
        };
        let mut compare = |side: &str, declared: BTreeSet<String>, found: BTreeSet<String>| {
            let differ = declared.symmetric_difference(&found);
            lines.extend(differ.map(|name| format!("{}: {side} of {name} on one side only", operation.id())));
        };
        if let Some(read) = recording.request_types.get(operation.id()) {
            let read = read.iter().map(|name| (*name).to_owned()).collect();
            compare("request", keys(&operation.value["requestBody"]), read);
        }
        let written: BTreeSet<String> =
            operation.answers(recording).map(|answer| answer.content_type().to_owned()).collect();
        if !written.is_empty() {
            compare("answer", keys(operation.declared_answer()), written);
        }
    }
    lines
}

/// One line for each header of a recorded answer that the document does not declare or whose value it forbids, and for
/// each required header that an answer lacks.
fn header_differences(document: &Value, recording: &ServedAnswers) -> Vec<String> {
    let mut lines = BTreeSet::new();
    for operation in operations(document) {
        let declared = operation.declared_answer()["headers"].as_object().into_iter().flatten();
        let declared: DeclaredHeaders<'_> =
            declared.map(|(name, header)| (name.as_str(), target(document, header))).collect();
        let faults = operation.answers(recording).flat_map(|answer| header_faults(document, &declared, answer));
        lines.extend(faults.map(|fault| format!("{}: header {fault}", operation.id())));
        if declared.get(ALWAYS).is_none_or(|header| header["required"] != true) {
            lines.insert(format!("{}: header {ALWAYS} is always sent, so it is required", operation.id()));
        }
    }
    lines.into_iter().collect()
}

/// The faults of the headers of one answer.
fn header_faults(document: &Value, declared: &DeclaredHeaders<'_>, answer: &RecordedAnswer) -> Vec<String> {
    let sent = answer.headers.iter().filter(|(name, _)| !TRANSPORT.contains(&name.as_str()));
    let fault = |(name, value): &(String, String)| match declared.get(name.as_str()) {
        None => Some(format!("{name} only in the code")),
        Some(header) if allows_text(document, &header["schema"], value) => None,
        Some(_) => Some(format!("{name} cannot be '{value}'")),
    };
    let mut faults: Vec<String> = sent.filter_map(fault).collect();
    let is_due = |name: &str, header: &Value| header["required"] == true || name == ALWAYS;
    let absent = declared.iter().filter(|(name, header)| is_due(name, header) && answer.header(name).is_none());
    faults.extend(absent.map(|(name, _)| format!("{name} is not always sent")));
    faults
}

/// Returns whether the schema of a header allows this text.
fn allows_text(document: &Value, schema: &Value, text: &str) -> bool {
    let value = match target(document, schema)["type"].as_str() {
        Some("integer" | "number" | "boolean") => serde_json::from_str(text).unwrap_or_default(),
        _ => json!(text),
    };
    validator_of(document, schema).is_valid(&value)
}

/// One line for each member of a recorded answer that the document does not declare.
fn member_differences(document: &Value, recording: &ServedAnswers) -> Vec<String> {
    let mut lines = BTreeSet::new();
    for operation in operations(document).filter(|operation| !PASSED_ON.contains(&operation.id())) {
        for answer in operation.answers(recording) {
            let schema = &operation.declared_answer()["content"][answer.content_type()]["schema"];
            for value in answer.values() {
                add_undeclared(document, &[schema], &value, operation.id(), &mut lines);
            }
        }
    }
    lines.into_iter().collect()
}

/// Adds a line for each member that none of the schemas declares.
fn add_undeclared(document: &Value, schemas: &[&Value], value: &Value, place: &str, lines: &mut BTreeSet<String>) {
    let shapes: Vec<&Value> = schemas.iter().flat_map(|schema| shapes(document, schema, value)).collect();
    let children = |name: &str| shapes.iter().filter_map(|shape| shape.get(name)).collect::<Vec<_>>();
    if let Some(items) = value.as_array() {
        items.iter().for_each(|item| add_undeclared(document, &children("items"), item, place, lines));
    }
    let properties = children("properties");
    let others: Vec<&Value> = children("additionalProperties")
        .into_iter()
        .filter(|schema| **schema != json!({}) && schema.is_object())
        .collect();
    for (name, member) in value.as_object().into_iter().flatten() {
        let place = format!("{place} › {name}");
        let mut declared: Vec<&Value> = properties.iter().filter_map(|members| members.get(name)).collect();
        if declared.is_empty() {
            declared.clone_from(&others);
        }
        // An object without any declared member is free.
        if declared.is_empty() && !properties.is_empty() {
            lines.insert(format!("{place}: only in the code"));
        }
        add_undeclared(document, &declared, member, &place, lines);
    }
}

/// The parts of a schema that can describe this value: the target of a reference, and those of its alternatives.
fn shapes<'a>(document: &'a Value, schema: &'a Value, value: &Value) -> Vec<&'a Value> {
    let schema = target(document, schema);
    let discriminator = &schema["discriminator"];
    let kind = discriminator["propertyName"].as_str().and_then(|name| value[name].as_str());
    let chosen = kind.and_then(|kind| discriminator["mapping"][kind].as_str()?.strip_prefix('#'));
    if let Some(chosen) = chosen.and_then(|pointer| document.pointer(pointer)) {
        return shapes(document, chosen, value);
    }
    let parts = ["allOf", "anyOf", "oneOf"].iter().filter_map(|name| schema[*name].as_array()).flatten();
    std::iter::once(schema).chain(parts.flat_map(|part| shapes(document, part, value))).collect()
}

/// One line for each event type whose component is that of another type.
fn discriminator_differences(document: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        let discriminator = &schema["discriminator"];
        let member = discriminator["propertyName"].as_str().unwrap_or_default();
        for (word, reference) in discriminator["mapping"].as_object().into_iter().flatten() {
            let component = target(document, &json!({ "$ref": reference })).clone();
            let words = &target(document, &component["properties"][member])["enum"];
            if *words != json!([word]) {
                lines.push(format!("{name}: {reference} has the type {words}, not '{word}'"));
            }
        }
    }
    lines
}

fn for_both(check: impl Fn(&Value, &ServedAnswers) -> Vec<String>) -> Vec<String> {
    [document(), admin_document()].iter().flat_map(|document| check(document, &SERVED_ANSWERS)).collect()
}

#[test]
fn each_operation_demands_the_key_that_its_document_states() {
    assert_no_difference(&for_both(key_differences));
}

#[test]
fn each_operation_reads_and_writes_the_content_types_of_its_document() {
    assert_no_difference(&for_both(content_type_differences));
}

#[test]
fn each_answer_has_the_headers_of_its_document() {
    assert_no_difference(&for_both(header_differences));
}

#[test]
fn each_member_of_an_answer_is_in_its_document() {
    assert_no_difference(&for_both(member_differences));
}

#[test]
fn each_event_type_has_its_component() {
    assert_no_difference(&discriminator_differences(&document()));
}

#[test]
fn the_schema_of_the_settings_is_that_of_the_program() {
    let written = json("schemas/config.schema.json");
    assert_no_difference(&crate::difference::differences(&written, &SERVED_ANSWERS.settings_schema));
}

#[test]
fn another_key_or_none_is_reported() {
    let mut changed = document();
    changed["components"]["securitySchemes"]["bearer"] = json!({ "type": "apiKey", "in": "header", "name": "x-key" });
    changed["paths"]["/v1/models"]["get"]["security"] = json!([]);
    let found = key_differences(&changed, &SERVED_ANSWERS);
    assert_mentions(&found, "create_image: the key is a bearer token");
    assert_mentions(&found, "list_models: a key is demanded by one side only");
}

#[test]
fn another_content_type_is_reported() {
    let mut changed = document();
    let post = &mut changed["paths"]["/v1/images/generations"]["post"];
    post["responses"]["200"]["content"].as_object_mut().unwrap().remove("text/event-stream");
    changed["paths"]["/v1/images/edits"]["post"]["requestBody"]["content"]
        .as_object_mut()
        .unwrap()
        .remove("application/json");
    let found = content_type_differences(&changed, &SERVED_ANSWERS);
    assert_mentions(&found, "create_image: answer of text/event-stream on one side only");
    assert_mentions(&found, "edit_image: request of application/json on one side only");
}

#[test]
fn another_header_is_reported() {
    let mut changed = document();
    changed["components"]["headers"]["Simulated"]["schema"] = json!({ "type": "integer" });
    changed["components"]["headers"]["RequestId"].as_object_mut().unwrap().remove("required");
    changed["components"]["headers"]["Replayed"]["required"] = json!(true);
    let found = header_differences(&changed, &SERVED_ANSWERS);
    assert_mentions(&found, "create_image: header x-imagate-simulated cannot be 'true'");
    assert_mentions(&found, "list_models: header x-request-id is always sent, so it is required");
    assert_mentions(&found, "create_image: header x-imagate-replayed is not always sent");
}

#[test]
fn a_member_that_only_the_code_has_is_reported() {
    let mut changed = document();
    changed["components"]["schemas"]["Model"]["properties"].as_object_mut().unwrap().remove("owned_by");
    changed["components"]["schemas"]["ImageGenerationCompletedEvent"]["properties"]
        .as_object_mut()
        .unwrap()
        .remove("usage");
    let found = member_differences(&changed, &SERVED_ANSWERS);
    assert_mentions(&found, "list_models › data › owned_by: only in the code");
    assert_mentions(&found, "create_image › usage: only in the code");
}

#[test]
fn an_event_type_with_another_component_is_reported() {
    let mut changed = document();
    let mapping = &mut changed["components"]["schemas"]["ImageGenerationEvent"]["discriminator"]["mapping"];
    mapping["image_generation.completed"] = json!("#/components/schemas/ImageGenerationPartialImageEvent");
    assert_mentions(&discriminator_differences(&changed), "not 'image_generation.completed'");
}
