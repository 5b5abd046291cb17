//! Checks that `generated/` is up to date with the documents, and writes the constant tables that code and docs share.
//!
//! `cargo xtask generate` writes the code that a reviewer wants to read; this script writes only `tables.rs`, into
//! `OUT_DIR`. It needs no network.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use serde_json::{Map, Value};

const OPENAPI: &str = "openapi/gateway.json";
const ADMIN_OPENAPI: &str = "openapi/admin.json";
const FINGERPRINT: &str = "generated/FINGERPRINT";

/// The components whose fields become a table: name of the table, component.
const FIELD_TABLES: [(&str, &str); 4] = [
    ("IMAGE_GENERATION_FIELDS", "ImageGenerationRequest"),
    ("IMAGE_EDIT_FIELDS", "ImageEditRequest"),
    ("IMAGE_TOOL_FIELDS", "ImageGenerationTool"),
    ("RESPONSE_FIELDS", "ResponseRequest"),
];
/// The header parameters of requests: name of the constant, name of the parameter.
const HEADERS: [(&str, &str); 9] = [
    ("AGENT_TURN_HEADER", "AgentTurn"),
    ("CONVERSATION_ID_HEADER", "ConversationId"),
    ("IDEMPOTENCY_KEY_HEADER", "IdempotencyKey"),
    ("IMAGE_FALLBACK_HEADER", "ImageFallback"),
    ("ORIGINATOR_HEADER", "Originator"),
    ("PREFER_HEADER", "Prefer"),
    ("RETRY_COUNT_HEADER", "RetryCount"),
    ("SESSION_ID_HEADER", "SessionId"),
    ("THREAD_ID_HEADER", "ThreadId"),
];
/// Bounds of the operators' document that code outside of the field tables needs: name, place.
const ADMIN_BOUNDS: [(&str, &str); 5] = [
    ("PATTERNS_MAX", "/components/schemas/GroupFilter/properties/patterns/maxItems"),
    ("PRICE_FACTOR_MAX", "/components/schemas/PriceFactors/additionalProperties/maximum"),
    ("PRICE_TERMS_MAX", "/components/schemas/PriceFactors/maxProperties"),
    ("PRICE_MAX_USD", "/components/schemas/NewPrice/properties/text_input/maximum"),
    ("MODEL_TOKENS_MAX", "/components/schemas/ModelTokens/maximum"),
];
/// The components of the operators' document whose fields become a table: name of the table, component.
const ADMIN_FIELD_TABLES: [(&str, &str); 12] = [
    ("NEW_ACCOUNT_FIELDS", "NewAccount"),
    ("ACCOUNT_CHANGE_FIELDS", "AccountChange"),
    ("ACCOUNT_SETTINGS_FIELDS", "AccountSettings"),
    ("GROUP_UPDATE_FIELDS", "GroupUpdate"),
    ("NEW_GROUP_FIELDS", "NewGroup"),
    ("NEW_KEY_FIELDS", "NewKey"),
    ("NEW_PRICE_FIELDS", "NewPrice"),
    ("KEY_ROTATION_FIELDS", "KeyRotation"),
    ("KEY_UPDATE_FIELDS", "KeyUpdate"),
    ("NEW_TOKEN_FIELDS", "NewToken"),
    ("NEW_USER_FIELDS", "NewUser"),
    ("USER_UPDATE_FIELDS", "UserUpdate"),
];
/// The components whose members the configuration checks, because it has the same fields.
const CHECKED_ELSEWHERE: [&str; 2] = ["RequestLimits", "AccountSettings"];
/// The members of `x-imagate-size`. Each is a number of pixels or a ratio of edges.
const SIZE_CONSTANTS: [&str; 6] =
    ["max_edge_px", "grid_px", "max_ratio", "min_pixels", "max_pixels", "large_above_pixels"];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cargo::error={error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let root = environment_variable("CARGO_MANIFEST_DIR")?;
    let root = Path::new(&root);
    println!("cargo::rerun-if-changed=build.rs");
    // A published package has no `xtask`: its documents do not change, and it has no generator to run.
    if root.join("xtask").is_dir() {
        check_fingerprints(root)?;
    }
    let text = tables(&document(root, OPENAPI)?)? + &admin_tables(&document(root, ADMIN_OPENAPI)?)?;
    fs::write(Path::new(&environment_variable("OUT_DIR")?).join("tables.rs"), text)
        .map_err(|error| format!("tables.rs: {error}"))
}

