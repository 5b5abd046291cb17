//! The numbers that prose may repeat, each read from its only source: a document or the source code.

use std::fs;

use serde_json::Value;

use crate::root;

/// The documents, and the schema that the checked text describes.
pub(crate) struct Facts<'a> {
    pub(crate) public: &'a Value,
    pub(crate) admin: &'a Value,
    /// The schema that the text describes, if it describes one.
    pub(crate) schema: Value,
}

impl Facts<'_> {
    /// A row of `x-imagate-limits`.
    pub(crate) fn limit(&self, name: &str) -> u64 {
        let rows = self.public["x-imagate-limits"].as_array().into_iter().flatten();
        let row = rows.into_iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no limit {name}"));
        row["value"].as_u64().unwrap_or_default()
    }

    /// A number in a component of the callers' document.
    pub(crate) fn component_number(&self, name: &str, keyword: &str) -> u64 {
        self.public["components"]["schemas"][name][keyword].as_u64().unwrap_or_else(|| panic!("{name}: no {keyword}"))
    }

    /// A number of the size rules.
    pub(crate) fn size(&self, name: &str) -> u64 {
        let rules = &self.public["components"]["schemas"]["ImageSize"]["x-imagate-size"];
        rules[name].as_u64().unwrap_or_else(|| panic!("no size rule {name}"))
    }

    /// A number of the schema that the text describes.
    pub(crate) fn schema_number(&self, keyword: &str) -> u64 {
        self.schema[keyword].as_u64().unwrap_or_default()
    }

    /// The status of an error code.
    pub(crate) fn status(&self, code: &str) -> u64 {
        rows(self.public)
            .chain(rows(self.admin))
            .find(|row| row["code"] == code)
            .map_or(0, |row| row["status"].as_u64().unwrap_or_default())
    }
}

/// The rows of the error table of a document.
pub(crate) fn rows(document: &Value) -> impl Iterator<Item = &Value> {
    document["x-imagate-errors"].as_array().into_iter().flatten()
}

/// The words of a component, closed or open.
pub(crate) fn words<'a>(document: &'a Value, component: &str) -> impl Iterator<Item = &'a Value> {
    let schema = &document["components"]["schemas"][component];
    ["enum", "x-extensible-enum"].into_iter().filter_map(|key| schema[key].as_array()).flatten()
}

/// A number in the source code: the expression after `anchor` in the first line that contains it. Products and shifts
/// are evaluated.
pub(crate) fn source_number(path: &str, anchor: &str) -> u64 {
    let text = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let tail = text.lines().find_map(|line| line.split_once(anchor)).unwrap_or_else(|| panic!("{path}: no {anchor}")).1;
    let number = |text: &str| text.trim().replace('_', "").parse::<u64>().expect("a whole number");
    let factor =
        |text: &str| text.split_once("<<").map_or_else(|| number(text), |(value, bits)| number(value) << number(bits));
    tail[..tail.find([';', ',', ')', '}']).unwrap_or(tail.len())].split('*').map(factor).product()
}
