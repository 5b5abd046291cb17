//! The form fields of request limits: one for each property of `RequestLimits`, in the order of the document.

use anyhow::{Context as _, Result, ensure};
use proc_macro2::TokenStream;
use quote::quote;
use serde_json::Value;
use syn::File;

use crate::document::{Document, component_of};

/// Generates the table from the properties of `RequestLimits` and their order, `x-imagate-order`.
pub(crate) fn generate(document: &Document) -> Result<File> {
    let limits = &document.value()["components"]["schemas"]["RequestLimits"];
    let properties = limits["properties"].as_object().context("the properties of RequestLimits")?;
    let order = limits["x-imagate-order"].as_array().context("x-imagate-order of RequestLimits")?;
    let mut fields = Vec::new();
    for name in order {
        let name = name.as_str().context("a name in x-imagate-order")?;
        let property = properties.get(name).with_context(|| format!("'{name}' is no property of RequestLimits"))?;
        let (field, label, pointer) = (format!("limit_{name}"), format!("limit.{name}"), format!("/limits/{name}"));
        let kind = kind(document, property).with_context(|| format!("the type of the limit '{name}'"))?;
        fields.push(quote! { SettingField::new(#field, #label, #pointer, SettingFieldKind::#kind) });
    }
    ensure!(fields.len() == properties.len(), "x-imagate-order must name each property of RequestLimits once");
    let file = quote! {
        #[doc = " The fields of limits. The pointers begin at the object that has the limits as `limits`."]
        pub(super) static LIMIT_FIELDS: &[SettingField] = &[#(#fields),*];
    };
    syn::parse2(file).context("fields of limits")
}

/// The kind of the form field for a property.
fn kind(document: &Document, property: &Value) -> Option<TokenStream> {
    let component = component_of(property.pointer("/anyOf/0").unwrap_or(property));
    let schema = component.map_or(property, |name| &document.value()["components"]["schemas"][name]);
    Some(match schema["type"].as_str()? {
        "integer" | "number" => quote!(Number),
        "array" => quote!(Lines),
        "string" if schema["enum"].is_array() => quote!(Word),
        "string" => quote!(Text),
        _ => return None,
    })
}