fn document(root: &Path, path: &str) -> Result<Value, String> {
    println!("cargo::rerun-if-changed={path}");
    serde_json::from_str(&read(root, path)?).map_err(|error| format!("{path}: {error}"))
}

#[expect(clippy::disallowed_methods, reason = "cargo passes paths to a build script in the environment")]
fn environment_variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
}

// === fingerprints ===

/// Fails if a document or a generated file has changed since the last `cargo xtask generate`.
fn check_fingerprints(root: &Path) -> Result<(), String> {
    println!("cargo::rerun-if-changed={FINGERPRINT}");
    let fingerprint = read(root, FINGERPRINT)?;
    for line in fingerprint.lines().filter(|line| !line.starts_with('#')) {
        let (path, _) = line.split_once(' ').ok_or_else(|| format!("{FINGERPRINT}: run `cargo xtask generate`"))?;
        println!("cargo::rerun-if-changed={path}");
        if fingerprint_line(path, &read(root, path)?).trim_end() != line {
            return Err(format!("{path} has changed since the last generation: run `cargo xtask generate`"));
        }
    }
    Ok(())
}

/// One line of `generated/FINGERPRINT`; `xtask` calls this function to write the file.
pub(crate) fn fingerprint_line(path: &str, text: &str) -> String {
    // FNV-1a, because the hasher of std may change between releases. Carriage returns are left out, because a checkout
    // may change the line endings.
    let bytes = text.bytes().filter(|byte| *byte != b'\r');
    let digest =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{path} {digest:016x}\n")
}

// === the tables ===

/// The tables of the public document, as text for `tables.rs`. `src/tables.rs` declares the types of the rows.
pub(crate) fn tables(document: &Value) -> Result<String, String> {
    let mut out = String::new();
    sizes(document, &mut out)?;
    limits(document, "", &mut out)?;
    headers(document, &mut out)?;
    operations(document, "OPERATIONS", &mut out)?;
    errors(document, "ERRORS", &mut out)?;
    models(document, &mut out)?;
    for (table, component) in FIELD_TABLES {
        fields(document, table, component, &mut out)?;
    }
    Ok(out)
}

/// The tables of the operators' document, as text for the same file.
pub(crate) fn admin_tables(document: &Value) -> Result<String, String> {
    let mut out = String::new();
    operations(document, "ADMIN_OPERATIONS", &mut out)?;
    errors(document, "ADMIN_ERRORS", &mut out)?;
    limits(document, "ADMIN_", &mut out)?;
    for (table, component) in ADMIN_FIELD_TABLES {
        fields(document, table, component, &mut out)?;
    }
    parameters(document, &mut out)?;
    for (name, place) in ADMIN_BOUNDS {
        let bound = document.pointer(place).and_then(Value::as_u64).ok_or(format!("{place}: expected a number"))?;
        constant(&mut out, &format!("`{place}` of the operators' document."), name, "u32", &bound.to_string());
    }
    Ok(out)
}

fn sizes(document: &Value, out: &mut String) -> Result<(), String> {
    let rules = &document["components"]["schemas"]["ImageSize"]["x-imagate-size"];
    for name in SIZE_CONSTANTS {
        let value =
            rules[name].as_u64().ok_or_else(|| format!("ImageSize x-imagate-size {name}: expected a number"))?;
        let doc = format!("`x-imagate-size.{name}` of the document.");
        constant(out, &doc, &name.to_uppercase(), "u32", &value.to_string());
    }
    Ok(())
}

