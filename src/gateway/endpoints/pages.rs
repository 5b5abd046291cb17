//! The routes of the pages. The API documents do not contain the pages, so the routes are registered separately from
//! the generated traits. The `pages` module decides which page a path has.

use bytes::Bytes;
use dropshot::{
    ApiDescription, ApiDescriptionRegisterError, ApiEndpoint, ApiEndpointVersions, Body, HttpError, Path,
    RequestContext,
};
use http::header::{ACCEPT_LANGUAGE, COOKIE, HOST, HeaderName, IF_NONE_MATCH, ORIGIN, USER_AGENT};
use http::{HeaderMap, Method, Response};
use schemars::JsonSchema;
use serde::Deserialize;

use super::client_address;
use crate::error::Error;
use crate::gateway::CurrentGateway;
use crate::gateway::front::{FormBody, run_page_handler};
use crate::gateway::pages::{FORM_MAX_BYTES, FormReadError, PageRequest, PageResponse, SECTIONS, UrlEncodedFields};

type PageRouteContext = RequestContext<CurrentGateway>;

const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];
const FORM_CONTENT_TYPE: &str = "application/x-www-form-urlencoded";
const ALL_VERSIONS: ApiEndpointVersions = ApiEndpointVersions::All;
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The maximum length of a `User-Agent` in the audit trail, in characters (our choice).
const MAX_AGENT_CHARS: usize = 200;

/// The segments of a path after the first segment.
#[derive(Deserialize, JsonSchema)]
struct PageSubpath {
    #[serde(rename = "rest")]
    _rest: Vec<String>,
}

/// Adds the pages.
///
/// # Errors
///
/// Returns an error if a route is already registered.
pub(super) fn register(api: &mut ApiDescription<CurrentGateway>) -> Result<(), ApiDescriptionRegisterError> {
    for method in METHODS {
        for section in SECTIONS {
            let (name, path) = (format!("pages {method} {section}"), format!("/{section}/{{rest:.*}}"));
            api.register(
                ApiEndpoint::new(name, page, method.clone(), FORM_CONTENT_TYPE, &path, ALL_VERSIONS).visible(false),
            )?;
        }
    }
    for method in [Method::GET, Method::HEAD] {
        let name = format!("pages {method}");
        api.register(ApiEndpoint::new(name, root, method, FORM_CONTENT_TYPE, "/", ALL_VERSIONS).visible(false))?;
    }
    Ok(())
}

async fn root(context: PageRouteContext, body: FormBody) -> Result<Response<Body>, HttpError> {
    Ok(respond_with_page(context, body).await)
}

async fn page(
    context: PageRouteContext,
    _rest: Path<PageSubpath>,
    body: FormBody,
) -> Result<Response<Body>, HttpError> {
    Ok(respond_with_page(context, body).await)
}

async fn respond_with_page(context: PageRouteContext, body: FormBody) -> Response<Body> {
    let unread = body.unread();
    // Only the first segment is logged, because the following ones can hold the secret of a one-time link.
    let section = context.request.uri().path().split('/').nth(1).unwrap_or_default().to_owned();
    run_page_handler(&context, &section, unread, async {
        let page_request = read_page_request(&context, body).await;
        let gateway = context.context().get();
        let PageResponse { status, headers, body } = gateway.pages().handle(&gateway, &page_request).await;
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    })
    .await
}

async fn read_page_request(context: &PageRouteContext, body: FormBody) -> PageRequest {
    let request = &context.request;
    let headers = request.headers();
    let form = if request.method() == Method::POST { body.read(FORM_MAX_BYTES).await } else { Ok(Bytes::new()) };
    PageRequest {
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        query: UrlEncodedFields::parse(request.uri().query().unwrap_or_default().as_bytes()),
        form: form.map(|form| UrlEncodedFields::parse(&form)).map_err(|error| match error {
            Error::TooLarge(_) => FormReadError::TooLarge,
            _ => FormReadError::NotAForm,
        }),
        cookies: joined_headers(headers, &COOKIE, "; "),
        host: host(context),
        origin: single_header(headers, &ORIGIN),
        fetch_site: single_header(headers, &FETCH_SITE),
        address: client_address(context),
        user_agent: joined_headers(headers, &USER_AGENT, " ").chars().take(MAX_AGENT_CHARS).collect(),
        accept_language: joined_headers(headers, &ACCEPT_LANGUAGE, ","),
        if_none_match: joined_headers(headers, &IF_NONE_MATCH, ","),
    }
}

/// Returns the host that a request names; `None` if it names none, or different hosts, because such a request is
/// ambiguous.
fn host(context: &PageRouteContext) -> Option<String> {
    let request = &context.request;
    let uri_host = request.uri().authority().map(ToString::to_string);
    let header_hosts = request.headers().get_all(HOST).iter();
    let mut hosts = uri_host.into_iter().chain(header_hosts.map(|value| value.to_str().unwrap_or_default().to_owned()));
    let first = hosts.next()?;
    hosts.all(|other| other == first).then_some(first)
}

/// Returns the value of a header that occurs once; an empty text if it occurs more than once, and `None` if it is
/// absent.
fn single_header(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().unwrap_or_default();
    Some(if values.next().is_none() { first.to_owned() } else { String::new() })
}

fn joined_headers(headers: &HeaderMap, name: &HeaderName, separator: &str) -> String {
    let values: Vec<&str> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    values.join(separator)
}
