//! The document of the public API with what the settings of one gateway add: models, fields, words and dialects. Pure.
//!
//! The settings, the groups and the keys decide, not the caller: the document is public. It allows what some caller of
//! this gateway may send, so it may allow more than one caller may use.

use serde_json::{Map, Value, json};

use crate::gateway::config::{Config, Dialect, DialectSet, ImageModelSpec, ModelField, ModelFieldKind, SizeRules};
use crate::gateway::dialects::{EARLIER_QUALITIES, STYLE, earlier_models_pattern};

/// The bodies that ask for images, each with true for an edit.
const BODIES: [(&str, bool); 3] = [(GENERATION, false), (EDIT_FORM, true), ("ImageEditRequest", true)];
const GENERATION: &str = "ImageGenerationRequest";
const EDIT_FORM: &str = "ImageEditForm";
const AUTO: &str = "auto";

/// The schemas of the document.
struct DocumentSchemas<'a>(&'a mut Map<String, Value>);

/// Returns the document with what the settings and the dialects of keys add. Without additions it is the same text.
pub(super) fn describe_deployment(document: &str, config: &Config, key_dialects: DialectSet) -> String {
    let dialects = config.groups.iter().fold(key_dialects, |all, group| all.union(group.dialects));
    let adds_models = !config.image_models.is_empty() || !config.model_aliases.is_empty();
    let parsed = serde_json::from_str::<Value>(document).ok().filter(|_| adds_models || !dialects.is_empty());
    let Some(mut parsed) = parsed else { return document.to_owned() };
    if let Some(Value::Object(schemas)) = parsed.pointer_mut("/components/schemas") {
        let mut schemas = DocumentSchemas(schemas);
        for model in &config.image_models {
            schemas.add_model(model);
        }
        let aliases = config.model_aliases.iter().filter(|alias| alias.groups.is_none());
        schemas.add_words("ImageModel", aliases.map(|alias| alias.alias.as_str()));
        schemas.add_dialects(dialects);
    }
    if let Some(Value::Array(rows)) = parsed.pointer_mut("/x-imagate-models") {
        rows.extend(config.image_models.iter().map(model_row));
    }
    if dialects.contains(Dialect::Azure) {
        add_key_header(&mut parsed);
    }
    parsed.to_string()
}

/// Returns the row of an added model in the list of models.
fn model_row(model: &ImageModelSpec) -> Value {
    let sizes = match (&model.sizes, &model.size_rules) {
        (Some(words), _) => json!(words),
        (None, Some(rules)) => size_rules(rules),
        (None, None) => json!("rules"),
    };
    let mut row = json!({
        "id": model.id, "sizes": sizes, "qualities": model.qualities, "formats": model.formats,
        "backgrounds": model.backgrounds, "max_images": model.max_images,
        "max_partial_images": model.max_partial_images, "compression": model.compression,
    });
    if model.name != model.id {
        row["snapshot_of"] = model.name.as_str().into();
    }
    row
}

/// Returns the size rules under the names of the settings, without those that do not limit.
fn size_rules(rules: &SizeRules) -> Value {
    let SizeRules { multiple_of, min_edge, max_edge, min_pixels, max_pixels, max_ratio } = *rules;
    let rules = [
        ("multiple_of", multiple_of),
        ("min_edge", min_edge),
        ("max_edge", max_edge),
        ("min_pixels", min_pixels),
        ("max_pixels", max_pixels),
        ("max_ratio", max_ratio),
    ];
    rules.into_iter().filter_map(|(name, rule)| Some((name, rule?))).collect()
}

/// Lets the key also come in the header of Azure.
fn add_key_header(document: &mut Value) {
    if let Some(Value::Object(schemes)) = document.pointer_mut("/components/securitySchemes") {
        schemes.insert("api_key".to_owned(), json!({"type": "apiKey", "in": "header", "name": "api-key"}));
    }
    if let Some(Value::Array(alternatives)) = document.get_mut("security") {
        alternatives.push(json!({"api_key": []}));
    }
}

// === impl DocumentSchemas ===

