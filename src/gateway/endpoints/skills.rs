//! The published skills. They are not part of the API documents, and need no API key.
//!
//! Below `/skills/` there are only the manifest and the packages that it names, at the paths that the manifest states.
//! A path is looked up in this list, and never on disk.

mod package_body;

use dropshot::{
    ApiDescription, ApiDescriptionRegisterError, ApiEndpoint, ApiEndpointVersions, Body, HttpError, Path,
    RequestContext,
};
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Method, Response, StatusCode};
use percent_encoding::percent_decode_str;

use crate::gateway::CurrentGateway;
use crate::gateway::front::{ResponseCounter as _, not_found};
use crate::gateway::registry::{EntityTag, PublishedDocument};
use package_body::PackageBody;

type SkillsContext = RequestContext<CurrentGateway>;

const JSON: &str = "application/json";
const ALL_VERSIONS: ApiEndpointVersions = ApiEndpointVersions::All;
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

/// The path below the folder, which the router requires as a parameter of the handler. The handler does not use it,
/// because the router drops empty segments but paths must be compared exactly; it reads the path of the URI instead.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct PackagePath {
    #[serde(rename = "path")]
    _path: Vec<String>,
}

/// Adds the manifest, its packages and the index.
///
/// # Errors
///
/// Returns an error if a route is already registered.
pub(super) fn register(api: &mut ApiDescription<CurrentGateway>) -> Result<(), ApiDescriptionRegisterError> {
    for method in [Method::GET, Method::HEAD] {
        let (file_route, index_route) = (format!("skills file {method}"), format!("skills index {method}"));
        api.register(
            ApiEndpoint::new(file_route, serve_file, method.clone(), JSON, "/skills/{path:.*}", ALL_VERSIONS)
                .visible(false),
        )?;
        let path = "/.well-known/agent-skills/index.json";
        api.register(ApiEndpoint::new(index_route, serve_index, method, JSON, path, ALL_VERSIONS).visible(false))?;
    }
    Ok(())
}

async fn serve_file(context: SkillsContext, _: Path<PackagePath>) -> Result<Response<Body>, HttpError> {
    let Some(published) = context.context().get().skills().await else { return not_found(context).await };
    let Some(path) = path_in_folder(context.request.uri().path()) else { return not_found(context).await };
    if path == MANIFEST {
        return Ok(document_response(&context, OPERATION, &published.manifest));
    }
    let Some(package) = published.package(&path) else { return not_found(context).await };
    if is_client_copy_current(&context, &package.tag) {
        return Ok(file_response(&context, OPERATION, &package.tag, content_type(&path), None));
    }
    // A package that has changed on disk does not match its checksum and is not sent; the folder is read again within a
    // second.
    let Some((file, length)) = package.open().await else { return not_found(context).await };
    Ok(file_response(
        &context,
        OPERATION,
        &package.tag,
        content_type(&path),
        Some(Body::wrap(PackageBody::new(file, length))),
    ))
}

async fn serve_index(context: SkillsContext) -> Result<Response<Body>, HttpError> {
    match context.context().get().skills().await {
        Some(published) => Ok(document_response(&context, OPERATION, &published.index)),
        None => not_found(context).await,
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

/// Returns a document, or 304 if the client's copy is current. The answer is counted under the name of the operation.
pub(super) fn document_response(
    context: &SkillsContext,
    operation: &'static str,
    document: &PublishedDocument,
) -> Response<Body> {
    let body = (!is_client_copy_current(context, &document.tag)).then(|| Body::from(document.bytes.clone()));
    file_response(context, operation, &document.tag, JSON, body)
}

fn is_client_copy_current(context: &SkillsContext, tag: &EntityTag) -> bool {
    let tags = context.request.headers().get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    tags.is_some_and(|tags| tag.is_in_list(tags))
}

/// Returns the answer 200 with this body, or 304 without a body if the client's copy is current.
fn file_response(
    context: &SkillsContext,
    operation: &'static str,
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
    context.context().count_response(operation, status.as_u16());
    response
}
