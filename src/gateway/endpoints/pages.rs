//! The routes of the pages. The API documents do not contain the pages, so the routes are registered separately from
//! the generated traits. The `pages` module decides which page a path has.

use std::sync::{Mutex, PoisonError};

use dropshot::Body;
use http::header::{ACCEPT, ACCEPT_LANGUAGE, COOKIE, HOST, HeaderName, IF_NONE_MATCH, ORIGIN, USER_AGENT};
use http::{HeaderMap, Method, Response};
use serde_json::Value;

use crate::error::Error;
use crate::gateway::CurrentGateway;
use crate::gateway::front::{
    FormBody, HandlerFuture, ImagePageForm, PageContent, RequestHead, Route, RouteRequest, UnreadRequestBody,
    boxed_answer, run_page_handler,
};
use crate::gateway::pages::{
    FORM_MAX_BYTES, FormReadError, PLAYGROUND_PAGE_FIELDS, PLAYGROUND_PATH, PageBody, PageRequest, PageResponse,
    SECTIONS, UrlEncodedFields,
};

type PageRouteRequest = RequestHead<CurrentGateway>;

const METHODS: [Method; 6] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];
/// The name of all pages in the metrics.
const OPERATION: &str = "pages";
/// The content type of events, which the script of a page asks for.
const EVENTS: &[u8] = b"text/event-stream";
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The maximum length of a `User-Agent` in the audit trail, in characters (our choice).
const MAX_AGENT_CHARS: usize = 200;

/// Returns the routes of the pages: every method of every path below a section, and the root.
pub(super) fn routes() -> impl Iterator<Item = Route<CurrentGateway>> {
    let of_method =
        |method: Method| SECTIONS.map(|section| Route::for_folder(OPERATION, method.clone(), section, page));
    METHODS.into_iter().flat_map(of_method).chain([Route::new(OPERATION, Method::GET, "/", page)])
}

fn page(request: RouteRequest<CurrentGateway>) -> HandlerFuture {
    let body = UnreadRequestBody::new(request.request, FORM_MAX_BYTES);
    boxed_answer(respond_with_page(request.head, body))
}

async fn respond_with_page(head: PageRouteRequest, body: FormBody) -> Response<Body> {
    // Only a known first segment is logged, because the following ones can hold the secret of a one-time link, and an
    // unknown one a key that was put in the wrong place.
    let section = head.uri().path().split('/').nth(1).unwrap_or_default();
    let section = SECTIONS.into_iter().find(|known| *known == section).unwrap_or_default();
    run_page_handler(&head, section, async {
        let page_request = read_page_request(&head, body).await;
        let gateway = head.server().get();
        let PageResponse { status, headers, body } = gateway.pages.handle(&gateway, &page_request).await;
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

async fn read_page_request(head: &PageRouteRequest, body: FormBody) -> PageRequest {
    let (headers, admission) = (head.headers(), head.admission().clone());
    let mut page_request = PageRequest {
        method: head.method().clone(),
        path: head.uri().path().to_owned(),
        query: UrlEncodedFields::parse(head.uri().query().unwrap_or_default().as_bytes()),
        form: Ok(UrlEncodedFields::default()),
        cookies: joined_headers(headers, &COOKIE, "; "),
        host: host(head),
        origin: single_header(headers, &ORIGIN),
        fetch_site: single_header(headers, &FETCH_SITE),
        admission,
        user_agent: joined_headers(headers, &USER_AGENT, " ").chars().take(MAX_AGENT_CHARS).collect(),
        accept_language: joined_headers(headers, &ACCEPT_LANGUAGE, ","),
        if_none_match: joined_headers(headers, &IF_NONE_MATCH, ","),
        wants_events: headers.get(ACCEPT).is_some_and(|value| value.as_bytes() == EVENTS),
        request_id: head.request_id().to_owned(),
        image_form: Mutex::default(),
    };
    if *head.method() == Method::POST {
        Box::pin(read_form(head, &mut page_request, body)).await;
    }
    page_request
}

/// Reads the form of a request. The form that makes images may be large: it is read only for a signed-in user, and only
/// if the browser states that a page of the gateway sends it.
async fn read_form(head: &PageRouteRequest, request: &mut PageRequest, body: FormBody) {
    let gateway = head.server().get();
    let admission = request.admission.clone();
    let form = if request.path != PLAYGROUND_PATH || !body.is_multipart() {
        body.read(&admission, FORM_MAX_BYTES).await.map(|form| UrlEncodedFields::parse(&form))
    } else if gateway.pages.may_send_image_form(&gateway, request).await {
        let form = body.read_with_files(&admission, &gateway.images.spool, &PLAYGROUND_PAGE_FIELDS).await;
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
fn host(head: &PageRouteRequest) -> Option<String> {
    let uri_host = head.uri().authority().map(ToString::to_string);
    let header_hosts = head.headers().get_all(HOST).iter();
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