/// Writes a constant for each limit, and a table of all. The names of both begin with the prefix.
fn limits(document: &Value, prefix: &str, out: &mut String) -> Result<(), String> {
    let mut rows = String::new();
    for row in list(document, "x-imagate-limits")? {
        let name = text(row, "name")?;
        let value = row["value"].as_u64().ok_or_else(|| format!("limit {name}: expected a whole number"))?;
        let (unit, applies_to, source) = (text(row, "unit")?, text(row, "applies_to")?, text(row, "source")?);
        let doc = format!("{applies_to}, in {unit}.");
        constant(out, &doc, &(prefix.to_owned() + &name.to_uppercase()), "u64", &value.to_string());
        push_row(
            &mut rows,
            "Limit",
            &[
                ("name", quoted(name)),
                ("value", value.to_string()),
                ("unit", quoted(unit)),
                ("applies_to", quoted(applies_to)),
                ("source", quoted(source)),
            ],
        );
    }
    table(out, "Every limit of the document.", &format!("{prefix}LIMITS"), "Limit", &rows);
    Ok(())
}

/// Writes the names of the header parameters, in lower case.
fn headers(document: &Value, out: &mut String) -> Result<(), String> {
    let parameters = object(&document["components"]["parameters"], "components.parameters")?;
    if let Some(name) = parameters.keys().find(|name| HEADERS.iter().all(|(_, parameter)| parameter != name)) {
        return Err(format!("components.parameters: build.rs has no constant for '{name}'"));
    }
    for (constant_name, parameter) in HEADERS {
        let name = text(&parameters.get(parameter).cloned().unwrap_or_default(), "name")?.to_lowercase();
        constant(out, &format!("The request header `{name}`."), constant_name, "&str", &quoted(&name));
    }
    Ok(())
}

fn operations(document: &Value, name: &str, out: &mut String) -> Result<(), String> {
    let mut rows = String::new();
    for (path, item) in object(&document["paths"], "paths")? {
        for (method, operation) in object(item, path)?.iter().filter(|(_, value)| value.get("operationId").is_some()) {
            let mut parameters = operation["parameters"].as_array().into_iter().flatten();
            let has_query = parameters.any(|parameter| parameter["in"] == "query").to_string();
            let streams = operation["responses"]["200"]["content"].get("text/event-stream").is_some();
            let method = quoted(&method.to_uppercase());
            let id = quoted(text(operation, "operationId")?);
            let streams = streams.to_string();
            let columns =
                [("id", id), ("method", method), ("path", quoted(path)), ("queries", has_query), ("streams", streams)];
            push_row(&mut rows, "Operation", &columns);
        }
    }
    table(out, "Every operation of the document.", name, "Operation", &rows);
    Ok(())
}

fn errors(document: &Value, name: &str, out: &mut String) -> Result<(), String> {
    let mut rows = String::new();
    for row in list(document, "x-imagate-errors")? {
        let mut reasons = String::new();
        for reason in row["reasons"].as_array().into_iter().flatten() {
            let (name, cause) = (quoted(text(reason, "reason")?), quoted(text(reason, "cause")?));
            push_row(&mut reasons, "ReasonRow", &[("reason", name), ("should_retry", retry(reason)), ("cause", cause)]);
        }
        let status = row["status"].as_u64().ok_or("x-imagate-errors: an error has no status")?;
        let columns = [
            ("code", quoted(text(row, "code")?)),
            ("kind", quoted(text(row, "type")?)),
            ("status", status.to_string()),
            ("message", quoted(text(row, "message")?)),
            ("should_retry", retry(row)),
            ("cause", quoted(text(row, "cause")?)),
            ("action", quoted(text(row, "action")?)),
            ("reasons", format!("&[{reasons}]")),
        ];
        push_row(&mut rows, "ErrorRow", &columns);
    }
    table(out, "Every error of the document.", name, "ErrorRow", &rows);
    Ok(())
}

fn retry(row: &Value) -> String {
    format!("{:?}", row["should_retry"].as_bool())
}

