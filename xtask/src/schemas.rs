//! Implements `JsonSchema` for each generated type by the schema in the document.
//!
//! A derived implementation would lose bounds and patterns and make every optional field nullable; then the OpenAPI
//! description of the server would differ from the document.

use anyhow::Result;
use proc_macro2::{Ident, Span};
use quote::quote;
use serde_json::Value;
use syn::File;

use crate::document::{Document, hand_written_type, union_stand_in};
use crate::open_words::closed_words;

pub(crate) fn generate(document: &Document) -> Result<File> {
    let components = document.typed_schemas()?;
    let is_alias = |name: &str, schema: &Value| {
        let closed = closed_words(document.value(), name);
        hand_written_type(schema).is_some() || union_stand_in(schema).is_some() || closed.is_some()
    };
    let generated = components.iter().filter(|(name, schema)| !is_alias(name, schema));
    let impls = generated.map(|(label, _)| {
        let name = Ident::new(label, Span::call_site());
        quote! {
            impl schemars::JsonSchema for types::#name {
                fn schema_name() -> String {
                    #label.to_owned()
                }

                fn json_schema(generator: &mut schemars::r#gen::SchemaGenerator) -> schemars::schema::Schema {
                    super::served::component(#label, generator)
                }
            }
        }
    });
    Ok(syn::parse2(quote! { #(#impls)* })?)
}
