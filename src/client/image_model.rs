//! An image model as a service describes it: its parameters, with the values that each can have.

use super::raw_json::Json;

/// An image model with its parameters; from [`ModelCalls::list_images`](super::ModelCalls::list_images).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageModel {
    /// The name, for [`ModelName`](super::ModelName).
    pub id: String,
    /// True if a request can ask for a stream; `None` if the service does not say.
    pub supports_streaming: Option<bool>,
    /// The parameters of requests for the model.
    pub parameters: Vec<ImageModelParameter>,
    /// Everything that the service states of the model, such as its prices.
    pub json: Json,
}

/// A parameter of requests for an image model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageModelParameter {
    /// The name of the field, or of the part of a form.
    pub name: String,
    /// The kind of value, such as `enum`, `integer` or `size`.
    pub kind: String,
    /// The words of an `enum`; empty for other kinds.
    pub values: Vec<String>,
    /// Everything that the service states of the parameter, such as `min`, `max` and `size_rules`.
    pub json: Json,
}

// === impl ImageModel ===

impl ImageModel {
    /// Reads the member `data`. Entries without an `id` are left out.
    pub(super) fn read_list(answer: &Json) -> Option<Vec<Self>> {
        let data = answer.member("data")?;
        data.text().starts_with('[').then(|| data.elements().into_iter().filter_map(Self::read).collect())
    }

    fn read(json: Json) -> Option<Self> {
        let [id, capabilities] = json.members(["id", "capabilities"]);
        let members = capabilities.map(|capabilities| capabilities.members(["supports_streaming", "parameters"]));
        let [streaming, parameters] = members.unwrap_or_default();
        let parameters = parameters.map(|parameters| parameters.elements()).unwrap_or_default();
        Some(Self {
            id: id?.read()?,
            supports_streaming: streaming.and_then(|streaming| streaming.read()),
            parameters: parameters.into_iter().filter_map(ImageModelParameter::read).collect(),
            json,
        })
    }

    /// Returns the parameter with this name.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&ImageModelParameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }
}

// === impl ImageModelParameter ===

impl ImageModelParameter {
    /// Reads an object with a `name`.
    fn read(json: Json) -> Option<Self> {
        let [name, kind, values] = json.members(["name", "type", "values"]);
        Some(Self {
            name: name?.read()?,
            kind: kind.and_then(|kind| kind.read()).unwrap_or_default(),
            values: values.and_then(|values| values.read()).unwrap_or_default(),
            json,
        })
    }
}
