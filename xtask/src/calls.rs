//! The calls of a generated client: they return the answer itself, and the error of the SDK.
//!
//! Progenitor's calls return its own error type, whose details depend on how an answer failed. Here, each `send` becomes
//! private, and a new `send` hands its result to `finish` of the client's inner value.

use quote::format_ident;
use syn::{GenericArgument, ImplItem, ImplItemFn, Item, PathArguments, ReturnType, Type, parse_quote};

/// Replaces the function `send` of each builder.
pub(crate) fn return_own_errors(items: &mut [Item]) {
    let builders = items.iter_mut().filter_map(|item| match item {
        Item::Mod(module) if module.ident == "builder" => module.content.as_mut(),
        _ => None,
    });
    for item in builders.flat_map(|(_, items)| items) {
        let Item::Impl(item) = item else { continue };
        let sends: Vec<ImplItem> = item.items.iter_mut().filter_map(replace_send).collect();
        item.items.extend(sends);
    }
}

/// Hides the constructors of the client: they take its inner value, which only the SDK can make.
pub(crate) fn hide_constructors(items: &mut [Item]) {
    let impls = items.iter_mut().filter_map(|item| match item {
        Item::Impl(item) if item.trait_.is_none() => Some(item),
        _ => None,
    });
    for item in impls.flat_map(|item| &mut item.items) {
        if let ImplItem::Fn(function) = item
            && ["new", "new_with_client"].iter().any(|name| function.sig.ident == name)
        {
            function.attrs.push(parse_quote!(#[doc(hidden)]));
        }
    }
}

/// Renames the function `send`, and returns the one that replaces it.
fn replace_send(item: &mut ImplItem) -> Option<ImplItem> {
    let ImplItem::Fn(function) = item else { return None };
    if function.sig.ident != "send" {
        return None;
    }
    let answer = answer_type(function)?;
    let about = std::mem::take(&mut function.attrs);
    function.sig.ident = format_ident!("send_once");
    function.vis = syn::Visibility::Inherited;
    Some(parse_quote! {
        #(#about)*
        pub async fn send(self) -> Result<#answer, crate::client::Error> {
            let client = self.client;
            client.inner().finish(self.send_once().await).await
        }
    })
}

/// The type of the answer: `T` of `Result<ResponseValue<T>, _>`.
fn answer_type(function: &ImplItemFn) -> Option<Type> {
    let ReturnType::Type(_, returned) = &function.sig.output else { return None };
    first_argument(&first_argument(returned)?)
}

fn first_argument(of: &Type) -> Option<Type> {
    let Type::Path(path) = of else { return None };
    let PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(argument) => Some(argument.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_constructors_are_hidden() {
        let text = "impl Client { pub fn new() -> Self { Self } pub fn list_keys(&self) {} } impl Other for Client { fn new() {} }";
        let mut file = syn::parse_str::<syn::File>(text).unwrap();
        hide_constructors(&mut file.items);
        let printed = prettyplease::unparse(&file);
        assert!(printed.contains("#[doc(hidden)]\n    pub fn new()"), "{printed}");
        assert_eq!(printed.matches("hidden").count(), 1, "{printed}");
    }

    #[test]
    fn a_call_returns_the_answer_or_the_error_of_the_sdk() {
        let mut file = syn::parse_str::<syn::File>(
            "mod builder { impl ListKeys { /// Sends it.\n pub async fn send(self) -> Result<ResponseValue<types::KeyList>, Error<()>> { run() } } }",
        )
        .unwrap();
        return_own_errors(&mut file.items);
        let printed = prettyplease::unparse(&file);
        for part in [
            "async fn send_once(self) -> Result<ResponseValue<types::KeyList>, Error<()>>",
            "/// Sends it.\n        pub async fn send(self) -> Result<types::KeyList, crate::client::Error>",
        ] {
            assert!(printed.contains(part), "{part}\n{printed}");
        }
        assert!(!printed.contains("pub async fn send_once"), "{printed}");
    }
}
