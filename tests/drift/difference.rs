//! Compares two JSON values.

use std::collections::BTreeSet;

use serde_json::Value;

/// One line for each place at which the two values differ.
pub(crate) fn differences(document: &Value, code: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    compare("", document, code, &mut lines);
    lines
}

fn compare(place: &str, document: &Value, code: &Value, lines: &mut Vec<String>) {
    match (document, code) {
        (Value::Object(left), Value::Object(right)) => {
            let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for name in names {
                let place = format!("{place} › {name}");
                match (left.get(name), right.get(name)) {
                    (Some(left), Some(right)) => compare(&place, left, right, lines),
                    (Some(left), None) => lines.push(format!("{place}: only in the document: {left}")),
                    (None, Some(right)) => lines.push(format!("{place}: only in the code: {right}")),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                compare(&format!("{place}[{index}]"), left, right, lines);
            }
        }
        // `0` and `0.0` are equal.
        (Value::Number(left), Value::Number(right)) if left.as_f64() == right.as_f64() => {}
        _ if document == code => {}
        _ => lines.push(format!("{place}: document={document} code={code}")),
    }
}
