//! The routes of the pages. The API documents do not contain the pages, so the routes are registered separately from
//! the generated traits. The `pages` module decides which page a path has.

use std::sync::{Mutex, PoisonError};

use dropshot::{
    ApiDescription, ApiDescriptionRegisterError, ApiEndpoint, ApiEndpointVersions, Body, HttpError, Path,
    RequestContext,
};
use http::header::{ACCEPT, ACCEPT_LANGUAGE, COOKIE, HOST, HeaderName, IF_NONE_MATCH, ORIGIN, USER_AGENT};
use http::{HeaderMap, Method, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::error::Error;
use crate::gateway::CurrentGateway;
use crate::gateway::front::{FormBody, ImagePageForm, PageContent, admission_of, run_page_handler};
use crate::gateway::pages::{
    FORM_MAX_BYTES, FormReadError, PLAYGROUND_PAGE_FIELDS, PLAYGROUND_PATH, PageBody, PageRequest, PageResponse,
    SECTIONS, UrlEncodedFields,
};

type PageRouteContext = RequestContext<CurrentGateway>;

const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];
/// The name of all pages in the metrics.
const OPERATION: &str = "pages";
const FORM_CONTENT_TYPE: &str = "application/x-www-form-urlencoded";
/// The content type of events, which the script of a page asks for.
const EVENTS: &[u8] = b"text/event-stream";
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
    // Only a known first segment is logged, because the following ones can hold the secret of a one-time link, and an
    // unknown one a key that was put in the wrong place.
    let section = context.request.uri().path().split('/').nth(1).unwrap_or_default();
    let section = SECTIONS.into_iter().find(|known| *known == section).unwrap_or_default();
    run_page_handler(&context, OPERATION, section, async {
        let page_request = read_page_request(&context, body).await;
        let gateway = context.context().get();
        let PageResponse { status, headers, body } = gateway.pages().handle(&gateway, &page_request).await;
        let mut response = Response::new(match body {
            PageBody::Whole(bytes) => PageContent::Whole(bytes),
            PageBody::Events(events) => PageContent::streaming(events),
            PageBody::Image(image) => PageContent::streaming(*image),
        });
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    })
    .await
}

async fn read_page_request(context: &PageRouteContext, body: FormBody) -> PageRequest {
    let request = &context.request;
    let (headers, admission) = (request.headers(), admission_of(context));
    let mut page_request = PageRequest {
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        query: UrlEncodedFields::parse(request.uri().query().unwrap_or_default().as_bytes()),
        form: Ok(UrlEncodedFields::default()),
        cookies: joined_headers(headers, &COOKIE, "; "),
        host: host(context),
        origin: single_header(headers, &ORIGIN),
        fetch_site: single_header(headers, &FETCH_SITE),
        admission,
        user_agent: joined_headers(headers, &USER_AGENT, " ").chars().take(MAX_AGENT_CHARS).collect(),
        accept_language: joined_headers(headers, &ACCEPT_LANGUAGE, ","),
        if_none_match: joined_headers(headers, &IF_NONE_MATCH, ","),
        wants_events: headers.get(ACCEPT).is_some_and(|value| value.as_bytes() == EVENTS),
        request_id: context.request_id.clone(),
        image_form: Mutex::default(),
    };
    if *request.method() == Method::POST {
        Box::pin(read_form(context, &mut page_request, body)).await;
    }
    page_request
}

/// Reads the form of a request. The form that makes images may be large: it is read only for a signed-in user, and only
/// if the browser states that a page of the gateway sends it.
async fn read_form(context: &PageRouteContext, request: &mut PageRequest, body: FormBody) {
    let gateway = context.context().get();
    let admission = request.admission.clone();
    let form = if request.path != PLAYGROUND_PATH || !body.is_multipart() {
        body.read(&admission, FORM_MAX_BYTES).await.map(|form| UrlEncodedFields::parse(&form))
    } else if gateway.pages().may_send_image_form(&gateway, request).await {
        let form = body.read_with_files(&admission, gateway.spool(), &PLAYGROUND_PAGE_FIELDS).await;
        form.map(|form| split_image_form(request, form))
    } else {
        return;
    };
    request.form = form.map_err(|error| match error {
        Error::TooLarge(_) => FormReadError::TooLarge,
        Error::Unavailable | Error::BudgetExceeded(_) => FormReadError::Unavailable,
        _ => FormReadError::NotAForm,
    });
}

/// Puts the fields and images of the API aside, and returns all fields as text.
fn split_image_form(request: &PageRequest, ImagePageForm { form, page_fields }: ImagePageForm) -> UrlEncodedFields {
    let as_text = |(name, value): (&String, &Value)| {
        (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    let fields = page_fields.into_iter().chain(form.fields.iter().map(as_text)).collect::<Vec<_>>();
    *request.image_form.lock().unwrap_or_else(PoisonError::into_inner) = Some(form);
    UrlEncodedFields::from_pairs(fields.into_iter())
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
