//! Writes the methods of an API whose operations are methods of one value.

use anyhow::{Context as _, Result};
use proc_macro2::TokenStream;
use quote::quote;
use syn::File;

use super::{ident, names_in_path, struct_name};
use crate::api::Api;
use crate::document::{Document, Operation};

/// Generates the implementation of the trait for an API whose operations are methods of one value: each method passes the
/// parameters to the method of the same name. The file that includes the code has the functions that do the rest.
pub(crate) fn endpoints(api: &Api, (endpoints, bound): (&str, &str), document: &Document) -> Result<File> {
    let methods = document.operations()?.iter().map(endpoint_method).collect::<Result<Vec<_>>>()?;
    let (name, endpoints, bound) = (ident(api.trait_name), ident(endpoints), ident(bound));
    let file = quote! {
        impl<S: #bound> server::#name for #endpoints<S> {
            type Context = S;

            #(#methods)*
        }
    };
    syn::parse2(file).context("the implementation as written is not Rust")
}

fn endpoint_method(operation: &Operation<'_>) -> Result<TokenStream> {
    let name = ident(operation.id);
    let (mut parameters, mut reads, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let path: Vec<&str> = names_in_path(operation.path).collect();
    if !path.is_empty() {
        let (kind, names) = (struct_name(operation, "Path"), path.iter().map(|name| ident(name)));
        parameters.push(quote! { path: front::PathParameters<server::#kind> });
        reads.push(quote! { let path = path.into_value()?; });
        values.extend(names.map(|name| quote! { &path.#name }));
    }
    if operation.parameters("query").next().is_some() {
        let kind = struct_name(operation, "Query");
        parameters.push(quote! { query: front::Query<server::#kind> });
        values.push(quote! { &query.parse()? });
    }
    let answer = ident(operation.answer_component().context("the 200 needs a JSON component")?);
    let body = operation.request_component().map(ident);
    let (function, body) = match &body {
        Some(component) => {
            parameters.push(quote! { body: front::JsonBody<types::#component> });
            values.push(quote! { &body });
            (quote! { run_operation_with_body }, Some(quote! { body, }))
        }
        None => (quote! { run_operation }, None),
    };
    Ok(quote! {
        async fn #name(head: front::RequestHead<S>, #(#parameters),*) -> front::TypedResponse<types::#answer> {
            #function(&head, #body |operations, actor, #body| async move {
                #(#reads)*
                operations.#name(&actor, #(#values),*).await
            })
            .await
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::PETS;
    use super::*;
    use crate::api::GATEWAY;

    const FEED_PET_METHOD: &str = r##"    async fn feed_pet(
        head: front::RequestHead<S>,
        path: front::PathParameters<server::FeedPetPath>,
        body: front::JsonBody<types::Food>,
    ) -> front::TypedResponse<types::Pet> {
        run_operation_with_body(
                &head,
                body,
                |operations, actor, body| async move {
                    let path = path.into_value()?;
                    operations.feed_pet(&actor, &path.id, &body).await
                },
            )
            .await
    }
"##;

    #[test]
    fn an_operation_can_become_a_call_of_the_method_of_its_name() {
        let file = endpoints(&GATEWAY, ("PetEndpoints", "PetServer"), &Document::parse(PETS).unwrap()).unwrap();
        let printed = prettyplease::unparse(&file);
        assert!(printed.starts_with("impl<S: PetServer> server::GatewayApi for PetEndpoints<S> {\n"), "{printed}");
        assert!(printed.contains(FEED_PET_METHOD), "{printed}");
    }
}
