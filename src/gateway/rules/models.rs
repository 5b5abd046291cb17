//! The image models, and the restrictions of each model on the fields of a request.

use std::sync::Arc;

use super::added_fields::AddedNames;
use super::fields::{FieldRestriction, join_words};
use crate::gateway::config::{Config, ImageModelSpec, ModelAlias};
use crate::image::Size;

/// The available image models: those of the document, then those that the operator has added.
#[derive(Clone, Debug)]
pub(crate) struct ImageModels {
    models: Arc<[Arc<ImageModelSpec>]>,
    aliases: Arc<[ModelAlias]>,
    added_names: Arc<AddedNames>,
    are_listed: bool,
}

// === impl ImageModels ===

impl ImageModels {
    /// Makes the list of the models of the document, and of the added ones.
    pub(crate) fn new(added: &[ImageModelSpec]) -> Self {
        let models = ImageModelSpec::documented().chain(added.iter().cloned());
        let added_names = Arc::new(AddedNames::new(added.iter()));
        Self { models: models.map(Arc::new).collect(), aliases: Arc::default(), added_names, are_listed: false }
    }

    /// Makes the list of the models of the settings, with the other names for them.
    pub(crate) fn from_config(config: &Config) -> Self {
        let models = Self::new(&config.image_models).with_aliases(&config.model_aliases);
        Self { are_listed: config.list_image_models, ..models }
    }

    /// Returns the same models, with the other names that callers of this group may use.
    pub(crate) fn for_group(&self, group: &str) -> Self {
        if self.aliases.iter().all(|alias| alias.serves(group)) {
            return self.clone();
        }
        Self { aliases: self.aliases.iter().filter(|alias| alias.serves(group)).cloned().collect(), ..self.clone() }
    }

    fn with_aliases(self, aliases: &[ModelAlias]) -> Self {
        Self { aliases: aliases.into(), ..self }
    }

    /// True if `GET /v1/models` lists image models too.
    pub(crate) const fn are_listed(&self) -> bool {
        self.are_listed
    }

    /// Returns the alias with this name.
    pub(super) fn alias(&self, name: &str) -> Option<&ModelAlias> {
        self.aliases.iter().find(|alias| alias.alias == name)
    }

    /// Returns the names that the form of an edit may have in addition to those of the API document.
    pub(crate) fn added_names(&self) -> Arc<AddedNames> {
        Arc::clone(&self.added_names)
    }

    /// Returns all models, in their order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<ImageModelSpec>> {
        self.models.iter()
    }

    /// True if an image model has this id, or if it is another name for one.
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.find(id).is_some()
    }

    /// Returns the model with this id, or the one for which it is another name.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<ImageModelSpec>> {
        let id = self.alias(id).map_or(id, |alias| &alias.model);
        self.models.iter().find(|model| model.id == id).cloned()
    }

    /// Returns the model with this id. If the id is absent or unknown, returns the default model; a later check rejects
    /// an unknown id.
    pub(super) fn model_or_default(&self, id: Option<&str>) -> Arc<ImageModelSpec> {
        let found = self.models.iter().find(|model| Some(model.id.as_str()) == id);
        found.cloned().unwrap_or_else(|| Arc::new(ImageModelSpec::default_model()))
    }

    /// Returns the ids of all models, and the other names for them.
    fn names(&self) -> impl Iterator<Item = &str> {
        let ids = self.models.iter().map(|model| model.id.as_str());
        ids.chain(self.aliases.iter().map(|alias| alias.alias.as_str()))
    }

    /// Returns the values that a field may have for this model; `None` if those of the document's table apply.
    pub(super) fn restriction<'a>(&'a self, model: &'a ImageModelSpec, field: &str) -> Option<FieldRestriction<'a>> {
        match field {
            "model" => Some(FieldRestriction::Words(self.names().collect())),
            "quality" => Some(word_restriction(&model.qualities)),
            "output_format" => Some(word_restriction(&model.formats)),
            "background" => Some(word_restriction(&model.backgrounds)),
            "size" => size_restriction(model),
            "input_fidelity" if !model.fidelities.is_empty() => Some(word_restriction(&model.fidelities)),
            "n" => Some(FieldRestriction::AtMost(model.max_images.into())),
            "partial_images" => Some(FieldRestriction::AtMost(model.max_partial_images.into())),
            _ => None,
        }
    }
}

