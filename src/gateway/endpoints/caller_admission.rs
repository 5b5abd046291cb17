//! Admits the callers of the API: finds the key of a request, in the header of Azure too.

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};

use crate::error::Error;
use crate::gateway::admission::{Admission, Principal};
use crate::gateway::config::Dialect;
use crate::gateway::front::RequestHead;
use crate::gateway::keys::Caller;
use crate::gateway::{CurrentGateway, Gateway, flow};

/// A request of the API, without its body.
pub(super) type ApiRequest = RequestHead<CurrentGateway>;

/// The header in which clients of Azure send the key.
const KEY_HEADER: HeaderName = HeaderName::from_static("api-key");

/// Checks the key of a request, whose admission then counts for the owner of the key.
pub(super) async fn admit(gateway: &Gateway, head: &ApiRequest) -> Result<(Caller, Admission), Error> {
    let headers = head.headers();
    let caller = match (headers.get(AUTHORIZATION), headers.get(KEY_HEADER)) {
        (None, Some(key)) => admit_by_key_header(gateway, key.as_bytes()).await,
        (authorization, _) => flow::admit(&gateway.images, authorization.map(HeaderValue::as_bytes)).await,
    }?;
    let admission = head.admission().clone();
    admission.set_principal(Principal::of_key(caller.user(), caller.key()).with_work(caller.work().clone()));
    Ok((caller, admission))
}

/// Turns the value of the header [`KEY_HEADER`] into a `Caller`.
///
/// # Errors
///
/// Returns the errors of [`flow::admit`], and 401 that names the dialect if the key is valid without it.
async fn admit_by_key_header(gateway: &Gateway, key: &[u8]) -> Result<Caller, Error> {
    let caller = flow::admit(&gateway.images, Some(&[b"Bearer ", key].concat())).await?;
    if caller.dialects().contains(Dialect::Azure) { Ok(caller) } else { Err(Error::UndeclaredKeyHeader) }
}

/// Reads the request, unless the gateway stops first. The caller can then safely repeat it, because no upstream was
/// called for it.
pub(super) async fn read_unless_stopped<T>(
    gateway: &Gateway,
    reading: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::select! {
        read = reading => read,
        () = gateway.images.cutoff.cancelled() => Err(Error::Unavailable),
    }
}
