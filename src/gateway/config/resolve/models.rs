//! Resolves models: the text models to list, and the image models that the operator adds.

use std::collections::BTreeMap;

use super::ConfigResolver;
use crate::gateway::config::raw::RawImageModel;
use crate::gateway::config::{GroupConfig, ImageModelSpec, ModelAlias, SizeRules};
use crate::image::SizeRequest;
use crate::tables::{FieldKind, IMAGE_GENERATION_FIELDS, IMAGE_MODELS, field};

/// The longest word for a quality, in bytes (our choice): an error message lists all words, and no known API has a
/// longer one.
const LONGEST_WORD: usize = 32;
/// The longest id of a model, in bytes (our choice).
const LONGEST_ID: usize = 128;

impl ConfigResolver<'_> {
    /// Resolves the text models to list, if the file names them.
    pub(super) fn text_models(&mut self) -> Option<Vec<String>> {
        let models = self.layers.file.raw.text_models.clone()?;
        Some(self.check_model_ids("text_models", &models))
    }

    /// Checks every id of a list, and that no id occurs twice.
    pub(super) fn check_model_ids(&mut self, path: &str, models: &[String]) -> Vec<String> {
        for (index, model) in models.iter().enumerate() {
            let setting = format!("{path}[{index}]");
            self.check_model_id(&setting, model);
            if models[..index].contains(model) {
                self.report(&setting, "is listed twice");
            }
        }
        models.to_vec()
    }

    /// Resolves the image models that the file adds, and the other names for models.
    pub(super) fn image_models(
        &mut self,
        text_models: Option<&[String]>,
        groups: &[GroupConfig],
    ) -> (Vec<ImageModelSpec>, Vec<ModelAlias>) {
        let raw = self.layers.file.raw.models.as_deref().unwrap_or_default();
        let (mut models, mut aliases, mut used_ids) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (index, table) in raw.iter().enumerate() {
            let path = format!("models[{index}]");
            let id = table.id.as_deref().unwrap_or_default();
            self.check_image_model_id(&format!("{path}.id"), id, text_models.unwrap_or_default());
            self.check_unused_id(&format!("{path}.id"), table, &mut used_ids);
            self.check_alias_groups(&format!("{path}.groups"), table, groups);
            match &table.alias_of {
                Some(model) => {
                    self.check_alias(&path, table, model, raw);
                    let groups = table.groups.clone();
                    aliases.push(ModelAlias { alias: id.to_owned(), model: model.clone(), groups });
                }
                None => models.push(self.image_model(&path, id, table)),
            }
        }
        (models, aliases)
    }

    /// Checks that another name stands for a model, and has no rules.
    fn check_alias(&mut self, path: &str, table: &RawImageModel, model: &str, tables: &[RawImageModel]) {
        let setting = format!("{path}.alias_of");
        let is_added = |other: &RawImageModel| other.id.as_deref() == Some(model) && other.alias_of.is_none();
        if IMAGE_MODELS.iter().all(|row| row.id != model) && !tables.iter().any(is_added) {
            self.report(&setting, &format!("`{model}` is not an image model"));
        }
        if table.has_rules() {
            self.report(&setting, "cannot be combined with rules: they are those of the model");
        }
    }

    /// Checks that only another name names groups, and that each of them is a group.
    fn check_alias_groups(&mut self, setting: &str, table: &RawImageModel, groups: &[GroupConfig]) {
        let Some(names) = &table.groups else { return };
        if table.alias_of.is_none() {
            self.report(setting, "is only for another name of a model, with `alias_of`");
        }
        if names.is_empty() {
            self.report(setting, "must name at least one group; leave it out for all groups");
        }
        self.check_groups(setting, names, groups);
    }

    /// Checks that no other table has the id, except another name for groups that the other table does not name.
    fn check_unused_id<'a>(
        &mut self,
        setting: &str,
        table: &'a RawImageModel,
        used_ids: &mut BTreeMap<&'a str, Vec<&'a RawImageModel>>,
    ) {
        let tables = used_ids.entry(table.id.as_deref().unwrap_or_default()).or_default();
        let is_for_other_groups = |other: &&RawImageModel| match (&other.groups, &table.groups) {
            (Some(others), Some(groups)) => others.iter().all(|group| !groups.contains(group)),
            _ => false,
        };
        let is_used = !tables.iter().all(is_for_other_groups);
        tables.push(table);
        let id = table.id.as_deref().unwrap_or_default();
        if is_used && IMAGE_MODELS.iter().all(|row| row.id != id) {
            self.report(setting, &format!("`{id}` is already used"));
        }
    }

    fn check_image_model_id(&mut self, setting: &str, id: &str, text_models: &[String]) {
        self.check_model_id(setting, id);
        if IMAGE_MODELS.iter().any(|row| row.id == id) {
            self.report(setting, &format!("`{id}` is a built-in model, whose rules are fixed"));
        } else if text_models.iter().any(|model| model == id) {
            self.report(
                setting,
                &format!("`{id}` is also listed in `text_models`; a model is either an image model or a text model"),
            );
        }
    }

    /// Resolves an added image model. Settings that are left out have the values of the first model of the API
    /// document.
    fn image_model(&mut self, path: &str, id: &str, raw: &RawImageModel) -> ImageModelSpec {
        let base = ImageModelSpec::default_model();
        let formats = raw.formats.as_ref().map(|formats| words(formats, |format| format.as_str()));
        let backgrounds =
            raw.backgrounds.as_ref().map(|backgrounds| words(backgrounds, |background| background.as_str()));
        if raw.sizes.is_some() && raw.size_rules.is_some() {
            self.report(&format!("{path}.size_rules"), "cannot be combined with `sizes`");
        }
        let size_rules = raw.size_rules.as_ref().map(|rules| SizeRules {
            multiple_of: rules.multiple_of,
            min_edge: rules.min_edge,
            max_edge: rules.max_edge,
            min_pixels: rules.min_pixels,
            max_pixels: rules.max_pixels,
            max_ratio: rules.max_ratio,
        });
        ImageModelSpec {
            id: id.to_owned(),
            name: id.to_owned(),
            size_rules,
            fidelities: self
                .check_list(
                    &format!("{path}.input_fidelity"),
                    raw.input_fidelity.clone().filter(|words| !words.is_empty()),
                    word_fault,
                )
                .unwrap_or_default(),
            can_stream: raw.stream.unwrap_or(base.can_stream),
            fields: self.model_fields(path, raw.fields.as_deref().unwrap_or_default()),
            file_parts: self.file_parts(path, raw.file_parts.as_deref().unwrap_or_default()),
            passes_unknown: raw.passthrough.unwrap_or(base.passes_unknown),
            sizes: self.check_list(&format!("{path}.sizes"), raw.sizes.clone(), size_fault).or(base.sizes),
            qualities: self
                .check_list(&format!("{path}.qualities"), raw.qualities.clone(), word_fault)
                .unwrap_or(base.qualities),
            formats: self.check_list(&format!("{path}.formats"), formats, |_| None).unwrap_or(base.formats),
            backgrounds: self
                .check_list(&format!("{path}.backgrounds"), backgrounds, |_| None)
                .unwrap_or(base.backgrounds),
            max_images: self.check_count(&format!("{path}.max_images"), "n", raw.max_images).unwrap_or(base.max_images),
            max_partial_images: self
                .check_count(&format!("{path}.max_partial_images"), "partial_images", raw.max_partial_images)
                .unwrap_or(base.max_partial_images),
            compression: raw.compression.unwrap_or(base.compression),
        }
    }

    /// Checks that a list has at least one word, and that each word is valid and occurs once.
    pub(super) fn check_list(
        &mut self,
        setting: &str,
        list: Option<Vec<String>>,
        fault: fn(&str) -> Option<String>,
    ) -> Option<Vec<String>> {
        let list = list?;
        if list.is_empty() {
            self.report(setting, "must have at least one entry; leave it out to use the values of `gpt-image-2`");
        }
        for (index, word) in list.iter().enumerate() {
            let setting = format!("{setting}[{index}]");
            if let Some(fault) = fault(word) {
                self.report(&setting, &fault);
            } else if list[..index].contains(word) {
                self.report(&setting, "is listed twice");
            }
        }
        Some(list)
    }

    /// Checks that a number is within the limits that the API document states for a field.
    fn check_count(&mut self, setting: &str, name: &str, count: Option<u32>) -> Option<u32> {
        let count = count?;
        if let Some(FieldKind::Integer { min, max }) = field(IMAGE_GENERATION_FIELDS, name).map(|field| field.kind)
            && !(min..=max).contains(&i64::from(count))
        {
            self.report(setting, &format!("must be from {min} to {max}"));
        }
        Some(count)
    }

    /// Checks that a text can be the id of a model in a request and at an upstream.
    pub(super) fn check_model_id(&mut self, setting: &str, model: &str) {
        if model.is_empty() || model.len() > LONGEST_ID || !model.bytes().all(|byte| byte.is_ascii_graphic()) {
            self.report(setting, "must be the id of a model, without spaces");
        }
    }
}

fn words<T>(list: &[T], word: impl Fn(&T) -> &'static str) -> Vec<String> {
    list.iter().map(|item| word(item).to_owned()).collect()
}

fn size_fault(word: &str) -> Option<String> {
    let fault = SizeRequest::parse_for_own_rules(word).err();
    fault.map(|error| format!("is not a possible size: {error}"))
}

pub(super) fn word_fault(word: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_word = !word.is_empty() && word.len() <= LONGEST_WORD && word.bytes().all(fits);
    (!is_word).then(|| format!("must be a word of 1 to {LONGEST_WORD} letters, digits, `.`, `_` or `-`"))
}
