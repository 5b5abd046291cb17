//! From bytes to a tree whose shape is known: encoding, syntax, repeated keys, and the schema.

use std::sync::LazyLock;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use serde_json::Value as Json;

use super::SCHEMA;
use crate::manifest::finding::{FileId, Findings, Span};
use crate::manifest::located::Located;
use crate::manifest::rules::{M001, M002, M003, M004, M007};
use crate::manifest::text::{Limits, Node, Source, Value, child, element, read};

/// Bytes in front of a file that say how it is encoded, and the name of that.
const MARKS: [(&[u8], &str); 3] = [(b"\xef\xbb\xbf", "UTF-8"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16")];

static VALIDATOR: LazyLock<Result<Validator, String>> = LazyLock::new(|| {
    let schema: Json = serde_json::from_str(SCHEMA).map_err(|error| error.to_string())?;
    jsonschema::draft202012::new(&schema).map_err(|error| error.to_string())
});

/// The text of the file. A byte order mark is reported, and then passed over: blanks keep every place where it is.
pub(super) fn text(source: &Source, file: FileId, findings: &mut Findings) -> Option<String> {
    let bytes = source.bytes();
    let mark = MARKS.iter().find(|(mark, _)| bytes.starts_with(mark));
    if let Some((mark, name)) = mark {
        let message = format!("the file begins with the byte order mark of {name}");
        findings
            .in_file(&M001, Span::new(file, 0..mark.len()), "", message)
            .with_help("save it as UTF-8 without byte order mark");
    }
    match (std::str::from_utf8(bytes), mark) {
        (Ok(text), Some((mark, "UTF-8"))) => Some(" ".repeat(mark.len()) + &text[mark.len()..]),
        (Ok(text), _) => Some(text.to_owned()),
        (Err(_), Some((_, "UTF-16"))) => None,
        (Err(error), _) => {
            let start = error.valid_up_to();
            let end = start + error.error_len().unwrap_or(bytes.len() - start);
            let shown: Vec<String> = bytes[start..end].iter().map(|byte| format!("{byte:02x}")).collect();
            let message = format!("the bytes {} are no UTF-8", shown.join(" "));
            findings.in_file(&M001, Span::new(file, start..end), "", message);
            None
        }
    }
}

/// The tree, if it is JSON.
pub(super) fn tree(text: &str, file: FileId, findings: &mut Findings) -> Option<Node> {
    match read(text, Limits::default()) {
        Ok(root) => Some(root),
        Err(error) => {
            let rule = if error.is_limit { &M007 } else { &M002 };
            let finding = findings.in_file(rule, Span::new(file, error.span), "", error.message);
            if let Some(help) = error.help {
                finding.with_help(help);
            }
            if let Some(opened) = error.opened {
                finding.with_related(Span::new(file, opened), "it began here");
            }
            None
        }
    }
}

/// Repeated keys, and what the schema says.
pub(super) fn check(manifest: &Located<'_>, findings: &mut Findings) {
    repeated(manifest.node(), "", manifest.file(), findings);
    schema(manifest, findings);
}

/// The first thing that the schema finds wrong.
pub(in crate::manifest) fn problem(root: &Node) -> Option<String> {
    let mut findings = Findings::default();
    schema(&Located::root(root, findings.next()), &mut findings);
    findings.first_message().map(str::to_owned)
}

fn schema(manifest: &Located<'_>, findings: &mut Findings) {
    let validator = match &*VALIDATOR {
        Ok(validator) => validator,
        Err(error) => {
            findings.nowhere(&M004, format!("the schema itself cannot be used: {error}"));
            return;
        }
    };
    let json = manifest.node().to_json();
    for error in validator.iter_errors(&json) {
        wrong_shape(&error, manifest, findings);
    }
}

fn repeated(node: &Node, pointer: &str, file: FileId, findings: &mut Findings) {
    for (again, first) in node.repeated() {
        let message = format!("the key `{}` stands here again", again.key.escape_debug());
        findings
            .in_file(&M003, Span::new(file, again.key_span.clone()), &child(pointer, &again.key), message)
            .with_help("keep one of them: some readers take the first, most the last")
            .with_related(Span::new(file, first.key_span.clone()), "it stood here first");
    }
    for member in node.members() {
        repeated(&member.node, &child(pointer, &member.key), file, findings);
    }
    for (index, one) in node.elements().iter().enumerate() {
        repeated(one, &element(pointer, index), file, findings);
    }
}

fn wrong_shape(error: &ValidationError<'_>, manifest: &Located<'_>, findings: &mut Findings) {
    let pointer = error.instance_path().as_str();
    let Some(node) = manifest.node().at(pointer) else {
        findings.nowhere(&M004, error.to_string());
        return;
    };
    // Only the brace is marked: the whole of a skill would hide where its field is missing.
    let whole = node.span.clone();
    let brace = whole.start..whole.end.min(whole.start + 1);
    let file = manifest.file();
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let key = property.as_str().unwrap_or_default();
            let message = format!("{} has no `{key}`", named(pointer, node));
            findings.in_file(&M004, Span::new(file, brace), &child(pointer, key), message);
        }
        ValidationErrorKind::Type { kind: TypeKind::Single(expected) } => {
            let message =
                format!("{} is {}; it must be {}", named(pointer, node), kind(node), article(expected.as_str()));
            let span = if node.members().is_empty() && node.elements().is_empty() { whole } else { brace };
            let finding = findings.in_file(&M004, Span::new(file, span), pointer, message);
            if node.value == Value::Null {
                finding.with_help("leave the field out where there is nothing to say");
            }
        }
        _ => {
            findings.in_file(&M004, Span::new(file, whole), pointer, error.to_string());
        }
    }
}

/// The part of the manifest that a pointer names, in words.
fn named(pointer: &str, node: &Node) -> String {
    let name = |key: &str| node.get(key).and_then(Node::text).map(|name| format!(" `{}`", name.escape_debug()));
    match pointer.split('/').skip(1).collect::<Vec<_>>()[..] {
        [] => "the manifest".to_owned(),
        ["skills", index] => format!("skill{}", name("name").unwrap_or_else(|| format!(" number {index}, from 0,"))),
        ["apis", index] => {
            format!("API reference{}", name("id").unwrap_or_else(|| format!(" number {index}, from 0,")))
        }
        [.., last] => format!("`{}`", last.replace("~1", "/").replace("~0", "~").escape_debug()),
    }
}

fn kind(node: &Node) -> &'static str {
    match node.value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {kind}")
}
