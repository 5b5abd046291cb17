//! Reads the configuration file: TOML with positions, checked against the schema of the settings.
//!
//! The module checks names and types, and remembers the location of each setting. Invalid parts are removed before
//! serde reads the remaining settings, so that one pass finds every problem.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use schemars::schema::{InstanceType, ObjectValidation, Schema, SchemaObject, SingleOrVec};
use serde::Deserialize as _;
use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeTable, DeValue, Deserializer};

use super::problem::{ConfigLocation, ConfigPosition, ConfigProblem, did_you_mean};
use super::raw::RawConfig;
use super::schema;

/// The settings of a file and the location of each.
#[derive(Debug, Default)]
pub(super) struct ConfigFile {
    pub(super) raw: RawConfig,
    /// The problems with names and types.
    pub(super) problems: Vec<ConfigProblem>,
    /// The folder to which relative paths refer.
    pub(super) folder: PathBuf,
    name: String,
    positions: BTreeMap<String, ConfigPosition>,
    /// The settings for which a problem was reported.
    reported_settings: BTreeSet<String>,
}

impl ConfigFile {
    /// Parses the text of a file; `file` is the name of the file in messages.
    pub(super) fn parse(file: &str, text: &str) -> Self {
        let mut reader = ConfigFileReader { text, file: Self { name: file.to_owned(), ..Self::default() } };
        let (mut root, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            reader.report(&error.span().unwrap_or_default(), "", error.message());
        }
        // After a syntax error, the tree that the parser has repaired may differ from the intended settings.
        if errors.is_empty() {
            reader.check_table(root.get_mut(), schema::inlined(), "");
            match RawConfig::deserialize(Deserializer::from(root)) {
                Ok(raw) => reader.file.raw = raw,
                Err(error) => reader.report(&error.span().unwrap_or_default(), "", error.message()),
            }
        }
        reader.file
    }

    /// Every setting that the file contains.
    pub(super) fn settings(&self) -> impl Iterator<Item = &str> {
        self.positions.keys().map(String::as_str)
    }

    /// True if the reader of the file has already reported a problem with the setting.
    pub(super) fn has_reported_problem(&self, setting: &str) -> bool {
        self.reported_settings.contains(setting)
    }

    /// The location of the setting, or of the nearest table that contains it.
    pub(super) fn location(&self, setting: &str) -> ConfigLocation {
        let mut name = setting;
        loop {
            if let Some(position) = self.positions.get(name) {
                return ConfigLocation::InFile { file: self.name.clone(), position: *position };
            }
            match name.rfind(['.', '[']) {
                Some(end) => name = &name[..end],
                None => return ConfigLocation::Named(setting.to_owned()),
            }
        }
    }
}

struct ConfigFileReader<'a> {
    text: &'a str,
    file: ConfigFile,
}

