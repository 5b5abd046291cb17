//! The image models, and what narrows a field for each of them.

use std::sync::Arc;

use super::fields::{Narrowed, list};
use crate::gateway::config::ImageModel;

/// The image models that can be asked for: those of the document, then those that the operator has added.
#[derive(Clone, Debug)]
pub(crate) struct ImageModels(Arc<[Arc<ImageModel>]>);

// === impl ImageModels ===

impl ImageModels {
    /// The models of the document, and these.
    pub(crate) fn new(added: &[ImageModel]) -> Self {
        let all = ImageModel::documented().chain(added.iter().cloned());
        Self(all.map(Arc::new).collect())
    }

    /// Whether an image model has this id.
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.0.iter().any(|model| model.id == id)
    }

    /// The model of this id. An absent id stands for the first model, and so does an unknown one until it is refused.
    pub(super) fn of(&self, id: Option<&str>) -> Arc<ImageModel> {
        let named = self.0.iter().find(|model| Some(model.id.as_str()) == id);
        named.cloned().unwrap_or_else(|| Arc::new(ImageModel::first()))
    }

    /// What a field may be for this model, where the table of the document says another thing.
    pub(super) fn narrow<'a>(&'a self, model: &'a ImageModel, field: &str) -> Option<Narrowed<'a>> {
        match field {
            "model" => Some(Narrowed::Words(self.0.iter().map(|model| model.id.as_str()).collect())),
            "quality" => Some(words(&model.qualities)),
            "output_format" => Some(words(&model.formats)),
            "background" => Some(words(&model.backgrounds)),
            "size" => model.sizes.as_deref().map(|sizes| Narrowed::Sizes(sizes.iter().map(String::as_str).collect())),
            "n" => Some(Narrowed::AtMost(model.max_images.into())),
            "partial_images" => Some(Narrowed::AtMost(model.max_partial_images.into())),
            _ => None,
        }
    }
}

impl Default for ImageModels {
    fn default() -> Self {
        Self::new(&[])
    }
}

fn words(words: &[String]) -> Narrowed<'_> {
    Narrowed::Words(words.iter().map(String::as_str).collect())
}

