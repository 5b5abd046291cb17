//! The routes of the pages. The pages are not part of the documents, so they are registered beside the generated
//! traits; the `pages` module decides which page a path has.

use bytes::Bytes;
use dropshot::{
    ApiDescription, ApiDescriptionRegisterError, ApiEndpoint, ApiEndpointVersions, Body, HttpError, Path,
    RequestContext,
};
use http::header::{ACCEPT_LANGUAGE, COOKIE, HOST, HeaderName, IF_NONE_MATCH, ORIGIN, USER_AGENT};
use http::{HeaderMap, Method, Response};
use schemars::JsonSchema;
use serde::Deserialize;

use super::address;
use crate::error::Error;
use crate::gateway::CurrentGateway;
use crate::gateway::front::{FormBody, respond};
use crate::gateway::pages::{FORM_MAX_BYTES, FormReadError, PageRequest, PageResponse, SECTIONS, UrlEncodedFields};

type PageRouteContext = RequestContext<CurrentGateway>;

const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];
const FORM: &str = "application/x-www-form-urlencoded";
const ALL: ApiEndpointVersions = ApiEndpointVersions::All;
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The maximum length of a browser's name in the audit trail.
const AGENT_CHARS: usize = 200;

/// The segments after the first one.
#[derive(Deserialize, JsonSchema)]
struct PageSubpath {
    #[serde(rename = "rest")]
    _rest: Vec<String>,
}

/// Adds the pages.
///
/// # Errors
///
/// Returns an error if a route is taken.
pub(super) fn register(api: &mut ApiDescription<CurrentGateway>) -> Result<(), ApiDescriptionRegisterError> {
    for method in METHODS {
        for section in SECTIONS {
            let (name, path) = (format!("pages {method} {section}"), format!("/{section}/{{rest:.*}}"));
            api.register(ApiEndpoint::new(name, page, method.clone(), FORM, &path, ALL).visible(false))?;
        }
    }
    for method in [Method::GET, Method::HEAD] {
        let name = format!("pages {method}");
        api.register(ApiEndpoint::new(name, root, method, FORM, "/", ALL).visible(false))?;
    }
    Ok(())
}

async fn root(context: PageRouteContext, body: FormBody) -> Result<Response<Body>, HttpError> {
    Ok(answer(context, body).await)
}

async fn page(
    context: PageRouteContext,
    _rest: Path<PageSubpath>,
    body: FormBody,
) -> Result<Response<Body>, HttpError> {
    Ok(answer(context, body).await)
}

async fn answer(context: PageRouteContext, body: FormBody) -> Response<Body> {
    let unread = body.unread();
    // The rest of a path can be a one-time link, which must not be logged.
    let section = context.request.uri().path().split('/').nth(1).unwrap_or_default().to_owned();
    respond(&context, &section, unread, async {
        let visit = visit(&context, body).await;
        let gateway = context.context().get();
        let PageResponse { status, headers, body } = gateway.pages().show(&gateway, &visit).await;
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    })
    .await
}

async fn visit(context: &PageRouteContext, body: FormBody) -> PageRequest {
    let request = &context.request;
    let headers = request.headers();
    let form = if request.method() == Method::POST { body.read(FORM_MAX_BYTES).await } else { Ok(Bytes::new()) };
    PageRequest {
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        query: UrlEncodedFields::read(request.uri().query().unwrap_or_default().as_bytes()),
        form: form.map(|form| UrlEncodedFields::read(&form)).map_err(|error| match error {
            Error::TooLarge(_) => FormReadError::TooLarge,
            _ => FormReadError::NoForm,
        }),
        cookies: joined(headers, &COOKIE, "; "),
        host: host(context),
        origin: only(headers, &ORIGIN),
        fetch_site: only(headers, &FETCH_SITE),
        address: address(context),
        agent: joined(headers, &USER_AGENT, " ").chars().take(AGENT_CHARS).collect(),
        languages: joined(headers, &ACCEPT_LANGUAGE, ","),
        known_tags: joined(headers, &IF_NONE_MATCH, ","),
    }
}

/// The one host that a request names. A request with two hosts can be read in two ways, so it has none.
fn host(context: &PageRouteContext) -> Option<String> {
    let request = &context.request;
    let of_uri = request.uri().authority().map(ToString::to_string);
    let of_header = request.headers().get_all(HOST).iter();
    let mut named = of_uri.into_iter().chain(of_header.map(|value| value.to_str().unwrap_or_default().to_owned()));
    let first = named.next()?;
    named.all(|other| other == first).then_some(first)
}

/// The value of a header that occurs once; `None` if it occurs more often.
fn only(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().unwrap_or_default();
    Some(if values.next().is_none() { first.to_owned() } else { String::new() })
}

fn joined(headers: &HeaderMap, name: &HeaderName, between: &str) -> String {
    let values: Vec<&str> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    values.join(between)
}
