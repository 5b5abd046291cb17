//! The documentation in generated code: one comment line for each line of text, and no copy of the schema.

use syn::{Attribute, Expr, ExprLit, Fields, Item, Lit, Meta, parse_quote};

/// Rewrites the documentation of every item, field and variant.
pub(crate) fn rewrite_docs(items: &mut [Item]) {
    for item in items {
        if let Item::Struct(item) = item {
            rewrite(&mut item.attrs);
            fields(&mut item.fields);
        } else if let Item::Enum(item) = item {
            rewrite(&mut item.attrs);
            for variant in &mut item.variants {
                rewrite(&mut variant.attrs);
                fields(&mut variant.fields);
            }
        } else if let Item::Type(item) = item {
            rewrite(&mut item.attrs);
        } else if let Item::Mod(item) = item {
            rewrite_docs(item.content.as_mut().map_or(&mut [], |(_, items)| items.as_mut_slice()));
        }
    }
}

fn fields(fields: &mut Fields) {
    fields.iter_mut().for_each(|field| rewrite(&mut field.attrs));
}

fn rewrite(attributes: &mut Vec<Attribute>) {
    let mut rewritten = Vec::new();
    for attribute in attributes.drain(..) {
        match text_of(&attribute) {
            Some(text) => rewritten.extend(doc_attributes(&text)),
            None => rewritten.push(attribute),
        }
    }
    *attributes = rewritten;
}

pub(crate) fn text_of(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(meta) = &attribute.meta else { return None };
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &meta.value else { return None };
    meta.path.is_ident("doc").then(|| text.value())
}

/// One `doc` attribute for each line. Text from `<details>` on is dropped: it repeats the schema of the document.
pub(crate) fn doc_attributes(text: &str) -> Vec<Attribute> {
    let text = text.split_once("<details>").map_or(text, |(kept, _)| kept);
    let spaced =
        |line: &str| if line.is_empty() || line.starts_with(' ') { line.to_owned() } else { format!(" {line}") };
    text.trim_end().lines().map(spaced).map(|line| parse_quote!(#[doc = #line])).collect()
}
