//! A form as a page shows it: the values of its fields, and their errors. A form that replaces stored values has a digest
//! of them, so that an old page does not undo a change that was made in the meantime.

use sha2::{Digest as _, Sha256};

use super::http_messages::PageRequest;
use super::language::PageTexts;
use super::page_error::{PageError, conflict_text};
use crate::error::{AdminDecision, Error, MissingResource, Rejection, RejectionReason, ResourceConflict};

/// The field name for errors that do not belong to a single field.
pub(super) const WHOLE_FORM: &str = "form";

/// The field with the digest of the stored values that the form replaces, as they were when its page was loaded.
pub(super) const DIGEST_FIELD: &str = "shown";

/// A digest that detects changes of stored values.
pub(super) fn digest_of(stored: impl AsRef<[u8]>) -> String {
    hex::encode(Sha256::digest(stored))
}

/// True if the submitted form replaces stored values that were changed after its page was loaded. `digest` is that of
/// the stored values now.
pub(super) fn is_outdated(request: &PageRequest, digest: &str) -> bool {
    request.form_field(DIGEST_FIELD) != digest
}

/// The values and errors of a form, by the names of the fields.
#[derive(Debug, Default)]
pub(super) struct PageForm {
    values: Vec<(&'static str, String)>,
    errors: Vec<(&'static str, String)>,
}

/// For each field: the name in the console's errors, the name in the form, and the key of the text for an invalid
/// value.
const CONSOLE_FIELDS: [(&str, &str, &str); 24] = [
    ("name", "name", "error.name"),
    ("group", "group", "error.group"),
    ("user", "user", "error.user"),
    ("expires_at", "expires_on", "error.expires_on"),
    ("grace_seconds", "grace", "error.grace"),
    ("role", "role", "error.role"),
    ("groups", "groups", "error.groups"),
    ("reason", "reason", "error.reason"),
    ("model", "model", "error.model"),
    ("from", "from", "error.from"),
    ("text_input", "text_input", "error.figure"),
    ("cached_text_input", "cached_text_input", "error.figure"),
    ("image_input", "image_input", "error.figure"),
    ("cached_image_input", "cached_image_input", "error.figure"),
    ("image_output", "image_output", "error.figure"),
    ("text_output", "text_output", "error.figure"),
    ("per_image", "per_image", "error.figure"),
    ("cache_write", "cache_write", "error.figure"),
    ("cache_write_1h", "cache_write_1h", "error.figure"),
    ("tiers", "tiers", "error.terms"),
    ("tools", "tools", "error.terms"),
    ("context_tokens", "context_tokens", "error.figure"),
    ("max_output_tokens", "max_output_tokens", "error.figure"),
    ("source", "source", "error.source"),
];

// === impl PageForm ===

impl PageForm {
    /// Creates a form with the submitted values of these fields.
    pub(super) fn from_request(request: &PageRequest, names: &[&'static str]) -> Self {
        let values = names.iter().map(|name| (*name, request.form_field(name).to_owned())).collect();
        Self { values, errors: Vec::new() }
    }

    /// Adds a value.
    pub(super) fn with_value(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.values.push((name, value.into()));
        self
    }

    /// Adds an error.
    pub(super) fn with_error(mut self, name: &'static str, text: impl Into<String>) -> Self {
        self.errors.push((name, text.into()));
        self
    }

    /// Adds an error of the console to the field that it concerns, or to the whole form.
    ///
    /// # Errors
    ///
    /// Returns the console's error as a page error if it does not concern the form.
    pub(super) fn with_console_error(self, texts: PageTexts, error: Error) -> Result<Self, PageError> {
        match error {
            Error::Invalid(rejection) => {
                let (field, text) = field_and_message(texts, &rejection);
                Ok(self.with_error(field, text))
            }
            Error::NotFound(MissingResource::UserParam { .. } | MissingResource::User(_)) => {
                Ok(self.with_error("user", texts.get("error.user")))
            }
            Error::NotFound(MissingResource::Group(_)) => Ok(self.with_error("group", texts.get("error.group"))),
            Error::AdminDecision(AdminDecision::LatestEnd(_)) => {
                Ok(self.with_error("expires_on", texts.get("error.latest_end")))
            }
            Error::AdminDecision(_) => Ok(self.with_error(WHOLE_FORM, texts.get("error.key_locked"))),
            Error::Conflict(conflict) => {
                let is_name = matches!(
                    conflict,
                    ResourceConflict::UserExists(_) | ResourceConflict::GroupExists(_) | ResourceConflict::Exists(_)
                );
                Ok(self.with_error(if is_name { "name" } else { WHOLE_FORM }, texts.get(conflict_text(&conflict))))
            }
            error => Err(error.into()),
        }
    }

    /// True if the form has an error.
    pub(super) fn has_error(&self) -> bool {
        !self.errors.is_empty()
    }

    /// The first value of a field; empty if it has none.
    pub(super) fn value(&self, name: &str) -> &str {
        self.values.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    /// The text of the first error of a field, if it has one.
    pub(super) fn error(&self, name: &str) -> Option<&str> {
        self.errors.iter().find(|(key, _)| *key == name).map(|(_, text)| text.as_str())
    }

    /// True if this option is among the values of a field.
    pub(super) fn is_chosen(&self, name: &str, option: &str) -> bool {
        self.values.iter().any(|(key, value)| *key == name && value == option)
    }
}

/// The form field and the text for a value that the console has rejected.
fn field_and_message(texts: PageTexts, rejection: &Rejection) -> (&'static str, String) {
    let param = rejection.param.as_deref().unwrap_or_default();
    let param = param.split('[').next().unwrap_or_default();
    let Some((_, field, text_key)) = CONSOLE_FIELDS.iter().find(|(name, _, _)| *name == param) else {
        return (WHOLE_FORM, texts.get("error.form").to_owned());
    };
    let text_key = match rejection.reason {
        Some(RejectionReason::MissingParameter | RejectionReason::StringBelowMin) => "error.missing",
        // All text fields except the reason are names.
        Some(RejectionReason::StringAboveMax) if *field != "reason" => "error.too_long",
        _ => text_key,
    };
    (field, texts.get(text_key).to_owned())
}
