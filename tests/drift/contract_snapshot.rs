//! Each entry of the provider's contract has a line that says what the gateway does with it, and the lines are true.
//!
//! `openapi/contract/README.md` describes the snapshot of the contract and the lines.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::{assert_mentions, assert_no_difference, document, root};

const SNAPSHOT: &str = "openapi/contract/snapshot.json";
const DECISIONS: &str = "openapi/contract/decisions.json";
/// The member of the decisions that lists what the provider does not have.
const OURS: &str = "ours";

/// The component of the members of a section. If a section has several, lines are held against the first.
const COMPONENTS: [(&str, &str); 16] = [
    ("images/generate", "ImageGenerationRequest"),
    ("images/edit", "ImageEditForm"),
    ("images/edit", "ImageEditRequest"),
    ("images/reference", "ImageReference"),
    ("images/answer", "ImagesResponse"),
    ("images/image_generation.completed", "ImageGenerationCompletedEvent"),
    ("images/image_generation.partial_image", "ImageGenerationPartialImageEvent"),
    ("images/image_edit.completed", "ImageEditCompletedEvent"),
    ("images/image_edit.partial_image", "ImageEditPartialImageEvent"),
    ("responses/create", "ResponseRequest"),
    ("responses/image_tool", "ImageGenerationTool"),
    ("responses/answer", "AgentResponse"),
    ("responses/image_call", "ImageGenerationCall"),
    ("responses/error", "ResponseError"),
    ("models/model", "Model"),
    ("errors/object", "ErrorDetail"),
];
/// The sections whose words are constant types of components.
const TYPES: [&str; 5] =
    ["images/events", "responses/events", "responses/output_items", "responses/tools", "responses/tool_choices"];
/// The end of the name of a section with error codes.
const CODES: &str = "error_codes";

const CODE_MEANING: &str = "src/gateway/upstream/failure_classification/code_meaning.rs";
const MEMBER_NAME: &str = "src/gateway/rules/response/member_name.rs";
const ITEM_KIND: &str = "src/gateway/rules/response/item_kind.rs";
/// A section, the file with the words that the rules look at, and what stands before and behind such a word there.
const READ: [(&str, &str, (&str, &str)); 4] = [
    ("responses/create", MEMBER_NAME, (" = \"", "\",")),
    ("responses/input_names", MEMBER_NAME, (" = \"", "\",")),
    ("responses/input_items", ITEM_KIND, ("\"", "\"")),
    ("responses/input_types", ITEM_KIND, ("\"", "\"")),
];
const AND_READ: &str = "passed, and read";

/// The lines by section and entry.
type Lines = BTreeMap<(String, String), String>;

fn snapshot() -> Value {
    crate::json(SNAPSHOT)
}

fn decisions() -> Value {
    crate::json(DECISIONS)
}

fn source(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn words(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The sections of the snapshot or of the decisions, by area and name.
fn sections(value: &Value) -> impl Iterator<Item = (String, &Value)> {
    let areas = members(value).filter(|(area, _)| *area != OURS);
    areas.flat_map(|(area, content)| members(content).map(move |(name, section)| (format!("{area}/{name}"), section)))
}

/// The entries of a section: the words of a list; or members, and the words of members.
fn section_entries(section: &Value) -> BTreeSet<String> {
    let mut entries: BTreeSet<String> = words(section).map(str::to_owned).collect();
    for (member, facts) in members(section) {
        entries.insert(member.clone());
        entries.extend(words(&facts["words"]).map(|word| format!("{member}={word}")));
    }
    entries
}

fn lines(decisions: &Value) -> Lines {
    let mut lines = Lines::new();
    for (name, section) in sections(decisions) {
        for (entry, line) in members(section) {
            lines.insert((name.clone(), entry.clone()), line.as_str().unwrap_or_default().to_owned());
        }
    }
    lines
}

/// One difference for each entry without a line, and for each line without an entry.
fn unmatched(snapshot: &Value, decisions: &Value) -> Vec<String> {
    let mut entries = BTreeSet::new();
    for (name, section) in sections(snapshot) {
        entries.extend(section_entries(section).into_iter().map(|entry| (name.clone(), entry)));
    }
    let decided: BTreeSet<(String, String)> = lines(decisions).into_keys().collect();
    let undecided = entries.difference(&decided).map(|(name, entry)| format!("{name} {entry}: no line"));
    let superfluous = decided.difference(&entries).map(|(name, entry)| format!("{name} {entry}: not in the snapshot"));
    undecided.chain(superfluous).collect()
}

/// The problem of the form of a line.
fn problem(line: &str) -> Option<&'static str> {
    let (verdict, note) = line.split_once(", ").unwrap_or((line, ""));
    let has_reason = note.strip_prefix("because ").is_some_and(|reason| !reason.trim().is_empty());
    match verdict {
        "served" | "passed" => None,
        "refused" if has_reason => None,
        "refused" => Some("refused without a reason"),
        _ => Some("neither served, passed nor refused"),
    }
}

fn malformed(decisions: &Value) -> Vec<String> {
    let lines = lines(decisions);
    let found = lines.iter().filter_map(|((name, entry), line)| Some(format!("{name} {entry}: {}", problem(line)?)));
    found.collect()
}

/// The schema behind references, wrappers and lists.
fn target<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let reference = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    let inner = reference
        .and_then(|pointer| document.pointer(pointer))
        .or_else(|| ["allOf", "anyOf"].iter().find_map(|key| schema[*key].get(0)))
        .or_else(|| schema.get("items"));
    inner.map_or(schema, |inner| target(document, inner))
}