impl ConfigFileReader<'_> {
    /// Checks the entries of a table, reports the invalid ones, and removes them.
    fn check_table(&mut self, table: &mut DeTable<'_>, schema: &SchemaObject, path: &str) {
        let Some(object) = schema.object.as_deref() else { return };
        let names: Vec<(String, Range<usize>)> =
            table.keys().map(|key| (key.get_ref().clone().into_owned(), key.span())).collect();
        for (name, span) in &names {
            let property_schema = property(object, name);
            let is_usable = match (property_schema, table.get_mut(name.as_str())) {
                (Some(schema), Some(value)) => self.check_value(value, schema, &join_path(path, name)),
                _ => {
                    self.report_unknown(name, span, object, path);
                    false
                }
            };
            if !is_usable {
                table.remove(name.as_str());
            }
        }
        let missing = object.required.iter().filter(|required| !names.iter().any(|(name, _)| name == *required));
        for name in missing {
            self.file.reported_settings.insert(join_path(path, name));
            let location = self.file.location(path);
            let problem = ConfigProblem::new(location, format!("`{name}` is missing in `{}`", table_path(path)));
            self.file.problems.push(problem.with_setting(join_path(path, name)));
        }
    }

    /// Checks one value; returns false if it cannot be used.
    fn check_value(&mut self, value: &mut Spanned<DeValue<'_>>, schema: &SchemaObject, path: &str) -> bool {
        let span = value.span();
        self.file.positions.insert(path.to_owned(), ConfigPosition::from_offset(self.text, span.start));
        let form = matching_form(value.get_ref(), schema);
        if let (Some(_), DeValue::Datetime(date)) = (form, value.get_ref()) {
            // A day may be written without quotes.
            *value.get_mut() = DeValue::String(date.to_string().into());
        }
        let fault = match (form, value.get_mut()) {
            (None, value) => Some(format!("is {} but must be {}", describe_value(value), describe_expected(schema))),
            (Some(schema), DeValue::Table(table)) => {
                self.check_table(table, schema, path);
                None
            }
            (Some(schema), DeValue::Array(array)) => return self.check_array(array, schema, path),
            (Some(_), DeValue::String(text)) => word_fault(text, schema),
            (Some(schema), DeValue::Integer(number)) => range_fault(integer_value(number), schema),
            (Some(schema), DeValue::Float(number)) => range_fault(number.as_str().parse().ok(), schema),
            (Some(_), DeValue::Boolean(_) | DeValue::Datetime(_)) => None,
        };
        let Some(fault) = fault else { return true };
        self.file.reported_settings.insert(path.to_owned());
        self.report(&span, path, &format!("`{}` {fault}", setting_name(path)));
        false
    }

    fn check_array(&mut self, array: &mut DeArray<'_>, schema: &SchemaObject, path: &str) -> bool {
        let Some(SingleOrVec::Single(items)) = schema.array.as_deref().and_then(|array| array.items.as_ref()) else {
            return true;
        };
        let Schema::Object(items) = items.as_ref() else { return true };
        let mut is_usable = true;
        for (index, item) in array.iter_mut().enumerate() {
            is_usable &= self.check_value(item, items, &format!("{path}[{index}]"));
        }
        is_usable
    }

    fn report_unknown(&mut self, name: &str, span: &Range<usize>, object: &ObjectValidation, path: &str) {
        let known = object.properties.keys().map(String::as_str);
        let mut advice = did_you_mean(name, known);
        let mut suffix = String::new();
        if !path.is_empty() {
            suffix = format!(" in `{}`", table_path(path));
            // In TOML a line below a table's header belongs to that table, which surprises many users.
            if advice.is_empty()
                && schema::inlined().object.as_ref().is_some_and(|root| root.properties.contains_key(name))
            {
                advice = "; it belongs at the top of the file, above the first table".to_owned();
            }
        }
        self.report(span, &join_path(path, name), &format!("unknown setting `{name}`{suffix}{advice}"));
    }

    fn report(&mut self, span: &Range<usize>, setting: &str, message: &str) {
        let position = ConfigPosition::from_offset(self.text, span.start);
        let location = ConfigLocation::InFile { file: self.file.name.clone(), position };
        self.file.problems.push(ConfigProblem::new(location, message).with_setting(setting));
    }
}

/// Returns the words that a setting can have, by its path without list indexes, such as `groups.delivery`.
pub(crate) fn allowed_words(path: &str) -> Vec<String> {
    let mut schema = schema::inlined();
    for name in path.split('.') {
        let items = schema.array.as_deref().and_then(|array| array.items.as_ref());
        let table = match items {
            Some(SingleOrVec::Single(item)) => as_object(item),
            _ => Some(schema),
        };
        let Some(found) = table.and_then(|table| property(table.object.as_deref()?, name)) else { return Vec::new() };
        schema = found;
    }
    words(schema).into_iter().map(str::to_owned).collect()
}

/// Returns the words that a schema allows; none if it does not list words.
fn words(schema: &SchemaObject) -> Vec<&str> {
    let values = forms(schema).into_iter().filter_map(|form| form.enum_values.as_ref());
    values.flatten().filter_map(serde_json::Value::as_str).collect()
}

fn property<'a>(object: &'a ObjectValidation, name: &str) -> Option<&'a SchemaObject> {
    let schema = object.properties.get(name).or(object.additional_properties.as_deref());
    schema.and_then(as_object)
}

fn as_object(schema: &Schema) -> Option<&SchemaObject> {
    match schema {
        Schema::Object(object) => Some(object),
        Schema::Bool(_) => None,
    }
}

