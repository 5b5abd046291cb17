//! What the documents say of themselves: examples, the roles of operations, the units of members, the origin of limits,
//! the address of the service, and the shape of manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use jsonschema::Validator;
use regex::Regex;
use serde_json::{Map, Value, json};

use crate::facts::source_number;
use crate::schema::validator;
use crate::specified::specified;
use crate::{admin_document, assert_mentions, assert_no_difference, document, json, root};

/// The limits of the specification, and the words that state them.
const SPECIFIED_LIMITS: [(&str, &str); 2] = [
    ("client_timeout_seconds", "| client timeout, normal images | 120 s |"),
    ("client_timeout_large_seconds", "| client timeout, 4K (`3840x2160`) | 300 s "),
];
/// The end of a name with a unit, and words of other units.
const UNITS: [(&str, &str); 5] = [
    ("_ms", r"\b(seconds|minutes|hours|days)\b"),
    ("_seconds", r"\b(milliseconds|minutes|hours)\b"),
    ("_bytes", r"\b(KiB|MiB|MB|kilobytes|megabytes)\b"),
    ("_megabytes", r"\b(kilobytes|gigabytes|KiB|GiB)\b"),
    ("_usd", r"\b(cents?|euros?)\b"),
];
/// The words of an operation that only admins may use.
const FOR_ADMINS: &str = "For admins";

