//! The job: a request for images that passed every rule.

use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use super::models;
use super::upstream_fields::UpstreamFields;
use crate::gateway::config::{ImageModelSpec, ModelAlias};
use crate::gateway::dialects::Adaptations;
use crate::gateway::spool::ImageUpload;
use crate::image::{Format, Size, SizeRequest};
use crate::tables::{IMAGE_EDIT_FIELDS, IMAGE_GENERATION_FIELDS, field};
use crate::wire::types::ImageGenerationRequest;

/// A request that passed every rule. Only the module `rules` makes one.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    model: String,
    prompt: String,
    count: u32,
    size: SizeRequest,
    quality: Option<String>,
    format: Format,
    compression: u8,
    is_stream: bool,
    partial_images: u32,
    end_user: Option<String>,
    turn: Option<String>,
    received_at: DateTime<Utc>,
    upstream_fields: UpstreamFields,
    edit_input: Option<EditInput>,
    model_spec: Arc<ImageModelSpec>,
    adaptations: Adaptations,
    model_alias: Option<ModelAlias>,
    has_renamed_user: bool,
}

/// The input of an edit.
#[derive(Clone, Debug)]
pub(crate) struct EditInput {
    /// At least one image, all of them checked.
    pub(crate) images: Vec<ImageUpload>,
    /// The mask, checked against the first image.
    pub(crate) mask: Option<ImageUpload>,
    /// The files of parts that only the model of the job has.
    pub(crate) files: Vec<ImageUpload>,
}

// === impl Job ===

impl Job {
    /// Makes a job from a request, which passed the rules of `model_spec`, and from the fields that are sent upstream.
    pub(super) fn new(
        model_spec: Arc<ImageModelSpec>,
        request: ImageGenerationRequest,
        upstream_fields: Map<String, Value>,
        received_at: DateTime<Utc>,
        edit_input: Option<EditInput>,
    ) -> Self {
        let size = request.size.and_then(|size| SizeRequest::parse_for_own_rules(&size.to_string()).ok());
        let compression = request.output_compression.and_then(|level| u8::try_from(level.get()).ok());
        Self {
            model: request.model.to_string(),
            prompt: request.prompt.into(),
            count: request.n.and_then(|count| u32::try_from(count.get()).ok()).unwrap_or(1),
            size: size.unwrap_or_default(),
            quality: request.quality.map(|quality| quality.to_string()),
            format: request.output_format.and_then(|format| format.to_string().parse().ok()).unwrap_or_default(),
            compression: compression.unwrap_or(100),
            is_stream: request.stream.unwrap_or(false),
            partial_images: request.partial_images.and_then(|count| u32::try_from(count.get()).ok()).unwrap_or(0),
            has_renamed_user: request.safety_identifier.is_some(),
            end_user: request.safety_identifier.or(request.user),
            turn: None,
            received_at,
            upstream_fields: UpstreamFields::new(upstream_fields),
            edit_input,
            model_spec,
            adaptations: Adaptations::default(),
            model_alias: None,
        }
    }

    /// Sets the name that the request has for the model, if it is not the id.
    pub(super) fn with_model_alias(self, model_alias: Option<ModelAlias>) -> Self {
        Self { model_alias, ..self }
    }

    /// Returns every change that was made to the request before it was checked, as the answer and the record state them.
    pub(crate) fn adapted_text(&self) -> Option<String> {
        let alias = self.model_alias.as_ref().map(ToString::to_string);
        let changes: Vec<String> = self.adaptations().text().into_iter().chain(alias).collect();
        (!changes.is_empty()).then(|| changes.join(", "))
    }

    /// Returns a copy of the job with another size and quality, if the model supports both.
    pub(crate) fn with_size_and_quality(&self, size: Size, quality: &str) -> Option<Self> {
        if !models::allows(&self.model_spec, size, quality) {
            return None;
        }
        let mut changed = self.clone();
        changed.size = SizeRequest::from(size);
        changed.quality = Some(quality.to_owned());
        let fields = changed.upstream_fields.change();
        fields.insert("size".to_owned(), Value::String(size.to_string()));
        fields.insert("quality".to_owned(), Value::String(quality.to_owned()));
        Some(changed)
    }

    /// Returns a copy of the job for one image, as one call of a fan-out.
    pub(crate) fn for_single_image(&self) -> Self {
        let mut single = self.clone();
        single.count = 1;
        single.upstream_fields.change().remove("n");
        single
    }

    /// Sets the changes that the dialects of the caller made to the request before it was checked.
    pub(crate) fn with_adaptations(self, adaptations: Adaptations) -> Self {
        Self { adaptations, ..self }
    }