/// The forms that a schema allows: the schema itself, or each of its alternatives.
fn forms(schema: &SchemaObject) -> Vec<&SchemaObject> {
    let alternatives = schema.subschemas.as_deref().and_then(|sub| sub.one_of.as_ref().or(sub.any_of.as_ref()));
    match alternatives {
        Some(alternatives) => alternatives.iter().filter_map(as_object).flat_map(forms).collect(),
        None => vec![schema],
    }
}

/// Returns the form that a value has. If several kinds of tables are allowed, the names of their settings decide.
fn matching_form<'a>(value: &DeValue<'_>, schema: &'a SchemaObject) -> Option<&'a SchemaObject> {
    let forms = forms(schema);
    let several = forms.len() > 1;
    forms.into_iter().find(|form| {
        let has_type = form.instance_type.as_ref().is_some_and(|types| {
            // A whole number is a number too.
            let is_number = matches!(value, DeValue::Integer(_)) && types.contains(&InstanceType::Number);
            is_number || types.contains(&instance_type(value))
        });
        let has_names = || match (value, form.object.as_deref()) {
            (DeValue::Table(table), Some(object)) => {
                table.len() == object.required.len()
                    && object.required.iter().all(|name| table.contains_key(name.as_str()))
            }
            _ => true,
        };
        has_type && (!several || has_names())
    })
}

fn instance_type(value: &DeValue<'_>) -> InstanceType {
    match value {
        DeValue::String(_) | DeValue::Datetime(_) => InstanceType::String,
        DeValue::Integer(_) => InstanceType::Integer,
        DeValue::Float(_) => InstanceType::Number,
        DeValue::Boolean(_) => InstanceType::Boolean,
        DeValue::Array(_) => InstanceType::Array,
        DeValue::Table(_) => InstanceType::Object,
    }
}

/// Returns the problem with a string that must be one of a fixed set of words.
fn word_fault(text: &str, schema: &SchemaObject) -> Option<String> {
    let allowed = words(schema);
    if allowed.is_empty() || allowed.contains(&text) {
        return None;
    }
    Some(format!("must be {}, not \"{text}\"{}", one_of(&allowed), did_you_mean(text, allowed.iter().copied())))
}

/// Returns the value of an integer; `None` if it is too large. The bounds are small, and near them it is exact.
fn integer_value(number: &DeInteger<'_>) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a number beyond 2^53 is far out of range either way")]
    i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number as f64)
}

fn range_fault(number: Option<f64>, schema: &SchemaObject) -> Option<String> {
    let bounds = schema.number.as_deref()?;
    let (minimum, maximum) = (bounds.minimum?, bounds.maximum?);
    let fits = number.is_some_and(|number| (minimum..=maximum).contains(&number));
    (!fits).then(|| format!("must be from {minimum} to {maximum}"))
}

/// Returns the description of the allowed values for a message.
fn describe_expected(schema: &SchemaObject) -> String {
    if let Some(title) = schema.metadata.as_ref().and_then(|metadata| metadata.title.as_ref()) {
        return title.clone();
    }
    let words = words(schema);
    if !words.is_empty() {
        return one_of(&words);
    }
    let expected_type = match &schema.instance_type {
        Some(SingleOrVec::Single(instance_type)) => **instance_type,
        _ => return "of another type".to_owned(),
    };
    match expected_type {
        InstanceType::Null => "nothing",
        InstanceType::Boolean => "true or false",
        InstanceType::Object => "a table",
        InstanceType::Array => "a list",
        InstanceType::Number => "a number",
        InstanceType::String => "a string",
        InstanceType::Integer => "a whole number",
    }
    .to_owned()
}

fn describe_value(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(true) => "true",
        DeValue::Boolean(false) => "false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table with other names",
    }
}

pub(super) fn one_of(words: &[impl fmt::Display]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ")
}

pub(super) fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Returns the last part of a path: the setting's own name, without the names of its tables.
fn setting_name(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// A path without list indexes: `accounts[2].api_key` becomes `accounts.api_key`.
pub(super) fn table_path(path: &str) -> String {
    path.split('.').map(|part| part.split('[').next().unwrap_or(part)).collect::<Vec<_>>().join(".")
}
