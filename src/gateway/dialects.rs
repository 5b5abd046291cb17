//! Adapts a request to the API before the rules check it: the dialects that a group or key declares.
//!
//! A dialect changes only what the rules would refuse, and every change is an [`Adaptation`] that the answer and the
//! record state. Without a declared dialect, no request is changed. Pure: it knows no callers and no rules, and the
//! result is checked like any other request.

mod sizes;
mod tool_changes;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::config::{Dialect, DialectSet, ImageModelSpec};
pub(crate) use tool_changes::ToolChanges;

/// The names and prefixes of earlier image models, which the dialect `models` replaces. A prefix ends here, or before one
/// of the [`NAME_SEPARATORS`].
const EARLIER_MODELS: [&str; 3] = ["dall-e", "gpt-image-1", "chatgpt-image"];
const NAME_SEPARATORS: [char; 2] = ['-', '.'];
/// The longest name of a model or deployment in bytes (our choice) that a dialect reads, because the answer and the record
/// state it.
const NAME_MAX: usize = 64;
/// The models with this prefix answer with links unless a request asks for something else.
const MODELS_WITH_LINKS: &str = "dall-e";
/// The words for `quality` of earlier models, each with the word that replaces it.
pub(crate) const EARLIER_QUALITIES: [(&str, &str); 2] = [("standard", "medium"), ("hd", "high")];
/// The field of earlier models that no image model has.
pub(crate) const STYLE: &str = "style";
/// The field that the rules know, so that its rejection names the model.
const INPUT_FIDELITY: &str = "input_fidelity";
/// The name that some clients give the part with the mask.
const MASK_LIST: &str = "mask[]";

/// One change of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Adaptation {
    /// The dialect that makes the change.
    pub(crate) dialect: Dialect,
    /// The field that was changed.
    pub(crate) field: Cow<'static, str>,
    change: Change,
}

/// The kind of a change, with the texts that state it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    /// A value took the place of another.
    Replaced { old: String, new: String },
    /// A field that was absent or `null` got a value.
    Added(String),
    /// A field was removed.
    Dropped,
    /// A part was read as the field of another name.
    Renamed(&'static str),
    /// The answer has the form that this word of the field asks for.
    Answered(&'static str),
}

/// The changes of a request, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Adaptations(Vec<Adaptation>);

/// Changes the fields of a request as the declared dialects demand, and returns the changes. `deployment` is the name in a
/// path of Azure, and `find_model` returns the image model with an id.
pub(crate) fn adapt(
    declared: DialectSet,
    deployment: Option<&str>,
    find_model: impl Fn(&str) -> Option<Arc<ImageModelSpec>>,
    fields: &mut Map<String, Value>,
) -> Adaptations {
    let mut adaptations = Adaptations::default();
    if declared.is_empty() {
        return adaptations;
    }
    let mut adapter = RequestAdapter { declared, fields, adaptations: &mut adaptations };
    adapter.add_deployment(deployment);
    let asked = adapter.text("model").filter(|name| name.starts_with(MODELS_WITH_LINKS)).map(str::to_owned);
    adapter.adapt_model(&find_model);
    let expects_links = asked.is_some() && adapter.text("model") != asked.as_deref();
    adapter.adapt_to_model(&find_model, true);
    adapter.adapt_response_format(expects_links);
    adaptations
}

/// Changes the fields of an image tool in the same way. A tool may leave out its model, has no fields of added models, and
/// never has links.
pub(crate) fn adapt_image_tool(
    declared: DialectSet,
    find_model: impl Fn(&str) -> Option<Arc<ImageModelSpec>>,
    fields: &mut Map<String, Value>,
) -> Adaptations {
    let mut adaptations = Adaptations::default();
    if declared.is_empty() {
        return adaptations;
    }
    let mut adapter = RequestAdapter { declared, fields, adaptations: &mut adaptations };
    adapter.replace_model(&find_model);
    adapter.adapt_to_model(&find_model, false);
    adaptations
}

/// Returns the regular expression of the names that the dialect `models` replaces.
pub(crate) fn earlier_models_pattern() -> String {
    let separators: String = NAME_SEPARATORS.into_iter().collect();
    format!("^({})([{separators}].*)?$", EARLIER_MODELS.join("|"))
}

/// True if the form of an edit may have a field of this name besides those of the API, because a declared dialect removes
/// it.
pub(crate) fn removes_field(declared: DialectSet, name: &str) -> bool {
    declared.contains(Dialect::LegacyFields) && name == STYLE
}

/// True if a declared dialect reads the part of this name as the mask of an edit.
pub(crate) fn reads_as_mask(declared: DialectSet, name: &str) -> bool {
    declared.contains(Dialect::LegacyFields) && name == MASK_LIST
}

/// True if the form of an edit has a part of this name only in a declared dialect.
pub(crate) fn has_edit_part(declared: DialectSet, name: &str) -> bool {
    removes_field(declared, name) || reads_as_mask(declared, name)
}

/// Returns the sentence of a refusal that names the dialects with which the request, or else only the parameter, would be
/// accepted. Empty if there are none.
pub(crate) fn advice(helpful: DialectSet, accepted: &str) -> String {
    let words: Vec<_> = helpful.iter().map(|dialect| format!("'{}'", dialect.as_str())).collect();
    let (subject, verb, object) = match words.as_slice() {
        [] => return String::new(),
        [word] => (format!("dialect {word}"), "accepts", "it"),
        [first @ .., last] => (format!("dialects {} and {last}", first.join(", ")), "accept", "them"),
    };
    format!(" The {subject} {verb} this {accepted}; an administrator can declare {object} for the key or its group.")
}

/// A request that is being adapted.
struct RequestAdapter<'a> {
    declared: DialectSet,
    fields: &'a mut Map<String, Value>,
    adaptations: &'a mut Adaptations,
}