/// The words for a background, for a message.
pub(super) fn backgrounds(model: &ImageModel) -> String {
    list(&model.backgrounds.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Whether this size and quality can be asked for.
pub(super) fn allows(model: &ImageModel, size: &str, quality: &str) -> bool {
    let makes = model.sizes.as_ref().is_none_or(|sizes| sizes.iter().any(|known| known == size));
    makes && model.qualities.iter().any(|known| known == quality)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use chrono::Utc;
    use http::HeaderMap;
    use serde_json::{Value, json};

    use super::*;
    use crate::error::{Reason, Rejection};
    use crate::gateway::rules::Job;
    use crate::image::Size;

    fn sketch() -> ImageModel {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        ImageModel {
            id: "sketch-1".to_owned(),
            name: "sketch-1".to_owned(),
            sizes: Some(words(&["auto", "1024x1024", "3840x2160"])),
            qualities: words(&["draft", "high"]),
            formats: words(&["png", "jpeg"]),
            backgrounds: words(&["auto", "transparent"]),
            max_images: 2,
            max_partial_images: 1,
            compression: false,
        }
    }

    fn with(model: &str, patch: &Value) -> Value {
        let mut body = json!({"model": model, "prompt": "red"});
        for (name, value) in patch.as_object().expect("an object") {
            body[name] = value.clone();
        }
        body
    }

    fn asked(model: &str, patch: &Value) -> Result<Job, Rejection> {
        ImageModels::new(&[sketch()]).generation(with(model, patch).to_string().as_bytes(), Utc::now())
    }

    #[track_caller]
    fn refused(patch: Value, param: &str, reason: Reason, message: &str) {
        let rejection = asked("sketch-1", &patch).expect_err("breaks a rule");
        let expected = Rejection::new(param, reason, message);
        assert_eq!(rejection, expected, "{patch}");
        // The image tool of a response has the same rules; there `n` is no field.
        if param == "n" {
            return;
        }
        let mut tool = patch;
        (tool["type"], tool["model"]) = ("image_generation".into(), "sketch-1".into());
        if let Some(tool) = tool.as_object_mut() {
            tool.remove("stream");
        }
        let body = json!({"model": "gpt-5.5", "input": "a", "tools": [tool]}).to_string();
        let answer = ImageModels::new(&[sketch()]).response(Bytes::from(body).into(), &HeaderMap::new(), Utc::now());
        let rejection = answer.expect_err("breaks a rule");
        assert_eq!(rejection, Rejection::new(format!("tools[0].{param}"), reason, message).into(), "as a tool");
    }

    #[test]
    fn a_model_can_be_asked_for_what_its_row_holds() {
        let most = json!({"size": "1024x1024", "quality": "draft", "background": "transparent", "n": 2,
            "output_compression": 100});
        let job = asked("sketch-1", &most).expect("within the rules");
        assert_eq!((job.model(), job.quality(), job.count()), ("sketch-1", Some("draft"), 2));
        assert!(asked("sketch-1", &json!({"stream": true, "partial_images": 1})).is_ok());
        assert!(asked("sketch-1", &json!({})).is_ok());
    }

    #[test]
    fn a_model_is_held_to_its_own_row() {
        let value = Reason::InvalidValue;
        let say = "Invalid size '1536x1024'. Supported values are: 'auto', '1024x1024', and '3840x2160'.";
        refused(json!({"size": "1536x1024"}), "size", value, say);
        let say = "Invalid size '1000x1000'. Width and height must both be divisible by 16.";
        refused(json!({"size": "1000x1000"}), "size", value, say);
        let say = "Invalid value: 'low'. Supported values are: 'draft' and 'high'.";
        refused(json!({"quality": "low"}), "quality", value, say);
        let say = "Invalid value: 'webp'. Supported values are: 'png' and 'jpeg'.";
        refused(json!({"output_format": "webp"}), "output_format", value, say);
        let say = "Invalid value: 'opaque'. Supported values are: 'auto' and 'transparent'.";
        refused(json!({"background": "opaque"}), "background", value, say);
        let say = "Invalid 'n': integer above maximum value. Expected a value <= 2, but got 3 instead.";
        refused(json!({"n": 3}), "n", Reason::IntegerAboveMax, say);
        let say = "The model 'sketch-1' does not support compression below 100.";
        refused(json!({"output_format": "jpeg", "output_compression": 80}), "output_compression", value, say);
        let say = "The model 'sketch-1' does not support the 'input_fidelity' parameter.";
        refused(json!({"input_fidelity": "high"}), "input_fidelity", value, say);
        let say = "Transparent background is only supported with 'output_format' 'png' or 'webp'.";
        refused(json!({"background": "transparent", "output_format": "jpeg"}), "background", value, say);
    }

    #[test]
    fn intermediate_images_are_held_to_the_row_too() {
        let rejection = asked("sketch-1", &json!({"stream": true, "partial_images": 2})).expect_err("one at most");
        assert_eq!(
            (rejection.param.as_deref(), rejection.reason),
            (Some("partial_images"), Some(Reason::IntegerAboveMax))
        );
    }

    #[test]
    fn the_models_of_the_document_keep_their_rules_beside_an_added_one() {
        let rejection = asked("gpt-image-2", &json!({"background": "transparent"})).expect_err("not for this model");
        let say = "Transparent background is not supported for this model. Supported values are: 'auto' and 'opaque'.";
        assert_eq!(rejection, Rejection::new("background", Reason::InvalidValue, say));
        let rejection = asked("gpt-image-2-2026-04-21", &json!({"input_fidelity": "low"})).expect_err("never");
        assert_eq!(rejection.message, "The model 'gpt-image-2' does not support the 'input_fidelity' parameter.");
        let rejection = asked("sketch-2", &json!({})).expect_err("unknown");
        let say =
            "Invalid value: 'sketch-2'. Supported values are: 'gpt-image-2', 'gpt-image-2-2026-04-21', and 'sketch-1'.";
        assert_eq!(rejection, Rejection::new("model", Reason::InvalidValue, say));
        assert!(asked("gpt-image-2", &json!({"size": "1536x1024", "quality": "low", "n": 10})).is_ok());
    }

    #[test]
    fn an_added_model_holds_no_conversation() {
        let body = json!({"model": "sketch-1", "input": "a"}).to_string();
        let answer = ImageModels::new(&[sketch()]).response(Bytes::from(body).into(), &HeaderMap::new(), Utc::now());
        assert_eq!(answer.expect_err("it draws").param(), Some("model"));
    }

    #[test]
    fn a_lesser_image_is_one_that_the_model_makes() {
        let job = asked("sketch-1", &json!({"size": "3840x2160", "quality": "high"})).expect("within the rules");
        let size = Size::new(1024, 1024).expect("a legal size");
        assert!(job.lowered(size, "draft").is_some());
        assert!(job.lowered(size, "medium").is_none());
        assert!(job.lowered(Size::new(1536, 1024).expect("a legal size"), "draft").is_none());
    }
}