/// Writes the table of the image models. A snapshot gets the rules of the model that it names.
fn models(document: &Value, out: &mut String) -> Result<(), String> {
    let models = list(document, "x-imagate-models")?;
    let mut rows = String::new();
    for row in models {
        let id = text(row, "id")?;
        let name = row["snapshot_of"].as_str().unwrap_or(id);
        let rules = models
            .iter()
            .find(|row| row["id"] == name)
            .ok_or_else(|| format!("model {id}: there is no model {name}"))?;
        let count = |field: &str| {
            rules[field].as_u64().ok_or_else(|| format!("model {name}: expected a whole number for {field}"))
        };
        let sizes = match &rules["sizes"] {
            Value::String(word) if word == "rules" => "None".to_owned(),
            _ => format!("Some({})", texts(rules, "sizes")?),
        };
        let compression = rules["compression"]
            .as_bool()
            .ok_or_else(|| format!("model {name}: expected true or false for compression"))?;
        let columns = [
            ("id", quoted(id)),
            ("name", quoted(name)),
            ("sizes", sizes),
            ("qualities", texts(rules, "qualities")?),
            ("formats", texts(rules, "formats")?),
            ("backgrounds", texts(rules, "backgrounds")?),
            ("max_images", count("max_images")?.to_string()),
            ("max_partial_images", count("max_partial_images")?.to_string()),
            ("compression", compression.to_string()),
        ];
        push_row(&mut rows, "ModelRow", &columns);
    }
    table(
        out,
        "Every image model of the document. The first is the model of requests that name none.",
        "IMAGE_MODELS",
        "ModelRow",
        &rows,
    );
    Ok(())
}

fn fields(document: &Value, table_name: &str, component: &str, out: &mut String) -> Result<(), String> {
    let schema = &document["components"]["schemas"][component];
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let mut rows = String::new();
    // Members that stay on disk are checked while they are read.
    let on_disk = schema["x-imagate-on-disk"].as_array().cloned().unwrap_or_default();
    let is_in_memory = |name: &str| on_disk.iter().all(|other| other != name);
    for (name, property) in object(&schema["properties"], component)?.iter().filter(|(name, _)| is_in_memory(name)) {
        let kind = field_kind(document, property).ok_or(format!("{component}.{name}: no kind of field fits"))?;
        let required = required.contains(&Value::from(name.as_str()));
        let nullable = property["nullable"] == true || property["anyOf"][1]["nullable"] == true;
        field(&mut rows, name, required, nullable, kind);
    }
    table(out, &format!("The fields of `{component}`."), table_name, "Field", &rows);
    Ok(())
}

/// Writes a table for each operation that takes query parameters, named after the operation.
fn parameters(document: &Value, out: &mut String) -> Result<(), String> {
    for (path, item) in object(&document["paths"], "paths")? {
        for operation in object(item, path)?.values() {
            let id = text(operation, "operationId")?;
            let mut rows = String::new();
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            for parameter in parameters.filter(|parameter| parameter["in"] == "query") {
                let name = text(parameter, "name")?;
                let kind = field_kind(document, &parameter["schema"])
                    .ok_or_else(|| format!("{id}: no kind of field fits the parameter {name}"))?;
                field(&mut rows, name, parameter["required"] == true, false, kind);
            }
            if !rows.is_empty() {
                let name = format!("{}_PARAMETERS", id.to_uppercase());
                table(out, &format!("The query parameters of `{id}`."), &name, "Field", &rows);
            }
        }
    }
    Ok(())
}

fn field(rows: &mut String, name: &str, required: bool, nullable: bool, kind: String) {
    let columns = [
        ("name", quoted(name)),
        ("required", required.to_string()),
        ("nullable", nullable.to_string()),
        ("kind", kind),
    ];
    push_row(rows, "Field", &columns);
}

