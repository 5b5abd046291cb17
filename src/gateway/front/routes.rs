//! Which requests no route takes, said before dropshot looks for itself.
//!
//! dropshot refuses an address or a method that nobody has registered with an error of its own, and has no hook for it.
//! But it asks for the version of the API first, with the request in hand, and an error from there may carry headers.
//! So a second router of the same routes is asked there, and what it refuses gets the advice of the money rules on
//! whether to try again. The body keeps dropshot's shape: ours is sent by routes, and there is none.

use std::fmt;

use dropshot::semver::Version;
use dropshot::{ApiDescription, Body, DynamicVersionPolicy, HttpError};
use http::{HeaderValue, Method, Request};

use super::answer::{Counts, SHOULD_RETRY};
use crate::error::{Error, Missing};

/// The routes of a server, which says what it has none for.
pub(super) struct Routes {
    refusal: Box<Refusal>,
    count: Box<dyn Fn(u16) + Send + Sync>,
}

/// A segment of a path that is at least so long may be a secret: all of ours are longer.
const SECRET_LENGTH: usize = 16;

/// Dropshot's own refusal of an address with this method, where it has one.
type Refusal = dyn Fn(&Method, &str) -> Option<HttpError> + Send + Sync;

// === impl Routes ===

impl Routes {
    pub(super) fn of<C: Counts + Clone>(api: ApiDescription<C>, context: C) -> Self {
        let router = api.into_router();
        Self {
            count: Box::new(move |status| context.answered("none", status)),
            refusal: Box::new(move |method, path| router.lookup_route(method, path.into(), None).err()),
        }
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").finish_non_exhaustive()
    }
}

impl DynamicVersionPolicy for Routes {
    fn request_extract_version(&self, request: &Request<Body>, _log: &slog::Logger) -> Result<Version, HttpError> {
        let (method, path) = (request.method(), request.uri().path());
        let Some(mut refusal) = (self.refusal)(method, path) else {
            // Every route is of every version.
            return Ok(Version::new(1, 0, 0));
        };
        let status = refusal.status_code.as_u16();
        (self.count)(status);
        tracing::info!(%method, path = without_secrets(path), status, "no route");
        let (method, path) = (method.to_string(), path.to_owned());
        let error = match status {
            404 => Some(Error::NotFound(Missing::Url { method, path })),
            405 => Some(Error::NotFound(Missing::Method { method, path })),
            _ => None,
        };
        if let Some(error) = error {
            refusal.error_code = Some(error.code().as_str().to_owned());
            refusal.external_message = error.to_string();
        }
        refusal.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        Err(refusal)
    }
}

/// A path with its long segments left out: one may be a one-time link, or a key in the wrong place.
fn without_secrets(path: &str) -> String {
    let segments = path.split('/').map(|segment| if segment.len() < SECRET_LENGTH { segment } else { "…" });
    segments.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_paths_without_what_may_be_a_secret() {
        assert_eq!(without_secrets("/v1/images/generation"), "/v1/images/generation");
        assert_eq!(without_secrets("/setup/0123456789abcdef/more"), "/setup/…/more");
    }
}
