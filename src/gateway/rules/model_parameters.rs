//! Describes the parameters of an image model: those of the API document with the values that the model allows, and
//! those that the operator has added. Pure; it is the same data that the rules check.

use super::ImageModels;
use super::fields::FieldRestriction;
use crate::gateway::config::{FieldOperations, ImageModelSpec, ModelFieldKind, SizeRules};
use crate::tables::{
    Field, FieldKind, GRID_PX, IMAGE_EDIT_FIELDS, IMAGE_GENERATION_FIELDS, MAX_EDGE_PX, MAX_EDIT_IMAGES, MAX_PIXELS,
    MAX_RATIO, MIN_PIXELS, field,
};

/// A parameter of requests for one model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModelParameter {
    /// The name of the field or part.
    pub(crate) name: String,
    /// The values that it can have.
    pub(crate) values: ParameterValues,
    /// True if a request must have it.
    pub(crate) required: bool,
    /// The requests that can have it.
    pub(crate) operations: FieldOperations,
}

/// The values that a parameter can have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ParameterValues {
    /// One of these words.
    Words(Vec<String>),
    /// A whole number within these limits.
    Integer {
        /// The least value.
        min: Option<i64>,
        /// The greatest value.
        max: Option<i64>,
    },
    /// A number within these limits.
    Number {
        /// The least value.
        min: Option<f64>,
        /// The greatest value.
        max: Option<f64>,
    },
    /// True or false.
    Boolean,
    /// A text of at most this many characters.
    Text(Option<u64>),
    /// `auto`, or a size in pixels that obeys these rules.
    Size(SizeRules),
    /// An object, whose members the upstream checks.
    Object,
    /// Files: at most this many.
    Files(u64),
}

// === impl ImageModels ===

impl ImageModels {
    /// Returns the parameters of a model, in the order of the API document, then those that the operator has added.
    pub(crate) fn parameters(&self, model: &ImageModelSpec) -> Vec<ModelParameter> {
        let documented = IMAGE_EDIT_FIELDS.iter().filter(|row| is_supported(model, row.name));
        let documented = documented.filter_map(|row| {
            let in_generations = field(IMAGE_GENERATION_FIELDS, row.name).is_some();
            Some(ModelParameter {
                name: row.name.to_owned(),
                values: values(row, self.restriction(model, row.name))?,
                required: row.required,
                operations: if in_generations { FieldOperations::Both } else { FieldOperations::Edits },
            })
        });
        let added = model.fields.iter().map(|field| ModelParameter {
            name: field.name.clone(),
            values: added_values(&field.kind),
            required: field.required,
            operations: field.operations,
        });
        let files = model.file_parts.iter().map(|part| ModelParameter {
            name: part.name.clone(),
            values: ParameterValues::Files(u64::from(part.max_count)),
            required: false,
            operations: FieldOperations::Edits,
        });
        documented.chain(added).chain(files).collect()
    }
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

fn values(row: &Field, restriction: Option<FieldRestriction<'_>>) -> Option<ParameterValues> {
    let words = |words: &[&str]| ParameterValues::Words(words.iter().map(|word| (*word).to_owned()).collect());
    Some(match (row.kind, restriction) {
        (_, Some(FieldRestriction::Words(list) | FieldRestriction::Sizes(list))) => words(&list),
        (_, Some(FieldRestriction::SizeRules(rules))) => ParameterValues::Size(rules.clone()),
        (FieldKind::Integer { min, .. }, Some(FieldRestriction::AtMost(max))) => {
            ParameterValues::Integer { min: Some(min), max: Some(max) }
        }
        (FieldKind::Integer { min, max }, _) => ParameterValues::Integer { min: Some(min), max: Some(max) },
        (FieldKind::Choice(list), _) => words(list),
        (FieldKind::Boolean, _) => ParameterValues::Boolean,
        (FieldKind::Text { max, .. }, _) => ParameterValues::Text((max < u64::MAX).then_some(max)),
        (FieldKind::Size, _) => ParameterValues::Size(documented_size_rules()),
        (FieldKind::Images, _) => ParameterValues::Files(MAX_EDIT_IMAGES),
        (FieldKind::Image, _) => ParameterValues::Files(1),
        _ => return None,
    })
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

fn added_values(kind: &ModelFieldKind) -> ParameterValues {
    match kind {
        ModelFieldKind::Choice(words) => ParameterValues::Words(words.clone()),
        ModelFieldKind::Integer { min, max } => ParameterValues::Integer { min: *min, max: *max },
        ModelFieldKind::Number { min, max } => ParameterValues::Number { min: *min, max: *max },
        ModelFieldKind::Boolean => ParameterValues::Boolean,
        ModelFieldKind::Text { max_chars } => ParameterValues::Text(Some(u64::from(*max_chars))),
        ModelFieldKind::Object => ParameterValues::Object,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::config::{FilePart, ModelField};

    fn named<'a>(parameters: &'a [ModelParameter], name: &str) -> Option<&'a ModelParameter> {
        parameters.iter().find(|parameter| parameter.name == name)
    }

    #[test]
    fn the_parameters_of_the_default_model_are_those_of_the_document() {
        let models = ImageModels::default();
        let parameters = models.parameters(&ImageModelSpec::default_model());
        let values = |name: &str| named(&parameters, name).map(|parameter| parameter.values.clone());
        let words =
            |words: &[&str]| Some(ParameterValues::Words(words.iter().map(|word| (*word).to_owned()).collect()));
        assert_eq!(values("quality"), words(&["low", "medium", "high", "auto"]));
        assert_eq!(values("n"), Some(ParameterValues::Integer { min: Some(1), max: Some(10) }));
        assert_eq!(values("size"), Some(ParameterValues::Size(documented_size_rules())));
        assert_eq!(values("stream"), Some(ParameterValues::Boolean));
        assert_eq!((values("input_fidelity"), values("model")), (None, None));
        let mask = named(&parameters, "mask").unwrap();
        assert_eq!((mask.values.clone(), mask.operations), (ParameterValues::Files(1), FieldOperations::Edits));
        assert!(named(&parameters, "prompt").unwrap().required);
        // The described rules are those that are checked.
        let Some(ParameterValues::Size(rules)) = values("size") else { panic!("size rules") };
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
            assert_eq!(named(&parameters, name), None, "{name}");
        }
        let expected = ParameterValues::Integer { min: Some(1), max: None };
        let frames = named(&parameters, "frame_count").unwrap();
        assert_eq!((frames.values.clone(), frames.operations), (expected, FieldOperations::Generations));
        assert_eq!(named(&parameters, "markup").unwrap().values, ParameterValues::Files(2));
        let fidelity = ParameterValues::Words(vec!["low".to_owned()]);
        assert_eq!(named(&parameters, "input_fidelity").unwrap().values, fidelity);
    }
}
