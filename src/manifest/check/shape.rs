//! Parses bytes into a tree, and checks encoding, syntax, repeated keys, and the schema.

use std::sync::LazyLock;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use serde_json::Value as Json;

use super::SCHEMA;
use crate::manifest::finding::{FileId, FindingCollector, SourceSpan};
use crate::manifest::located::LocatedNode;
use crate::manifest::rules::{M001, M002, M003, M004, M007};
use crate::manifest::text::{JsonLimits, JsonNode, JsonValue, SourceFile, child, element, read};

/// Byte order marks, each with the name of its encoding.
const BYTE_ORDER_MARKS: [(&[u8], &str); 3] =
    [(b"\xef\xbb\xbf", "UTF-8"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16")];

static VALIDATOR: LazyLock<Result<Validator, String>> = LazyLock::new(|| {
    let schema: Json = serde_json::from_str(SCHEMA).map_err(|error| error.to_string())?;
    jsonschema::draft202012::new(&schema).map_err(|error| error.to_string())
});

/// Returns the text of the file; reports a finding and returns `None` if it is not UTF-8. A byte order mark of UTF-8 is
/// reported too, and replaced by spaces, so that all offsets stay valid.
pub(super) fn read_text(source: &SourceFile, file: FileId, findings: &mut FindingCollector) -> Option<String> {
    let bytes = source.bytes();
    let mark = BYTE_ORDER_MARKS.iter().find(|(mark, _)| bytes.starts_with(mark));
    if let Some((mark, name)) = mark {
        let message = format!("the file begins with the byte order mark of {name}");
        findings
            .report_in_file(&M001, SourceSpan::new(file, 0..mark.len()), "", message)
            .with_help("save it as UTF-8 without a byte order mark");
    }
    match (std::str::from_utf8(bytes), mark) {
        (Ok(text), Some((mark, "UTF-8"))) => Some(" ".repeat(mark.len()) + &text[mark.len()..]),
        (Ok(text), _) => Some(text.to_owned()),
        (Err(_), Some((_, "UTF-16"))) => None,
        (Err(error), _) => {
            let start = error.valid_up_to();
            let end = start + error.error_len().unwrap_or(bytes.len() - start);
            let shown: Vec<String> = bytes[start..end].iter().map(|byte| format!("{byte:02x}")).collect();
            let message = format!("the bytes {} are not UTF-8", shown.join(" "));
            findings.report_in_file(&M001, SourceSpan::new(file, start..end), "", message);
            None
        }
    }
}

/// Returns the tree; reports a finding and returns `None` if the text is not JSON or exceeds a limit of the reader.
pub(super) fn parse_tree(text: &str, file: FileId, findings: &mut FindingCollector) -> Option<JsonNode> {
    match read(text, JsonLimits::default()) {
        Ok(root) => Some(root),
        Err(error) => {
            let rule = if error.is_limit { &M007 } else { &M002 };
            let finding = findings.report_in_file(rule, SourceSpan::new(file, error.span), "", error.message);
            if let Some(help) = error.help {
                finding.with_help(help);
            }
            if let Some(opened) = error.opened {
                finding.with_related(SourceSpan::new(file, opened), "it began here");
            }
            None
        }
    }
}

/// Reports repeated keys and violations of the schema.
pub(super) fn check(manifest: &LocatedNode<'_>, findings: &mut FindingCollector) {
    check_repeated_keys(manifest.node(), "", manifest.file(), findings);
    check_schema(manifest, findings);
}

/// Returns the first violation of the schema.
pub(in crate::manifest) fn problem(root: &JsonNode) -> Option<String> {
    let mut findings = FindingCollector::default();
    check_schema(&LocatedNode::root(root, findings.next_file_id()), &mut findings);
    findings.first_message().map(str::to_owned)
}

fn check_schema(manifest: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let validator = match &*VALIDATOR {
        Ok(validator) => validator,
        Err(error) => {
            findings.report_without_location(&M004, format!("the schema itself cannot be used: {error}"));
            return;
        }
    };
    let json = manifest.node().to_json();
    for error in validator.iter_errors(&json) {
        report_wrong_shape(&error, manifest, findings);
    }
}

fn check_repeated_keys(node: &JsonNode, pointer: &str, file: FileId, findings: &mut FindingCollector) {
    for (repeated, first) in node.repeated_members() {
        let message = format!("the key `{}` is repeated", repeated.key.escape_debug());
        findings
            .report_in_file(
                &M003,
                SourceSpan::new(file, repeated.key_span.clone()),
                &child(pointer, &repeated.key),
                message,
            )
            .with_help("keep one of them: some readers use the first, most use the last")
            .with_related(SourceSpan::new(file, first.key_span.clone()), "first used here");
    }
    for member in node.members() {
        check_repeated_keys(&member.node, &child(pointer, &member.key), file, findings);
    }
    for (index, element_node) in node.elements().iter().enumerate() {
        check_repeated_keys(element_node, &element(pointer, index), file, findings);
    }
}

fn report_wrong_shape(error: &ValidationError<'_>, manifest: &LocatedNode<'_>, findings: &mut FindingCollector) {
    let pointer = error.instance_path().as_str();
    let Some(node) = manifest.node().at(pointer) else {
        findings.report_without_location(&M004, error.to_string());
        return;
    };
    // Only the brace is marked: a mark over a whole skill would not show where the field is missing.
    let whole = node.span.clone();
    let brace = whole.start..whole.end.min(whole.start + 1);
    let file = manifest.file();
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let key = property.as_str().unwrap_or_default();
            let message = format!("{} has no `{key}`", value_name(pointer, node));
            findings.report_in_file(&M004, SourceSpan::new(file, brace), &child(pointer, key), message);
        }
        ValidationErrorKind::Type { kind: TypeKind::Single(expected) } => {
            let message = format!(
                "{} is {}; it must be {}",
                value_name(pointer, node),
                kind(node),
                with_article(expected.as_str())
            );
            let span = if node.members().is_empty() && node.elements().is_empty() { whole } else { brace };
            let finding = findings.report_in_file(&M004, SourceSpan::new(file, span), pointer, message);
            if node.value == JsonValue::Null {
                finding.with_help("leave the field out if it has no value");
            }
        }
        _ => {
            findings.report_in_file(&M004, SourceSpan::new(file, whole), pointer, error.to_string());
        }
    }
}

/// Returns a description of the part of the manifest that a pointer names.
fn value_name(pointer: &str, node: &JsonNode) -> String {
    let name = |key: &str| node.get(key).and_then(JsonNode::text).map(|name| format!(" `{}`", name.escape_debug()));
    match pointer.split('/').skip(1).collect::<Vec<_>>()[..] {
        [] => "the manifest".to_owned(),
        ["skills", index] => format!("skill{}", name("name").unwrap_or_else(|| format!(" number {index}, from 0,"))),
        ["apis", index] => {
            format!("API reference{}", name("id").unwrap_or_else(|| format!(" number {index}, from 0,")))
        }
        [.., last] => format!("`{}`", last.replace("~1", "/").replace("~0", "~").escape_debug()),
    }
}

fn kind(node: &JsonNode) -> &'static str {
    match node.value {
        JsonValue::Null => "null",
        JsonValue::Bool(_) => "a boolean",
        JsonValue::Number(_) => "a number",
        JsonValue::String(_) => "a string",
        JsonValue::Array(_) => "an array",
        JsonValue::Object(_) => "an object",
    }
}

fn with_article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {kind}")
}
