//! Describes the parameters of an image model: those of the API document with the values that the model allows, and
//! those that the operator has added. Pure; it is the same data that the rules check.

use serde_json::Map;

use super::ImageModels;
use super::fields::FieldRestriction;
use crate::gateway::config::{FieldOperations, ImageModelSpec, ModelFieldKind, SizeRules};
use crate::tables::{
    Field, FieldKind, GRID_PX, IMAGE_EDIT_FIELDS, IMAGE_GENERATION_FIELDS, MAX_EDGE_PX, MAX_EDIT_IMAGES, MAX_PIXELS,
    MAX_RATIO, MIN_PIXELS, field,
};
use crate::wire::types::{ImageModelParameter, ImageModelSizeRules};

const GENERATIONS: &str = "generations";
const EDITS: &str = "edits";

// === impl ImageModels ===

impl ImageModels {
    /// Returns the parameters of a model, in the order of the API document, then those that the operator has added.
    pub(crate) fn parameters(&self, model: &ImageModelSpec) -> Vec<ImageModelParameter> {
        let documented = IMAGE_EDIT_FIELDS.iter().filter(|row| is_supported(model, row.name));
        let documented = documented.filter_map(|row| {
            let in_generations = field(IMAGE_GENERATION_FIELDS, row.name).is_some();
            let operations = if in_generations { FieldOperations::Both } else { FieldOperations::Edits };
            let values = documented_values(row, self.restriction(model, row.name))?;
            Some(with_name(values, row.name, row.required, operations))
        });
        let added = model.fields.iter();
        let added =
            added.map(|field| with_name(added_values(&field.kind), &field.name, field.required, field.operations));
        let parts = model.file_parts.iter();
        let parts =
            parts.map(|part| with_name(files(part.max_count.into()), &part.name, false, FieldOperations::Edits));
        documented.chain(added).chain(parts).collect()
    }
}

