//! The types of the skills registry manifest, by typify.

use anyhow::{Context as _, Result};
use schemars::schema::RootSchema;
use syn::File;
use typify::{TypeSpace, TypeSpaceSettings};

use crate::{MANIFEST_SCHEMA, docs, sdk, surface};

pub(crate) fn generate(schema: &str) -> Result<File> {
    let schema: RootSchema = serde_json::from_str(schema).context(MANIFEST_SCHEMA)?;
    let mut settings = TypeSpaceSettings::default();
    settings.with_map_type(sdk::MAP_TYPE.to_owned());
    let mut types = TypeSpace::new(&settings);
    types.add_root_schema(schema).context(MANIFEST_SCHEMA)?;
    let mut file: File = syn::parse2(types.to_stream()).context("manifest types")?;
    docs::rewrite_docs(&mut file.items);
    surface::prepare(&mut file.items);
    Ok(file)
}
