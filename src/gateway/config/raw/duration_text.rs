//! Durations as written.

use schemars::JsonSchema;
use schemars::r#gen::SchemaGenerator;
use schemars::schema::{InstanceType, Metadata, Schema, SchemaObject, StringValidation};
use serde::{Deserialize, Serialize};

/// A duration as written.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct RawDuration(pub(crate) String);

impl JsonSchema for RawDuration {
    fn schema_name() -> String {
        "Period".to_owned()
    }

    fn is_referenceable() -> bool {
        false
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let pattern = r"^([0-9]{1,9}(ms|s|m|h|d) ?)+$".to_owned();
        Schema::Object(SchemaObject {
            instance_type: Some(InstanceType::String.into()),
            metadata: Some(Box::new(Metadata {
                title: Some(crate::gateway::config::duration::EXPECTED.to_owned()),
                ..Metadata::default()
            })),
            string: Some(Box::new(StringValidation { pattern: Some(pattern), ..StringValidation::default() })),
            ..SchemaObject::default()
        })
    }
}