/// The schema of a member of a component. In a form, the name of a list ends with brackets.
fn member_schema<'a>(document: &'a Value, component: &str, path: &str) -> Option<&'a Value> {
    let mut schema = &document["components"]["schemas"][component];
    for name in path.split('.') {
        let properties = &target(document, schema)["properties"];
        schema = properties.get(name).or_else(|| properties.get(format!("{name}[]")))?;
    }
    Some(target(document, schema))
}

/// True if the document has an entry of a section. A member without a list of words takes every word.
fn is_documented(document: &Value, name: &str, entry: &str) -> bool {
    if name.ends_with("/operations") {
        let (method, path) = entry.split_once(' ').unwrap_or_default();
        return document["paths"][format!("/v1{path}")].get(method.to_lowercase()).is_some();
    }
    if TYPES.contains(&name) {
        let mut schemas = members(&document["components"]["schemas"]);
        return schemas.any(|(_, schema)| words(&schema["properties"]["type"]["enum"]).any(|word| word == entry));
    }
    let Some((_, component)) = COMPONENTS.iter().find(|(section, _)| *section == name) else { return false };
    let (path, word) = entry.split_once('=').map_or((entry, None), |(path, word)| (path, Some(word)));
    let Some(schema) = member_schema(document, component, path) else { return false };
    word.is_none_or(|word| schema["enum"].is_null() || words(&schema["enum"]).any(|listed| listed == word))
}

/// One difference for each line that says `served` of something that the document does not have.
fn undocumented(document: &Value, decisions: &Value) -> Vec<String> {
    let is_served = |name: &str, line: &str| line.starts_with("served") && !name.ends_with(CODES);
    let mut found = Vec::new();
    for ((name, entry), line) in lines(decisions) {
        if is_served(&name, &line) && !is_documented(document, &name, &entry) {
            found.push(format!("{name} {entry}: served, and not in the document"));
        }
    }
    found
}

/// One difference for each error code that has no class, or another one than its line says.
fn unclassed(decisions: &Value, code_meaning: &str) -> Vec<String> {
    let mut found = Vec::new();
    for ((name, code), line) in lines(decisions) {
        if !name.ends_with(CODES) || line.starts_with("refused, ") {
            continue;
        }
        let class = line.strip_prefix("served, as ").unwrap_or_default();
        if class.is_empty() || !code_meaning.contains(&format!("(\"{code}\", {class}),")) {
            found.push(format!("{name} {code}: no class, or not '{class}'"));
        }
    }
    found
}

/// One difference for each passed entry whose line does not say rightly if the rules look at it.
fn misread(decisions: &Value, read: impl Fn(&str) -> String) -> Vec<String> {
    let lines = lines(decisions);
    let mut found = Vec::new();
    for (section, path, (before, behind)) in READ {
        let text = read(path);
        let is_read = |entry: &str| text.contains(&format!("{before}{entry}{behind}"));
        let passed = lines.iter().filter(|((name, _), line)| name == section && line.starts_with("passed"));
        // Members of members and words are not looked at by themselves.
        let own = passed.filter(|((_, entry), _)| !entry.contains(['.', '=']));
        let wrong = own.filter(|((_, entry), line)| is_read(entry) != (line.as_str() == AND_READ));
        found.extend(wrong.map(|((_, entry), line)| format!("{section} {entry}: '{line}' is not so in {path}")));
    }
    found
}

/// The members of components that the provider does not have, as component and member.
fn own_members(document: &Value, snapshot: &Value) -> BTreeSet<String> {
    let by_name: BTreeMap<String, &Value> = sections(snapshot).collect();
    let mut own = BTreeSet::new();
    for (section, component) in COMPONENTS {
        let entries = by_name.get(section).map(|section| section_entries(section)).unwrap_or_default();
        let documented = members(&document["components"]["schemas"][component]["properties"]);
        let unknown = documented.filter(|(name, _)| !entries.contains(name.trim_end_matches("[]")));
        own.extend(unknown.map(|(name, _)| format!("{component}.{name}")));
    }
    own
}