    /// Returns the changes that the dialects of the caller made to the request. They are no part of its identity: equal
    /// adapted requests are equal.
    pub(crate) const fn adaptations(&self) -> &Adaptations {
        &self.adaptations
    }

    /// True if the gateway sends the caller's `safety_identifier` as `user`.
    pub(crate) const fn has_renamed_user(&self) -> bool {
        self.has_renamed_user
    }

    /// Sets the turn of the agent's conversation that the job is part of.
    pub(crate) fn with_turn(self, turn: Option<String>) -> Self {
        Self { turn, ..self }
    }

    /// Returns the turn of the agent's conversation that the job is part of. Equal requests of different turns are
    /// different requests.
    pub(crate) fn turn(&self) -> Option<&str> {
        self.turn.as_deref()
    }

    /// Returns the operation id in the API document.
    pub(crate) const fn operation_id(&self) -> &'static str {
        if self.edit_input.is_some() { "edit_image" } else { "create_image" }
    }

    /// Returns the prefix of the job's event names, before the dot.
    pub(crate) const fn event_prefix(&self) -> &'static str {
        if self.edit_input.is_some() { "image_edit" } else { "image_generation" }
    }

    /// Returns the model id; if the request has another name for the model, the id of the model.
    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    /// Returns the prompt. It is sent upstream and returned in the answer, but never written to a log or a record.
    pub(crate) fn prompt(&self) -> &str {
        &self.prompt
    }

    /// Returns the names and texts of the fields that only the model of the job has, each on a line of its own; `None` if
    /// there are none. An upstream may use them like the prompt.
    pub(crate) fn added_texts(&self) -> Option<String> {
        let is_added =
            |name: &str| [IMAGE_GENERATION_FIELDS, IMAGE_EDIT_FIELDS].iter().all(|table| field(table, name).is_none());
        let mut texts = String::new();
        for (name, value) in self.upstream_fields.iter().filter(|(name, _)| is_added(name)) {
            texts.extend([name, "\n"]);
            collect_texts(value, &mut texts);
        }
        (!texts.is_empty()).then_some(texts)
    }

    /// Returns the number of images that this job asks for.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of images as a length.
    pub(crate) const fn image_count(&self) -> usize {
        self.count as usize
    }

    /// Returns the size that this job asks for: pixels, or `auto`.
    pub(crate) const fn size(&self) -> SizeRequest {
        self.size
    }

    /// True if the job needs one of the slots for large images.
    pub(crate) fn is_large(&self) -> bool {
        self.size.exact().is_some_and(Size::is_large)
    }

    /// Returns the quality that this job asks for, if it names one.
    pub(crate) fn quality(&self) -> Option<&str> {
        self.quality.as_deref()
    }

    /// Returns the file format that the job asks for.
    pub(crate) const fn format(&self) -> Format {
        self.format
    }

    /// Returns the compression level, 0 to 100; at 100 the image has its best quality.
    pub(crate) const fn compression(&self) -> u8 {
        self.compression
    }

    /// True if the caller asked for a stream of events.
    pub(crate) const fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Returns the number of intermediate images that were requested.
    pub(crate) const fn partial_images(&self) -> u32 {
        self.partial_images
    }

    /// Returns the caller's identifier of its end user, if the request has one.
    pub(crate) fn end_user(&self) -> Option<&str> {
        self.end_user.as_deref()
    }

    /// Returns the time at which the request arrived.
    pub(crate) const fn received_at(&self) -> DateTime<Utc> {
        self.received_at
    }

    /// Returns the fields that are sent upstream.
    pub(crate) fn upstream_fields(&self) -> &Map<String, Value> {
        &self.upstream_fields
    }

    /// Returns these fields as a JSON object, in the order of their names.
    ///
    /// # Errors
    ///
    /// Returns an error if a value cannot be serialized.
    pub(crate) fn upstream_json(&self) -> serde_json::Result<&Bytes> {
        self.upstream_fields.json()
    }

    /// True if only an upstream with the image endpoints can serve the job: the image tool takes no other files.
    pub(crate) fn needs_image_endpoints(&self) -> bool {
        self.edit_input.as_ref().is_some_and(|input| !input.files.is_empty())
    }

    /// Returns the input of an edit; a generation has none.
    pub(crate) const fn edit_input(&self) -> Option<&EditInput> {
        self.edit_input.as_ref()
    }
}

/// Adds the texts of a value and the names of its members, each on a line of its own.
fn collect_texts(value: &Value, texts: &mut String) {
    match value {
        Value::String(text) => texts.extend([text, "\n"]),
        Value::Array(elements) => {
            for element in elements {
                collect_texts(element, texts);
            }
        }
        Value::Object(members) => {
            for (name, value) in members {
                texts.extend([name, "\n"]);
                collect_texts(value, texts);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
