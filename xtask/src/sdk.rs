//! Models and client, by progenitor, from a copy of the document without what progenitor cannot say.

use anyhow::{Context as _, Result, anyhow};
use proc_macro2::Span;
use progenitor_impl::{GenerationSettings, Generator, InterfaceStyle, TypeImpl};
use quote::quote;
use serde_json::Value;
use syn::{File, Ident, Item, Type, parse_quote};

use crate::api::Api;
use crate::docs;
use crate::document::{Document, HandType, hand_type};
use crate::open_words::OpenWords;

/// Sorted, so that what is written does not depend on a hash seed.
pub(crate) const MAP_TYPE: &str = "::std::collections::BTreeMap";

/// Both halves of progenitor's output: the gateway needs the first without the second.
pub(crate) struct Sdk {
    pub(crate) types: File,
    pub(crate) client: File,
}

pub(crate) fn generate(api: &Api, document: &Document) -> Result<Sdk> {
    let words = if api.has_open_answers { OpenWords::from_document(document.value()) } else { OpenWords::default() };
    let forms: Vec<_> = document.operations()?.into_iter().filter(|operation| operation.takes_form()).collect();
    let typed = document.to_openapi(|value| {
        for form in &forms {
            remove_method(&mut value["paths"][form.path], form.method);
        }
        remove_events(&mut value["paths"]);
        remove_defaults(&mut value["components"]["schemas"]);
        words.apply(&mut value["components"]["schemas"]);
    })?;
    let tokens = Generator::new(&settings(api, document, &words)?).generate_tokens(&typed)?;
    let mut sdk = split_types(syn::parse2(tokens)?)?;
    sdk.types.items.extend(aliases(document)?);
    Ok(sdk)
}

fn settings(api: &Api, document: &Document, words: &OpenWords) -> Result<GenerationSettings> {
    let mut settings = GenerationSettings::new();
    settings.with_interface(InterfaceStyle::Builder).with_map_type(MAP_TYPE).with_timeout(api.timeout_seconds);
    if let Some(inner) = api.inner {
        let inner: Type = syn::parse_str(inner)?;
        settings.with_inner_type(quote!(#inner));
    }
    for (name, schema) in document.components()? {
        if let Some(hand_type) = hand_type(schema) {
            settings.with_replacement(name, path(hand_type), impls(hand_type).iter().copied());
        }
    }
    for (name, path) in words.types() {
        settings.with_replacement(name, path, [TypeImpl::Display, TypeImpl::FromStr].into_iter());
    }
    Ok(settings)
}

/// Where the type written by hand stands.
fn path(hand_type: HandType) -> String {
    match hand_type {
        HandType::Size => "crate::image::SizeRequest".to_owned(),
        HandType::Bounded(min, max) => format!("crate::wire::Bounded<{min}, {max}>"),
        HandType::Secret => "crate::wire::Secret".to_owned(),
    }
}

/// What else the type written by hand can do. A secret has no text.
const fn impls(hand_type: HandType) -> &'static [TypeImpl] {
    match hand_type {
        HandType::Size | HandType::Bounded(..) => &[TypeImpl::Display, TypeImpl::FromStr],
        HandType::Secret => &[],
    }
}

/// The names that the document gives to types written by hand, so that no one repeats the bounds.
fn aliases(document: &Document) -> Result<Vec<Item>> {
    let mut aliases = Vec::new();
    for (name, schema) in document.components()? {
        let Some(hand_type) = hand_type(schema) else { continue };
        let path: Type = syn::parse_str(&path(hand_type))?;
        let name = Ident::new(name, Span::call_site());
        let about = docs::doc_attributes(schema["description"].as_str().unwrap_or_default());
        aliases.push(parse_quote! { #(#about)* pub type #name = #path; });
    }
    Ok(aliases)
}

/// A path item without methods would still be asked for its parameters, so the last method takes the item along.
fn remove_method(item: &mut Value, method: &str) {
    if let Some(item) = item.as_object_mut() {
        item.remove(method);
    }
}

/// Where an answer is JSON or a stream of events, progenitor types the JSON; the stream is written by hand.
fn remove_events(paths: &mut Value) {
    let items = paths.as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    let operations = items.filter_map(Value::as_object_mut).flat_map(|item| item.values_mut());
    for operation in operations {
        if let Some(content) = operation.pointer_mut("/responses/200/content").and_then(Value::as_object_mut) {
            content.remove("text/event-stream");
        }
    }
}

/// `null` stands for an absent value, and an absent value is not sent: a default would send it after all.
fn remove_defaults(schemas: &mut Value) {
    let schemas = schemas.as_object_mut().into_iter().flat_map(|schemas| schemas.values_mut());
    let properties = schemas.filter_map(|schema| schema.get_mut("properties")?.as_object_mut());
    for property in properties.flat_map(|properties| properties.values_mut()).filter_map(Value::as_object_mut) {
        property.remove("default");
    }
}

/// Moves the module `types` into a file of its own.
fn split_types(mut file: File) -> Result<Sdk> {
    let is_types = |item: &Item| matches!(item, Item::Mod(module) if module.ident == "types");
    let at = file.items.iter().position(is_types).context("progenitor wrote no module `types`")?;
    let Item::Mod(types) = file.items.remove(at) else {
        return Err(anyhow!("the module `types` moved"));
    };
    let (_, mut items) = types.content.context("the module `types` has no content")?;
    docs::rewrite_docs(&mut items);
    docs::rewrite_docs(&mut file.items);
    let types = File { shebang: None, frontmatter: None, attrs: Vec::new(), items };
    Ok(Sdk { types, client: file })
}
