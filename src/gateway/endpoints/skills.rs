//! The published skills. They are not part of the API documents, and need no API key.
//!
//! Below `/skills/` there are only the manifest and the packages that it names, at the paths that the manifest states.
//! A path is looked up in this list, and never on disk.

mod package_body;

use dropshot::Body;
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Method, Response, StatusCode};
use percent_encoding::percent_decode_str;

use crate::gateway::CurrentGateway;
use crate::gateway::front::{RequestHead, ResponseCounter as _, Route, boxed_answer, not_found};
use crate::gateway::registry::{EntityTag, PublishedDocument};
use package_body::PackageBody;

type SkillsRequest = RequestHead<CurrentGateway>;

const JSON: &str = "application/json";
/// The name under which answers are counted.
const OPERATION: &str = "skills";
/// The folder of the manifest and its packages.
const SKILLS_PATH: &str = "/skills/";
/// The file name of the manifest.
const MANIFEST: &str = "skills.json";
/// Clients may cache an answer for five minutes (our choice): a new version is not urgent, and a check by entity tag
/// costs almost nothing.
const CACHE_POLICY: &str = "public, max-age=300";
/// The endings of package names, and their content types. Any other package is sent as binary data.
const PACKAGE_CONTENT_TYPES: [(&str, &str); 3] =
    [(".zip", "application/zip"), (".tar.gz", "application/gzip"), (".tgz", "application/gzip")];

/// Returns the routes of the manifest, its packages and the index.
pub(super) fn routes() -> [Route<CurrentGateway>; 2] {
    let index_path = "/.well-known/agent-skills/index.json";
    [
        Route::for_folder(OPERATION, Method::GET, "skills", |request| boxed_answer(serve_file(request.head))),
        Route::new(OPERATION, Method::GET, index_path, |request| boxed_answer(serve_index(request.head))),
    ]
}

async fn serve_file(head: SkillsRequest) -> Response<Body> {
    let Some(published) = head.server().get().skills().await else { return not_found(&head) };
    let Some(path) = path_in_folder(head.uri().path()) else { return not_found(&head) };
    if path == MANIFEST {
        return document_response(&head, &published.manifest);
    }
    let Some(package) = published.package(&path) else { return not_found(&head) };
    if is_client_copy_current(&head, &package.tag) {
        return file_response(&head, &package.tag, content_type(&path), None);
    }
    // A package that has changed on disk does not match its checksum and is not sent; the folder is read again within a
    // second.
    let Some((file, length)) = package.open().await else { return not_found(&head) };
    let body = Body::wrap(PackageBody::new(file, length));
    file_response(&head, &package.tag, content_type(&path), Some(body))
}

async fn serve_index(head: SkillsRequest) -> Response<Body> {
    match head.server().get().skills().await {
        Some(published) => document_response(&head, &published.index),
        None => not_found(&head),
    }
}

/// Returns the part of the path below the folder with percent-escapes decoded; `None` if the path is not below the
/// folder, or is not UTF-8. A slash separates folders here and is never escaped, so that each package has one path.
fn path_in_folder(path: &str) -> Option<String> {
    let path = path.strip_prefix(SKILLS_PATH).filter(|path| !path.to_ascii_uppercase().contains("%2F"))?;
    let path = percent_decode_str(path).decode_utf8().ok()?;
    Some(path.into_owned())
}

fn content_type(path: &str) -> &'static str {
    PACKAGE_CONTENT_TYPES
        .iter()
        .find(|(ending, _)| path.ends_with(ending))
        .map_or("application/octet-stream", |(_, content_type)| content_type)
}

/// Returns a document, or 304 if the client's copy is current.
pub(super) fn document_response(head: &SkillsRequest, document: &PublishedDocument) -> Response<Body> {
    let body = (!is_client_copy_current(head, &document.tag)).then(|| Body::from(document.bytes.clone()));
    file_response(head, &document.tag, JSON, body)
}

fn is_client_copy_current(head: &SkillsRequest, tag: &EntityTag) -> bool {
    let tags = head.headers().get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    tags.is_some_and(|tags| tag.is_in_list(tags))
}

/// Returns the answer 200 with this body, or 304 without a body if the client's copy is current.
fn file_response(
    head: &SkillsRequest,
    tag: &EntityTag,
    content_type: &'static str,
    body: Option<Body>,
) -> Response<Body> {
    let status = if body.is_some() { StatusCode::OK } else { StatusCode::NOT_MODIFIED };
    let mut response = Response::new(body.unwrap_or_else(Body::empty));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(CACHE_POLICY));
    // The files are public, so a page in a browser may read them as well.
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.extend(HeaderValue::try_from(tag.as_str()).map(|tag| (ETAG, tag)));
    head.server().count_response(head.operation(), status.as_u16());
    response
}