impl Default for ImageModels {
    fn default() -> Self {
        Self::new(&[])
    }
}

fn word_restriction(words: &[String]) -> FieldRestriction<'_> {
    FieldRestriction::Words(words.iter().map(String::as_str).collect())
}

fn size_restriction(model: &ImageModelSpec) -> Option<FieldRestriction<'_>> {
    match &model.sizes {
        Some(sizes) => Some(FieldRestriction::Sizes(sizes.iter().map(String::as_str).collect())),
        None => model.size_rules.as_ref().map(FieldRestriction::SizeRules),
    }
}

/// Lists the backgrounds that a model supports, for a message.
pub(super) fn supported_backgrounds_text(model: &ImageModelSpec) -> String {
    join_words(&model.backgrounds.iter().map(String::as_str).collect::<Vec<_>>())
}

/// True if the model supports this size and quality.
pub(super) fn allows(model: &ImageModelSpec, size: Size, quality: &str) -> bool {
    let supports_size = match &model.sizes {
        Some(sizes) => sizes.contains(&size.to_string()),
        None => model.size_rules.as_ref().is_none_or(|rules| rules.allow(size.width(), size.height())),
    };
    supports_size && model.qualities.iter().any(|supported| supported == quality)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use chrono::Utc;
    use http::HeaderMap;
    use serde_json::{Value, json};

    use super::*;
    use crate::error::{Rejection, RejectionReason};
    use crate::gateway::dialects::ToolChanges;
    use crate::gateway::rules::Job;
    use crate::image::ByteSource as _;

    fn sketch_model() -> ImageModelSpec {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        ImageModelSpec {
            id: "sketch-1".to_owned(),
            name: "sketch-1".to_owned(),
            sizes: Some(words(&["auto", "1024x1024", "3840x2160"])),
            qualities: words(&["draft", "high"]),
            formats: words(&["png", "jpeg"]),
            backgrounds: words(&["auto", "transparent"]),
            max_images: 2,
            max_partial_images: 1,
            compression: false,
            ..ImageModelSpec::default_model()
        }
    }

    fn body_with(model: &str, patch: &Value) -> Value {
        let mut body = json!({"model": model, "prompt": "red"});
        for (name, value) in patch.as_object().expect("an object") {
            body[name] = value.clone();
        }
        body
    }

    fn check_job(model: &str, patch: &Value) -> Result<Job, Rejection> {
        ImageModels::new(&[sketch_model()]).check_generation(body_with(model, patch).to_string().as_bytes(), Utc::now())
    }

    #[track_caller]
    fn check_refused(patch: Value, param: &str, reason: RejectionReason, message: &str) {
        let rejection = check_job("sketch-1", &patch).expect_err("breaks a rule");
        let expected = Rejection::new(param, reason, message);
        assert_eq!(rejection, expected, "{patch}");
        // The image tool of a response has the same rules, but no field `n`.
        if param == "n" {
            return;
        }
        let mut tool = patch;
        (tool["type"], tool["model"]) = ("image_generation".into(), "sketch-1".into());
        if let Some(tool) = tool.as_object_mut() {
            tool.remove("stream");
        }
        let body = json!({"model": "gpt-5.5", "input": "a", "tools": [tool]}).to_string();
        let result = ImageModels::new(&[sketch_model()]).check_response(
            Bytes::from(body).into(),
            &HeaderMap::new(),
            Utc::now(),
            &mut ToolChanges::default(),
        );
        let rejection = result.expect_err("breaks a rule");
        assert_eq!(rejection, Rejection::new(format!("tools[0].{param}"), reason, message).into(), "as a tool");
    }

    #[test]
    fn a_model_accepts_the_values_of_its_spec() {
        let patch = json!({"size": "1024x1024", "quality": "draft", "background": "transparent", "n": 2,
            "output_compression": 100});
        let job = check_job("sketch-1", &patch).expect("within the rules");
        assert_eq!((job.model(), job.quality(), job.count()), ("sketch-1", Some("draft"), 2));
        assert!(check_job("sketch-1", &json!({"stream": true, "partial_images": 1})).is_ok());
        assert!(check_job("sketch-1", &json!({})).is_ok());
    }

    #[test]
    fn a_model_refuses_values_that_are_not_in_its_spec() {
        let value = RejectionReason::InvalidValue;
        let message = "Invalid size '1536x1024'. Supported values are: 'auto', '1024x1024', and '3840x2160'.";
        check_refused(json!({"size": "1536x1024"}), "size", value, message);
        let message = "Invalid size '1000x1000'. Supported values are: 'auto', '1024x1024', and '3840x2160'.";
        check_refused(json!({"size": "1000x1000"}), "size", value, message);
        let message = "Invalid value: 'low'. Supported values are: 'draft' and 'high'.";
        check_refused(json!({"quality": "low"}), "quality", value, message);
        let message = "Invalid value: 'webp'. Supported values are: 'png' and 'jpeg'.";
        check_refused(json!({"output_format": "webp"}), "output_format", value, message);
        let message = "Invalid value: 'opaque'. Supported values are: 'auto' and 'transparent'.";
        check_refused(json!({"background": "opaque"}), "background", value, message);
        let message = "Invalid 'n': integer above maximum value. Expected a value <= 2, but got 3 instead.";
        check_refused(json!({"n": 3}), "n", RejectionReason::IntegerAboveMax, message);
        let message = "The model 'sketch-1' does not support compression below 100.";
        check_refused(json!({"output_format": "jpeg", "output_compression": 80}), "output_compression", value, message);
        let message = "The model 'sketch-1' does not support the 'input_fidelity' parameter.";
        check_refused(json!({"input_fidelity": "high"}), "input_fidelity", value, message);
        let message = "Transparent background is only supported with 'output_format' 'png' or 'webp'.";
        check_refused(json!({"background": "transparent", "output_format": "jpeg"}), "background", value, message);
    }

    #[test]
    fn the_spec_limits_intermediate_images_too() {
        let rejection = check_job("sketch-1", &json!({"stream": true, "partial_images": 2})).expect_err("one at most");
        assert_eq!(
            (rejection.param.as_deref(), rejection.reason),
            (Some("partial_images"), Some(RejectionReason::IntegerAboveMax))
        );
    }

    #[test]
    fn an_added_model_does_not_change_the_documented_models() {
        let rejection =
            check_job("gpt-image-2", &json!({"background": "transparent"})).expect_err("not for this model");
        let message =
            "Transparent background is not supported for this model. Supported values are: 'auto' and 'opaque'.";
        assert_eq!(rejection, Rejection::new("background", RejectionReason::InvalidValue, message));
        let rejection = check_job("gpt-image-2-2026-04-21", &json!({"input_fidelity": "low"})).expect_err("never");
        assert_eq!(rejection.message, "The model 'gpt-image-2' does not support the 'input_fidelity' parameter.");
        let rejection = check_job("sketch-2", &json!({})).expect_err("unknown");
        let message =
            "Invalid value: 'sketch-2'. Supported values are: 'gpt-image-2', 'gpt-image-2-2026-04-21', and 'sketch-1'.";
        assert_eq!(rejection, Rejection::new("model", RejectionReason::InvalidValue, message));
        assert!(check_job("gpt-image-2", &json!({"size": "1536x1024", "quality": "low", "n": 10})).is_ok());
    }

    fn aliased() -> ImageModels {
        let alias =
            |alias: &str, model: &str| ModelAlias { alias: alias.to_owned(), model: model.to_owned(), groups: None };
        ImageModels::new(&[sketch_model()])
            .with_aliases(&[alias("gpt-image-1", "gpt-image-2"), alias("draft", "sketch-1")])
    }

    #[test]
    fn an_alias_stands_for_its_model_and_the_job_states_it() {
        let check = |body: Value| aliased().check_generation(body.to_string().as_bytes(), Utc::now());
        let job = check(json!({"model": "gpt-image-1", "prompt": "red"})).expect("an alias");
        assert_eq!((job.model(), &job.upstream_fields()["model"]), ("gpt-image-2", &json!("gpt-image-2")));
        assert_eq!(job.adapted_text().as_deref(), Some("model gpt-image-1->gpt-image-2"));
        assert_eq!(check(json!({"model": "gpt-image-2", "prompt": "red"})).expect("a model").adapted_text(), None);
        // The rules are those of the model.
        let rejection = check(json!({"model": "draft", "prompt": "red", "quality": "low"})).expect_err("no such word");
        assert_eq!(rejection.param.as_deref(), Some("quality"));
        let rejection = check(json!({"model": "other", "prompt": "red"})).expect_err("unknown");
        assert!(rejection.message.ends_with("'sketch-1', 'gpt-image-1', and 'draft'."), "{}", rejection.message);
    }

    #[test]
    fn an_alias_in_an_image_tool_is_replaced_in_the_body() {
        let body = r#"{"model":"gpt-5.5","input":"a", "tools": [{"type":"image_generation","model" : "draft","quality":"draft"},{"type":"image_generation","model":"gpt-image-1"},{"type":"image_generation","model":"gpt-image-2"}]}"#;
        let job = aliased()
            .check_response(Bytes::from(body).into(), &HeaderMap::new(), Utc::now(), &mut ToolChanges::default())
            .expect("aliases");
        let sent: Vec<u8> = job
            .body_pieces()
            .iter()
            .flat_map(|piece| {
                let mut bytes = vec![0; usize::try_from(piece.len()).expect("a length")];
                piece.read_at(0, &mut bytes).expect("readable");
                bytes
            })
            .collect();
        let expected = body.replacen("\"draft\"", "\"sketch-1\"", 1).replace("gpt-image-1", "gpt-image-2");
        assert_eq!(String::from_utf8(sent).expect("text"), expected);
        let expected = "tools[0].model draft->sketch-1, tools[1].model gpt-image-1->gpt-image-2";
        assert_eq!(job.adapted_text().as_deref(), Some(expected));
        let body = json!({"model": "draft", "input": "a"}).to_string();
        let refused = aliased().check_response(
            Bytes::from(body).into(),
            &HeaderMap::new(),
            Utc::now(),
            &mut ToolChanges::default(),
        );
        assert_eq!(refused.expect_err("an image model").param(), Some("model"));
    }

    #[test]
    fn an_added_image_model_cannot_answer_responses() {
        let body = json!({"model": "sketch-1", "input": "a"}).to_string();
        let result = ImageModels::new(&[sketch_model()]).check_response(
            Bytes::from(body).into(),
            &HeaderMap::new(),
            Utc::now(),
            &mut ToolChanges::default(),
        );
        assert_eq!(result.expect_err("an image model").param(), Some("model"));
    }

    #[test]
    fn a_fallback_must_be_supported_by_the_model() {
        let job = check_job("sketch-1", &json!({"size": "3840x2160", "quality": "high"})).expect("within the rules");
        let size = Size::new(1024, 1024).expect("a legal size");
        assert!(job.with_size_and_quality(size, "draft").is_some());
        assert!(job.with_size_and_quality(size, "medium").is_none());
        assert!(job.with_size_and_quality(Size::new(1536, 1024).expect("a legal size"), "draft").is_none());
    }
}