/// Calls the function with each object of a document and its place.
fn visit(place: &str, value: &Value, visitor: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(members) => {
            visitor(place, value);
            members.iter().for_each(|(name, member)| visit(&format!("{place}/{name}"), member, visitor));
        }
        Value::Array(items) => items.iter().for_each(|item| visit(place, item, visitor)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The validator of a schema that is no component.
pub(crate) fn validator_of(document: &Value, schema: &Value) -> Validator {
    // A validator with all components takes long to make.
    let needs_components = schema.to_string().contains("\"$ref\"");
    let mut document = if needs_components { document.clone() } else { json!({}) };
    document["components"]["schemas"]["Holder"] = schema.clone();
    validator(&document, "Holder")
}

/// One line for each example that its own schema forbids.
fn example_differences(document: &Value) -> Vec<String> {
    let mut examples = Vec::new();
    visit("", document, &mut |place, holder| {
        // A member may have the name `example`; then its value is a schema.
        if let Some(example) = holder.get("example").filter(|_| !place.ends_with("/properties")) {
            examples.push((place.to_owned(), holder.get("schema").unwrap_or(holder).clone(), example.clone()));
        }
    });
    let mut lines = Vec::new();
    for (place, schema, example) in examples {
        let validator = validator_of(document, &schema);
        let error = validator.iter_errors(&example).next();
        lines.extend(error.map(|error| format!("{place}: the example breaks its schema: {error}")));
    }
    lines
}

/// One line for each operation whose description has other roles than the table of roles.
fn role_differences(document: &Value, table: &Value) -> Vec<String> {
    let mut statuses = BTreeMap::<&str, BTreeSet<u64>>::new();
    for row in table.as_array().into_iter().flatten() {
        // One status for all targets, or one for each.
        let member = &row["member"];
        let of_member = member.as_object().into_iter().flat_map(Map::values).chain([member]).filter_map(Value::as_u64);
        statuses.entry(row["operation"].as_str().unwrap_or_default()).or_default().extend(of_member);
    }
    let mut lines = Vec::new();
    visit("", document, &mut |_, operation| {
        let Some(id) = operation["operationId"].as_str() else { return };
        let is_for_admins = statuses.get(id).is_some_and(|statuses| statuses.iter().all(|status| *status == 403));
        if operation["description"].as_str().unwrap_or_default().contains(FOR_ADMINS) != is_for_admins {
            lines.push(format!("{id}: '{FOR_ADMINS}' on one side only"));
        }
    });
    lines
}

/// One line for each member whose description has another unit than its name.
fn unit_differences(document: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    visit("", document, &mut |place, schema| {
        for (end, others) in UNITS.iter().filter(|(end, _)| place.ends_with(end)) {
            let others = Regex::new(others).expect("a pattern");
            let description = schema["description"].as_str().unwrap_or_default();
            lines.extend(others.find(description).map(|word| format!("{place}: {end}, but {}", word.as_str())));
        }
    });
    lines
}

/// One line for each limit whose source is not the one of the specification, or falsely is.
fn source_differences(document: &Value, specified: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for row in document["x-imagate-limits"].as_array().into_iter().flatten() {
        let name = row["name"].as_str().unwrap_or_default();
        let words = SPECIFIED_LIMITS.iter().find(|(limit, _)| *limit == name).map(|(_, words)| words);
        let is_specified = words.is_some_and(|words| specified.contains(words));
        if is_specified != (row["source"] == "specification") {
            lines.push(format!("{name}: the source is {}", row["source"]));
        }
    }
    lines
}

/// One line for an address that is not the one on which the program listens by default.
fn address_differences(document: &Value) -> Vec<String> {
    let port = source_number("src/gateway/config/resolve.rs", "DEFAULT_PORT: u16 = ");
    let expected = format!("http://127.0.0.1:{port}");
    let servers = document["servers"].as_array().cloned().unwrap_or_default();
    let wrong = servers.iter().filter(|server| server["url"] != json!(expected));
    wrong.map(|server| format!("servers: {} is not {expected}", server["url"])).collect()
}

/// One line for each model whose row forbids a compression that a good request of the table of cases has.
fn compression_differences(document: &Value, cases: &Value) -> Vec<String> {
    let is_good = |case: &&Value| case["verdict"] == "accepted" && case["with"]["output_compression"].is_u64();
    let is_accepted = cases.as_array().into_iter().flatten().any(|case| is_good(&case));
    let rows = document["x-imagate-models"].as_array().into_iter().flatten();
    let wrong = rows.filter(|row| row["snapshot_of"].is_null() && row["compression"] != json!(is_accepted));
    wrong.map(|row| format!("{}: compression {}", row["id"], row["compression"])).collect()
}

/// One line for each manifest of the corpus that the schema judges in another way than the program.
fn manifest_differences(schema: &Value) -> Vec<String> {
    let schema = jsonschema::draft202012::new(schema).expect("a schema");
    let reports = fs::read_to_string(root().join("tests/skills/golden/json.txt")).expect("the reports");
    let mut lines = Vec::new();
    for report in reports.split("=== ").skip(1) {
        let (name, findings) = report.split_once('\n').unwrap_or_default();
        let bytes = fs::read(root().join(format!("tests/skills/corpus/{name}.json"))).expect("the manifest");
        let Ok(manifest) = serde_json::from_slice::<Value>(&bytes) else { continue };
        if schema.is_valid(&manifest) == findings.contains("\"M004\"") {
            lines.push(format!("{name}: the schema judges it in another way than the program"));
        }
    }
    lines
}

fn manifest_schema() -> Value {
    json("schemas/skills-registry.schema.json")
}

fn table(path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(root().join(path)).expect("the table")).expect("JSON")
}

fn for_both(check: fn(&Value) -> Vec<String>) -> Vec<String> {
    [document(), admin_document()].iter().flat_map(check).collect()
}

#[test]
fn each_example_obeys_its_schema() {
    assert_no_difference(&for_both(example_differences));
}

#[test]
fn each_operation_names_the_role_that_it_demands() {
    assert_no_difference(&role_differences(&admin_document(), &table("tests/cases/admin.json")));
}

#[test]
fn each_description_has_the_unit_of_its_member() {
    assert_no_difference(&for_both(unit_differences));
    assert_no_difference(&unit_differences(&json("schemas/config.schema.json")));
}

#[test]
fn each_limit_of_the_specification_is_in_its_text() {
    assert_no_difference(&source_differences(&document(), &specified()));
}

#[test]
fn the_address_is_the_default_one() {
    assert_no_difference(&for_both(address_differences));
}

#[test]
fn each_model_allows_the_compression_that_its_cases_have() {
    assert_no_difference(&compression_differences(&document(), &table("tests/cases/images.json")));
}

#[test]
fn the_schema_and_the_program_judge_each_manifest_alike() {
    assert_no_difference(&manifest_differences(&manifest_schema()));
}

#[test]
fn a_changed_example_role_or_unit_is_reported() {
    let mut changed = document();
    changed["components"]["schemas"]["ImageGenerationRequest"]["example"]["n"] = json!(11);
    assert_mentions(&example_differences(&changed), "/components/schemas/ImageGenerationRequest: the example breaks");

    let mut changed = admin_document();
    changed["paths"]["/admin/v1/accounts"]["get"]["description"] = "For everybody.".into();
    let latency = &mut changed["components"]["schemas"]["Record"]["properties"]["latency_ms"]["description"];
    *latency = "From its beginning to its end, in seconds.".into();
    let table = table("tests/cases/admin.json");
    assert_mentions(&role_differences(&changed, &table), "list_accounts: 'For admins' on one side only");
    assert_mentions(&unit_differences(&changed), "Record/properties/latency_ms: _ms, but seconds");
}

#[test]
fn a_changed_source_address_or_model_is_reported() {
    let mut changed = document();
    changed["x-imagate-limits"][0]["source"] = "specification".into();
    changed["servers"][0]["url"] = "https://images.example.com".into();
    changed["x-imagate-models"][0]["compression"] = false.into();
    assert_mentions(&source_differences(&changed, &specified()), "max_json_body_bytes: the source is");
    assert_mentions(&address_differences(&changed), "https://images.example.com");
    assert_mentions(&compression_differences(&changed, &table("tests/cases/images.json")), "gpt-image-2");
}

#[test]
fn a_changed_shape_of_manifests_is_reported() {
    let mut changed = manifest_schema();
    changed["$defs"]["Skill"]["properties"]["size_bytes"]["type"] = "integer".into();
    changed["additionalProperties"] = false.into();
    assert!(manifest_differences(&changed).len() >= 5, "{:?}", manifest_differences(&changed));
}
