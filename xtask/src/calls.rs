//! The calls of the generated clients.
//!
//! The calls of the admin client return the answer itself, and the error of the SDK. Progenitor's calls return its own
//! error type, whose details depend on how an answer failed. Here, each `send` becomes private, and a new `send` hands its
//! result to `finish` of the client's inner value.
//!
//! The calls of the public client take bodies that keep members and words that the document does not name. Those whose
//! answer may be a stream return their request, which the SDK sends: it may send it again, and reads the answer while it
//! arrives.

use anyhow::{Context as _, Result};
use quote::{ToTokens as _, format_ident};
use syn::{FnArg, GenericArgument, ImplItem, ImplItemFn, Item, PathArguments, ReturnType, Stmt, Type, parse_quote};

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

/// Replaces the body of each call by one that is written as it was given.
pub(crate) fn take_lossless_bodies(items: &mut [Item]) {
    for function in calls(items) {
        let arguments = function.sig.inputs.iter_mut().filter_map(|argument| match argument {
            FnArg::Typed(argument) if argument.pat.to_token_stream().to_string() == "body" => Some(argument),
            _ => None,
        });
        for argument in arguments {
            if let Type::Reference(reference) = &mut *argument.ty {
                let component = &reference.elem;
                reference.elem = parse_quote!(crate::client::JsonRequestBody<#component>);
            }
        }
    }
}

/// Replaces each call whose answer may be a stream by a function that returns its request.
pub(crate) fn return_requests(items: &mut [Item], is_stream: &dyn Fn(&str) -> bool) -> Result<()> {
    for function in calls(items).filter(|function| is_stream(&function.sig.ident.to_string())) {
        let name = function.sig.ident.to_string();
        let hook = |statement: &Stmt| statement.to_token_stream().to_string().contains(". pre (");
        let statements = &mut function.block.stmts;
        let end = statements.iter().position(hook).with_context(|| format!("{name}: progenitor calls no hook"))?;
        statements.truncate(end + 1);
        statements.push(Stmt::Expr(parse_quote!(Ok(request)), None));
        let ReturnType::Type(_, returned) = &function.sig.output else { continue };
        let error = type_argument(returned, 1).with_context(|| format!("{name}: no error type"))?;
        function.sig.output = parse_quote!(-> Result<::reqwest::Request, #error>);
    }
    Ok(())
}

/// The calls of the client: the asynchronous functions of its own.
fn calls(items: &mut [Item]) -> impl Iterator<Item = &mut ImplItemFn> {
    let own = items.iter_mut().filter_map(|item| match item {
        Item::Impl(item) if item.trait_.is_none() => Some(item),
        _ => None,
    });
    own.flat_map(|item| &mut item.items).filter_map(|item| match item {
        ImplItem::Fn(function) if function.sig.asyncness.is_some() => Some(function),
        _ => None,
    })
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
    type_argument(&type_argument(returned, 0)?, 0)
}

fn type_argument(of: &Type, index: usize) -> Option<Type> {
    let Type::Path(path) = of else { return None };
    let PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else { return None };
    match arguments.args.get(index)? {
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

    #[test]
    fn a_call_that_may_stream_returns_its_request() {
        let call = "Result<ResponseValue<types::Fox>, Error<types::Fault>> { let mut request = build()?; client.pre(&mut request).await?; exec(request).await }";
        let text = format!(
            "impl Client {{ pub async fn draw<'a>(&'a self, body: &'a types::Draw) -> {call} pub async fn price(&self) -> {call} }}"
        );
        let mut file = syn::parse_str::<syn::File>(&text).unwrap();
        take_lossless_bodies(&mut file.items);
        return_requests(&mut file.items, &|name| name == "draw").unwrap();
        let printed = prettyplease::unparse(&file);
        for part in [
            "body: &'a crate::client::JsonRequestBody<types::Draw>,\n    ) -> Result<::reqwest::Request, Error<types::Fault>>",
            "client.pre(&mut request).await?;\n        Ok(request)",
            "pub async fn price(&self) -> Result<ResponseValue<types::Fox>, Error<types::Fault>>",
        ] {
            assert!(printed.contains(part), "{part}\n{printed}");
        }
        assert_eq!(printed.matches("exec(request)").count(), 1, "{printed}");
    }
}
