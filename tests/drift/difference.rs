//! Two JSON values side by side.

use std::collections::BTreeSet;

use serde_json::Value;

/// One line for each place where the two sides are not the same.
pub(crate) fn differences(document: &Value, code: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    compare("", document, code, &mut lines);
    lines
}

fn compare(place: &str, document: &Value, code: &Value, lines: &mut Vec<String>) {
    match (document, code) {
        (Value::Object(one), Value::Object(other)) => {
            let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for name in names {
                let place = format!("{place} › {name}");
                match (one.get(name), other.get(name)) {
                    (Some(one), Some(other)) => compare(&place, one, other, lines),
                    (Some(one), None) => lines.push(format!("{place}: only in the document: {one}")),
                    (None, Some(other)) => lines.push(format!("{place}: only in the code: {other}")),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                compare(&format!("{place}[{index}]"), one, other, lines);
            }
        }
        // `0` and `0.0` are the same bound.
        (Value::Number(one), Value::Number(other)) if one.as_f64() == other.as_f64() => {}
        _ if document == code => {}
        _ => lines.push(format!("{place}: document={document} code={code}")),
    }
}
