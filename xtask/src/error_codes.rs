//! The codes of the error tables of both documents, as one enumeration: a code can stand in both.

use anyhow::{Context as _, Result, ensure};
use quote::{format_ident, quote};
use syn::{File, Ident};

use crate::document::Document;

pub(crate) fn generate(documents: [&Document; 2]) -> Result<File> {
    let mut codes: Vec<&str> = Vec::new();
    let (mut variants, mut texts, mut statuses, mut kinds) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for document in documents {
        for row in document.value()["x-imagate-errors"].as_array().context("x-imagate-errors")? {
            let [code, kind, cause] = ["code", "type", "cause"].map(|name| row[name].as_str());
            let (code, kind, cause) = (code.context("code")?, kind.context("type")?, cause.context("cause")?);
            if codes.contains(&code) {
                continue;
            }
            let status = row["status"].as_u64().and_then(|status| u16::try_from(status).ok()).context("status")?;
            let (variant, doc) = (variant(code)?, format!(" {cause}"));
            codes.push(code);
            variants.push(quote! { #[doc = #doc] #variant });
            texts.push(quote! { Self::#variant => #code });
            statuses.push(quote! { Self::#variant => #status });
            kinds.push(quote! { Self::#variant => #kind });
        }
    }
    let all = codes.iter().map(|code| variant(code)).collect::<Result<Vec<_>>>()?;
    let file = quote! {
        #[doc = " A row of the error tables: the stable code that programs compare."]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum ApiErrorCode { #(#variants),* }
        impl ApiErrorCode {
            #[doc = " All codes."]
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[#(Self::#all),*];
            #[doc = " Returns `error.code`."]
            pub(crate) const fn as_str(self) -> &'static str { match self { #(#texts),* } }
            #[doc = " Returns the HTTP status of the code."]
            pub(crate) const fn status(self) -> u16 { match self { #(#statuses),* } }
            #[doc = " Returns `error.type`."]
            pub(crate) const fn kind(self) -> &'static str { match self { #(#kinds),* } }
        }
    };
    syn::parse2(file).context("error codes")
}

/// The variant for a code: its words, each with a capital letter.
fn variant(code: &str) -> Result<Ident> {
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphabetic());
    ensure!(code.split('_').all(is_word), "'{code}' is not a code");
    let words = code.split('_').map(|word| word[..1].to_ascii_uppercase() + &word[1..].to_ascii_lowercase());
    Ok(format_ident!("{}", words.collect::<String>()))
}
