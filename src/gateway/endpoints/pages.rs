//! Pages for people. They are no part of the documents, so they are registered beside the generated traits.

use std::sync::Arc;

use dropshot::{ApiDescription, ApiDescriptionRegisterError, Body, HttpError, RequestContext, endpoint};
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue, Response, StatusCode};

use crate::error::Error;
use crate::gateway::Gateway;

/// No script, no style, no frame and no form: the page is text.
const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_TYPE, "text/html; charset=utf-8"),
    (CACHE_CONTROL, "no-store"),
    (CONTENT_SECURITY_POLICY, "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
];

/// Adds the pages.
///
/// # Errors
///
/// Where a route is taken.
pub(super) fn register(api: &mut ApiDescription<Arc<Gateway>>) -> Result<(), ApiDescriptionRegisterError> {
    api.register(accounts)
}

/// The accounts with their state.
#[endpoint { method = GET, path = "/console/accounts", unpublished = true }]
async fn accounts(context: RequestContext<Arc<Gateway>>) -> Result<Response<Body>, HttpError> {
    let authorization = context.request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let console = context.context().console();
    let page = match console.admit_browser(authorization) {
        Ok(operator) => console.accounts_page(&operator).await,
        Err(error) => Err(error),
    };
    Ok(answer(page))
}

fn answer(page: Result<String, Error>) -> Response<Body> {
    let (status, text) = match page {
        Ok(text) => (StatusCode::OK, text),
        Err(error) => {
            let status = StatusCode::from_u16(error.code().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status, format!("<!doctype html>\n<html lang=\"en\"><title>imagate</title><p>{status}</p></html>\n"))
        }
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if status == StatusCode::UNAUTHORIZED {
        let ask = HeaderValue::from_static("Basic realm=\"imagate operators\", charset=\"UTF-8\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, ask);
    }
    response
}
