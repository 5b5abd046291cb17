//! Implements `JsonSchema` for each generated type of a body by the schema in the document.
//!
//! A derived implementation would lose bounds and patterns and make every optional field nullable; then the OpenAPI
//! description of the server would differ from the document.

use anyhow::Result;
use proc_macro2::{Ident, Span};
use quote::quote;
use syn::File;

use crate::document::Document;

pub(crate) fn generate(document: &Document) -> Result<File> {
    let bodies = document.bodies()?;
    let impls = bodies.iter().map(|label| {
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
