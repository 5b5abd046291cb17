//! The published skills: they are not part of the documents, and need no key.
//!
//! Below `/skills/` there are only the manifest and the packages that it names, at the paths that it gives them. A path
//! is looked up in this list, and never on disk.

mod package_body;

use dropshot::{
    ApiDescription, ApiDescriptionRegisterError, ApiEndpoint, ApiEndpointVersions, Body, HttpError, Path,
    RequestContext,
};
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Method, Response, StatusCode};
use percent_encoding::percent_decode_str;

use crate::gateway::CurrentGateway;
use crate::gateway::front::{ResponseCounter as _, nothing_here};
use crate::gateway::registry::{EntityTag, PublishedDocument};
use package_body::PackageBody;

type SkillsContext = RequestContext<CurrentGateway>;

const JSON: &str = "application/json";
const ALL: ApiEndpointVersions = ApiEndpointVersions::All;
/// The folder of the manifest and its packages.
const FOLDER: &str = "/skills/";
/// The file name of the manifest.
const MANIFEST: &str = "skills.json";
/// Five minutes (ours): a new version is not urgent, and a check by tag costs almost nothing.
const CACHING: &str = "public, max-age=300";
/// The endings of package names, and their content types. Any other package is sent as binary data.
const KINDS: [(&str, &str); 3] =
    [(".zip", "application/zip"), (".tar.gz", "application/gzip"), (".tgz", "application/gzip")];

/// The path below the folder. The router requires that a handler takes it, but drops empty segments, and names are
/// compared exactly; so the handler reads the path itself.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct PackagePath {
    #[serde(rename = "path")]
    _path: Vec<String>,
}

/// Adds the manifest, its packages and the index.
///
/// # Errors
///
/// Returns an error if a route is taken.
pub(super) fn register(api: &mut ApiDescription<CurrentGateway>) -> Result<(), ApiDescriptionRegisterError> {
    for method in [Method::GET, Method::HEAD] {
        let (one, other) = (format!("skills file {method}"), format!("skills index {method}"));
        api.register(ApiEndpoint::new(one, file, method.clone(), JSON, "/skills/{path:.*}", ALL).visible(false))?;
        let path = "/.well-known/agent-skills/index.json";
        api.register(ApiEndpoint::new(other, index, method, JSON, path, ALL).visible(false))?;
    }
    Ok(())
}

async fn file(context: SkillsContext, _: Path<PackagePath>) -> Result<Response<Body>, HttpError> {
    let Some(published) = context.context().get().skills().await else { return nothing_here(context).await };
    let Some(path) = below(context.request.uri().path()) else { return nothing_here(context).await };
    if path == MANIFEST {
        return Ok(document(&context, &published.manifest));
    }
    let Some(package) = published.package(&path) else { return nothing_here(context).await };
    if is_known(&context, &package.tag) {
        return Ok(answer(&context, &package.tag, kind(&path), None));
    }
    // A changed package does not match its checksum; the folder is read again within a second.
    let Some((file, length)) = package.open().await else { return nothing_here(context).await };
    Ok(answer(&context, &package.tag, kind(&path), Some(Body::wrap(PackageBody::of(file, length)))))
}

async fn index(context: SkillsContext) -> Result<Response<Body>, HttpError> {
    match context.context().get().skills().await {
        Some(published) => Ok(document(&context, &published.index)),
        None => nothing_here(context).await,
    }
}

/// The path below the folder, without escapes.
fn below(path: &str) -> Option<String> {
    let path = percent_decode_str(path.strip_prefix(FOLDER)?).decode_utf8().ok()?;
    Some(path.into_owned())
}

fn kind(path: &str) -> &'static str {
    KINDS.iter().find(|(ending, _)| path.ends_with(ending)).map_or("application/octet-stream", |(_, kind)| kind)
}

fn document(context: &SkillsContext, document: &PublishedDocument) -> Response<Body> {
    let body = (!is_known(context, &document.tag)).then(|| Body::from(document.bytes.clone()));
    answer(context, &document.tag, JSON, body)
}

fn is_known(context: &SkillsContext, tag: &EntityTag) -> bool {
    let tags = context.request.headers().get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    tags.is_some_and(|tags| tag.is_known(tags))
}

/// The answer with this body; without a body, the answer that the client's copy is current.
fn answer(context: &SkillsContext, tag: &EntityTag, kind: &'static str, body: Option<Body>) -> Response<Body> {
    let status = if body.is_some() { StatusCode::OK } else { StatusCode::NOT_MODIFIED };
    let mut response = Response::new(body.unwrap_or_else(Body::empty));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(CACHING));
    // The files are public, so a page in a browser may read them as well.
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.extend(HeaderValue::try_from(tag.as_str()).map(|tag| (ETAG, tag)));
    context.context().answered("skills", status.as_u16());
    response
}
