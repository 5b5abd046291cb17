//! The links to images of stored answers. The link is the permission, so there is no API key, and the path is never
//! logged: its token gives the image to everyone who knows it.
//!
//! Everything that is not a valid link is the same 404: a token that was not sealed here or has ended, an answer that is
//! not stored any more, a key that is not valid.

use chrono::Utc;
use dropshot::Body;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};

use crate::error::{Error, MissingResource};
use crate::gateway::CurrentGateway;
use crate::gateway::flow::{self, LinkedImage};
use crate::gateway::front::{PageContent, RequestHead, Route, boxed_answer, error_content, run_page_handler};
use crate::gateway::image_links::IMAGE_FILES_PATH;

type ImageFileRequest = RequestHead<CurrentGateway>;

/// The name of the operation in the metrics.
const OPERATION: &str = "image_files";
/// The part of the path that is logged.
const SECTION: &str = "v1/images/files";
/// The path of a link, which begins with [`IMAGE_FILES_PATH`].
const PATH: &str = "/v1/images/files/{token}";
/// A browser shows the file, and nothing in it can run or load anything.
const POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Returns the route of the links.
pub(super) fn route() -> Route<CurrentGateway> {
    Route::new(OPERATION, Method::GET, PATH, |mut request| {
        // The path of the route has the variable.
        let token = request.take_variable("token").unwrap_or_default();
        boxed_answer(send_image(request.head, token))
    })
}

async fn send_image(head: ImageFileRequest, token: String) -> Response<Body> {
    run_page_handler(&head, SECTION, async {
        let gateway = head.server().get();
        match flow::find_linked_image(&gateway.images, &token).await {
            Ok(Some(image)) => image_response(image),
            Ok(None) => error_content(&missing_file(&head)),
            Err(error) => error_content(&error),
        }
    })
    .await
}

/// The error for everything that is not a valid link. It does not repeat the token.
fn missing_file(head: &ImageFileRequest) -> Error {
    let method = head.method().to_string();
    Error::NotFound(MissingResource::Url { method, path: format!("{IMAGE_FILES_PATH}…") })
}

fn image_response(image: LinkedImage) -> Response<PageContent> {
    let LinkedImage { format, body, expires_at } = image;
    let seconds = (expires_at - Utc::now()).num_seconds().max(0);
    let mut response = Response::new(PageContent::streaming(body));
    *response.status_mut() = StatusCode::OK;
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    // A page of another site that was given the link may show the image.
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
    let texts = [
        (CONTENT_TYPE, format!("image/{format}")),
        (CACHE_CONTROL, format!("private, max-age={seconds}")),
        (CONTENT_DISPOSITION, format!("inline; filename=\"image.{}\"", format.extension())),
    ];
    headers.extend(texts.into_iter().filter_map(|(name, text)| Some((name, HeaderValue::from_str(&text).ok()?))));
    response
}
