//! The fields of an edit form that are not images. Each has one value, and its name is that of the API
//! document.

use serde_json::{Map, Value};

use super::FormNames;
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::config::{Dialect, DialectSet};
use crate::gateway::dialects;
use crate::tables::{Field, FieldKind, IMAGE_EDIT_FIELDS, field};

/// The maximum number of characters of an unknown name that is repeated in an error (our choice).
const NAME_MAX: usize = 64;

/// The kind of a field that a dialect of the caller removes, whatever its value.
const REMOVED_FIELD: FieldKind = FieldKind::Text { min: 0, max: u64::MAX };

/// The greatest depth of an object in a form (our choice).
const OBJECT_DEPTH_MAX: usize = 8;

/// A place in an object that a form states in brackets.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ObjectPath<'a> {
    field: &'a str,
    keys: Vec<PathKey<'a>>,
}

/// One pair of brackets.
#[derive(Debug, PartialEq, Eq)]
enum PathKey<'a> {
    /// A member of an object.
    Member(&'a str),
    /// The next element of a list: empty brackets.
    Element,
}

/// The fields that have been read so far.
#[derive(Debug, Default)]
pub(super) struct EditFields {
    values: Map<String, Value>,
    /// The names that the form may have besides those of the API document.
    names: FormNames,
}

// === impl EditFields ===

impl EditFields {
    pub(super) fn new(names: FormNames) -> Self {
        Self { values: Map::new(), names }
    }

    pub(super) fn into_inner(self) -> Map<String, Value> {
        self.values
    }

    /// Returns the kind of a field that is not an image.
    ///
    /// # Errors
    ///
    /// Returns an error if neither the API nor a dialect of the caller has such a field.
    pub(super) fn kind_of(&self, name: &str) -> Result<FieldKind, Error> {
        if dialects::removes_field(self.names.dialects, name) {
            return Ok(REMOVED_FIELD);
        }
        find_field(name).map(|field| field.kind)
    }

    /// True if only added models have the field. Its value is kept as it is: the rules know its kind.
    pub(super) fn is_added(&self, name: &str) -> bool {
        self.names.added.has_field(name) && find_field(name).is_err()
    }

    /// The path that a name such as `svg[reasoning][effort]` states, if its field is an object that only added models have.
    /// Clients write the members of an object in this way.
    pub(super) fn object_path<'a>(&self, name: &'a str) -> Option<ObjectPath<'a>> {
        ObjectPath::parse(name)
            .filter(|path| self.names.added.has_object(path.field) && find_field(path.field).is_err())
    }

    /// Stores a text in an object, whose members all come as texts.
    ///
    /// # Errors
    ///
    /// Returns an error if the place has another value.
    pub(super) fn insert_member(&mut self, path: &ObjectPath<'_>, name: &str, text: String) -> Result<(), Error> {
        let mut place = self.values.entry(path.field).or_insert(Value::Null);
        for key in &path.keys {
            place = key.enter(place).ok_or_else(|| duplicate_parameter(name))?;
        }
        match place {
            Value::Null => *place = Value::String(text),
            Value::String(existing) if *existing == text => {}
            _ => return Err(duplicate_parameter(name)),
        }
        Ok(())
    }

    /// True if added models have files under this name.
    pub(super) fn is_added_file(&self, name: &str) -> bool {
        self.names.added.has_file(name)
    }

    /// True if a dialect of the caller reads the part of this name as the mask.
    pub(super) fn reads_as_mask(&self, name: &str) -> bool {
        dialects::reads_as_mask(self.names.dialects, name)
    }

    /// Stores a value. A field may repeat its value, because a well-known client sends one field twice.
    ///
    /// # Errors
    ///
    /// Returns an error if the field already has another value.
    pub(super) fn insert(&mut self, name: &str, value: Value) -> Result<(), Error> {
        match self.values.get(name) {
            Some(existing) if *existing == value => Ok(()),
            Some(_) => Err(duplicate_parameter(name)),
            None => {
                self.values.insert(name.to_owned(), value);
                Ok(())
            }
        }
    }
}

// === impl ObjectPath ===

impl<'a> ObjectPath<'a> {
    /// Reads a name with brackets; `None` for another name.
    fn parse(name: &'a str) -> Option<Self> {
        let (field, rest) = name.split_once('[')?;
        let keys: Vec<_> = rest.strip_suffix(']')?.split("][").collect();
        let is_valid = !keys.iter().any(|key| key.contains(['[', ']'])) && keys.len() <= OBJECT_DEPTH_MAX;
        let to_key = |key: &'a str| if key.is_empty() { PathKey::Element } else { PathKey::Member(key) };
        is_valid.then(|| Self { field, keys: keys.into_iter().map(to_key).collect() })
    }

    /// The number of values that the place adds to the request at most.
    pub(super) fn value_count(&self) -> u64 {
        self.keys.len() as u64 + 1
    }
}

// === impl PathKey ===

