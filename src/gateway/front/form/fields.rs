//! The fields that are no images: one value each, by the names of the document.

use serde_json::{Map, Value};

use crate::error::{Error, Reason, Rejection};
use crate::tables::{Field, IMAGE_EDIT_FIELDS, Kind, field};

/// Names are shown to the caller, so they are cut where nobody reads on.
const NAME_MAX: usize = 64;

/// What has come so far.
#[derive(Debug, Default)]
pub(super) struct Fields(Map<String, Value>);

// === impl Fields ===

impl Fields {
    pub(super) fn into_inner(self) -> Map<String, Value> {
        self.0
    }

    /// A value; the same one may come again, because a well-known client sends one field twice.
    ///
    /// # Errors
    ///
    /// Where another value has come before.
    pub(super) fn put(&mut self, name: &str, value: Value) -> Result<(), Error> {
        match self.0.get(name) {
            Some(before) if *before == value => Ok(()),
            Some(_) => Err(twice(name)),
            None => {
                self.0.insert(name.to_owned(), value);
                Ok(())
            }
        }
    }
}

/// The row of a field that is no image. Nothing is kept of one that does not exist.
///
/// # Errors
///
/// Where there is no such field.
pub(super) fn known(name: &str) -> Result<&'static Field, Error> {
    let row = field(IMAGE_EDIT_FIELDS, name).filter(|row| !matches!(row.kind, Kind::Images | Kind::Image));
    row.ok_or_else(|| unknown(name))
}

/// A name that does not exist.
pub(super) fn unknown(name: &str) -> Error {
    let name: String = name.chars().take(NAME_MAX).collect();
    let message = format!("Unknown parameter: '{name}'.");
    Rejection::new(name, Reason::UnknownParameter, message).into()
}

/// Two values where there is room for one: nobody could tell which of them is meant.
pub(super) fn twice(name: &str) -> Error {
    Rejection::new(name, Reason::InvalidValue, format!("The parameter '{name}' is given more than once.")).into()
}

/// A value that came as text, as the JSON that it stands for. What does not read as its kind stays text, for the rules
/// to refuse by their own words.
pub(super) fn from_text(kind: Kind, text: String) -> Value {
    match kind {
        Kind::Integer { .. } if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            // Too large for a number here is too large for every bound.
            text.parse::<u64>().unwrap_or(u64::MAX).into()
        }
        Kind::Boolean if text == "true" => Value::Bool(true),
        Kind::Boolean if text == "false" => Value::Bool(false),
        _ => Value::String(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_becomes_what_the_table_says_and_else_stays_text() {
        let of = |name: &str, text: &str| from_text(known(name).unwrap().kind, text.to_owned());
        assert_eq!(of("n", "2"), json!(2));
        assert_eq!(of("n", "007"), json!(7));
        assert_eq!(of("n", "99999999999999999999999"), json!(u64::MAX));
        for text in ["-1", "1.0", "1e0", "+1", " 1", "1 ", "0x1", "١", "true"] {
            assert_eq!(of("n", text), json!(text));
        }
        assert_eq!((of("stream", "true"), of("stream", "false")), (json!(true), json!(false)));
        for text in ["True", "1", "yes"] {
            assert_eq!(of("stream", text), json!(text));
        }
        assert_eq!(
            (of("prompt", "1"), of("size", "auto"), of("user", "true")),
            (json!("1"), json!("auto"), json!("true"))
        );
    }

    #[test]
    fn images_are_no_fields_and_unknown_names_are_cut() {
        assert!(known("images").is_err() && known("mask").is_err());
        let error = known(&"é".repeat(500)).unwrap_err();
        assert_eq!(error.param().unwrap().chars().count(), NAME_MAX);
    }
}
