//! Resolves models: the text models to list, and the image models that the operator adds.

use std::collections::BTreeMap;

use super::ConfigResolver;
use super::written::written_settings;
use crate::gateway::config::config_file::join_path;
use crate::gateway::config::raw::RawImageModel;
use crate::gateway::config::{GroupConfig, ImageModelSpec, ModelAlias, SizeRules};
use crate::image::SizeRequest;
use crate::tables::{FieldKind, IMAGE_GENERATION_FIELDS, IMAGE_MODELS, field};

/// The longest word for a quality, in bytes (our choice): an error message lists all words, and no known API has a
/// longer one.
const LONGEST_WORD: usize = 32;
/// The settings of another name for a model; all others are rules.
const ALIAS_SETTINGS: [&str; 3] = ["id", "alias_of", "groups"];
/// The longest id of a model, in bytes (our choice).
const LONGEST_ID: usize = 128;

impl ConfigResolver<'_> {
    /// Reads a list of models: checks every id, and that no id occurs twice.
    pub(super) fn model_ids(&mut self, path: &str, name: &str, models: Option<&[String]>) -> Option<Vec<String>> {
        let models = models?;
        self.check_model_ids(path, name, models);
        Some(self.value(path, name, models.to_vec()))
    }

    pub(super) fn check_model_ids(&mut self, path: &str, name: &str, models: &[String]) {
        for (index, model) in models.iter().enumerate() {
            let setting = format!("{}[{index}]", join_path(path, name));
            self.check_model_id(&setting, model);
            if models[..index].contains(model) {
                self.report(&setting, "is listed twice");
            }
        }
    }

    /// Resolves the image models that the file adds, and the other names for models.
    pub(super) fn image_models(
        &mut self,
        text_models: Option<&[String]>,
        groups: &[GroupConfig],
    ) -> (Vec<ImageModelSpec>, Vec<ModelAlias>) {
        let raw = self.raw.models.as_deref().unwrap_or_default();
        let (mut models, mut aliases, mut used_ids) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (index, table) in raw.iter().enumerate() {
            let path = format!("models[{index}]");
            let id = table.id.as_deref().unwrap_or_default();
            self.text(&path, "id", id);
            self.check_image_model_id(&format!("{path}.id"), id, text_models.unwrap_or_default());
            self.check_unused_id(&format!("{path}.id"), table, &mut used_ids);
            self.check_alias_groups(&format!("{path}.groups"), table, groups);
            match &table.alias_of {
                Some(model) => {
                    self.check_alias(&path, table, model, raw);
                    aliases.push(ModelAlias {
                        alias: id.to_owned(),
                        model: self.text(&path, "alias_of", model.clone()),
                        groups: self.value(&path, "groups", table.groups.clone()),
                    });
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
        if written_settings(table).keys().any(|setting| !ALIAS_SETTINGS.contains(&setting.as_str())) {
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
        if raw.sizes.is_some() && raw.size_rules.is_some() {
            self.report(&format!("{path}.size_rules"), "cannot be combined with `sizes`");
        }
        let sizes = raw.sizes.as_ref().or(base.sizes.as_ref());
        let fidelities = raw.input_fidelity.as_ref().filter(|words| !words.is_empty());
        let max_partial_images = raw.max_partial_images.unwrap_or(base.max_partial_images);
        ImageModelSpec {
            id: id.to_owned(),
            name: id.to_owned(),
            sizes: sizes.map(|sizes| self.words((path, "sizes"), Some(sizes), size_fault, Vec::new())),
            qualities: self.words((path, "qualities"), raw.qualities.as_ref(), word_fault, base.qualities),
            formats: self.words((path, "formats"), raw.formats.as_ref(), word_fault, base.formats),
            backgrounds: self.words((path, "backgrounds"), raw.backgrounds.as_ref(), word_fault, base.backgrounds),
            fidelities: self.words((path, "input_fidelity"), fidelities, word_fault, Vec::new()),
            max_images: self.count(path, "max_images", "n", raw.max_images.unwrap_or(base.max_images)),
            max_partial_images: self.count(path, "max_partial_images", "partial_images", max_partial_images),
            compression: self.value_or(path, "compression", raw.compression, base.compression),
            can_stream: self.value_or(path, "stream", raw.stream, base.can_stream),
            passes_unknown: self.value_or(path, "passthrough", raw.passthrough, base.passes_unknown),
            size_rules: raw.size_rules.as_ref().map(|rules| self.size_rules(&format!("{path}.size_rules"), rules)),
            fields: self.model_fields(path, raw.fields.as_deref().unwrap_or_default()),
            file_parts: self.file_parts(path, raw.file_parts.as_deref().unwrap_or_default()),
        }
    }

    fn size_rules(&mut self, path: &str, rules: &SizeRules) -> SizeRules {
        SizeRules {
            multiple_of: self.value(path, "multiple_of", rules.multiple_of),
            min_edge: self.value(path, "min_edge", rules.min_edge),
            max_edge: self.value(path, "max_edge", rules.max_edge),
            min_pixels: self.value(path, "min_pixels", rules.min_pixels),
            max_pixels: self.value(path, "max_pixels", rules.max_pixels),
            max_ratio: self.value(path, "max_ratio", rules.max_ratio),
        }
    }

    /// Checks that a list has at least one word, and that each word is valid and occurs once.
    pub(super) fn check_list(&mut self, setting: &str, list: &[String], fault: fn(&str) -> Option<String>) {
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
    }

    /// Reads a list of words with a default. An empty list is not shown.
    fn words(
        &mut self,
        (path, name): (&str, &str),
        written: Option<&Vec<String>>,
        fault: fn(&str) -> Option<String>,
        default: Vec<String>,
    ) -> Vec<String> {
        if let Some(list) = written {
            self.check_list(&format!("{path}.{name}"), list, fault);
        }
        self.texts(path, name, written.cloned().unwrap_or(default))
    }

    /// Reads a number within the limits that the API document states for a field.
    fn count(&mut self, path: &str, name: &str, field_name: &str, count: u32) -> u32 {
        if let Some(FieldKind::Integer { min, max }) =
            field(IMAGE_GENERATION_FIELDS, field_name).map(|field| field.kind)
            && !(min..=max).contains(&i64::from(count))
        {
            self.report(&format!("{path}.{name}"), &format!("must be from {min} to {max}"));
        }
        self.value(path, name, count)
    }

    /// Checks that a text can be the id of a model in a request and at an upstream.
    pub(super) fn check_model_id(&mut self, setting: &str, model: &str) {
        if model.is_empty() || model.len() > LONGEST_ID || !model.bytes().all(|byte| byte.is_ascii_graphic()) {
            self.report(setting, "must be the id of a model, without spaces");
        }
    }
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
