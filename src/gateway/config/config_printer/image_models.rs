//! Prints the image models that the settings add.

use super::{ConfigPrinter, list, quoted};
use crate::gateway::config::{ImageModelSpec, ModelAlias, ModelField, ModelFieldKind, SizeRules};

impl ConfigPrinter<'_> {
    pub(super) fn image_model(&mut self, path: &str, model: &ImageModelSpec) {
        self.header("[[models]]");
        self.line(path, "id", &quoted(&model.id));
        if let Some(sizes) = &model.sizes {
            self.line(path, "sizes", &list(sizes));
        }
        self.line(path, "qualities", &list(&model.qualities));
        self.line(path, "formats", &list(&model.formats));
        self.line(path, "backgrounds", &list(&model.backgrounds));
        if !model.fidelities.is_empty() {
            self.line(path, "input_fidelity", &list(&model.fidelities));
        }
        self.line(path, "max_images", &model.max_images.to_string());
        self.line(path, "max_partial_images", &model.max_partial_images.to_string());
        self.line(path, "compression", &model.compression.to_string());
        self.line(path, "stream", &model.can_stream.to_string());
        self.line(path, "passthrough", &model.passes_unknown.to_string());
        if let Some(rules) = &model.size_rules {
            self.size_rules(&format!("{path}.size_rules"), rules);
        }
        for (index, field) in model.fields.iter().enumerate() {
            self.model_field(&format!("{path}.fields[{index}]"), field);
        }
        for (index, part) in model.file_parts.iter().enumerate() {
            let path = format!("{path}.file_parts[{index}]");
            self.header("[[models.file_parts]]");
            self.line(&path, "name", &quoted(&part.name));
            self.line(&path, "max_count", &part.max_count.to_string());
        }
    }

    pub(super) fn model_alias(&mut self, path: &str, alias: &ModelAlias) {
        self.header("[[models]]");
        self.line(path, "id", &quoted(&alias.alias));
        self.line(path, "alias_of", &quoted(&alias.model));
        alias.groups.iter().for_each(|groups| self.line(path, "groups", &list(groups)));
    }

    fn size_rules(&mut self, path: &str, rules: &SizeRules) {
        self.header("[models.size_rules]");
        for (name, value) in [
            ("multiple_of", rules.multiple_of),
            ("min_edge", rules.min_edge),
            ("max_edge", rules.max_edge),
            ("min_pixels", rules.min_pixels),
            ("max_pixels", rules.max_pixels),
            ("max_ratio", rules.max_ratio),
        ] {
            self.optional_value(path, name, value);
        }
    }

    fn model_field(&mut self, path: &str, field: &ModelField) {
        self.header("[[models.fields]]");
        self.line(path, "name", &quoted(&field.name));
        self.line(path, "kind", &quoted(field.kind.as_str()));
        match &field.kind {
            ModelFieldKind::Choice(words) => self.line(path, "words", &list(words)),
            ModelFieldKind::Integer { min, max } => {
                self.optional_value(path, "min", *min);
                self.optional_value(path, "max", *max);
            }
            ModelFieldKind::Number { min, max } => {
                self.optional_value(path, "min", *min);
                self.optional_value(path, "max", *max);
            }
            ModelFieldKind::Text { max_chars } => self.line(path, "max_chars", &max_chars.to_string()),
            ModelFieldKind::Boolean | ModelFieldKind::Object => {}
        }
        self.line(path, "required", &field.required.to_string());
        self.line(path, "operations", &quoted(field.operations.as_str()));
    }
}