/// Returns the operations as the description of a model names them.
pub(crate) fn operation_names(operations: FieldOperations) -> Vec<String> {
    let names: &[&str] = match operations {
        FieldOperations::Generations => &[GENERATIONS],
        FieldOperations::Edits => &[EDITS],
        FieldOperations::Both => &[GENERATIONS, EDITS],
    };
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn with_name(
    values: ImageModelParameter,
    name: &str,
    required: bool,
    operations: FieldOperations,
) -> ImageModelParameter {
    ImageModelParameter { name: name.to_owned(), required, operations: operation_names(operations), ..values }
}

/// True if a request for the model can have a value for this field other than the default.
fn is_supported(model: &ImageModelSpec, name: &str) -> bool {
    match name {
        // The name of the model describes itself.
        "model" => false,
        "input_fidelity" => !model.fidelities.is_empty(),
        "stream" => model.can_stream,
        "partial_images" => model.can_stream && model.max_partial_images > 0,
        "output_compression" => model.compression,
        _ => true,
    }
}

/// Returns a parameter of this type that has no limits and no name yet.
fn of_type(kind: &str) -> ImageModelParameter {
    ImageModelParameter {
        name: String::new(),
        type_: kind.to_owned(),
        required: false,
        operations: Vec::new(),
        values: Vec::new(),
        min: None,
        max: None,
        max_length: None,
        max_count: None,
        size_rules: None,
        extra: Map::new(),
    }
}

fn words(values: Vec<String>) -> ImageModelParameter {
    ImageModelParameter { values, ..of_type("enum") }
}

#[expect(clippy::cast_precision_loss, reason = "the limits of fields are at most 2^53")]
fn integer(min: Option<i64>, max: Option<i64>) -> ImageModelParameter {
    let number = |limit: i64| limit as f64;
    ImageModelParameter { min: min.map(number), max: max.map(number), ..of_type("integer") }
}

fn text(max_length: Option<u64>) -> ImageModelParameter {
    ImageModelParameter { max_length, ..of_type("string") }
}

fn files(max_count: u64) -> ImageModelParameter {
    ImageModelParameter { max_count: Some(max_count), ..of_type("file") }
}

/// `auto`, or a size in pixels that obeys these rules.
fn size(rules: &SizeRules) -> ImageModelParameter {
    let SizeRules { multiple_of, min_edge, max_edge, min_pixels, max_pixels, max_ratio } = *rules;
    let extra = Map::new();
    let rules = ImageModelSizeRules { multiple_of, min_edge, max_edge, min_pixels, max_pixels, max_ratio, extra };
    ImageModelParameter { size_rules: Some(rules), ..of_type("size") }
}

fn documented_values(row: &Field, restriction: Option<FieldRestriction<'_>>) -> Option<ImageModelParameter> {
    let owned_words = |list: &[&str]| words(list.iter().map(|word| (*word).to_owned()).collect());
    Some(match (row.kind, restriction) {
        (_, Some(FieldRestriction::Words(list) | FieldRestriction::Sizes(list))) => owned_words(&list),
        (_, Some(FieldRestriction::SizeRules(rules))) => size(rules),
        (FieldKind::Integer { min, .. }, Some(FieldRestriction::AtMost(max))) => integer(Some(min), Some(max)),
        (FieldKind::Integer { min, max }, _) => integer(Some(min), Some(max)),
        (FieldKind::Choice(list), _) => owned_words(list),
        (FieldKind::Boolean, _) => of_type("boolean"),
        (FieldKind::Text { max, .. }, _) => text((max < u64::MAX).then_some(max)),
        (FieldKind::Size, _) => size(&documented_size_rules()),
        (FieldKind::Images, _) => files(MAX_EDIT_IMAGES),
        (FieldKind::Image, _) => files(1),
        _ => return None,
    })
}

fn added_values(kind: &ModelFieldKind) -> ImageModelParameter {
    match kind {
        ModelFieldKind::Choice(list) => words(list.clone()),
        ModelFieldKind::Integer { min, max } => integer(*min, *max),
        ModelFieldKind::Number { min, max } => ImageModelParameter { min: *min, max: *max, ..of_type("number") },
        ModelFieldKind::Boolean => of_type("boolean"),
        ModelFieldKind::Text { max_chars } => text(Some(u64::from(*max_chars))),
        ModelFieldKind::Object => of_type("object"),
    }
}

/// The four size rules of the API document. `auto` is always allowed.
fn documented_size_rules() -> SizeRules {
    SizeRules {
        multiple_of: Some(GRID_PX),
        min_edge: None,
        max_edge: Some(MAX_EDGE_PX),
        min_pixels: Some(MIN_PIXELS),
        max_pixels: Some(MAX_PIXELS),
        max_ratio: Some(MAX_RATIO),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gateway::config::{FilePart, ModelField};

    fn named<'a>(parameters: &'a [ImageModelParameter], name: &str) -> Option<&'a ImageModelParameter> {
        parameters.iter().find(|parameter| parameter.name == name)
    }

    /// The parameter in JSON, without the members that it does not have.
    fn described(parameters: &[ImageModelParameter], name: &str) -> Option<serde_json::Value> {
        named(parameters, name).map(|parameter| serde_json::to_value(parameter).unwrap())
    }

    #[test]
    fn the_parameters_of_the_default_model_are_those_of_the_document() {
        let models = ImageModels::default();
        let parameters = models.parameters(&ImageModelSpec::default_model());
        let both = json!(["generations", "edits"]);
        for (name, expected) in [
            ("quality", json!({"type": "enum", "values": ["low", "medium", "high", "auto"], "operations": both})),
            ("n", json!({"type": "integer", "min": 1.0, "max": 10.0, "operations": both})),
            ("stream", json!({"type": "boolean", "operations": both})),
            ("mask", json!({"type": "file", "max_count": 1, "operations": ["edits"]})),
        ] {
            let mut expected = expected;
            (expected["name"], expected["required"]) = (json!(name), json!(false));
            assert_eq!(described(&parameters, name), Some(expected), "{name}");
        }
        assert_eq!((described(&parameters, "input_fidelity"), described(&parameters, "model")), (None, None));
        assert!(named(&parameters, "prompt").unwrap().required);
        let rules = json!({
            "multiple_of": GRID_PX, "max_edge": MAX_EDGE_PX, "min_pixels": MIN_PIXELS, "max_pixels": MAX_PIXELS,
            "max_ratio": MAX_RATIO,
        });
        assert_eq!(described(&parameters, "size").unwrap()["size_rules"], rules);
        // The described rules are those that are checked.
        let rules = documented_size_rules();
        for (width, height) in [(1024, 1024), (3840, 2160), (1000, 1000), (512, 512), (3072, 1008), (3856, 2160)] {
            assert_eq!(rules.allow(width, height), crate::image::Size::new(width, height).is_ok(), "{width}x{height}");
        }
    }

    #[test]
    fn added_fields_files_and_missing_features_are_described() {
        let field = ModelField {
            name: "frame_count".to_owned(),
            kind: ModelFieldKind::Integer { min: Some(1), max: None },
            required: true,
            operations: FieldOperations::Generations,
        };
        let model = ImageModelSpec {
            id: "next-1".to_owned(),
            can_stream: false,
            compression: false,
            fidelities: vec!["low".to_owned()],
            fields: vec![field],
            file_parts: vec![FilePart { name: "markup".to_owned(), max_count: 2 }],
            ..ImageModelSpec::default_model()
        };
        let parameters = ImageModels::new(std::slice::from_ref(&model)).parameters(&model);
        for name in ["stream", "partial_images", "output_compression"] {
            assert_eq!(described(&parameters, name), None, "{name}");
        }
        let expected = json!({
            "name": "frame_count", "type": "integer", "required": true, "operations": ["generations"], "min": 1.0
        });
        assert_eq!(described(&parameters, "frame_count"), Some(expected));
        assert_eq!(named(&parameters, "markup").unwrap().max_count, Some(2));
        assert_eq!(named(&parameters, "input_fidelity").unwrap().values, ["low"]);
    }
}