/// The kind of a field, as a Rust expression. It is the form that a value must have before a rule checks it.
fn field_kind(document: &Value, property: &Value) -> Option<String> {
    let schema = resolve(document, property);
    if schema.get("x-imagate-size").is_some() {
        return Some("FieldKind::Size".to_owned());
    }
    if let Some(choices) = schema["enum"].as_array() {
        let choices: Vec<String> = choices.iter().filter_map(Value::as_str).map(quoted).collect();
        return Some(format!("FieldKind::Choice(&[{}])", choices.join(", ")));
    }
    match schema["type"].as_str()? {
        "string" if schema["format"] == "date-time" => Some("FieldKind::Moment".to_owned()),
        "string" if schema["format"] == "date" => Some("FieldKind::Day".to_owned()),
        "string" => {
            let min = schema["minLength"].as_u64().unwrap_or(0);
            let max = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
            Some(format!("FieldKind::Text {{ min: {min}, max: {max} }}"))
        }
        "integer" => Some(format!(
            "FieldKind::Integer {{ min: {}, max: {} }}",
            schema["minimum"].as_i64()?,
            schema["maximum"].as_i64()?
        )),
        "number" => Some("FieldKind::Number".to_owned()),
        "boolean" => Some("FieldKind::Boolean".to_owned()),
        "array" if resolve(document, &schema["items"])["enum"].is_array() => {
            field_kind(document, &schema["items"]).map(|kind| kind.replace("::Choice", "::Choices"))
        }
        "array" if is_text(document, &schema["items"]) => Some("FieldKind::Texts".to_owned()),
        "array" => Some("FieldKind::Images".to_owned()),
        "object" if is_text(document, &schema["additionalProperties"]) => Some("FieldKind::TextMap".to_owned()),
        "object" if schema["additionalProperties"]["type"] == "number" => Some("FieldKind::NumberMap".to_owned()),
        "object" if resolve_name(property).is_some_and(|name| CHECKED_ELSEWHERE.contains(&name)) => {
            Some("FieldKind::Object".to_owned())
        }
        "object" => Some("FieldKind::Image".to_owned()),
        _ => None,
    }
}

/// Returns the name of the component that a property refers to, also inside an `allOf` or `anyOf`.
fn resolve_name(property: &Value) -> Option<&str> {
    inner_schema(property)["$ref"].as_str()?.rsplit('/').next()
}

fn is_text(document: &Value, schema: &Value) -> bool {
    resolve(document, schema)["type"] == "string"
}

/// The reference inside the `allOf` that gives it a description, or the `anyOf` that makes it nullable.
fn inner_schema(schema: &Value) -> &Value {
    ["allOf", "anyOf"].iter().find_map(|key| schema[*key].get(0)).unwrap_or(schema)
}

/// Follows a reference, also inside an `allOf` or `anyOf`.
fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let inner = inner_schema(schema);
    let target = inner["$ref"].as_str().and_then(|reference| document.pointer(reference.trim_start_matches('#')));
    target.map_or(inner, |target| resolve(document, target))
}

// === reading and writing ===

fn list<'a>(document: &'a Value, name: &str) -> Result<&'a Vec<Value>, String> {
    document[name].as_array().ok_or_else(|| format!("{name}: expected a list"))
}

fn object<'a>(value: &'a Value, place: &str) -> Result<&'a Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("{place}: expected an object"))
}

fn text<'a>(row: &'a Value, name: &str) -> Result<&'a str, String> {
    row[name].as_str().ok_or_else(|| format!("{row}: expected a string for '{name}'"))
}

/// A list of strings, as a Rust expression.
fn texts(row: &Value, name: &str) -> Result<String, String> {
    let words: Option<Vec<String>> = list(row, name)?.iter().map(|word| word.as_str().map(quoted)).collect();
    words.map(|words| format!("&[{}]", words.join(", "))).ok_or_else(|| format!("{row}: expected strings in '{name}'"))
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

fn constant(out: &mut String, doc: &str, name: &str, kind: &str, value: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "#[doc = {doc:?}]\npub const {name}: {kind} = {value};");
}

/// Appends one row of a table, as a Rust expression.
fn push_row(rows: &mut String, kind: &str, columns: &[(&str, String)]) {
    let columns: Vec<String> = columns.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let _ = write!(rows, "{kind} {{ {} }}, ", columns.join(", "));
}

fn table(out: &mut String, doc: &str, name: &str, kind: &str, rows: &str) {
    constant(out, doc, name, &format!("&[{kind}]"), &format!("&[{rows}]"));
}