// === impl RequestAdapter ===

impl RequestAdapter<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(Value::as_str)
    }

    fn replace(&mut self, dialect: Dialect, field: &'static str, old: String, new: String) {
        self.fields.insert(field.to_owned(), Value::String(new.clone()));
        self.adaptations.push(dialect, field, Change::Replaced { old, new });
    }

    /// Gives a request without a model the name of the deployment, if it may be stated in a header.
    fn add_deployment(&mut self, deployment: Option<&str>) {
        let Some(name) = deployment.filter(|name| self.declared.contains(Dialect::Azure) && is_plain_name(name)) else {
            return;
        };
        if self.fields.get("model").is_none_or(Value::is_null) {
            self.fields.insert("model".to_owned(), Value::String(name.to_owned()));
            self.adaptations.push(Dialect::Azure, "model", Change::Added(name.to_owned()));
        }
    }

    /// Replaces the name of an earlier model, and adds an absent name.
    fn adapt_model(&mut self, find_model: &impl Fn(&str) -> Option<Arc<ImageModelSpec>>) {
        let is_absent = self.fields.get("model").is_none_or(Value::is_null);
        if is_absent && self.declared.contains(Dialect::LegacyFields) {
            let added = ImageModelSpec::default_model().id;
            self.fields.insert("model".to_owned(), Value::String(added.clone()));
            self.adaptations.push(Dialect::LegacyFields, "model", Change::Added(added));
        }
        self.replace_model(find_model);
    }

    /// Replaces the name of an earlier model, unless an image model has it.
    fn replace_model(&mut self, find_model: &impl Fn(&str) -> Option<Arc<ImageModelSpec>>) {
        if !self.declared.contains(Dialect::Models) {
            return;
        }
        if let Some(old) = self.text("model").filter(|name| is_earlier_model(name) && find_model(name).is_none()) {
            let old = old.to_owned();
            self.replace(Dialect::Models, "model", old, ImageModelSpec::default_model().id);
        }
    }

    /// Adapts the fields whose values depend on the model. `has_added_fields` is false if the fields of added models are
    /// not allowed.
    fn adapt_to_model(&mut self, find_model: &impl Fn(&str) -> Option<Arc<ImageModelSpec>>, has_added_fields: bool) {
        let model = self.text("model").and_then(find_model);
        let model = model.unwrap_or_else(|| Arc::new(ImageModelSpec::default_model()));
        self.adapt_size(&model);
        self.adapt_quality(&model);
        let has_style = model.passes_unknown || model.fields.iter().any(|field| field.name == STYLE);
        self.drop_earlier_fields(&model, has_added_fields && has_style);
    }

    /// Replaces a size that the model does not have, if its text is one of the forms that [`sizes`] understands.
    fn adapt_size(&mut self, model: &ImageModelSpec) {
        // The nearest size is that by the rules of the API document.
        if !self.declared.contains(Dialect::Sizes) || model.size_rules.is_some() {
            return;
        }
        let Some(old) = self.text("size") else { return };
        if let Some(new) = sizes::nearest(old, model.sizes.as_deref()) {
            let old = old.to_owned();
            self.replace(Dialect::Sizes, "size", old, new);
        }
    }

    fn adapt_quality(&mut self, model: &ImageModelSpec) {
        if !self.declared.contains(Dialect::LegacyFields) {
            return;
        }
        let has = |word: &str| model.qualities.iter().any(|quality| quality == word);
        let quality = self.text("quality").unwrap_or_default();
        if let Some((old, new)) =
            EARLIER_QUALITIES.into_iter().find(|(old, new)| *old == quality && !has(old) && has(new))
        {
            self.replace(Dialect::LegacyFields, "quality", old.to_owned(), new.to_owned());
        }
    }

    /// Removes the fields that the model does not support. The rules themselves ignore an empty `input_fidelity`.
    fn drop_earlier_fields(&mut self, model: &ImageModelSpec, has_style: bool) {
        if !self.declared.contains(Dialect::LegacyFields) {
            return;
        }
        if !has_style && self.fields.remove(STYLE).is_some_and(|value| !value.is_null()) {
            self.adaptations.push(Dialect::LegacyFields, STYLE, Change::Dropped);
        }
        let is_empty = |value: &Value| value.is_null() || value.as_str() == Some("");
        let has_fidelity = !model.fidelities.is_empty();
        if !has_fidelity && self.fields.get(INPUT_FIDELITY).is_some_and(|value| !is_empty(value)) {
            self.fields.remove(INPUT_FIDELITY);
            self.adaptations.push(Dialect::LegacyFields, INPUT_FIDELITY, Change::Dropped);
        }
    }

    /// Notes that the answer has links: the request asks for them, or leaves the form open with a model that has replaced
    /// one whose answers have links then.
    fn adapt_response_format(&mut self, expects_links: bool) {
        let asks_for_links = match self.fields.get("response_format") {
            None | Some(Value::Null) => expects_links,
            form => form.and_then(Value::as_str) == Some("url"),
        };
        if self.declared.contains(Dialect::Url) && asks_for_links {
            self.fields.remove("response_format");
            self.adaptations.push(Dialect::Url, "response_format", Change::Answered("url"));
        }
    }
}

