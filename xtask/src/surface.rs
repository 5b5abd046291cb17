//! The public surface of the generated types: it can grow without a break, and every item of it has documentation.

use std::collections::BTreeMap;

use anyhow::Result;
use proc_macro2::{Group, Ident, Literal, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote};
use serde_json::Value;
use syn::{Attribute, Fields, ImplItem, Item, ItemEnum, ItemImpl, ItemStruct, LitStr, Type, Variant, parse_quote};

use crate::docs::{doc_attributes, text_of};

/// Prepares the items for programs of others. Later versions of the document may add members and words, so structs and
/// enums are not exhaustive.
pub(crate) fn prepare(items: &mut [Item]) {
    let abouts: BTreeMap<String, String> = items.iter().filter_map(about).collect();
    for item in items {
        match item {
            Item::Struct(item) if matches!(item.fields, Fields::Named(_)) => {
                item.attrs.push(parse_quote!(#[non_exhaustive]));
                item.fields.iter_mut().for_each(|field| {
                    let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
                    add_docs(&mut field.attrs, || field_docs(&name, &field.ty, &abouts));
                });
            }
            Item::Enum(item) => {
                item.attrs.push(parse_quote!(#[non_exhaustive]));
                for variant in &mut item.variants {
                    let word = word_of(&variant.attrs).unwrap_or_else(|| variant.ident.to_string());
                    add_docs(&mut variant.attrs, || format!("The word `{word}`."));
                }
            }
            Item::Impl(item) if item.trait_.is_none() => document_functions(&mut item.items),
            Item::Mod(item) if item.ident == "builder" => {
                add_docs(&mut item.attrs, || "The builders of the types.".to_owned());
                let (_, items) = item.content.get_or_insert_default();
                items.iter_mut().for_each(document_builder);
            }
            _ => {}
        }
    }
}

/// The keyword of the names that the variants of an enumeration have in programs. Generators of other languages read it
/// too.
const VARIANT_NAMES: &str = "x-enum-varnames";

/// Gives the variants of an enumeration the names that the document states, if its words are no names.
pub(crate) fn name_variants(items: &mut [Item], schemas: &Value) -> Result<()> {
    for (name, schema) in schemas.as_object().into_iter().flatten() {
        let texts = |keyword: &str| schema[keyword].as_array().into_iter().flatten().filter_map(Value::as_str);
        let names: BTreeMap<&str, &str> = texts("enum").zip(texts(VARIANT_NAMES)).collect();
        if names.is_empty() {
            continue;
        }
        for item in items.iter_mut() {
            match item {
                Item::Enum(item) if item.ident == name => {
                    item.variants.iter_mut().for_each(|variant| name_variant(variant, &names));
                }
                Item::Impl(found) if type_name(&found.self_ty) == *name => {
                    *item = syn::parse2(rename_identifiers(found.to_token_stream(), &names))?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn name_variant(variant: &mut Variant, names: &BTreeMap<&str, &str>) {
    let word = variant.ident.to_string();
    if let Some(name) = names.get(word.as_str()) {
        variant.attrs.push(parse_quote!(#[serde(rename = #word)]));
        variant.ident = Ident::new(name, Span::call_site());
    }
}

fn rename_identifiers(tokens: TokenStream, names: &BTreeMap<&str, &str>) -> TokenStream {
    let rename = |token| match token {
        TokenTree::Ident(ident) => {
            let name = names.get(ident.to_string().as_str()).map(|name| Ident::new(name, ident.span()));
            TokenTree::Ident(name.unwrap_or(ident))
        }
        TokenTree::Group(group) => {
            TokenTree::Group(Group::new(group.delimiter(), rename_identifiers(group.stream(), names)))
        }
        other => other,
    };
    tokens.into_iter().map(rename).collect()
}

/// Gives each enumeration of words the function `as_str`, which has no cost, and lets `Display` call it.
pub(crate) fn add_word_texts(items: &mut Vec<Item>) {
    let words: BTreeMap<String, ItemImpl> = items.iter().filter_map(word_text).collect();
    for item in items.iter_mut() {
        let Item::Impl(item) = item else { continue };
        let is_display = trait_name(item).is_some_and(|name| name == "Display");
        if is_display && words.contains_key(&type_name(&item.self_ty)) {
            let display: ImplItem = parse_quote! {
                fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                    f.write_str(self.as_str())
                }
            };
            item.items = vec![display];
        }
    }
    items.extend(words.into_values().map(Item::Impl));
}

/// The function `as_str` of an enumeration of words, with its name.
fn word_text(item: &Item) -> Option<(String, ItemImpl)> {
    let item = word_enum(item)?;
    let name = &item.ident;
    let arms = item.variants.iter().map(|variant| {
        let (ident, word) = (&variant.ident, word_of(&variant.attrs).unwrap_or_else(|| variant.ident.to_string()));
        quote!(Self::#ident => #word,)
    });
    let function = parse_quote! {
        impl #name {
            /// Returns the word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { #(#arms)* }
            }
        }
    };
    Some((name.to_string(), function))
}

/// The enumerations whose words a program lists.
const LISTED_WORDS: [&str; 11] = [
    "AccountImageUrls",
    "AccountKind",
    "AccountProtocol",
    "AccountTier",
    "Dialect",
    "OauthClientAuth",
    "OauthGrant",
    "RecordReason",
    "RecordState",
    "UsageGrouping",
    "UsageMeasure",
];

/// Gives an enumeration the list of its words, if a program lists them.
pub(crate) fn add_word_lists(items: &mut Vec<Item>) {
    let list = |item: &ItemEnum| -> Item {
        let (name, variants) = (&item.ident, item.variants.iter().map(|variant| &variant.ident));
        let count = Literal::usize_unsuffixed(item.variants.len());
        parse_quote! {
            impl #name {
                /// Every word, in the order of the document.
                pub const ALL: [Self; #count] = [#(Self::#variants,)*];
            }
        }
    };
    let is_listed = |item: &&ItemEnum| LISTED_WORDS.iter().any(|name| item.ident == name);
    let lists: Vec<Item> = items.iter().filter_map(word_enum).filter(is_listed).map(list).collect();
    items.extend(lists);
}

/// The item, if it is an enumeration of words.
fn word_enum(item: &Item) -> Option<&ItemEnum> {
    let Item::Enum(item) = item else { return None };
    let is_word = item.variants.iter().all(|variant| matches!(variant.fields, Fields::Unit));
    Some(item).filter(|item| is_word && !item.variants.is_empty())
}

/// Removes the conversions of texts that only builders use; `parse` remains.
pub(crate) fn remove_text_conversions(items: &mut Vec<Item>) {
    items.retain(|item| !matches!(item, Item::Impl(item) if trait_name(item).is_some_and(|name| name == "TryFrom")));
}

/// Removes the members for what the document does not name: a program that only makes these values has nothing to put
/// there.
pub(crate) fn remove_unknown_members(items: &mut [Item]) {
    for item in items {
        let Item::Struct(ItemStruct { fields: Fields::Named(fields), .. }) = item else { continue };
        let named = std::mem::take(&mut fields.named);
        fields.named = named.into_iter().filter(|field| !is_flattened(&field.attrs)).collect();
    }
}

fn is_flattened(attributes: &[Attribute]) -> bool {
    let mut is_flattened = false;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        // An attribute of another form has another meaning.
        let _ = attribute.parse_nested_meta(|meta| {
            is_flattened |= meta.path.is_ident("flatten");
            Ok(())
        });
    }
    is_flattened
}

/// The name of the trait that is implemented.
fn trait_name(item: &ItemImpl) -> Option<String> {
    let (path, _) = item.trait_.as_ref()?;
    path.segments.last().map(|segment| segment.ident.to_string())
}

/// Removes the builders that nobody uses. A client needs those of its requests; the gateway makes values of structs, and a
/// client only reads the other types.
pub(crate) fn remove_builders(items: &mut Vec<Item>, is_kept: &impl Fn(&str) -> bool) {
    items.retain_mut(|item| match item {
        Item::Impl(item) => !has_builder(item) || is_kept(&type_name(&item.self_ty)),
        Item::Mod(item) if item.ident == "builder" => {
            let (_, items) = item.content.get_or_insert_default();
            items.retain(|item| match item {
                Item::Struct(item) => is_kept(&item.ident.to_string()),
                Item::Impl(item) => is_kept(&type_name(&item.self_ty)),
                _ => true,
            });
            !items.is_empty()
        }
        _ => true,
    });
}

/// Returns whether a type gets its builder here.
fn has_builder(item: &ItemImpl) -> bool {
    let is_builder = |item: &ImplItem| matches!(item, ImplItem::Fn(function) if function.sig.ident == "builder");
    item.trait_.is_none() && item.items.iter().any(is_builder)
}

/// The last name in the path of a type.
fn type_name(named: &Type) -> String {
    let Type::Path(named) = named else { return String::new() };
    named.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default()
}

/// The name of a type, and its documentation.
fn about(item: &Item) -> Option<(String, String)> {
    let (name, attributes) = match item {
        Item::Struct(item) => (&item.ident, &item.attrs),
        Item::Enum(item) => (&item.ident, &item.attrs),
        _ => return None,
    };
    let lines: Vec<String> = attributes.iter().filter_map(text_of).collect();
    Some((name.to_string(), lines.join("\n"))).filter(|(_, about)| !about.is_empty())
}

/// The documentation of a member that the document does not describe: that of its type.
fn field_docs(name: &str, field_type: &Type, abouts: &BTreeMap<String, String>) -> String {
    if name == "extra" {
        return "The members that this version does not know.".to_owned();
    }
    let tokens = field_type.to_token_stream().to_string();
    let known = tokens.split_whitespace().rev().find_map(|word| abouts.get(word));
    known.cloned().unwrap_or_else(|| format!("The member `{name}`."))
}

fn add_docs(attributes: &mut Vec<Attribute>, text: impl FnOnce() -> String) {
    if !attributes.iter().any(|attribute| text_of(attribute).is_some()) {
        attributes.splice(0..0, doc_attributes(&text()));
    }
}

/// The word of a variant, as serde writes it.
fn word_of(attributes: &[Attribute]) -> Option<String> {
    let mut word = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        // An attribute of another form has no word.
        let _ = attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("rename") {
                word = Some(meta.value()?.parse::<LitStr>()?.value());
            }
            Ok(())
        });
    }
    word
}

fn document_builder(item: &mut Item) {
    match item {
        Item::Struct(item) => {
            let about = format!("A builder of [`{0}`](super::{0}).", item.ident);
            add_docs(&mut item.attrs, || about);
        }
        Item::Impl(item) if item.trait_.is_none() => document_functions(&mut item.items),
        _ => {}
    }
}

/// Documents the functions of a type, which make its builder, and those of a builder, which set a member.
fn document_functions(items: &mut [ImplItem]) {
    for item in items {
        let ImplItem::Fn(function) = item else { continue };
        let name = function.sig.ident.to_string();
        add_docs(&mut function.attrs, || match name.as_str() {
            "builder" => "Returns a builder.".to_owned(),
            name => format!("Sets the member `{name}`."),
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prepared(code: &str) -> String {
        let mut file = syn::parse_str::<syn::File>(code).unwrap();
        prepare(&mut file.items);
        prettyplease::unparse(&file)
    }

    #[test]
    fn structs_and_enums_can_grow_and_have_documentation() {
        let printed = prepared(
            "/// The tokens.\nstruct Usage { pub total: u64 }\nstruct Answer { pub usage: ::std::option::Option<Usage>, pub extra: Map }\n\
             enum Word { #[serde(rename = \"as_is\")] AsIs }\nimpl Answer { pub fn builder() {} }\n\
             mod builder { pub struct Usage {} impl Usage { pub fn total() {} } }",
        );
        for part in [
            "#[non_exhaustive]\nstruct Answer {\n    /// The tokens.\n    pub usage",
            "/// The members that this version does not know.\n    pub extra",
            "/// The member `total`.\n    pub total",
            "#[non_exhaustive]\nenum Word {\n    /// The word `as_is`.\n    #[serde(rename = \"as_is\")]\n    AsIs",
            "/// Returns a builder.\n    pub fn builder()",
            "/// A builder of [`Usage`](super::Usage).\n    pub struct Usage",
            "/// Sets the member `total`.\n        pub fn total",
        ] {
            assert!(printed.contains(part), "{part}\n{printed}");
        }
    }

    #[test]
    fn variants_have_the_names_that_the_document_states() {
        let code = "enum Class { N, O } impl Class { fn f(n: Class) -> bool { n == Self::N } } enum Other { N }";
        let mut file = syn::parse_str::<syn::File>(code).unwrap();
        let schemas = json!({"Class": {"enum": ["N", "O"], VARIANT_NAMES: ["NothingDone", "OutputBegun"]}});
        name_variants(&mut file.items, &schemas).unwrap();
        let named = "enum Class { #[serde(rename = \"N\")] NothingDone, #[serde(rename = \"O\")] OutputBegun } \
             impl Class { fn f(n: Class) -> bool { n == Self::NothingDone } } enum Other { N }";
        assert_eq!(prettyplease::unparse(&file), prettyplease::unparse(&syn::parse_str(named).unwrap()));
    }

    #[test]
    fn members_that_the_document_does_not_name_are_removed() {
        let mut file = syn::parse_str::<syn::File>(
            "struct Key { #[serde(default)] pub extra: u8, #[serde(flatten)] pub more: Map } struct Name(String);",
        )
        .unwrap();
        remove_unknown_members(&mut file.items);
        let kept = "struct Key { #[serde(default)] pub extra: u8 } struct Name(String);";
        assert_eq!(prettyplease::unparse(&file), prettyplease::unparse(&syn::parse_str(kept).unwrap()));
    }

    #[test]
    fn builders_of_types_that_no_request_has_are_removed() {
        let mut file = syn::parse_str::<syn::File>(
            "impl Key { pub fn builder() {} } impl NewKey { pub fn builder() {} } impl Key { pub fn name() {} }\n\
             mod builder { struct Key {} impl Key {} impl From<super::Key> for Key {} struct NewKey {} impl NewKey {} }",
        )
        .unwrap();
        remove_builders(&mut file.items, &|name| name == "NewKey");
        let kept = "impl NewKey { pub fn builder() {} } impl Key { pub fn name() {} }\n\
             mod builder { struct NewKey {} impl NewKey {} }";
        assert_eq!(prettyplease::unparse(&file), prettyplease::unparse(&syn::parse_str(kept).unwrap()));
    }
}
