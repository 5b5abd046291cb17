//! Resolves the fields and the file parts that an added image model has in addition to those of the API document.

use super::ConfigResolver;
use super::models::word_fault;
use crate::gateway::config::raw::{FieldKindOption, RawFilePart, RawModelField};
use crate::gateway::config::{FilePart, ModelField, ModelFieldKind};
use crate::tables::{IMAGE_EDIT_FIELDS, IMAGE_TOOL_FIELDS, field};

/// The name of the part of a form for an image. The API document has the name of the member in JSON.
const IMAGE_PART: &str = "image";
/// The default maximum number of characters of a text: that of a prompt.
const DEFAULT_MAX_CHARS: u32 = 32_000;

impl ConfigResolver<'_> {
    /// Resolves the fields of a model.
    pub(super) fn model_fields(&mut self, path: &str, raw: &[RawModelField]) -> Vec<ModelField> {
        let mut fields: Vec<ModelField> = Vec::new();
        for (index, raw) in raw.iter().enumerate() {
            let path = format!("{path}.fields[{index}]");
            let name = self.text(&path, "name", raw.name.clone().unwrap_or_default());
            self.check_added_name(&format!("{path}.name"), &name, &name);
            if fields.iter().any(|field| field.name == name) {
                self.report(&format!("{path}.name"), &format!("`{name}` is already used"));
            }
            let Some(kind) = self.value(&path, "kind", raw.kind) else { continue };
            self.check_bounds_fit(&path, kind, raw);
            let kind = self.field_kind(&path, kind, raw);
            fields.push(ModelField {
                name,
                kind,
                required: self.value_or_default(&path, "required", raw.required),
                operations: self.value_or_default(&path, "operations", raw.operations),
            });
        }
        fields
    }

    /// Resolves the file parts of a model.
    pub(super) fn file_parts(&mut self, path: &str, raw: &[RawFilePart]) -> Vec<FilePart> {
        let mut parts: Vec<FilePart> = Vec::new();
        for (index, raw) in raw.iter().enumerate() {
            let path = format!("{path}.file_parts[{index}]");
            let setting = format!("{path}.name");
            let name = self.text(&path, "name", raw.name.clone().unwrap_or_default());
            self.check_added_name(&setting, &name, name.strip_suffix("[]").unwrap_or(&name));
            if parts.iter().any(|part| part.name == name) {
                self.report(&setting, &format!("`{name}` is already used"));
            }
            parts.push(FilePart { name, max_count: self.value_or(&path, "max_count", raw.max_count, 1) });
        }
        parts
    }

    /// Checks that a name is a word, and not the name of a field that the API document has.
    fn check_added_name(&mut self, setting: &str, name: &str, word: &str) {
        let is_documented = |name: &str| {
            name == IMAGE_PART
                || [IMAGE_EDIT_FIELDS, IMAGE_TOOL_FIELDS].iter().any(|table| field(table, name).is_some())
        };
        if let Some(fault) = word_fault(word) {
            self.report(setting, &fault);
        } else if is_documented(word) {
            self.report(setting, &format!("`{name}` is a field that the API has already"));
        }
    }

    /// Reports the settings of a field that do not belong to its kind.
    fn check_bounds_fit(&mut self, path: &str, kind: FieldKindOption, raw: &RawModelField) {
        let is_number = matches!(kind, FieldKindOption::Integer | FieldKindOption::Number);
        for (name, is_set, fits, kinds) in [
            ("words", raw.words.is_some(), kind == FieldKindOption::Choice, "`choice`"),
            ("min", raw.min.is_some(), is_number, "`integer` or `number`"),
            ("max", raw.max.is_some(), is_number, "`integer` or `number`"),
            ("max_chars", raw.max_chars.is_some(), kind == FieldKindOption::Text, "`text`"),
        ] {
            if is_set && !fits {
                self.report(&format!("{path}.{name}"), &format!("is only for the kind {kinds}"));
            }
        }
        if let (Some(min), Some(max)) = (raw.min, raw.max)
            && min > max
        {
            self.report(&format!("{path}.max"), "must be at least `min`");
        }
    }

    fn field_kind(&mut self, path: &str, kind: FieldKindOption, raw: &RawModelField) -> ModelFieldKind {
        match kind {
            FieldKindOption::Choice => {
                let words = raw.words.clone().unwrap_or_default();
                if words.is_empty() {
                    self.report(&format!("{path}.kind"), "`choice` needs `words`");
                } else {
                    self.check_list(&format!("{path}.words"), &words, word_fault);
                }
                ModelFieldKind::Choice(self.value(path, "words", words))
            }
            FieldKindOption::Integer => ModelFieldKind::Integer {
                min: self.whole_number(path, "min", raw.min),
                max: self.whole_number(path, "max", raw.max),
            },
            FieldKindOption::Number => ModelFieldKind::Number {
                min: self.number(path, "min", raw.min),
                max: self.number(path, "max", raw.max),
            },
            FieldKindOption::Boolean => ModelFieldKind::Boolean,
            FieldKindOption::Text => {
                ModelFieldKind::Text { max_chars: self.value_or(path, "max_chars", raw.max_chars, DEFAULT_MAX_CHARS) }
            }
            FieldKindOption::Object => ModelFieldKind::Object,
        }
    }

    fn whole_number(&mut self, path: &str, name: &str, number: Option<f64>) -> Option<i64> {
        /// The greatest number up to which a 64-bit float represents every integer (2^53).
        const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
        let number = number?;
        if number.fract() != 0.0 || number.abs() > EXACT_MAX {
            self.report(&format!("{path}.{name}"), "must be a whole number");
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a whole number of at most 2^53 fits")]
        Some(self.value(path, name, number as i64))
    }
}
