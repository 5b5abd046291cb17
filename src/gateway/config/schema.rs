//! The JSON schema of the settings, generated from the types of the settings, with the bounds of the operators' document.

use std::sync::LazyLock;

use schemars::r#gen::SchemaSettings;
use schemars::schema::{RootSchema, SchemaObject};

use super::raw::{RawConfig, add_bounds};

/// Returns the schema for editors: `schemas/config.schema.json` holds this text.
pub(crate) fn schema_json() -> String {
    let text = serde_json::to_string_pretty(&root(false));
    text.map_or_else(|_| String::new(), |text| text + "\n")
}

/// Returns the schema for the reader of the file, without references.
pub(super) fn inlined() -> &'static SchemaObject {
    static INLINED: LazyLock<RootSchema> = LazyLock::new(|| root(true));
    &INLINED.schema
}

fn root(inline: bool) -> RootSchema {
    let settings = SchemaSettings::draft07().with(|settings| {
        // TOML has no null.
        settings.option_add_null_type = false;
        settings.inline_subschemas = inline;
    });
    let mut root = settings.into_generator().into_root_schema_for::<RawConfig>();
    root.schema.metadata().title = Some("imagate settings".to_owned());
    let mut value = serde_json::to_value(&root).unwrap_or_default();
    add_bounds(&mut value);
    serde_json::from_value(value).unwrap_or(root)
}