/// One difference for each such member without a reason, and for each reason without such a member.
fn unexplained(document: &Value, snapshot: &Value, decisions: &Value) -> Vec<String> {
    let own = own_members(document, snapshot);
    let has_reason = |name: &str| decisions[OURS][name].as_str().is_some_and(|reason| !reason.trim().is_empty());
    let unexplained = own.iter().filter(|name| !has_reason(name)).map(|name| format!("{name}: not of the provider"));
    let superfluous = members(&decisions[OURS]).filter(|(name, _)| !own.contains(*name));
    unexplained.chain(superfluous.map(|(name, _)| format!("{name}: a reason for nothing"))).collect()
}

#[test]
fn each_entry_of_the_contract_has_a_line() {
    assert_no_difference(&unmatched(&snapshot(), &decisions()));
    assert_no_difference(&malformed(&decisions()));
}

#[test]
fn what_is_served_is_in_the_document() {
    assert_no_difference(&undocumented(&document(), &decisions()));
}

#[test]
fn each_error_code_of_the_contract_has_its_class() {
    assert_no_difference(&unclassed(&decisions(), &source(CODE_MEANING)));
}

#[test]
fn the_lines_say_which_names_and_types_are_read() {
    assert_no_difference(&misread(&decisions(), source));
}

#[test]
fn what_the_provider_does_not_have_has_a_reason() {
    assert_no_difference(&unexplained(&document(), &snapshot(), &decisions()));
}

#[test]
fn a_new_entry_and_a_lost_entry_are_reported() {
    let mut changed = snapshot();
    changed["images"]["generate"]["watermark"] = json!({ "type": "text", "words": ["faint"] });
    changed["responses"]["input_items"] = json!(["later_call"]);
    let found = unmatched(&changed, &decisions());
    assert_mentions(&found, "images/generate watermark: no line");
    assert_mentions(&found, "images/generate watermark=faint: no line");
    assert_mentions(&found, "responses/input_items later_call: no line");
    assert_mentions(&found, "responses/input_items message: not in the snapshot");
}

#[test]
fn a_line_without_a_verdict_or_a_reason_is_reported() {
    let mut changed = decisions();
    for (entry, line) in [("style", "refused"), ("user", "refused, because "), ("n", "maybe")] {
        changed["images"]["generate"][entry] = json!(line);
    }
    let found = malformed(&changed);
    assert_mentions(&found, "images/generate style: refused without a reason");
    assert_mentions(&found, "images/generate user: refused without a reason");
    assert_mentions(&found, "images/generate n: neither served");
}

#[test]
fn a_line_that_promises_too_much_is_reported() {
    let mut changed = decisions();
    for entry in ["style", "quality=hd", "svg.model"] {
        changed["images"]["generate"][entry] = json!("served");
    }
    changed["images"]["operations"]["POST /images/variations"] = json!("served");
    changed["responses"]["events"]["response.queued"] = json!("served");
    let found = undocumented(&document(), &changed);
    assert_eq!(found.len(), 5, "{found:?}");
    assert_mentions(&found, "images/generate quality=hd: served");
    assert_mentions(&found, "images/operations POST /images/variations: served");
    assert_mentions(&found, "responses/events response.queued: served");
}

#[test]
fn a_code_without_its_class_is_reported() {
    let mut changed = decisions();
    changed["responses"]["error_codes"]["later_policy"] = json!("served");
    changed["responses"]["error_codes"]["bio_policy"] = json!("served, as Failure");
    let found = unclassed(&changed, &source(CODE_MEANING));
    assert_mentions(&found, "responses/error_codes later_policy: no class");
    assert_mentions(&found, "responses/error_codes bio_policy: no class, or not 'Failure'");
}

#[test]
fn a_name_that_is_no_longer_read_is_reported() {
    let unread = |path: &str| source(path).replace("\"skill_id\"", "\"skill\"").replace("\"compaction\"", "\"c\"");
    let found = misread(&decisions(), unread);
    assert_mentions(&found, "responses/input_names skill_id: 'passed, and read' is not so");
    assert_mentions(&found, "responses/input_items compaction: 'passed, and read' is not so");
    let mut changed = decisions();
    changed["responses"]["input_names"]["tools"] = json!("passed");
    assert_mentions(&misread(&changed, source), "responses/input_names tools: 'passed' is not so");
}

#[test]
fn a_member_of_our_own_without_a_reason_is_reported() {
    let mut changed = document();
    changed["components"]["schemas"]["ImageEditForm"]["properties"]["watermark"] = json!({ "type": "string" });
    let properties = changed["components"]["schemas"]["Model"]["properties"].as_object_mut();
    properties.expect("members").remove("capabilities");
    let found = unexplained(&changed, &snapshot(), &decisions());
    assert_mentions(&found, "ImageEditForm.watermark: not of the provider");
    assert_mentions(&found, "Model.capabilities: a reason for nothing");
}
