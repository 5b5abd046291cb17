//! The columns of records, as one table: those of CSV, of the records page and of the terminal.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use quote::quote;
use serde_json::Value;
use syn::{File, LitStr};

use crate::document::Document;

/// Generates the table from `x-imagate-columns`. Each column is a property of `Record`, and each property has a column.
pub(crate) fn generate(document: &Document) -> Result<File> {
    let schemas = &document.value()["components"]["schemas"];
    let properties = schemas["Record"]["properties"].as_object().context("the properties of Record")?;
    let orders = schemas["RecordSort"]["enum"].as_array().context("the words of RecordSort")?;
    let rows = document.value()["x-imagate-columns"].as_array().context("x-imagate-columns")?;
    let (mut columns, mut shown) = (Vec::new(), BTreeSet::new());
    for row in rows {
        let name = row["name"].as_str().context("name")?;
        let path = row["path"].as_str().map_or_else(|| format!("/{name}"), str::to_owned);
        let property = path.split('/').nth(1).unwrap_or_default().to_owned();
        ensure!(properties.contains_key(&property), "the column '{name}' is no property of Record");
        let sort = &row["sort"];
        ensure!(sort.is_null() || orders.contains(sort), "the column '{name}' has an unknown order");
        shown.insert(property);
        let class = row["class"].as_str().unwrap_or_default();
        let [title, heading, sort] = ["title", "heading", "sort"].map(|member| optional(&row[member]));
        columns.push(quote! {
            RecordColumn { name: #name, path: #path, title: #title, class: #class, sort: #sort, heading: #heading }
        });
    }
    let missing: Vec<_> = properties.keys().filter(|property| !shown.contains(*property)).collect();
    ensure!(missing.is_empty(), "properties of Record without a column: {missing:?}");
    let file = quote! {
        #[doc = " The columns of a record, in their order."]
        pub(crate) const RECORD_COLUMNS: &[RecordColumn] = &[#(#columns),*];
    };
    syn::parse2(file).context("columns of records")
}

fn optional(value: &Value) -> proc_macro2::TokenStream {
    match value.as_str().map(|text| LitStr::new(text, proc_macro2::Span::call_site())) {
        Some(text) => quote! { Some(#text) },
        None => quote! { None },
    }
}