impl PathKey<'_> {
    /// Returns the place that these brackets name in a value, which has the right kind or is made so if it is absent.
    fn enter<'v>(&self, place: &'v mut Value) -> Option<&'v mut Value> {
        if place.is_null() {
            *place = if *self == PathKey::Element { Value::Array(Vec::new()) } else { Value::Object(Map::new()) };
        }
        match (self, place) {
            (PathKey::Element, Value::Array(elements)) => {
                elements.push(Value::Null);
                elements.last_mut()
            }
            (PathKey::Member(key), Value::Object(members)) => Some(members.entry(*key).or_insert(Value::Null)),
            _ => None,
        }
    }
}

/// Returns the table row of a field that is not an image.
///
/// # Errors
///
/// Returns an error if there is no such field.
fn find_field(name: &str) -> Result<&'static Field, Error> {
    let row = field(IMAGE_EDIT_FIELDS, name).filter(|row| !matches!(row.kind, FieldKind::Images | FieldKind::Image));
    row.ok_or_else(|| unknown_parameter(name))
}

/// The error for an unknown name, with the dialect that has the name, if there is one.
pub(super) fn unknown_parameter(name: &str) -> Error {
    let is_helpful = |dialect: &Dialect| dialects::has_edit_part(DialectSet::from_iter([*dialect]), name);
    let advice = dialects::advice(Dialect::ALL.into_iter().filter(is_helpful).collect(), "parameter");
    let name: String = name.chars().take(NAME_MAX).collect();
    let message = format!("Unknown parameter: '{name}'.{advice}");
    Rejection::new(name, RejectionReason::UnknownParameter, message).into()
}

/// The error for a field with two different values, or for a second image where only one is allowed.
pub(super) fn duplicate_parameter(name: &str) -> Error {
    Rejection::new(name, RejectionReason::InvalidValue, format!("The parameter '{name}' is given more than once."))
        .into()
}

/// Converts the text of a form field to a JSON value of the field's kind. A text that does not fit the kind
/// stays a string, so that `rules` refuses it with its own message.
pub(super) fn from_text(kind: FieldKind, text: String) -> Value {
    match kind {
        FieldKind::Integer { .. } if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            // A number that is too large for this type is too large for every limit.
            text.parse::<u64>().unwrap_or(u64::MAX).into()
        }
        FieldKind::Boolean if text == "true" => Value::Bool(true),
        FieldKind::Boolean if text == "false" => Value::Bool(false),
        _ => Value::String(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_is_converted_to_the_kind_of_its_field_or_stays_text() {
        let convert = |name: &str, text: &str| from_text(find_field(name).unwrap().kind, text.to_owned());
        assert_eq!(convert("n", "2"), json!(2));
        assert_eq!(convert("n", "007"), json!(7));
        assert_eq!(convert("n", "99999999999999999999999"), json!(u64::MAX));
        for text in ["-1", "1.0", "1e0", "+1", " 1", "1 ", "0x1", "١", "true"] {
            assert_eq!(convert("n", text), json!(text));
        }
        assert_eq!((convert("stream", "true"), convert("stream", "false")), (json!(true), json!(false)));
        for text in ["True", "1", "yes"] {
            assert_eq!(convert("stream", text), json!(text));
        }
        assert_eq!(
            (convert("prompt", "1"), convert("size", "auto"), convert("user", "true")),
            (json!("1"), json!("auto"), json!("true"))
        );
    }

    #[test]
    fn names_with_brackets_are_paths() {
        let keys = |name| ObjectPath::parse(name).map(|path| (path.field, path.keys));
        assert_eq!(keys("svg[model]"), Some(("svg", vec![PathKey::Member("model")])));
        assert_eq!(keys("svg[a][b]"), Some(("svg", vec![PathKey::Member("a"), PathKey::Member("b")])));
        assert_eq!(keys("svg[a][]"), Some(("svg", vec![PathKey::Member("a"), PathKey::Element])));
        for name in ["svg", "svg[", "svg]", "svg[a", "svg[a]b", "svg[a[b]]", "svg[a]]", &"svg[a]".repeat(9)] {
            assert_eq!(keys(name), None, "{name}");
        }
    }

    #[test]
    fn members_in_brackets_become_one_object() {
        let mut fields = EditFields::default();
        let mut insert = |name: &str, text: &str| {
            fields.insert_member(&ObjectPath::parse(name).expect("a path"), name, text.to_owned())
        };
        for (name, text) in [
            ("svg[model]", "x"),
            ("svg[reasoning][effort]", "low"),
            ("svg[tags][]", "a"),
            ("svg[tags][]", "b"),
            ("svg[model]", "x"),
        ] {
            insert(name, text).expect(name);
        }
        for (name, text) in [
            ("svg[model]", "y"),
            ("svg[model][a]", "x"),
            ("svg[reasoning]", "x"),
            ("svg[]", "x"),
            ("svg[tags][a]", "x"),
        ] {
            assert!(insert(name, text).is_err(), "{name}");
        }
        let expected = json!({"svg": {"model": "x", "reasoning": {"effort": "low"}, "tags": ["a", "b"]}});
        assert_eq!(Value::Object(fields.into_inner()), expected);
    }

    #[test]
    fn images_are_not_fields_and_unknown_names_are_truncated() {
        assert!(find_field("images").is_err() && find_field("mask").is_err());
        let error = find_field(&"é".repeat(500)).unwrap_err();
        assert_eq!(error.param().unwrap().chars().count(), NAME_MAX);
    }
}
