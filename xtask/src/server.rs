//! The server trait: for each operation of the document, a method that the gateway implements, an endpoint of dropshot
//! that calls it, and a route that calls it on the connections of the gateway.
//!
//! No public generator makes a dropshot trait from a document.
//! The generated code names types of `gateway::front` (`front::JsonBody`, `front::TypedResponse`), which are written by hand.

mod endpoint_methods;

pub(crate) use endpoint_methods::endpoints;

use anyhow::{Context as _, Result, bail, ensure};
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};
use serde_json::{Value, json};
use syn::{Attribute, File};

use crate::api::Api;
use crate::docs;
use crate::document::{Document, Operation, component_of};

pub(crate) fn generate(api: &Api, document: &Document) -> Result<File> {
    let operations = document.operations()?;
    let (mut parameters, mut methods, mut routes) = (Vec::new(), Vec::new(), Vec::new());
    for operation in &operations {
        let operation_id = || operation.id.to_owned();
        parameters.extend(path_struct(operation).with_context(operation_id)?);
        parameters.extend(query_struct(operation).with_context(operation_id)?);
        methods.push(method(document, operation).with_context(operation_id)?);
        routes.push(route(document, operation).with_context(operation_id)?);
    }
    let (name, count) = (ident(api.trait_name), Literal::usize_unsuffixed(routes.len()));
    let file = quote! {
        #(#parameters)*

        #[doc = " The operations of the document: one method for each, and the endpoint of dropshot that calls it."]
        #[dropshot::api_description]
        pub trait #name {
            #[doc = " The server whose requests the methods answer."]
            type Context: front::AdmittingServer;

            #(#methods)*
        }

        #[doc = " Returns the routes of all operations, for connections that dropshot does not serve."]
        pub fn routes<Served: #name>() -> [front::Route<Served::Context>; #count] {
            [#(#routes),*]
        }
    };
    syn::parse2(file).context("the trait as written is not Rust")
}