/// True if the name is that of an earlier image model, and may be stated in a header.
fn is_earlier_model(name: &str) -> bool {
    let is_earlier = EARLIER_MODELS.iter().any(|prefix| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(NAME_SEPARATORS))
    });
    is_earlier && is_plain_name(name)
}

/// True if a header may state the name.
fn is_plain_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

// === impl Adaptations ===

impl Adaptations {
    fn push(&mut self, dialect: Dialect, field: impl Into<Cow<'static, str>>, change: Change) {
        self.0.push(Adaptation { dialect, field: field.into(), change });
    }

    /// Notes that a GIF file with this name was converted. Files with the same name are noted once.
    pub(crate) fn note_gif(&mut self, param: &str) {
        let change = Change::Replaced { old: "gif".to_owned(), new: "png".to_owned() };
        let adaptation = Adaptation { dialect: Dialect::Gif, field: param.to_owned().into(), change };
        if !self.0.contains(&adaptation) {
            self.0.push(adaptation);
        }
    }

    /// Notes that a part was read as the mask of the edit, as [`reads_as_mask`] allows.
    pub(crate) fn note_mask_list(&mut self) {
        self.push(Dialect::LegacyFields, MASK_LIST, Change::Renamed("mask"));
    }

    /// Returns the changes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Adaptation> {
        self.0.iter()
    }

    /// Returns the text of all changes, separated by commas, as the answer and the record state it; `None` if there is no
    /// change.
    pub(crate) fn text(&self) -> Option<String> {
        let texts: Vec<_> = self.0.iter().map(Adaptation::to_string).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }

    /// True if the answer must have links to the images instead of their bytes.
    pub(crate) fn asks_for_urls(&self) -> bool {
        self.0.iter().any(|adaptation| adaptation.dialect == Dialect::Url)
    }
}

impl fmt::Display for Adaptation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = &self.field;
        match &self.change {
            Change::Replaced { old, new } => write!(f, "{field} {old}->{new}"),
            Change::Added(value) => write!(f, "{field} added {value}"),
            Change::Dropped => write!(f, "{field} dropped"),
            Change::Renamed(name) => write!(f, "{field}->{name}"),
            Change::Answered(word) => write!(f, "{field} {word}"),
        }
    }
}

#[cfg(test)]
mod tests;
