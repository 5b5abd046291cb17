//! Writes the tree as text.

use std::fmt::Write as _;

use super::node::{JsonNode, JsonValue};

/// Returns the value with two spaces for each level and a newline at the end.
///
/// This is the output of `JSON.stringify(value, null, 2)` and `json.dumps(value, indent=2, ensure_ascii=False)` with a
/// newline after it, except that numbers keep their spelling, and all members with the same key are written.
#[must_use]
pub fn write(node: &JsonNode) -> String {
    let mut text = String::with_capacity(node.span.len() + 1);
    value(&mut text, node, 0);
    text.push('\n');
    text
}

fn value(text: &mut String, node: &JsonNode, level: usize) {
    match &node.value {
        JsonValue::Null => text.push_str("null"),
        JsonValue::Bool(true) => text.push_str("true"),
        JsonValue::Bool(false) => text.push_str("false"),
        JsonValue::Number(number) => text.push_str(number),
        JsonValue::String(string) => quoted(text, string),
        JsonValue::Array(elements) => list(text, level, ['[', ']'], elements, |text, element| {
            value(text, element, level + 1);
        }),
        JsonValue::Object(members) => list(text, level, ['{', '}'], members, |text, member| {
            quoted(text, &member.key);
            text.push_str(": ");
            value(text, &member.node, level + 1);
        }),
    }
}

fn list<T>(text: &mut String, level: usize, brackets: [char; 2], items: &[T], item: impl Fn(&mut String, &T)) {
    text.push(brackets[0]);
    for (index, element) in items.iter().enumerate() {
        text.push_str(if index == 0 { "\n" } else { ",\n" });
        indent(text, level + 1);
        item(text, element);
    }
    if !items.is_empty() {
        text.push('\n');
        indent(text, level);
    }
    text.push(brackets[1]);
}

fn indent(text: &mut String, level: usize) {
    text.extend(std::iter::repeat_n("  ", level));
}

fn quoted(text: &mut String, string: &str) {
    text.push('"');
    for character in string.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            control if control < ' ' => {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\u{:04x}", u32::from(control));
            }
            plain => text.push(plain),
        }
    }
    text.push('"');
}
