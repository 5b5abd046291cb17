//! The arguments of a tool call, and the fields of the API that they stand for.

use serde_json::{Map, Value};

use crate::error::{Error, Rejection, RejectionReason};

/// The argument that tells intentionally equal calls apart. It is no field of the API.
const VARIATION: &str = "variation";
/// The longest `variation` in characters (our choice).
const VARIATION_MAX_CHARS: usize = 100;
/// The most characters of an unknown name that an error repeats (our choice).
const SHOWN_NAME_MAX_CHARS: usize = 100;
/// Fields of the API that change the form of the answer, which a tool decides by itself.
const ANSWER_FIELDS: [&str; 3] = ["partial_images", "response_format", "stream"];

/// The arguments of a tool call, without those that are `null`.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolArguments(Map<String, Value>);

// === impl ToolArguments ===

impl ToolArguments {
    pub(super) fn new(arguments: Option<Map<String, Value>>) -> Self {
        Self(arguments.unwrap_or_default().into_iter().filter(|(_, value)| !value.is_null()).collect())
    }

    /// Returns the arguments, sorted by name: the order of a JSON map depends on the features of a crate.
    pub(super) fn sorted(&self) -> Vec<(&String, &Value)> {
        let mut arguments: Vec<_> = self.0.iter().collect();
        arguments.sort_unstable_by_key(|(name, _)| *name);
        arguments
    }

    /// Removes an argument and returns it.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// Removes an argument that is a text.
    ///
    /// # Errors
    ///
    /// Returns 400 if the argument is another value.
    pub(super) fn take_text(&mut self, name: &str) -> Result<Option<String>, Rejection> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(invalid_type(name, "a string")),
        }
    }

    /// Checks that there are no arguments but these.
    ///
    /// # Errors
    ///
    /// Returns 400 that names the first other argument.
    pub(super) fn check_none_left(&self) -> Result<(), Rejection> {
        self.0.keys().next().map_or(Ok(()), |name| {
            let message = format!("The tool has no argument '{}'.", shortened(name));
            Err(Rejection::new(shortened(name), RejectionReason::UnknownParameter, message))
        })
    }

    /// Returns the fields of the API. The model is `default_model` if the call names none.
    ///
    /// # Errors
    ///
    /// Returns 400 if `variation` is not valid, or if an argument is a field that the tool decides by itself.
    pub(super) fn into_fields(mut self, default_model: &str) -> Result<Map<String, Value>, Error> {
        match self.0.remove(VARIATION) {
            None | Some(Value::Number(_)) => {}
            Some(Value::String(text)) if text.chars().count() <= VARIATION_MAX_CHARS => {}
            Some(Value::String(_)) => {
                let message = format!("'variation' may have at most {VARIATION_MAX_CHARS} characters.");
                return Err(Rejection::new(VARIATION, RejectionReason::StringAboveMax, message).into());
            }
            Some(_) => return Err(invalid_type(VARIATION, "a string or a number").into()),
        }
        if let Some(name) = ANSWER_FIELDS.into_iter().find(|name| self.0.contains_key(*name)) {
            let message = format!("The tool does not support '{name}'.");
            return Err(Rejection::new(name, RejectionReason::UnknownParameter, message).into());
        }
        self.0.entry("model").or_insert_with(|| Value::String(default_model.to_owned()));
        Ok(self.0)
    }
}

/// Returns the rejection of an argument that has another type.
pub(super) fn invalid_type(name: &str, expected: &str) -> Rejection {
    Rejection::new(name, RejectionReason::InvalidType, format!("'{name}' must be {expected}."))
}

fn shortened(name: &str) -> String {
    name.chars().take(SHOWN_NAME_MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(arguments: &Value) -> Result<Value, String> {
        let arguments = ToolArguments::new(arguments.as_object().cloned());
        arguments.into_fields("gpt-image-2").map(Value::Object).map_err(|error| match error {
            Error::Invalid(rejection) => rejection.param.unwrap_or_default(),
            error => error.to_string(),
        })
    }

    #[test]
    fn arguments_are_the_fields_of_the_api_but_for_the_variation() {
        let arguments = json!({"prompt": "a cube", "variation": 2, "size": null});
        assert_eq!(fields(&arguments), Ok(json!({"prompt": "a cube", "model": "gpt-image-2"})));
        let arguments = json!({"model": "mine", "variation": "blue", "complexity": 3});
        assert_eq!(fields(&arguments), Ok(json!({"model": "mine", "complexity": 3})), "the rules check the fields");
    }

    #[test]
    fn an_argument_that_no_tool_has_is_named() {
        for (arguments, param) in [
            (json!({"stream": true}), "stream"),
            (json!({"response_format": "url"}), "response_format"),
            (json!({"variation": [1]}), "variation"),
            (json!({"variation": "v".repeat(VARIATION_MAX_CHARS + 1)}), "variation"),
        ] {
            assert_eq!(fields(&arguments), Err(param.to_owned()), "{arguments}");
        }
    }
}