impl DocumentSchemas<'_> {
    fn schema(&mut self, name: &str) -> Option<&mut Map<String, Value>> {
        self.0.get_mut(name)?.as_object_mut()
    }

    fn properties(&mut self, name: &str) -> Option<&mut Map<String, Value>> {
        self.schema(name)?.get_mut("properties")?.as_object_mut()
    }

    /// Adds words to an enumeration, or to the list of an open one.
    fn add_words<'a>(&mut self, name: &str, words: impl Iterator<Item = &'a str>) {
        let Some(schema) = self.schema(name) else { return };
        let list = if schema.contains_key("enum") { "enum" } else { "x-extensible-enum" };
        let Some(Value::Array(known)) = schema.get_mut(list) else { return };
        for word in words {
            if known.iter().all(|other| other != word) {
                known.push(word.into());
            }
        }
    }

    fn add_model(&mut self, model: &ImageModelSpec) {
        self.add_words("ImageModel", [model.id.as_str()].into_iter());
        for (name, words) in
            [("Quality", &model.qualities), ("OutputFormat", &model.formats), ("Background", &model.backgrounds)]
        {
            for listed in [name.to_owned(), format!("Open{name}")] {
                self.add_words(&listed, words.iter().map(String::as_str));
            }
            // An answer states the word that was chosen in place of `auto`.
            let chosen = words.iter().map(String::as_str).filter(|word| *word != AUTO);
            self.add_words(&format!("Resolved{name}"), chosen);
        }
        self.add_fidelities(&model.fidelities);
        for (body, is_edit) in BODIES {
            let fields = model.fields.iter().filter(|field| field.applies_to(is_edit));
            fields.for_each(|field| self.add_field(body, &model.id, field));
            if let Some(schema) = self.schema(body).filter(|_| model.passes_unknown) {
                schema.insert("additionalProperties".to_owned(), json!({}));
            }
        }
        for part in &model.file_parts {
            let description = format!("Files of the model `{}`.", model.id);
            let files = json!({"type": "array", "maxItems": part.max_count, "description": description,
                "items": {"type": "string", "format": "binary"}});
            self.add_property(EDIT_FORM, &part.name, files);
        }
    }

    fn add_fidelities(&mut self, words: &[String]) {
        let Some(schema) = self.schema("InputFidelity").filter(|_| !words.is_empty()) else { return };
        schema.remove("maxLength");
        schema.entry("enum").or_insert_with(|| json!([""]));
        schema.insert("description".to_owned(), "Only models that the operator has added have this option.".into());
        self.add_words("InputFidelity", words.iter().map(String::as_str));
    }

    fn add_field(&mut self, body: &str, model: &str, field: &ModelField) {
        let mut schema = field_schema(&field.kind);
        schema["nullable"] = (!field.required).into();
        schema["description"] = format!("A field of the model `{model}`.").into();
        self.add_property(body, &field.name, schema);
    }

    /// Adds a property. If two models have it with different rules, the document states none.
    fn add_property(&mut self, body: &str, name: &str, schema: Value) {
        let Some(properties) = self.properties(body) else { return };
        match properties.get_mut(name) {
            None => {
                properties.insert(name.to_owned(), schema);
            }
            Some(known) if *known == schema => {}
            Some(known) => *known = json!({"description": "A field of several models, each with rules of its own."}),
        }
    }

    fn add_dialects(&mut self, dialects: DialectSet) {
        for dialect in dialects.iter() {
            match dialect {
                Dialect::Sizes => drop(self.schema("ImageSize").map(|schema| schema.remove("pattern"))),
                Dialect::LegacyFields => self.add_legacy_fields(),
                Dialect::Url => self.add_links(),
                Dialect::Models => self.add_earlier_models(),
                // The key in another header belongs to no schema, and a GIF file has no other one.
                Dialect::Azure | Dialect::Gif => {}
            }
        }
    }

    fn add_legacy_fields(&mut self) {
        self.add_words("Quality", EARLIER_QUALITIES.iter().map(|(word, _)| *word));
        if let Some(schema) = self.schema("InputFidelity") {
            schema.remove("maxLength");
            schema.remove("enum");
        }
        for (body, _) in BODIES {
            let style = json!({"description": "Removed: no model has it."});
            self.add_property(body, STYLE, style);
            if let Some(Value::Array(required)) = self.schema(body).and_then(|schema| schema.get_mut("required")) {
                required.retain(|name| name != "model");
            }
        }
    }

    fn add_earlier_models(&mut self) {
        let Some(schema) = self.schema("ImageModel") else { return };
        let words = schema.remove("enum").unwrap_or_default();
        let pattern = earlier_models_pattern();
        schema.insert("anyOf".to_owned(), json!([{"enum": words}, {"pattern": pattern}]));
    }

    fn add_links(&mut self) {
        self.add_words("ResponseFormat", ["url"].into_iter());
        let forms = "With `url`, each image comes as a link; otherwise as base64 text.";
        for (body, _) in BODIES {
            let format = self.properties(body).and_then(|properties| properties.get_mut("response_format"));
            if let Some(Value::Object(format)) = format {
                format.insert("description".to_owned(), forms.into());
            }
        }
        if let Some(schema) = self.schema("ResponseFormat") {
            schema.insert("description".to_owned(), forms.into());
        }
        let link = json!({"type": "string", "description":
            "The address of the image file, in place of `b64_json`. It needs no key, and is valid for an hour at most."});
        self.add_property("Image", "url", link);
        if let Some(image) = self.schema("Image") {
            image.remove("required");
            image.insert("anyOf".to_owned(), json!([{"required": ["b64_json"]}, {"required": ["url"]}]));
        }
    }
}

fn field_schema(kind: &ModelFieldKind) -> Value {
    fn bounded(kind: &str, min: Option<Value>, max: Option<Value>) -> Value {
        let bounds = [("minimum", min), ("maximum", max)].into_iter();
        let bounds = bounds.filter_map(|(name, bound)| Some((name.to_owned(), bound?)));
        Value::Object(bounds.chain([("type".to_owned(), kind.into())]).collect())
    }
    match kind {
        ModelFieldKind::Choice(words) => json!({"type": "string", "enum": words}),
        ModelFieldKind::Integer { min, max } => bounded("integer", min.map(Value::from), max.map(Value::from)),
        ModelFieldKind::Number { min, max } => bounded("number", min.map(Value::from), max.map(Value::from)),
        ModelFieldKind::Boolean => json!({"type": "boolean"}),
        ModelFieldKind::Text { max_chars } => json!({"type": "string", "maxLength": max_chars}),
        ModelFieldKind::Object => json!({"type": "object", "additionalProperties": {}}),
    }
}