/// The method of an operation, and its endpoint.
fn method(document: &Document, operation: &Operation<'_>) -> Result<TokenStream> {
    let attribute = attribute(document, operation)?;
    let docs = docs(operation);
    let (name, endpoint, id) = (ident(operation.id), format_ident!("{}_endpoint", operation.id), operation.id);
    let path = operation.parameters("path").next().map(|_| {
        let path = struct_name(operation, "Path");
        quote! { path: front::PathParameters<#path>, }
    });
    let query = operation.parameters("query").next().map(|_| {
        let query = struct_name(operation, "Query");
        quote! { query: front::Query<#query>, }
    });
    let body = body_parameter(operation)?;
    let arguments = arguments(operation);
    let answer = ident(operation.answer_component().context("the 200 needs a JSON component")?);
    let answer = quote! { front::TypedResponse<types::#answer> };
    let about = format!(" Answers the requests of `{id}`.");
    Ok(quote! {
        #[doc = #about]
        fn #name(head: front::RequestHead<Self::Context>, #path #query #body)
            -> impl Future<Output = #answer> + Send + 'static;

        #(#docs)*
        #attribute
        async fn #endpoint(rqctx: dropshot::RequestContext<Self::Context>, #path #query #body)
            -> Result<#answer, front::ApiError<types::ErrorResponse>> {
            Ok(Self::#name(front::RequestHead::from_dropshot(rqctx, #id) #(, #arguments)*).await)
        }
    })
}

/// The names of the parameters in a path, in their order.
fn names_in_path(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// The names of the parameters that an operation has.
fn arguments(operation: &Operation<'_>) -> Vec<Ident> {
    let has = |place| operation.parameters(place).next().is_some();
    let all = [("path", has("path")), ("query", has("query")), ("body", !operation.request_types().is_empty())];
    all.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| ident(name)).collect()
}

/// The route of an operation.
fn route(document: &Document, operation: &Operation<'_>) -> Result<TokenStream> {
    let (name, method) = (ident(operation.id), ident(&operation.method.to_uppercase()));
    let (path, id) = (operation.path, operation.id);
    let arguments = arguments(operation);
    let values = arguments.iter().map(|argument| match argument.to_string().as_str() {
        "path" => Ok(quote! { request.take_path() }),
        "query" => Ok(quote! { request.query() }),
        _ => {
            let cap = body_cap(document, operation)?;
            Ok(quote! { front::UnreadRequestBody::new(request.request, #cap) })
        }
    });
    let values = values.collect::<Result<Vec<_>>>()?;
    // The parameters in the path are moved out of the request.
    let binding = if arguments.iter().any(|argument| argument == "path") {
        quote! { mut request }
    } else {
        quote! { request }
    };
    Ok(quote! {
        front::Route::new(#id, dropshot::Method::#method, #path, |#binding| {
            #(let #arguments = #values;)*
            front::boxed_answer(Served::#name(request.head #(, #arguments)*))
        })
    })
}

fn attribute(document: &Document, operation: &Operation<'_>) -> Result<TokenStream> {
    let method = ident(&operation.method.to_uppercase());
    let (path, id) = (operation.path, operation.id);
    let tags = operation.value["tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
    // Without this attribute, dropshot allows 1024 bytes.
    let cap = if operation.request_types().is_empty() {
        None
    } else {
        let cap = body_cap(document, operation)?;
        Some(quote! { request_body_max_bytes = #cap, })
    };
    Ok(quote! {
        #[endpoint { method = #method, path = #path, operation_id = #id, tags = [#(#tags),*], #cap }]
    })
}

/// The limit of the body of an operation, in bytes. If a body may be JSON or a form, it is the limit of the form, which
/// is larger.
fn body_cap(document: &Document, operation: &Operation<'_>) -> Result<Literal> {
    let name = if operation.takes_form() {
        "max_edit_form_body_bytes"
    } else if operation.id == "create_response" {
        "max_responses_body_bytes"
    } else {
        "max_json_body_bytes"
    };
    let limit = document.limit(name).with_context(|| format!("the document has no limit '{name}'"))?;
    Ok(Literal::u64_unsuffixed(limit))
}

fn body_parameter(operation: &Operation<'_>) -> Result<Option<TokenStream>> {
    if operation.request_types().is_empty() {
        return Ok(None);
    }
    if operation.takes_form() {
        return Ok(Some(quote! { body: front::EditBody, }));
    }
    let component = ident(operation.request_component().context("the JSON body needs a component")?);
    Ok(Some(quote! { body: front::JsonBody<types::#component>, }))
}

/// The path parameters of an operation as a struct, with the schema that the document gives them.
fn path_struct(operation: &Operation<'_>) -> Result<Option<TokenStream>> {
    let parameters: Vec<&Value> = operation.parameters("path").collect();
    if parameters.is_empty() {
        return Ok(None);
    }
    let mut fields = Vec::new();
    for parameter in &parameters {
        let (name, kind) = field(parameter)?;
        let about = docs::doc_attributes(parameter["description"].as_str().unwrap_or_default());
        fields.push(quote! { #(#about)* pub #name: #kind });
    }
    let name = struct_name(operation, "Path");
    let about = format!(" The path parameters of `{}`.", operation.id);
    let schema = schema_impl(&name, &parameters)?;
    Ok(Some(quote! {
        #[doc = #about]
        #[derive(Clone, Debug, serde::Deserialize)]
        pub struct #name { #(#fields),* }

        #schema
    }))
}

/// The query parameters of an operation as a struct. All of them must be optional; unknown parameters are an error.
fn query_struct(operation: &Operation<'_>) -> Result<Option<TokenStream>> {
    let parameters: Vec<&Value> = operation.parameters("query").collect();
    if parameters.is_empty() {
        return Ok(None);
    }
    let mut fields = Vec::new();
    for parameter in &parameters {
        let (name, kind) = field(parameter)?;
        ensure!(parameter["required"] != true, "the query parameter '{name}' must not be required");
        let about = docs::doc_attributes(parameter["description"].as_str().unwrap_or_default());
        fields.push(quote! { #(#about)* pub #name: Option<#kind> });
    }
    let name = struct_name(operation, "Query");
    let table = ident(&format!("{}_PARAMETERS", operation.id.to_uppercase()));
    let about = format!(" The query parameters of `{}`.", operation.id);
    let schema = schema_impl(&name, &parameters)?;
    Ok(Some(quote! {
        #[doc = #about]
        #[derive(Clone, Debug, Default, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct #name { #(#fields),* }

        impl front::QueryParameters for #name {
            const TABLE: &'static [crate::tables::Field] = crate::tables::#table;
        }

        #schema
    }))
}

/// An implementation of `JsonSchema` that returns the schema of the parameters from the document.
fn schema_impl(name: &Ident, parameters: &[&Value]) -> Result<TokenStream> {
    let mut properties = serde_json::Map::new();
    let mut required = Vec::new();
    for parameter in parameters {
        let name = parameter["name"].as_str().context("a parameter without a name")?;
        properties.insert(name.to_owned(), schema_with_description(parameter));
        if parameter["required"] == true {
            required.push(name);
        }
    }
    let label = name.to_string();
    let schema = json!({ "type": "object", "properties": properties, "required": required }).to_string();
    Ok(quote! {
        impl schemars::JsonSchema for #name {
            fn schema_name() -> String {
                #label.to_owned()
            }

            fn json_schema(generator: &mut schemars::r#gen::SchemaGenerator) -> schemars::schema::Schema {
                super::served::schema(#schema, generator)
            }
        }
    })
}

/// Name and type of a parameter.
fn field(parameter: &Value) -> Result<(Ident, TokenStream)> {
    let name = parameter["name"].as_str().context("a parameter without a name")?;
    let schema = &parameter["schema"];
    let kind = match (component_of(schema), schema["format"].as_str()) {
        (Some(component), _) => {
            let component = ident(component);
            quote! { types::#component }
        }
        (None, _) if schema["type"] != "string" => bail!("parameter '{name}' must be a component, a text or a time"),
        (None, None) => quote! { String },
        (None, Some("date-time")) => quote! { chrono::DateTime<chrono::Utc> },
        (None, Some("date")) => quote! { chrono::NaiveDate },
        (None, Some(format)) => bail!("parameter '{name}': no type for a text of the format '{format}'"),
    };
    Ok((ident(name), kind))
}

/// The schema of a parameter with the description of the parameter, because dropshot reads it from the schema.
///
/// In OpenAPI 3.0 a reference cannot have a description, so it is wrapped in `allOf`; dropshot unwraps it again.
fn schema_with_description(parameter: &Value) -> Value {
    let schema = &parameter["schema"];
    let Some(description) = parameter.get("description") else { return schema.clone() };
    let mut described = if component_of(schema).is_some() { json!({ "allOf": [schema] }) } else { schema.clone() };
    described["description"] = description.clone();
    described
}

fn struct_name(operation: &Operation<'_>, suffix: &str) -> Ident {
    let words = operation.id.split('_').map(|word| {
        let (first, following) = word.split_at(word.len().min(1));
        format!("{}{following}", first.to_uppercase())
    });
    format_ident!("{}{suffix}", words.collect::<String>())
}

/// The documentation of an operation: the summary, which dropshot reads from the first line, and the description.
fn docs(operation: &Operation<'_>) -> Vec<Attribute> {
    let texts = ["summary", "description"].map(|name| operation.value[name].as_str().unwrap_or_default());
    docs::doc_attributes(texts.join("\n\n").trim_start())
}

fn ident(name: &str) -> Ident {
    Ident::new(name, Span::call_site())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::GATEWAY;

    pub(super) const PETS: &str = r##"{
        "openapi": "3.0.3",
        "info": { "title": "pets", "version": "1.0.0" },
        "paths": { "/pets/{id}": { "post": {
            "operationId": "feed_pet", "tags": ["pets"], "summary": "Feed it.", "description": "Gently.",
            "parameters": [{ "in": "path", "name": "id", "required": true, "description": "Which.", "schema": { "type": "string" } }],
            "requestBody": { "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Food" } } } },
            "responses": { "200": { "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Pet" } } } } }
        } } },
        "components": { "schemas": { "Food": { "type": "object" }, "Pet": { "type": "object" } } },
        "x-imagate-limits": [{ "name": "max_json_body_bytes", "value": 7 }]
    }"##;

    const FEED_PET: &str = r##"    /// Answers the requests of `feed_pet`.
    fn feed_pet(
        head: front::RequestHead<Self::Context>,
        path: front::PathParameters<FeedPetPath>,
        body: front::JsonBody<types::Food>,
    ) -> impl Future<Output = front::TypedResponse<types::Pet>> + Send + 'static;
    /// Feed it.
    ///
    /// Gently.
    #[endpoint{method = POST,
    path = "/pets/{id}",
    operation_id = "feed_pet",
    tags = ["pets"],
    request_body_max_bytes = 7,
    }]
    async fn feed_pet_endpoint(
        rqctx: dropshot::RequestContext<Self::Context>,
        path: front::PathParameters<FeedPetPath>,
        body: front::JsonBody<types::Food>,
    ) -> Result<
        front::TypedResponse<types::Pet>,
        front::ApiError<types::ErrorResponse>,
    > {
        Ok(
            Self::feed_pet(
                    front::RequestHead::from_dropshot(rqctx, "feed_pet"),
                    path,
                    body,
                )
                .await,
        )
    }
"##;

    const FEED_PET_ROUTE: &str = r##"        front::Route::new(
            "feed_pet",
            dropshot::Method::POST,
            "/pets/{id}",
            |mut request| {
                let path = request.take_path();
                let body = front::UnreadRequestBody::new(request.request, 7);
                front::boxed_answer(Served::feed_pet(request.head, path, body))
            },
        ),
"##;

    #[test]
    fn an_operation_becomes_a_method_with_an_endpoint_and_a_route() {
        let printed = prettyplease::unparse(&generate(&GATEWAY, &Document::parse(PETS).unwrap()).unwrap());
        assert!(printed.contains(FEED_PET), "{printed}");
        assert!(printed.contains(FEED_PET_ROUTE), "{printed}");
        assert!(printed.contains("pub struct FeedPetPath {\n    /// Which.\n    pub id: String,\n}"), "{printed}");
    }

    #[test]
    fn query_parameters_are_a_struct_with_the_table_of_the_operation() {
        let times = r##"{ "in": "query", "name": "times", "description": "How often.", "schema": { "$ref": "#/components/schemas/Food" } }"##;
        let since = r#"{ "in": "query", "name": "since", "schema": { "type": "string", "format": "date-time" } }"#;
        let text = PETS.replacen("\"parameters\": [", &format!("\"parameters\": [{times}, {since}, "), 1);
        let printed = prettyplease::unparse(&generate(&GATEWAY, &Document::parse(&text).unwrap()).unwrap());
        assert!(printed.contains("query: front::Query<FeedPetQuery>,"), "{printed}");
        assert!(printed.contains("/// How often.\n    pub times: Option<types::Food>,\n"), "{printed}");
        assert!(printed.contains("pub since: Option<chrono::DateTime<chrono::Utc>>,"), "{printed}");
        assert!(printed.contains("= crate::tables::FEED_PET_PARAMETERS;"), "{printed}");
    }

    #[test]
    fn an_unsupported_query_parameter_is_an_error_with_its_operation() {
        let refusal = |schema: &str, further_members: &str| {
            let parameter = format!(r#"{{ "in": "query", "name": "times", {further_members} "schema": {schema} }}"#);
            let text = PETS.replacen("\"parameters\": [", &format!("\"parameters\": [{parameter}, "), 1);
            format!("{:#}", generate(&GATEWAY, &Document::parse(&text).unwrap()).map(|_| ()).unwrap_err())
        };
        let number = refusal(r#"{ "type": "number" }"#, "");
        assert_eq!(number, "feed_pet: parameter 'times' must be a component, a text or a time");
        let required = refusal(r#"{ "type": "string" }"#, r#""required": true,"#);
        assert_eq!(required, "feed_pet: the query parameter 'times' must not be required");
    }

    #[test]
    fn an_answer_without_a_component_is_an_error_with_its_operation() {
        let text = PETS.replace("#/components/schemas/Pet\"", "#/elsewhere\"");
        let refusal = generate(&GATEWAY, &Document::parse(&text).unwrap()).map(|_| ()).unwrap_err();
        assert_eq!(format!("{refusal:#}"), "feed_pet: the 200 needs a JSON component");
    }
}
