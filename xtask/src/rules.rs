//! The rules for skills registry manifests: a constant for each row of the document, and the list of all.

use anyhow::{Context as _, Result, ensure};
use quote::{format_ident, quote};
use serde::Deserialize;
use syn::File;

/// The document with the rules.
pub(crate) const DOCUMENT: &str = "schemas/skills-rules.json";

/// One rule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleRow {
    id: String,
    name: String,
    class: String,
    level: String,
    summary: String,
    explain: String,
}

pub(crate) fn generate(document: &str) -> Result<File> {
    let rows: Vec<RuleRow> = serde_json::from_str(document).context(DOCUMENT)?;
    let rules = rows.iter().map(|RuleRow { id, name, class, level, summary, explain }| {
        let (constant, class, level) = (format_ident!("{id}"), variant(class)?, variant(level)?);
        let doc = format!(" {summary}");
        Ok(quote! {
            #[doc = #doc]
            pub(in crate::manifest) static #constant: Rule = Rule {
                id: #id,
                name: #name,
                class: RuleClass::#class,
                level: FindingLevel::#level,
                summary: #summary,
                explain: #explain,
            };
        })
    });
    let rules = rules.collect::<Result<Vec<_>>>()?;
    let constants = rows.iter().map(|row| format_ident!("{}", row.id));
    let file = quote! {
        #(#rules)*
        #[doc = " Every rule, in the order of the document."]
        const ALL: &[&Rule] = &[#(&#constants),*];
    };
    syn::parse2(file).context(DOCUMENT)
}

/// The variant of an enumeration for a word: the word with a capital letter.
fn variant(word: &str) -> Result<syn::Ident> {
    ensure!(!word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase()), "'{word}' is not a word");
    Ok(format_ident!("{}{}", word[..1].to_ascii_uppercase(), &word[1..]))
}
